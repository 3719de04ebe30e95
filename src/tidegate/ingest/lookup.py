"""Lookups: a public table that puts stations into districts, meters into zones, products into groups."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.columns import MOST, Columns, Indices
from tidegate.ingest.public_table import refused, table_rows


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
    rows = table_rows("lookup", file)
    next(rows, None)
    keys, groups, seen = [], [], set()
    for line, row in rows:
        key, group = (row[0], row[1]) if len(row) > 1 else (row[0], "")
        if not key or not group:
            raise refused(
                "lookup", file, f"a key and a group in every line, and line {line} lacks one", "add it"
            )
        if key in seen:
            raise refused(
                "lookup",
                file,
                f"a table that has each key once, and line {line} repeats {key!r}",
                "drop one of the two",
            )
        seen.add(key)
        keys.append(key)
        groups.append(group)
    if not keys:
        raise refused("lookup", file, "a table with a header and at least one key", "write one a line")
    return Lookup(tuple(keys), tuple(groups))
