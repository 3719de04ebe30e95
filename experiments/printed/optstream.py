"""OptStream and its Fourier baseline as the paper prints them: not private, for its figures and for attacks.

Printed are features of sensitivity Δ although w steps change them, sample times that depend on data as if no window
straddled two periods, nodes of a hierarchy that choose their samples for themselves, and a transform that is not
normalised. SOUNDNESS.md says what each loses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit.direct import Printed
from tidegate.core.mechanism import Floats, Matrix
from tidegate.mechanisms.optstream import l1_sampling as loop
from tidegate.mechanisms.optstream.fourier import ONE, Fourier
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler, L1Sampling
from tidegate.mechanisms.optstream.opt_stream import OptStream, Sampler, State, Steps
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.optstream.period_budget import PeriodBudget
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import Source, laplace

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PrintedBudget(PeriodBudget):
    """Periods are counted as if no window straddled two of them, features as if one step changed."""

    @property
    def _certain(self) -> tuple[int, ...]:
        return (1,)  # the last step is not

    @cached_property
    def shares(self) -> tuple[Fraction, Fraction, Fraction]:
        """What one period's tests, one sample, and one step's features cost."""
        tests, samples, features = self.weights
        total = tests + samples + features
        return tests / total, samples / total / self.samples, features / total

    @property
    def public_sample(self) -> Fraction:
        """Like any other."""
        return self.shares[1]


@dataclass(frozen=True)
class PrintedRule(L1Sampling):
    """Algorithm 3 with the paper's scales; of a period the first step alone is certain."""

    @property
    def certain(self) -> int:
        """The first step."""
        return 1

    @cached_property
    def sparse_vector(self) -> SparseVector:
        """The noise scales of the tests of one period."""
        change = 2 * self.sensitivity * max(1, self.length - self.samples)
        return SparseVector(self.epsilon, change, self.samples)


