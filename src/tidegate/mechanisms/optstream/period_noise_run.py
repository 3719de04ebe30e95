"""Noise that the samples of a period share where data choose their times: one radius, which the period has paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.mechanisms.optstream.period_blocks_run import Integers
from tidegate.mechanisms.shared_noise import Held, Saved, Sharing

if TYPE_CHECKING:
    from tidegate.mechanisms.run import Run


class PeriodNoise(Held):
    """The cube on the k samples of a period. Its state is SECRET.

    The period was charged for all of them before any of its data were looked at, so nothing is paid here. A state that
    another run may go on with is dropped, and with it the rest of its period: the next one has a radius of its own.

    Parameters
    ----------
    run, sharing
        Whose noise it is, and the law.
    saved
        What `numbers` has said, for a snapshot.

    Attributes
    ----------
    dropped
        Whether the state of a snapshot was open, and is not gone on with.
    """

    def __init__(self, run: Run, sharing: Sharing, saved: Saved | None) -> None:
        self.run, self.law = run, sharing.law
        self.state: Any = self.law.start()
        self.dropped = False
        if saved is not None:
            self.state = self.law.restore(saved["law"])
            if not self.hold(saved["name"]) and self.open:
                self.begin()
                self.dropped = True

    @property
    def open(self) -> bool:
        """Whether samples of this radius are still to come."""
        return bool(self.state.remaining)

    def begin(self) -> None:
        """Begin a period: whatever radius there was is forgotten."""
        self.state = self.law.start()

    def draw_all(self, number: int, count: int) -> Integers:
        """The noise of the next samples of the period, one row each."""
        noise, self.state = self.law.draw(self.run.source, "samples", number, self.state, count)
        found: Integers = noise
        return found

    def numbers(self) -> Saved:
        """The state for a snapshot, which is as secret as raw values."""
        return {"name": self.known_as(), "law": self.state.numbers()}
