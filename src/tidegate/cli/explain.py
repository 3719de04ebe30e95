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
    """Say in sentences what is published, who is protected when and how well, and what is assumed.

    Reads the configuration and the files that it names (tables, specifications), and from the log where values are
    clipped, if that is learnt; no record.
    """
    import textwrap

    from tidegate.config import read_queries
    from tidegate.report.explanation import explain as sentences
    from tidegate.report.learnt import read_clips

    queries = read_queries(config, follow=True)
    read_clips(queries)
    found = sentences(queries)
    if as_json:
        typer.echo(json.dumps({"sentences": found}, indent=2, ensure_ascii=False))
        return
    for sentence in found:
        typer.echo(textwrap.fill(sentence, 100))
    typer.echo(following("tidegate", "check", config))
