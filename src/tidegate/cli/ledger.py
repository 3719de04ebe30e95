"""``tidegate ledger``: look at an account, and prove that no window of it was overspent."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import copies
from tidegate.cli.options import SETTINGS, Machine
from tidegate.cli.tables import facts_table, gauge, plain_table
from tidegate.cli.targets import Target, check_target

if TYPE_CHECKING:
    from tidegate.ledger.durable import DurableLedger

SHOW_EXAMPLE = "Example: tidegate ledger show tidegate.ledger"
VERIFY_EXAMPLE = "Example: tidegate ledger verify tidegate.ledger"
EXAMPLE = VERIFY_EXAMPLE

app = typer.Typer(
    help="Look at a ledger, verify it, back it up, put it back or prune it.",
    epilog=EXAMPLE,
    **SETTINGS,
)


app.command("backup", epilog=copies.BACKUP_EXAMPLE)(copies.backup)
app.command("restore", epilog=copies.RESTORE_EXAMPLE)(copies.restore)
app.command("head", epilog=copies.HEAD_EXAMPLE)(copies.head)
app.command("prune", epilog=copies.PRUNE_EXAMPLE)(copies.prune)


@app.command("show", epilog=SHOW_EXAMPLE)
def show(
    ledger: Target,
    rows: Annotated[int, typer.Option(help="How many of the last charges are shown.")] = 10,
    as_json: Machine = False,
) -> None:
    """Show what a ledger is for, what its window has spent and its last charges.

    Also while a stream is running. Nothing is shown that depends on the data otherwise than through releases.
    """
    from tidegate.exact import whole
    from tidegate.runtime.store import open_durable

    count = whole("rows", rows, least=0, most=100_000)
    check_target(ledger)
    with open_durable(ledger, read_only=True) as opened:
        facts = _facts(opened, count)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _print(facts)


@app.command("verify", epilog=VERIFY_EXAMPLE)
def verify(
    ledger: Target,
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="A head kept outside: a receipt, a published account, or what `ledger head` printed. A ledger that "
            "does not have that row has forgotten something."
        ),
    ] = None,
    archive: Annotated[
        list[Path] | None,
        typer.Option(
            help="An archive that the ledger goes on from, or a folder of archives: all of them, to prove all."
        ),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Replay every charge from the first: hashes, order, and the budget of every window.

    Needs nothing but the ledger: no program that wrote it, no policy, no lock. Exit code 1 when it does not hold, or
    when it is older than a head that was kept outside.
    """
    from dataclasses import replace

    from tidegate.cli.progress import stages
    from tidegate.errors import LedgerMismatch
    from tidegate.exact import show as exactly
    from tidegate.runtime.heads import read_head
    from tidegate.runtime.pruning import check_head_in, verify_archives
    from tidegate.runtime.store import open_durable, verify_target

    check_target(ledger)
    heads = [read_head(text) for text in head or ()]
    archives = _files(archive or [])
    with stages(2 if archive else 1, quiet=as_json) as begin:
        begin("replaying all charges")
        verdict = verify_target(ledger)
        if verdict.ok and archive:
            begin("replaying the archives")
            problem = verify_archives(archives, ledger)
            verdict = replace(verdict, ok=not problem, problem=problem, archived=0)
        if verdict.ok and heads:
            try:
                with open_durable(ledger, read_only=True) as opened:
                    for each in heads:
                        check_head_in(opened, archives, each)
            except LedgerMismatch as error:
                verdict = replace(verdict, ok=False, problem=str(error))
    if as_json:
        facts = {
            "ok": verdict.ok,
            "verdict": str(verdict),
            "rows": verdict.rows,
            "steps": verdict.steps,
            "budget": verdict.budget,
            "window": verdict.window,
            "fullest_window": {"spent": exactly(verdict.spent), "steps": list(verdict.place)},
            "head": verdict.head,
            "heads_compared": len(heads),
            "bad_row": verdict.bad_row,
            "rows_in_archives": verdict.archived,
            "test_entropy": verdict.marked,
            "releases": verdict.releases,
            "releases_without_hashes": verdict.unchained,
        }
        typer.echo(json.dumps(facts, indent=2))
    else:
        typer.echo(str(verdict))
    if not verdict.ok:
        raise typer.Exit(1)


def _files(places: list[Path]) -> list[Path]:
    """Archives, and those in folders."""
    found: list[Path] = []
    for place in places:
        found += sorted(place.glob("*.ledger")) if place.is_dir() else [place]
    return found


