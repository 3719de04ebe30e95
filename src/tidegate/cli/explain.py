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
    refusal: Annotated[
        bool,
        typer.Option(
            "--refusal",
            help="What the last window of each query has spent, by step, and when a whole budget fits again.",
        ),
    ] = False,
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
    if refusal:
        _refusals(queries.ledger, as_json)
        return
    read_clips(queries)
    found = sentences(queries)
    if as_json:
        typer.echo(json.dumps({"sentences": found}, indent=2, ensure_ascii=False))
        return
    for sentence in found:
        typer.echo(textwrap.fill(sentence, 100))
    typer.echo(following("tidegate", "check", config))


def _refusals(ledger: str, as_json: bool) -> None:
    """What stands against a charge of a whole budget at the next step of each query."""
    from tidegate.pipeline.logs import LogReader
    from tidegate.pipeline.refusal_details import explain_refusal

    with LogReader(ledger) as log:
        _, book = log.books()[-1]
        found = [explain_refusal(log, scope.name) for scope in book.alive]
    if as_json:
        facts = [
            {
                "query": each.query,
                "step": each.step,
                "first": each.first,
                "asked": each.asked,
                "spent": each.spent,
                "limit": each.limit,
                "fits": each.fits,
                "charges": [
                    {"first": loss.first, "last": loss.last, "units": loss.units, "kind": loss.kind}
                    for loss in each.charges
                ],
            }
            for each in found
        ]
        typer.echo(json.dumps({"refusals": facts}, indent=2, ensure_ascii=False))
        return
    typer.echo("\n".join(map(str, found)))
