"""``tidegate explain``: what a configuration means, in sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following

EXAMPLE = "Example: tidegate explain tidegate.toml"


def explain(
    config: Annotated[Path, typer.Argument(help="The configuration.")],
    as_json: Machine = False,
) -> None:
    """Say in sentences what is published, who is protected when and how well, and what is taken for granted.

    Reads the configuration and the files that it names (tables, specifications); no record, and no ledger.
    """
    import textwrap

    from tidegate.config import read_queries
    from tidegate.runtime.explanation import explain as sentences

    found = sentences(read_queries(config, follow=True))
    if as_json:
        typer.echo(json.dumps({"sentences": found}, indent=2, ensure_ascii=False))
        return
    for sentence in found:
        typer.echo(textwrap.fill(sentence, 100))
    typer.echo(following("tidegate", "check", config))
