"""What Tide follows: positions in its plan, columns of the tables of choices, and when the next measurement is due."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import lean

# positions in `plan`
CHOICE = 0  # the row of the tables that is followed
DUE = 1  # the next step to be measured
REMAINDER = 2  # of the division that makes the gaps
ALARM = 3  # 1 while the model does not fit
TAKEN = 4  # the row of the tables of the measurement in hand
LAST_FIT = 5  # the number of measurements at the last estimate
STAGE = 6  # 1 where the first window looks again, at once, after its opening showed nothing
GROUP_ROW = 7  # the row of the tables that the open group, or the last one, follows
GROUP_FIRST = 8  # its first step
GROUP_LAST = 9  # and its last one so far
LEFT = 10  # measurements that the open group may still have; 0 where none is open
# measurements with shared noise so far, and those that groups were left without: where noise is found
NUMBER = 11
PLACED = 12  # measurements of the open group
PLACE = 13  # its number, of the groups that follow one choice: not all of them are equally long
PARTS = 14  # spans that the open group has, a semiorder several of them
LEVEL = 15  # eighths of its budget that they are
PLAN = 16

# columns of `shares` (whole numbers), one row for each choice
MEASUREMENTS = 0  # k in a window
SPAN = 1  # steps over which k gaps stretch
CHARGE = 2  # units of one, or of a group of them
LENGTH = 3  # measurements of a group, at most; 0 where each has noise of its own, ENDLESS for a semiorder
BREADTH = 4  # measurements of a semiorder that a window may contain; else 0
PERIOD = 5  # of so many groups in turn
LONGER = 6  # the first so many have one measurement more
RAMP = 7  # of a semiorder: the row of its first eighth, and six more follow
SHARES = 8
ENDLESS = 1 << 60

# columns of `scales`
SCALE = 0  # of Laplace noise with this variance, in grid units; the standard deviation of Gaussian noise
VARIANCE = 1
KNOWN_AS = 2  # the noise as the filter takes it: the variance, negative where it is shared
SCALES = 3
EIGHTHS = 8  # parts of the budget of a semiorder

# positions in the numbers of noise that was drawn ahead; see `ahead.Secret`
POSITION = 0  # of the next row
END = 1  # of its rows
POOL_ROW = 2  # the row of the tables whose law they are of


@lean
def next_gap(shares: Any, choice: int, plan: Any) -> Any:
    """Steps to the next measurement: k of them make SPAN exactly, wherever one begins to count."""
    reached = plan[REMAINDER] + shares[choice, SPAN]
    gap = reached // shares[choice, MEASUREMENTS]
    plan[REMAINDER] = reached - gap * shares[choice, MEASUREMENTS]
    return max(1, gap)


@lean
def group_length(shares: Any, row: int, place: int) -> Any:
    """How many measurements the group in this place has, of those that follow one row."""
    return shares[row, LENGTH] + (1 if place % shares[row, PERIOD] < shares[row, LONGER] else 0)


@lean
def leave_group(plan: Any, pool: Any, shares: Any) -> None:
    """End the open group before it has all of its measurements: the rest of its noise is never used."""
    if plan[LEFT] > 0:
        if shares[plan[GROUP_ROW], LENGTH] < ENDLESS:
            pool[POSITION] += plan[LEFT]
            plan[NUMBER] += plan[LEFT]
        else:
            pool[POSITION] = pool[END]
        plan[LEFT] = 0
