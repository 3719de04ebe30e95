"""Made-up households that specify what they want hidden: appliances, habits, and when they use them.

Like ``streams``, this file draws from numpy's seeded generators because what it makes is public and about
people who do not exist. Heights are kW averaged over a step of 15 minutes, since that is what a meter shows.
Powers, habits and durations are plausible guesses, not fitted to measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.exact import whole
from tidegate.policy import Clock, Intervals, Secret, Specification

Integers = npt.NDArray[np.int64]
DAY = 96  # steps of 15 minutes


@dataclass(frozen=True)
class Appliance:
    """What an appliance draws, how long, how often and when it is used.

    Attributes
    ----------
    power
        kW, the highest average over a step.
    durations
        Steps of a use: shortest, usual and longest; long ones are rare.
    weekly
        Uses a week by type of household, in the order of `TYPES`.
    hours
        Likely hours of a start, as "hour:weight" points.
    spread
        How much durations vary: the deviation of their logarithm.
    """

    name: str
    power: str
    durations: tuple[int, int, int]
    weekly: tuple[float, ...]
    hours: str
    spread: float = 0.3

    def draw_durations(self, count: int, random: np.random.Generator) -> Integers:
        """Durations of uses: around the usual one, with a tail up to the longest."""
        shortest, usual, longest = self.durations
        drawn = np.rint(usual * random.lognormal(0, self.spread, size=count)).astype(np.int64)
        return np.clip(drawn, shortest, longest)


TYPES = ("single at work", "couple at work", "family", "retired", "shared flat")
SHARES = (0.24, 0.22, 0.25, 0.21, 0.08)
_MORNING_EVENING = "5:0 7:6 9:2 12:2 17:4 19:6 22:2 24:0"
_DAY = "6:0 9:4 12:4 16:4 20:3 23:0"
_MEALS = "6:0 7:1 10:1 12:5 14:1 17:3 19:7 21:1 23:0"
_EVENING = "0:1 2:0 14:1 18:4 20:8 22:6 24:2"
APPLIANCES = (
    Appliance("washing machine", "1.2", (3, 5, 8), (1.3, 2.0, 3.9, 1.6, 3.0), _DAY),
    Appliance("tumble dryer", "1.5", (3, 4, 7), (0.2, 0.5, 1.6, 0.3, 0.6), _DAY),
    Appliance("dishwasher", "1.0", (3, 5, 8), (0.8, 1.8, 3.4, 1.7, 1.5), "7:1 13:2 19:5 21:7 24:0"),
    Appliance("stove", "1.0", (1, 2, 5), (2.5, 4.0, 6.0, 6.0, 5.0), _MEALS),
    Appliance("oven", "1.3", (2, 3, 6), (0.7, 1.2, 2.0, 1.4, 1.2), _MEALS),
    Appliance("kettle", "0.4", (1, 1, 2), (3.0, 4.0, 4.0, 7.0, 5.0), _MORNING_EVENING),
    Appliance("coffee maker", "0.3", (1, 1, 3), (3.0, 4.0, 5.0, 6.0, 3.0), "5:0 7:8 9:5 13:2 15:3 18:0"),
    Appliance("vacuum cleaner", "0.7", (1, 1, 4), (0.6, 0.8, 1.6, 1.1, 0.7), _DAY),
    Appliance("iron", "0.4", (1, 2, 6), (0.3, 0.6, 0.9, 0.8, 0.2), _DAY),
    Appliance("television", "0.1", (2, 7, 40), (4.0, 5.0, 7.0, 8.0, 3.0), _EVENING, 0.4),
    Appliance("computer", "0.08", (1, 6, 65), (4.0, 5.0, 6.0, 2.0, 8.0), _EVENING, 0.5),
)
AT_HOME = Secret("0.1", 4, "always", "1", "somebody is at home")
LEVELS = tuple(Fraction(tenths, 10) for tenths in range(1, 11))


def recorded(
    households: int = 250, days: int = 1642, seed: int = 1, baseline: Secret = AT_HOME
) -> tuple[Specification, ...]:
    """One specification a household, with a secret for EVERY use of every appliance (the paper's experiments).

    Each use is hidden from two durations before it to two durations after it, at a level drawn from 0.1 to 1.
    Such specifications are derived from recorded use: a policy says so with ``derived=True``.

    Examples
    --------
    >>> houses = recorded(households=3, days=14)
    >>> [house.label for house in houses]
    ['house 1', 'house 2', 'house 3']
    """
    households, days = whole("households", households), whole("days", days)
    random = np.random.default_rng(whole("seed", seed, least=0))
    kinds = random.choice(len(TYPES), size=households, p=np.array(SHARES))
    return tuple(
        Specification((baseline, *_uses(int(kind), days, random)), f"house {number}")
        for number, kind in enumerate(kinds, 1)
    )


def _uses(kind: int, days: int, random: np.random.Generator) -> list[Secret]:
    """The secrets of one household, uses of one appliance with one duration and level together."""
    secrets: list[Secret] = []
    steps = days * DAY
    for appliance in APPLIANCES:
        habit = appliance.weekly[kind] * random.lognormal(-0.08, 0.4)  # households differ
        count = int(random.poisson(habit * days / 7))
        day = random.integers(0, days, size=count)
        hour = _draw_hours(appliance.hours, count, random)
        length = appliance.draw_durations(count, random)
        level = np.rint(random.uniform(0, len(LEVELS) - 1, size=count)).astype(np.int64)
        first = day * DAY + (hour * 4).astype(np.int64) + 1
        secrets += secrets_of(appliance.name, appliance.power, first, length, level, steps)
    return secrets


def secrets_of(
    name: str, power: str, first: Integers, length: Integers, level: Integers, steps: int
) -> list[Secret]:
    """The uses of one appliance as secrets: each is hidden from two durations before it to two durations after it.

    Parameters
    ----------
    name, power
        The appliance, and the height of its events in kW.
    first, length, level
        Of each use: its first step (from 1), its duration in steps, and its place in `LEVELS`.
    steps
        The length of the stream.
    """
    secrets: list[Secret] = []
    order = np.lexsort((first, level, length))
    first, length, level = first[order], length[order], level[order]
    edges = np.flatnonzero(np.diff(length * len(LEVELS) + level, prepend=-1, append=-1))
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        duration, epsilon = int(length[a]), LEVELS[int(level[a])]
        rows = np.clip(np.column_stack([first[a:b] - 2 * duration, first[a:b] + 3 * duration - 1]), 1, steps)
        rows = _merged(rows[rows[:, 1] - rows[:, 0] + 1 >= duration])
        if len(rows):
            label = f"{name}, {15 * duration} min, ε {float(epsilon)}"
            secrets.append(Secret(power, duration, Intervals(rows), epsilon, label))
    return secrets


def load(households: int = 10_000, days: int = 28, seed: int = 1) -> npt.NDArray[np.float64]:
    """What many made-up households draw together: kW at every quarter of an hour, in steps of 0.1 kW.

    Uses of appliances as `recorded` makes them up, more of them at weekends and on some days than on others, and what
    every house draws anyway: what stands by, a refrigerator, and light in the evening.

    Parameters
    ----------
    households, days
        How many households, and for how many days from a Monday on.
    seed
        The same seed gives the same stream.

    Examples
    --------
    >>> watts = load(households=100, days=2)
    >>> watts.shape, bool(10 < watts.mean() < 60)
    ((192, 1), True)
    """
    households, days = whole("households", households), whole("days", days)
    random = np.random.default_rng(whole("seed", seed, least=0))
    liking = np.where(np.arange(days) % 7 >= 5, 1.25, 0.9) * random.lognormal(0, 0.05, days)
    drawn = np.zeros((days + 2) * DAY)
    for appliance in APPLIANCES:
        weekly = float(np.dot(SHARES, appliance.weekly)) * households
        count = int(random.poisson(weekly * days / 7))
        begin = random.choice(days, count, p=liking / liking.sum()) * DAY
        begin += (_draw_hours(appliance.hours, count, random) * 4).astype(np.int64)
        end = begin + appliance.draw_durations(count, random)
        switched = np.bincount(begin, minlength=len(drawn)) - np.bincount(end, minlength=len(drawn))
        drawn += float(appliance.power) * np.cumsum(switched)
    quarters = np.arange(DAY) / 4
    always = np.interp(quarters, [0, 5, 7, 9, 16, 18, 21, 23], [9, 8, 14, 11, 11, 21, 24, 13], period=24)
    drawn = drawn[: days * DAY] + households * np.tile(always / 100, days)
    return np.asarray(np.round(drawn, 1)[:, np.newaxis])


def _merged(rows: Integers) -> Integers:
    """Sorted intervals of equal length; those that overlap become one, which hides either use as well."""
    if not len(rows):
        return rows
    starts = np.flatnonzero(np.concatenate([[True], rows[1:, 0] > rows[:-1, 1]]))
    ends = np.append(starts[1:], len(rows)) - 1
    return np.column_stack([rows[starts, 0], rows[ends, 1]])


def _draw_hours(points: str, count: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    hours, weights = zip(*(map(float, point.split(":")) for point in points.split()), strict=True)
    quarters = np.arange(DAY) / 4
    shape = np.interp(quarters, hours, weights, period=24)
    return np.asarray(random.choice(quarters, size=count, p=shape / shape.sum()))


def dominant(week: int = 1, height: str = "3.92") -> Secret:
    """The holiday of Experiment 2: a week long, as high as anything, ε = 0.1, hidden in one week only."""
    return Secret(height, 7 * DAY, [((week - 1) * 7 * DAY + 1, week * 7 * DAY)], "0.1", "holiday")


def declared(households: int = 250, seed: int = 1) -> tuple[tuple[Specification, ...], Clock]:
    """Specifications as people would write them: recurring hours by the type of the household, and a clock.

    Examples
    --------
    >>> houses, clock = declared(households=2)
    >>> all(house.uncovered(clock, None) is None for house in houses)
    True
    """
    random = np.random.default_rng(whole("seed", seed, least=0))
    kinds = random.choice(len(TYPES), size=whole("households", households), p=np.array(SHARES))
    clock = Clock("2026-01-05T00:00", "15 min", "Europe/Berlin")
    houses = []
    for number, kind in enumerate(kinds.tolist(), 1):
        chosen = [each for each in APPLIANCES if random.random() < min(1.0, each.weekly[kind] / 4)]
        secrets = [AT_HOME]
        for appliance in chosen:
            duration, level = appliance.durations[1], LEVELS[int(random.integers(len(LEVELS)))]
            secrets.append(
                Secret(appliance.power, duration, [], level, appliance.name, (_hours(kind, random),))
            )
        houses.append(Specification(tuple(secrets), f"house {number} ({TYPES[kind]})"))
    return tuple(houses), clock


def _hours(kind: int, random: np.random.Generator) -> str:
    """Hours in which a household of a type would rather not be seen doing something."""
    days = ("every weekday", "every day", "every weekend")[int(random.integers(3))]
    begin, end = [(8, 17), (8, 18), (20, 7), (22, 8), (0, 8)][kind]
    shift = int(random.integers(-2, 3))
    return f"{days} {(begin + shift) % 24:02d}:00-{(end + shift) % 24:02d}:00"
