"""``tidegate release``: from a configuration to private releases, until the input ends or for ever."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following, release_of
from tidegate.cli.tables import facts_table

if TYPE_CHECKING:
    from tidegate.config import Queries
    from tidegate.ingest import Intake
    from tidegate.pipeline import Pipeline, Released

RECENT = 20_000  # releases by which accuracy is judged
MOST_FILES, MOST_QUERIES = 6, 4  # that a summary names
GRACE = 3  # seconds without a broker that are not worth a word
UNKNOWN_COST = "what the earlier releases have cost adds to this stream's budget"
NOTHING_COUNTED = "No record fell into these steps: check start, zone and columns."
EXAMPLE = "Example: tidegate release tidegate.toml --report report.html"


def release(
    config: Annotated[Path, typer.Argument(help="The configuration, as `tidegate init` writes it.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue as events arrive; steps close by the public clock.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            help="now: release the steps that the clock has closed, and end; for cron. The input is a file or a folder "
            "that grows."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a self-contained HTML report here when it is done.")
    ] = None,
    card: Annotated[
        Path | None, typer.Option(help="Write the card of the deployment here, as JSON for registries.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Write the newest numbers of all queries here, as one CSV: released, adjusted where they contradict "
            "each other, and whether they are withheld."
        ),
    ] = None,
    compare_truth: Annotated[
        bool,
        typer.Option("--compare-truth", help="Show true errors in the report, which then must stay inside."),
    ] = False,
    new_stream: Annotated[
        bool,
        typer.Option(
            "--new-stream",
            help="Begin a second stream where the sink has releases of an earlier one: a second budget is spent.",
        ),
    ] = False,
    backfill: Annotated[
        bool,
        typer.Option("--backfill", help="Close more steps at once than catch_up in [steps] allows."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the guarantee, all assumptions and every file.")
    ] = False,
    as_json: Machine = False,
) -> None:
    """Release the stream of a configuration, and resume where an earlier start stopped.

    Every block of steps is committed to the ledger, with its charges, the mechanism's state and the position in the
    source, before anything of it reaches the sink. Start the same command again after a crash, a full disk or a reboot:
    no step is lost, and a committed step is sent again byte for byte.
    """
    from tidegate.config import read_queries
    from tidegate.errors import InvalidParameter

    if until not in (None, "now"):
        raise InvalidParameter("until", until, '"now"', "write --until now")
    queries = read_queries(config, follow=follow or until is not None)
    settings = queries.first  # source and clock are those of all
    live = (
        follow
        or until is not None
        or settings.source.follow
        or settings.source.location.startswith(("mqtt:", "mqtts:"))
    )
    if until is not None and settings.source.location.startswith(("-", "mqtt:", "mqtts:", "serve:")):
        raise InvalidParameter(
            "until",
            until,
            "used with a file or a folder, where it is known what has arrived",
            "follow the stream without it",
        )
    if compare_truth and (live or settings.source.location == "-"):
        raise InvalidParameter(
            "compare-truth",
            True,
            "used with a finite input that can be read again",
            "drop it, or release a file",
        )
    if compare_truth and report is None:
        raise InvalidParameter("compare-truth", True, "used with --report", "write --report report.html")
    _check_outputs(queries, report, card, table)
    begun = time.perf_counter()
    done = run_release(
        queries,
        live=live,
        quiet=as_json,
        report=report,
        table=table,
        compare_truth=compare_truth,
        new_stream=new_stream,
        backfill=backfill,
        once=until is not None,
    )
    if card is not None:
        from tidegate.report.card import write_card

        write_card(card, queries.parts, done["history"])
        done["card"] = str(card)
    done["seconds"] = round(time.perf_counter() - begun, 3)
    # what is said must not mix with what is released
    aside = settings.sink.location == "-"
    if as_json:
        typer.echo(json.dumps(done, indent=2), err=aside)
    else:
        show(done, aside=aside, inside=compare_truth, verbose=verbose)
        if report is None and done["steps"]:
            typer.echo(release_of(config, *(["--until", "now"] if until else [])), err=aside)
        elif "://" not in done["ledger_file"]:
            typer.echo(following("tidegate", "ledger", "verify", done["ledger_file"]), err=aside)
    if not done["ledger_ok"]:
        raise typer.Exit(1)


def _check_outputs(queries: Queries, report: Path | None, card: Path | None, table: Path | None) -> None:
    """Refuse reports, cards and tables that would replace anything else, before anything is charged."""
    from tidegate.config.file_conflicts import check_output
    from tidegate.errors import InvalidParameter
    from tidegate.report.card import check_card
    from tidegate.report.numbers import check_table
    from tidegate.sinks.file_writing import check_report

    outputs = (("report", report, check_report), ("card", card, check_card), ("table", table, check_table))
    seen: dict[Path, str] = {}
    for name, path, check in outputs:
        if path is None:
            continue
        if (other := seen.setdefault(path.resolve(), name)) != name:
            raise InvalidParameter(name, str(path), f"another file than the {other}", "name another")
        check_output(name, path, queries.parts)
        check(path)


def run_release(
    queries: Queries,
    *,
    live: bool,
    quiet: bool,
    report: Path | None = None,
    table: Path | None = None,
    compare_truth: bool = False,
    new_stream: bool = False,
    backfill: bool = False,
    once: bool = False,
) -> dict[str, Any]:
    """Drive the stream to the end of its input, or until it is interrupted; returns what there is to say."""
    from tidegate.cli.live_view import observing
    from tidegate.ingest import PublicClock
    from tidegate.pipeline import open_pipeline
    from tidegate.pipeline.status import Heartbeat, StatusReporter
    from tidegate.system import system_notice

    with (
        observing(queries, live=live, quiet=quiet) as observer,
        observer.of(StatusReporter(queries.first, live=live)) as reporter,
    ):
        observer.stage("opening the ledger")
        with open_pipeline(
            queries, follow=live, observers=observer.each, new_stream=new_stream, backfill=backfill
        ) as pipeline:
            before = pipeline.step
            if system_notice():
                observer.say(system_notice())
            if new_stream:
                observer.say(f"a new stream begins: {pipeline.together or UNKNOWN_COST}.")
            observer.stage(
                "waiting for the first step to close" if live else "reading and checking the input"
            )
            observer.begin(pipeline)
            heart = Heartbeat(PublicClock())
            intake = queries.open(pipeline.position, follow=live, once=once, clock=heart)
            intake.source.tell = observer.say
            reporter.watch(heart, intake.source)
            try:
                with stopped_by_signals(intake, live=live) as stopped, told_of_waiting(intake, observer):
                    pipeline.drive(intake)
                    reporter.closing()
                    observer.stage("finishing")
                    pipeline.finish(stopped)
            finally:
                intake.close()
            observer.stage("checking the ledger")
            done = _summary(pipeline, before, *pipeline.check())
            released = [pipeline.released[part.name] for part in queries.parts]
            if report is not None:
                observer.stage("writing the report")
                from tidegate.report.report import write_report

                verification = pipeline.verify()  # a report is about all steps
                write_report(report, released, verification, compare_truth=compare_truth)
                done |= {"ledger": str(verification), "ledger_ok": verification.ok, "report": str(report)}
            if table is not None:
                observer.stage("writing the table")
                from tidegate.report.numbers import write_table
                from tidegate.report.report import released_numbers

                write_table(table, released_numbers(released))
                done["table"] = str(table)
    if not (live or quiet or before or intake.counted) and done["steps"] and sys.stderr.isatty():
        # a function of raw records: for the owner's eyes, and in no file, status or exit code
        typer.echo(NOTHING_COUNTED, err=True)
    return done


@contextmanager
def stopped_by_signals(intake: Intake, *, live: bool) -> Iterator[threading.Event]:
    """While following, the first interruption ends the stream in order; a second one, at once."""
    stopped = threading.Event()
    if not live:
        yield stopped
        return
    before: dict[int, Any] = {}
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)

    def stop(number: int, _frame: object) -> None:
        intake.stop()
        stopped.set()
        signal.signal(number, before[number])

    for number in numbers:
        before[number] = signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def told_of_waiting(intake: Intake, observer: Any) -> Iterator[None]:
    """Say so, once, when the source's broker does not answer."""
    source = intake.source
    if not source.status:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        since, told = 0, False
        while not ended.wait(1.0):
            silent = source.status.startswith("waiting")
            since = since + 1 if silent else 0
            if silent and since == GRACE:
                told = True
                why = source.trouble()
                reason = f" ({why})" if why else ""
                observer.waiting(
                    f"{source.status}{reason}; nothing is lost, and steps close when it answers."
                )
            elif told and not silent:
                told = False
                observer.waiting("")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _summary(pipeline: Pipeline, before: int, ok: bool, verified: str) -> dict[str, Any]:
    from tidegate.errors import without_secrets
    from tidegate.report.learnt import learnt_clip, learnt_nothing, released_by
    from tidegate.report.wording import Words

    queries = pipeline.queries
    first, listed = queries.first, queries.listed
    placed = [pipeline.placed[part.name] for part in queries.parts]
    sinks = [without_secrets(config.locate(config.sink.location)) for config in placed]
    done: dict[str, Any] = {
        "steps": pipeline.step,
        "steps_now": pipeline.step - before,
        "releases": pipeline.releases,
        "columns": _columns(pipeline.released[first.name]),
        "sink": sinks[0],
        "ledger_file": without_secrets(queries.ledger),
        "guarantee": queries.guarantee,
        "in_one_line": Words(first).in_one_line,
        "answers": [
            without_secrets(part.locate(answer.location)) for part in placed for answer in part.answers
        ],
        "assumptions": list(queries.assumptions),
        "ledger": verified,
        "ledger_ok": ok,
        "history": pipeline.history,
        "together_with_earlier": pipeline.together or None,
        "sinks_behind": pipeline.behind,
    }
    learnt = {config.name: learnt_clip(config) for config in queries.parts if config.query.learn is not None}
    if learnt:
        done["learnt_clips"] = learnt
        done["warnings"] = [words for config in queries.parts if (words := learnt_nothing(config))]
    if not listed:
        done["accuracy"] = _accuracy(pipeline.released[first.name])
        return done
    done["columns"] = [
        f"{config.name}: {label}"
        for config in queries.parts
        for label in _columns(pipeline.released[config.name])
    ]
    done["sink"] = ", ".join(sinks)
    done["queries"] = [
        {
            "name": config.name,
            "share": str(config.share),
            "mechanism": released_by(config.mechanism),
            "columns": _columns(pipeline.released[config.name]),
            "releases": pipeline.released[config.name].number,
            "sink": sink,
            "accuracy": _accuracy(pipeline.released[config.name]),
        }
        for config, sink in zip(placed, sinks, strict=True)
    ]
    return done


