"""Public tables: small CSV files beside a configuration."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from tidegate.errors import InvalidParameter

LARGEST_FILE = 256 * 2**20


def table_rows(name: str, file: Path) -> Iterator[tuple[int, list[str]]]:
    r"""The lines of a table that are not empty, its header first, each with its number.

    Parameters
    ----------
    name
        The key that names the file.
    file
        UTF-8, separated by commas, semicolons, tabs or bars.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "districts.csv"
    ...     _ = file.write_text("station;district\n\nA; north\n")
    ...     list(table_rows("lookup", file))
    [(1, ['station', 'district']), (3, ['A', 'north'])]
    """
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise refused(name, file, f"at most {LARGEST_FILE} bytes long", "leave out what is not needed")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise refused(name, file, f"a file that can be read ({reason})", "check the name") from None
    except UnicodeDecodeError:
        raise refused(name, file, "UTF-8 text", "convert it") from None
    head = text.partition("\n")[0]
    separator = max((",", ";", "\t", "|"), key=head.count)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        for row in rows:
            if any(cell.strip() for cell in row):
                yield rows.line_num, [cell.strip() for cell in row]
    except csv.Error:
        raise refused(name, file, "a CSV, and it has an open quote or a broken line", "correct it") from None


def refused(name: str, file: Path, constraint: str, remedy: str) -> InvalidParameter:
    """A refusal of a table."""
    return InvalidParameter(name, file.name, constraint, remedy)
