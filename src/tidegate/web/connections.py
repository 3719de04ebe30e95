"""Connections: how many there are, how long a request may take to come, and how long a reader may take nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidegate.web import limits
from tidegate.web.quotas import Quota


class Connection(HttpToolsProtocol):
    """One connection, with the limits of :mod:`tidegate.web.limits`; a service makes a class of its own of it."""

    room: ClassVar[Quota]
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _in_head = False
    _head = 0  # bytes of the head that is coming
    _counted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        self.peer = peer(self.client[0] if self.client else "")
        if not self.room.fits(self.peer, 1):
            self._refuse(503, "there are too many connections; try again later.")
            return
        self.room.take(self.peer, 1)
        self._counted = True
        self._expect(limits.FIRST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop("_timer")
        self._stop("_stalled")
        if self._counted:
            self.room.give(self.peer, 1)
            self._counted = False
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head has become too large."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._head = self._head + len(data) if self._in_head else 0
        if self._head > limits.MOST_HEAD:
            self._refuse(431, f"the head of a request must not be larger than {limits.MOST_HEAD} bytes.")

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head of a request is there."""
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > limits.MOST_HEAD or len(self.pipeline) >= limits.MOST_PIPELINED:
            raise ValueError  # what comes after it is not read
        self._stop("_timer")
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """A request was answered; the next one must come, or the connection ends, also where nobody takes the answer."""
        super().on_response_complete()
        if not self.pipeline:
            self._expect(limits.NEXT_SECONDS)

    def pause_writing(self) -> None:
        """The reader takes nothing at the moment."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(limits.STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader has taken something."""
        super().resume_writing()
        self._stop("_stalled")

    def _expect(self, seconds: float) -> None:
        self._stop("_timer")
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, name: str) -> None:
        timer = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer without asking the application, and end the connection."""
        body = json.dumps({"error": sentence}).encode()
        head = (
            f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Retry-After: 10\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self._expect(limits.FIRST_SECONDS)


def limited(most: int) -> type[Connection]:
    """Connections of one service, of which there are at most so many."""
    found: Any = type("LimitedConnection", (Connection,), {"room": Quota(most)})
    kind: type[Connection] = found
    return kind


def peer(address: str) -> str:
    """Whom an address belongs to: one machine, or the network of a household where those have one each."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 6:
        return str(ipaddress.ip_network((found, 64), strict=False).network_address)
    return address
