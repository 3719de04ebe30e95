"""What is publicly known of a stream, and streams made up from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.noise import current

Matrix = npt.NDArray[np.int64]


class StreamModel(Protocol):
    """Something that streams can be made up from.

    Examples
    --------
    >>> from tidegate.plan import Description
    >>> Description(level=10, columns=3).sample(5, 0).shape
    (5, 3)
    """

    @property
    def columns(self) -> int:
        """The number of columns."""

    @property
    def season(self) -> int | None:
        """Steps of a day, if the stream has any."""

    def sample(self, steps: int, run: int) -> Matrix:
        """A made-up stream; another one for every run."""


@dataclass(frozen=True)
class Description:
    """A stream in a few public numbers; guesses are good enough, because they only choose parameters.

    Parameters
    ----------
    level
        The mean of one column and step.
    columns
        The number of columns.
    season
        Steps of a day; None for a stream without days.
    daily, weekly
        How far a day swings around its mean, and a week around its own, as parts of the level (0.6 means ± 60 %).
    noise
        The standard deviation of what days and weeks do not explain, as a part of the level.
    memory
        How much of that is still there one step later (0: nothing, 0.99: it changes slowly).
    spread
        How unequal columns are: 0 for equal ones, 1 for a few large and many small ones.

    Examples
    --------
    >>> stream = Description(level=200, columns=3, season=24)
    >>> stream.sample(steps=48, run=0).shape
    (48, 3)
    """

    level: float
    columns: int = 1
    season: int | None = None
    daily: float = 0.6
    weekly: float = 0.2
    noise: float = 0.1
    memory: float = 0.8
    spread: float = 0.5

    def __post_init__(self) -> None:
        whole("columns", self.columns)
        if self.season is not None:
            whole("season", self.season, least=2)
        ranges = {"level": 1e15, "daily": 1, "weekly": 1, "noise": 100, "memory": 0.9999, "spread": 3}
        for name, high in ranges.items():
            value = getattr(self, name)
            if not 0 <= value <= high:
                raise InvalidParameter(name, value, f"between 0 and {high:g}", "describe the stream roughly")

    def sample(self, steps: int, run: int) -> Matrix:
        """A made-up stream with this description: days with a peak, weaker weekends, an autoregressive rest."""
        rest = normal("plan: rest", run, steps, self.columns)
        change = np.sqrt(1 - self.memory**2)
        for step in range(1, steps):
            rest[step] = self.memory * rest[step - 1] + change * rest[step]
        shape = 1 + self.noise * rest
        if self.season is not None:
            time = np.arange(steps)[:, np.newaxis] / self.season
            phase = 0.08 * normal("plan: phase", run, 1, self.columns)
            day = np.sin(2 * np.pi * (time - 0.3 + phase)) + 0.3 * np.sin(4 * np.pi * (time + phase))
            week = np.cos(2 * np.pi * time / 7)
            shape = shape + self.daily * day / 1.15 + self.weekly * week
        sizes = np.exp(2 * self.spread * normal("plan: sizes", run, 1, self.columns))
        level = self.level * sizes * self.columns / sizes.sum()
        expected = np.maximum(level * shape, 0.0)
        # counts of people vary like Poisson counts, by their square root
        counted = expected + np.sqrt(expected) * normal("plan: counts", run, steps, self.columns)
        rounded: Matrix = np.floor(np.maximum(counted, 0.0) + 0.5).astype(np.int64)
        return rounded


@dataclass(frozen=True)
class Profile:
    """A stream like one that is public already: an earlier release, or public data of the same kind.

    Parameters
    ----------
    values
        Steps × columns.
    season
        Steps of a day, if any.

    Examples
    --------
    >>> import numpy as np
    >>> Profile(np.full((48, 2), 30.0), season=24).columns
    2
    """

    values: npt.NDArray[np.float64]
    season: int | None = None

    @property
    def columns(self) -> int:
        """The number of columns."""
        return int(self.values.shape[1])

    def sample(self, steps: int, run: int) -> Matrix:
        """The profile itself, from its beginning and repeated where it is too short; runs differ in where they begin."""
        length = len(self.values)
        season = min(self.season or 1, length)  # less than a day repeats as it is
        whole_seasons = season * (length // season)
        shift = (run * (self.season or 1)) % max(1, length - steps + 1) if length > steps else 0
        rows = (shift + np.arange(steps)) % (whole_seasons if length < steps else length)
        return np.floor(np.maximum(self.values[rows], 0.0) + 0.5).astype(np.int64)


def normal(stream: str, run: int, steps: int, columns: int) -> npt.NDArray[np.float64]:
    """Standard normal numbers from the one door for randomness; they make up streams and protect nobody."""
    words = current().words(f"{stream} {run}", 1, columns, range(steps * columns), 0, 1)[0]
    return np.asarray(ndtri((words.astype(np.float64) + 0.5) * 2.0**-64).reshape(steps, columns))
