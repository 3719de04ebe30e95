"""What anybody may read: streams, their releases in four formats, and the live feed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.config import Config
from tidegate.errors import InvalidParameter
from tidegate.exact import show
from tidegate.report.wording import Words
from tidegate.sinks.chunks import CONFIDENCE
from tidegate.structures.category_names import OTHER
from tidegate.version import __version__
from tidegate.web import limits
from tidegate.web.channel import Channel
from tidegate.web.chart import MOST_STEPS, chart_svg
from tidegate.web.connections import peer
from tidegate.web.driver import Driver
from tidegate.web.explanations import duration, meaning, step_length
from tidegate.web.quotas import Queues, Quota
from tidegate.web.release_cache import Selection
from tidegate.web.release_encoding import FORMATS
from tidegate.web.routes import CROWDED, JSON, Parameter, Refused, Route, answer, read_query, reads

NAME = Parameter("name", "The stream's name.", {"type": "string"}, place="path")
QUERY = Parameter("query", "The query's name.", {"type": "string"}, place="path")
# a stream with one query is read at its own address, one with several at those of its queries
PLACES = (("/streams/{name}", (NAME,)), ("/streams/{name}/{query}", (NAME, QUERY)))
RESERVED = (
    "releases",
    "live",
    "map",
    "answers",
    "account",
    "events",
    "verify",
)  # names that no query may have
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
CHART = (
    Parameter("column", "Which column; the first by default.", {"type": "string"}),
    Parameter(
        "steps",
        "How many of the last steps.",
        {"type": "integer", "minimum": 1, "maximum": MOST_STEPS, "default": 168},
    ),
    Parameter("theme", "The colours.", {"type": "string", "enum": ["light", "dark"], "default": "light"}),
)
ANSWER = Parameter("answer", "The answer's name.", {"type": "string"}, place="path")
AFTER = Parameter(
    "after",
    "The number of the last release that is known already; Last-Event-ID goes before it. By default only what comes.",
    {"type": "integer", "minimum": 0, "maximum": 2**53},
)
MOST_CLIENTS = 10_000  # of all live feeds
PAGE_BYTES = 256 * 2**10  # of a file that are read at once
UNCHANGED = {304: ((), "Nothing has changed since the ETag that was given.")}


class PublicRoutes:
    """Handlers of the public routes.

    Parameters
    ----------
    drivers
        The streams by name.
    readers
        Room for answers that readers have not yet taken.
    """

    def __init__(self, drivers: dict[str, Driver], readers: Quota) -> None:
        self.drivers, self.readers = drivers, readers
        self._turns = Queues()  # so that one reader's large answers do not hold up those of others
        self._making = asyncio.Semaphore(limits.MAKERS)

    @property
    def routes(self) -> tuple[Route, ...]:
        """What is public."""
        listed = reads("/streams", self.streams, "All streams.", "The streams.")
        whole = reads(
            "/streams/{name}",
            self.stream,
            "One stream: its guarantee, clock, columns and budget; of one with several queries, what they share.",
            "The stream.",
            (NAME,),
        )
        one = reads(
            "/streams/{name}/{query}",
            self.query,
            "One query of a stream that has several: its guarantee, clock, columns and budget.",
            "The query.",
            (NAME, QUERY),
        )
        found = [route for place, parameters in PLACES for route in self._released(place, parameters)]
        return (listed, whole, *found, one)

    def _released(self, place: str, parameters: tuple[Parameter, ...]) -> tuple[Route, ...]:
        """What was released, below the address of a stream or of one of its queries."""
        types = tuple(kind.partition(";")[0] for kind in FORMATS.values())
        return (
            reads(
                f"{place}/releases",
                self.releases,
                "Released values, each with the interval that holds nine of ten draws of its noise.",
                "The releases.",
                (*parameters, *RANGE),
                kinds=types,
                besides={**UNCHANGED, 503: (JSON, "Too many answers are on their way.")},
            ),
            reads(
                f"{place}/live",
                self.live,
                "Releases as server-sent events, each with its number as id; nothing is missed after a lost connection.",
                "Events, until the client leaves.",
                (*parameters, AFTER),
                kinds=("text/event-stream",),
                besides={503: (JSON, "Too many clients listen.")},
            ),
            reads(
                f"{place}/answers/{{answer}}",
                self.answer,
                "The answers to a standing question, as CSV or NDJSON.",
                "The answers.",
                (*parameters, ANSWER),
                kinds=("text/csv", "application/x-ndjson"),
                besides=UNCHANGED,
            ),
            reads(
                f"{place}/chart.svg",
                self.chart,
                "The newest values of one column as a picture, each with its interval.",
                "The picture.",
                (*parameters, *CHART),
                kinds=("image/svg+xml",),
                besides=UNCHANGED,
            ),
            reads(
                f"{place}/map",
                self.map,
                "The GeoJSON that columns are drawn on, where the stream has one.",
                "The map.",
                parameters,
                kinds=("application/geo+json",),
                besides={404: (JSON, "There is no map.")},
            ),
        )

    async def answer(self, request: Request) -> Response:
        """The answers to a standing question so far, as its file has them."""
        read_query(request, ())
        channel = self.find(request)
        named = {each.name: each for each in channel.config.answers}
        found = named.get(request.path_params["answer"])
        if found is None:
            raise Refused(404, "there is no answer of this name; GET the stream to see those it has.")
        path = Path(channel.config.locate(found.location))
        size, tag = await run_in_threadpool(_whole_lines, path)
        kind = "text/csv; charset=utf-8" if path.suffix == ".csv" else "application/x-ndjson"
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        headers |= {
            "Content-Disposition": f'attachment; filename="{path.name}"',
            "Content-Length": str(size),
        }

        async def pages() -> AsyncIterator[bytes]:
            for at in range(0, size, PAGE_BYTES):
                yield await run_in_threadpool(_part, path, at, min(PAGE_BYTES, size - at))

        return StreamingResponse(pages(), 200, headers, media_type=kind)

    def driver(self, request: Request) -> Driver:
        """The stream of a path."""
        found = self.drivers.get(request.path_params["name"])
        if found is None:
            raise Refused(404, "there is no stream of this name; GET /streams lists them.")
        return found

    def find(self, request: Request) -> Channel:
        """What is released at a path: the only query of a stream, or the one that is named."""
        driver, query = self.driver(request), request.path_params.get("query")
        if query is None and driver.queries.listed:
            names = ", ".join(driver.channels)
            raise Refused(404, f"this stream has several queries; ask for one of them by its name: {names}.")
        if query is None:
            return driver.first
        if not driver.queries.listed or query not in driver.channels:
            raise Refused(404, "this stream has no query of this name; GET the stream to see those it has.")
        return driver.channels[query]

    async def streams(self, request: Request) -> Response:
        """All streams, in short."""
        read_query(request, ())
        return answer({"version": __version__, "streams": [listed(each) for each in self.drivers.values()]})

    async def stream(self, request: Request) -> Response:
        """One stream."""
        read_query(request, ())
        driver = self.driver(request)
        return answer(shared(driver) if driver.queries.listed else describe(driver.first))

    async def query(self, request: Request) -> Response:
        """One of several queries."""
        read_query(request, ())
        return answer(describe(self.find(request)))

    async def releases(self, request: Request) -> Response:
        """Releases of a range of steps."""
        given, channel = read_query(request, RANGE), self.find(request)
        kind = given["format"] or preferred(request.headers.get("accept", ""))
        last = channel.board.number
        tag = entity_tag(channel, kind, last, given)
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept"}
        if matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)

        def select() -> Selection:
            chosen = {name: given[name] for name in ("since", "until", "columns", "revision")}
            return channel.board.select(**chosen, last=last)

        who = peer(request.client.host if request.client else "")
        async with self._turns.turn(who), self._making:
            try:
                found = await run_in_threadpool(select)
            except InvalidParameter as error:
                raise Refused(400, str(error)) from None
            if found.size > limits.SLICE and not self.readers.fits(who, found.size):
                raise Refused(503, CROWDED, {"Retry-After": "10"})
            pages = channel.encoder.pages(kind, found, last)
            if kind not in ("json", "csv") or found.size <= limits.SLICE:
                body = await run_in_threadpool(b"".join, pages)
        if kind != "json":
            headers["Content-Disposition"] = f'attachment; filename="{channel.name.replace("/", "-")}.{kind}"'
        if kind not in ("json", "csv") or found.size <= limits.SLICE:
            return Response(body, 200, headers, media_type=FORMATS[kind])

        async def sent_on() -> AsyncIterator[bytes]:
            self.readers.take(who, found.size)
            try:
                while (page := await run_in_threadpool(next, pages, None)) is not None:
                    yield page
            finally:
                self.readers.give(who, found.size)

        return StreamingResponse(sent_on(), 200, headers, media_type=FORMATS[kind])

    async def chart(self, request: Request) -> Response:
        """One column as a picture."""
        given, channel = read_query(request, CHART), self.find(request)
        board = channel.board
        found_here = channel.config.query.discovers
        column = (OTHER if found_here else board.labels[0]) if given["column"] is None else given["column"]
        question = {"since": given["steps"], "until": None, "columns": [column], "revision": given["theme"]}
        tag = entity_tag(channel, "svg", board.number, question)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)

        def draw() -> bytes:
            newest = max(board.step, board.first - 1)
            since, dark = max(1, newest - given["steps"] + 1), given["theme"] == "dark"
            if found_here:
                found = board.select(since=since).of_category(column, channel.config.query.parts)
                if len(found) and not np.isfinite(found.answers).any():
                    wanted = "a category that was open in this time, or other"
                    raise InvalidParameter("column", column[:60], wanted, "ask for the releases to see them")
            else:
                board.positions([column])
                found = board.select(since=since, columns=[column])
            return chart_svg(channel.config, found, column, dark=dark)

        async with self._turns.turn(peer(request.client.host if request.client else "")), self._making:
            try:
                picture = await run_in_threadpool(draw)
            except InvalidParameter as error:
                raise Refused(400, str(error)) from None
        return Response(picture, 200, headers, media_type="image/svg+xml")

    async def live(self, request: Request) -> Response:
        """The feed of one stream."""
        after, channel = read_query(request, (AFTER,))["after"], self.find(request)
        resumed = request.headers.get("last-event-id", "")
        if resumed.isascii() and resumed.isdigit() and len(resumed) < 17:
            after = int(resumed)
        if sum(each.clients for each in self.drivers.values()) >= MOST_CLIENTS:
            raise Refused(
                503, "too many clients listen at the moment; try again later.", {"Retry-After": "10"}
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(channel.feed.events(after), 200, headers, media_type="text/event-stream")

    async def map(self, request: Request) -> Response:
        """The stream's map."""
        read_query(request, ())
        content = self.find(request).map
        if content is None:
            raise Refused(404, "this stream has no map; put a GeoJSON file beside its configuration.")
        return sent(request, content, "application/geo+json")


