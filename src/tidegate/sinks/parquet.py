"""Parquet: one file at the end of a finite stream, or a folder of files while a stream is followed."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from tidegate.sinks.chunks import Chunk, joined
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import replacing
from tidegate.sinks.layout import Layout
from tidegate.sinks.sink import FileSink, Position, not_written

PART = 1000  # releases in one file of a folder
_KINDS = {"text": pl.String(), "whole": pl.Int64(), "number": pl.Float64()}


class ParquetFileSink(FileSink):
    """A single file, written as a whole when the input has ended; it appears under its name when complete."""

    whole = "name a folder in [sink], to which files are added"

    def __init__(self, path: str | Path, layout: Layout) -> None:
        super().__init__(path)
        self._layout = layout
        self._committed: list[Chunk] | None = (
            None  # what was released before this start, until it was compared
        )

    def refuse_occupied(self) -> None:
        """Refuse a file that is there before this stream has released anything."""
        if self.occupied():
            raise _foreign(self.path)

    def resume(self, number: int, position: Position | None) -> int:
        """Ask for everything, to compare the file with it before anything is charged."""
        self._committed = []
        return 0

    def write(self, chunk: Chunk) -> None:
        """Nothing yet: a Parquet file cannot be appended to, and the store keeps the releases."""
        if self._committed is not None and self.path.exists():
            self._committed.append(chunk)

    def settled(self) -> None:
        """Refuse a file that holds other releases than this stream's, or more."""
        chunks, self._committed = self._committed, None
        if chunks:
            frame = frame_of(joined(chunks, 0), self._layout)
            if _agreeing(frame, self.path) > frame.height:
                raise _foreign(self.path)

    def finish(self, everything: Iterable[Chunk]) -> None:
        """Write all releases of the stream."""
        if write_parquet(self.path, joined(everything, 0), self._layout):
            raise _foreign(self.path)


class ParquetFolderSink(FileSink):
    """A folder of files with a thousand releases each; the last one is replaced until it is full."""

    def __init__(self, path: str | Path, layout: Layout) -> None:
        super().__init__(path, "folder")
        self._layout = layout
        self._open: list[Chunk] = []  # of the file that is not full yet
        self._last = ""  # the name of the last file
        self._more = 0  # rows of that file that were not handed over yet, as after a crash
        self._own = ""  # the name of the file that this process has written last

    def resume(self, number: int, position: Position | None) -> int:
        """Begin again with the first release of the last file."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_written(error) from None
        there = self._files()
        self._last = _part(number) if number else ""
        # a file that is gone is written again, and those that are there are found to be the same
        whole = all(_part(last) in there for last in range(PART, number + 1, PART))
        return number - number % PART if whole and there else 0

    def refuse_occupied(self) -> None:
        """Refuse a folder that has files before this stream has released anything."""
        if self._files():
            raise _foreign(self.path)

    def _files(self) -> set[str]:
        return {path.name for path in self.path.glob("part-*.parquet")}

    def settled(self) -> None:
        """Refuse a folder that holds more than was ever released."""
        if self._more or any(name > self._last for name in self._files()):
            raise _foreign(self.path)

    def write(self, chunk: Chunk) -> None:
        """Write every file that these releases belong to."""
        while len(chunk):
            room = PART - (chunk.first - 1) % PART
            self._open.append(chunk[:room])
            name = _part(chunk.first)
            self._more = write_parquet(
                self.path / name, joined(self._open, 0), self._layout, ours=name == self._own
            )
            self._own, self._last = "" if self._more else name, max(self._last, name)
            if len(chunk) >= room:
                self._open = []
            chunk = chunk[room:] if len(chunk) > room else chunk[:0]


def _part(number: int) -> str:
    """The name of the file that a release is in."""
    return f"part-{(number - 1) // PART:08d}.parquet"


def write_parquet(path: Path, chunk: Chunk, layout: Layout, *, ours: bool = False) -> int:
    """Write a file under another name, make it safe, and give it its name, unless it has all of these rows.

    Parameters
    ----------
    path, chunk, layout
        The file, and what goes into it.
    ours
        Whether this process has written the file that is there, so that it need not be compared.

    Returns
    -------
    int
        How many more rows the file has.

    Raises
    ------
    SinkError
        When it cannot be written, or when a file of that name holds other rows.
    """
    frame = frame_of(chunk, layout)
    try:
        if not ours and path.exists():
            before = _agreeing(frame, path)
            if before >= frame.height:
                return before - frame.height
        with replacing(path) as file:
            frame.write_parquet(file)
        return 0
    except (OSError, pl.exceptions.PolarsError) as error:
        raise not_written(path, error) from None


def parquet_bytes(chunk: Chunk, layout: Layout) -> bytes:
    """A whole Parquet file."""
    buffer = io.BytesIO()
    frame_of(chunk, layout).write_parquet(buffer)
    return buffer.getvalue()


def frame_of(chunk: Chunk, layout: Layout) -> pl.DataFrame:
    """Releases as a table with types; what a column holds goes by its place, since labels may have any name."""
    rows = list(layout.rows(chunk)) if len(chunk) else []
    columns = list(zip(*rows, strict=True)) or [()] * len(layout.header)
    return pl.DataFrame(
        [
            pl.Series(name, list(column), dtype=_KINDS[kind], strict=False)
            for name, kind, column in zip(layout.header, layout.kinds, columns, strict=True)
        ]
    ).with_columns(
        pl.col("time")
        .str.to_datetime("%Y-%m-%dT%H:%M:%S%z", time_unit="us")
        .dt.convert_time_zone(layout.zone)
    )


def _agreeing(frame: pl.DataFrame, path: Path) -> int:
    """How many rows a file has that begins as a table does, or ends earlier; any other file is refused."""
    try:
        before = pl.read_parquet(path, hive_partitioning=False, glob=False)
    except pl.exceptions.PolarsError:
        raise _foreign(path) from None
    common = min(before.height, frame.height)
    if not set(before.columns) <= set(frame.columns) or not frame.select(before.columns).head(common).equals(
        before.head(common)
    ):
        raise _foreign(path)
    return before.height


def _foreign(path: Path) -> SinkError:
    return SinkError(
        f"{path} holds something else than this stream has released, and what was published is never overwritten; put "
        "back the ledger that it was released from if that was lost or is an older copy, or name another location in "
        "[sink], or begin a new stream with --new-stream, whose budget adds to the one that was spent on it."
    )
