"""Parquet: one file at the end of a finite stream, or a folder of files while a stream is followed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from tidegate.runtime.chunks import Chunk, joined
from tidegate.runtime.errors import SinkError
from tidegate.runtime.sinks.layout import Layout
from tidegate.runtime.sinks.sink import Position, Sink

PART = 1000  # releases in one file of a folder


class ParquetFileSink(Sink):
    """A single file, written as a whole when the input has ended; it appears under its name when complete."""

    def __init__(self, path: str | Path, layout: Layout) -> None:
        self.path = Path(path)
        super().__init__(f"file {self.path.resolve()}")
        self._layout = layout

    def write(self, chunk: Chunk) -> None:
        """Nothing yet: a Parquet file cannot be appended to, and the store keeps the releases."""

    def finish(self, everything: Iterable[Chunk]) -> None:
        """Write all releases of the stream."""
        write_parquet(self.path, joined(everything, 0), self._layout)


class ParquetFolderSink(Sink):
    """A folder of files with a thousand releases each; the last one is replaced until it is full."""

    def __init__(self, path: str | Path, layout: Layout) -> None:
        self.path = Path(path)
        super().__init__(f"folder {self.path.resolve()}")
        self._layout = layout
        self._open: list[Chunk] = []  # of the file that is not full yet

    def resume(self, number: int, position: Position | None) -> int:
        """Begin again with the first release of the last file."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _refused(self.path, error) from None
        return number - number % PART if any(self.path.glob("*.parquet")) else 0

    def write(self, chunk: Chunk) -> None:
        """Write every file that these releases belong to."""
        while len(chunk):
            room = PART - (chunk.first - 1) % PART
            self._open.append(chunk[:room])
            write_parquet(
                self.path / f"part-{(chunk.first - 1) // PART:08d}.parquet",
                joined(self._open, 0),
                self._layout,
            )
            if len(chunk) >= room:
                self._open = []
            chunk = chunk[room:] if len(chunk) > room else chunk[:0]


def write_parquet(path: Path, chunk: Chunk, layout: Layout) -> None:
    """Write a file under another name, make it safe, and give it its name."""
    rows = list(layout.rows(chunk)) if len(chunk) else []
    columns = list(zip(*rows, strict=True)) or [()] * len(layout.header)
    kinds: dict[str, pl.DataType] = {
        "time": pl.String(), "step": pl.Int64(), "revision": pl.Int64(), "column": pl.String(),
        "status": pl.String(), "scale": pl.Float64(), "spent": pl.String(),
    }  # fmt: skip
    frame = pl.DataFrame(
        {
            name: pl.Series(name, list(column), dtype=kinds.get(name, pl.Float64()), strict=False)
            for name, column in zip(layout.header, columns, strict=True)
        }
    ).with_columns(
        pl.col("time")
        .str.to_datetime("%Y-%m-%dT%H:%M:%S%z", time_unit="us")
        .dt.convert_time_zone(layout.zone)
    )
    fresh = path.with_name(f".{path.name}.tmp")
    try:
        frame.write_parquet(fresh)
        descriptor = os.open(fresh, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise _refused(path, error) from None


def _refused(path: Path, error: OSError) -> SinkError:
    return SinkError(
        f"{path} cannot be written ({error.strerror or type(error).__name__}); nothing is lost: what was committed "
        "is sent at the next start."
    )
