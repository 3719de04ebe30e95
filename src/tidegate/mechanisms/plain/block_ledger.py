"""What blocks run on: an account of their own beside the ledger of the whole stream, and steps counted from the block."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tidegate.ledger import Group, Ledger, MemoryLedger
from tidegate.ledger import kernels as k
from tidegate.ledger.events import Overspent
from tidegate.ledger.kernels import Integers
from tidegate.ledger.ledger import Holder
from tidegate.ledger.unenforced import UnenforcedLedger
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.run import last_step


class BlockLedger(MemoryLedger):
    """The account of one block, which the ledger of the whole stream pays in advance, or charge by charge.

    Parameters
    ----------
    mechanism, whole, factor
        What runs on the block, the ledger of the whole stream, and its units for one of the block.
    forwards
        Whether each charge is made to the whole as well; else the whole pays for all of the block at its beginning.
    """

    begins_again = True

    def __init__(self, mechanism: Mechanism, whole: Ledger, factor: int, forwards: bool) -> None:
        super().__init__(mechanism.policy, mechanism.units)
        self._opened = self._account.mark()  # where all steps add up, an account keeps no rows
        self._whole, self._factor, self._offset = whole, factor, 0
        self._length = mechanism.policy.steps_charged
        self._share = factor if forwards else 0  # of a charge, what the whole is charged besides
        self.paid = False
        self.crowded = (
            0  # the last step of the whole whose windows contain what was charged before the first block
        )

    @property
    def crowded_until(self) -> int:
        """The same, counted from the beginning of the block."""
        return max(0, self.crowded - self._offset)

    def remaining(self, step: int | None = None) -> Fraction:
        """What a charge to a step may cost, in the block and in the whole."""
        step = self.step + 1 if step is None else step
        return min(super().remaining(step), self._whole.remaining(step + self._offset))

    def begin(self, offset: int) -> None:
        """Open the account of the block that begins after so many steps."""
        self._offset, self._rows, self.paid = offset, 0, False
        self._account.undo(self._opened)
        self._users.clear()  # each block has a run of its own

    def hold(self, name: str, user: Holder) -> bool:
        """What the whole knows of a secret state."""
        return self._whole.hold(name, user)

    @property
    def place(self) -> str:
        """Where the whole is kept."""
        return self._whole.place

    def pay(self) -> None:
        """Let the whole pay for the block, once, unless it pays charge by charge."""
        if not self.paid and not self._share:
            first, amount = self._offset + 1, self.units * self._factor
            if self._length == 1:
                self._whole.charge(first, amount)
            else:
                self._whole.charge_span(first, last_step(self._whole, self._offset + self._length), amount)
        self.paid = True

    def pay_ahead(self, blocks: int) -> None:
        """Let the whole pay for this block and those after it, as `pay` would for each, and stand behind the last."""
        if self._share:
            return
        first, amount = self._offset + 1, self.units * self._factor
        if self._length == 1:  # a span of one step is a charge to it
            self._whole.charge_batch(first, np.broadcast_to(np.int64(amount), blocks))
            return
        nothing = np.zeros(self._length - 1, dtype=np.int64)
        for begin in range(first, first + blocks * self._length, self._length):
            self._whole.charge_span(begin, begin + self._length - 1, amount)
            self._whole.charge_batch(begin + 1, nothing)  # moves on, as the steps of the block would

    def charge_ahead(self, units: Integers, groups: Integers | None = None) -> None:
        """Charge the steps of this block and those after it to the whole, if it pays charge by charge.

        Each block has an account of its own, which is judged here and kept by nobody. Groups are rows (first, last,
        units) with steps counted from the first block on, none of which reaches from one block into the next.
        """
        spent = units.reshape(-1, self._length).sum(axis=1)
        if groups is not None:
            np.add.at(spent, (groups[:, 0] - 1) // self._length, groups[:, 2])
        fullest, limit = int(spent.max()), self._account[k.LIMIT]
        if fullest > limit:
            self._refuse(Overspent(self._length, self._length, 0, fullest, limit))
        if self._share:
            self._whole.charge_batch(self._offset + 1, units * self._share, groups=self._of_whole(groups))

    def charge(
        self,
        step: int,
        units: int = 0,
        *,
        scope: str = "",
        groups: Mapping[str, int] | None = None,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        """Charge the whole, then the block; a refusal of the whole leaves both as they were."""
        if self._share:
            parts = [
                {name: amount * self._share for name, amount in (part or {}).items()}
                for part in (groups, levels)
            ]
            self._whole.charge(
                step + self._offset,
                units * self._share,
                scope=scope,
                groups=parts[0] or None,
                levels=parts[1] or None,
            )
        else:
            self._move_on(step, step)
        super().charge(step, units, scope=scope, groups=groups, levels=levels)

    def charge_batch(
        self,
        first: int,
        units: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        extended: ArrayLike | None = None,
        scope: str = "",
    ) -> None:
        """Charge the whole, then the block."""
        amounts = np.asarray(units)
        if self._share:
            tables = [self._of_whole(table) for table in (groups, extended)]
            self._whole.charge_batch(
                first + self._offset, amounts * self._share, groups=tables[0], extended=tables[1], scope=scope
            )
        else:
            self._move_on(first, first + len(amounts) - 1)
        super().charge_batch(first, amounts, groups=groups, extended=extended, scope=scope)

    def _of_whole(self, groups: ArrayLike | None) -> Integers | None:
        """Rows of groups in the steps and units of the whole: every column but the units is a step."""
        if groups is None or not np.size(groups):
            return None
        rows = np.array(groups, dtype=np.int64) + self._offset
        rows[:, 2] = (rows[:, 2] - self._offset) * self._share
        return rows

    def charge_group(self, first: int, last: int, units: int, *, scope: str = "") -> Group:
        """Charge the whole, then the block."""
        end = last_step(self._whole, last + self._offset)
        self._whole.charge_group(first + self._offset, end, units * self._share, scope=scope)
        return super().charge_group(first, last, units, scope=scope)

    def extend_group(self, group: Group, last: int, *, scope: str = "") -> Group:
        """Let the group reach on in the whole, then in the block."""
        first, end, units = group
        known = Group(first + self._offset, end + self._offset, units * self._share)
        self._whole.extend_group(known, last + self._offset, scope=scope)
        return super().extend_group(group, last, scope=scope)

    def _move_on(self, first: int, last: int) -> None:
        """Let the whole, which has paid, stand where the block stands, unless it stands there already."""
        first, last = max(first + self._offset, self._whole.step + 1), last + self._offset
        if first <= last:
            self._whole.charge_batch(first, np.zeros(last - first + 1, dtype=np.int64))


class UnenforcedBlockLedger(BlockLedger, UnenforcedLedger):
    """The same for a printed calibration, which overspends: it refuses nothing."""
