"""``tidegate init``: a first configuration, from the names and types of the input's columns alone."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import release_of

if TYPE_CHECKING:
    from tidegate.config import Config

EXAMPLE = (
    "Example: tidegate init events.csv --unit device --column building --categories 'Library, Cafeteria' "
    "--start 2026-03-02 --count 168"
)
AGGREGATES = ("distinct", "count", "sum", "mean", "histogram", "quantile", "given")
OF_EACH_STEP = (
    "What is published of each step: distinct (how many people), count (how many records), sum, mean, histogram, "
    "quantile, or given (numbers that were added up before)"
)
NUMBERS = ("sum", "mean", "histogram", "quantile", "given")  # which are made of a column of numbers
BOUNDS = {  # option → the question and what is offered
    "clip": ("the bounds of one value, known to everybody", "0, 100"),
    "edges": ("the edges of public intervals", "0, 10, 100"),
}
# option → the question and what is offered; "" offers nothing
_QUESTIONS = {
    "categories": ("The public categories, separated by commas (empty for one column of everything)", ""),
    "start": ("When step 1 begins, chosen by you and not the first event, such as 2026-03-02T00:00", ""),
    "length": ("The length of a step", "1h"),
    "zone": ("The time zone", "UTC"),
    "count": ("How many steps there are, chosen by you and not by the last event, such as 168", ""),
    "epsilon": ("The budget ε of any window", "1"),
    "window": ("How many consecutive steps are protected together", "24"),
}
NEVER_OFFERED = ("start", "count")
EACH_RECORD = "each record"  # the answer that no Enter gives


def init(
    source: Annotated[
        Path, typer.Argument(help="A CSV, JSON lines or Parquet file with events.", metavar="INPUT")
    ],
    out: Annotated[Path, typer.Option(help="The configuration to write.")] = Path("tidegate.toml"),
    time: Annotated[str | None, typer.Option(help="The column of the event's time.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="The column that names the protected unit; never guessed.")
    ] = None,
    each_record: Annotated[
        bool,
        typer.Option(
            "--each-record",
            help="Every record is a unit of its own; a person with several records is not protected as one.",
        ),
    ] = False,
    column: Annotated[str | None, typer.Option(help="The column of the category.")] = None,
    value: Annotated[str | None, typer.Option(help="The column of the number to add up.")] = None,
    time_format: Annotated[
        str | None, typer.Option(help="How times are written, if not ISO 8601: '%d.%m.%Y %H:%M'.")
    ] = None,
    aggregate: Annotated[
        str | None,
        typer.Option(
            help="count, distinct (the default), sum, mean, histogram, quantile, or given: already aggregated."
        ),
    ] = None,
    categories: Annotated[
        str | None,
        typer.Option(
            help="The public categories, separated by commas; never taken from the data. Or discover: a private test "
            "finds them, which needs --delta."
        ),
    ] = None,
    clip: Annotated[
        str | None, typer.Option(help="Bounds of one value for sum, mean and quantile: '0, 100'.")
    ] = None,
    edges: Annotated[
        str | None, typer.Option(help="Edges of public intervals for histogram: '0, 10, 100'.")
    ] = None,
    most: Annotated[int, typer.Option(help="The most contributions of one unit in one step.")] = 1,
    grid: Annotated[str, typer.Option(help="The public resolution of values: 1, 0.01.")] = "1",
    layout: Annotated[
        str | None,
        typer.Option(
            help="Given input: long (a row for each step and series; the default) or wide (a row for each step)."
        ),
    ] = None,
    fill: Annotated[
        str | None,
        typer.Option(help="Given input: what becomes of a missing reading: missing, zero, a constant."),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="One of several statistics under one budget, in place of --aggregate and its bounds; may be given "
            "several times: 'name=revenue aggregate=sum value=amount clip=0,200'; clipped=1/20 adds how many values "
            "are clipped, for that share of the budget."
        ),
    ] = None,
    max_change: Annotated[
        str | None,
        typer.Option(help="By how much one unit can change one step; needed for given input, else derived."),
    ] = None,
    policy: Annotated[str, typer.Option(help="What is protected: event, w-event or user.")] = "w-event",
    start: Annotated[
        str | None, typer.Option(help="When step 1 begins; needed, and never taken from the data.")
    ] = None,
    length: Annotated[
        str | None, typer.Option(help="The length of a step: 15min, 1h, calendar day, calendar week.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="The time zone of the start and of times without one.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many steps there are; needed, and never taken from the data.")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="Budget of any window, exact.")] = None,
    delta: Annotated[
        str | None,
        typer.Option(help="The δ of --categories discover, such as 1e-6; far below 1 in all units."),
    ] = None,
    window: Annotated[int | None, typer.Option(help="Steps that are protected together (w).")] = None,
    mechanism: Annotated[str, typer.Option(help="The mechanism.")] = "auto",
    sink: Annotated[str, typer.Option(help="Where the releases go.")] = "released.csv",
    separator: Annotated[
        str | None,
        typer.Option(help="The character between two fields of CSV; by default the header shows it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take the defaults.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a configuration that is there.")] = False,
    as_json: Machine = False,
) -> None:
    """Write a commented configuration for a file of events.

    Looks at the names and types of its columns and at nothing else: whatever is in a configuration is public. On
    a terminal it asks for what no option says.
    """
    from tidegate.config import ConfigError, input_columns, parse_queries, write_config
    from tidegate.config.writer import header_separator
    from tidegate.errors import InvalidInput, InvalidParameter

    if out.exists() and not force:
        raise InvalidParameter(
            "out", str(out), "a file that does not exist yet", "write --force to replace it"
        )
    separator = header_separator(source) if separator is None else separator
    columns = input_columns(source, separator=separator)
    given: dict[str, Any] = {
        "categories": categories,
        "start": start,
        "length": length,
        "zone": zone,
        "count": count,
        "epsilon": epsilon,
        "window": window,
    }
    chosen: dict[str, Any] = {"time": time, "unit": unit, "column": column, "value": value}
    what = {"aggregate": aggregate, "clip": clip, "edges": edges, "layout": layout, "max_change": max_change}
    queries = [_keys(words) for words in query or ()]
    if queries:
        own: dict[str, Any] = {
            "aggregate": aggregate,
            "categories": categories,
            "clip": clip,
            "edges": edges,
            "value": value,
        }
        more = {"most": None if most == 1 else most, "grid": None if grid == "1" else grid}
        _refuse_beside_queries(own | more)
    if sys.stdin.isatty() and not yes and not as_json:
        # polars' handler lets a read continue after Ctrl-C; Python's own, set again, ends the question
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT) or signal.default_int_handler)
        _ask(columns, chosen, given, what, each_record=each_record, several=bool(queries))
        if not queries and what["aggregate"] != "given":
            queries = _ask_for_more(what, given["categories"], chosen)
    elif unit is None and not each_record and aggregate != "given":
        raise InvalidParameter("unit", None, *_who(list(columns)))
    if given["start"] is None:
        raise InvalidParameter(
            "start",
            None,
            "when step 1 begins, chosen by you and not the first event",
            "write --start 2026-03-02",
        )
    if given["count"] is None:
        raise InvalidParameter(
            "count",
            None,
            "how many steps there are, chosen by you and not by the last event",
            "write --count 168",
        )
    aggregate = what["aggregate"] or "distinct"
    _check_columns(columns, chosen, aggregate, queries)
    known = {name: answer for name, answer in {**chosen, **given}.items() if answer is not None}
    known["categories"] = _list(known.get("categories", ""))
    for name in ("count", "window"):
        if name in known:
            known[name] = _whole(name, known[name])
    text = write_config(
        _relative(source, out),
        columns,
        **known,
        time_format=time_format,
        clip=_list(what["clip"] or ""),
        edges=_list(what["edges"] or ""),
        most=most,
        grid=grid,
        layout=what["layout"] or "long",
        fill=fill,
        delta=delta,
        policy=policy,
        max_change=what["max_change"],
        aggregate=aggregate,
        mechanism=mechanism,
        sink=sink,
        queries=queries,
    )
    if separator != ",":
        text = text.replace("[steps]\n", f"separator = {json.dumps(separator)}\n\n[steps]\n", 1)
    try:
        checked = parse_queries(text, out)  # refuses what `release` would refuse
    except ConfigError as error:  # its line is of a file that will not be written
        raise InvalidInput(f"{error.sentence} Nothing was written.") from None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{out} cannot be written: {error.strerror}.") from None
    wrong = {config.name: config.mechanism.noise_error for config in checked.parts}
    if as_json:
        errors = wrong if checked.listed else wrong[checked.first.name]
        done = {"config": str(out), "guarantee": checked.guarantee, "expected_error": errors}
        typer.echo(json.dumps(done, indent=2))
        return
    typer.echo(f"Wrote {out}. Read it and correct it.")
    if checked.first.schema.unit is None and aggregate != "given":
        typer.echo(
            "Every record is a unit of its own: a person with several records is not protected as one."
        )
    for config in checked.parts:
        off = wrong[config.name]
        if off is not None:
            named = f"{config.name}, with {config.share} of the budget: " if checked.listed else ""
            typer.echo(named + in_words(config, off))
    typer.echo(release_of(out))


def in_words(config: Config, wrong: float) -> str:
    """How far released values will be off, in the unit of the values."""
    from tidegate.report.wording import Words

    query = config.query
    shown = f"{wrong:,.0f}" if wrong >= 100 else f"{wrong:.3g}"
    value = repr(config.schema.value) if config.schema.value else "the values"
    most = "at most about" if type(config.mechanism).__name__ == "Tide" else "about"
    if query.aggregate == "mean":
        return (
            f"Expected error: {most} {shown}/n for a mean of n records of a step, in the unit of {value}; for a count, "
            f"{wrong * query.ticks / query.count_weight:.3g}."
        )
    if query.aggregate == "quantile":
        return (
            f"Quantiles are read from counts in {len(query.columns):,} bins, each off by {most} {shown}; "
            "`tidegate preview` shows what that makes of a quantile."
        )
    counted = Words(config).counted
    what = f" {counted}" if counted else f", in the unit of {value},"
    return f"Expected error: {most} {shown}{what} per value; `tidegate plan` says what would help."


def _check_columns(
    columns: Mapping[str, str],
    chosen: Mapping[str, Any],
    aggregate: str,
    queries: Sequence[Mapping[str, str]],
) -> None:
    """Refuse a statistic of numbers without a column of numbers, and one by category without the category's column."""
    from tidegate.errors import InvalidParameter
    from tidegate.naming import listed

    there = f"a column of the input: {listed(list(columns))}"
    for keys in queries or ({"aggregate": aggregate, "columns": ""},):
        of = f"--query name={keys['name']}" if "name" in keys else ""
        kind, value = keys.get("aggregate", ""), keys.get("value") or chosen["value"]
        if queries and kind in NUMBERS and kind != "given" and value is None:
            raise InvalidParameter("value", None, f"{there}, for {of}", "write value= and its name")
        if queries and keys.get("columns") and not (keys.get("column") or chosen["column"]):
            raise InvalidParameter("column", None, f"{there}, for {of}", "write column= and its name")
        if kind in NUMBERS and kind != "given" and columns.get(value or "") == "text":
            numbers = [name for name, type_ in columns.items() if type_ not in ("text", "time")]
            raise InvalidParameter(
                "value", value, "a column of numbers", f"write one of {listed(numbers) or 'another input'}"
            )


