"""Budget Absorption (BA; Kellaris et al. 2014, Figure 4): skipped steps leave their budget to the next publication."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import DONE, RowNoise, draw_row
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.pan_private import SINGLE
from tidegate.mechanisms.w_event.publishing import (
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
from tidegate.policy import Event, WEvent

LATEST, TAKEN = 0, 1  # positions in `State.memory`


class State(NamedTuple):
    """All that is carried from step to step. All but `tests` follows from releases."""

    memory: Any  # l and n_l: the step and the shares of the last publication
    published: Published
    tests: Any  # SECRET: the state of the noise that tests share; empty for Laplace noise


@lean
def shares_offered(step: int, latest: int, taken: int, window: int) -> Any:
    """The shares that a publication at this step may spend (Figure 4, lines 4 to 8); 0: the step is nullified.

    The last publication, at step l, spent n_l shares: its own, and those that it absorbed. The n_l − 1 steps after it
    are nullified. Any later step i may spend its own share and those of the skipped steps after the nullified ones,
    n = min(i − l − n_l + 1, w). Before the first publication l is the step before the stream, and n_l = 1.

    Parameters
    ----------
    step
        The step i.
    latest, taken
        The step l of the last publication, and its shares n_l.
    window
        The w of the policy.

    Examples
    --------
    >>> [int(shares_offered(step, 10, 3, 4)) for step in range(11, 19)]
    [0, 0, 1, 2, 3, 4, 4, 4]
    """
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
    """Release rows[begin:]. A step writes nothing before it has its noise.

    Returns (index, wanted): the step that still lacks noise and what `draw_row` needs for it, or (number of rows, DONE).
    """
    constants, published, work, out = Constants(*constants), Published(*published), Work(*work), Output(*out)
    for index in range(begin, rows.shape[0]):
        step, row = first + index, rows[index]
        shares = shares_offered(step, memory[LATEST], memory[TAKEN], constants.window)
        amount, chosen = shares * constants.share, 0
        if amount > 0 and constants.unit_scale <= WIDEST * amount:
            limit = np.nextafter(
                constants.unit_scale / amount, np.inf
            )  # never below the scale of a publication
            chosen = choose(row, tests[index], limit, constants, published, work)
        if chosen:
            scale = publication_scale(constants.unit_scale, amount)
            wanted = draw_row(pool, slot, step, scale)
            if wanted != DONE:
                return index, wanted
            publish(row, slot.row, step, scale, constants, published, work)
            memory[LATEST], memory[TAKEN] = step, shares
        units = constants.test + (amount if chosen else 0)
        write(out, index, chosen, APPROXIMATED if shares else NULLIFIED, units, constants, published)
    return rows.shape[0], DONE


@dataclass(frozen=True)
class BudgetAbsorption(Publishing):
    """Give every step the same share, let a publication absorb the shares of skipped steps, and repay afterwards.

    At each step a noisy dissimilarity between the step and the last publication is compared with the error that
    a new publication would have. A publication spends its own share and those of the steps skipped since the last one
    (n shares, at most w), and the n − 1 steps after it are nullified: they cannot publish (:func:`shares_offered`).

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    dissimilarity, groups, regroup_every, shift, pan_private, step_columns, noise
        As for :class:`Publishing`.

    Privacy
    -------
    Unit and neighbours are the policy's; event level is w = 1. Half of ε pays for the dissimilarities (with `shift` the
    part w/d): an equal part at each step, or all of it for the tests of a window together where they share noise
    (docs/mechanisms/noise.md). The rest is for publications, in w equal shares u per window, each ε/(2w) without `shift`.
    With `pan_private="single"` half of the rest is kept for the intrusion, and u = ε/(4w). A publication spends n·u with
    a whole n. Any w consecutive steps spend at most w·u on publications (w-event paper, Theorem 5, proved for the
    integer rule in docs/proofs/budget_absorption.md).

    Departures from the paper:

    - The budget in line 5 is that of the LAST publication, as the paper's prose says. Read literally, line 5 has a
      privacy loss of up to 1.5 ε.
    - Shares are whole numbers: in floating point the number of nullified steps can be off by one.
    - With `adjacency="replace"` and several columns, Δ is twice `max_change`.
    - Before the first publication the release is 0.
    - Where units move, groups of columns share one account: with one each, the privacy loss would be up to (w/2 + ½)ε.
      For fixed units each group has its own.

    Error
    -----
    :meth:`error_bound` is the bound of Theorem 7; `expected_error` is None, because the error depends on the data. Time
    O(d) a step, memory 3 vectors of d.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> session = Session(BudgetAbsorption(WEvent(epsilon="1", window=120), columns=3))
    >>> session.push_batch(np.full((500, 3), 40)).values.shape
    (500, 3)

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    @property
    def separate_unit_split(self) -> tuple[int, int, int]:
        """(units of the whole budget, of one test, of all publications in a window), where tests share no noise."""
        w, d = self.window, self.columns
        if self.pan_private == SINGLE:  # units of ε/(4w): a quarter of ε is kept for the intrusion
            return 4 * w, 2, w
        if not self.shift:
            return 2 * w, 1, w
        return d * w, w, (d - w) * w

    @property
    def reserve(self) -> int:
        """Units charged to every step for one unnoticed look at the state: it costs at most one publication, w units."""
        return 1 if self.pan_private == SINGLE else 0

    def begin_one(self, first: int) -> State:
        """Nothing was published: l is the step before, and n_l = 1."""
        return State(np.array([first - 1, 1]), self.nothing_published(first), self.begin_shared())

    def offered(self, state: State, step: int) -> int:
        """The units that a publication at this step may spend; −1 if it is nullified."""
        latest, taken = state.memory.tolist()
        shares = int(shares_offered(step, latest, taken, self.window))
        return shares * (self.unit_split[2] // self.window) if shares else -1

    def note(self, state: State, step: int, amount: int) -> None:
        """Store the step of a publication and its shares."""
        if amount:
            state.memory[:] = step, amount // (self.unit_split[2] // self.window)

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

    def error_bound(self, absorbed: float, nullified_error: float = 0.0) -> float:
        """Theorem 7: a bound on the mean absolute error of a column per step.

        Parameters
        ----------
        absorbed
            The mean number α of shares that a publication absorbs besides its own.
        nullified_error
            The mean error of a nullified step, which depends on the data alone.
        """
        grid = float(Fraction(self.grid))
        full, released = int(absorbed), absorbed + 1
        harmonic = sum(1 / k for k in range(1, full + 2)) + (absorbed - full) / (full + 2)
        scale_of_one_share = self.unit_scale / (self.unit_split[2] / self.window) * grid
        published = (scale_of_one_share * harmonic + absorbed * nullified_error) / (absorbed + released)
        return published + self.score_scale * grid / self.columns

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", window=5), columns=3),
            cls(WEvent(epsilon="4", window=5), columns=3, noise="laplace"),
            cls(WEvent(epsilon="8", window=12), noise="cube"),
            cls(WEvent(epsilon="1/3", window=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(WEvent(epsilon="3", window=6), columns=18, groups=4, regroup_every=7),
            cls(
                WEvent(epsilon="3", window=3),
                columns=8,
                groups=((0, 2, 4), (1, 3, 5, 6), (7,)),
                dissimilarity="largest",
            ),
            cls(WEvent(epsilon="9", window=4), columns=20, shift=True),
            cls(WEvent(epsilon="3", window=6, mobility="fixed"), columns=5, groups=2),
            cls(WEvent(epsilon="3", window=6, mobility="fixed", adjacency="replace"), columns=2, groups=2),
            cls(WEvent(epsilon="4", window=3), columns=2, pan_private="single"),
            cls(WEvent(epsilon="4", window=3), columns=2, pan_private="announced"),
            cls(Event(epsilon="1")),
        ]
