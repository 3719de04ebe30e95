"""L1 sampling: take a sample where the straight line from the last one has strayed too far from the stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.optstream.kernels import sampling as loop
from tidegate.mechanisms.optstream.printed_sampling import choose_as_printed
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import Source, laplace


def line_score(values: Sequence[int]) -> Fraction:
    """Σ|line − value| for the line from the first to the last value, exactly (OptStream paper, equation 3).

    Changing each value by at most a changes it by at most 2a for each value in between.

    Examples
    --------
    >>> line_score([0, 5, 2]), line_score([0, 1, 2, 3])
    (Fraction(4, 1), Fraction(0, 1))
    """
    run = len(values) - 1
    slope = Fraction(values[-1] - values[0], run) if run else Fraction(0)
    return sum((abs(values[0] + slope * u - value) for u, value in enumerate(values)), Fraction(0))


@dataclass(frozen=True)
class L1Sampling:
    """The rule for one period: its first and last step are samples, and k − 2 steps in between.

    Parameters
    ----------
    length, samples
        Steps and samples of a period.
    epsilon
        The budget of the sparse vector over one period.
    sensitivity
        By how many grid units one unit can change one step.
    limit
        The public threshold θ, in grid units.
    printed
        Follow Algorithm 3 as it is printed (`printed_sampling`), with the paper's scales.

    Privacy
    -------
    The score from the last sample to a tested step has at most w − k − 1 steps in between, because a test is
    made only while more steps are left than samples, so it changes by at most 2Δ·(w − k − 1); the sums over
    columns are rounded down once, which does not change that. The sparse vector ends after k − 2 hits; all
    other choices follow from earlier ones (docs/proofs/l1_sampling.md).
    """

    length: int
    samples: int
    epsilon: Fraction
    sensitivity: int
    limit: int
    printed: bool = False

    @property
    def tests(self) -> bool:
        """Whether any step is tested at all."""
        return self.certain < self.samples < self.length

    @property
    def certain(self) -> int:
        """How many steps of a period are samples whatever the data are: its first, and its last unless as printed."""
        return 1 if self.printed else 2

    @cached_property
    def sparse_vector(self) -> SparseVector:
        """The noise scales of the tests of one period."""
        if self.printed:
            return SparseVector(
                self.epsilon, 2 * self.sensitivity * max(1, self.length - self.samples), self.samples
            )
        widest = max(1, self.length - self.samples - 1)
        return SparseVector(self.epsilon, 2 * self.sensitivity * widest, self.samples - 2)


def chosen_steps(values: Sequence[int], noise: Sequence[int], rule: L1Sampling, limit: int) -> list[int]:
    """The positions that one period of one column chooses, step by step and in plain words: the reference.

    `noise` has a draw for each step, `limit` is the noisy threshold.

    Examples
    --------
    >>> chosen_steps([0, 0, 0, 9, 9, 9], [0] * 6, L1Sampling(6, 3, Fraction(1), 1, 5), 5)
    [1, 4, 6]
    """
    w, times = rule.length, [1]
    for position in range(2, w + 1):
        left = rule.samples - len(times)
        if position == w or (left > 1 and w - position + 1 <= left):
            times.append(position)
        elif left > 1:
            score = math.floor(line_score(values[times[-1] - 1 : position]))
            if score + noise[position - 1] >= limit:
                times.append(position)
    return times


class L1Sampler:
    """The sampler at work: it keeps the steps since the last sample, raw.

    Parameters
    ----------
    rule
        What it follows.
    columns
        The columns whose scores are added up.
    groups
        How many times so many columns there are, each group with tests and samples of its own.
    """

    def __init__(self, rule: L1Sampling, columns: int, groups: int = 1) -> None:
        self.rule = rule
        w = rule.length
        # scores of w steps stay below 2^60; clipping moves no two values apart
        self.bound = 2**58 // (w * w * columns)
        self.memory = np.zeros((groups, loop.MEMORY), dtype=np.int64)
        self._values = np.zeros((groups, w, columns), dtype=np.int64)
        self._nodes = np.zeros((groups, columns, w, loop.NODE), dtype=np.int64)
        self._roots = np.full((groups, columns), -1, dtype=np.int64)
        self._path = np.zeros(w, dtype=np.int64)

    def begin(self, source: Source, period: int) -> None:
        """Begin a period: draw its thresholds."""
        rule = self.rule
        self.memory[:] = 0
        if rule.tests:
            shape = (1, len(self.memory))
            noise = laplace(source, "threshold", period, rule.sparse_vector.threshold_scale, shape)
            self.memory[:, loop.LIMIT] = rule.limit + noise[0]

    def choose(self, source: Source, first_step: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of some steps are samples, of each group (steps × groups)."""
        rule, shape = self.rule, (len(rows), len(self.memory))
        noise = np.zeros(shape, dtype=np.int64)
        if rule.tests:
            noise = laplace(source, "tests", first_step, rule.sparse_vector.question_scale, shape)
        chosen = np.zeros(shape, dtype=np.bool_)
        if rule.printed:
            clipped = np.clip(rows, -self.bound, self.bound).reshape(*shape, rows.shape[1] // shape[1])
            for group, memory in enumerate(self.memory):
                own = (clipped[:, group], noise[:, group], rule, memory, self._values[group])
                chosen[:, group] = choose_as_printed(*own)
            return chosen
        kept = (self.memory, self._values, self._nodes, self._roots, self._path)
        loop.choose_apart(rows, noise, (rule.samples, rule.length, self.bound), kept, chosen)
        return chosen

    def _open_steps(self) -> npt.NDArray[np.int64]:
        """How many raw steps each group needs: those since its last sample, where they may still be tested."""
        left = self.rule.samples - self.memory[:, loop.TAKEN]
        open_ = self.rule.tests & (left > self.rule.certain - 1) & (left < self.rule.samples)
        return np.where(open_, self.memory[:, loop.POSITION] - self.memory[:, loop.START] + 1, 0)

    def state(self) -> dict[str, Any]:
        """The state, with the raw steps since the last sample where they may still be tested."""
        kept = [values[:count] for values, count in zip(self._values, self._open_steps(), strict=True)]
        return {"sampler": self.memory, "segment": np.concatenate(kept)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.memory = state["sampler"].copy()
        self._roots[:] = -1
        begin = 0
        for group, count in enumerate(self._open_steps()):
            self._values[group, :count] = state["segment"][begin : begin + count]
            begin += int(count)
            if count:
                loop.rebuild(self._values[group], count, self._nodes[group], self._roots[group], self._path)
