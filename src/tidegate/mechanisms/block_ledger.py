"""What blocks run on: an account of their own beside the ledger of the whole stream, and steps counted from the block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from tidegate.ledger import Ledger, MemoryLedger
from tidegate.ledger import kernels as k
from tidegate.ledger.unenforced import UnenforcedLedger
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import Source
from tidegate.noise.entropy import Elements, Words


class BlockLedger(MemoryLedger):
    """The account of one block, which the ledger of the whole stream pays in advance, or charge by charge.

    Parameters
    ----------
    mechanism, whole, factor
        What runs on the block, the ledger of the whole stream, and its units for one of the block.
    forwards
        Whether each charge is made to the whole as well; else the whole pays for all of the block at its beginning.
    """

    def __init__(self, mechanism: Mechanism, whole: Ledger, factor: int, forwards: bool) -> None:
        super().__init__(mechanism.policy, mechanism.units)
        self._whole, self._factor, self._offset = whole, factor, 0
        self._length = mechanism.policy.steps_charged
        self._share = factor if forwards else 0  # of a charge, what the whole is charged besides
        self.paid = False

    def begin(self, offset: int) -> None:
        """Open the account of the block that begins after so many steps."""
        limit = self._account[k.LIMIT]
        self._offset, self._rows, self._account = offset, 0, self.rule.account()
        self._account.state[k.LIMIT] = limit
        self.paid = False

    def pay(self) -> None:
        """Let the whole pay for the block, once, unless it pays charge by charge."""
        if not self.paid and not self._share:
            first = self._offset + 1
            self._whole.charge_span(first, self._offset + self._length, self.units * self._factor)
        self.paid = True

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
        parts = [
            {name: amount * self._share for name, amount in (part or {}).items()} for part in (groups, levels)
        ]
        self._whole.charge(
            step + self._offset,
            units * self._share,
            scope=scope,
            groups=parts[0] or None,
            levels=parts[1] or None,
        )
        super().charge(step, units, scope=scope, groups=groups, levels=levels)

    def charge_batch(self, first: int, units: ArrayLike, *, scope: str = "") -> None:
        """Charge the whole, then the block."""
        self._whole.charge_batch(first + self._offset, np.asarray(units) * self._share, scope=scope)
        super().charge_batch(first, units, scope=scope)

    def charge_span(self, first: int, last: int, units: int, *, scope: str = "") -> None:
        """Charge the whole, then the block."""
        self._whole.charge_span(first + self._offset, last + self._offset, units * self._share, scope=scope)
        super().charge_span(first, last, units, scope=scope)


class UnenforcedBlockLedger(BlockLedger, UnenforcedLedger):
    """The same for a printed calibration, which overspends: it refuses nothing."""


class Shifted:
    """A source of random words whose steps are counted from the beginning of a block."""

    def __init__(self, source: Source, offset: int) -> None:
        self._source, self._offset = source, offset
        self.name, self.marked = source.name, source.marked

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The words of the step of the whole stream."""
        return self._source.words(stream, step + self._offset, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word of the step of the whole stream."""
        return self._source.word(stream, step + self._offset, draw, index)
