"""``tidegate demo``: a made-up campus, released hour by hour."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tidegate.releases import Releases
    from tidegate.testing.streams import Events

EXAMPLE = "Example: tidegate demo --out week --weeks 1 --epsilon 1/2 --window 12"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the files; made if it is absent.")] = Path(
        "tidegate-demo"
    ),
    weeks: Annotated[int, typer.Option(help="Weeks of the made-up stream.")] = 4,
    epsilon: Annotated[str, typer.Option(help='Budget of any window, exact: "1", "0.5" or "1/3".')] = "1",
    window: Annotated[int, typer.Option(help="Hours that are protected together (w).")] = 24,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Release the occupancy of a made-up campus under w-event privacy and draw it.

    Thousands of made-up devices are seen in six buildings. Each counts at most once an hour; the hourly
    counts are released with noise, and the privacy account is checked. Writes campus_events.parquet,
    released.csv and demo.png.
    """
    from tidegate.cli.progress import stages
    from tidegate.exact import whole
    from tidegate.ingest import Contributions
    from tidegate.mechanisms import Uniform
    from tidegate.policy import WEvent

    window = whole("window", window)
    weeks = whole("weeks", weeks, most=52)
    policy = WEvent(epsilon=epsilon, w=window)
    out.mkdir(parents=True, exist_ok=True)

    seconds: dict[str, float] = {}
    with stages(5, quiet=as_json) as begin:
        begin("making up a campus")
        from tidegate.testing.streams import campus

        events = campus(weeks=weeks)

        begin("bounding contributions")
        clock = _Stopwatch(seconds)
        hourly = Contributions(
            start=events.start, length=events.length, steps=events.steps, columns=len(events.names)
        )
        counts = hourly.count(events.units, events.columns, events.times)
        clock.stop("bound")

        begin("compiling the noise (first time only)")
        mechanism = Uniform(policy, columns=len(events.names))
        mechanism.start().push_batch(counts[:1] * 0)  # a run of its own on zeros: compiles, releases nothing
        clock.stop("compile")

        begin("releasing")
        run = mechanism.start()
        releases = run.push_batch(counts)
        clock.stop("release")
        verdict = run.ledger.verify()

        begin("writing files and the picture")
        from tidegate.cli.pictures import draw_demo

        files = [out / "campus_events.parquet", out / "released.csv", out / "demo.png"]
        _write(events, releases, files[0], files[1])
        draw_demo(events, counts, releases, policy, files[2])

    report = _report(events, counts, releases, mechanism.expected_error())
    report |= {"guarantee": str(mechanism.guarantee), "ledger": str(verdict), "ledger_ok": verdict.ok}
    report |= {"seconds": {name: round(value, 3) for name, value in seconds.items()}}
    report |= {"files": [str(file) for file in files]}
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)
    if not verdict.ok:
        raise typer.Exit(1)


class _Stopwatch:
    """A stopwatch that files what it measured under names."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self.begun = time.perf_counter()

    def stop(self, name: str) -> None:
        """File the time since the last stop."""
        now = time.perf_counter()
        self.seconds[name] = now - self.begun
        self.begun = now


def _report(
    events: Events, counts: npt.NDArray[np.int64], releases: Releases, expected: float
) -> dict[str, Any]:
    """What is said at the end. The stream is made up, so its true counts may be shown."""
    import numpy as np

    errors = np.abs(releases.values - counts)
    buildings = {
        name: {
            "mean_true": round(float(counts[:, column].mean()), 1),
            "mean_absolute_error": round(float(errors[:, column].mean()), 1),
            "relative_error": round(float(errors[:, column].sum() / max(counts[:, column].sum(), 1)), 4),
        }
        for column, name in enumerate(events.names)
    }
    return {
        "events": len(events),
        "devices": len(np.unique(events.units)),
        "steps": events.steps,
        "columns": len(events.names),
        "mean_absolute_error": round(float(errors.mean()), 2),
        "expected_error": round(float(expected), 2),
        "relative_error": round(float(errors.sum() / max(counts.sum(), 1)), 4),
        "buildings": buildings,
    }


def _write(events: Events, releases: Releases, events_file: Path, released_file: Path) -> None:
    """Write the made-up events, which a curator would never publish, and the releases, which are public."""
    import numpy as np
    import polars as pl

    times = pl.from_epoch("time", time_unit="s")
    names = np.array(events.names)
    building = pl.Series("building", events.columns).cast(pl.UInt8)
    pl.DataFrame({"device": events.units, "building": names[building], "time": events.times}).with_columns(
        times, pl.col("building").cast(pl.Categorical)
    ).write_parquet(events_file)
    hours = events.start + np.arange(events.steps) * events.length
    columns = {name: releases.values[:, column] for column, name in enumerate(events.names)}
    pl.DataFrame({"time": hours, **columns, "scale": releases.scale, "spent": releases.spent}).with_columns(
        times
    ).write_csv(released_file, datetime_format="%Y-%m-%dT%H:%MZ")


def _show(report: dict[str, Any]) -> None:
    """The report for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"{report['events']:,} sightings of {report['devices']:,} made-up devices "
        f"→ {report['steps']:,} hours × {report['columns']} buildings; "
        "each device counts at most once an hour.\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("building")
    for heading in ("devices an hour", "mean error", "relative"):
        table.add_column(heading, justify="right")
    for name, row in report["buildings"].items():
        relative = f"{row['relative_error']:.1%}"
        table.add_row(name, f"{row['mean_true']:,.0f}", f"{row['mean_absolute_error']:.1f}", relative)
    table.add_section()
    overall = f"{report['relative_error']:.1%}"
    table.add_row("all", "", f"{report['mean_absolute_error']:.1f}", overall, style="bold")
    console.print(table)
    console.print(
        f"\nPredicted mean error {report['expected_error']:.1f}. "
        "The true counts may be shown because this stream is made up.",
    )
    console.print(f"\n[bold]Guarantee[/]  {report['guarantee']}")
    console.print(f"[bold]Ledger[/]     {report['ledger']}")
    seconds = report["seconds"]
    console.print(
        f"[bold]Time[/]       bounding {seconds['bound']:.2f} s, compiling {seconds['compile']:.2f} s, "
        f"releasing {1000 * seconds['release']:.1f} ms"
    )
    console.print("[bold]Files[/]      " + ", ".join(report["files"]), soft_wrap=True)