def short(channel: Channel) -> dict[str, Any]:
    """What is released at an address, in a few facts."""
    board = channel.board
    return {
        **channel.encoder.names,
        "name": channel.name,
        "title": channel.config.about.title,
        "publisher": channel.config.about.publisher,
        "every": Words(channel.config).step,
        "promise": Words(channel.config).in_one_line,
        "state": channel.driver.state,
        "step": board.step,
        "number": board.number,
        "columns": board.columns,
        "length": step_length(channel.config),
        "zone": channel.config.steps.zone,
        "time": channel.encoder.time(board.step) if board.step else None,
        "first": channel.scope.first,
        "first_time": channel.encoder.time(channel.scope.first),
        "address": f"/streams/{channel.name}",
    }


def listed(driver: Driver) -> dict[str, Any]:
    """A stream in a few facts, and its queries where it has several."""
    if not driver.queries.listed:
        return short(driver.first)
    queries = [short(each) for each in driver.channels.values()]
    sums = {name: sum(each[name] for each in queries) for name in ("number", "columns")}
    kept = {name: queries[0][name] for name in ("stream", "state", "step", "length", "zone", "time")}
    return {**kept, **sums, "name": driver.name, "address": f"/streams/{driver.name}", "queries": queries}


def clock_of(channel: Channel) -> dict[str, Any]:
    """When steps begin and end."""
    steps = channel.config.steps
    return {
        "start": channel.encoder.time(1),
        "length": steps.length,
        "zone": steps.zone,
        "lateness": steps.lateness,
        "count": steps.count,
    }