def _who(columns: list[str]) -> tuple[str, str]:
    """What must be said of the unit, and how; a file may also have numbers that belong to nobody."""
    from tidegate.naming import listed

    return (
        "the column that names a person or device, which decides who is protected and is never guessed",
        f"write --unit with one of {listed(columns)}; or --each-record, which protects every record by itself and not a "
        "person with several; or --aggregate given, if the numbers were added up before (with --layout wide, if every "
        "column is a series)",
    )


def _ask(
    columns: Mapping[str, str],
    chosen: dict[str, Any],
    given: dict[str, Any],
    what: dict[str, str | None],
    *,
    each_record: bool,
    several: bool,
) -> None:
    """Ask for what no option has said."""
    from tidegate.naming import listed

    typer.echo(f"Columns of the input: {listed(list(columns))}")
    _ask_column(
        "time", "The column of the event's time (empty: the one whose name sounds like it)", columns, chosen
    )
    if not several:
        _ask_one_of("aggregate", OF_EACH_STEP, AGGREGATES, what)
    if what["aggregate"] == "given":
        layouts = ("long", "wide")
        _ask_one_of(
            "layout", "A row for each step and series (long), or a row for each step (wide)", layouts, what
        )
        if what["max_change"] is None:
            what["max_change"] = typer.prompt(
                "By how much one person can change the numbers of one step", default="1"
            )
    elif not each_record:
        question = (
            f'The column that names the person or device to protect ("{EACH_RECORD}": every record is a unit of its own, '
            "and a person with several is not protected as one)"
        )
        _ask_column("unit", question, columns, chosen, needed=True, aside=EACH_RECORD)
    wide = what["layout"] == "wide"
    if what["aggregate"] in NUMBERS and not wide:
        _ask_column("value", "The column of the number", columns, chosen, needed=True)
        name = {"given": None, "histogram": "edges"}.get(what["aggregate"] or "", "clip")
        if name and what[name] is None:
            question, offered = BOUNDS[name]
            what[name] = typer.prompt(question[:1].upper() + question[1:], default=offered)
    if not wide and what["aggregate"] != "histogram":
        _ask_column(
            "column", "The column of the category (empty: the one whose name sounds like it)", columns, chosen
        )
    elif given["categories"] is None:
        given["categories"] = ""
    for name, (question, offered) in _QUESTIONS.items():
        while given[name] is None:
            answer = typer.prompt(question, default=offered, show_default=bool(offered))
            needed = name in NEVER_OFFERED or (name == "categories" and chosen["column"])
            problem = "It must be said." if needed and not answer.strip() else _problem(name, answer)
            if problem:
                typer.echo(problem)
            else:
                given[name] = answer


