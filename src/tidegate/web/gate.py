"""The gate in front of every request: host names, roles, headers, and errors as one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.runtime.journal import log
from tidegate.web.answers import Refused, answer
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


class Gate:
    """ASGI middleware that lets no unknown host in and no unexplained error out.

    Parameters
    ----------
    app
        What is behind.
    hosts
        Names by which the service may be called; None for any. A page of somebody else's that has its own name point
        to this machine is kept out by it.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None = None) -> None:
        self.app = app
        self.hosts = None if hosts is None else frozenset(hosts)
        self._headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        response: Response
        if not self._known(scope):
            response = answer({"error": "this service is not known by that name; see --name."}, 421)
            await response(scope, receive, guarded)
            return
        try:
            await self.app(scope, receive, guarded)
        except Exception as error:  # its text may quote what was sent
            log("request.failed", kind=type(error).__name__)
            if not begun:
                response = answer({"error": "the service has failed at this request; try again later."}, 500)
                await response(scope, receive, guarded)

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
