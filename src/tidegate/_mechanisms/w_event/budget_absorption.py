"""Budget Absorption (Kellaris et al. 2014, Figure 4): skipped steps leave their budget to the next publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tidegate._mechanisms.w_event.publishing import (
    APPROXIMATED,
    NULLIFIED,
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
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.w_event import budget_absorption as configured

LATEST, TAKEN = 0, 1  # positions in `State.memory`


class State(NamedTuple):
    """All that is carried from step to step. It is released, but for the law's part."""

    memory: Any  # l and n_l: the step and the shares of the last publication
    published: Published
    tests: Any  # SECRET: the law that the tests share; empty for Laplace noise


@lean
def shares_offered(step: int, latest: int, taken: int, window: int) -> Any:
    """Lines 4 to 8, in whole shares: what a publication at this step would spend; 0: it is nullified."""
    waited = step - latest
    return 0 if waited <= taken - 1 else min(waited - taken + 1, window)


@lean
def absorb(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    tests: Any,
    pool: Any,
    slot: Any,
    memory: Any,
    published: Any,
    work: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). A step writes nothing before it has its noise."""
    constants, published, work, out = Constants(*constants), Published(*published), Work(*work), Output(*out)
    for index in range(begin, rows.shape[0]):
        step, row = first + index, rows[index]
        shares = shares_offered(step, memory[LATEST], memory[TAKEN], constants.window)
        amount, chosen = shares * constants.share, 0
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
            memory[LATEST], memory[TAKEN] = step, shares
        units = constants.test + (amount if chosen else 0)
        write(out, index, chosen, APPROXIMATED if shares else NULLIFIED, units, constants, published)
    return rows.shape[0], DONE


@dataclass(frozen=True)
class BudgetAbsorption(Publishing, configured.BudgetAbsorption):
    """Give every step the same share; :class:`tidegate.mechanisms.BudgetAbsorption` has parameters and privacy."""

    def begin_one(self, first: int) -> State:
        """Nothing was published: l is the step before, and n_l = 1."""
        tests = () if self.shared is None else self.shared.start()
        return State(np.array([first - 1, 1]), self.nothing_published(first), tests)

    def offered(self, state: State, step: int) -> int:
        """The shares that were left to this step, as units."""
        latest, taken = state.memory.tolist()
        shares = int(shares_offered(step, latest, taken, self.window))
        return shares * (self.shares[2] // self.window) if shares else -1

    def note(self, state: State, step: int, amount: int) -> None:
        """l and n_l."""
        if amount:
            state.memory[:] = step, amount // (self.shares[2] // self.window)

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
        fixed = (
            first,
            constants[:],
            tests,
            noise.pool,
            noise.slots[0],
            state.memory,
            state.published[:],
            work[:],
        )
        noise.run_loop(lambda begin: absorb(rows, begin, *fixed, out[:5]), first)
