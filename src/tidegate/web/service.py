"""The service: streams driven in one process, and the application that serves what they release."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route as Path_
from starlette.types import ASGIApp

from tidegate.config import Config, Queries, read_queries
from tidegate.config.queries import one
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.pipeline.json_log import log
from tidegate.web import limits
from tidegate.web.account_routes import AccountRoutes
from tidegate.web.connections import limited
from tidegate.web.driver import Clock, Driver
from tidegate.web.http_source import LOCATION, HttpDriver
from tidegate.web.middleware import LOOPBACK, Middleware, failed, refused, unknown
from tidegate.web.monitoring_routes import MonitoringRoutes
from tidegate.web.operator_routes import OperatorRoutes
from tidegate.web.pages import Pages
from tidegate.web.producer_routes import ProducerRoutes
from tidegate.web.public_routes import RESERVED, PublicRoutes
from tidegate.web.quotas import Quota
from tidegate.web.routes import Refused, Route
from tidegate.web.server_log import only_lines, quiet_server
from tidegate.web.tokens import Tokens

_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?")  # as browsers send it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOOPBACK_ADDRESSES = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """Where and for whom the service is.

    Parameters
    ----------
    host, port
        Where it listens; port 0 takes a free one.
    tokens
        The file of tokens.
    names
        Further names by which it may be called, for example behind a proxy.
    certificate, key
        Files for TLS.
    cors
        Origins of pages whose scripts may read what is public; "*" for all.
    embed
        Origins of pages that may show charts in a frame; "*" for all. Pictures of charts are then for any page.
    backfill
        Accept that more steps close at once than `catch_up` allows.
    clock
        Public time, for made-up streams only.

    Examples
    --------
    >>> Settings(port=0).host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int = 8470
    tokens: Path = Path("tokens.json")
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    cors: tuple[str, ...] = ()
    embed: tuple[str, ...] = ()
    backfill: bool = False
    clock: Clock | None = field(default=None, repr=False)

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in _LOOPBACK_ADDRESSES


class Service:
    """Streams and the application that serves them.

    Parameters
    ----------
    configs
        The checked configurations, each with one query or several; a stream's name is that of its file.
    settings
        Where and for whom.
    """

    def __init__(self, configs: Sequence[Config | Queries], settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.tokens = Tokens(self.settings.tokens)
        if not self.settings.local and not self.tokens.entries:
            raise InvalidParameter(
                "host",
                self.settings.host,
                "127.0.0.1 while there is no token",
                f"make one first with `tidegate serve token add operator --tokens {self.settings.tokens}`",
            )
        if (self.settings.certificate is None) != (self.settings.key is None):
            raise InvalidParameter(
                "certificate", "alone", "given together with --key", "give both files or none"
            )
        for name in ("cors", "embed"):
            _check_origins(name, getattr(self.settings, name))
        self.drivers = self._open([each if isinstance(each, Queries) else one(each) for each in configs])
        self.readers = Quota(limits.MOST_ANSWERS)  # bytes that readers have not yet taken
        self.reading = PublicRoutes(self.drivers, self.readers)
        self.publishing = AccountRoutes(self.reading)
        self.sending = ProducerRoutes(self.reading, self.tokens)
        self.machines = MonitoringRoutes(self.drivers, self.tokens)
        self.app = self._app()

    def _open(self, configs: Sequence[Queries]) -> dict[str, Driver]:
        names = [stream_name(queries) for queries in configs]
        for name in names:
            if names.count(name) > 1:
                raise InvalidParameter("streams", name, "files with different names", "rename one of them")
        drivers: dict[str, Driver] = {}
        try:
            for name, queries in zip(names, configs, strict=True):
                kind = HttpDriver if queries.first.source.location == LOCATION else Driver
                drivers[name] = kind(name, queries, self.settings.clock, backfill=self.settings.backfill)
        except BaseException:
            for driver in drivers.values():
                driver.join()
            raise
        return drivers

    @property
    def routes(self) -> tuple[Route, ...]:
        """Everything that the OpenAPI document describes."""
        return (
            *self.reading.routes,
            *self.publishing.routes,
            *self.sending.routes,
            *OperatorRoutes(self.reading, self.tokens).routes,
            *self.machines.routes,
        )

    def _app(self) -> ASGIApp:
        self.machines.described = self.routes
        # a query stands for any word that is not one of the service's own
        ordered = sorted(self.routes, key=lambda route: route.path.endswith("/{query}"))
        paths = [Path_(route.path, route.handler, methods=[route.method]) for route in ordered]
        handlers: dict[Any, Any] = {Refused: refused, TidegateError: failed, HTTPException: unknown}
        inner = Starlette(
            routes=[*paths, *Pages(self.reading, embedded=bool(self.settings.embed)).paths],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )
        inner.router.redirect_slashes = False
        hosts = (*LOOPBACK, *self.settings.names) if self.settings.local or self.settings.names else None
        return Middleware(inner, hosts, self.readers, cors=self.settings.cors, embed=self.settings.embed)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            self.stop()
            await asyncio.get_running_loop().run_in_executor(None, self.join)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to drive all streams."""
        for driver in self.drivers.values():
            for channel in driver.channels.values():
                channel.feed.bind(loop)
            driver.start()

    def stop(self) -> None:
        """Let clients go, and end every stream between two blocks."""
        for driver in self.drivers.values():
            driver.stop()
            for channel in driver.channels.values():
                channel.feed.end()

    def join(self) -> None:
        """Wait until all streams have ended."""
        for driver in self.drivers.values():
            driver.join()
        log("service.stopped")


class Server(uvicorn.Server):
    """An HTTP server that lets the clients of the live feed go as soon as it is asked to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None] | None) -> None:
        super().__init__(config)
        self.service, self.ready = service, ready

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM or SIGINT: end in order; a second interruption, at once."""
        self.service.stop()
        # without the words of the class above: it would raise the signal again when all is done
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where the service is as soon as it is there."""
        await super().startup(sockets)
        if self.started and self.ready is not None and sockets:
            scheme = "https" if self.config.ssl_certfile else "http"
            host, port = sockets[0].getsockname()[:2]
            self.ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/")


