"""``tidegate plan``: how wrong the numbers will be, before anything is released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following, release_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tidegate.config import Config, Queries
    from tidegate.mechanisms import Discover
    from tidegate.mechanisms.w_event.personal import Requirement
    from tidegate.plan import Plan, StreamModel
    from tidegate.plan.predict import Prediction
    from tidegate.policy import Policy

EXAMPLE = "Example: tidegate plan tidegate.toml --target 5%"
NEXT = 3  # mechanisms that are named beside the best one
STATES = {"status", "scale", "spent"}  # what the header of a released file has


def plan(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="A configuration: its policy, columns and clock, and its releases if there are any."
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Which of several queries the plan is for; a line for each by default.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="An error as a part of the mean value, 5%: which ε, window or step length reaches it."
        ),
    ] = None,
    epsilon: Annotated[str, typer.Option(help="The budget ε, exact: 1, 0.1 or 1/3.")] = "1",
    window: Annotated[int, typer.Option(help="The w of w-event, in steps; 1 for event level.")] = 24,
    max_change: Annotated[str, typer.Option(help="By how much one unit can change one step (Δ).")] = "1",
    adjacency: Annotated[str, typer.Option(help="add-remove or replace.")] = "add-remove",
    level: Annotated[
        float | None,
        typer.Option(
            help="The mean of one column and step, roughly; of a mean, how many records; 100 if nothing is known."
        ),
    ] = None,
    columns: Annotated[int, typer.Option(help="The number of columns.")] = 1,
    season: Annotated[
        int | None, typer.Option(help="Steps of a day; none for a stream without days.")
    ] = None,
    daily: Annotated[float, typer.Option(help="How far a day swings, as a part of the level.")] = 0.6,
    weekly: Annotated[float, typer.Option(help="How far a week swings, as a part of the level.")] = 0.2,
    noise: Annotated[
        float, typer.Option(help="What days and weeks do not explain, as a part of the level.")
    ] = 0.1,
    memory: Annotated[
        float, typer.Option(help="How much of that is still there a step later (0 to 1).")
    ] = 0.8,
    released: Annotated[
        Path | None,
        typer.Option(help="An earlier file of releases (CSV or Parquet), instead of a description."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The file is public data, although Tidegate did not release it.")
    ] = False,
    delta: Annotated[str, typer.Option(help="The δ beside ε; without one the promise is pure.")] = "0",
    discover: Annotated[
        str | None,
        typer.Option(
            help="For categories that nobody has listed: how many units some have in an epoch, 900,300,40. Needs "
            '--delta, or a configuration with columns = "discover".'
        ),
    ] = None,
    categories: Annotated[int, typer.Option(help="In how many of them a unit counts in a window.")] = 1,
    sums: Annotated[
        bool,
        typer.Option(
            "--sums",
            help="Running sums of all steps so far, and not steps; as for a configuration whose mechanism releases them.",
        ),
    ] = False,
    requirements: Annotated[
        Path | None,
        typer.Option(
            help="Without a configuration: a CSV file of units that ask for a smaller ε or a longer window."
        ),
    ] = None,
    delay: Annotated[int, typer.Option(help="Allow values that arrive up to so many steps late.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="One made-up stream instead of three.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show every setting that was tried, not the best of each mechanism.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show a table of all mechanisms.")] = False,
    as_json: Machine = False,
) -> None:
    """Predict the error of every mechanism from public knowledge, and recommend one.

    Streams are made up from the description, or from an earlier release, and every mechanism is tried on them.
    Nothing is spent and nothing private is read.
    """
    from tidegate.cli.progress import stages
    from tidegate.errors import InvalidParameter
    from tidegate.exact import positive, whole
    from tidegate.ingest.requirements import Promise, read_requirements
    from tidegate.mechanisms import chosen
    from tidegate.plan import Description, make_plan
    from tidegate.plan.requirements import requirements_of
    from tidegate.plan.target import reach, read_target
    from tidegate.policy import Event, WEvent

    whole("delay", delay, least=0)
    finds = None if config is None else _finding(config, query)
    if finds is not None:
        plan_of_discovery(finds, read_sizes(discover or ""), as_json=as_json)
        return
    if config is not None and discover is not None:
        raise InvalidParameter(
            "discover",
            discover,
            'absent with a configuration that lists its columns, or given for a query with columns = "discover"',
            "drop it, or write --query with its name",
        )
    if config is not None and query is None and _several(config):
        if target is not None or released is not None:
            raise InvalidParameter(
                "query",
                None,
                "one of several for a target or a file",
                "write --query with its name",
            )
        plan_of_all(config, level, delay, as_json=as_json)
        return
    wanted = None if target is None else read_target(target)
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "max_change": max_change,
        "adjacency": adjacency,
    }
    asked: tuple[Requirement, ...] = ()
    if requirements is not None and config is not None:
        raise InvalidParameter(
            "requirements", str(requirements), "absent with a configuration, which names its own", "drop it"
        )
    if requirements is not None:
        least = Promise(positive("epsilon", epsilon), window)
        asked = requirements_of(read_requirements(requirements, least))
    policy: Policy = WEvent(window=window, **common) if window != 1 or asked else Event(**common)
    if discover is not None:
        from tidegate.mechanisms import Discover

        sizes = read_sizes(discover)
        finds = Discover(policy, epoch=window, categories=categories)
        plan_of_discovery(finds, sizes, as_json=as_json)
        return
    if config is not None:
        settings = read_settings(config, query)
        policy, columns, season = settings.policy, settings.columns, settings.season
        asked, sums = settings.requirements, sums or settings.sums
        if released is not None and not settings.measures_values:
            raise InvalidParameter(
                "released",
                str(released),
                "absent for means and quantiles, which are not what is measured",
                "describe the stream with --level",
            )
    if target is not None and (asked or sums):
        raise InvalidParameter(
            "target", target, "absent for running sums, and where units have requirements", "drop it"
        )
    weight = settings.count_weight if config is not None else None  # of one record, where a mean is asked for
    if sums and (asked or weight is not None or (config is not None and not settings.measures_values)):
        raise InvalidParameter(
            "sums", sums, "absent for means and quantiles, and where units have requirements", "drop it"
        )
    records = 100.0 if level is None else level
    stream: StreamModel
    known = config is not None and released is None and level is None and settings.profile is not None
    if released is not None:
        stream = read_profile(released, season, public=public)
    elif known:
        assert settings.profile is not None
        stream = settings.profile
    else:
        size = level if level is not None else (100.0 if config is None else settings.level)
        if weight is not None:
            size = records * weight
        stream = Description(size, columns, season, daily, weekly, noise, memory)
    kinds = chosen()
    with stages(len(kinds), quiet=as_json) as tell:
        made = make_plan(
            policy, stream, runs=1 if quick else 3, tell=tell, kinds=kinds, requirements=asked, sums=sums
        )
    if weight is not None:
        made = made.of_means(records)
    guessed = (
        config is not None and not known and released is None and level is None and not settings.level_is_said
    )
    made = replace(made, guessed=guessed)
    several = config is not None and query is not None and _several(config)
    facts = facts_of(made, delay, query if several else None)
    if weight is not None:
        facts["reasons"].insert(
            0,
            f"These are errors of a mean of {records:,.0f} records; twice as many halve them. "
            "Say with --level how many records a step has.",
        )
    elif guessed:
        facts["reasons"].insert(
            0, f"Nothing is known of the size of a value, and {size:,.0f} was taken: say it with --level."
        )
    if config is not None and settings.remark:
        facts["reasons"].append(settings.remark)
    if wanted is not None:
        found = reach(policy, stream, type(made.best(delay=delay).mechanism), wanted)
        facts["target"] = [
            {
                "setting": one.setting,
                "value": None if one.value is None else str(one.value),
                "error": one.relative,
            }
            for one in found
        ]
        words = "; or by ".join(map(str, found))
        facts["reasons"].append(
            f"An error of {100 * wanted:g}% of {made.part_of} would be reached by {words}."
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        if verbose or every:
            _print(made, facts, delay, every)
        else:
            _print_best(made, facts, delay)
        typer.echo(f"Paste into {config or 'tidegate.toml'}:\n{facts['config']}")
        typer.echo(following("tidegate", "init", "events.csv") if config is None else release_of(config))


def read_sizes(text: str) -> list[int]:
    """How many units categories have: "900,300,40"."""
    from tidegate.errors import InvalidParameter

    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() for word in words):
        raise InvalidParameter("discover", text, "whole numbers with commas", "write for example 900,300,40")
    return [int(word) for word in words]


def plan_of_discovery(mechanism: Discover, sizes: Sequence[int], *, as_json: bool) -> None:
    """With how many units a category opens, and what becomes of categories of given sizes."""
    from tidegate.plan import plan_discovery

    found = plan_discovery(mechanism, sizes)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    typer.echo(str(found))
    if not sizes:
        typer.echo(
            "Say with --discover how many units categories have, and how many are found is predicted, too."
        )


def _finding(file: Path, name: str | None) -> Discover | None:
    """What finds the categories of a configuration, if nobody has listed them."""
    from tidegate.config import read_queries
    from tidegate.mechanisms import Discover

    queries = read_queries(file, follow=True)
    if name is None and len(queries.parts) > 1:
        return None
    found = (queries.first if name is None else queries.part(name)).mechanism
    return found if isinstance(found, Discover) else None


def _several(config: Path) -> bool:
    """Whether a configuration has several queries."""
    from tidegate.config import read_queries

    queries = read_queries(config, follow=True)
    return queries.listed and len(queries.parts) > 1 and not queries.first.edition


def plan_of_all(file: Path, level: float | None, delay: int, *, as_json: bool) -> None:
    """A line for each of several queries: its share of the budget, what is recommended, and the error of that."""
    from tidegate.cli.progress import stages
    from tidegate.config import read_queries
    from tidegate.exact import show
    from tidegate.mechanisms import Discover, chosen
    from tidegate.plan import Description, make_plan, plan_discovery
    from tidegate.plan.predict import number, percent

    queries = read_queries(file, follow=True)
    found: dict[str, Any] = {}
    said = True
    with stages(len(chosen()) * len(queries.parts) + 2, quiet=as_json) as tell:
        for part in queries.parts:
            if part.query.discovers:
                continue
            settings = read_settings(file, part.name)
            weight, size = settings.count_weight, settings.level if level is None else level
            stream: StreamModel
            if settings.profile is not None and level is None:
                stream = settings.profile
            else:
                said = said and (level is not None or settings.level_is_said)
                size = size if weight is None else size * weight
                stream = Description(size, settings.columns, settings.season)
            made = make_plan(settings.policy, stream, runs=1, tell=tell, kinds=chosen())
            if weight is not None:
                made = made.of_means(size / weight)
            guess = settings.profile is None and level is None and not settings.level_is_said
            made = replace(made, guessed=guess)
            found[part.name] = facts_of(made, delay, part.name) | {"share": show(part.share)}
            found[part.name]["error_in_words"] = (
                f"{number(made.best(delay=delay).absolute)}, {percent(made.best(delay=delay).relative)} of "
                f"{made.part_of}"
            )
    finding = {
        part.name: plan_discovery(part.mechanism, ())
        for part in queries.parts
        if isinstance(part.mechanism, Discover)
    }
    if as_json:
        more = {name: asdict(each) for name, each in finding.items()}
        typer.echo(json.dumps({"queries": found | more}, indent=2))
        return
    for name, each in finding.items():
        typer.echo(f"{name}, {show(queries.part(name).share)} of the budget: {each}")
    for name, facts in found.items():
        typer.echo(
            f"{name}, {facts['share']} of the budget: {facts['recommended']['mechanism']}, expected error "
            f"{facts['error_in_words']}."
        )
    if not said:
        typer.echo("How large values are is not known everywhere: say it with level in each [[query]].")
    typer.echo(f"More of one: tidegate plan {file} --query {queries.first.name}")
    typer.echo(release_of(file))


class Settings(NamedTuple):
    """What a configuration says about its plan."""

    policy: Policy
    columns: int
    season: int | None
    profile: StreamModel | None
    level: float
    level_is_said: bool
    remark: str = ""
    count_weight: float | None = None
    measures_values: bool = True
    requirements: tuple[Requirement, ...] = ()
    sums: bool = False


def read_settings(file: Path, name: str | None = None) -> Settings:
    """Policy, columns and clock of a configuration, and what its stream has released, if it has begun."""
    from tidegate.config import read_queries
    from tidegate.config.auto import steps_of_a_day
    from tidegate.config.queries import read_query
    from tidegate.report.accuracy import likely_level, step_seconds
    from tidegate.report.learnt import at_what_was_learnt, read_clips

    read_query(file, name, follow=True)  # refuses several queries without a name; a plan needs no end
    queries = read_queries(file, follow=True)
    config = queries.editions[-1][0] if name is None else queries.part(name)
    read_clips(queries)
    season = steps_of_a_day(step_seconds(config))
    from tidegate.plan import Profile
    from tidegate.plan.requirements import requirements_of

    policy, query = at_what_was_learnt(config), config.query.applied
    likely = likely_level(config, policy)
    if query.aggregate == "mean":  # means are not what is measured
        return Settings(
            policy, query.width, season, None, *likely, "", query.count_weight / query.ticks, False
        )
    if query.aggregate == "quantile":
        remark = (
            f"These are errors of the counts in {len(query.columns):,} bins that the quantiles are read from; by how "
            "much a quantile moves, `tidegate preview` shows."
        )
        return Settings(policy, query.width, season, None, *likely, remark, None, False)
    released_sums = config.mechanism.statistic != "steps"  # of which no steps are known
    values = None if released_sums else released_values(queries, config.name)
    profile = None if values is None else Profile(values, season)
    sums = config.mechanism.statistic == "sums"
    asked = () if query.requirements is None else requirements_of(query.requirements)
    return Settings(
        policy, query.outputs, season, profile, *likely, _of_learning(config), requirements=asked, sums=sums
    )


def released_values(queries: Queries, name: str) -> npt.NDArray[np.float64] | None:
    """The newest numbers that the stream of a configuration has released of a query; None where there are none.

    Also where the stream belongs to another configuration, which has to be amended first.
    """
    import numpy as np
    import polars as pl

    from tidegate.core.errors import LogMismatch
    from tidegate.pipeline import read_stream
    from tidegate.pipeline.logs import log_exists
    from tidegate.report.report import released_numbers

    if not log_exists(queries.ledger):
        return None
    try:
        with read_stream(queries) as stream:
            (found,) = released_numbers([stream.released[name]])
    except LogMismatch:
        return None
    known = np.isfinite(found.answers).any(axis=1)
    if not known.any():
        return None
    frame = pl.DataFrame(found.answers[int(np.argmax(known)) :]).fill_nan(None)
    return frame.fill_null(strategy="forward").fill_null(0).to_numpy()


def _of_learning(config: Config) -> str:
    """What a plan has to say where the clip of values is learnt; otherwise empty."""
    from tidegate.mechanisms.clipped_records import ClippedRecords
    from tidegate.report.learnt import learnt_clip

    if not isinstance(config.mechanism, ClippedRecords):
        return ""
    found, silent = learnt_clip(config), config.mechanism.waits
    words = f"The first {silent:,} steps, whose budget the clip of values costs, are silent and in no error"
    if found is not None:
        return f"{words}; predicted is for the clip that was learnt, {found}."
    return f"{words}; predicted is for values that reach their bound, and what is learnt can only make noise smaller."


def read_profile(file: Path, season: int | None, *, public: bool) -> StreamModel:
    """Read an earlier release; anything else is refused unless it is declared to be public."""
    import polars as pl

    from tidegate.cli.tables import read_table
    from tidegate.errors import InvalidInput, InvalidParameter
    from tidegate.plan import Profile

    if not file.exists():
        raise InvalidParameter("released", str(file), "a file that exists", "check its name")
    frame = read_table(file, "give a file that Tidegate wrote")
    if not set(frame.columns) >= STATES and not public:
        raise InvalidParameter(
            "released",
            str(file),
            "a file of releases, with the columns status, scale and spent",
            "add --public if it is public data; a plan must not look at anything private",
        )
    if {"column", "value"} <= set(frame.columns):
        frame = frame.pivot(on="column", index="step", values="value")
    ends = {
        f"{name} {end}" for name in frame.columns for end in ("low", "high")
    }  # of the interval around a value
    numbers = frame.select(
        pl.col(name).cast(pl.Float64)
        for name, kind in frame.schema.items()
        if kind.is_numeric() and name not in {"step", "revision", *STATES, *ends}
    )
    if not numbers.width or not numbers.height:
        raise InvalidInput(f"{file} has no column of numbers; give a file that Tidegate wrote.")
    return Profile(numbers.fill_null(strategy="forward").fill_null(0).to_numpy(), season)


def facts_of(made: Plan, delay: int, query: str | None = None) -> dict[str, Any]:
    """The plan as JSON, of one of several queries if it is named."""
    best = made.best(delay=delay)
    return {
        "recommended": {"mechanism": best.name, **best.parameters},
        "expected_absolute_error": best.absolute,
        "expected_relative_error": best.relative,
        "reasons": made.reasons(delay=delay),
        "config": best.toml(query),
        "rho": None if made.concentrated is None else _of_rho(made.concentrated),
        "predictions": [
            {
                "mechanism": p.name,
                "parameters": p.parameters,
                "absolute_error": p.absolute,
                "relative_error": p.relative,
                "standard_error": p.uncertainty,
                "delay": p.delay,
            }
            for p in made.predictions
        ],
    }


def _of_rho(found: Prediction) -> dict[str, Any]:
    """What an (ε, δ) gains that is promised by ρ, as JSON."""
    from tidegate.exact import show

    return {
        "rho": show(found.mechanism.policy.budget.total),
        "mechanism": found.name,
        **found.parameters,
        "expected_absolute_error": found.absolute,
    }


def _print_best(made: Plan, facts: dict[str, Any], delay: int) -> None:
    """The sentences, and the next best mechanisms in one line."""
    from tidegate.plan.predict import PLAIN, number, settings_of

    typer.echo(f"Mean absolute error of one value at {settings_of(made.policy)}, as predicted:")
    for sentence in facts["reasons"]:
        typer.echo(sentence)
    best: dict[str, float] = {}
    for p in sorted(made.predictions, key=lambda p: p.absolute):
        if p.delay <= delay:
            best.setdefault(p.name, p.absolute)
    said = {made.best(delay=delay).name, *PLAIN}
    others = [f"{name} {number(error)}" for name, error in best.items() if name not in said]
    if others:
        more = "" if len(others) <= NEXT else f" and {len(others) - NEXT} more"
        typer.echo(f"Others: {', '.join(others[:NEXT])}{more}; --verbose has a table.")


def _print(made: Plan, facts: dict[str, Any], delay: int, every: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from tidegate.plan.predict import number, percent, settings_of

    console = Console()
    table = Table(
        title=f"Expected error at {settings_of(made.policy)}",
        title_justify="left",
        caption="error: mean absolute error of one value. --delay N: allow values that arrive up to N steps late.",
        caption_justify="left",
    )
    table.add_column("mechanism")
    table.add_column("parameters")
    part = "of the mean" if made.part_of == "the mean value" else f"of {made.part_of}"
    for name in ("error", part, "delay"):
        table.add_column(name, justify="right")
    best = made.best(delay=delay)
    seen: set[tuple[str, int]] = set()
    for p in sorted(made.predictions, key=lambda p: p.absolute):
        if (p.name, p.delay) in seen and not every and p is not best:
            continue
        seen.add((p.name, p.delay))
        told = ", ".join(f"{name}={value}" for name, value in p.parameters.items())
        style = "bold" if p is best else ""
        table.add_row(p.name, told, number(p.absolute), percent(p.relative), str(p.delay or "–"), style=style)
    console.print(table)
    more = len(made.predictions) - table.row_count
    if more:
        console.print(f"{more} more settings of these mechanisms were tried: --all shows them.\n")
    for sentence in facts["reasons"]:
        console.print(sentence, soft_wrap=True)
