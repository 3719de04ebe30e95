"""Lookups: a public table that puts stations into districts, meters into zones, products into groups."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.columns import MOST, Columns, Indices

LARGEST_FILE = 256 * 2**20


@dataclass(frozen=True)
class Lookup:
    """A public table: the group of each key.

    Parameters
    ----------
    keys
        What is in the records, each once.
    groups
        The group of each key.

    Privacy
    -------
    The table is public and is not made from the records that are released with it. A key that is not in it is outside
    of all columns, as an unknown category is: dropped, or counted as "other".

    Examples
    --------
    >>> lookup = Lookup(("s1", "s2", "s3"), ("north", "north", "south"))
    >>> lookup.names
    ('north', 'south')
    >>> lookup.indices(pl.Series(["s2", "s3", "s9"]), Columns(("south",), "other")).tolist()
    [1, 0, 1]
    """

    keys: tuple[str, ...] = field(repr=False)
    groups: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.keys or len(self.keys) != len(self.groups):
            raise InvalidParameter("lookup", "…", "a table with a group for each key", "write one a line")
        if len(self.keys) > MOST:
            raise InvalidParameter(
                "lookup", f"{len(self.keys)} keys", f"at most {MOST} keys", "use fewer keys"
            )
        if len(set(self.keys)) != len(self.keys):
            twice = next(key for key in self.keys if self.keys.count(key) > 1)
            raise InvalidParameter("lookup", twice, "a table that has each key once", "drop one of the two")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The groups, in the order in which they first appear."""
        return tuple(dict.fromkeys(self.groups))

    @cached_property
    def _known(self) -> Columns:
        return Columns(self.keys)

    def indices(self, series: pl.Series, columns: Columns) -> Indices:
        """The column of each key's group, −1 for those to be dropped."""
        rest = len(columns.names) if columns.outside == "other" else -1
        place = {name: index for index, name in enumerate(columns.names)}
        of_key = np.array([*(place.get(group, rest) for group in self.groups), rest], dtype=np.int32)
        return of_key[self._known.indices(series)]  # an unknown key is −1: the last entry

    def describe(self) -> dict[str, Any]:
        """Identify the table exactly, as JSON; it may be long, so its digest stands for it."""
        content = json.dumps(sorted(zip(self.keys, self.groups, strict=True)), ensure_ascii=False)
        return {"keys": len(self.keys), "digest": hashlib.sha256(content.encode()).hexdigest()[:32]}


def read_lookup(path: str | Path) -> Lookup:
    r"""Read a table from a CSV with a header, of which the first two columns are keys and groups.

    Parameters
    ----------
    path
        The file: UTF-8, separated by commas, semicolons, tabs or bars.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "districts.csv"
    ...     _ = file.write_text("station,district\nA,north\nB,south\n")
    ...     read_lookup(file).groups
    ('north', 'south')
    """
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise _refused(file, f"at most {LARGEST_FILE} bytes long", "leave out what is not needed")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refused(file, f"a file that can be read ({reason})", "check the name") from None
    except UnicodeDecodeError:
        raise _refused(file, "UTF-8 text", "convert it") from None
    head = text.partition("\n")[0]
    separator = max((",", ";", "\t", "|"), key=head.count)
    keys, groups, seen = [], [], set()
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        next(rows, None)
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            key, group = (row[0].strip(), row[1].strip()) if len(row) > 1 else (row[0].strip(), "")
            if not key or not group:
                raise _refused(
                    file, f"a key and a group in every line, and line {rows.line_num} lacks one", "add it"
                )
            if key in seen:
                raise _refused(
                    file,
                    f"a table that has each key once, and line {rows.line_num} repeats {key!r}",
                    "drop one of the two",
                )
            seen.add(key)
            keys.append(key)
            groups.append(group)
    except csv.Error:
        raise _refused(file, "a CSV, and it has an open quote or a broken line", "correct it") from None
    if not keys:
        raise _refused(file, "a table with a header and at least one key", "write one a line")
    return Lookup(tuple(keys), tuple(groups))


def _refused(file: Path, constraint: str, remedy: str) -> InvalidParameter:
    return InvalidParameter("lookup", file.name, constraint, remedy)
