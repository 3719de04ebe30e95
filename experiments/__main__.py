"""``python -m experiments``, or ``make repro``: the papers' experiments, listed, run and reported."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import run_app
from tidegate.cli.options import SETTINGS, Machine

if TYPE_CHECKING:
    from experiments.runner import Progress, Result

LIST_EXAMPLE = "Example: python -m experiments list"
RUN_EXAMPLE = "Example: python -m experiments run w-event-figure-6 --small"
REPORT_EXAMPLE = "Example: python -m experiments report --results repro-results --page repro.md"
EXAMPLE = RUN_EXAMPLE
RESULTS = Path("repro-results")
Results = Annotated[Path, typer.Option("--results", help="The folder of rows, pictures and judgements.")]

app = typer.Typer(
    help="The papers' experiments: what is claimed, and what the sound implementation gives.",
    epilog=EXAMPLE,
    **SETTINGS,
)


@app.command("list", epilog=LIST_EXAMPLE)
def list_(as_json: Machine = False) -> None:
    """List the experiments with the claims they check."""
    from experiments import experiments

    found = experiments()
    if as_json:
        facts = [{"key": e.key, "claim": e.claim, "data": e.data} for e in found.values()]
        typer.echo(json.dumps(facts, indent=2))
        return
    for experiment in found.values():
        typer.echo(f"{experiment.key}\n    {experiment.claim}")


@app.command("run", epilog=RUN_EXAMPLE)
def run(
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="Which experiments, or the beginning of their names; all by default."),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="A few seconds each, rough numbers.")] = False,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Measure everything anew instead of going on with an interrupted run."),
    ] = False,
    results: Results = RESULTS,
    as_json: Machine = False,
) -> None:
    """Run experiments and keep rows (Parquet), pictures (PNG) and judgements (JSON)."""
    from experiments import experiments
    from experiments.runner import FAILED, run_all
    from tidegate.errors import InvalidParameter
    from tidegate.exact import whole

    whole("workers", workers)
    found = experiments()
    chosen = [e for key, e in found.items() if not keys or any(key.startswith(wanted) for wanted in keys)]
    if not chosen:
        raise InvalidParameter(
            "experiment",
            " ".join(keys or []),
            "one that `python -m experiments list` names",
            "check its name",
        )
    began, load = time.perf_counter(), os.getloadavg()[0]
    with _progress(quiet=as_json) as tell:
        done = run_all(chosen, results, small=small, workers=workers, fresh=fresh, tell=tell)
    if not as_json:  # what a run took belongs to this run, not to the page of its results
        typer.echo(
            f"{len(done)} experiment{'s' * (len(done) != 1)} in {(time.perf_counter() - began) / 60:.1f} minutes with "
            f"{workers} process{'es' * (workers != 1)}, {sum(each.seconds for each in done) / 60:.1f} minutes of "
            f"processor time; the machine's load at the start was {load:.2f}."
        )
    if as_json:
        facts = [
            {"key": r.experiment.key, "result": _in_words(r), "seconds": round(r.seconds, 1)} for r in done
        ]
        typer.echo(json.dumps(facts, indent=2))
    failed = [result.experiment.key for result in done if result.skipped.startswith(FAILED)]
    if failed:
        typer.echo(f"{', '.join(failed)} failed; the others are complete.", err=True)
        raise typer.Exit(1)


@app.command("report", epilog=REPORT_EXAMPLE)
def report(
    results: Results = RESULTS,
    page: Annotated[
        Path, typer.Option(help="The page: Markdown, or self-contained HTML where the name ends in .html.")
    ] = Path("repro.md"),
    pictures: Annotated[str, typer.Option(help="Where a Markdown page finds the pictures.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Judge and draw the kept rows again before reporting.")
    ] = False,
    as_json: Machine = False,
) -> None:
    """Write one page of everything that has been run."""
    from experiments import experiments
    from experiments import report as pages
    from experiments.runner import again as judge_again
    from tidegate.errors import InvalidParameter

    if again:
        for experiment in experiments().values():
            judge_again(experiment, results)

    found = pages.results(results)
    if not found:
        raise InvalidParameter(
            "results", str(results), "a folder with results", "run `python -m experiments run` first"
        )
    text = (
        pages.page(results) if page.suffix == ".html" else pages.markdown(results, pictures or str(results))
    )
    page.write_text(text, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({"page": str(page), "experiments": len(found)}))
    else:
        typer.echo(f"{len(found)} experiments are in {page}.")


def _in_words(result: Result) -> str:
    if result.judgement is None:
        return f"skipped: {result.skipped}"
    return f"{result.judgement.outcome}: {result.judgement.words}"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Results as they come, and on a terminal a line with the share of the work and the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if quiet:
        yield lambda progress: None
        return
    if not console.is_terminal:
        yield _Log().tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    with Bar(*columns, console=console, transient=True, redirect_stdout=True) as bar:
        line = bar.add_task("starting", total=1.0)

        def tell(progress: Progress) -> None:
            _tell(progress)
            bar.update(line, completed=progress.share, description=_how_far(progress))

        yield tell


class _Log:
    """Results as they come, and a line a minute, for runs whose output goes into a file."""

    def __init__(self) -> None:
        self.told = 0.0

    def tell(self, progress: Progress) -> None:
        """Say what there is to say."""
        _tell(progress)
        if progress.seconds >= self.told + 60:
            self.told = progress.seconds
            typer.echo(f"{_minutes(progress.seconds)}: {_how_far(progress)}", err=True)


def _how_far(progress: Progress) -> str:
    return f"{progress.done} of {progress.total} settings, {_minutes(progress.left)} left"


def _tell(progress: Progress) -> None:
    result = progress.result
    if result is None:
        return
    left = f", {_minutes(progress.left)} left" if 0 < progress.share < 1 else ""
    typer.echo(
        f"{result.experiment.key} ({result.seconds:.0f} s of processor time; {progress.done} of {progress.total} "
        f"settings done{left})\n    {_in_words(result)}"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the commands; every failure is one sentence on stderr and an exit code other than 0."""
    return run_app(app, "python -m experiments", arguments)


if __name__ == "__main__":
    sys.exit(main())
