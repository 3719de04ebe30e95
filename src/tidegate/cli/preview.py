"""``tidegate preview``: the whole way on made-up numbers, which costs nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import release_of

if TYPE_CHECKING:
    from tidegate.config import Config, Queries
    from tidegate.ingest import StepBlock

EXAMPLE = "Example: tidegate preview tidegate.toml --level 300 --report preview.html"
LONGEST = 2_000  # steps that are made up where the stream has no end


def preview(
    config: Annotated[Path, typer.Argument(help="The configuration.")],
    query: Annotated[
        str | None, typer.Option(help="Which of several queries is shown; all by default.")
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="The mean of one column and step, roughly; of a mean, how many records. By default what the stream has "
            "released, the level of the configuration, or what a hundred units add at most."
        ),
    ] = None,
    report: Annotated[Path, typer.Option(help="The report of the made-up stream.")] = Path("preview.html"),
    as_json: Machine = False,
) -> None:
    """Release a made-up stream under a configuration, and write the report that the real one would have.

    Neither source nor sink is touched, and of the log only what was released is read: nothing is spent. The report shows
    true errors, because the stream is made up, and says so.
    """
    import shutil
    import tempfile

    from tidegate.config import read_queries
    from tidegate.config.file_conflicts import check_output
    from tidegate.config.queries import Queries, read_query
    from tidegate.errors import InvalidParameter
    from tidegate.plan.predict import number
    from tidegate.report.accuracy import likely_level
    from tidegate.sinks.file_writing import check_report

    queries = stream = read_queries(config)
    if query is not None or queries.first.edition:  # editions of a step show the same numbers several times
        part = read_query(config, query)
        queries = Queries((part,), part.policy, listed=False)
    if any(part.query.learn is not None for part in queries.parts):
        raise InvalidParameter(
            "clip",
            "learn",
            "two bounds for a preview, which makes up sums and no single values",
            'write clip = ["0", "100"] in a copy',
        )
    check_output("report", report, queries.parts)
    check_report(report)
    likely = [released_level(stream, part) or likely_level(part) for part in queries.parts]
    sizes = [size if level is None else level for size, _ in likely]
    folder = Path(tempfile.mkdtemp(prefix="tidegate-preview-"))
    try:
        done = run_preview(queries, sizes, folder, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps(done, indent=2, ensure_ascii=False))
        return
    if queries.listed:
        typer.echo(f"Made up {done['steps']:,} steps of {len(queries.parts)} statistics, and released them.")
        for part, size in zip(queries.parts, sizes, strict=True):
            words = done["queries"][part.name]["in_words"]
            typer.echo(
                f"{part.name}, about {number(size)}: {words}." if words else f"{part.name}: no interval."
            )
    else:
        of = "records of each mean" if queries.first.query.aggregate == "mean" else "a value"
        typer.echo(f"Made up {done['steps']:,} steps with about {number(sizes[0])} {of}, and released them.")
        if done["in_words"]:
            typer.echo(f"{done['in_words']}.")
    if level is None and not all(said for _, said in likely):
        how = "in each [[query]] with level" if queries.listed else "with --level"
        typer.echo(f"How large values really are is not known: say it {how}.")
    typer.echo(f"The report is in {report}. No record was read, and nothing was spent.")
    typer.echo(release_of(config))


def released_level(queries: Queries, part: Config) -> tuple[float, bool] | None:
    """A typical number that the stream has released, and that it is known; None where there is none."""
    import numpy as np

    from tidegate.cli.plan import released_values

    if part.query.aggregate in ("mean", "quantile"):  # which are not what is made up
        return None
    values = released_values(queries, part.name)
    level = 0.0 if values is None else float(np.median(values.mean(axis=0)))
    return (level, True) if level > 0 else None


def run_preview(queries: Queries, levels: Sequence[float], folder: Path, report: Path) -> dict[str, Any]:
    """Release made-up steps into a folder that goes away, and write the report."""
    import numpy as np

    from tidegate.pipeline import open_pipeline
    from tidegate.report.accuracy import accuracy
    from tidegate.report.report import released_numbers, write_report
    from tidegate.report.wording import Words, title_of_all

    title = f"Made up: {title_of_all(queries.parts)}"
    made = replace(queries, parts=tuple(_made(part, folder, title) for part in queries.parts))
    blocks = dict(zip((part.name for part in made.parts), made_up(made.parts, levels), strict=True))
    truth = [
        part.query.exact_answers(
            part.mechanism.ideal(
                np.concatenate([block.units for block in blocks[part.name]]) / part.query.ticks
            )
        )
        for part in made.parts
    ]
    with open_pipeline(made) as pipeline:
        (edition,) = pipeline.editions
        for together in zip(*(blocks[part.name] for part in edition), strict=True):
            pipeline.process(edition, together)
        pipeline.finish()
        released = [pipeline.released[part.name] for part in made.parts]
        write_report(report, released, pipeline.verify(), made_up=truth)
        numbers = released_numbers(released)
    facts = {}
    for part, each, true in zip(made.parts, numbers, truth, strict=True):
        found = accuracy(part, each.newest)
        errors = np.abs(each.answers - true[: len(each.newest)])
        facts[part.name] = {
            "columns": list(part.query.answer_labels),
            "mean_absolute_error": round(float(np.nanmean(errors)), 4),
            "half_width": None if found is None else found.half,
            "in_words": "" if found is None else Words(part).accuracy(found),
        }
    own = {"queries": facts} if made.listed else facts[made.first.name]
    return {
        "steps": len(numbers[0].newest),
        **own,
        "report": str(report),
        "guarantee": made.guarantee,
    }


def _made(config: Config, folder: Path, title: str) -> Config:
    """A configuration whose source, ledger and files are in another folder."""
    return replace(
        config,
        path=folder / config.path.name,
        source=replace(config.source, complete=True),  # made up, so that no clock need close anything
        protect=replace(config.protect, ledger=None),
        run=replace(config.run, archives=None),
        sink=replace(
            config.sink,
            location=f"{config.name or 'released'}.csv",
            format="csv",
            receipt=None,
            revisions="auto",
        ),
        answers=tuple(
            replace(answer, location=f"answer-{answer.name}{Path(answer.location).suffix}")
            for answer in config.answers
        ),
        steps=config.steps if config.steps.count else replace(config.steps, count=LONGEST),
        about=replace(config.about, title=title),
    )


def made_up(parts: Sequence[Config], levels: Sequence[float]) -> list[list[StepBlock]]:
    """Steps with days, weeks and a rest, around a level, for each query; together they contradict nothing."""
    import numpy as np

    from tidegate.config.auto import steps_of_a_day
    from tidegate.config.relations import relations, signs
    from tidegate.errors import InvalidParameter
    from tidegate.ingest import StepBlock
    from tidegate.noise import install
    from tidegate.noise.fixed import FixedEntropy
    from tidegate.plan import Description
    from tidegate.plan.requirements import divided
    from tidegate.queries.relations import adjusted
    from tidegate.report.accuracy import step_seconds

    if any(part.query.discovers for part in parts):
        raise InvalidParameter(
            "columns",
            "discover",
            "a list for a preview, which makes up numbers and no names",
            "see docs/howto/discover.md for what a plan says of categories that are found",
        )
    season = steps_of_a_day(step_seconds(parts[0]))
    steps = min(parts[0].steps.count or LONGEST, 20_000)
    with install(FixedEntropy("preview")):  # makes up a stream and protects nobody
        values = [
            Description(level=level, columns=len(part.query.columns), season=season).sample(steps, number)
            for number, (part, level) in enumerate(zip(parts, levels, strict=True))
        ]
    known = relations(parts)
    if known:
        nonnegative = [sign for part in parts for sign in signs(part)]
        widths = [len(part.query.answer_labels) for part in parts]
        same = [value.shape[1] == width for value, width in zip(values, widths, strict=True)]
        # what is made up of a mean are records, and its answers are no counts: they are in no relation
        shown = [
            value.astype(np.float64) if fits else np.full((steps, width), np.nan)
            for value, width, fits in zip(values, widths, same, strict=True)
        ]
        together = adjusted(np.concatenate(shown, axis=1), known, nonnegative)
        kept = np.split(together, np.cumsum(widths)[:-1], axis=1)
        values = [
            np.floor(each).astype(np.int64) if fits else value
            for value, each, fits in zip(values, kept, same, strict=True)
        ]
    found = []
    for part, value in zip(parts, values, strict=True):
        query = part.query
        units = divided(part.mechanism, value) * query.ticks
        if query.aggregate == "mean":  # as many records, whose values are in the middle of the clip
            units = np.concatenate([value * 0, value * query.count_weight], axis=1)
        found.append(
            [
                StepBlock(
                    begin + 1,
                    np.ascontiguousarray(units[begin : begin + 1_000]),
                    Fraction(query.grid),
                    {"step": min(begin + 1_000, steps), "source": None},
                )
                for begin in range(0, steps, 1_000)
            ]
        )
    return found
