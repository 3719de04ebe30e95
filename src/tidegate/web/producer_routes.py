"""Sending events: an acknowledged batch is on disk and counts exactly once; the answer tells nothing about it."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tidegate.web import limits
from tidegate.web.event_parsing import MOST_SENT, TYPES, BadBatch, TooLarge, unpack
from tidegate.web.http_source import HttpDriver
from tidegate.web.middleware import bearer
from tidegate.web.public_routes import NAME, PublicRoutes
from tidegate.web.quotas import Queues, Quota
from tidegate.web.routes import JSON, Parameter, Refused, Route, answer, read_query
from tidegate.web.spool import SpoolFailed, SpoolFull
from tidegate.web.tokens import Tokens

KEY = Parameter(
    "Idempotency-Key",
    "A name for this batch; sent again under it, it is not counted again.",
    {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]{1,128}$"},
    place="header",
    required=True,
)
MOST_REQUESTS = 200  # batches that are read or parsed at a time
PARSERS = 2  # of which the holder of one token has at most one at a time
SECONDS = 60.0  # for a body to come
LATER = {"Retry-After": "1"}


class ProducerRoutes:
    """Handlers of the producers' route.

    Parameters
    ----------
    reading
        The public handlers.
    tokens
        Who is a producer.
    """

    def __init__(self, reading: PublicRoutes, tokens: Tokens) -> None:
        self.reading, self.tokens = reading, tokens
        self.requests = Quota(MOST_REQUESTS)
        self.bytes = Quota(limits.MOST_BODIES)
        self._turns = Queues()
        self._threads = ThreadPoolExecutor(PARSERS, thread_name_prefix="parse")

    @property
    def routes(self) -> tuple[Route, ...]:
        """What producers use."""
        return (
            Route(
                "POST",
                "/streams/{name}/events",
                self.events,
                "Send a batch of events: NDJSON, CSV with a header, or Arrow; gzip or zstd. All or nothing is taken.",
                role="producer",
                parameters=(NAME, KEY),
                body=TYPES,
                answers={
                    200: (JSON, "The batch is on disk and will be counted once."),
                    408: (JSON, "The batch came too slowly."),
                    409: (JSON, "This stream takes no events."),
                    413: (JSON, "The batch is too large."),
                    415: (JSON, "The format is none of those known."),
                    422: (JSON, "A record breaks a rule: its line and the rule. Nothing was taken."),
                    429: (JSON, "Too much at once; send it again after a while."),
                    503: (JSON, "The disk does not take it, or the clock was set; send it again."),
                },
            ),
        )

    async def events(self, request: Request) -> Response:
        """Take a batch."""
        holder = bearer(request, self.tokens, "producer")
        read_query(request, ())
        driver = self.reading.driver(request)
        if holder.role == "producer" and holder.streams and driver.name not in holder.streams:
            raise Refused(403, "this token is for other streams.")
        if not isinstance(driver, HttpDriver):
            raise Refused(409, "this stream takes no events; its source is another.")
        if driver.astray:
            raise Refused(
                503,
                "the clock of the service was set, and events of now would not count; send the batch again when it was "
                "started again.",
                LATER,
            )
        key = request.headers.get("idempotency-key", "")
        if not re.fullmatch(r"[!-~]{1,128}", key):
            raise Refused(400, "the header Idempotency-Key must have 1 to 128 visible characters.")
        who = quote(holder.name, safe="")
        key = f"{who}/{key}"  # keys of others are others, whatever their names contain
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in TYPES:
            raise Refused(415, f"the content type must be one of {', '.join(TYPES)}.")
        if not self.requests.fits(who, 1):
            raise Refused(429, "too many batches come at once; send this one again later.", LATER)
        self.requests.take(who, 1)
        parts: list[bytes] = []
        try:
            await self._body(request, who, parts)
            if not driver.spool.known(key):
                async with self._turns.turn(who):
                    stored = await self._parse(request, driver, who, key, kind, parts)
                # a client that leaves must not take the batch with it
                await asyncio.shield(asyncio.wrap_future(stored))
        except BadBatch as error:
            where = {} if error.line is None else {"line": error.line}
            raise Refused(422, str(error), None, rule=error.rule, **where) from None
        except TooLarge as error:
            raise Refused(413, str(error)) from None
        except SpoolFull as error:
            raise Refused(429, str(error), LATER) from None
        except SpoolFailed as error:
            raise Refused(503, str(error), LATER) from None
        except ClientDisconnect:
            raise Refused(400, "the batch did not come to its end.") from None
        except TimeoutError:
            raise Refused(
                408, f"a batch must come within {SECONDS:.0f} seconds; send smaller ones."
            ) from None
        finally:
            self.requests.give(who, 1)
            self.bytes.give(who, sum(map(len, parts)))
        return answer({"accepted": True}, headers={"Cache-Control": "no-store"})

    async def _body(self, request: Request, who: str, parts: list[bytes]) -> None:
        """Read a body; its parts are counted for their sender as long as they are kept."""
        too_large = TooLarge(f"a batch must not be larger than {MOST_SENT} bytes; send several.")
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > MOST_SENT:
            raise too_large
        size = 0
        async with asyncio.timeout(SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_SENT:
                    raise too_large
                if not self.bytes.fits(who, len(part)):
                    raise SpoolFull("more comes than can be stored; send the batch again later.")
                self.bytes.take(who, len(part))
                parts.append(part)

    async def _parse(
        self, request: Request, driver: HttpDriver, who: str, key: str, kind: str, parts: list[bytes]
    ) -> Future[None]:
        """Check a batch in another thread and hand it to the disk; the future is done when it is there."""
        driver.spool.refuse_more(who)
        if await request.is_disconnected():  # while it waited for its turn: nobody would hear the answer
            raise ClientDisconnect
        encoding = request.headers.get("content-encoding", "").strip().lower()

        def parse() -> Future[None]:
            frame = driver.parser.parse(kind, unpack(b"".join(parts), encoding))
            return driver.spool.put(key, *driver.current(frame), who)

        return await asyncio.get_running_loop().run_in_executor(self._threads, parse)
