"""A stream whose events are sent to the service."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.config import Config, Queries
from tidegate.errors import InvalidParameter
from tidegate.ingest import Intake
from tidegate.ingest.active_units import longest_over
from tidegate.ingest.blocks import MOST_CELLS, StepBlock
from tidegate.ingest.combined_query import needed
from tidegate.ingest.pending_rows import PendingRows
from tidegate.pipeline import Pipeline
from tidegate.pipeline.json_log import log
from tidegate.web import limits
from tidegate.web.driver import Clock, Driver
from tidegate.web.event_parsing import Parser
from tidegate.web.explanations import step_length
from tidegate.web.quotas import Quota
from tidegate.web.spool import Spool, SpoolSource, cost

LOCATION = "serve:"


_HELD = Quota(limits.MOST_HELD)  # bytes of events that all streams have read ahead
_HOLDING = threading.Lock()
_COUNTING = threading.Lock()  # streams count one after the other, so that the memory is that of one


class HttpIntake(Intake):
    """An intake that reads events from the spool, as far ahead as there is memory, and removes those that were counted.

    An event stays until the last step that counts it is committed. Reading ahead leaves little to do when a step closes,
    so that the time of its release does not tell how much one unit has sent. What does not fit is read then.
    """

    spool: Spool

    def _live(self) -> Iterator[StepBlock]:
        held, place = PendingRows(lambda rows, numbers: needed(self.query, rows, numbers)), 0
        try:
            while self.next_step <= self._end and not self._stopped:
                self._watch_clock()
                last = min(self.steps.closed_by(self.clock()), self._end)
                if last < self.next_step:
                    place = self._read_ahead(held, place)
                    time.sleep(self._patience())
                    continue
                most = max(1, MOST_CELLS // self.query.width)
                last = self.spool.until(self.next_step, min(last, self.next_step + most - 1))
                with _COUNTING:
                    blocks = list(self._counted(held, place, last))
                self._fits(held)
                yield from blocks
        finally:
            self._fits(PendingRows())

    def _read_ahead(self, held: PendingRows, place: int) -> int:
        """Read what has come, until a step closes or there is no room; how far that was."""
        assert isinstance(self.source, SpoolSource)
        if self._fits(held):
            for batch, reached in self.source.after(place, 2**62):
                held.add(*self._accept(batch), {})
                place = reached
                if not self._fits(held) or self._stopped or self.clock() >= self._due():
                    break
        return place

    def _counted(self, held: PendingRows, place: int, last: int) -> Iterator[StepBlock]:
        """The vectors of steps up to one: what was read ahead, then what came after it."""
        assert isinstance(self.source, SpoolSource)
        rows, _ = held.close(last, {})
        rows += [needed(self.query, *self._accept(batch)) for batch, _ in self.source.after(place, last)]
        yield from self._blocks(rows, last, {})

    def _fits(self, held: PendingRows) -> bool:
        """Whether more may be held than is; what is, is counted for this stream."""
        holder, pieces = str(self.spool.folder), held.pieces()
        size = sum(cost(len(rows), int(rows.estimated_size())) for rows, _ in pieces)
        with _HOLDING:
            _HELD.give(holder, _HELD.held(holder))
            _HELD.take(holder, size)
            return _HELD.fits(holder, 0)

    def commit(self, position: dict[str, Any]) -> None:
        """Everything up to the position is committed."""
        super().commit(position)
        self.spool.forget(position["step"] - self._over + 1)


class HttpDriver(Driver):
    """Drives a stream from what producers send; parameters as for :class:`Driver`."""

    def __init__(
        self, name: str, queries: Queries, clock: Clock | None = None, *, backfill: bool = False
    ) -> None:
        if len(queries.editions) > 1:
            raise InvalidParameter(
                "editions",
                len(queries.editions),
                "absent where events are sent to the service, which removes them with the first release of their step",
                "drop it, or allow for more lateness",
            )
        self.parser = Parser(queries)
        super().__init__(name, queries, clock, backfill=backfill)
        config = queries.first
        lateness = config.steps.lateness
        assert isinstance(lateness, int)
        assert self._pipeline is not None
        self._trailing = longest_over(queries.counted) - 1  # further steps that count an event
        keep = (2 + self._trailing) * step_length(config) + lateness
        rows = sum(part.query.width if part.query.wide else part.query.over for part in queries.parts)
        done = max(0, self._pipeline.step - self._trailing)
        self.spool = Spool(spool_folder(config), done, keep, self._damaged, rows)

    def _damaged(self, sentence: str) -> None:
        self.damage = sentence
        log("spool.damaged", stream=self.name, sentence=sentence)

    @property
    def posted(self) -> bool:
        """Events arrive by HTTP."""
        return True

    def open_intake(self, pipeline: Pipeline) -> Intake:
        """The spool's events."""
        config = self.config
        self.spool.forget(pipeline.step - self._trailing)
        intake = HttpIntake(
            SpoolSource(self.spool, self.parser.columns),
            config.schema,
            config.steps,
            self.queries.counted,
            position=pipeline.position,
            follow=True,
            clock=self.clock,
        )
        intake.spool = self.spool
        return intake

    def current(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
        """The events that open steps count, and their steps: those of the past and of the far future are never stored."""
        steps = self.config.steps
        numbers = steps.numbers(frame[self.config.schema.time].to_physical().to_numpy())
        counts = (numbers > self.spool.floor) & (numbers <= steps.furthest(self.clock()))
        return frame.filter(pl.Series(counts)), numbers[counts]

    def join(self) -> None:
        """Wait until the stream has ended, and what waits for the disk is stored."""
        super().join()
        if self.ended:
            self.spool.close()


def spool_folder(config: Config) -> Path:
    """Where events of open steps are kept: beside the configuration."""
    return config.path.with_suffix(".spool").absolute()
