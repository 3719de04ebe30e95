"""PeGaSus: mutants of its Grouper, pruning as printed, and levels that are not counted."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.audit import models
from tidegate.audit.subjects import Configured
from tidegate.audit.zoo.animal import EXACT, PRINTED, Animal, Floats, pair
from tidegate.ledger import Ledger
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.policy import Event
from tidegate.structures.hierarchy import Hierarchy


class _Grouped(PeGaSus):
    """PeGaSus whose Grouper is handed other arrays than it should be."""

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> Any:
        """A run with a changed Grouper."""
        run: Any = super().start(ledger, state)
        grouper, advance = run._grouper, run._grouper.advance

        def changed(*given: Any) -> None:
            self.change(grouper, advance, *given)

        grouper.advance = changed
        return run

    def change(self, grouper: Any, advance: Any, *given: Any) -> None:
        """Group and smooth some steps."""
        raise NotImplementedError


class ThresholdNoiseKept(_Grouped):
    """ρ is drawn for the first group only, and kept for all that follow."""

    def change(self, grouper: Any, advance: Any, *given: Any) -> None:
        """The thresholds of the first step."""
        first, counts, noisy, weights, tests, thresholds, values, groups = given
        if first == 1:
            grouper.kept = thresholds[:1].copy()
        advance(
            first, counts, noisy, weights, tests, np.repeat(grouper.kept, len(counts), axis=0), values, groups
        )


class TestNoiseKept(_Grouped):
    """ν is drawn once and used for every test."""

    def change(self, grouper: Any, advance: Any, *given: Any) -> None:
        """The noise of the first step's test."""
        first, counts, noisy, weights, tests, thresholds, values, groups = given
        if first == 1:
            grouper.kept = tests[:1].copy()
        advance(
            first,
            counts,
            noisy,
            weights,
            np.repeat(grouper.kept, len(counts), axis=0),
            thresholds,
            values,
            groups,
        )


class DeviationOfOne(PeGaSus):
    """Deviations are taken to change by Δ, where they change by nearly 2Δ."""

    @cached_property
    def grouping(self) -> SparseVector:
        """With half of the noise."""
        return SparseVector(super().grouping.epsilon, self.sensitivity)


class ThresholdFromTheData(_Grouped):
    """θ is fifty times the largest count of the stream."""

    def change(self, grouper: Any, advance: Any, *given: Any) -> None:
        """With another limit."""
        grouper.limit = 50 * int(given[1].max())
        advance(*given)


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

    def __init__(self, mechanism: PeGaSus, *, keeps: bool = False) -> None:
        super().__init__(mechanism)
        rho, nu = mechanism.grouping.threshold_scale, mechanism.grouping.question_scale
        self.program = models.grouper(mechanism.limit, rho, nu, keeps=keeps)


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
        Animal("PRUNE on eight levels", "printed: tests on a path are not counted",
               lambda: HierarchicalPeGaSus(Event(epsilon="2"), hierarchy=chain(8), pruning_share="49/50", prune_below=1,
                                           calibration="paper"), 1.99, steps=1, seconds=20, kind=PRINTED),
        Animal("levels not divided", "a leaf and its parent spend the same budget",
               lambda: LevelsNotDivided(Event(epsilon="2"), hierarchy=Hierarchy.balanced(2), pruning="none",
                                        perturber_share="49/50"), 1.98, steps=1),
    ]  # fmt: skip