def window_of(config: Config) -> dict[str, Any]:
    """How many steps are protected together, and how long that is."""
    window = config.window
    words = None if window is None else duration(window * step_length(config))
    return {"window": window, "window_words": words}


def shared(driver: Driver) -> dict[str, Any]:
    """A stream with several queries: what they promise together, and where each is found."""
    queries, policy = driver.queries, driver.queries.policy
    return {
        **listed(driver),
        "guarantee": queries.guarantee,
        "assumptions": list(queries.assumptions),
        "policy": policy.name,
        "budget": {"words": str(policy.budget), "limit": show(queries.budget)},
        **window_of(driver.config),
        "clock": clock_of(driver.first),
        "takes_events": driver.posted,
    }


def describe(channel: Channel) -> dict[str, Any]:
    """What is released at an address, in full; nothing that is not public."""
    config, board, driver = channel.config, channel.board, channel.driver
    policy = config.policy
    limit = channel.limit
    return {
        **short(channel),
        "guarantee": driver.queries.guarantee,
        "assumptions": list(config.assumptions),
        "queries": [each.query for each in driver.channels.values() if each.query],
        "share": show(config.share),
        "mechanism": config.mechanism_keys.name,
        "aggregate": config.query.aggregate,
        "labels": list(config.query.rest_labels if config.query.discovers else board.labels),
        "found": config.query.discovers,
        "grid": show(config.query.grid),  # type: ignore[arg-type]  # exact by now
        "policy": policy.name,
        "budget": {
            "words": str(policy.budget),
            "limit": show(limit) if channel.adds else str(policy.budget),
            "spent_in_window": show(channel.spent),
            "part": min(1.0, float(channel.spent / limit)),
        },
        **window_of(config),
        "clock": clock_of(channel),
        "confidence": CONFIDENCE,
        "revises": channel.revises,
        "map": channel.map is not None,
        "takes_events": driver.posted,
        "alarms": [
            {
                "name": alarm.name,
                "column": board.labels[alarm.column],
                "above": alarm.above,
                "below": alarm.below,
                "raised": board.alarms.on.get((alarm.name, board.labels[alarm.column]), False),
            }
            for alarm in board.alarms.alarms
        ],
        "answers": [
            {
                "name": each.name,
                "address": f"/streams/{channel.name}/answers/{each.name}",
                "raised": [
                    column for (name, column), on in board.alarms.on.items() if on and name == each.name
                ],
            }
            for each in config.answers
        ],
        "meaning": meaning(config, revises=channel.revises),
    }


