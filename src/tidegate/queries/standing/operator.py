"""The shape of every standing question, and what it remembers of the releases behind it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.queries.standing.totals import SPREAD, Sliding, Stretch, added, one_step, vague
from tidegate.releases import Errors

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
KEPT = 10_000  # steps that may still be revised; of a running average nothing else is kept
NO_ANSWER = float("nan")


class Known(NamedTuple):
    """What is known of one step.

    Attributes
    ----------
    step
        Its number.
    values
        The released vector; NaN where there was no reading.
    radius
        Half the widths of the intervals around them at 90 %; NaN where none is known.
    errors
        Of what their errors are made; None where only the radius is known.
    scale
        Of the noise of the step; 0 where nothing was measured.
    """

    step: int
    values: Values
    radius: Values
    errors: Errors | None = None
    scale: float = 0.0

    @property
    def made_of(self) -> Errors:
        """Of what errors are made; where that is not known they may have the same sign at all steps."""
        return vague(self.radius) if self.errors is None else self.errors


class Row(NamedTuple):
    """One line of an answer.

    Attributes
    ----------
    about
        The step that it is about: the last one that was released, or one to come.
    column
        Which column, or which columns.
    value, low, high
        The answer and its interval at 90 %; NaN where there is none.
    more
        What is particular to the question, in the order of its `extras`.
    """

    about: int
    column: str
    value: float
    low: float = NO_ANSWER
    high: float = NO_ANSWER
    more: tuple[Any, ...] = ()


def _same(values: Values) -> Values:
    return values


def _around(values: Values, radius: Values) -> tuple[Values, Values]:
    return values - radius, values + radius


@dataclass(frozen=True)
class Meaning:
    """What released vectors mean.

    Parameters
    ----------
    labels
        The names of the answers that a vector gives.
    answers, bounds
        From vectors to answers, and from vectors and radii to the ends of the answers' intervals.
    sums
        Whether vectors are running sums of the steps so far, and not values of the steps.
    direct
        Whether the answers are the vectors themselves.
    grid
        Of which the vectors' noise is a multiple.
    """

    labels: tuple[str, ...]
    answers: Callable[[Values], Values] = field(default=_same, repr=False)
    bounds: Callable[[Values, Values], tuple[Values, Values]] = field(default=_around, repr=False)
    sums: bool = False
    direct: bool = True
    grid: float = 1.0

    def widened(self, radius: Values, times: int) -> Values:
        """Radii that are missed so many times less often than those at 90 %.

        They are exact for Laplace noise and more than what lighter tails need. On a grid of steps g the chance to be
        beyond r + m is at most 10^(−m/(r + g)) times that to be beyond r, which is the least of its kind; so a
        radius of 0 grows as well.
        """
        steps = np.ceil((radius / self.grid + 1) * math.log10(times) - 1e-9)
        return radius + self.grid * steps

    def read(self, values: Values, radius: Values) -> tuple[Values, Values, Values]:
        """Answers with the ends of their intervals."""
        low, high = self.bounds(values[np.newaxis], radius[np.newaxis])
        return self.answers(values[np.newaxis])[0], low[0], high[0]


class Operator(ABC):
    """A standing question.

    Parameters
    ----------
    meaning
        What the released vectors mean.
    columns
        Which of its labels the question is about; all by default.
    """

    extras: ClassVar[tuple[str, ...]] = ()  # names of further fields of a row
    window: Operator | None = None  # over which steps are added up before the question is asked

    def __init__(self, meaning: Meaning, columns: Sequence[str] = ()) -> None:
        self.meaning = meaning
        wanted = tuple(columns) or meaning.labels
        self.chosen = [meaning.labels.index(name) for name in wanted]

    @abstractmethod
    def push(self, known: Known) -> Iterator[Row]:
        """Take in the first release of the next step; the answer at that step."""

    def revise(self, known: Known) -> None:
        """Take in a later word on an earlier step: it counts in the answers of the steps to come."""
        if self.window is not None:
            self.window.revise(known)

    def _rows(self, step: int, values: Values, radius: Values) -> Iterator[Row]:
        """An answer for each chosen column, from a vector."""
        found, low, high = self.meaning.read(values, radius)
        for at in self.chosen:
            yield Row(step, self.meaning.labels[at], float(found[at]), float(low[at]), float(high[at]))


class Total:
    """A sum of steps, with what is known of its error.

    A later word on a step changes the sum. How its error goes with those of other steps is not known; from then on half
    widths add up, which is too wide wherever errors do not all have the same sign.

    Parameters
    ----------
    columns
        Of a vector.
    slides
        Whether the oldest steps are taken out again.
    """

    def __init__(self, columns: int, *, slides: bool = False) -> None:
        self.values = np.zeros(columns)
        self.count = np.zeros(columns, dtype=np.int64)  # steps that have a value
        self._radius = np.zeros(columns)
        self._unknown = np.zeros(columns, dtype=np.int64)  # of so many there is no radius
        self._sliding = Sliding() if slides else None
        self._stretch: Stretch | None = None
        self._revised = False

    def add(self, known: Known) -> None:
        """Put the next step in."""
        self._put(known, 1)
        step = one_step(known.made_of, ~np.isnan(known.values))
        if self._sliding is not None:
            self._sliding.push(step)
        else:
            self._stretch = step if self._stretch is None else added(self._stretch, step)

    def forget(self, known: Known) -> None:
        """Take the oldest step out; it is known as it was put in, or by a later word."""
        assert self._sliding is not None
        self._put(known, -1)
        self._sliding.pop()

    def exchange(self, before: Known, known: Known, weight: float = 1.0) -> None:
        """Put a later word in the place of what was known of a step."""
        self._put(before, -1, weight)
        self._put(known, 1, weight)
        self._revised = True

    def _put(self, known: Known, sign: int, weight: float = 1.0) -> None:
        there = ~np.isnan(known.values)
        self.values += sign * weight * np.where(there, known.values, 0.0)
        self.count += sign * there
        told = np.isfinite(known.radius)
        self._radius += sign * weight * np.where(there & told, known.radius, 0.0)
        self._unknown += sign * (there & ~told)

    def scale(self, factor: float) -> None:
        """Make everything so far count less."""
        self.values *= factor
        self._radius *= factor
        if self._stretch is not None:
            variance, _, leaves, _, lasting = self._stretch
            self._stretch = self._stretch._replace(
                variance=variance * factor**2, leaves=leaves * factor, lasting=lasting * factor
            )

    def radius(self) -> Values:
        """Half the width of the interval around the sum; there is at least one step."""
        if self._revised:
            found = np.where(self._unknown == 0, np.maximum(self._radius, 0.0), np.nan)
        else:
            whole = self._stretch if self._sliding is None else self._sliding.whole()
            assert whole is not None
            deviation = np.sqrt(whole.variance + whole.lasting**2)
            found = np.where(np.isfinite(deviation), SPREAD * deviation, np.nan)
        return np.where(self.count > 0, found, np.nan)


class Adding(Operator):
    """A question about sums of steps, of which each may be put right later.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    most
        How many steps back that may be.
    """

    def __init__(self, meaning: Meaning, columns: Sequence[str], most: int) -> None:
        super().__init__(meaning, columns)
        self._recent = Recent(most)
        self._total: Total | None = None

    def revise(self, known: Known) -> None:
        """A later word on an earlier step."""
        before = self._recent.exchange(known)
        if before is not None and self._total is not None:
            self._total.exchange(before, known)


class Recent:
    """The last steps, oldest first, each with the newest word on it."""

    def __init__(self, most: int) -> None:
        self._steps: deque[Known] = deque(maxlen=most)
        self.most = most

    def __len__(self) -> int:
        return len(self._steps)

    def put(self, known: Known) -> Known | None:
        """Remember a step; the one that makes room for it comes back."""
        gone = self._steps[0] if len(self._steps) == self.most else None
        self._steps.append(known)
        return gone

    def exchange(self, known: Known) -> Known | None:
        """Put a later word in the place of what was known; that comes back, or None if it is too long ago."""
        if not self._steps:
            return None
        at = known.step - self._steps[0].step
        if not 0 <= at < len(self._steps):
            return None
        before, self._steps[at] = self._steps[at], known
        return before

    def back(self, steps: int) -> Known | None:
        """The one so many steps before the last; None if it is not remembered."""
        return self._steps[-1 - steps] if steps < len(self._steps) else None

    def clear(self) -> None:
        """Forget all."""
        self._steps.clear()


def difference(later: Known, earlier: Known | None) -> tuple[Values, Values]:
    """A change from one step to another, with its radius; from nothing if there is no earlier one."""
    if earlier is None:
        return later.values, later.radius
    after, before = later.made_of, earlier.made_of
    apart = SPREAD * np.sqrt(after.own + after.shared + before.own + before.shared)
    new = (after.carry == 0) & (after.lasting == 0)  # nothing of the error was there before
    together = later.radius + earlier.radius
    return later.values - earlier.values, np.where(new & np.isfinite(apart), apart, together)
