"""Personal Budget Absorption: as BA, for units of which some ask for a smaller ε or a longer window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import DONE, RowNoise
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.budget_absorption import shares_offered
from tidegate.mechanisms.w_event.personal import (
    Constants,
    Personal,
    Published,
    Work,
    new_work,
    release,
)
from tidegate.mechanisms.w_event.personal_distribution import examples
from tidegate.mechanisms.w_event.publishing import NULLIFIED


class State(NamedTuple):
    """All that is carried from step to step. It is released."""

    latest: Any  # l of each requirement: the step of the last publication that it has paid for
    taken: Any  # n_l: the shares that it paid
    published: Published


@lean
def absorb_personally(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    pool: Any,
    test: Any,
    slot: Any,
    state: Any,
    work: Any,
    charged: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). A step writes nothing before it has its noise."""
    constants, work, out = Constants(*constants), Work(*work), Output(*out)
    latest, taken, last = state
    published = Published(*last)
    for index in range(begin, rows.shape[0]):
        step = first + index
        for own in range(latest.size):
            shares = shares_offered(step, latest[own], taken[own], constants.window[own])
            work.offered[own] = shares * constants.share[own]
        wanted = release(rows[index], index, step, constants, pool, test, slot, published, work, charged, out)
        if wanted != DONE:
            return index, wanted
        for own in range(latest.size):
            if work.spent[own] > 0:
                latest[own], taken[own] = step, work.spent[own] // constants.share[own]
    return rows.shape[0], DONE


@dataclass(frozen=True)
class PersonalAbsorption(Personal):
    """Budget Absorption by requirement: each offers the shares of its own window, and all publish together.

    A publication adds up the columns of all requirements, weighted by what each offers, and divides by the mean weight.
    Requirements that still repay what they have absorbed offer nothing and are left out. See
    :class:`PersonalDistribution`; :class:`BudgetAbsorption` has the rule.

    Parameters
    ----------
    policy, columns, grid, rounding, requirements, deviation
        As for :class:`Personal`.

    Privacy
    -------
    As for :class:`PersonalDistribution`: a unit of requirement i loses at most ε_i in any w_i consecutive steps, and
    every unit at most the policy's ε in its window (docs/proofs/personal.md). Each requirement pays whole shares
    ε_i/(2w_i); where less than a share is used, the rest is lost.
    Departures from the paper: columns are weighted and not sampled.

    Error
    -----
    That of :class:`BudgetAbsorption` at the mean budget of the table, and what it costs that columns are not divided
    among requirements as the table says. There are no intervals. Values beyond ±2^40 grid units count as ±2^40: choose a
    coarser grid for larger ones. Time O(kd + k²) a step for k requirements, memory a vector of d.

    Examples
    --------
    >>> import tidegate as tg
    >>> strict = ("1/4", "1/10", 240)  # share of units, ε and window
    >>> mechanism = PersonalAbsorption(tg.WEvent(epsilon="1", window=120), columns=6, requirements=(strict,))
    >>> tg.open(mechanism).push_batch(np.full((500, 6), 40)).values.shape
    (500, 3)

    References
    ----------
    Du, Cheng, Chen, Shen, Lin, Xi: Infinite stream estimation under personalized w-event privacy. PVLDB 18(6), 2025.
    """

    exhausted: ClassVar[int] = NULLIFIED

    def begin_rule(self, first: int, published: Published) -> State:
        """l is the step before, and n_l = 1."""
        count = len(self.shares)
        return State(np.full(count, first - 1), np.ones(count, dtype=np.int64), published)

    def run(
        self, rows: Matrix, first: int, noise: RowNoise, state: State, charged: Integers, out: Output
    ) -> None:
        """Call the loop until all steps are released."""
        latest, taken, published = state
        fixed = (
            first,
            self.constants[:],
            noise.pool,
            noise.slots[0],
            noise.slots[1],
            (latest, taken, published[:]),
            new_work(len(self.shares))[:],
            charged,
            out[:5],
        )
        noise.run_loop(lambda begin: absorb_personally(rows, begin, *fixed), first)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return examples(cls)