def _columns(released: Released) -> list[str]:
    """The names of a query's columns; of those that are found, the ones that are open now."""
    from tidegate.report.found import columns_of
    from tidegate.sinks.chunks import joined

    config = released.config
    last = joined(released.chunks(released.number - 1), config.query.outputs) if released.number else None
    return columns_of(config, joined([], 0) if last is None else last)


def _accuracy(released: Released) -> dict[str, Any] | None:
    """How far the last releases are off, as they themselves say, and what would help where that is too far."""
    from tidegate.report.accuracy import accuracy
    from tidegate.report.found import as_listed
    from tidegate.report.wording import Words
    from tidegate.sinks.chunks import joined, latest

    recent = joined(released.chunks(max(0, released.number - RECENT)), released.config.query.outputs)
    config, newest = as_listed(released.config, latest(recent))
    found = accuracy(config, newest)
    if found is None:
        return None
    words = Words(config)
    return {
        "half_width": found.half,
        "typical_value": found.typical,
        "too_noisy": found.too_noisy,
        "columns_below_their_error": list(found.drowned),
        "in_words": words.accuracy(found),
        "bounded": words.bounds,
        "what_would_help": words.what_would_help(found),
    }


def show(done: dict[str, Any], *, aside: bool, inside: bool, verbose: bool = False) -> None:
    """The summary for people, on stderr where releases are on stdout; a report may have to stay inside."""
    from rich.console import Console

    # a path or a name may hold anything, also what looks like markup
    console = Console(highlight=False, markup=False, file=sys.stderr if aside else sys.stdout)
    steps, now = done["steps"], done["steps_now"]
    width = len(done["columns"])
    columns = f"{width} column{'' if width == 1 else 's'}"
    if not steps:
        words = "Nothing yet: the first step of this stream has not closed."
    elif now == steps:
        words = f"Released {steps:,} steps × {columns} in {done['seconds']:.1f} s."
    elif now:
        words = f"Released {now:,} more steps × {columns}, {steps:,} in all, in {done['seconds']:.1f} s."
    else:
        words = f"Nothing new: all {steps:,} steps of this stream were released before."
    facts = facts_table()
    facts.add_row("Protected", done["in_one_line"])
    if verbose:
        facts.add_row("Guarantee", done["guarantee"])
    for sentence in done.get("history", ()):
        if sentence.startswith("Amended"):
            facts.add_row("", sentence)
    for assumption in done.get("assumptions", ()) if verbose else ():
        facts.add_row("Assumes", assumption)
    _show_accuracy(facts, done, verbose=verbose)
    for warning in done.get("warnings", ()):
        facts.add_row("Warning", warning)
    facts.add_row("Ledger", done["ledger"])
    for name in done.get("sinks_behind", ()):
        facts.add_row("Waiting", f"{name} lacks releases; they are kept, and sent at the next start")
    if done.get("together_with_earlier"):
        facts.add_row(
            "Earlier", f"this is not the first stream of this sink: {done['together_with_earlier']}"
        )
    files = [query["sink"] for query in done.get("queries", ())] or [done["sink"]]
    files = ["standard output" if name == "-" else name for name in files]
    kept = f"{done['ledger_file']}  (keep it: it holds the account and the state, and is not for others)"
    report = what = None
    if "report" in done:
        what = "not for publication: it shows true values" if inside else "open it in a browser"
        report = f"{done['report']}  ({what})"
    others = [done[name] for name in ("table", "card") if name in done]
    if verbose:
        listed = [*files, *done["answers"], *others, *([report] if report else []), kept]
    else:
        answers = done["answers"]
        listed = [_few([*files, *answers, *others]), *([report] if report else []), kept]
    for number, name in enumerate(listed):
        facts.add_row("" if number else "Files", name)
    if verbose:
        console.print(words + "\n")
        console.print(facts)
        return
    console.print(words)
    # one line each, on whatever terminal: what is longer is in the report, in `explain` and behind --verbose
    rows = rows_of(facts)
    longest = max(10, *(len(label) for label, _ in rows))
    for label, value in rows:
        console.print(f"{label:<{longest}} {value}".rstrip(), no_wrap=True, overflow="ignore", crop=False)


