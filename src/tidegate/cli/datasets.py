"""``tidegate datasets``: made-up streams to try things on, and public ones that a user has downloaded."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.options import SETTINGS, Machine
from tidegate.cli.progress import release_of, stages

LIST_EXAMPLE = "Example: tidegate datasets list"
MAKE_EXAMPLE = "Example: tidegate datasets make campus --out campus --weeks 1"
LOAD_EXAMPLE = "Example: tidegate datasets load nyc-taxi yellow_tripdata_2024-01.parquet --out taxi"

app = typer.Typer(
    help="Sample streams: make one, or load a public one that you have downloaded.",
    epilog=MAKE_EXAMPLE,
    **SETTINGS,
)


@app.command("list", epilog=LIST_EXAMPLE)
def list_(as_json: Machine = False) -> None:
    """List the streams that can be made or loaded."""
    from tidegate.datasets.downloads import DOWNLOADS

    found = [
        {
            "name": "campus",
            "how": "make",
            "about": "devices in the buildings of a made-up campus",
            "publisher": "",
        }
    ]
    found += [
        {"name": one.name, "how": "load", "about": one.about, "publisher": one.publisher}
        for one in DOWNLOADS.values()
    ]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for one in found:
        where = f" ({one['publisher']})" if one["publisher"] else ""
        typer.echo(f"{one['how']}  {one['name']:<10} {one['about']}{where}")


@app.command("make", epilog=MAKE_EXAMPLE)
def make(
    name: Annotated[str, typer.Argument(help="The stream; see `tidegate datasets list`.")] = "campus",
    out: Annotated[Path, typer.Option(help="Folder for the files; made if it is absent.")] = Path("campus"),
    weeks: Annotated[int, typer.Option(help="Weeks of the stream.")] = 4,
    devices: Annotated[int, typer.Option(help="Number of devices.")] = 6000,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    as_json: Machine = False,
) -> None:
    """Make up a stream: events, and a configuration that releases them."""
    from tidegate.errors import InvalidParameter
    from tidegate.exact import whole

    if name != "campus":
        raise InvalidParameter("name", name, "campus", "see `tidegate datasets list`")
    if format not in ("csv", "parquet"):
        raise InvalidParameter("format", format, "csv or parquet", "write --format csv")
    weeks, devices = whole("weeks", weeks, most=52), whole("devices", devices, most=1_000_000)
    with stages(2, quiet=as_json) as begin:
        begin("making up a campus")
        from tidegate.datasets.downloads import configuration
        from tidegate.datasets.streams import campus

        events = campus(weeks=weeks, devices=devices)
        begin("writing events")
        import polars as pl

        frame = pl.DataFrame(
            {
                "time": pl.from_epoch(pl.Series("time", events.times), time_unit="s"),
                "device": events.units,
                "building": pl.Series(events.names, dtype=pl.Enum(events.names)).gather(events.columns),
            }
        )
        start = datetime.datetime.fromtimestamp(events.start, datetime.UTC).date()
        query = f'aggregate = "distinct"\ncolumns = {json.dumps(events.names)}'
        columns = {"unit": "device", "column": "building"}
        config = configuration(f"events.{format}", columns, start, "1h", events.steps, query)
        files = _write(out, frame, format, config)
    _tell({"name": name, "rows": len(frame), "files": files}, as_json)


@app.command("load", epilog=LOAD_EXAMPLE)
def load(
    name: Annotated[str, typer.Argument(help="The stream; see `tidegate datasets list`.")],
    file: Annotated[Path, typer.Argument(help="The file that you have downloaded.")],
    out: Annotated[Path, typer.Option(help="Folder for the files; made if it is absent.")] = Path("dataset"),
    as_json: Machine = False,
) -> None:
    """Turn a downloaded public stream into events, with a configuration that releases them."""
    from tidegate.datasets.downloads import DOWNLOADS
    from tidegate.errors import InvalidInput, InvalidParameter
    from tidegate.ingest.errors import attempt

    if name not in DOWNLOADS:
        raise InvalidParameter("name", name, "one of " + ", ".join(DOWNLOADS), "see `tidegate datasets list`")
    if not file.is_file():
        raise InvalidInput(
            f"there is no file {str(file)!r}; download it first (`tidegate datasets list` says where)."
        )
    with stages(1, quiet=as_json) as begin:
        begin("reading")
        refusal = InvalidInput(f"{file.name!r} cannot be read as {name}; is it the file of this dataset?")
        frame, config = attempt(lambda: DOWNLOADS[name].read(file), refusal)
        files = _write(out, frame, "parquet", config)
    _tell({"name": name, "rows": len(frame), "files": files}, as_json)


def _write(out: Path, frame: Any, format: str, config: str) -> list[str]:
    """Write events and configuration into a folder that has none."""
    from tidegate.errors import InvalidInput

    out.mkdir(parents=True, exist_ok=True)
    events, settings = out / f"events.{format}", out / "tidegate.toml"
    for path in (events, settings):
        if path.exists():
            raise InvalidInput(f"{path} is there already; name another folder with --out, or move it away.")
    if format == "csv":
        frame.write_csv(events, datetime_format="%Y-%m-%dT%H:%M:%SZ")
    else:
        frame.write_parquet(events)
    settings.write_text(config, encoding="utf-8")
    return [str(events), str(settings)]


def _tell(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(done, indent=2))
        return
    config = Path(done["files"][1])
    typer.echo(f"Wrote {done['rows']:,} rows to {done['files'][0]}, and a configuration that releases them.")
    typer.echo(release_of(config))
