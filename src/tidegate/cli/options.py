"""What commands have in common."""

from __future__ import annotations

from typing import Annotated, Any

import typer

# Pretty exceptions print local variables, and a local variable may be a record.
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

Machine = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