def _check_origins(name: str, origins: Sequence[str]) -> None:
    """Refuse what is no origin: a header would hold it."""
    for each in origins:
        if each != "*" and not _ORIGIN.fullmatch(each):
            raise InvalidParameter(
                name,
                each[:80],
                "* or an origin without a path",
                f"write for example --{name} https://www.example.org",
            )


def stream_name(queries: Queries) -> str:
    """The name of a stream in addresses: that of its file; names of queries stand beside other words there."""
    name = queries.path.stem
    for part in queries.parts if queries.listed else ():
        if part.name in RESERVED:
            raise InvalidParameter(
                "name",
                part.name,
                "no word of the service's addresses",
                f"call the query {part.name}-count or so",
            )
    if not _NAME.fullmatch(name):
        raise InvalidParameter(
            "stream", name, "letters, digits, - and _", "rename its configuration, for example to campus.toml"
        )
    return name


def serve(
    files: Sequence[str | Path], settings: Settings, ready: Callable[[str], None] | None = None
) -> None:
    """Drive the streams of some configurations and serve them until SIGTERM or SIGINT.

    Parameters
    ----------
    files
        The configurations.
    settings
        Where and for whom.
    ready
        Called with the address as soon as the service answers.
    """
    quiet_server()
    listening = listen(settings)
    limits.connections(len(files))  # refused before any stream is opened
    service = Service([read_queries(file) for file in files], settings)
    config = server_config(service)
    log("service.started", streams=list(service.drivers), host=settings.host, port=listening.getsockname()[1])
    with only_lines():
        Server(config, service, ready).run(sockets=[listening])


def server_config(service: Service) -> uvicorn.Config:
    """How the server treats connections; refused where too few files may be open for that."""
    return uvicorn.Config(
        service.app,
        http=limited(limits.connections(len(service.drivers))),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=10,
        timeout_keep_alive=int(limits.NEXT_SECONDS),
        ssl_certfile=service.settings.certificate,
        ssl_keyfile=service.settings.key,
        ws="none",
        lifespan="on",
        backlog=limits.BACKLOG,
    )


def listen(settings: Settings) -> socket.socket:
    """The socket, so that a port that is taken is refused before any stream is opened."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER)
        found.listen(limits.BACKLOG)
    except (OSError, OverflowError) as error:
        found.close()
        reason = getattr(error, "strerror", None) or "a port is a number from 0 to 65535"
        raise InvalidParameter(
            "port", settings.port, f"free on {settings.host} ({reason})", "choose another with --port"
        ) from None
    return found
