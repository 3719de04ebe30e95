"""``tidegate demo``: a made-up campus, released hour by hour."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following
from tidegate.cli.tables import facts_table, plain_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tidegate.datasets.streams import Events
    from tidegate.releases import Releases

OUT = Path("tidegate-demo")
EXAMPLE = "Example: tidegate demo --out week --weeks 1 --epsilon 1/2 --window 12"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the files; made if it is absent.")] = OUT,
    weeks: Annotated[int, typer.Option(help="Weeks of the made-up stream.")] = 4,
    epsilon: Annotated[str, typer.Option(help='Budget of any window, exact: "1", "0.5" or "1/3".')] = "1",
    window: Annotated[int, typer.Option(help="Hours that are protected together (w).")] = 24,
    as_json: Machine = False,
) -> None:
    """Release the occupancy of a made-up campus under w-event privacy and draw it.

    Thousands of made-up devices are seen in six buildings. Each counts at most once an hour; the hourly
    counts are released with noise, by the mechanism that a configuration gets by default (Tide) and, for
    comparison, by plain noise on every hour (Uniform), and the privacy account is checked. Writes
    campus_events.parquet, released.csv and demo.png.
    """
    report = run_demo(out, weeks, epsilon, window, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)
    if not report["ledger_ok"]:
        raise typer.Exit(1)


def run_demo(out: Path, weeks: int, epsilon: str, window: int, *, quiet: bool) -> dict[str, Any]:
    """Make up the stream, bound, release, verify, write; returns what there is to say about it."""
    from tidegate.cli.progress import stages
    from tidegate.config.auto import choose
    from tidegate.core.log import MemoryLog
    from tidegate.core.session import open as open_session
    from tidegate.core.verify import verify
    from tidegate.exact import whole
    from tidegate.ingest import Contributions
    from tidegate.mechanisms import Uniform
    from tidegate.policy import WEvent

    window = whole("window", window)
    weeks = whole("weeks", weeks, most=52)
    policy = WEvent(epsilon=epsilon, window=window)
    out.mkdir(parents=True, exist_ok=True)
    files = {name: out / name for name in ("campus_events.parquet", "released.csv", "demo.png")}
    with stages(5, quiet=quiet) as begin:
        begin("making up a campus")
        watch = _Stopwatch()
        from tidegate.datasets.streams import campus

        events = campus(weeks=weeks)
        columns = len(events.names)
        watch.stop("stream")

        begin("bounding contributions")
        hourly = Contributions(start=events.start, length=events.length, steps=events.steps, columns=columns)
        counts = hourly.count(events.units, events.columns, events.times)
        everywhere = replace(hourly, most=columns).count(events.units, events.columns, events.times)
        watch.stop("bounding")

        begin("trying the mechanisms on zeros")
        mechanism = choose(
            policy, columns, Fraction(1), "refuse", Fraction(events.length), None, nonnegative=True
        )
        plain = Uniform(policy, columns=columns)
        for one in (mechanism, plain):
            open_session(one).push_batch(counts * 0)  # of its own, on zeros, that publishes nothing
        watch.stop("compiling")

        begin("releasing")
        log = MemoryLog()
        releases = open_session(mechanism, log).push_batch(counts)
        watch.stop("releasing")
        verified = verify(log.rows())
        # a second release would cost a second budget; this one is of made-up data, and is shown to compare
        rival = open_session(plain).push_batch(counts)

        begin("writing files and the picture")
        from tidegate.cli.demo_picture import draw_demo

        _write(events, releases, files["campus_events.parquet"], files["released.csv"])
        draw_demo(events, counts, releases, policy, files["demo.png"])
    return {
        **_report(events, counts, releases, rival),
        "mechanism": type(mechanism).__name__,
        "rival": type(plain).__name__,
        "kept_by_bounding": round(float(counts.sum() / everywhere.sum()), 4),
        "expected_error": round(float(plain.expected_error()), 2),
        "guarantee": str(mechanism.guarantee),
        "ledger": str(verified),
        "ledger_ok": verified.ok,
        "seconds": watch.seconds,
        "files": [str(file) for file in files.values()],
    }


class _Stopwatch:
    """A stopwatch that files what it measured under names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.begun = time.perf_counter()

    def stop(self, name: str) -> None:
        """File the time since the last stop."""
        now = time.perf_counter()
        self.seconds[name] = round(now - self.begun, 4)
        self.begun = now


