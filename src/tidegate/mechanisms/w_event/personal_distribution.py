"""Personal Budget Distribution: as BD, for units of which some ask for a smaller ε or a longer window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tidegate.compiled import lean
from tidegate.core.arrays import Array
from tidegate.core.charges import Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import DONE, RowNoise
from tidegate.core.spent import Spent
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.budget_distribution import FINENESS, units_offered
from tidegate.mechanisms.w_event.personal import (
    Constants,
    Personal,
    Published,
    Requirement,
    Work,
    new_work,
    release,
)
from tidegate.policy import WEvent


class SpentByRequirement:
    """What publications spent in the last window of each requirement. Derived from charges, so it is not stored."""

    def __init__(self, windows: Integers) -> None:
        self.windows = windows
        self.ring = np.zeros((len(windows), int(windows.max())), dtype=np.int64)  # by step modulo w
        self.total = np.zeros(len(windows), dtype=np.int64)
        self.step = 0  # the last step that is in the rings

    def fill(self, step: int, units: Integers) -> None:
        """The units of the last steps, of which the newest is `step`; steps × requirements."""
        for own, window in enumerate(self.windows.tolist()):
            spent = Spent(window)
            spent.fill(step, units[:, own])
            self.ring[own, :window], self.total[own] = spent.ring, spent.total[0]
        self.step = step

    def move_to(self, first: int) -> None:
        """Steps up to the one before `first` have passed; those in between cost nothing."""
        for own, window in enumerate(self.windows.tolist()):
            passed = np.arange(max(self.step + 1, first - window), first) % window
            self.total[own] -= self.ring[own, passed].sum()
            self.ring[own, passed] = 0

    def stored(self) -> tuple[Array, ...]:
        """Nothing."""
        return ()

    def loaded(self, stored: Iterator[Array]) -> Self:
        """Empty, until it is filled."""
        return type(self)(self.windows)


class State(NamedTuple):
    """All that is carried from step to step. It is released."""

    spent: SpentByRequirement
    published: Published


@lean
def distribute_personally(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    pool: Any,
    test: Any,
    slot: Any,
    ring: Any,
    total: Any,
    published: Any,
    work: Any,
    charged: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). A step writes nothing before it has its noise."""
    constants, published = Constants(*constants), Published(*published)
    work, out = Work(*work), Output(*out)
    window, share = constants.window, constants.share
    for index in range(begin, rows.shape[0]):
        step = first + index
        for own in range(window.size):
            before = total[own] - ring[own, step % window[own]]
            work.offered[own] = units_offered(before, window[own] * share[own])
        wanted = release(rows[index], index, step, constants, pool, test, slot, published, work, charged, out)
        if wanted != DONE:
            return index, wanted
        for own in range(window.size):
            total[own] += work.spent[own] - ring[own, step % window[own]]
            ring[own, step % window[own]] = work.spent[own]
    return rows.shape[0], DONE


@dataclass(frozen=True)
class PersonalDistribution(Personal):
    """Budget Distribution by requirement: each offers half of what its own window has left, and all publish together.

    A publication adds up the columns of all requirements, weighted by what each offers, and divides by the mean weight.
    So units with a large budget need not wait for those with a small one, and noise is that of the mean budget instead
    of the smallest. A test compares each step with the last publication in the same way. Where the division of units
    among requirements would cost more accuracy than noise does, offers are cut to a common threshold.

    Parameters
    ----------
    policy, columns, grid, rounding, requirements, deviation
        As for :class:`Personal`.

    Privacy
    -------
    Unit and neighbours are the policy's, and a unit changes the columns of its own requirement alone. A unit of
    requirement i loses at most ε_i in any w_i consecutive steps, and every unit at most the policy's ε in its window
    (docs/proofs/personal.md). Weights are whole numbers that are rounded down, so a column of weight a/t loses a where
    noise of scale Δ/t is added. The account has a part for each requirement, with its own window.
    Departures from the paper: columns are weighted and not sampled, which loses the same, is exact and has no noise of
    sampling. Thresholds depend on the public table and on earlier releases, never on the units that are there.

    Error
    -----
    That of :class:`BudgetDistribution` at the mean budget of the table, and what it costs that columns are not divided
    among requirements as the table says: the release is then biased towards requirements with large budgets. No release
    shows how far, so there are no intervals. Values beyond ±2^40 grid units count as ±2^40: choose a coarser grid for
    larger ones. Time O(kd + k²) a step for k requirements, memory k windows.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> from tidegate.mechanisms.w_event.personal import Requirement
    >>> strict = Requirement("1/4", epsilon="1/10", window=240)
    >>> mechanism = PersonalDistribution(WEvent(epsilon="1", window=120), columns=6, requirements=(strict,))
    >>> Session(mechanism).push_batch(np.full((500, 6), 40)).values.shape
    (500, 3)

    References
    ----------
    Du, Cheng, Chen, Shen, Lin, Xi: Infinite stream estimation under personalized w-event privacy. PVLDB 18(6), 2025.
    Alaggan, Gambs, Kermarrec: Heterogeneous differential privacy. Journal of Privacy and Confidentiality 7(2), 2016.
    """

    fineness: ClassVar[int] = FINENESS

    def begin_rule(self, first: int, published: Published) -> State:
        """Nothing was spent."""
        return State(SpentByRequirement(self.constants.window), published)

    def resume(self, state: State, step: int, recent: Integers) -> None:
        """Publications of the last windows, from their charges: a step that published paid more than its test."""
        state.spent.fill(step, np.maximum(recent.reshape(-1, len(self.shares)) - self.constants.share, 0))

    def run(
        self, rows: Matrix, first: int, noise: RowNoise, state: State, charged: Integers, out: Output
    ) -> None:
        """Call the loop until all steps are released."""
        spent = state.spent
        spent.move_to(first)
        fixed = (
            first,
            self.constants[:],
            noise.pool,
            noise.slots[0],
            noise.slots[1],
            spent.ring,
            spent.total,
            state.published[:],
            new_work(len(self.shares))[:],
            charged,
            out[:5],
        )
        noise.run_loop(lambda begin: distribute_personally(rows, begin, *fixed), first)
        spent.step = first + len(rows) - 1

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return examples(cls)


def examples(kind: type[Personal]) -> list[Mechanism]:
    """With no requirement, with one of each kind, and with several of both."""
    three = Requirement("1/2", "1", 9), Requirement("1/8", "4/3"), Requirement("1/4", window=11)
    return [
        kind(WEvent(epsilon="4", window=5), columns=3),
        kind(WEvent(epsilon="6", window=5), columns=4, requirements=(Requirement("1/3", epsilon="2"),)),
        kind(
            WEvent(epsilon="6", window=30),
            columns=2,
            requirements=(Requirement("1/2", window=50),),
            deviation="1/2",
        ),
        kind(WEvent(epsilon="2", window=4, adjacency="replace"), columns=8, grid="0.5", requirements=three),
    ]