def _ask_column(
    name: str,
    question: str,
    columns: Mapping[str, str],
    chosen: dict[str, Any],
    *,
    needed: bool = False,
    aside: str | None = None,
) -> None:
    """Ask for a column of the input until there is such a one, or `aside` is answered, which stands for none."""
    while chosen[name] is None:
        answer = typer.prompt(question, default="", show_default=False).strip()
        if answer == aside and answer not in columns:
            return
        if answer in columns or not (answer or needed):
            chosen[name] = answer or None
            return
        typer.echo(f"There is no column {answer!r}." if answer else "It must be said.")


def _ask_one_of(name: str, question: str, words: Sequence[str], what: dict[str, str | None]) -> None:
    """Ask for one of a few words; the first is offered."""
    while what[name] is None:
        answer = typer.prompt(question, default=words[0]).strip()
        if answer in words:
            what[name] = answer
        else:
            typer.echo(f"{answer!r} is none of {', '.join(words)}.")


def _problem(name: str, answer: str) -> str:
    """Why an answer would be refused later, so that it can be given again at once; empty where nothing is wrong."""
    from tidegate.clock.steps import Steps
    from tidegate.errors import TidegateError
    from tidegate.exact import positive, whole

    clock: dict[str, Any] = {"start": "2026-01-01", "length": "1h", "zone": "UTC"}
    try:
        if name in clock:
            Steps(**{**clock, name: answer})
        elif name in ("count", "window"):
            whole(name, int(answer))
        elif name == "epsilon":
            positive(name, answer)
    except TidegateError as error:
        return str(error)
    except ValueError:
        return f"{answer!r} is not a whole number."
    return ""


