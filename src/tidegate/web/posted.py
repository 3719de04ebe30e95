"""A stream whose events are sent to the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.config import Config, Queries
from tidegate.errors import InvalidParameter
from tidegate.ingest import Intake
from tidegate.runtime import Streams
from tidegate.web.driver import Clock, Driver
from tidegate.web.parsing import Parser
from tidegate.web.spool import Spool, SpoolSource
from tidegate.web.words import step_length

LOCATION = "serve:"


class PostedIntake(Intake):
    """An intake that removes events with the commit of their step."""

    spool: Spool

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
        self.spool = Spool(spool_folder(config), self._streams.step, keep)

    @property
    def posted(self) -> bool:
        """Events arrive by HTTP."""
        return True

    def open_intake(self, streams: Streams) -> Intake:
        """The spool's events."""
        config = self.config
        self.spool.reload(streams.step)
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
        numbers = steps.numbers(frame[self.config.schema.time].to_physical().to_numpy())
        counts = (numbers > self.spool.floor) & (numbers <= steps.furthest(self.clock()))
        return frame.filter(pl.Series(counts)), numbers[counts]

    def join(self) -> None:
        """Wait until the stream has ended, and what waits for the disk is put away."""
        super().join()
        if self.ended:
            self.spool.close()


def spool_folder(config: Config) -> Path:
    """Where events of open steps are kept: beside the configuration."""
    return config.path.with_suffix(".spool").absolute()
