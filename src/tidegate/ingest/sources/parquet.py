"""Parquet, read by slices of rows so that no more than one of them is in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from tidegate.ingest.errors import (
    EmptyInput,
    InputChanged,
    MixedTypes,
    TooManyColumns,
    UnreadableInput,
    attempt,
)
from tidegate.ingest.schema import check_header
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ingest.sources.text import MOST_COLUMNS, _open, too_many_columns

ROWS = 1_000_000
_LARGEST_FOOTER = 64 * 2**20
_MAGIC = b"PAR1"


class ParquetSource(EventSource):
    """A Parquet file. Positions are numbers of rows."""

    typed = True

    def __init__(
        self, path: str | Path, columns: Sequence[str], *, rows: int = ROWS, name: str | None = None
    ) -> None:
        self.path = Path(path)
        super().__init__(name or repr(self.path.name), columns)
        self.rows = rows

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Read slices of rows."""
        wanted = list(self.columns if columns is None else columns)
        self._check_footer()
        refusal = UnreadableInput(f"{self.name} is no intact Parquet file; write it again.")
        schema = attempt(lambda: pl.read_parquet_schema(self.path), refusal)
        if len(schema) > MOST_COLUMNS:
            raise too_many_columns(self.name)
        check_header(list(schema), self.columns, self.name)
        self._check_types(schema)
        total = attempt(lambda: int(pl.scan_parquet(self.path).select(pl.len()).collect().item()), refusal)
        row = (position or {}).get("row", 0)
        if row > total:
            raise InputChanged(
                f"{self.name} has fewer rows than have been read of it; give the input of this position."
            )
        while row < total:
            frame = attempt(
                lambda row=row: pl.scan_parquet(self.path).select(wanted).slice(row, self.rows).collect(),  # type: ignore[misc]
                refusal,
            )
            if not len(frame):
                raise refusal
            yield EventBatch(frame, {"row": row}, {"row": row + len(frame)})
            row += len(frame)

    def _check_types(self, schema: Mapping[str, pl.DataType]) -> None:
        """Refuse integers that are too wide by their type, which is public, and not by what they hold."""
        for name in self.columns:
            if schema[name] in (pl.Int128, pl.UInt128):
                raise MixedTypes(
                    f"the column {name!r} of {self.name} has type {schema[name]} and integers have at most 64 bits; "
                    "write it as Int64, or, where it names units, as text."
                )

    def _check_footer(self) -> None:
        """Refuse what is no Parquet file, or has a footer that would fill the memory, before it is parsed."""
        with _open(self.path, self.name) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise EmptyInput(f"{self.name} is empty; it needs at least a schema.")
            file.seek(max(0, size - 8))
            tail = file.read(8)
        if size < 12 or tail[4:] != _MAGIC:
            raise UnreadableInput(f"{self.name} is truncated or no Parquet file; copy or write it again.")
        if int.from_bytes(tail[:4], "little") > _LARGEST_FOOTER:
            raise TooManyColumns(
                f"{self.name} has a footer of more than {_LARGEST_FOOTER} bytes; keep fewer columns."
            )
