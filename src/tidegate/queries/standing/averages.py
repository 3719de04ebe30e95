"""Averages of all steps so far, and of those that are not long ago."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidegate.queries.standing.operator import KEPT, Adding, Known, Meaning, Operator, Row, Total, difference
from tidegate.queries.standing.windows import Window, averaged


class RunningAverage(Adding):
    """The mean of all steps so far."""

    def __init__(self, meaning: Meaning, columns: Sequence[str] = ()) -> None:
        super().__init__(meaning, columns, KEPT)
        self._steps = 0

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        self._steps += 1
        if self.meaning.sums:
            yield from self._rows(known.step, known.values / self._steps, known.radius / self._steps)
            return
        if self._total is None:
            self._total = Total(len(known.values))
        self._recent.put(known)
        self._total.add(known)
        yield from self._rows(known.step, *averaged(self._total))


class SmoothWhereNoisy(Operator):
    """The mean of the last steps where the noise of a step is larger than a threshold; elsewhere its own value.

    The post-processing of the Swellfish paper, whose noise is high at some hours and low at others.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    length
        How many steps are averaged.
    threshold
        The public scale of noise above which they are.
    """

    def __init__(
        self, meaning: Meaning, columns: Sequence[str] = (), *, length: int, threshold: float
    ) -> None:
        super().__init__(meaning, columns)
        self.threshold = threshold
        self.window: Window = Window(meaning, columns, length=length, mean=True)

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        smooth = self.window.follow(known)
        noisy = known.scale > self.threshold
        yield from self._rows(known.step, *(smooth if noisy else (known.values, known.radius)))


class DecayedAverage(Adding):
    """A mean in which a step counts less, the longer ago it is: by a factor for each step.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    factor
        What a step still counts one step later, above 0 and below 1.
    """

    def __init__(self, meaning: Meaning, columns: Sequence[str] = (), *, factor: float) -> None:
        super().__init__(meaning, columns, KEPT)
        self.factor = factor
        self._weight = np.zeros(0)
        self._last: Known | None = None

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        if self.meaning.sums:  # a running sum tells the step by what it has grown
            values, radius = difference(known, self._last)
            self._last = known
            known = Known(known.step, values, radius)
        if self._total is None:
            self._total = Total(len(known.values))
            self._weight = np.zeros(len(known.values))
        self._recent.put(known)
        self._total.scale(self.factor)
        self._total.add(known)
        self._weight = self._weight * self.factor + ~np.isnan(known.values)
        with np.errstate(divide="ignore", invalid="ignore"):
            yield from self._rows(
                known.step, self._total.values / self._weight, self._total.radius() / self._weight
            )

    def revise(self, known: Known) -> None:
        """A later word on an earlier step."""
        last = self._recent.back(0)
        before = self._recent.exchange(known)
        if before is None or last is None or self._total is None or self.meaning.sums:
            return
        age = self.factor ** (last.step - known.step)
        self._total.exchange(before, known, age)
