"""Budget Distribution (Kellaris et al. 2014, Figure 3): each publication takes half of what the window has left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tidegate._mechanisms.w_event.publishing import (
    APPROXIMATED,
    WIDEST,
    Constants,
    Published,
    Publishing,
    Work,
    choose,
    publish,
    write,
)
from tidegate.compiled import lean
from tidegate.core.charges import Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import DONE, RowNoise, draw_row
from tidegate.core.spent import Spent
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.w_event import budget_distribution as configured


class State(NamedTuple):
    """All that is carried from step to step. It is released, but for the law's part."""

    spent: Spent  # what the steps of the last window were charged: their tests and publications
    published: Published
    tests: Any  # SECRET: the law that the tests share; empty for Laplace noise


@lean
def distribute(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    tests: Any,
    pool: Any,
    slot: Any,
    ring: Any,
    total: Any,
    published: Any,
    work: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). A step writes nothing before it has its noise.

    `ring` has the publications of the last w steps, by step modulo w, and `total` their sum.
    """
    constants, published, work, out = Constants(*constants), Published(*published), Work(*work), Output(*out)
    window = constants.window
    for index in range(begin, rows.shape[0]):
        step, row = first + index, rows[index]
        left = constants.pool - (total[0] - ring[step % window])  # line 4: of the w − 1 steps before
        amount, chosen = left // 2, 0
        if amount > 0 and constants.whole <= WIDEST * amount:
            limit = np.nextafter(
                constants.whole / amount, np.inf
            )  # at least the scale that a publication has
            chosen = choose(row, tests[index], limit, constants, published, work)
        if chosen:
            scale = publication_scale(constants.whole, amount)
            wanted = draw_row(pool, slot, step, scale)
            if wanted != DONE:
                return index, wanted
            publish(row, slot.row, step, scale, constants, published, work)
        spends = amount if chosen else 0
        total[0] += spends - ring[step % window]
        ring[step % window] = spends
        write(out, index, chosen, APPROXIMATED, constants.test + spends, constants, published)
    return rows.shape[0], DONE


@dataclass(frozen=True)
class BudgetDistribution(Publishing, configured.BudgetDistribution):
    """Spend half of what is left; :class:`tidegate.mechanisms.BudgetDistribution` has parameters and privacy."""

    def begin_one(self, first: int) -> State:
        """Nothing was published."""
        tests = () if self.shared is None else self.shared.start()
        return State(Spent(self.window), self.nothing_published(first), tests)

    def resume(self, state: Any, step: int, recent: Integers) -> None:
        """Publications of the last window, from its charges: a step that published paid more than its test."""
        if self.parts:
            for (_, one), own, units in zip(self.parts, state, recent.T, strict=True):
                one.resume(own, step, units)
            return
        spent = state.rule.spent if self.pan_private else state.spent
        spent.fill(step, np.maximum(recent - self.fixed_units, 0))

    def offered(self, state: State, step: int) -> int:
        """Half of what the window has left."""
        state.spent.move_to(step)
        ring, total = state.spent.ring, state.spent.total
        return (self.shares[2] - int(total[0] - ring[step % self.window])) // 2

    def note(self, state: State, step: int, amount: int) -> None:
        """What the last w steps have published."""
        spent, at = state.spent, step % self.window
        spent.total[0] += amount - spent.ring[at]
        spent.ring[at], spent.step = amount, step

    def run(
        self,
        rows: Matrix,
        first: int,
        constants: Constants,
        tests: Integers,
        noise: RowNoise,
        state: State,
        work: Work,
        out: Output,
    ) -> None:
        """Call the loop until all steps are released."""
        spent = state.spent
        spent.move_to(first)
        fixed = (
            first,
            constants[:],
            tests,
            noise.pool,
            noise.slots[0],
            spent.ring,
            spent.total,
            state.published[:],
        )
        noise.run_loop(lambda begin: distribute(rows, begin, *fixed, work[:], out[:5]), first)
        spent.step = first + len(rows) - 1
