"""``tidegate amend``: a running stream takes up what its configuration says now, from its next step on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import release_of

EXAMPLE = "Example: tidegate amend tidegate.toml"


def amend(
    config: Annotated[Path, typer.Argument(help="The changed configuration of a stream that was begun.")],
    as_json: Machine = False,
) -> None:
    """Let a stream be what its configuration says now: other queries, columns, mechanisms, shares or budget.

    From the next step on, on the same account: what was charged stays in the windows, and a window that straddles the
    change holds the smaller of the promises. Queries that stay go on; one that changes begins anew, with an output of its
    own, and may be silent while windows hold too much from before. The clock, the window and the unit stay.
    """
    from tidegate.config import read_queries
    from tidegate.runtime.amend import amend as amend_stream

    done = amend_stream(read_queries(config, follow=True))
    if as_json:
        typer.echo(json.dumps({"config": str(config), **asdict(done)}, indent=2, ensure_ascii=False))
        return
    typer.echo(f"Amended, in force from step {done.step:,} on.")
    for change in done.changes:
        words = f"  {change.name} {change.change}"
        if change.output:
            words += f", in {change.output}"
        if change.silent_until:
            words += f"; it may be silent up to step {change.silent_until:,}"
        typer.echo(words + ".")
    typer.echo(release_of(config))
