"""What papers print and what is not private: columns that run side by side, shifted budgets, pruning. No session runs it.

SOUNDNESS.md says what each loses. For figures of the papers and for attacks, on data that are nobody's (`direct`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tidegate.audit.direct import Printed
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import Draws
from tidegate.exact import float_up
from tidegate.mechanisms.pegasus import hierarchical_pegasus as loop
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.noise import laplace
from tidegate.noise.entropy import Source
from tidegate.releases import Status


@dataclass(frozen=True)
class SideBySide(Printed):
    """Instances on parts of the columns, each with the whole budget, although a unit may move from part to part.

    The w-event paper's column groups, and FAST and RescueDP with sample times of each column. A step costs the most of
    any part: what a unit loses that is always where most is spent.

    Parameters
    ----------
    members
        The columns of each part.
    parts
        What runs on them; all have one policy.
    """

    members: tuple[tuple[int, ...], ...]
    parts: tuple[Any, ...]

    rounding: ClassVar[str] = "refuse"
    clamp: ClassVar[None] = None
    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False
    columns_independent: ClassVar[bool] = False
    shares_noise: ClassVar[bool] = False
    independent_period: ClassVar[int] = 0
    forest: ClassVar[None] = None

    @property
    def policy(self) -> Any:
        """That of every part."""
        return self.parts[0].policy

    @property
    def grid(self) -> Any:
        """That of every part."""
        return self.parts[0].grid

    @property
    def units(self) -> int:
        """Those of every part."""
        units: int = self.parts[0].units
        return units

    @property
    def columns(self) -> int:
        """Of all parts together."""
        return sum(map(len, self.members))

    @property
    def outputs(self) -> int:
        """One for each column."""
        return self.columns

    def describe(self) -> dict[str, Any]:
        """The parts, one after the other."""
        return {"side by side": [part.describe() for part in self.parts]}

    def step_losses(self, releases: Any) -> None:
        """Releases show the largest scale alone."""

    def begin(self, first: int) -> Any:
        """The state of each part."""
        return tuple(part.begin(first) for part in self.parts)

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Nothing: no account is asked."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release the columns of one part after the other."""
        draws = noise.bound(state, lambda: [noise.part(f"part {at}: ") for at in range(len(self.parts))])
        output, fresh = empty_output(*rows.shape), np.zeros(len(rows), dtype=np.int64)
        output.source[:], output.scale[:] = 0, 0.0
        for members, part, own, drawn in zip(self.members, self.parts, state, draws, strict=True):
            columns = list(members)
            found = part.advance(own, np.ascontiguousarray(rows[:, columns]), first, drawn)
            output.values[:, columns] = found.values
            fresh += found.status == int(Status.FRESH)
            for into, new in ((output.source, found.source), (output.scale, found.scale)):
                np.maximum(into, new, out=into)
            np.maximum(output.units, found.units, out=output.units)
        output.status[:] = int(Status.APPROXIMATED)
        output.status[fresh > 0] = int(Status.PARTIAL)
        output.status[fresh == len(self.parts)] = int(Status.FRESH)
        return output


def each_column(kind: type[Any], policy: Any, columns: int, **options: Any) -> SideBySide:
    """A mechanism on each column for itself."""
    members = tuple((column,) for column in range(columns))
    return SideBySide(members, tuple(kind(policy, **options) for _ in members))


def independent_groups(kind: type[Publishing], policy: Any, members: Sequence[Sequence[int]]) -> SideBySide:
    """Budget Distribution or Absorption on groups of columns, each with the whole budget."""
    groups = tuple(map(tuple, members))
    return SideBySide(groups, tuple(kind(policy, columns=len(group), noise="laplace") for group in groups))


def equal_groups(kind: type[Publishing], policy: Any, columns: int, groups: int) -> SideBySide:
    """The same for groups of about equal size, one beside the other."""
    return independent_groups(
        kind, policy, [list(map(int, part)) for part in np.array_split(np.arange(columns), groups)]
    )


class ShiftedAbsorption(Printed, BudgetAbsorption):
    """Tests have ε/d each, and the pool is not reduced by what they spend: it takes all of ε."""

    @property
    def separate_unit_split(self) -> tuple[int, int, int]:
        """Too large a pool."""
        w, d = self.window, self.columns
        return d * w, w, d * w


class ShiftedDistribution(Printed, BudgetDistribution):
    """Tests have ε/d each, and the pool is not reduced by what they spend: it takes all of ε."""

    @property
    def separate_unit_split(self) -> tuple[int, int, int]:
        """Too large a pool."""
        total, test, _ = super().separate_unit_split
        return total, test, total


class PrintedPruning(Printed, HierarchicalPeGaSus):
    """PRUNE tests c + Lap(2Δ/ε_pr) < β + Lap(2Δ/ε_pr) at each node, as if the tests on a path did not add up."""

    @property
    def _test_adds(self) -> bool:
        return False

    @cached_property
    def prune_scale(self) -> float:
        """Of two draws, whatever the height is."""
        return float_up(2 * self.sensitivity / self.budgets_of_step[0]) if self.prunes else 1.0

    def _pruned(self, rows: Matrix, counts: Matrix, step: int, source: Source) -> Any:
        """With noise on the threshold as well."""
        noise = laplace(source, "pruning", step, self.prune_scale, counts.shape)
        noise -= laplace(source, "pruning threshold", step, self.prune_scale, counts.shape)
        part = np.empty(counts.shape, dtype=np.int8)
        _, parents, levels, is_leaf = self.nodes
        limit, decay = self.prune_limit, self.prune_decay
        loop.prune(counts, noise, parents, levels, is_leaf, loop.COUNTS, limit, decay, part)
        return part
