"""PeGaSus and AdaPub: mutants of its Grouper, pruning as printed, and levels that are not counted."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from tests.audit import models
from tests.audit.zoo.animal import EXACT, PRINTED, REPLAY, Animal, Floats, pair

from experiments.printed.publishing import PrintedPruning
from tidegate.audit.subjects import Configured
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.mechanisms.pegasus.ada_pub import AdaPub
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import Source
from tidegate.noise.entropy import Elements, Words
from tidegate.policy import Event
from tidegate.structures.hierarchy import Hierarchy


class OneRow:
    """A source whose words of one stream are those of its first row, again and again."""

    def __init__(self, source: Source, stream: str) -> None:
        self._source, self._stream = source, stream
        self._kept: dict[tuple[int, int], Words] = {}
        self.name, self.marked = source.name, source.marked

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Words; of that stream those of the first step, also in later calls."""
        found = self._source.words(stream, step, draws, elements, first, count)
        if stream != self._stream or not len(elements):
            return found
        columns = np.asarray(elements) % max(draws, 1)
        for at, column in enumerate(columns.tolist()):
            self._kept.setdefault((first, column), found[:, at].copy())
        return np.stack([self._kept[first, column] for column in columns.tolist()], axis=1)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A word."""
        return self._source.word(stream, step, draw, index)


class ThresholdNoiseKept(PeGaSus):
    """ρ is drawn for the first group only, and kept for all that follow."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """The thresholds of the first step."""
        return super().advance(state, rows, first, Draws(OneRow(noise.source, "threshold")))


class TestNoiseKept(PeGaSus):
    """ν is drawn once and used for every test."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """The noise of the first step's test."""
        return super().advance(state, rows, first, Draws(OneRow(noise.source, "test")))


class DeviationOfOne(PeGaSus):
    """Deviations are taken to change by Δ, where they change by nearly 2Δ."""

    @cached_property
    def grouping(self) -> SparseVector:
        """With half of the noise."""
        return SparseVector(super().grouping.epsilon, self.sensitivity)


class ThresholdFromTheData(PeGaSus):
    """θ is fifty times the largest count of the stream."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """With another limit."""
        other = replace(self, threshold=max(1, 50 * int(rows.max())))
        return PeGaSus.advance(other, state, rows, first, noise)


class KnownThreshold(SparseVector):
    """A threshold without noise, and tests with the noise that AdaPub prints: 2Δw/ε_c in place of 8Δw/ε_c."""

    @property
    def threshold_scale(self) -> float:  # type: ignore[override]
        """None to speak of."""
        return 0.01

    @property
    def question_scale(self) -> float:  # type: ignore[override]
        """For a count that is in one test."""
        return super().question_scale / 4


class FreshTests(AdaPub):
    """Each test of a cluster has noise of its own, and the threshold has none."""

    @cached_property
    def grouping(self) -> SparseVector:
        """As printed."""
        return KnownThreshold(super().grouping.epsilon, super().grouping.sensitivity)


class ColumnsCountedOnce(AdaPub):
    """Noise for one column, where a replaced row changes two."""

    @property
    def sensitivity(self) -> int:  # type: ignore[override]
        """Half."""
        return 1


class LevelsNotDivided(HierarchicalPeGaSus):
    """Every level has the whole budget of the Perturber."""

    @cached_property
    def scales(self) -> Floats:
        """Too small by the number of levels."""
        return super().scales / self.forest.height


def chain(levels: int) -> Hierarchy:
    """A path of nodes above one leaf."""
    links: dict[str, str | None] = {"1": None}
    links |= {str(level): str(level - 1) for level in range(2, levels + 1)}
    return Hierarchy.from_parents(links)


class Enumerated(Configured):
    """A PeGaSus with the program of its Grouper, for the exact tester."""

    def __init__(self, mechanism: PeGaSus | AdaPub, *, keeps: bool = False) -> None:
        super().__init__(mechanism)
        rho, nu = mechanism.grouping.threshold_scale, mechanism.grouping.question_scale
        limit = mechanism.limit if isinstance(mechanism, PeGaSus) else int(mechanism.rule.unit)
        self.program = models.grouper(limit, rho, nu, keeps=keeps)


def animals() -> list[Animal]:
    """All of them; nearly all of the budget goes to the part that is changed."""
    large = Event(epsilon="4", max_change=8)
    # six groups of two equal counts that are cut nevertheless tell that ρ is low, and then a long one is not cut
    told = [0] * 13
    return [
        Animal("Grouper, threshold noise not redrawn", "one ρ for all groups: earlier groups tell it",
               lambda: Enumerated(ThresholdNoiseKept(large, perturber_share="1/50", threshold=1), keeps=True), math.inf,
               EXACT, (pair([*told, 16, 0, 0, 0, 0, 0, 0], [*told, 24, 0, 0, 0, 0, 0, 0]),), 20),
        Animal("Grouper, noise of tests not redrawn", "one ν for all tests: their order is exact",
               lambda: TestNoiseKept(Event(epsilon="1"), perturber_share="1/10"), math.inf, steps=4),
        Animal("Grouper, deviations of sensitivity 1", "they change by nearly 2: 2 ε_g",
               lambda: Enumerated(DeviationOfOne(Event(epsilon="8"), perturber_share="1/50", threshold=2)), 1.98, EXACT,
               (pair([0, 3, 2, 2, 2, 2, 2, 3], [-1, 3, 2, 2, 2, 2, 2, 3]),), 8),
        Animal("Grouper, threshold from the data", "θ is fifty times the largest count",
               lambda: ThresholdFromTheData(Event(epsilon="2"), perturber_share="1/2"), math.inf, steps=6),
        Animal("AdaPub, fresh noise for each test", "printed: a count is in every later test of its cluster",
               lambda: Enumerated(FreshTests(Event(epsilon="2", max_change=8), perturber_share="1/50",
                                             threshold_factor="1/100")), 3.6, EXACT,
               (pair([0] * 6, [8, 0, 0, 0, 0, 0]),), 6, kind=PRINTED),
        Animal("AdaPub, columns counted once", "a replaced row leaves one sum and enters another",
               lambda: ColumnsCountedOnce(Event(epsilon="1", adjacency="replace"), columns=2), 2.0, REPLAY, steps=12),
        Animal("PRUNE on eight levels", "printed: tests on a path are not counted",
               lambda: PrintedPruning(Event(epsilon="2"), hierarchy=chain(8), pruning_share="49/50", prune_below=1),
               1.99, steps=1, seconds=20, kind=PRINTED),
        Animal("levels not divided", "a leaf and its parent spend the same budget",
               lambda: LevelsNotDivided(Event(epsilon="2"), hierarchy=Hierarchy.balanced(2), pruning="none",
                                        perturber_share="49/50"), 1.98, steps=1),
    ]  # fmt: skip
