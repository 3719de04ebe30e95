"""What anybody may read: streams, their releases in four formats, and the live feed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import polars as pl
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.errors import InvalidParameter
from tidegate.exact import show
from tidegate.runtime.chunks import CONFIDENCE
from tidegate.version import __version__
from tidegate.web.answers import Parameter, Refused, Route, answer, read_query
from tidegate.web.driver import Driver
from tidegate.web.encoding import FORMATS
from tidegate.web.words import duration, meaning, step_length

NAME = Parameter("name", "The stream's name.", {"type": "string"}, place="path")
STEP = {"type": "integer", "minimum": 1, "maximum": 2**53}
RANGE = (
    Parameter("since", "The first step.", STEP),
    Parameter("until", "The last step.", STEP),
    Parameter(
        "columns",
        "A column; may be given several times. All by default.",
        {"type": "array", "items": {"type": "string"}},
    ),
    Parameter(
        "revision",
        "latest: one release a step, the newest. all: every release, in the order in which they left.",
        {"type": "string", "enum": ["latest", "all"], "default": "latest"},
    ),
    Parameter(
        "format",
        "json, or one row for each release and column as csv, parquet or arrow. "
        "By default what Accept prefers, else json.",
        {"type": "string", "enum": list(FORMATS)},
    ),
)
AFTER = Parameter(
    "after",
    "The number of the last release that is known already; Last-Event-ID goes before it. By default only what comes.",
    {"type": "integer", "minimum": 0, "maximum": 2**53},
)
MOST_CLIENTS = 10_000  # of all live feeds
JSON = ("application/json",)
UNKNOWN = (JSON, "There is no such stream.")
WRONG = (JSON, "A parameter is wrong; the sentence says which.")


class Reading:
    """Handlers of the public routes.

    Parameters
    ----------
    drivers
        The streams by name.
    """

    def __init__(self, drivers: dict[str, Driver]) -> None:
        self.drivers = drivers

    @property
    def routes(self) -> tuple[Route, ...]:
        """What is public."""
        types = tuple(kind.partition(";")[0] for kind in FORMATS.values())
        return (
            Route(
                "GET",
                "/streams",
                self.streams,
                "All streams.",
                answers={200: (JSON, "The streams."), 400: WRONG},
            ),
            Route(
                "GET",
                "/streams/{name}",
                self.stream,
                "One stream: its guarantee, clock, columns and budget.",
                parameters=(NAME,),
                answers={200: (JSON, "The stream."), 404: UNKNOWN, 400: WRONG},
            ),
            Route(
                "GET",
                "/streams/{name}/releases",
                self.releases,
                "Released values, each with the interval that holds nine of ten draws of its noise.",
                parameters=(NAME, *RANGE),
                answers={
                    200: (types, "The releases."),
                    304: ((), "Nothing has changed since the ETag that was given."),
                    404: UNKNOWN,
                    400: WRONG,
                },
            ),
            Route(
                "GET",
                "/streams/{name}/live",
                self.live,
                "Releases as server-sent events, each with its number as id; nothing is missed after a lost connection.",
                parameters=(NAME, AFTER),
                answers={
                    200: (("text/event-stream",), "Events, until the client leaves."),
                    503: (JSON, "Too many clients listen."),
                    404: UNKNOWN,
                    400: WRONG,
                },
            ),
            Route(
                "GET",
                "/streams/{name}/map",
                self.map,
                "The GeoJSON that columns are drawn on, where the stream has one.",
                parameters=(NAME,),
                answers={
                    200: (("application/geo+json",), "The map."),
                    404: (JSON, "There is no map."),
                    400: WRONG,
                },
            ),
        )

    def find(self, request: Request) -> Driver:
        """The stream of a path."""
        found = self.drivers.get(request.path_params["name"])
        if found is None:
            raise Refused(404, "there is no stream of this name; GET /streams lists them.")
        return found

    async def streams(self, request: Request) -> Response:
        """All streams, in short."""
        read_query(request, ())
        return answer({"version": __version__, "streams": [short(each) for each in self.drivers.values()]})

    async def stream(self, request: Request) -> Response:
        """One stream."""
        read_query(request, ())
        return answer(describe(self.find(request)))

    async def releases(self, request: Request) -> Response:
        """Releases of a range of steps."""
        given, driver = read_query(request, RANGE), self.find(request)
        kind = given["format"] or preferred(request.headers.get("accept", ""))
        last = driver.board.number
        tag = entity_tag(driver, kind, last, given)
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept"}
        if matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)

        def make() -> bytes:
            chosen = {name: given[name] for name in ("since", "until", "columns", "revision")}
            return driver.encoder.encode(kind, driver.board.select(**chosen, last=last), last)

        try:
            body = await run_in_threadpool(make)
        except InvalidParameter as error:
            raise Refused(400, str(error)) from None
        if kind != "json":
            headers["Content-Disposition"] = f'attachment; filename="{driver.name}.{kind}"'
        return Response(body, 200, headers, media_type=FORMATS[kind])

    async def live(self, request: Request) -> Response:
        """The feed of one stream."""
        after, driver = read_query(request, (AFTER,))["after"], self.find(request)
        resumed = request.headers.get("last-event-id", "")
        if resumed.isascii() and resumed.isdigit() and len(resumed) < 17:
            after = int(resumed)
        if sum(each.feed.clients for each in self.drivers.values()) >= MOST_CLIENTS:
            raise Refused(
                503, "too many clients listen at the moment; try again later.", {"Retry-After": "10"}
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(driver.feed.events(after), 200, headers, media_type="text/event-stream")

    async def map(self, request: Request) -> Response:
        """The stream's map."""
        read_query(request, ())
        driver = self.find(request)
        if driver.map is None:
            raise Refused(404, "this stream has no map; put a GeoJSON file beside its configuration.")
        tag = f'"{hashlib.sha256(driver.map).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        return Response(driver.map, 200, headers, media_type="application/geo+json")


