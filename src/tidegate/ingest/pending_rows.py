"""What a live intake holds: the rows of open steps, and how far back it must read to have them again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from tidegate.ingest.aggregate import Matrix
from tidegate.ingest.sources.source import Position

Rows = list[tuple[pl.DataFrame, Matrix]]
Needed = Callable[[pl.DataFrame, Matrix], tuple[pl.DataFrame, Matrix]]


def everything(rows: pl.DataFrame, numbers: Matrix) -> tuple[pl.DataFrame, Matrix]:
    """Leave nothing out."""
    return rows, numbers


class PendingRows:
    """Rows of open steps, as many as are needed and not as many as have come.

    Rows stand in pieces, each less than half as large as the one before. A new one is put together with those that it
    outgrows, and what is no longer needed of them is left out: so a row is looked at about log₂(rows) times, there are no
    more pieces than that, and all of them together are at most twice as large as what is needed.

    A batch may be forgotten by the source when its highest step is closed and all batches before it may be. So of all
    batches only those are remembered that have a higher step than every one before them: at most one for each open
    step, however many messages arrive.

    Parameters
    ----------
    needed
        Leaves out rows that can make no difference any more.
    """

    def __init__(self, needed: Needed = everything) -> None:
        self._needed = needed
        self._rows: Rows = []
        self._marks: list[
            tuple[Position, int]
        ] = []  # where a batch begins, and its highest step; both increase

    def __len__(self) -> int:
        return sum(len(numbers) for _, numbers in self._rows)

    def add(self, rows: pl.DataFrame, numbers: Matrix, before: Position) -> tuple[pl.DataFrame, Matrix]:
        """Hold the rows of a batch; those of them that are needed come back, which must be kept safe."""
        if not len(numbers):
            return rows, numbers
        highest = int(numbers.max())
        if not self._marks or highest > self._marks[-1][1]:
            self._marks.append((before, highest))
        kept = self._needed(rows, numbers)
        self._rows.append(kept)
        while len(self._rows) > 1 and 2 * len(self._rows[-1][1]) >= len(self._rows[-2][1]):
            self._rows[-2:] = [self._needed(*_joined(self._rows[-2:]))]
        return kept

    def pieces(self) -> Rows:
        """Everything that is held, in the order in which it came."""
        return list(self._rows)

    def between(self, first: int, last: int) -> Rows:
        """A copy of the rows of some steps, which stay."""
        found = []
        for rows, numbers in self._rows:
            wanted = (numbers >= first) & (numbers <= last)
            if wanted.any():
                found.append((rows.filter(wanted), numbers[wanted]))
        return found

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


def _joined(pieces: Rows) -> tuple[pl.DataFrame, Matrix]:
    return (
        pl.concat([rows for rows, _ in pieces], rechunk=True),
        np.concatenate([numbers for _, numbers in pieces]),
    )
