"""``tidegate ledger``: look at an account, and prove that no window of it was overspent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli import backup
from tidegate.cli.ledger_argument import Target, check_target
from tidegate.cli.options import SETTINGS, Machine
from tidegate.cli.tables import facts_table, gauge, plain_table

SHOW_EXAMPLE = "Example: tidegate ledger show tidegate.ledger"
VERIFY_EXAMPLE = "Example: tidegate ledger verify tidegate.ledger"
EXAMPLE = VERIFY_EXAMPLE

app = typer.Typer(
    help="Look at a ledger, verify it, back it up, put it back or prune it.",
    epilog=EXAMPLE,
    **SETTINGS,
)


app.command("backup", epilog=backup.BACKUP_EXAMPLE)(backup.backup)
app.command("restore", epilog=backup.RESTORE_EXAMPLE)(backup.restore)
app.command("head", epilog=backup.HEAD_EXAMPLE)(backup.head)
app.command("prune", epilog=backup.PRUNE_EXAMPLE)(backup.prune)


@app.command("show", epilog=SHOW_EXAMPLE)
def show(
    ledger: Target,
    rows: Annotated[int, typer.Option(help="How many of the last commits are shown.")] = 10,
    as_json: Machine = False,
) -> None:
    """Show what a ledger is for, what its window has spent and its last charges.

    Also while a stream is running. Nothing is shown that depends on the data otherwise than through releases.
    """
    from tidegate.exact import whole
    from tidegate.pipeline.logs import LogReader
    from tidegate.pipeline.summary import summary

    count = whole("rows", rows, least=0, most=100_000)
    check_target(ledger)
    with LogReader(ledger) as log:
        facts = summary(log, count)
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
            help="A head kept outside: a receipt, a published head, or what `ledger head` printed. A ledger "
            "without that commit is an older copy."
        ),
    ] = None,
    archive: Annotated[
        list[Path] | None,
        typer.Option(help="An archive, or a folder of archives, to compare with the hashes in the ledger."),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Recompute every commit from the first: hashes, order, shares, and the budget of every window.

    Needs nothing but the ledger: no configuration, no lock. Also while a stream is running. Exit code 1 when it does not
    hold, or when it is older than a head that was kept outside.
    """
    from tidegate.cli.progress import stages
    from tidegate.errors import TidegateError
    from tidegate.pipeline.backup import verify_log
    from tidegate.pipeline.log_heads import check_heads, read_head
    from tidegate.pipeline.logs import LogReader
    from tidegate.report.verified import verified

    check_target(ledger)
    heads = [read_head(text) for text in head or ()]
    problem = ""
    with stages(1, quiet=as_json) as begin, LogReader(ledger) as log:
        begin("recomputing all commits")
        found = verify_log(log.rows(), archive or ())
        if found.ok and heads:
            try:
                check_heads(log.rows(), heads, log.shown)
            except TidegateError as error:
                problem = str(error)
    ok = found.ok and not problem
    if as_json:
        facts = {
            "ok": ok,
            "verdict": problem or str(found),
            "commits": found.commits,
            "step": found.step,
            "head": found.head.hex(),
            "heads_compared": len(heads),
            "checked": found.checked,
            "counts": found.counts._asdict(),
            "test_entropy": not found.private,
        }
        typer.echo(json.dumps(facts, indent=2))
    else:
        typer.echo(problem or verified(found))
    if not ok:
        raise typer.Exit(1)


def _print(facts: dict[str, Any]) -> None:
    from fractions import Fraction

    from rich.console import Console

    console = Console(highlight=False, markup=False)
    table = facts_table()
    window = facts["window"]
    steps = f"any {window:,} consecutive steps" if window else "all steps together"
    *earlier, present = facts["budgets"]
    since = f", from step {present['from_step']:,} on" if earlier else ""
    table.add_row("Budget", f"{facts['budget']} for {steps}{since}")
    ends = [each["from_step"] - 1 for each in facts["budgets"][1:]]
    for number, (each, end) in enumerate(zip(earlier, ends, strict=True)):
        words = f"{each['budget']} in steps {each['from_step']:,} to {end:,}"
        table.add_row("" if number else "Earlier", words)
    for name, query in facts["queries"].items():
        share = f", {query['amount']} of every window" if len(facts["queries"]) > 1 else ""
        table.add_row(
            "Query", f"{name or 'the only one'}: {query['mechanism']}{share}, step {query['step']:,}"
        )
    for number, sentence in enumerate(each for each in facts["history"] if each.startswith("Amended")):
        table.add_row("" if number else "History", sentence)
    table.add_row("Commits", f"{facts['commits']:,} up to step {facts['step']:,}")
    if facts["spent_in_last_window"] is not None:
        part = min(float(Fraction(facts["spent_in_last_window"]) / Fraction(facts["limit"])), 1.0)
        table.add_row("Window", gauge(part, f"{facts['spent_in_last_window']} of {facts['limit']} spent"))
    if facts["test_entropy"]:
        table.add_row("Entropy", "of tests: nothing in this log is protected")
    console.print(table)
    if facts["last_charges"]:
        console.print()
        rows = plain_table("commit", "steps", "kind", "spent", "query", left=("kind", "query"))
        for charge in facts["last_charges"]:
            for name, query in charge["queries"].items():
                first, last = query["steps"]
                steps = f"{first:,}" if first == last else f"{first:,}–{last:,}"
                rows.add_row(f"{charge['commit']:,}", steps, charge["kind"], query["spent"], name)
        console.print(rows)
