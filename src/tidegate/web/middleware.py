"""The gate in front of every request: host names, roles, headers, and errors as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.pipeline.json_log import log
from tidegate.web import limits
from tidegate.web.connections import peer
from tidegate.web.quotas import Quota
from tidegate.web.routes import CROWDED, Refused, answer
from tidegate.web.tokens import Token, Tokens

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Crowded(Exception):
    """There is no room for more of an answer; a reader of the live feed comes back where it was."""


# what a page of somebody else may read: neither where events are sent nor where tokens are needed
SHARED = re.compile(r"/streams(/.*)?|/openapi\.json")
EMBEDDED = re.compile(r"/embed/.*|/streams/.*/chart\.svg")


class _Answering:
    """An answer on its way: in slices, and counted for its reader until the last of them is handed over."""

    def __init__(self, gate: Middleware, scope: Scope, send: Send) -> None:
        self._gate, self._send = gate, send
        self._headers = gate.headers(scope)
        self._peer = peer(scope["client"][0] if scope.get("client") else "")
        self.start: Message | None = None  # held back until there is space for what follows it
        self.begun = False

    async def send(self, message: Message) -> None:
        """Send a part of an answer."""
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *self._headers]
            self.start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        size, readers = 2 * len(body), self._gate.readers  # as it is, and a copy on its way
        if len(body) > limits.SLICE and not readers.fits(self._peer, size):
            raise Crowded
        readers.take(self._peer, size)
        try:
            if self.start is not None:
                self.begun, start, self.start = True, self.start, None
                await self._send(start)
            for at in range(0, max(1, len(body)), limits.SLICE):
                part = body[at : at + limits.SLICE]
                last = at + limits.SLICE >= len(body)
                await self._send({"type": message["type"], "body": part, "more_body": more or not last})
        finally:
            readers.give(self._peer, size)


class Middleware:
    """ASGI middleware that lets no unknown host in and no unexplained error out.

    Parameters
    ----------
    app
        What is behind.
    hosts
        Names by which the service may be called; None for any. A page of somebody else's that has its own name point
        to this machine is kept out by it.
    readers
        Room for answers that readers have not yet taken.
    cors
        Origins whose scripts may read what is public; "*" for all.
    embed
        Origins whose pages may show charts; "*" for all.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] | None = None,
        readers: Quota | None = None,
        *,
        cors: Sequence[str] = (),
        embed: Sequence[str] = (),
    ) -> None:
        self.app = app
        self.readers = readers or Quota(limits.MOST_ANSWERS)
        self.hosts = None if hosts is None else frozenset(hosts)
        self.cors, self.embed = tuple(cors), tuple(embed)

    def headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """The headers of an answer, by its path and by who asks."""
        found, path = dict(HEADERS), scope["path"]
        if self.embed and EMBEDDED.fullmatch(path):
            ancestors = f"frame-ancestors {' '.join(self.embed)}"
            found["Content-Security-Policy"] = POLICY.replace("frame-ancestors 'none'", ancestors)
            found["Cross-Origin-Resource-Policy"] = "cross-origin"
        asked = dict(scope["headers"])
        if self.cors and scope["method"] in ("GET", "HEAD") and SHARED.fullmatch(path):
            found["Vary"] = "Origin"
            origin = asked.get(b"origin", b"").decode("latin-1")
            if b"authorization" not in asked and ("*" in self.cors or origin in self.cors):
                found["Access-Control-Allow-Origin"] = "*" if "*" in self.cors else origin
                found["Access-Control-Expose-Headers"] = "ETag"
        return [(name.lower().encode(), value.encode()) for name, value in found.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answering = _Answering(self, scope, send)
        response: Response
        if not self._known(scope):
            response = answer({"error": "this service is not known by that name; see --name."}, 421)
            await response(scope, receive, answering.send)
            return
        try:
            await self.app(scope, receive, answering.send)
        except Crowded:
            response = answer({"error": CROWDED}, 503, {"Retry-After": "10"})
        except Exception as error:  # its text may quote what was sent
            log("request.failed", kind=type(error).__name__)
            response = answer({"error": "the service has failed at this request; try again later."}, 500)
        else:
            return
        if not answering.begun:
            answering.start = None
            await response(scope, receive, answering.send)

    def _known(self, scope: Scope) -> bool:
        if self.hosts is None:
            return True
        given = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        bare = given.partition("]")[0] + "]" if given.startswith("[") else given.partition(":")[0]
        return bare.lower() in self.hosts


def bearer(request: Request, tokens: Tokens, role: str) -> Token:
    """The holder of the request's token, who must have a role; an operator may do what a producer may."""
    scheme, _, presented = request.headers.get("authorization", "").partition(" ")
    holder = tokens.holder(presented.strip()) if scheme.lower() == "bearer" else None
    if holder is None:
        raise Refused(
            401,
            "this needs a token; make one with `tidegate serve token` and send it as Authorization: Bearer ….",
            {"WWW-Authenticate": "Bearer"},
        )
    if holder.role not in (role, "operator"):
        raise Refused(403, f"this needs a token of the role {role}.")
    return holder


async def refused(_request: Request, error: Exception) -> Response:
    """A refusal as an answer."""
    assert isinstance(error, Refused)
    return answer({"error": error.sentence, **error.more}, error.status, error.headers)


async def failed(_request: Request, error: Exception) -> Response:
    """An error of Tidegate's own, which never quotes data; operators find its sentence in the log."""
    assert isinstance(error, TidegateError)
    log("request.failed", sentence=str(error))
    return answer({"error": "the service cannot answer this at the moment; try again later."}, 503)


async def unknown(_request: Request, error: Any) -> Response:
    """What the router refuses: a path that is not there, or a method that a path does not have."""
    words = {404: "there is nothing at this path.", 405: "this path does not take that method."}
    return answer(
        {"error": words.get(error.status_code, "this request cannot be answered.")},
        error.status_code,
        getattr(error, "headers", None),
    )
