"""Sending events: an acknowledged batch is on disk and counts exactly once; the answer tells nothing about it."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tidegate.web.answers import Parameter, Refused, Route, answer, read_query
from tidegate.web.gate import bearer
from tidegate.web.operating import DENIED
from tidegate.web.parsing import MOST_SENT, TYPES, BadBatch, TooLarge, unpack
from tidegate.web.posted import PostedDriver
from tidegate.web.reading import JSON, NAME, UNKNOWN, WRONG, Reading
from tidegate.web.spool import MOST_WAITING, SpoolFailed, SpoolFull
from tidegate.web.tokens import Tokens

KEY = Parameter(
    "Idempotency-Key",
    "A name for this batch; sent again under it, it is not counted again.",
    {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]{1,128}$"},
    place="header",
    required=True,
)
MOST_REQUESTS = 200  # batches that are read or parsed at a time
LATER = {"Retry-After": "1"}


class Sending:
    """Handlers of the producers' route.

    Parameters
    ----------
    reading
        The public handlers.
    tokens
        Who is a producer.
    """

    def __init__(self, reading: Reading, tokens: Tokens) -> None:
        self.reading, self.tokens = reading, tokens
        self.requests = 0
        self.bytes = 0
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="parse")

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
                    404: UNKNOWN,
                    409: (JSON, "This stream takes no events."),
                    413: (JSON, "The batch is too large."),
                    415: (JSON, "The format is none of those known."),
                    422: (JSON, "A record breaks a rule: its line and the rule. Nothing was taken."),
                    429: (JSON, "Too much at once; send it again after a while."),
                    503: (JSON, "The disk does not take it; send it again."),
                    400: WRONG,
                    **DENIED,
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
        if not isinstance(driver, PostedDriver):
            raise Refused(409, "this stream takes no events; its source is another.")
        key = request.headers.get("idempotency-key", "")
        if not re.fullmatch(r"[!-~]{1,128}", key):
            raise Refused(400, "the header Idempotency-Key must have 1 to 128 visible characters.")
        key = (
            f"{quote(holder.name, safe='')}/{key}"  # keys of others are others, whatever their names contain
        )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in TYPES:
            raise Refused(415, f"the content type must be one of {', '.join(TYPES)}.")
        if self.requests >= MOST_REQUESTS:
            raise Refused(429, "too many batches come at once; send this one again later.", LATER)
        self.requests += 1
        try:
            body = await self._body(request)
            if not driver.spool.known(key):
                await self._take(driver, key, kind, body, request.headers.get("content-encoding", ""))
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
        finally:
            self.requests -= 1
        return answer({"accepted": True}, headers={"Cache-Control": "no-store"})

    async def _body(self, request: Request) -> bytes:
        too_large = TooLarge(f"a batch must not be larger than {MOST_SENT} bytes; send several.")
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > MOST_SENT:
            raise too_large
        parts, size = [], 0
        try:
            async for part in request.stream():
                size += len(part)
                self.bytes += len(part)
                if size > MOST_SENT:
                    raise too_large
                if self.bytes > MOST_WAITING:
                    raise SpoolFull("more comes than can be put away; send the batch again later.")
                parts.append(part)
            return b"".join(parts)
        finally:
            self.bytes -= size

    async def _take(self, driver: PostedDriver, key: str, kind: str, body: bytes, encoding: str) -> None:
        driver.spool.refuse_more()

        def parse() -> Future[None]:
            frame = driver.parser.parse(kind, unpack(body, encoding.strip().lower()))
            return driver.spool.put(key, *driver.current(frame))

        loop = asyncio.get_running_loop()
        stored = await loop.run_in_executor(self._threads, parse)
        # a client that leaves must not take the batch with it
        await asyncio.shield(asyncio.wrap_future(stored))
