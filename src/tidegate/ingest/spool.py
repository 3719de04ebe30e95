"""Sorting by step on disk: rows go into buckets of consecutive steps, and one bucket at a time comes back."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

BUCKETS = 256


class Spool:
    """A temporary folder of rows, readable by its owner only, removed when closed.

    Parameters
    ----------
    first, last
        The public range of steps.
    folder
        Where the temporary folder is made; by default the system's place for temporary files.
    """

    def __init__(self, first: int, last: int, folder: str | Path | None = None) -> None:
        self.first = first
        self.last = last
        self.width = max(1, -(-(last - first + 1) // BUCKETS))
        self.path = Path(tempfile.mkdtemp(prefix="tidegate-", dir=folder))
        self._parts: dict[int, list[Path]] = defaultdict(list)

    def add(self, rows: pl.DataFrame, steps: npt.NDArray[np.int64]) -> None:
        """Put rows into their buckets; rows of other steps must have been left out."""
        if not len(rows):
            return
        bucket = (steps - self.first) // self.width
        order = np.argsort(bucket, kind="stable")
        bucket = bucket[order]
        rows = rows.with_columns(step=pl.Series(steps))[order]
        edges = np.flatnonzero(np.diff(bucket)) + 1
        for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(bucket)], strict=True):
            number = int(bucket[begin])
            path = self.path / f"{number}.{len(self._parts[number])}"
            rows[begin:end].write_ipc(path)
            self._parts[number].append(path)

    def buckets(self) -> range:
        """The first step of each bucket, in order."""
        return range(self.first, self.last + 1, self.width)

    def take(self, start: int) -> tuple[pl.DataFrame, npt.NDArray[np.int64]] | None:
        """The rows of a bucket in the order of their steps, and those; its files are removed."""
        parts = self._parts.pop((start - self.first) // self.width, [])
        if not parts:
            return None
        rows = pl.concat([pl.read_ipc(path.read_bytes()) for path in parts])
        for path in parts:
            path.unlink()
        rows = rows.sort("step", maintain_order=True)
        return rows.drop("step"), rows["step"].to_numpy()

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.path, ignore_errors=True)
