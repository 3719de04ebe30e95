"""``tidegate bench``: the project's comparison of mechanisms on one's own stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import Machine

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tidegate.bench.own_stream import Comparison

EXAMPLE = "Example: tidegate bench counts.csv --public --epsilon 0.1,1 --window 24 --season 24 --out compared"

_FILES = ("compared.csv", "compared.tex", "compared.png")


def bench(
    file: Annotated[Path, typer.Argument(help="One row a step: CSV or Parquet with columns of numbers.")],
    columns: Annotated[str, typer.Option(help="Which columns, as a,b,c; by default all of numbers.")] = "",
    epsilon: Annotated[str, typer.Option(help="Budgets ε, as 0.1,1.")] = "1",
    window: Annotated[str, typer.Option(help="Windows w in steps, as 24,240.")] = "24",
    mechanisms: Annotated[
        str,
        typer.Option(
            help="Names, as Uniform,Tide; module:Class for one of your own; by default all that are known."
        ),
    ] = "",
    max_change: Annotated[str, typer.Option(help="By how much one unit can change one step (Δ).")] = "1",
    grid: Annotated[str, typer.Option(help="The resolution of the values: 1 for counts.")] = "1",
    season: Annotated[int | None, typer.Option(help="Steps of a day, if there are days.")] = None,
    level: Annotated[
        float | None, typer.Option(help="The mean of a value that a plan may know; by default a rough one.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs of each mechanism, at least 2.")] = 20,
    steps: Annotated[int, typer.Option(help="The first so many steps of the file.")] = 10_000,
    out: Annotated[
        Path | None, typer.Option(help="A folder for compared.csv, compared.tex and compared.png.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The file is public data, and so may the errors be.")
    ] = False,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="The noise and the defaults of each paper; nothing is tuned for the stream.",
        ),
    ] = False,
    requirements: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file of units that ask for a smaller ε or a longer window; units of the stream have these "
            "requirements by chance, and mechanisms that follow none have the strictest."
        ),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Compare mechanisms on a stream of your own: errors with intervals over runs, at once and delayed.

    By default each mechanism is a tuned variant: a plan that knows an order of magnitude chooses its parameters and the
    law of its noise, and the oracle's error is that of the best parameters in hindsight. With --as-published it is the
    algorithm of its paper, in the sound calibration. Every parameter is printed and written. The same code makes the
    benchmark of docs/experiments/papers.md. True values are read and errors are printed without noise: unless the data
    are public, what comes out is for the inside only, and says so.
    """
    from tidegate.bench.own_stream import INSIDE, compare
    from tidegate.cli.progress import stages
    from tidegate.errors import InvalidInput, InvalidParameter
    from tidegate.exact import whole
    from tidegate.ingest.requirements import read_requirements
    from tidegate.mechanisms import chosen
    from tidegate.plan.requirements import requirements_of

    runs, steps = whole("runs", runs, least=2), whole("steps", steps)  # one run has no interval
    windows = [_window(word) for word in _words("window", window)]
    epsilons = _words("epsilon", epsilon)
    kinds = chosen(mechanisms)
    if out is not None and file.resolve() in {(out / name).resolve() for name in _FILES}:
        raise InvalidParameter("out", str(out), "another folder than that of the file", "name another")
    values = read_values(file, _words("columns", columns) if columns else [])[:steps]
    with stages(len(kinds) * len(epsilons) * len(windows), quiet=as_json, lines=True) as tell:
        found = compare(
            values,
            kinds,
            epsilons=epsilons,
            windows=windows,
            max_change=max_change,
            grid=grid,
            season=season,
            level=level,
            runs=runs,
            public=public,
            as_published=as_published,
            requirements=None
            if requirements is None
            else lambda least: requirements_of(read_requirements(requirements, least)),
            tell=tell,
        )
    if not found.rows:
        raise InvalidParameter(
            "mechanisms", mechanisms, "such as can run under w-event privacy", "name others, or none for all"
        )
    written = []
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            found.write_csv(out / "compared.csv")
            found.write_latex(out / "compared.tex")
            found.draw(out / "compared.png")
        except OSError as error:
            raise InvalidInput(f"{out} cannot be written: {error.strerror}.") from None
        written = [str(out / name) for name in _FILES]
    if as_json:
        facts = {"inside_only": not public, **found.facts, "rows": found.rows, "files": written}
        typer.echo(json.dumps(facts, indent=1))
        return
    _print(found)
    if requirements is not None:
        typer.echo(
            "strictest: with the smallest ε and the longest window of all requirements, for every unit."
        )
    for name in written:
        typer.echo(f"Wrote {name}.")
    if not public:
        typer.echo(INSIDE)


def _words(name: str, text: str) -> list[str]:
    from tidegate.errors import InvalidParameter

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidParameter(name, text, "one or several, with commas", f"write for example --{name} 1,2")
    return words


def _window(word: str) -> int:
    from tidegate.errors import InvalidParameter
    from tidegate.exact import whole

    if not word.isdigit():
        raise InvalidParameter("window", word, "a whole number of steps", "write for example --window 24,240")
    return whole("window", int(word))


def read_values(file: Path, columns: list[str]) -> npt.NDArray[np.float64]:
    """Columns of numbers of a file, steps × columns."""
    import polars as pl

    from tidegate.cli.tables import read_table
    from tidegate.config.writer import header_separator
    from tidegate.errors import InvalidInput, InvalidParameter
    from tidegate.naming import listed

    if not file.is_file():
        raise InvalidParameter("file", str(file), "a file that exists", "check its name")
    frame = read_table(file, "give one row a step", header_separator(file))
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    for name in columns:
        if name not in numbers:
            raise InvalidParameter(
                "columns",
                name,
                "the name of a column of numbers",
                f"choose from {listed(numbers) or 'none'}",
            )
    wanted = columns or [name for name in numbers if name != "step"]
    if not wanted or not frame.height:
        raise InvalidInput(
            f"{file} has no column of numbers with a decimal point, or no row; give one row a step."
        )
    return frame.select(pl.col(wanted).cast(pl.Float64).fill_null(float("nan"))).to_numpy()


def _print(found: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table

    from tidegate.plan.predict import number

    console = Console()
    for setting in found.settings():
        epsilon, window, statistic = setting
        table = Table(title=f"ε = {epsilon}, w = {window}, {statistic}", title_justify="left")
        table.add_column("mechanism")
        for name in ("error", "±", "relative", "oracle", "runs", "seconds"):
            table.add_column(name, justify="right")
        for row in found.of(setting):
            table.add_row(
                row["mechanism"],
                number(row["error"]),
                number(row["half"]),
                f"{row['relative']:.1%}",
                number(row["oracle"]),
                str(row["runs"]),
                f"{row['seconds']:.2g}",
            )
        console.print(table)
        for row in found.of(setting):
            best = "" if found.facts["as_published"] else f"; oracle: {row['oracle_parameters']}"
            typer.echo(f"{row['mechanism']}: {row['parameters']}{best}")
    typer.echo("; ".join(f"{name} = {value}" for name, value in found.facts.items()))
    typer.echo(
        "as_published: the noise and the defaults of each paper, nothing tuned for the stream; oracle = error."
        if found.facts["as_published"]
        else "Tuned variants: a plan chose parameters and the law of noise; --as-published has the papers' algorithms."
    )
    typer.echo(
        "error: mean absolute error of one value, ± half of its 95 % interval; seconds: processor time of one run; "
        "relative: the mean of error over value, or over 0.1 % of a step's total where the value is smaller; "
        "oracle: with the best parameters in hindsight; delayed: values that came later. Releases below 0 count as 0."
    )
