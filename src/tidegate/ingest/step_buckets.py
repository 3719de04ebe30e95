"""Sorting by step on disk: rows go into buckets of consecutive steps, and one bucket at a time comes back."""

from __future__ import annotations

import io
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

BUCKETS = 64


class StepBuckets:
    """Rows in a temporary file that has no name, so that nothing of it is left even after a crash.

    Parameters
    ----------
    first, last
        The public range of steps.
    folder
        Where the file is made; by default the system's place for temporary files.
    """

    def __init__(self, first: int, last: int, folder: str | Path | None = None) -> None:
        self.first = first
        self.last = last
        self.width = max(1, -(-(last - first + 1) // BUCKETS))
        self._file = tempfile.TemporaryFile(prefix="tidegate-", dir=folder)  # noqa: SIM115  closed by close()
        self._parts: dict[int, list[tuple[int, int]]] = defaultdict(list)  # bucket → (offset, size)

    def add(self, rows: pl.DataFrame, steps: npt.NDArray[np.int64]) -> None:
        """Put rows into their buckets; rows of other steps must have been left out."""
        if not len(rows):
            return
        bucket = ((steps - self.first) // self.width).astype(np.uint8)
        order = np.argsort(bucket, kind="stable")  # a radix sort, as there are few buckets
        rows = rows.with_columns(step=pl.Series(steps))[order]
        edges = np.flatnonzero(np.diff(bucket[order])) + 1
        for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(bucket)], strict=True):
            part = io.BytesIO()
            rows[begin:end].write_ipc(part)
            self._parts[int(bucket[order[begin]])].append((self._file.tell(), len(part.getbuffer())))
            self._file.write(part.getbuffer())

    def buckets(self) -> range:
        """The first step of each bucket, in order."""
        return range(self.first, self.last + 1, self.width)

    def take(self, start: int) -> tuple[pl.DataFrame, npt.NDArray[np.int64]] | None:
        """The rows of a bucket in the order of their steps, and those; all must have been added."""
        frames = []
        for offset, size in self._parts.pop((start - self.first) // self.width, []):
            self._file.seek(offset)
            frames.append(pl.read_ipc(self._file.read(size)))
        if not frames:
            return None
        rows = pl.concat(frames).sort("step", maintain_order=True)
        return rows.drop("step"), rows["step"].to_numpy()

    def close(self) -> None:
        """Let go of the file, and with that of everything in it."""
        self._file.close()
