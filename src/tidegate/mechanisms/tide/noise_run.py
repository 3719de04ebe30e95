"""Noise that Tide's measurements share: drawn ahead for the compiled loop, SECRET, and gone on with by one run only."""

from __future__ import annotations

from itertools import accumulate, cycle, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.shared_noise import Held
from tidegate.mechanisms.tide import loop_run as loop
from tidegate.noise import gaussian

if TYPE_CHECKING:
    from tidegate.mechanisms.tide.tide_run import TideRun
    from tidegate.noise.shared.semiorder import SemiorderState

Integers = npt.NDArray[np.int64]
STREAM = "tide/shared"
DRAWN_AHEAD = 2048  # values, at most: a loop that pauses for each group would be slow
GAUSSIAN_CELLS = 1 << 14  # the same for Gaussian noise, of all columns together
AT_LEAST = 16  # of a semiorder that goes on, for runs that take one step at a time


class TideNoise(Held):
    """The noise of the open group, and within a batch that of groups to come.

    Parameters
    ----------
    run
        Whose noise it is.
    saved
        What `numbers` has said, for a snapshot.

    Attributes
    ----------
    pool, taken
        Values for the loop, one row a measurement, and which of them are used; see `loop.Work`.
    state
        Where a semiorder stands after the last value of the pool.
    """

    def __init__(self, run: TideRun, saved: dict[str, Any] | None) -> None:
        self.run: TideRun = run
        self.ledger = run.ledger
        self.pool = np.zeros((0, run.mechanism.columns), dtype=np.int64)
        self.taken = np.zeros(loop.TAKEN_NUMBERS, dtype=np.int64)
        self.state: SemiorderState | None = None
        if saved is not None:
            self._read(saved)
            if not self.hold(saved["name"]):
                self.drop()

    def _read(self, saved: dict[str, Any]) -> None:
        row = self.taken[loop.POOL_ROW] = saved["row"]
        values = np.array(saved["values"], dtype=np.int64).reshape(-1, self.pool.shape[1])
        self.pool, self.taken[loop.END] = values, len(values)
        if saved["law"] is not None:
            self.state = self._law(row).restore(saved["law"])

    def numbers(self) -> dict[str, Any]:
        """The state for a snapshot, which is as secret as raw values."""
        return {
            "name": self.known_as(),
            "row": int(self.taken[loop.POOL_ROW]),
            "values": self.pool[self.taken[loop.POSITION] : self.taken[loop.END]].ravel().tolist(),
            "law": None if self.state is None else self.state.numbers(),
        }

    def _law(self, row: int) -> Any:
        sharing = self.run.mechanism.choices.laws[row]
        assert sharing is not None
        return sharing.law

    def drop(self) -> None:
        """Forget what is secret, because somebody else may go on with it: the group ends with its last measurement.

        It is silent as long as the group would have been open, where budget comes back, and else until after its next
        measurement; what may be charged then, and when, the ledger knows.
        """
        plan, shares = self.run.plan, self.run.mechanism.choices.shares
        if plan[loop.LEFT] > 0:
            row, step = plan[loop.GROUP_ROW], self.run.step
            window = self.run.mechanism.policy.steps_charged
            gap = -(-shares[row, loop.SPAN] // shares[row, loop.MEASUREMENTS])
            endless = shares[row, loop.LENGTH] == loop.ENDLESS
            silent = window - 1 if endless else plan[loop.LEFT] * gap
            if self.run.mechanism.policy.window is None:
                silent = max(0, plan[loop.DUE] - step)
            plan[loop.DUE] = max(plan[loop.DUE], step + 1 + silent)
            loop.leave_group(plan, self.taken, shares)
        self.forget()

    def forget(self) -> None:
        """Keep nothing but what the open group still needs: noise of others is drawn anew."""
        plan, taken = self.run.plan, self.taken
        endless = (
            plan[loop.LEFT] > 0
            and self.run.mechanism.choices.shares[plan[loop.GROUP_ROW], loop.LENGTH] == loop.ENDLESS
        )
        kept = self.pool[taken[loop.POSITION] : taken[loop.END]]
        if not endless:
            kept, self.state = kept[: plan[loop.LEFT]], None
        self.pool = kept.copy()
        taken[:] = 0
        taken[loop.END], taken[loop.POOL_ROW] = len(kept), plan[loop.TAKEN]

    def draw(self, steps: int) -> None:
        """Noise for the measurement in hand, and for some of those that `steps` more steps may bring."""
        plan, taken, choices = self.run.plan, self.taken, self.run.mechanism.choices
        row, source, at = int(plan[loop.TAKEN]), self.run.source, int(plan[loop.NUMBER])
        taken[loop.POSITION], taken[loop.POOL_ROW] = 0, row
        number, span, _, length, *_ = choices.shares[row].tolist()
        coming = min(DRAWN_AHEAD, 1 + steps * number // span)
        if choices.gaussian:
            self._draw_gaussian(at, row, coming)
            return
        law = self._law(row)
        if length == loop.ENDLESS:
            begun = law.start() if not plan[loop.PLACED] else self.state
            assert begun is not None
            # the next one may have less noise, of the same arrivals, while the budget is not complete
            coming = max(coming, AT_LEAST) if plan[loop.LEVEL] == loop.EIGHTHS else 1
            self.pool, self.state = law.draw(source, STREAM, at, begun, coming)
        else:
            place = int(plan[loop.PLACE]) % len(law.lengths)
            lengths = law.lengths[place:] + law.lengths[:place]
            assert plan[loop.LEFT] == lengths[0]  # a radius has one group, and a group has one radius
            ends = takewhile(lambda end: end <= coming, accumulate(cycle(lengths)))
            state = law.restore([place, *(0 for _ in law.start().numbers()[1:])])
            self.pool, _ = law.draw(source, STREAM, at, state, max([lengths[0], *ends]))
        taken[loop.END] = len(self.pool)

    def _draw_gaussian(self, at: int, row: int, coming: int) -> None:
        """Noise of their own for the next measurements, as long as they follow one row of the tables."""
        columns, choices = self.pool.shape[1], self.run.mechanism.choices
        followed = row < 3 * choices.rows  # an opening is measured once
        count = max(1, min(coming, GAUSSIAN_CELLS // columns)) if followed else 1
        sigma = float(choices.scales[row, loop.SCALE])
        self.pool = gaussian(self.run.source, self.run.stream, at, sigma, (count, columns))
        self.taken[loop.END] = count

    def kept(self) -> tuple[Any, ...]:
        """A copy of all that changes."""
        return self.pool.copy(), self.taken.copy(), self.state

    def put_back(self, kept: tuple[Any, ...]) -> None:
        """Be as when this copy was made."""
        self.pool, self.taken[:], self.state = kept[0].copy(), kept[1], kept[2]
