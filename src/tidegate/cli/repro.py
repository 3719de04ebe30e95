"""``tidegate repro``: the papers' experiments, listed, run and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

LIST_EXAMPLE = "Example: tidegate repro list"
RUN_EXAMPLE = "Example: tidegate repro run w-event-figure-6 --small"
REPORT_EXAMPLE = "Example: tidegate repro report --results repro-results --page repro.md"
EXAMPLE = RUN_EXAMPLE
RESULTS = Path("repro-results")
Machine = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Results = Annotated[Path, typer.Option("--results", help="The folder of rows, pictures and judgements.")]

app = typer.Typer(
    help="The papers' experiments: what is claimed, and what the sound implementation gives.",
    epilog=EXAMPLE,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list", epilog=LIST_EXAMPLE)
def list_(as_json: Machine = False) -> None:
    """List the experiments with the claims they check."""
    from tidegate.repro import experiments

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
    results: Results = RESULTS,
    as_json: Machine = False,
) -> None:
    """Run experiments and keep rows (Parquet), pictures (PNG) and judgements (JSON)."""
    from tidegate.errors import InvalidParameter
    from tidegate.exact import whole
    from tidegate.repro import experiments
    from tidegate.repro.runner import run as run_one

    whole("workers", workers)
    found = experiments()
    chosen = [e for key, e in found.items() if not keys or any(key.startswith(wanted) for wanted in keys)]
    if not chosen:
        raise InvalidParameter(
            "experiment", " ".join(keys or []), "one that `tidegate repro list` names", "check its name"
        )
    facts = []
    for experiment in chosen:
        with _progress(experiment.key, quiet=as_json) as tell:
            result = run_one(experiment, results, small=small, workers=workers, tell=tell)
        words = (
            f"skipped: {result.skipped}"
            if result.judgement is None
            else f"{result.judgement.outcome}: {result.judgement.words}"
        )
        facts.append({"key": experiment.key, "result": words, "seconds": round(result.seconds, 1)})
        if not as_json:
            typer.echo(f"{experiment.key} ({result.seconds:.0f} s)\n    {words}")
    if as_json:
        typer.echo(json.dumps(facts, indent=2))


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
    from tidegate.errors import InvalidParameter
    from tidegate.repro import experiments
    from tidegate.repro import report as pages
    from tidegate.repro.runner import again as judge_again

    if again:
        for experiment in experiments().values():
            judge_again(experiment, results)

    found = pages.results(results)
    if not found:
        raise InvalidParameter(
            "results", str(results), "a folder with results", "run `tidegate repro run` first"
        )
    text = (
        pages.page(results) if page.suffix == ".html" else pages.markdown(results, pictures or str(results))
    )
    page.write_text(text, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({"page": str(page), "experiments": len(found)}))
    else:
        typer.echo(f"{len(found)} experiments are in {page}.")


def _progress(name: str, *, quiet: bool):  # type: ignore[no-untyped-def]  # a context manager of a callable
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def shown():  # type: ignore[no-untyped-def]
        console = Console(stderr=True)
        if quiet or not console.is_terminal:
            yield lambda words, done, total: None
            return
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(name, total=None)
            yield lambda words, done, total: progress.update(task, completed=done, total=total)

    return shown()
