"""``tidegate card``: what was promised, to whom, for how long, and who can check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import Machine

EXAMPLE = "Example: tidegate card tidegate.toml --registry --out deployment.yaml"


def card(
    config: Annotated[Path, typer.Argument(help="The configuration.")],
    registry: Annotated[
        bool,
        typer.Option(
            "--registry", help="YAML for the public registry of deployments, tier 3, instead of JSON."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="With --registry: write it to this file.")] = None,
    as_json: Machine = False,
) -> None:
    """Print the card of a deployment, as JSON or as a record for the public registry.

    Reads the configuration, and from the log how the stream was amended; no record of the data. The registry also asks
    for what only the owner knows: keys of [about], and a refusal names those that are missing.
    """
    from tidegate.config import read_queries
    from tidegate.config.file_conflicts import check_output
    from tidegate.errors import InvalidParameter
    from tidegate.report.card import card_of_all
    from tidegate.report.learnt import read_clips
    from tidegate.report.plain_yaml import to_yaml
    from tidegate.report.registry import recorded_history, registry_record, write_record

    if out is not None and not registry:
        raise InvalidParameter(
            "out", str(out), "used with --registry", "redirect the JSON, or use release --card"
        )
    queries = read_queries(config, follow=True)
    read_clips(queries)
    history = recorded_history(queries)
    if not registry:
        typer.echo(json.dumps(card_of_all(queries.parts, history), indent=2, ensure_ascii=False))
        return
    record = registry_record(queries, history)
    if out is not None:
        check_output("out", out, queries.parts)
        write_record(out, to_yaml(record))
    if as_json:
        typer.echo(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        typer.echo(to_yaml(record) if out is None else f"Wrote {out}.", nl=out is not None)
