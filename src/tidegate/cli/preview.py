"""``tidegate preview``: the whole way on made-up numbers, which costs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import release_of

if TYPE_CHECKING:
    from tidegate.config import Config
    from tidegate.ingest import StepBlock

EXAMPLE = "Example: tidegate preview tidegate.toml --level 300 --report preview.html"
LONGEST = 2_000  # steps that are made up where the stream has no end


def preview(
    config: Annotated[Path, typer.Argument(help="The configuration.")],
    query: Annotated[
        str | None, typer.Option(help="Which of several queries of the configuration is shown.")
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="The mean of one column and step, roughly; of a mean, how many records. By default the level of the "
            "configuration, or what a hundred units add at most."
        ),
    ] = None,
    report: Annotated[Path, typer.Option(help="The report of the made-up stream.")] = Path("preview.html"),
    as_json: Machine = False,
) -> None:
    """Release a made-up stream under a configuration, and write the report that the real one would have.

    Neither source, ledger nor sink is touched: nothing is read and nothing is spent. The report shows true errors,
    because the stream is made up, and says so.
    """
    import shutil
    import tempfile

    from tidegate.config.places import check_output
    from tidegate.config.queries import read_query
    from tidegate.errors import InvalidParameter
    from tidegate.plan.predict import number
    from tidegate.runtime.accuracy import likely_level
    from tidegate.runtime.files import check_report

    settings = read_query(config, query)
    if settings.query.learn is not None:
        raise InvalidParameter(
            "clip",
            "learn",
            "two bounds for a preview, which makes up sums and no single values",
            'write clip = ["0", "100"] in a copy',
        )
    check_output("report", report, [settings])
    check_report(report)
    likely, said = likely_level(settings)
    size = likely if level is None else level
    folder = Path(tempfile.mkdtemp(prefix="tidegate-preview-"))
    try:
        done = run_preview(settings, size, folder, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps(done, indent=2, ensure_ascii=False))
        return
    of = "records of each mean" if settings.query.aggregate == "mean" else "a value"
    typer.echo(f"Made up {done['steps']:,} steps with about {number(size)} {of}, and released them.")
    if done["in_words"]:
        typer.echo(f"{done['in_words']}.")
    if level is None and not said:
        typer.echo("How large values really are is not known: say it with --level.")
    typer.echo(f"The report is in {report}. Nothing was read, and nothing was spent.")
    typer.echo(release_of(config))


def run_preview(config: Config, level: float, folder: Path, report: Path) -> dict[str, Any]:
    """Release made-up steps into a folder that goes away, and write the report."""
    import numpy as np

    from tidegate.runtime import open_stream
    from tidegate.runtime.accuracy import accuracy
    from tidegate.runtime.chunks import joined, latest
    from tidegate.runtime.report import write_report
    from tidegate.runtime.wording import Words

    made = replace(
        config,
        path=folder / config.path.name,
        source=replace(config.source, complete=True),  # made up, so that no clock need close anything
        protect=replace(config.protect, ledger=None),
        sink=replace(config.sink, location="released.csv", format="csv", receipt=None, revisions="auto"),
        steps=config.steps if config.steps.count else replace(config.steps, count=LONGEST),
        about=replace(config.about, title=f"Made up: {Words(config).title}"),
    )
    blocks = list(made_up(made, level))
    truth = made.query.exact_answers(np.concatenate([block.units for block in blocks]) / made.query.ticks)
    with open_stream(made) as stream:
        stream.drive(blocks)
        stream.finish()
        newest = latest(joined(stream.store.chunks(), made.query.width))
        found = accuracy(made, newest)
        errors = np.abs(made.query.answers(newest.values) - truth[: len(newest)])
        write_report(report, made, stream.store, stream.store.verify(), made_up=truth)
    return {
        "steps": len(newest),
        "columns": list(made.query.answer_labels),
        "mean_absolute_error": round(float(np.nanmean(errors)), 4),
        "half_width": None if found is None else found.half,
        "in_words": "" if found is None else Words(made).accuracy(found),
        "report": str(report),
        "guarantee": str(made.guarantee),
    }


def made_up(config: Config, level: float) -> Iterator[StepBlock]:
    """Steps with days, weeks and a rest, around a level."""
    import numpy as np

    from tidegate.config.auto import steps_of_a_day
    from tidegate.ingest import StepBlock
    from tidegate.noise import install
    from tidegate.noise.fixed import FixedEntropy
    from tidegate.plan import Description
    from tidegate.runtime.accuracy import step_seconds

    query = config.query
    season = steps_of_a_day(step_seconds(config))
    described = Description(level=level, columns=len(query.columns), season=season)
    steps = min(config.steps.count or LONGEST, 20_000)
    with install(FixedEntropy("preview")):  # makes up a stream and protects nobody
        values = described.sample(steps, 0)
    units = values * query.ticks
    if query.aggregate == "mean":  # as many records, whose values are in the middle of the clip
        units = np.concatenate([values * 0, values * query.count_weight], axis=1)
    for begin in range(0, steps, 1_000):
        part = units[begin : begin + 1_000]
        yield StepBlock(begin + 1, part, Fraction(query.grid), {"step": begin + len(part), "source": None})
