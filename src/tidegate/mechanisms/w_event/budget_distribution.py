"""Budget Distribution (BD; Kellaris et al. 2014, Figure 2): each publication takes half of what the window has left."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import DONE, RowNoise, draw_row
from tidegate.core.spent import Spent
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.pan_private import SINGLE
from tidegate.mechanisms.w_event.publishing import (
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
from tidegate.policy import Event, WEvent

FINENESS = 30  # binary places of a publication's share of the pool

# A *budget unit* is a small fixed fraction of the budget, in which the account counts charges. It is not a privacy unit.


class State(NamedTuple):
    """The state between two steps. All fields follow from releases, except `tests`, which is secret."""

    spent: Spent  # budget units that the publications of the last w steps have spent, without tests
    published: Published
    tests: Any  # SECRET: the state of the noise that tests share; empty for Laplace noise


@lean  # a compiled function that makes no array
def units_offered(spent: int, pool: int) -> Any:
    """Return the budget units that a publication would spend (lines 4 and 5 of the paper's Figure 2); 0: skip it.

    This is half of the pool that is unspent in the window, rounded down. Budget of steps that have left the window can be
    spent again.

    Parameters
    ----------
    spent
        Budget units that the publications of the last w − 1 steps have spent.
    pool
        Budget units that all publications of a window may spend together.

    Examples
    --------
    >>> [int(units_offered(spent, 64)) for spent in (0, 32 + 0 + 16, 0 + 16 + 8)]
    [32, 8, 20]
    """
    return (pool - spent) // 2


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
    """Release rows[begin:]. Return (index, request): the row that stopped the loop, and the noise that it needs, or DONE.

    A step changes no state before its noise has been drawn, so the caller can draw and call again. `ring` holds the
    budget units of the publications of the last w steps, at step modulo w; `total` is their sum.
    """
    constants, published, work, out = Constants(*constants), Published(*published), Work(*work), Output(*out)
    window = constants.window
    for index in range(begin, rows.shape[0]):
        step, row = first + index, rows[index]
        amount, chosen = units_offered(total[0] - ring[step % window], constants.pool), 0
        if amount > 0 and constants.unit_scale <= WIDEST * amount:
            # not below the scale of the publication
            limit = np.nextafter(constants.unit_scale / amount, np.inf)
            chosen = choose(row, tests[index], limit, constants, published, work)
        if chosen:
            scale = publication_scale(constants.unit_scale, amount)
            request = draw_row(pool, slot, step, scale)
            if request != DONE:
                return index, request
            publish(row, slot.row, step, scale, constants, published, work)
        spends = amount if chosen else 0
        total[0] += spends - ring[step % window]
        ring[step % window] = spends
        write(out, index, chosen, APPROXIMATED, constants.test + spends, constants, published)
    return rows.shape[0], DONE


@dataclass(frozen=True)
class BudgetDistribution(Publishing):
    """Spend half of the window's remaining budget on each publication, and reuse budget that leaves the window.

    At each step a noisy dissimilarity between the step and the last publication is compared with the error that
    a new publication would have. Streams that change rarely get accurate publications. If every step differs, the
    budgets of publications decrease exponentially, and :class:`BudgetAbsorption` is the better choice.
    :func:`units_offered` computes the budget of a publication.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    dissimilarity, groups, regroup_every, shift, pan_private, step_columns, noise
        As for :class:`Publishing`.

    Privacy
    -------
    Privacy unit and neighbouring relation are those of the policy: w-event, or event level (w = 1). Half of ε (with
    `shift` the fraction w/d) pays for the tests, which compare dissimilarities. If tests share noise
    (docs/mechanisms/noise.md), the tests of a window are charged together; otherwise each step is charged an equal part.
    The rest of ε is the pool of publications. With `pan_private="single"` the pool is ε/3, and ε/6 is reserved for an
    intrusion. A publication spends half of the pool that is unspent in the last w − 1 steps, so the publications of a
    window never exceed the pool (w-event paper, Theorem 4; docs/proofs/budget_distribution.md).

    Departures from the paper:

    - The half is rounded DOWN to a whole number of budget units, because exact denominators double with each
      publication. If the result is 0, the publication is skipped.
    - With `adjacency="replace"` and several columns, Δ is twice `max_change`.
    - Before the first publication the release is 0.
    - If privacy units may move between columns, column groups share one pool. If they are fixed, each group has a pool.

    Error
    -----
    :meth:`error_bound` is the bound of Theorem 6. Time: O(d) per step. Memory: 3 vectors of d, and one number for each of
    the last w steps.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> session = Session(BudgetDistribution(WEvent(epsilon="1", window=120), columns=3))
    >>> session.push_batch(np.full((500, 3), 40)).values.shape
    (500, 3)

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    @property
    def separate_unit_split(self) -> tuple[int, int, int]:
        """Budget units of (the window, one test, the pool), if every test is charged separately."""
        w, d = self.window, self.columns
        if self.pan_private == SINGLE:  # a pool of ε/3, and ε/6 reserved for an intrusion
            fine = 1 << max(0, min(FINENESS, 46 - w.bit_length()))
            return 6 * w * fine, 3 * fine, 2 * w * fine
        if not self.shift:
            fine = 1 << max(0, min(FINENESS, 48 - w.bit_length()))
            return 2 * w * fine, fine, w * fine
        fine = 1 << max(0, min(FINENESS, 48 - d.bit_length()))
        return d * fine, fine, (d - w) * fine

    @property
    def reserve(self) -> int:
        """Budget units per step for an intrusion that nobody notices.

        One such intrusion costs at most half of the pool. Every window is charged this amount, in equal parts per step.
        """
        return self.unit_split[2] // (2 * self.window) if self.pan_private == SINGLE else 0

    def begin_one(self, first: int) -> State:
        """Return the state before the first publication, for columns that share one account."""
        return State(Spent(self.window), self.nothing_published(first), self.begin_shared())

    def resume(self, state: Any, step: int, recent: Integers) -> None:
        """Rebuild `spent` from the charges of the last window: a step that published was charged more than its test."""
        if self.parts:
            for (_, mechanism), group_state, units in zip(self.parts, state, recent.T, strict=True):
                mechanism.resume(group_state, step, units)
            return
        spent = state.rule.spent if self.pan_private else state.spent
        spent.fill(step, np.maximum(recent - self.fixed_units, 0))

    def offered(self, state: State, step: int) -> int:
        """Return the budget units that a publication at this step would spend."""
        state.spent.move_to(step)
        ring, total = state.spent.ring, state.spent.total
        return int(units_offered(int(total[0] - ring[step % self.window]), self.unit_split[2]))

    def note(self, state: State, step: int, amount: int) -> None:
        """Record how many budget units this step's publication spent; 0: the step did not publish."""
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
        """Call `distribute`, and draw noise for it, until all steps are released."""
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

    def error_bound(self, publications: int) -> float:
        """Return a bound on the mean absolute error per column and step (Theorem 6).

        Parameters
        ----------
        publications
            The number m of publications in a window.
        """
        grid = float(Fraction(self.grid))
        first_scale = (
            2 * self.unit_scale / self.unit_split[2] * grid
        )  # noise scale of a window's first publication
        return first_scale * (2.0**publications - 1) / publications + self.score_scale * grid / self.columns

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations for `tidegate.testing.checks`."""
        return [
            cls(WEvent(epsilon="4", window=5), columns=3),
            cls(WEvent(epsilon="4", window=5), columns=3, noise="laplace"),
            cls(WEvent(epsilon="2", window=1), columns=20, grid="0.5"),
            cls(WEvent(epsilon="3", window=6), columns=18, groups=4, regroup_every=7),
            cls(WEvent(epsilon="9", window=4, adjacency="replace"), columns=20, shift=True),
            cls(WEvent(epsilon="3", window=6, mobility="fixed", adjacency="replace"), columns=3, groups=3),
            cls(WEvent(epsilon="6", window=50)),
            cls(WEvent(epsilon="4", window=3), columns=2, pan_private="single"),
            cls(WEvent(epsilon="4", window=3), columns=2, pan_private="announced"),
            cls(Event(epsilon="1")),
        ]
