"""The log of a stream for everybody: charges and digests without values, and a head that is signed."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tidegate.core.commit import Row
from tidegate.pipeline.public_account import COLUMNS, PAGE, public_text, published_head, published_rows
from tidegate.web.channel import Channel
from tidegate.web.public_routes import PLACES, PublicRoutes
from tidegate.web.release_encoding import numbers
from tidegate.web.routes import Parameter, Route, answer, read_query, reads

AFTER = Parameter(
    "after",
    "How many rows or releases are known already.",
    {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 0},
)
RELEASE_CELLS = 200_000  # values in one answer
PAGE_BYTES = 8 * 2**20  # charges in one answer


class AccountRoutes:
    """Handlers of the account's routes.

    Parameters
    ----------
    reading
        The public handlers.
    """

    def __init__(self, reading: PublicRoutes) -> None:
        self.reading = reading
        self._heads: dict[str, dict[str, Any]] = {}

    @property
    def routes(self) -> tuple[Route, ...]:
        """What anybody may check."""
        return tuple(route for place, parameters in PLACES for route in self._account(place, parameters))

    def _account(self, place: str, parameters: tuple[Parameter, ...]) -> tuple[Route, ...]:
        return (
            reads(
                f"{place}/account",
                self.account,
                "Where the log and its releases stand, signed; or which queries have such a head.",
                "The signed head.",
                parameters,
            ),
            reads(
                f"{place}/account/rows",
                self.rows,
                f"At most {PAGE:,} rows of the log: which steps were charged how much, and their hashes.",
                "The rows.",
                (*parameters, AFTER),
            ),
            reads(
                f"{place}/account/transcript",
                self.transcript,
                "Releases after a number, in the order in which they left, as the transcript hashes them.",
                "The releases.",
                (*parameters, AFTER),
            ),
        )

    async def account(self, request: Request) -> Response:
        """The signed head."""
        read_query(request, ())
        driver = self.reading.driver(request)
        headers = {"Cache-Control": "no-cache"}
        if driver.queries.listed and "query" not in request.path_params:
            return answer({"stream": driver.name, "queries": list(driver.channels)}, headers=headers)
        return answer(await run_in_threadpool(self._head, self.reading.find(request)), headers=headers)

    def _head(self, channel: Channel) -> dict[str, Any]:
        transcript = channel.board.transcript
        with (
            channel.driver.reader() as door
        ):  # it is read after the transcript, so it has all that was released
            last, identity = door.last, door.identity
        kept = self._heads.get(channel.name)
        if kept is not None and (kept["commits"], kept["number"]) == (last.number + 1, transcript.number):
            return kept  # one signature per commit is enough
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        found = published_head(
            identity, last, channel.scope, transcript, stream=channel.name, time=now, key=channel.driver.key
        )
        self._heads[channel.name] = found
        return found

    async def transcript(self, request: Request) -> Response:
        """Releases in the order in which they left."""
        after, channel = read_query(request, (AFTER,))["after"], self.reading.find(request)

        def read() -> list[list[Any]]:
            chunk = channel.board.after(after, max(1, RELEASE_CELLS // len(channel.board.labels)))
            answers = numbers(channel.config.query.answers(chunk.values)) if len(chunk) else []
            counted = range(chunk.first, chunk.first + len(chunk))
            return [
                list(row)
                for row in zip(counted, chunk.step.tolist(), chunk.revision.tolist(), answers, strict=True)
            ]

        found = await run_in_threadpool(read)
        columns = ["number", "step", "revision", "values"]
        return answer({"columns": columns, "releases": found}, headers={"Cache-Control": "no-cache"})

    async def rows(self, request: Request) -> Response:
        """Rows of the log."""
        after, driver = read_query(request, (AFTER,))["after"], self.reading.find(request).driver

        def read() -> list[list[Any]]:
            with driver.reader() as door:
                return published_rows(_page(door.log.rows(after)))

        found = await run_in_threadpool(read)
        return answer({"columns": COLUMNS, "rows": found}, headers={"Cache-Control": "no-cache"})

    def public(self, name: str) -> str:
        """The public key of a stream."""
        return public_text(self.reading.drivers[name].key)


def _page(rows: Iterable[Row]) -> Iterator[Row]:
    """The first rows, until they are too large for one answer."""
    size = 0
    for row in rows:
        yield row
        size += len(row.charges)
        if size > PAGE_BYTES:
            return