class PrintedSampler(L1Sampler):
    """Algorithm 3, line by line."""

    def choose(self, source: Source, first_step: int, rows: Matrix) -> Chosen:
        """Which of some steps are samples, of each group (steps × groups).

        The first step is. A later one is if its noisy score since the last sample reaches the noisy threshold (lines 5
        to 7). Only where that has made one a sample it is looked whether the steps that are left are needed to reach k
        (lines 8 and 9), so a period may end with fewer than k samples. With k samples the search ends (line 10).
        """
        rule, shape = self.rule, (len(rows), len(self.memory))
        noise = np.zeros(shape, dtype=np.int64)
        if rule.tests:
            noise = laplace(source, "tests", first_step, rule.sparse_vector.question_scale, shape)
        clipped = np.clip(rows, -self.bound, self.bound).reshape(*shape, rows.shape[1] // shape[1])
        chosen = np.zeros(shape, dtype=np.bool_)
        for group, (memory, values) in enumerate(zip(self.memory, self._values, strict=True)):
            for index, row in enumerate(clipped[:, group]):
                chosen[index, group] = self._take(row, int(noise[index, group]), memory, values)
        return chosen

    def _take(self, row: Any, noise: int, memory: Any, values: Any) -> bool:
        """Whether one step is a sample; `values` are the steps since the last one."""
        rule = self.rule
        memory[loop.POSITION] += 1
        position, start, taken = memory[[loop.POSITION, loop.START, loop.TAKEN]]
        left, run, chosen = rule.samples - taken, position - start, False
        if position == 1 or (left and rule.length - start <= left):
            chosen = True
        elif left:
            rise, inner = row - values[0], np.arange(1, run)[:, np.newaxis]
            strayed = np.abs(inner * rise - run * (values[1:run] - values[0])).sum()
            chosen = bool(int(strayed) // run + noise >= memory[loop.LIMIT])
        if chosen:
            memory[loop.TAKEN], memory[loop.START], run = taken + 1, position, 0
        values[run] = row
        return chosen


class _Sampler(Sampler):
    """The sampler of a printed mechanism."""

    def __init__(self, mechanism: Any, columns: int, groups: int = 1) -> None:
        super().__init__(mechanism, columns, groups)
        self.chooser = PrintedSampler(mechanism.sampling, columns, groups)


class PrintedOptStream(Printed, OptStream):
    """Printed splits of the budget, weights and sample times; give noise="laplace"."""

    @property
    def sampling_rule_tests(self) -> bool:
        """Whether steps are tested, so that sampling has a part of the budget."""
        return self.by_scores and 1 < self.sample_count < self.window

    @cached_property
    def _unshared_period(self) -> PeriodBudget:
        return printed_budget(super()._unshared_period)

    @cached_property
    def sampling(self) -> L1Sampling:
        """Algorithm 3."""
        return printed_rule(super().sampling)

    def _sampler(self) -> Sampler:
        return _Sampler(self, self.columns)


class PrintedHierarchical(Printed, HierarchicalOptStream):
    """The same for a hierarchy with public sample times."""

    @cached_property
    def _unshared_period(self) -> PeriodBudget:
        return printed_budget(super()._unshared_period)


class PerNode(Printed, PerLeafOptStream):
    """Every node of a hierarchy chooses its samples for itself, although a unit may move from leaf to leaf."""

    def validate(self) -> None:
        """Check the parameters as if units stayed in their leaves, which they need not."""
        claimed, put = self.policy, object.__setattr__
        put(self, "policy", replace(claimed, mobility="fixed"))
        super().validate()
        put(self, "policy", claimed)

    @property
    def leaf_share(self) -> Fraction:
        """All nodes are alike."""
        return Fraction(1)

    @property
    def times_above(self) -> tuple[int, ...]:
        """None is public."""
        return ()

    @property
    def sampling_rule_tests(self) -> bool:
        """Whether steps are tested, so that sampling has a part of the budget."""
        return 1 < self.sample_count < self.window

    @property
    def tests_share(self) -> Fraction:
        """A sampler has the part of its level."""
        return min(self.node_shares)

    @cached_property
    def _unshared_period(self) -> PeriodBudget:
        return printed_budget(super()._unshared_period)

    @cached_property
    def sampling(self) -> L1Sampling:
        """Algorithm 3."""
        return printed_rule(super().sampling)

    def _sampler(self) -> Sampler:
        return _Sampler(self, 1, self.outputs)

    def _taken(self, state: State, steps: Steps, measured: Matrix, source: Source) -> Any:
        """Which nodes take a sample at which steps (steps × nodes)."""
        position = (steps.first - 1) % self.window
        taken = state.sampler.chooser.choose(source, steps.first, np.ascontiguousarray(measured))
        steps.chosen[:] = taken.any(axis=1)
        state.sampled[position : position + len(steps.rows)] = steps.chosen
        return taken


class PrintedFourier(Printed, Fourier):
    """K complex coefficients, 2K − 1 real numbers, with the noise of an orthonormal transform on one that is not.

    Coefficient j of a period is Σ x_t·exp(2πi·jt/w), and the inverse divides by w. Noise of scale √K·Δ/ε on its real and
    imaginary parts is, on the orthonormal real rows that are measured here, noise of 1/√w times that for the mean and of
    √(2/w) times that for a cosine or sine.
    """

    @property
    def sum_count(self) -> int:
        """The real numbers that are measured."""
        assert self.coefficients is not None
        return min(2 * self.coefficients - 1, self.window)

    @cached_property
    def sum_scales(self) -> float | Floats:
        """The noise scale of each cell, in multiples of 2^-16 grid units."""
        assert self.coefficients is not None
        w, count = self.window, self.sum_count
        ones = np.ones(count)
        ones[1:] = math.sqrt(2)
        if count == w and w % 2 == 0:
            ones[-1] = 1.0  # the highest frequency of an even period has a cosine alone
        printed = math.sqrt(self.coefficients) * self.sensitivity / float(self.policy.budget.total)
        return np.repeat(ones * printed / math.sqrt(w) * ONE, self.columns)


def printed_budget(sound: PeriodBudget) -> PrintedBudget:
    """The same weights, split as printed."""
    return PrintedBudget(sound.window, sound.samples, sound.weights, sound.adaptive, leaf=sound.leaf)


def printed_rule(sound: L1Sampling) -> PrintedRule:
    """The same threshold, tested as printed."""
    return PrintedRule(sound.length, sound.samples, sound.epsilon, sound.sensitivity, sound.limit)
