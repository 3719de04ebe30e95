"""When Tide measures: choices of so many measurements in a window, and the one with the least predicted error."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.exact import float_up
from tidegate.mechanisms.tide.kernels import loop
from tidegate.mechanisms.tide.kernels.forecast import predicted_error, predicted_smoothed
from tidegate.noise import check_scale, variance_laplace
from tidegate.structures.kernels import tracking as t
from tidegate.structures.kernels.state_space import phases_from
from tidegate.structures.state_space_tracker import Tracker

DIVISOR = 5040  # units of the smallest share, so that most shares are exact
LONGEST_GAP = 512
WINDOWS_AHEAD = 2  # that a choice is judged by
HORIZON = 1024  # steps, at most
ENOUGH, GAPS = 144, 12  # steps, and gaps of the present choice, that are enough
OPENING_SHARE = Fraction(1, 8)  # of a sliding window's budget, for the very first measurement
FINITE_OPENING = Fraction(1, 32)  # the same where the budget never comes back
SECOND_SHARE = 2  # times as much for a second one at once, where it shows nothing and no period is to come
USELESS = 4.0  # a choice whose noise variance is so many times the squared size of the values says nothing
SHORTEST_OPENED = 16  # windows below need no opening
CAUTION = 4  # gaps are at most this part of what was seen so far
BOLDNESS = 2  # the same where a whole period showed nothing
PHASES = 8  # and they see so many phases of the first period, whose beginning says little about the rest
FAMILIAR = (
    48  # steps, without periods, after which a stream that shows nothing need not be watched at every step
)
EARLIER = 2  # so many times fewer, and stronger, measurements than before need not wait
CLEARLY = 0.97  # a choice is given up for one that is predicted to be so much better
LEAST_VARIANCE = 1e-6  # of noise, in squared grid units: the filter divides by it


@dataclass(frozen=True)
class Choices:
    """Public tables: for each number k of measurements in a window its charge and its noise.

    Attributes
    ----------
    units
        Into how many units the budget of a window is divided.
    shares
        k, the steps over which k gaps stretch, and the units of one measurement.
    scales
        The noise scale of one and its variance, in grid units.
    rows
        How many choices there are; the tables have them three times: as they are, for a first window whose budget pays
        for the opening measurement, and for one that pays for a second one as well. Then follow those two.
    """

    units: int
    shares: npt.NDArray[np.int64]
    scales: npt.NDArray[np.float64]
    rows: int


def numbers_of_measurements(window: int) -> list[int]:
    """k from all steps down to one, in steps of about √2.

    Examples
    --------
    >>> numbers_of_measurements(24)
    [24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    found = [window]
    gap = Fraction(3, 2)
    while gap <= min(window, LONGEST_GAP):
        found.append(max(1, round(window / gap)))
        gap = gap * Fraction(4, 3) if gap.numerator % 3 == 0 else gap * Fraction(3, 2)
    if window <= LONGEST_GAP:
        found.append(1)
    return sorted(set(found), reverse=True)


def choices(window: int, sliding: bool, periodic: bool, sensitivity: int, epsilon: Fraction) -> Choices:
    """The tables for a policy, for streams with public periods or without any."""
    units = DIVISOR * 32 * window if window < 2**30 else 32 * window
    opening = (OPENING_SHARE if sliding else FINITE_OPENING) if window >= SHORTEST_OPENED else Fraction(0)
    numbers = numbers_of_measurements(window)
    shares, scales = [], []
    second = SECOND_SHARE * opening
    for left in (Fraction(1), 1 - opening, 1 - opening - second):
        for number in numbers:
            charge = int(left * units) // number
            # one step more than the window for k gaps: no phase of a period is left out for ever
            drifts = number < window and (periodic or window >= SHORTEST_OPENED)
            span = window + 1 if drifts else window
            shares.append((number, span, charge))
    shares += [(window, window, int(share * units) or units // window) for share in (opening, second)]
    for _, _, charge in shares:
        scale = float_up(Fraction(sensitivity * units) / (epsilon * charge))
        check_scale(scale)  # refuses, while nothing is charged, what noise could not be drawn for
        scales.append((scale, max(variance_laplace(scale), LEAST_VARIANCE)))
    return Choices(units, np.array(shares, dtype=np.int64), np.array(scales), len(numbers))


def choose(tables: Choices, tracker: Tracker, age: int, present: int, horizon: int, smoothed: bool) -> int:
    """The choice with the least error that the fitted model predicts for the coming steps, after `age` steps of a run."""
    memory, structure = tracker.memory, tracker.structure
    kinds, counts = np.unique(memory["kind"], return_counts=True)
    scratch = np.zeros((structure.states, structure.states))
    gaps = tables.shares[: tables.rows, loop.SPAN] / tables.shares[: tables.rows, loop.MEASUREMENTS]
    noise = tables.scales[: tables.rows, loop.VARIANCE]
    size = tracker.size
    shortest = min(structure.periods, default=0.0)
    if not size.visible:
        # strong measurements see most, but until a period has passed nobody knows what the rest of it is like:
        # many weak ones find soon whatever is worse to miss than plain noise is to release
        window = int(tables.shares[0, loop.MEASUREMENTS])
        watched = age < min(shortest or FAMILIAR, 2 * window)
        blind = max(1.0, min(shortest, window) / PHASES if watched else age / BOLDNESS)
        return int(np.flatnonzero(gaps <= blind)[-1])
    useful = np.append(np.flatnonzero(noise <= USELESS * size.square), tables.rows - 1)[0]
    skipped = gaps[useful] if age > shortest else min(gaps[useful], shortest / PHASES)
    longest = max(1.0, age / CAUTION, skipped)
    now = int(memory["clock"][t.LAST])
    beyond = tracker.keep if smoothed else int(gaps[-1]) + 1
    coming = phases_from(structure.once, now + 1, horizon + beyond)

    def predicted(choice: int, limit: float) -> float:
        error = 0.0
        for c, count in zip(kinds.tolist(), counts / len(memory["kind"]), strict=True):
            model = (memory["covariance"][c], memory["parameters"][c], coming, structure.weight)
            rule = (tables.shares, choice, noise[choice], horizon)
            if smoothed:
                error += count * predicted_smoothed(*model, now, structure.once, *rule, tracker.keep, scratch)
            else:
                error += count * predicted_error(*model, *rule, (limit - error) / count, scratch)
        return error

    allowed = [choice for choice in range(tables.rows) if not choice or gaps[choice] <= longest]
    best, least = allowed[0], np.inf
    if present in allowed:
        best, least = present, CLEARLY * predicted(present, np.inf)
    for choice in allowed:
        if choice != present:
            error = predicted(choice, least)
            if error < least:
                best, least = choice, error
    return best


def replan(
    tables: Choices, tracker: Tracker, plan: npt.NDArray[np.int64], window: int, smoothed: bool, origin: int
) -> None:
    """Choose again after new estimates, and move the next measurement; the run has seen the steps after `origin`."""
    step = int(tracker.memory["clock"][t.LAST])
    opening = len(tables.shares) - 2
    if tables.rows > 1:
        before = int(plan[loop.CHOICE])
        number, span = tables.shares[before, loop.MEASUREMENTS], tables.shares[before, loop.SPAN]
        enough = max(ENOUGH, int(GAPS * span // number))
        horizon = min(WINDOWS_AHEAD * window, HORIZON, enough)
        chosen = choose(tables, tracker, step - origin, before, horizon, smoothed)
        if chosen != before:
            number = int(tables.shares[chosen, loop.MEASUREMENTS])
            # much stronger measurements begin at once if the window has budget to spare, else as soon as it has;
            # to others one goes over with a long first gap: choices that change to and fro must not waste budget
            stronger = EARLIER * number <= tables.shares[before, loop.MEASUREMENTS]
            plan[loop.CHOICE], plan[loop.REMAINDER] = chosen, number - 1
            plan[loop.DUE] = step + (1 if stronger else loop.next_gap(tables.shares, chosen, plan))
    opened = tracker.count == 1 and tables.shares[opening, loop.CHARGE] > tables.shares[0, loop.CHARGE]
    if opened and not tracker.structure.periods and not tracker.size.visible:
        plan[loop.STAGE], plan[loop.DUE] = 1, step + 1
    plan[loop.LAST_FIT] = tracker.count
