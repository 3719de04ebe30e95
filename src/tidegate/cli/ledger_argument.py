"""What commands on ledgers have in common."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[str, typer.Argument(help="A ledger's file, or its URL in PostgreSQL.", metavar="LEDGER")]


def check_target(target: str) -> None:
    """Refuse a file that is not there with a sentence of its own."""
    from pathlib import Path

    from tidegate.core.errors import LogMismatch
    from tidegate.core.postgres_log import is_url

    if not is_url(target) and not Path(target).is_file():
        raise LogMismatch(
            f"there is no ledger at {target}; give the file that `tidegate release` has written."
        )
