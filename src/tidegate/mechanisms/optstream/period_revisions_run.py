"""The second answer of a step: the final values of a period, when it has ended or when its run is flushed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.mechanism import Run, State
from tidegate.mechanisms.optstream.period_blocks_run import Block, Floats, Integers
from tidegate.mechanisms.run import last_step
from tidegate.releases import Release, Releases, Status


class RevisingRun(Run):
    """A run that says more about the steps of a period when it ends."""

    if TYPE_CHECKING:
        mechanism: Any
        _memory: State
        _w: int

    _untaken: list[Release] | None = None  # revised values that nobody has asked for are not kept

    @abstractmethod
    def _close(self, length: int) -> list[Floats]:
        """The curve of the first `length` steps of the period, from what is known of them."""

    def _expand(self, values: Floats) -> Floats:
        """The columns of a release from those of the stream."""
        return values

    def _status(self, chosen: npt.NDArray[np.bool_], first_step: int) -> npt.NDArray[np.int8]:
        """What is known of steps, by which of them are samples."""
        return np.where(chosen, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED))

    def _revised(
        self, finals: list[Floats], block: Block, earlier: tuple[Integers, npt.NDArray[np.bool_]]
    ) -> Releases | None:
        """The final values of the periods that ended, with what is known of their steps."""
        if not finals:
            return None
        w = self._w
        leaves = np.concatenate(finals)
        first = (block.first_step + len(block.rows) - 1) // w * w - len(leaves) + 1
        pushed_before, torn = max(0, block.first_step - first), max(0, first - block.first_step)
        begin = (first - 1) % w
        units, chosen = (
            np.concatenate([old[begin : begin + pushed_before], new[torn:]])[: len(leaves)]
            for old, new in zip(earlier, (block.units, block.chosen), strict=True)
        )
        return self._revision(first, leaves, chosen, units)

    def _revision(
        self, first: int, leaves: Floats, chosen: npt.NDArray[np.bool_], units: Integers
    ) -> Releases:
        count = len(leaves)
        steps = np.arange(first, first + count)
        ends = np.minimum(-(-steps // self._w) * self._w, first + count - 1)
        source = np.maximum.accumulate(np.where(chosen, steps, 0))
        # before the first sample of its period a step rests on later ones
        source = np.where(source > (steps - 1) // self._w * self._w, source, ends)
        status = self._status(chosen, first)
        scale = np.full(count, self.mechanism.shown_scale)
        values = self._expand(leaves * self._grid)
        longest = min(count, self._w) - 1
        fields = (first, values, status, source, scale, units.copy(), self.ledger.unit, longest)
        return Releases(*fields, ends=ends)

    def _accompany(self, releases: Release | Releases) -> None:
        super()._accompany(releases)
        if self._untaken is not None and releases.revised is not None:
            self._untaken += releases.revised

    def take_revisions(self) -> list[Release]:
        """All revised values since this was last called, for a loop over many pushes.

        They are kept from the first call on, so that they do not pile up in runs whose owner reads `release.revised`:
        call it once before the loop.
        """
        taken, self._untaken = self._untaken or [], []
        return taken

    def flush(self) -> Releases | None:
        """End the run now: the final values of the steps of an incomplete period, or None if there are none.

        It costs nothing: samples and running sums were charged step by step, and each of them is still released
        once, with the guarantee of the run. That is why the run ends with it, and why the ledger moves on to
        the end of the period, or of the stream: going on from an earlier snapshot would release the same sums again.
        """
        memory, length = self._memory, self.step % self._w
        if not length or memory["ended"]:
            return None
        with self._at_work():
            self.ledger.charge(last_step(self.ledger, self.step - length + self._w), 0)
            finals = self._close(length)
            memory["ended"] = 1
        if not finals:
            return None
        first = self.step - length + 1
        revision = self._revision(first, finals[0], memory["sampled"][:length], memory["spent"][:length])
        revision.radii = None if self._uncertainty is None else self._uncertainty.revised(revision)
        return revision
