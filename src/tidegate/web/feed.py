"""Server-sent events: every client has every release once, however often its connection breaks."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from tidegate.web.release_cache import ReleaseCache
from tidegate.web.release_encoding import Encoder

KEPT = 1000  # events that are kept as bytes, so that they are made once for all clients
KEPT_BYTES, KEPT_CELLS = 8 * 2**20, 2**17
PAGE, PAGE_CELLS = 500, 2**12  # releases, and values of them, that a client far behind gets at once
PAGE_BYTES = 64 * 2**10  # of events that are kept
HEARTBEAT = 15.0  # seconds of silence after which a comment shows that the connection lives


class Feed:
    """The events of one stream.

    An event's id is the release's number, counted over the whole stream, so that "everything after this id" has one
    meaning before and after any failure.

    Parameters
    ----------
    board, encoder
        What was released, and how it reads.
    """

    def __init__(self, board: ReleaseCache, encoder: Encoder) -> None:
        self.board, self.encoder = board, encoder
        self.clients = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._made = board.number  # the number of the last event that was made
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event = asyncio.Event()
        self._ended = False
        width = max(1, len(encoder.labels))
        self._most_kept = max(1, min(KEPT, KEPT_CELLS // width))
        self._page = max(1, min(PAGE, PAGE_CELLS // width))

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop in which clients wait."""
        self._loop = loop

    # called by the stream's thread --------------------------------------------------------------------------

    def publish(self) -> None:
        """The board has news: make their events and wake everybody."""
        self._made = max(self._made, self.board.number - self._most_kept)
        made = self.encoder.event(self.board, self._made, self._most_kept)
        if made:
            self._made = made[-1][0]
            self._call(self._keep, made)

    def end(self) -> None:
        """No more events: every client is let go, and comes back when the service does."""
        self._ended = True
        self._call(self._wake)

    def _call(self, what: object, *arguments: object) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(what, *arguments)  # type: ignore[arg-type]

    # called in the loop -------------------------------------------------------------------------------------

    def _keep(self, made: list[tuple[int, bytes]]) -> None:
        for number, event in made:
            if self._kept and number != self._kept[-1][0] + 1:
                self._kept.clear()
                self._bytes = 0
            self._kept.append((number, event))
            self._bytes += len(event)
        while len(self._kept) > 1 and (len(self._kept) > KEPT or self._bytes > KEPT_BYTES):
            self._bytes -= len(self._kept.popleft()[1])
        self._wake()

    def _wake(self) -> None:
        before, self._news = self._news, asyncio.Event()
        before.set()

    async def events(self, after: int | None) -> AsyncIterator[bytes]:
        """Everything after a number, then whatever comes; without a number, whatever comes."""
        self.clients += 1
        try:
            sent = self.board.number if after is None else after
            yield b"retry: 1000\n\n"
            if sent > self.board.number:  # a number of another life of this stream
                yield b"event: reset\ndata: {}\n\n"
                sent = 0
            while not self._ended:
                news = self._news
                page = await self._next(sent)
                if page:
                    sent = page[-1][0]
                    yield b"".join(event for _, event in page)
                    continue
                try:
                    await asyncio.wait_for(news.wait(), HEARTBEAT)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.clients -= 1

    async def _next(self, sent: int) -> list[tuple[int, bytes]]:
        if self._kept and self._kept[0][0] <= sent + 1:
            skip = sent + 1 - self._kept[0][0]
            if skip == len(self._kept) - 1:  # by far the most frequent case: one new event
                return [self._kept[-1]]
            return self._some(skip)
        if sent >= self.board.number:
            return []
        return await run_in_threadpool(self.encoder.event, self.board, sent, self._page)

    def _some(self, skip: int) -> list[tuple[int, bytes]]:
        """At least one of the events that are kept, and as many as are sent together."""
        found: list[tuple[int, bytes]] = []
        size = 0
        for number, event in itertools.islice(self._kept, skip, None):
            if found and size + len(event) > PAGE_BYTES:
                break
            found.append((number, event))
            size += len(event)
        return found
