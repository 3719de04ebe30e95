"""``tidegate amend``: apply configuration changes to a running stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following, release_of

EXAMPLE = "Example: tidegate amend tidegate.toml --dry-run"


def amend(
    config: Annotated[Path, typer.Argument(help="The changed configuration of a stream that was begun.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be silent until when; write nothing.")
    ] = False,
    as_json: Machine = False,
) -> None:
    """Apply configuration changes to a stream: other queries, columns, mechanisms, shares or budget.

    Queries that did not change continue. One that changed ends and begins again, with an output of its own, and is silent
    while windows hold what it has read before. A window that spans the change is limited to the smaller of the two
    budgets. The clock, the window and the unit cannot change. Stop the stream before. Records of the open steps that a
    broker has delivered are dropped where a query changes.
    """
    from tidegate.config import read_queries
    from tidegate.pipeline.amend import amend as amend_stream
    from tidegate.pipeline.amend import plan

    queries = read_queries(config, follow=True)
    made = plan(queries) if dry_run else amend_stream(queries)
    facts = _facts(queries, made)
    if as_json:
        typer.echo(
            json.dumps({"config": str(config), "dry_run": dry_run, **facts}, indent=2, ensure_ascii=False)
        )
        return
    changed = [each for each in facts["queries"] if each["change"] != "continues"]
    if not changed:
        typer.echo("Nothing to amend: the stream is what its configuration says.")
    elif dry_run:
        typer.echo(f"Nothing was written. The amendment would take effect after step {facts['step']:,}:")
    else:
        typer.echo(f"Amended after step {facts['step']:,}:")
    for each in facts["queries"] if changed else ():
        typer.echo(f"  {each['name']} {each['in_words']}")
    if changed and dry_run:
        typer.echo(following("tidegate", "amend", config))
    else:
        typer.echo(release_of(config))


def _facts(queries: Any, made: Any) -> dict[str, Any]:
    """What becomes of each query."""
    from tidegate.errors import without_secrets
    from tidegate.pipeline.outputs import placed

    first_steps = {**made.first, **made.begun}
    begins = {part.name: first_steps[part.name] - 1 for part in queries.parts}
    found = []
    for part in queries.parts:
        first = made.begun.get(part.name)
        output = without_secrets(placed(part, begins).sink.location)
        if first is None:
            found.append(
                {"name": part.name, "change": "continues", "output": output, "in_words": "continues."}
            )
            continue
        silent = first - 1 if first > made.steps[part.name] + 1 else None
        words = f"begins at step {first:,}, in {output}"
        if silent is not None:
            words += f"; steps {made.steps[part.name] + 1:,} to {silent:,} are silent"
        found.append(
            {
                "name": part.name,
                "change": "begins",
                "first_step": first,
                "silent_until": silent,
                "output": output,
                "in_words": words + ".",
            }
        )
    found += [{"name": name, "change": "ends", "in_words": "ends."} for name in made.ended]
    return {"step": made.step, "queries": found}