def _facts(ledger: DurableLedger, count: int) -> dict[str, Any]:
    """Everything that `show` says."""
    from tidegate.errors import TidegateError
    from tidegate.exact import show as exactly
    from tidegate.ledger.promise import described_budget, limit_of, promised, promises_of
    from tidegate.runtime.amend import told_of
    from tidegate.runtime.parts import amendments_of, parts_of
    from tidegate.runtime.store import Store

    last = ledger.connection.execute(
        "SELECT row, kind, first, last, units, scope FROM charges ORDER BY row DESC LIMIT ?", (count,)
    )
    charges = [
        {
            "row": row,
            "kind": kind,
            "steps": [first, end],
            "spent": _spent(ledger, units),
            "scope": scope,
        }
        for row, kind, first, end, units, scope in last
    ]
    promises = promises_of(ledger)
    facts: dict[str, Any] = {
        "policy": {**ledger.policy.describe(), **described_budget(promised(ledger))},
        "budget": str(promised(ledger)),
        "limit": exactly(limit_of(ledger)),
        "promises": [{"from_step": since + 1, "budget": str(budget)} for since, budget in promises],
        "window": ledger.policy.window,
        "units": ledger.units,
        "unit": exactly(ledger.unit),
        "step": ledger.step,
        "rows": ledger.rows,
        "spent_in_last_window": exactly(ledger.spent()),
        "remaining_for_next_step": exactly(ledger.remaining()),
        "test_entropy": ledger.marked,
        "queries": {
            name: {"share": exactly(share), "amount": exactly(ledger.share(name).query.amount)}
            for name, share in ledger.shares.items()
        },
        "last_charges": charges[::-1],
    }
    facts["amendments"] = [asdict(each) for each in amendments_of(ledger)]
    if facts["amendments"]:
        facts["parts"] = [{**asdict(part), "unit": str(part.unit)} for part in parts_of(ledger)]
        facts["in_words"] = told_of(ledger)
        facts["stream"] = None  # each part has releases of its own
        return facts
    try:
        store = Store(ledger)
        described = store.described()
        facts["stream"] = {
            "mechanism": described["mechanism"],
            "steps": store.progress.step,
            "releases": store.progress.number,
        }
    except (TidegateError, KeyError):
        facts["stream"] = None  # a ledger that was used from Python, without the runtime
    return facts


def _spent(ledger: DurableLedger, units: int) -> str:
    """What a row has charged; in units where a query's, which may have been others at that time, are not known."""
    from tidegate.exact import show as exactly

    if ledger.shares:
        return f"{units} units"
    return exactly(units * ledger.unit) if ledger.rule.adds else f"{units} × {float(ledger.unit):.6g}"


def _print(facts: dict[str, Any]) -> None:
    from fractions import Fraction

    from rich.console import Console

    console = Console(highlight=False, markup=False)
    table = facts_table()
    window = facts["window"]
    steps = f"any {window:,} consecutive steps" if window else "all steps together"
    *earlier, present = facts["promises"]
    since = f", from step {present['from_step']:,} on" if earlier else ""
    table.add_row("Promise", f"{facts['budget']} for {steps}{since}")
    ends = [each["from_step"] - 1 for each in facts["promises"][1:]]
    for number, (each, end) in enumerate(zip(earlier, ends, strict=True)):
        words = f"{each['budget']} in steps {each['from_step']:,} to {end:,}"
        table.add_row("" if number else "Earlier", words)
    if facts["stream"]:
        table.add_row("Mechanism", str(facts["stream"]["mechanism"]["mechanism"]))
        table.add_row(
            "Released", f"{facts['stream']['releases']:,} releases of {facts['stream']['steps']:,} steps"
        )
    for name, query in facts["queries"].items():
        table.add_row(
            "Query", f"{name}: {query['amount']} of every window from now on (a share of {query['share']})"
        )
    for number, sentence in enumerate(facts.get("in_words", ())[len(facts["queries"]) :]):
        table.add_row("" if number else "History", sentence)
    table.add_row("Charged", f"{facts['rows']:,} rows up to step {facts['step']:,}")
    part = min(float(Fraction(facts["spent_in_last_window"]) / Fraction(facts["limit"])), 1.0)
    words = f"{facts['spent_in_last_window']} spent, {facts['remaining_for_next_step']} remains"
    table.add_row("Window", gauge(part, f"{words} for new charges to the next step"))
    if facts["test_entropy"]:
        table.add_row("Entropy", "of tests: nothing of this run is private")
    console.print(table)
    if facts["last_charges"]:
        console.print()
        rows = plain_table("row", "steps", "kind", "spent", "scope", left=("kind", "scope"))
        for charge in facts["last_charges"]:
            first, last = charge["steps"]
            steps = f"{first:,}" if first == last else f"{first:,}–{last:,}"
            rows.add_row(f"{charge['row']:,}", steps, charge["kind"], charge["spent"], charge["scope"])
        console.print(rows)