def _refuse_beside_queries(own: Mapping[str, Any]) -> None:
    """What is said of one statistic would be lost beside several."""
    from tidegate.errors import InvalidParameter

    for name, answer in own.items():
        if answer is not None:
            key = "columns" if name == "categories" else name
            raise InvalidParameter(
                name, answer, "said in each --query", f"write for example --query 'name=… {key}={answer}'"
            )


def _keys(words: str) -> dict[str, str]:
    """The keys of one of several statistics: name=orders aggregate=count most=2."""
    from tidegate.errors import InvalidParameter

    try:
        pairs = [word.partition("=") for word in shlex.split(words)]
    except ValueError:
        pairs = [("", "", "")]
    if not all(name and equals and text for name, equals, text in pairs):
        raise InvalidParameter(
            "query",
            words,
            "keys and what they are, with spaces between them",
            "write for example 'name=orders aggregate=count', and quotes where a list has spaces",
        )
    return {name: text for name, _, text in pairs}


def _ask_for_more(
    what: Mapping[str, str | None], categories: str, chosen: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Ask whether there are further statistics of the same people; nothing where there are none."""
    question = "Names of further statistics of the same people, which share the budget, separated by commas (empty: none)"
    names = _list(typer.prompt(question, default="", show_default=False))
    if not names:
        return []
    aggregate = what["aggregate"] or "distinct"
    aggregate = "count" if aggregate == "distinct" and not chosen["unit"] else aggregate
    first = {"name": typer.prompt("The name of the first", default=aggregate), "aggregate": aggregate}
    keys = {"clip": what["clip"], "edges": what["edges"], "value": chosen["value"]}
    found = [first | {key: text for key, text in keys.items() if text}]
    for name in names:
        kind = typer.prompt(f"{name}: count, distinct, sum, mean or histogram", default="count")
        each = {"name": name, "aggregate": kind}
        if kind in NUMBERS:
            each["value"] = typer.prompt(f"{name}: the column of the number")
            bound = "edges" if kind == "histogram" else "clip"
            each[bound] = typer.prompt(f"{name}: {BOUNDS[bound][0]}", default=BOUNDS[bound][1])
        found.append(each)
    return [
        each | ({"columns": categories} if categories and each["aggregate"] != "histogram" else {})
        for each in found
    ]


def _whole(name: str, answer: int | str) -> int:
    """A whole number, also from an answer."""
    from tidegate.exact import whole

    digits = isinstance(answer, str) and answer.strip().isdecimal()
    return whole(name, int(answer) if digits else answer)  # type: ignore[arg-type]  # refuses other words


def _list(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _relative(source: Path, out: Path) -> str:
    """The input as seen from the configuration's folder, where that is simple."""
    here = out.resolve().parent
    try:
        return source.resolve().relative_to(here).as_posix()
    except ValueError:
        return str(source.resolve())
