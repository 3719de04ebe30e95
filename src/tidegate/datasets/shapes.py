"""Made-up streams with the lengths and totals of the PeGaSus paper's Table 1: WiFi access points, 5-minute steps.

People arrive by a daily and weekly rhythm, stay for a while and leave; a count is how many are there. Like
``streams.py`` this makes public sample data from seeded generators, and nothing in it may ever be used for noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.exact import one_of, whole

DAY = 288  # steps of 5 minutes

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """The size of a stream: steps, columns and the sum of all counts."""

    steps: int
    columns: int
    total: int


SHAPES = {
    "Low_5": Shape(57_901, 1, 2_846),
    "Med_5": Shape(57_901, 1, 101_843),
    "High_5": Shape(57_901, 1, 2_141_963),
    "Multi_5": Shape(20_000, 128, 646_254),
}


def shape(name: str, seed: int = 0) -> Counts:
    """A stream (T × columns) of one of the SHAPES, the same for the same seed.

    Examples
    --------
    >>> counts = shape("Low_5")
    >>> counts.shape, int(counts.sum()), int(counts.min())
    ((57901, 1), 2846, 0)
    """
    one_of("name", name, SHAPES, "write 'Med_5'")
    wanted = SHAPES[name]
    random = np.random.default_rng([whole("seed", seed, least=0), list(SHAPES).index(name)])
    popularity = random.lognormal(0, 1.2, wanted.columns) if wanted.columns > 1 else np.ones(1)
    counts = np.stack([_visits(wanted.steps, share, random) for share in _shares(wanted, popularity)], axis=1)
    _settle(counts, wanted.total, random)
    return counts


def _shares(wanted: Shape, popularity: npt.NDArray[np.float64]) -> list[float]:
    return [float(part) for part in wanted.total * popularity / popularity.sum()]


def _visits(steps: int, total: float, random: np.random.Generator) -> Counts:
    """How many people are there at each step, with about the wanted total."""
    time = np.arange(steps)
    hour = (time % DAY) * 24 / DAY
    day = time // DAY
    busy = np.exp(-0.5 * ((hour - 11.5) / 2.3) ** 2) + 0.7 * np.exp(-0.5 * ((hour - 16.5) / 2.0) ** 2) + 0.01
    busy *= np.where(day % 7 < 5, 1.0, 0.15) * random.lognormal(0, 0.25, day.max() + 1)[day]
    stay = 12.0  # an hour on average
    arrivals = random.poisson(busy / busy.sum() * total / stay)
    who = np.repeat(time, arrivals)
    leave = np.minimum(who + random.geometric(1 / stay, who.size), steps)
    changes = np.bincount(who, minlength=steps + 1) - np.bincount(leave, minlength=steps + 1)
    present: Counts = np.cumsum(changes[:steps], dtype=np.int64)
    return present


def _settle(counts: Counts, total: int, random: np.random.Generator) -> None:
    """Move the sum to the wanted total: people are added, or taken away, where there are some."""
    flat = counts.reshape(-1)
    while (missing := total - int(flat.sum())) != 0:
        occupied = np.flatnonzero(flat > 0)
        chosen = random.choice(occupied, size=min(abs(missing), occupied.size), replace=False)
        flat[chosen] += 1 if missing > 0 else -1


def trip_minutes(count: int, seed: int = 1) -> Counts:
    """Train trips as Perrier et al. describe theirs: whole minutes, mean near 30, a light tail, at most a day.

    Examples
    --------
    >>> minutes = trip_minutes(10_000)
    >>> bool(28 < minutes.mean() < 32), int(minutes.max()) < 300
    (True, True)
    """
    random = np.random.default_rng(whole("seed", seed, least=0))
    made: Counts = np.clip(random.gamma(2.2, 13.5, whole("count", count)).round(), 1, 1440).astype(np.int64)
    return made


def spendings(count: int, seed: int = 2) -> Counts:
    """Supermarket receipts as Perrier et al. describe theirs: whole dollars, mean near 40, at most 3,000.

    Examples
    --------
    >>> bool(38 < spendings(10_000).mean() < 43)
    True
    """
    random = np.random.default_rng(whole("seed", seed, least=0))
    made: Counts = np.clip(random.gamma(0.9, 45.0, whole("count", count)).round(), 0, 3000).astype(np.int64)
    return made