def rows_of(facts: Any) -> list[tuple[str, str]]:
    """The cells of a table of facts."""
    labels, values = (list(column.cells) for column in facts.columns)
    return [(str(label), str(value)) for label, value in zip(labels, values, strict=True)]


def _few(names: list[str]) -> str:
    """Files in one line: those in the folder of the first by their names."""
    if len(names) > MOST_FILES:
        return f"{', '.join(names[:MOST_FILES])} and {len(names) - MOST_FILES} more (--verbose)"
    return ", ".join(names)


def _show_accuracy(facts: Any, done: dict[str, Any], *, verbose: bool) -> None:
    """How far the numbers are off: one line for each query, more of it where it is asked for."""
    off = done.get("accuracy")
    if off:
        facts.add_row("Accuracy", off["in_words"])
        if off["bounded"]:
            facts.add_row("Bounded", off["bounded"])
        helpful = off["what_would_help"] if verbose else ["; ".join(off["what_would_help"])]
        for number, remedy in enumerate(filter(None, helpful)):
            facts.add_row("" if number else "Would help", remedy)
    queries = done.get("queries", ())
    shown = queries if verbose or len(queries) <= MOST_QUERIES else queries[: MOST_QUERIES - 1]
    for query in shown:
        off = query["accuracy"]
        words = "" if not off else off["in_words"]
        if verbose:
            bounded = "" if not off else off["bounded"]
            words = f"{query['share']} of the budget, {query['mechanism']}. {words}. {bounded}".rstrip()
        facts.add_row(query["name"], words)
    if len(shown) < len(queries):
        facts.add_row("", f"and {len(queries) - len(shown)} more statistics (--verbose)")
    bounded = "" if verbose else _bounded(queries)
    if bounded:
        facts.add_row("Bounded", bounded)


def _bounded(queries: Sequence[dict[str, Any]]) -> str:
    """What clipping and bounding do to several statistics, in one line."""
    found: dict[str, list[str]] = {}
    for query in queries:
        words = query["accuracy"]["bounded"] if query["accuracy"] else ""
        if words:
            found.setdefault(words.partition(". ")[0], []).append(query["name"])
    if not found:
        return ""
    each = "; ".join(f"{', '.join(names)}: {words[:1].lower()}{words[1:]}" for words, names in found.items())
    return f"{each}. Where that leaves something out, published numbers differ from the true ones."
