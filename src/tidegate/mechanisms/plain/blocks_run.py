"""Blocks on ledgers of their own."""

from __future__ import annotations

from contextvars import copy_context
from typing import Protocol

import numpy as np

from tidegate.mechanisms import snapshot
from tidegate.mechanisms.mechanism import ChargeAll, Matrix, Mechanism, Row, Run, State
from tidegate.mechanisms.plain.block_ledger import BlockLedger, UnenforcedBlockLedger
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import install
from tidegate.noise.readdressed import Readdressed
from tidegate.releases import Radii, Release, Releases

PUBLIC = (Uniform, Sample)  # what they charge does not depend on data


class Blockwise(Protocol):
    """A mechanism that runs another one on blocks."""

    @property
    def inner(self) -> Mechanism:
        """What runs on each block, under a user-level policy whose horizon is the length of a block."""


class Repeating(Protocol):
    """A run that, while it stands at its beginning, can do many blocks in one go."""

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release blocks of `length` steps, each as a run that begins with it would; the run stays where it is.

        Steps are counted from the first block on, 1, 2, …, through all of them: in the releases, and where noise has an
        address. `charge` takes the units of all steps; it is called before any noise is drawn, or, where they are
        decided on the way, after a loop that has asked an account of each block.
        """


def repeats(kind: type[Run]) -> bool:
    """Whether runs of a class are `Repeating`; not so if a subclass has changed how batches are released."""
    for parent in kind.__mro__:
        if "repeat" in vars(parent) or "_push_batch" in vars(parent):
            return "repeat" in vars(parent)
    return False


class BlocksRun(Run):
    """A mechanism at work on one block after the other."""

    def _begin(self, state: State | None) -> None:
        self._factor = self.ledger.units // self.mechanism.units
        blockwise: Blockwise = self.mechanism  # type: ignore[assignment]
        self._inner = blockwise.inner
        self._length = self._inner.policy.steps_charged
        kind = BlockLedger if self._inner.enforced else UnenforcedBlockLedger
        # a printed calibration is refused nothing, and its ledger shall say what it really spends
        forwards = isinstance(self._inner, PUBLIC) or not self._inner.enforced
        self._account = kind(self._inner, self.ledger, self._factor, forwards)
        # on a ledger that others have used, or this run without its snapshot, the first block begins now
        self._offset = state["offset"] if state else self.step
        self._account.crowded = state.get("crowded", 0) if state else self.ledger.crowded_until
        self._open(state["inner"].tobytes() if state else None)
        # what shares noise draws block by block, unless its groups are known beforehand
        known = isinstance(self._inner, PUBLIC) or not self._inner.shares_noise
        self._repeats = known and repeats(type(self._run))

    def _open(self, state: bytes | None = None) -> None:
        """Begin the block after `offset` steps, or go on with it."""
        self._account.begin(self._offset)
        if state is not None:
            _, fields = snapshot.unpack(state)
            saved = {name[7:]: value for name, value in fields.items() if name.startswith("ledger.")}
            self._account.restore(saved)

        def start() -> Run:
            with install(Readdressed(self.source, offset=self._offset)):
                return self._inner.start(self._account, state)

        self._run = copy_context().run(start)  # whatever interrupts, nobody else finds the source installed
        self._account.paid = self._run.step > 0

    def _state(self) -> State:
        inner = np.frombuffer(self._run.snapshot(), dtype=np.uint8)
        return {"offset": self._offset, "crowded": self._account.crowded, "inner": inner}

    def _go_on(self) -> None:
        """Begin the next block, if this one is at its end."""
        if self._run.step == self._length:
            self._offset += self._length
            self._open()

    def _push(self, row: Row) -> Release:
        self._go_on()
        self._account.pay()
        release = self._run.push(row, grid_units=True)
        release.step += self._offset
        release.source += self._offset if release.source else 0
        release.units *= self._factor
        release.unit = self.ledger.unit
        return release

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps = len(matrix)
        values = np.empty((steps, self.mechanism.outputs))
        status = np.empty(steps, dtype=np.int8)
        source, units = np.empty(steps, dtype=np.int64), np.empty(steps, dtype=np.int64)
        scale = np.empty(steps)
        kept = self._state()
        start, delay = 0, 0
        radii: list[Radii | None] = []
        try:
            with self.ledger.transaction():
                while start < steps:
                    self._go_on()
                    offset = self._offset
                    part = self._several(matrix[start:])
                    if part is None:
                        part = self._rest_of_block(matrix[start:])
                    stop = start + len(part)
                    values[start:stop], status[start:stop], scale[start:stop] = (
                        part.values,
                        part.status,
                        part.scale,
                    )
                    source[start:stop] = np.where(part.source > 0, part.source + offset, 0)
                    units[start:stop] = part.units * self._factor
                    radii.append(part.radii)
                    start, delay = stop, part.delay
        except BaseException:
            self._begin(kept)
            raise
        releases = Releases(first_step, values, status, source, scale, units, self.ledger.unit, delay)
        known = [each for each in radii if each is not None]
        if known and len(known) == len(radii):
            releases.radii = Radii(lambda confidence: np.concatenate([each(confidence) for each in known]))
        return releases

    def _several(self, rows: Matrix) -> Releases | None:
        """Release the whole blocks that begin here, all but the last one, in one go; None where that cannot be."""
        blocks = (len(rows) - 1) // self._length
        crowded = (
            self._inner.shares_noise and self._account.crowded_until
        )  # then some steps may have to be silent
        if not (self._repeats and blocks) or self._account.paid or crowded:
            return None
        self._account.pay_ahead(blocks)
        run: Repeating = self._run  # type: ignore[assignment]
        releases = run.repeat(rows[: blocks * self._length], self._length, self._account.charge_ahead)
        self._offset += blocks * self._length
        self._open()
        return releases

    def _rest_of_block(self, rows: Matrix) -> Releases:
        """Release what is there of the block, from the step on at which it stands."""
        self._account.pay()
        return self._run.push_batch(rows[: self._length - self._run.step], grid_units=True)
