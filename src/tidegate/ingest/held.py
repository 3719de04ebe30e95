"""What a live intake holds: the rows of open steps, and how far back it must read to have them again."""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.ingest.aggregate import Matrix
from tidegate.ingest.sources.source import Position

Rows = list[tuple[pl.DataFrame, Matrix]]
_MOST_PIECES = 256  # small batches are put together now and then


class Held:
    """Rows of open steps.

    A batch may be forgotten by the source when its highest step is closed and all batches before it may be. So of
    all batches only those are remembered that have a higher step than every one before them: at most one for each
    open step, however many messages arrive.
    """

    def __init__(self) -> None:
        self._rows: Rows = []
        self._marks: list[
            tuple[Position, int]
        ] = []  # where a batch begins, and its highest step; both increase

    def add(self, rows: pl.DataFrame, numbers: Matrix, before: Position) -> None:
        """Hold the rows of a batch."""
        if not len(numbers):
            return
        self._rows.append((rows, numbers))
        if len(self._rows) > _MOST_PIECES:
            self._rows = [
                (
                    pl.concat([rows for rows, _ in self._rows], rechunk=True),
                    np.concatenate([numbers for _, numbers in self._rows]),
                )
            ]
        highest = int(numbers.max())
        if not self._marks or highest > self._marks[-1][1]:
            self._marks.append((before, highest))

    def close(self, last: int, after: Position | None) -> tuple[Rows, Position | None]:
        """Take out all rows up to a step; also the position from which all that stays can be read again."""
        closed: Rows = []
        still_open: Rows = []
        for rows, numbers in self._rows:
            done = numbers <= last
            if done.all():
                closed.append((rows, numbers))
            elif done.any():
                closed.append((rows.filter(done), numbers[done]))
                still_open.append((rows.filter(~done), numbers[~done]))
            else:
                still_open.append((rows, numbers))
        self._rows = still_open
        self._marks = [mark for mark in self._marks if mark[1] > last]
        return closed, self._marks[0][0] if self._marks else after
