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
from tidegate.ingest.blocks import StepBlock
from tidegate.ingest.intake import MOST_CELLS
from tidegate.ingest.sources.source import EventBatch
from tidegate.runtime import Streams
from tidegate.runtime.journal import log
from tidegate.web.driver import Clock, Driver
from tidegate.web.parsing import Parser
from tidegate.web.spool import Spool, SpoolSource
from tidegate.web.words import step_length

LOCATION = "serve:"


_COUNTING = threading.Lock()  # streams count one after the other, so that the memory is that of one


class PostedIntake(Intake):
    """An intake that reads the events of a step when it has closed, and removes them with its commit."""

    spool: Spool

    def _live(self) -> Iterator[StepBlock]:
        """Closed steps, as many at a time as memory allows."""
        while self.next_step <= self._end and not self._stopped:
            last = min(self.steps.closed_by(self.clock()), self._end)
            if last < self.next_step:
                time.sleep(self._patience())
                continue
            most = max(1, MOST_CELLS // self.query.width)  # one block
            last = self.spool.until(self.next_step, min(last, self.next_step + most - 1))
            with _COUNTING:
                blocks = list(self._counted(last))
            yield from blocks

    def _counted(self, last: int) -> Iterator[StepBlock]:
        assert isinstance(self.source, SpoolSource)
        rows = [self._accept(EventBatch(frame, {}, {})) for frame in self.source.upto(last)]
        yield from self._blocks(rows, last, {})

    def commit(self, position: dict[str, Any]) -> None:
        """Everything up to the position is committed."""
        super().commit(position)
        self.spool.forget(position["step"])


class PostedDriver(Driver):
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
        assert self._streams is not None
        keep = 2 * step_length(config) + lateness
        rows = sum(part.query.width if part.query.wide else 1 for part in queries.parts)
        self.spool = Spool(spool_folder(config), self._streams.step, keep, self._damaged, rows)

    def _damaged(self, sentence: str) -> None:
        self.damage = sentence
        log("spool.damaged", stream=self.name, sentence=sentence)

    @property
    def posted(self) -> bool:
        """Events arrive by HTTP."""
        return True

    def open_intake(self, streams: Streams) -> Intake:
        """The spool's events."""
        config = self.config
        self.spool.forget(streams.step)
        intake = PostedIntake(
            SpoolSource(self.spool, self.parser.columns),
            config.schema,
            config.steps,
            self.queries.counted,
            position=streams.position,
            follow=True,
            clock=self.clock,
        )
        intake.spool = self.spool
        return intake

    def current(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
        """The events of open steps and their steps: those of the past and of the far future are never stored."""
        steps = self.config.steps
        moments = frame[self.config.schema.time].to_physical().to_numpy()
        numbers = steps.numbers(moments)
        counts = (numbers > self.spool.floor) & (moments <= steps.latest(self.clock()))
        if counts.all():
            return frame, numbers
        return frame.filter(pl.Series(counts)), numbers[counts]

    def join(self) -> None:
        """Wait until the stream has ended, and what waits for the disk is put away."""
        super().join()
        if self.ended:
            self.spool.close()


def spool_folder(config: Config) -> Path:
    """Where events of open steps are kept: beside the configuration."""
    return config.path.with_suffix(".spool").absolute()
