"""``tidegate audit``: try to refute a privacy claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import bar

if TYPE_CHECKING:
    from tidegate.audit import Finding

EXAMPLE = (
    'Example: tidegate audit BudgetAbsorption --policy "w-event epsilon=3 window=2" --set noise=laplace '
    "--save verdict.json"
)


def audit(
    mechanism: Annotated[
        str,
        typer.Argument(help="A mechanism by name, or module:Class or module:function for your own."),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            help='What is claimed: "w-event epsilon=1 window=3", "event epsilon=1", "event rho=0.5", …'
        ),
    ] = "event epsilon=1",
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the mechanism: name=value. Repeat it for more."),
    ] = None,
    columns: Annotated[int, typer.Option(help="Columns of the streams.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="Steps of the streams; by default about two windows.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="About how long to search.")] = 0.5,
    error: Annotated[float, typer.Option(help="The chance that an accusation is false, at most.")] = 1e-6,
    save: Annotated[
        Path | None, typer.Option(help="Write the verdict here, as JSON that can be replayed.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Repeat the proof of a saved verdict on fresh transcripts.")
    ] = None,
    as_json: Machine = False,
) -> None:
    """Search for a pair of streams and an event that refute a privacy claim.

    Pairs of neighbouring streams are built from the policy. The account is replayed, and events are learnt and then
    proved on fresh transcripts. Where nothing is found, it says how small a mistake it would have found, and what to try
    next. Ends with exit code 1 if the claim was refuted, or if the mechanism crashes, hangs or
    changes the shape of what it releases.
    """
    from tidegate.audit import spelling
    from tidegate.audit.auditor import audit as run_audit
    from tidegate.audit.verdicts import CLEAN, Finding
    from tidegate.errors import InvalidParameter
    from tidegate.sinks.file_writing import check_earlier

    if not mechanism and replay is None:
        raise InvalidParameter("mechanism", mechanism, "given, or else --replay", "name one of the two")
    if save is not None:
        check_earlier("save", save, "verdict", b'{\n "version"')
    if not 0 < minutes <= 1440:
        raise InvalidParameter(
            "minutes", minutes, "above 0 and at most a day", "write for example --minutes 0.5"
        )
    with bar(quiet=as_json) as show:
        if replay is not None:
            saved = Finding.load(replay)
            show("proving on fresh transcripts", 0.3)
            if not mechanism:
                subject = spelling.from_verdict(saved.subject)
            else:
                subject = spelling.read_subject(mechanism, policy, parameters or [], columns)
                if getattr(subject, "claimed", subject.policy).describe() != saved.policy:
                    raise InvalidParameter(
                        "policy", policy, "that of the verdict", "give it as it was given then"
                    )
            verdict = saved.replay(subject)
        else:
            options = parameters or []
            subject = spelling.read_subject(mechanism, policy, options, columns)
            verdict = run_audit(subject, seconds=60 * minutes, error=error, steps=steps, progress=show)
            verdict.subject = spelling.spelt(mechanism, policy, options, columns)
    if save is not None:
        verdict.save(save)
    if as_json:
        typer.echo(json.dumps(verdict.describe(), ensure_ascii=False, indent=1))
    else:
        show_verdict(verdict)
    if verdict.outcome != CLEAN:
        raise typer.Exit(1)


def show_verdict(verdict: Finding) -> None:
    """The verdict for people."""
    typer.echo(str(verdict))
    for line in verdict.evidence():
        typer.echo(f"  {line}")
    words = f"  {verdict.pairs_tried} pairs, {verdict.transcripts:,} transcripts, {verdict.seconds:.1f} s"
    typer.echo(words if verdict.pairs_tried else f"  {verdict.seconds:.1f} s")
    for line in verdict.advice():
        typer.echo(f"  next: {line}")
