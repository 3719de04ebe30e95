"""``tidegate tune``: parameters chosen from the data, for a price that is stated and charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: tidegate tune tidegate.toml --epsilon 1/10 --write"


def tune(
    config: Annotated[Path, typer.Argument(help="The configuration, of one query of events in a file.")],
    epsilon: Annotated[
        str, typer.Option(help="What the choice may cost each unit, exact; on top of what the stream costs.")
    ] = "1/10",
    keep: Annotated[
        float, typer.Option(help="The part of units that the bounds should leave as they are.")
    ] = 0.95,
    largest: Annotated[
        float, typer.Option(help="The largest value that is thought of; public, for clip and edges.")
    ] = 1e6,
    write: Annotated[bool, typer.Option("--write", help="Put the lines into the configuration.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Choose most, clip, edges and level from the data under differential privacy, and write the lines.

    Every unit is counted once in a histogram of each parameter, with noise; the choice is made from the noisy histograms.
    The whole input is looked at, so each unit loses ε once, whatever the window of the stream is. The account is kept in
    a ledger beside the configuration, and a second look is refused. `tidegate preview` chooses nothing and is free.
    """
    import numpy as np

    import tidegate as tg
    from tidegate.config import parse_config, read_config
    from tidegate.config.tuning import choose, facts, ledger_of, read_traits, tuning
    from tidegate.errors import InvalidInput, InvalidParameter

    if not 0.5 <= keep < 1:
        raise InvalidParameter("keep", keep, "at least 0.5 and below 1", "write for example --keep 0.95")
    if not 0 < largest < 1e15:
        raise InvalidParameter(
            "largest", largest, "above 0 and below 1e15", "write for example --largest 500"
        )
    settings = read_config(config)
    account = ledger_of(settings)
    if account.exists():
        raise InvalidInput(
            f"these data were tuned on before, as {account} says, and every look at them costs each unit again; write "
            "the lines of the first time, or tune on other people's data."
        )
    found = read_traits(settings, largest)
    row = np.concatenate([trait.cells() for trait in found])
    mechanism = tuning(len(row), epsilon, len(found), settings.policy.adjacency)
    with tg.open(mechanism, account) as run:
        released = run.push(row).values
    tuned = choose(settings, found, released, mechanism, keep)
    if write:
        text = config.read_text(encoding="utf-8")
        changed = tuned.written_into(text)
        parse_config(changed, config)  # refuses what `release` would refuse
        config.write_text(changed, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({**facts(tuned), "written": write, "ledger": str(account)}, indent=2))
        return
    typer.echo(tuned.text())
    typer.echo(
        f"\nChosen from about {tuned.units:,.0f} units, each of which lost ε = {tuned.epsilon} by it, beside what the "
        f"stream costs; the account is in {account}."
    )
    typer.echo(f"The lines are in {config}." if write else f"Put them into {config}, or run it with --write.")