def short(driver: Driver) -> dict[str, Any]:
    """A stream in a few facts."""
    board = driver.board
    return {
        "name": driver.name,
        "state": driver.state,
        "step": board.step,
        "number": board.number,
        "columns": len(board.labels),
        "length": step_length(driver.config),
        "zone": driver.config.steps.zone,
        "time": driver.encoder.time(board.step) if board.step else None,
        "address": f"/streams/{driver.name}",
    }


def describe(driver: Driver) -> dict[str, Any]:
    """A stream in full; nothing that is not public."""
    config, board = driver.config, driver.board
    policy, steps = config.policy, config.steps
    limit = driver.limit
    return {
        **short(driver),
        "guarantee": str(config.guarantee),
        "assumptions": list(config.assumptions),
        "mechanism": config.mechanism_keys.name,
        "aggregate": config.query.aggregate,
        "labels": list(board.labels),
        "grid": show(config.query.grid),  # type: ignore[arg-type]  # exact by now
        "policy": policy.name,
        "budget": {
            "words": str(policy.budget),
            "limit": show(limit) if driver.adds else str(policy.budget),
            "spent_in_window": show(driver.spent),
            "part": min(1.0, float(driver.spent / limit)),
        },
        "window": policy.window,
        "window_words": None if policy.window is None else duration(policy.window * step_length(config)),
        "clock": {
            "start": driver.encoder.time(1),
            "length": steps.length,
            "zone": steps.zone,
            "lateness": steps.lateness,
            "count": steps.count,
        },
        "confidence": CONFIDENCE,
        "revises": driver.revises,
        "map": driver.map is not None,
        "takes_events": driver.posted,
        "alarms": [
            {
                "name": alarm.name,
                "column": board.labels[alarm.column],
                "above": alarm.above,
                "below": alarm.below,
                "raised": board.alarms.on.get(alarm.name, False),
            }
            for alarm in board.alarms.alarms
        ],
        "meaning": meaning(config, revises=driver.revises),
    }


def preferred(accept: str) -> str:
    """The format that an Accept header names first; json where it names none."""
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        for name, media in FORMATS.items():
            if kind == media.partition(";")[0]:
                return name
    return "json"


def entity_tag(driver: Driver, kind: str, last: int, given: dict[str, Any]) -> str:
    """A strong ETag: what is released never changes, so its last number and the question name the bytes."""
    asked = [given[name] for name in ("since", "until", "columns", "revision")]
    words = json.dumps([__version__, pl.__version__, driver.name, driver.encoder.stream, kind, last, asked])
    return f'"{hashlib.sha256(words.encode()).hexdigest()[:32]}"'


def matches(header: str, tag: str) -> bool:
    """Whether If-None-Match names a tag."""
    return header.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in header.split(",")]