def _whole_lines(path: Path) -> tuple[int, str]:
    """How many bytes of a file are whole lines, and a tag for them; a line that is being written is not read."""
    digest, size, rest = hashlib.sha256(), 0, b""
    if path.exists():
        with path.open("rb") as file:
            while part := file.read(PAGE_BYTES):
                whole = rest + part
                end = whole.rfind(b"\n") + 1
                digest.update(whole[:end])
                size, rest = size + end, whole[end:]
    return size, f'"{digest.hexdigest()[:32]}"'


def _part(path: Path, at: int, size: int) -> bytes:
    """A part of a file, which is not held open for a slow reader."""
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


def preferred(accept: str) -> str:
    """The format that an Accept header names first; json where it names none."""
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        for name, media in FORMATS.items():
            if kind == media.partition(";")[0]:
                return name
    return "json"


def entity_tag(channel: Channel, kind: str, last: int, given: dict[str, Any]) -> str:
    """A strong ETag: what is released never changes, so its last number and the question name the bytes."""
    asked = [given[name] for name in ("since", "until", "columns", "revision")]
    words = json.dumps(
        [__version__, pl.__version__, channel.name, channel.log, channel.scope.number, kind, last, asked]
    )
    return f'"{hashlib.sha256(words.encode()).hexdigest()[:32]}"'


def sent(request: Request, content: bytes, kind: str, more: Mapping[str, str] | None = None) -> Response:
    """Content that a client need not be sent again while it is the same."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, 200, {**headers, **(more or {})}, media_type=kind)


def matches(header: str, tag: str) -> bool:
    """Whether If-None-Match names a tag."""
    return header.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in header.split(",")]
