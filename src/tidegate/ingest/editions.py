"""Editions of a step: released early with what has arrived, and again when devices that report late have done so.

All of them close by the public clock. Records are held until the last edition of their step is delivered; the earlier
ones count what is there by then and take nothing away. So each edition is what a stream of its own with that lateness
would release, and each bounds the contributions of a unit by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from tidegate.clock.steps import Steps
from tidegate.ingest.aggregate import Matrix
from tidegate.ingest.blocks import Cutter, StepBlock, block_steps
from tidegate.ingest.intake import Intake
from tidegate.ingest.pending_rows import PendingRows, Rows
from tidegate.ingest.sources.source import EventBatch, Position


@dataclass
class Edition:
    """How far an edition has got.

    Parameters
    ----------
    steps
        The public clock, with the lateness of this edition.
    next_step
        The next step that it releases.
    later
        How many editions of a step come after it.
    """

    steps: Steps
    next_step: int
    later: int

    @property
    def due(self) -> float:
        """When its next step closes, in seconds since 1970."""
        assert isinstance(self.steps.lateness, int)
        return self.steps.boundary(self.next_step + 1) / 1e6 + self.steps.lateness


class EditionsIntake(Intake):
    """An intake that delivers every step several times; see :class:`Intake`, whose clock is that of the last edition.

    A finite input has arrived as a whole, and so has what a stream finds that was away for long: then all editions
    of a step count the same records, each with noise of its own.

    Parameters
    ----------
    earlier
        The clocks of the editions before the last, in order: they differ in their lateness only.
    position
        As committed with the last edition, or where the first one began before there was any; and in ``"editions"`` the
        last step of each of the earlier ones.
    """

    def __init__(
        self, *arguments: Any, earlier: Sequence[Steps], position: Position | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, position=position, **options)
        done = position["editions"] if position else [0] * len(earlier)
        self.earlier = [
            Edition(steps, step + 1, len(earlier) - number)
            for number, (steps, step) in enumerate(zip(earlier, done, strict=True))
        ]
        self._begun = self._from  # up to here nothing is needed any more

    def _furthest(self) -> int:
        return self.earlier[0].steps.furthest(self.clock())

    def _due(self) -> float:
        waiting = [edition.due for edition in self.earlier if edition.next_step <= self._end]
        return min([super()._due(), *waiting])

    def _close(self, held: PendingRows, now: float, end: int, after: Position | None) -> Iterator[StepBlock]:
        """All steps that are due, in the order in which the clock has closed them, however late it is."""
        waiting: list[tuple[Edition, int, Iterator[StepBlock]]] = []
        for edition in self.earlier:
            first, last = edition.next_step, min(edition.steps.closed_by(now), end)
            rows = held.between(first, last) if last >= first else []
            waiting.append((edition, last, self._early(edition, rows, last)))
        final, last = Edition(self.steps, self.next_step, 0), min(self.steps.closed_by(now), end)
        waiting.append((final, last, super()._close(held, now, end, after)))
        while ready := [(each[0].due, at) for at, each in enumerate(waiting) if each[0].next_step <= each[1]]:
            edition, _, blocks = waiting[min(ready)[1]]
            block = next(blocks)
            edition.next_step = block.last_step + 1
            yield block

    def _early(self, edition: Edition, rows: Rows, last: int) -> Iterator[StepBlock]:
        """The steps of an earlier edition up to one."""
        cutter = Cutter(block_steps(self.query.width, follow=True), last)
        for piece in self._vectors(rows, edition.next_step, last):
            for block in cutter.add(piece):
                yield self._provisional(block, edition)

    def _finite(self) -> Iterator[StepBlock]:
        for block in super()._finite():
            for edition in self.earlier:
                begun = max(edition.next_step - block.first_step, 0)
                if begun < len(block):
                    yield self._provisional(block[begun : len(block)], edition)
            yield block

    def _accept(self, batch: EventBatch, furthest: int | None = None) -> tuple[pl.DataFrame, Matrix]:
        self._begun = self._begun or batch.before or None
        return super()._accept(batch, furthest)

    def _provisional(self, block: StepBlock, edition: Edition) -> StepBlock:
        """A block of an earlier edition: the source forgets nothing with it, but where it began is known from now on."""
        edition.next_step = block.last_step + 1
        position = {"step": block.last_step, "source": self._begun if self.follow else None}
        return replace(block, position=position, later=edition.later)
