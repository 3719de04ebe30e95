"""For machines: metrics, health, readiness, and the description of the interface. Nothing from raw data.

How long something took may depend on raw data, so what the service has measured of that is for operators only.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator

from starlette.requests import Request
from starlette.responses import Response

from tidegate.version import __version__
from tidegate.web.channel import Channel
from tidegate.web.driver import Driver
from tidegate.web.middleware import bearer
from tidegate.web.routes import JSON, Route, answer, openapi, read_query, reads
from tidegate.web.tokens import Tokens

TEXT = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("opening", "running", "waiting", "ended", "failed", "stopped")

# of each stream, and of each query
GAUGES: tuple[tuple[str, str, str, Callable[[Driver], float | None]], ...] = (
    ("tidegate_steps_total", "counter", "Steps that were released.", lambda each: each.step),
    (
        "tidegate_sink_waiting",
        "gauge",
        "1 while a sink cannot be reached.",
        lambda each: float(each.state == "waiting"),
    ),
    (
        "tidegate_sink_backlog",
        "gauge",
        "Committed releases that a sink lacks.",
        lambda each: each.backlog,
    ),
    (
        "tidegate_steps_behind",
        "gauge",
        "Steps that the clock has closed and that are not released.",
        lambda each: each.steps_behind,
    ),
    (
        "tidegate_source_connected",
        "gauge",
        "0 while the source does not answer.",
        lambda each: each.connected,
    ),
    (
        "tidegate_clock_set_seconds",
        "gauge",
        "By how much the system's clock was set since the stream was started.",
        lambda each: each.clock_set_by,
    ),
)
# of each stream, for operators
TIMES: tuple[tuple[str, str, str, Callable[[Driver], float | None]], ...] = (
    (
        "tidegate_lag_seconds",
        "gauge",
        "From the close of the last step to its release.",
        lambda each: each.lag,
    ),
    (
        "tidegate_last_commit_timestamp_seconds",
        "gauge",
        "When something was last committed.",
        lambda each: each.committed,
    ),
)
QUERY_GAUGES: tuple[tuple[str, str, str, Callable[[Channel], float | None]], ...] = (
    ("tidegate_releases_total", "counter", "Releases, revisions included.", lambda each: each.board.number),
    (
        "tidegate_budget_spent_ratio",
        "gauge",
        "The part of the budget, or of its share, that the last window has spent.",
        lambda each: float(each.spent / each.limit),
    ),
    ("tidegate_clients", "gauge", "Clients of the live feed.", lambda each: each.feed.clients),
)


class MonitoringRoutes:
    """Handlers of what machines read.

    Parameters
    ----------
    drivers
        The streams by name.
    tokens
        Who is an operator.
    """

    def __init__(self, drivers: dict[str, Driver], tokens: Tokens) -> None:
        self.drivers, self.tokens = drivers, tokens
        self.begun = time.time()
        self.described: tuple[Route, ...] = ()

    @property
    def routes(self) -> tuple[Route, ...]:
        """What machines read."""
        every = "Whether every stream is at work or has ended."
        sums = "Steps, budget and sinks for Prometheus; with an operator's token also how long things took."
        refused = {401: (JSON, "The token is not known."), 403: (JSON, "The token has another role.")}
        return (
            reads("/healthz", self.healthz, "Whether the process answers.", "It is."),
            reads("/readyz", self.readyz, every, "It is.", besides={503: (JSON, "It is not.")}),
            reads("/metrics", self.metrics, sums, "Metrics.", kinds=("text/plain",), besides=refused),
            reads("/openapi.json", self.openapi, "This document.", "OpenAPI 3.1."),
        )

    async def healthz(self, request: Request) -> Response:
        """Alive."""
        read_query(request, ())
        return answer({"ok": True})

    async def readyz(self, request: Request) -> Response:
        """Every stream is at work."""
        read_query(request, ())
        states = {each.name: each.health for each in self.drivers.values()}
        ready = all(state in ("running", "waiting", "ended") for state in states.values())
        return answer({"ready": ready, "streams": states}, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """The text format of Prometheus."""
        read_query(request, ())
        operator = "authorization" in request.headers
        if operator:
            bearer(request, self.tokens, "operator")
        return Response("\n".join(self._lines(operator=operator)) + "\n", media_type=TEXT)

    def _lines(self, *, operator: bool) -> Iterator[str]:
        for name, kind, words, sample in (*GAUGES, *TIMES) if operator else GAUGES:
            yield from _header(name, kind, words)
            for driver in self.drivers.values():
                value = sample(driver)
                if value is not None:
                    yield f'{name}{{stream="{driver.name}"}} {value:.17g}'
        channels = [each for driver in self.drivers.values() for each in driver.channels.values()]
        for name, kind, words, of in QUERY_GAUGES:
            yield from _header(name, kind, words)
            for channel in channels:
                value = of(channel)
                labels = ",".join(f'{key}="{text}"' for key, text in channel.encoder.names.items())
                if value is not None:
                    yield f"{name}{{{labels}}} {value:.17g}"
        yield from _header("tidegate_stream_state", "gauge", "1 for the state that a stream is in.")
        for driver in self.drivers.values():
            for state in STATES:
                yield f'tidegate_stream_state{{stream="{driver.name}",state="{state}"}} {int(driver.state == state)}'
        yield from _header("process_start_time_seconds", "gauge", "When the process began.")
        yield f"process_start_time_seconds {self.begun:.3f}"
        if not operator:
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield from _header("process_cpu_seconds_total", "counter", "Processor time.")
        yield f"process_cpu_seconds_total {usage.ru_utime + usage.ru_stime:.3f}"

    async def openapi(self, request: Request) -> Response:
        """The interface, from the code."""
        read_query(request, ())
        return answer(openapi(self.described, __version__))


def _header(name: str, kind: str, words: str) -> tuple[str, str]:
    """The two comment lines before a metric."""
    return f"# HELP {name} {words}", f"# TYPE {name} {kind}"
