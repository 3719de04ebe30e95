"""A made-up campus, live: devices that do not exist, on a clock that runs fast."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.config import parse_config
from tidegate.config.queries import one
from tidegate.datasets.streams import Events, campus
from tidegate.pipeline import open_pipeline
from tidegate.web.service import Settings, serve
from tidegate.web.tokens import Tokens

WEEKS = 4
PAST = 14 * 24  # hours that have passed when it begins
LATENESS = 900  # made-up seconds
TEXT = """\
[source]
location = "{location}"
time = "time"
unit = "device"
column = "building"
follow = {follow}

[steps]
start = "{start}"
length = "1h"
zone = "Europe/Berlin"
lateness = {lateness}
catch_up = 1000000
{count}

[query]
aggregate = "distinct"
columns = {columns}

[protect]
policy = "w-event"
epsilon = "1"
window = 24
ledger = "campus.ledger"

[mechanism]
name = "Tide"
periods = [24, 168]
"""
# west, south, east, north of each building, in thousandths of a degree from a corner of the made-up campus
PLACES = {
    "Lecture halls": (0.0, 0.0, 4.0, 2.2),
    "Library": (4.6, 0.0, 7.2, 1.2),
    "Cafeteria": (4.6, 1.5, 7.2, 2.2),
    "Laboratories": (0.0, 2.6, 3.0, 4.5),
    "Residence": (3.6, 2.6, 7.2, 4.5),
    "Sports centre": (8.0, 1.6, 10.2, 3.4),
}


class FastClock:
    """Public time of a made-up stream: it begins at a moment and runs so many times as fast.

    Parameters
    ----------
    begin
        Seconds since 1970.
    speed
        Made-up seconds in a second.
    """

    def __init__(self, begin: float, speed: float) -> None:
        self.begin, self.speed = begin, speed
        self._since = time.monotonic()

    def __call__(self) -> float:
        """Seconds since 1970, as they are made up."""
        return self.begin + self.speed * (time.monotonic() - self._since)


def run_demo(port: int, speed: float, ready: Callable[[str, str], None]) -> None:
    """Make up a campus, release its past, and serve its present until it is stopped.

    Parameters
    ----------
    port
        Where it listens.
    speed
        Made-up seconds in a second.
    ready
        Called with the address and an operator's token.
    """
    events = campus(weeks=WEEKS)
    with tempfile.TemporaryDirectory(prefix="tidegate-campus-") as place:
        folder = Path(place)
        file = write_campus(folder, events)
        tokens = Tokens(folder / "tokens.json")
        operator, producer = tokens.add("operator", "you"), tokens.add("producer", "campus", ("campus",))
        _release_past(folder, events)
        clock = FastClock(events.start + PAST * events.length, speed)
        ending = threading.Event()
        settings = Settings(port=port, tokens=tokens.path, clock=clock)

        def begun(address: str) -> None:
            work = lambda: _send(events, clock, address, producer, ending)  # noqa: E731
            threading.Thread(target=work, name="campus", daemon=True).start()
            ready(address, operator)

        try:
            serve([file], settings, begun)
        finally:
            ending.set()


def write_campus(folder: Path, events: Events) -> Path:
    """The configuration and the map; the configuration's path."""
    file = folder / "campus.toml"
    file.write_text(_text(events, "serve:", follow=True), encoding="utf-8")
    (folder / "campus.geojson").write_text(json.dumps(geojson()), encoding="utf-8")
    return file


def geojson() -> dict[str, object]:
    """The made-up campus from above."""

    def area(name: str) -> dict[str, object]:
        west, south, east, north = (value / 1000 for value in PLACES[name])
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        shifted = [[round(8 + x, 6), round(50 + y, 6)] for x, y in ring]
        geometry = {"type": "Polygon", "coordinates": [shifted]}
        return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}

    return {"type": "FeatureCollection", "features": [area(name) for name in PLACES]}


def _text(events: Events, location: str, *, follow: bool) -> str:
    import datetime

    start = datetime.datetime.fromtimestamp(events.start, datetime.UTC).isoformat()
    return TEXT.format(
        location=location,
        follow=str(follow).lower(),
        start=start,
        lateness=LATENESS,
        count="" if follow else f"count = {PAST}",
        columns=json.dumps(list(events.names)),
    )


def _release_past(folder: Path, events: Events) -> None:
    """Two weeks at once, so that there is something to look at."""
    past = events.times < events.start + PAST * events.length
    _frame(events, past).write_parquet(folder / "past.parquet")
    config = parse_config(_text(events, "past.parquet", follow=False), folder / "past.toml")
    config = replace(config, source=replace(config.source, complete=True))  # made up
    queries = one(config)
    with (
        open_pipeline(queries, sink=False) as pipeline,
        contextlib.closing(queries.open(None, follow=False)) as intake,
    ):
        pipeline.drive(intake)
        pipeline.checkpoint()  # and not finish: the stream continues, live


def _frame(events: Events, chosen: npt.NDArray[np.bool_], shift: int = 0) -> pl.DataFrame:
    names = pl.Series(events.names, dtype=pl.String)
    return pl.DataFrame(
        {
            "time": events.times[chosen] + shift,
            "device": [str(unit) for unit in events.units[chosen].tolist()],
            "building": names.gather(events.columns[chosen]),
        }
    )


def _send(events: Events, clock: FastClock, address: str, token: str, ending: threading.Event) -> None:
    """Send what happens as it happens, over and over, until the end."""
    length = events.steps * events.length
    sent, number = clock.begin, 0
    while not ending.wait(0.1):
        now = clock()
        rounds = int((sent - events.start) // length)
        until = min(now, events.start + (rounds + 1) * length)
        shift = rounds * length
        chosen = (events.times + shift >= sent) & (events.times + shift < until)
        body = io.BytesIO()
        _frame(events, chosen, shift).write_csv(body)
        number += 1
        if _post(f"{address}streams/campus/events", body.getvalue(), token, f"campus-{number}", ending):
            sent = until


def _post(address: str, body: bytes, token: str, key: str, ending: threading.Event) -> bool:
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "text/csv",
        "Idempotency-Key": key,
    }
    request = urllib.request.Request(address, body, headers, method="POST")
    while not ending.is_set():
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except (urllib.error.URLError, OSError):
            ending.wait(0.5)
    return False
