"""``tidegate tune``: parameters chosen from the data, for a price that is stated and charged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import release_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tidegate.config.tuning import Shape
    from tidegate.mechanisms import Uniform
    from tidegate.policy import Policy

EXAMPLE = "Example: tidegate tune tidegate.toml --epsilon 1/10 --write"


def tune(
    config: Annotated[
        Path, typer.Argument(help="The configuration, with one or several queries of events in a file.")
    ],
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
    as_json: Machine = False,
) -> None:
    """Choose most, clip, edges and level from the data under differential privacy, and write the lines.

    Every unit is counted once in a histogram of each parameter of each query, with noise; the choice is made from the
    noisy histograms.
    The whole input is looked at, so each unit loses ε once, whatever the window of the stream is: in every window ε adds
    to what the stream costs. The charge is committed to a log of its own, beside the configuration, before anything is
    shown. Asked again with the same ε and largest value, the command chooses from what was released then, which is free;
    a second look at the data is refused. `tidegate preview` chooses nothing and is free.
    """
    from tidegate.config.queries import parse_queries, read_queries
    from tidegate.config.tuning import check_writable, choose_all, facts, log_of, shapes
    from tidegate.errors import InvalidParameter, TidegateError
    from tidegate.exact import show

    if not 0.5 <= keep < 1:
        raise InvalidParameter("keep", keep, "at least 0.5 and below 1", "write for example --keep 0.95")
    if not 0 < largest < 1e15:
        raise InvalidParameter(
            "largest", largest, "above 0 and below 1e15", "write for example --largest 500"
        )
    settings = read_queries(config)
    log, parts = log_of(settings.first), shapes(settings, largest)
    if write:
        check_writable(parts)  # before anything is charged
    mechanism, released, again = measured(parts, epsilon, largest)
    tuned = choose_all(parts, released, mechanism, keep)
    if write:
        try:
            changed = tuned.written_into(config.read_text(encoding="utf-8"))
            parse_queries(changed, config)  # refuses what `release` would refuse
            config.write_text(changed, encoding="utf-8")
        except (TidegateError, OSError):
            typer.echo(tuned.text(), err=as_json)  # which were paid for
            raise
    if as_json:
        typer.echo(
            json.dumps(
                {
                    **facts(tuned),
                    "together": together(settings.policy, tuned.epsilon),
                    "again": again,
                    "written": write,
                    "ledger": str(log),
                },
                indent=2,
                ensure_ascii=False,
            )
        )
        return
    typer.echo(
        tuned.brief() if write and settings.listed else tuned.text()
    )  # what is in the file is not to be pasted
    price = f"about {tuned.units:,.0f} units, each of which lost ε = {show(tuned.epsilon)} by it"
    if again:
        typer.echo(f"\nChosen from what was released earlier of {price}; nothing more was spent.")
    else:
        typer.echo(f"\nChosen from {price}; the log is {log}.")
        typer.echo(f"In one window a unit loses at most {together(settings.policy, tuned.epsilon)}.")
    if write:
        typer.echo(f"The lines are in {config}.\n{release_of(config)}")
    else:
        typer.echo(f"Put them into {config}, or run the same command with --write, which costs nothing more.")


def together(policy: Policy, epsilon: Fraction) -> str:
    """What tuning and stream cost in one window."""
    from tidegate.exact import show
    from tidegate.report.wording import budget_in_words

    if policy.epsilon is None:
        return f"{budget_in_words(policy.budget)} by the stream and ε = {show(epsilon)} by tuning"
    whole = budget_in_words(replace(policy, epsilon=Fraction(policy.epsilon) + epsilon).budget)
    return f"{whole} by stream and tuning together"


def measured(
    parts: Sequence[Shape], epsilon: str, largest: float
) -> tuple[Uniform, npt.NDArray[np.float64], bool]:
    """The noisy histograms: of the data for a price, or as they were released before, for nothing."""
    from tidegate.config.tuning import cell_names, log_of, tuning
    from tidegate.core.errors import LogMismatch
    from tidegate.core.session import Session
    from tidegate.errors import InvalidInput
    from tidegate.pipeline.logs import refuse_earlier

    config = parts[0].config
    path, names = log_of(config), cell_names(parts)
    histograms = sum(len(each.histograms) for each in parts)  # a unit changes one cell of each
    mechanism = tuning(len(names), epsilon, histograms, config.policy.adjacency)
    refuse_earlier(path)
    counted = (
        None if path.exists() else read_cells(parts, largest)
    )  # what cannot be read leaves no log behind
    try:
        session = Session(mechanism, path, about={"": names})
    except LogMismatch:
        raise InvalidInput(
            f"these data were tuned on before, as {path} says, with another input, ε, largest value, unit or "
            "aggregate, and every look at them costs each unit again; give what was given then, which is free, or tune "
            "on other people's data."
        ) from None
    with session:
        again = session.step > 0
        if not again:
            session.push(read_cells(parts, largest) if counted is None else counted)
        for releases in session.releases():
            return mechanism, releases.values[0], again
    raise InvalidInput(
        f"the budget of the tuning is spent, as {path} says, and nothing was released, because it failed after noise "
        "was drawn; choose the bounds from what is publicly known."
    )


def read_cells(parts: Sequence[Shape], largest: float) -> npt.NDArray[np.int64]:
    """The cells of all histograms, which are no release."""
    import numpy as np

    from tidegate.config.tuning import read_traits

    looked = [each.config for each in parts if each.histograms]
    return np.concatenate([trait.cells() for each in looked for trait in read_traits(each, largest)])