def _report(
    events: Events, counts: npt.NDArray[np.int64], releases: Releases, rival: Releases
) -> dict[str, Any]:
    """What is said at the end. The stream is made up, so its true counts may be shown."""
    import numpy as np

    errors, others = np.abs(releases.values - counts), np.abs(rival.values - counts)
    buildings = {
        name: {
            "mean_true": round(float(counts[:, column].mean()), 1),
            "mean_absolute_error": round(float(errors[:, column].mean()), 1),
            "rival_absolute_error": round(float(others[:, column].mean()), 1),
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
        "rival_absolute_error": round(float(others.mean()), 2),
        "relative_error": round(float(errors.sum() / max(counts.sum(), 1)), 4),
        "buildings": buildings,
    }


def _write(events: Events, releases: Releases, events_file: Path, released_file: Path) -> None:
    """Write the made-up events, which a curator would never publish, and the releases, which are public."""
    import numpy as np
    import polars as pl

    from tidegate.exact import show

    times = pl.from_epoch("time", time_unit="s")
    building = pl.Series(events.names, dtype=pl.Enum(events.names)).gather(events.columns)
    seen = pl.DataFrame({"device": events.units, "building": building, "time": events.times})
    seen.with_columns(times).write_parquet(events_file)
    hours = events.start + np.arange(events.steps) * events.length
    low, high = releases.interval()
    columns = {}
    for column, name in enumerate(events.names):
        columns[name] = np.rint(releases.values[:, column]).astype(np.int64)
    for column, name in enumerate(events.names):
        columns[f"{name} low"] = np.maximum(np.floor(low[:, column]), 0).astype(np.int64)
        columns[f"{name} high"] = np.ceil(high[:, column]).astype(np.int64)
    spent = [show(int(units) * releases.unit) for units in releases.units]
    pl.DataFrame({"time": hours, **columns, "scale": releases.scale, "spent": spent}).with_columns(
        times
    ).write_csv(released_file, datetime_format="%Y-%m-%dT%H:%MZ")


def _show(report: dict[str, Any]) -> None:
    """The report for people."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        f"{report['events']:,} sightings of {report['devices']:,} made-up devices "
        f"→ {report['steps']:,} hours × {report['columns']} buildings; "
        f"each device counts once an hour, where it is first seen (keeps {report['kept_by_bounding']:.0%}).\n"
    )
    errors_of = (f"error, {report['rival']}", f"error, {report['mechanism']}")
    table = plain_table("building", "devices an hour", *errors_of, "relative", left=("building",))
    for name, row in report["buildings"].items():
        relative = f"{row['relative_error']:.1%}"
        errors = (f"{row[name]:.1f}" for name in ("rival_absolute_error", "mean_absolute_error"))
        table.add_row(name, f"{row['mean_true']:,.0f}", *errors, relative)
    table.add_section()
    overall = f"{report['relative_error']:.1%}"
    errors = (f"{report[name]:.1f}" for name in ("rival_absolute_error", "mean_absolute_error"))
    table.add_row("all", "", *errors, overall, style="bold")
    console.print(table)
    console.print(
        f"\n{report['rival']} adds noise to every hour, and its error is predicted to be {report['expected_error']:.1f}; "
        f"{report['mechanism']} has learned days and weeks from its own releases. Both keep the same promise.\n"
        f"released.csv and demo.png are by {report['mechanism']}. The true counts may be shown because this stream is "
        "made up.",
        soft_wrap=True,
    )
    console.print()
    facts = facts_table()
    facts.add_row("Guarantee", report["guarantee"])
    facts.add_row("Ledger", report["ledger"])
    facts.add_row(
        "Time", ", ".join(f"{name} {1000 * seconds:,.0f} ms" for name, seconds in report["seconds"].items())
    )
    for number, file in enumerate(report["files"]):
        facts.add_row("" if number else "Files", file)
    console.print(facts)
    typer.echo("\n" + following("tidegate", "datasets", "make", "campus", "--out", "campus", "--weeks", 1))
