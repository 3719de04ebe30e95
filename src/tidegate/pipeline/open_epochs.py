"""What is pushed where categories are found: records of a step and, at steps with tests, earlier ones of its epoch.

The records of an open epoch are kept in the log's database beside the commits, as secret as the data, until the epoch is
over. So a restart continues with the same records, whatever the source is; every step says that it has all of its epoch.
"""

from __future__ import annotations

import io

import numpy as np
import polars as pl

from tidegate.ingest import StepBlock
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.discovery.occurrences import (
    CATEGORY,
    NO_VALUES,
    NOTHING,
    NOTHING_EARLIER,
    STEP,
    UNIT,
    Step,
    together,
)
from tidegate.pipeline.side_tables import SideTables


class OpenEpochs:
    """The records of the open epoch of one query.

    Parameters
    ----------
    name, mechanism
        The query, and what finds its categories.
    side_tables
        Where they are kept.
    """

    def __init__(self, name: str, mechanism: Discover, side_tables: SideTables) -> None:
        self.name, self.steps_per_epoch, self._side_tables = name, mechanism.steps_per_epoch, side_tables
        self.early = mechanism.early
        self._nothing = NO_VALUES if mechanism.adds_values else NOTHING

    def first_step_of_epoch(self, step: int) -> int:
        """The first step of the epoch that a step is in."""
        return step - (step - 1) % self.steps_per_epoch

    def stage(self, block: StepBlock) -> list[Step]:
        """What is pushed for the steps of a block. Before, its records of an epoch that is open after it are stored."""
        now = block.records[0]  # in the order of their steps
        rows = now.select(STEP, UNIT, CATEGORY)  # of earlier steps no values are needed
        edges = np.searchsorted(
            rows[STEP].to_numpy(), np.arange(block.first_step, block.last_step + 2)
        ).tolist()
        begin, before = self.first_step_of_epoch(block.first_step), NOTHING_EARLIER
        if self.early or block.last_step >= begin + self.steps_per_epoch - 1:
            parts = [
                _decoded(each)
                for each in self._side_tables.occurrences(self.name, begin, block.first_step - 1)
            ]
            before = together(parts, NOTHING_EARLIER)
        found = [
            self._step(block, now, rows, edges, before, number)
            for number in range(block.first_step, block.last_step + 1)
        ]
        open_from = max(self.first_step_of_epoch(block.last_step + 1), block.first_step)
        kept = rows.filter(pl.col(STEP) >= open_from).unique(maintain_order=True)
        entries = [
            (int(part[STEP][0]), _encoded(part)) for part in kept.partition_by(STEP, maintain_order=True)
        ]
        self._side_tables.put_occurrences(self.name, block.first_step, entries)
        return found

    def _step(
        self,
        block: StepBlock,
        counted: pl.DataFrame,
        rows: pl.DataFrame,
        edges: list[int],
        before: pl.DataFrame,
        number: int,
    ) -> Step:
        at, first = number - block.first_step, block.first_step
        now = counted[edges[at] : edges[at + 1]].drop(STEP)
        earlier = NOTHING_EARLIER
        if self.early or number % self.steps_per_epoch == 0:
            begin = self.first_step_of_epoch(number)
            here = rows[edges[max(begin - first, 0)] : edges[at]]
            parts = [before] if begin < first else []
            earlier = together([each for each in (*parts, here) if len(each)], NOTHING_EARLIER)
        return Step(now if len(now) else self._nothing, earlier, number, self.first_step_of_epoch(number))

    def forget(self, step: int) -> None:
        """Remove the records of epochs that end at this step or earlier."""
        self._side_tables.forget_occurrences(self.name, self.first_step_of_epoch(step + 1))


def _encoded(rows: pl.DataFrame) -> bytes:
    """Records as bytes."""
    content = io.BytesIO()
    rows.write_ipc(content, compression="uncompressed")
    return content.getvalue()


def _decoded(content: bytes) -> pl.DataFrame:
    """The records of an entry."""
    return pl.read_ipc(content)
