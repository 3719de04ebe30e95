"""Tables that commands read and show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table
    from rich.text import Text

GAUGE = 30  # signs


def read_table(file: Path, remedy: str, separator: str = ",") -> pl.DataFrame:
    """A CSV or Parquet file, whatever its rows are."""
    import polars as pl

    from tidegate.errors import InvalidInput

    try:
        if file.suffix == ".parquet":
            return pl.read_parquet(file)
        return pl.read_csv(file, infer_schema_length=None, separator=separator)
    except Exception:  # polars quotes the file's contents
        raise InvalidInput(f"{file} cannot be read as CSV or Parquet; {remedy}.") from None


def facts_table() -> Table:
    """Facts, each behind its name."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")  # a long path is wrapped, never shortened
    return table


def plain_table(*headings: str, left: tuple[str, ...] = ()) -> Table:
    """Rows without lines between them; columns stand at the right, but for those that are named."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def gauge(part: float, words: str) -> Text:
    """How full something is, as a bar with words behind it."""
    from rich.text import Text

    filled = round(GAUGE * part)
    shown = Text("█" * filled, style="cyan")
    shown.append("░" * (GAUGE - filled), style="dim")
    shown.append(f"  {words}")
    return shown
