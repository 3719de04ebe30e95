"""What operators see with a token: budget, lag, sinks, configuration, warnings. Never a raw value."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tidegate.config import Queries
from tidegate.core.verify import Verification
from tidegate.exact import show
from tidegate.pipeline.stream_reader import read_stream
from tidegate.web.channel import Channel
from tidegate.web.driver import Driver
from tidegate.web.middleware import bearer
from tidegate.web.public_routes import NAME, QUERY, PublicRoutes, describe, shared
from tidegate.web.routes import JSON, Route, answer, read_query, reads
from tidegate.web.tokens import Tokens

HISTORY = 500  # steps of the budget's history


class OperatorRoutes:
    """Handlers of the operator's routes.

    Parameters
    ----------
    reading
        The public handlers.
    tokens
        Who is an operator.
    """

    def __init__(self, reading: PublicRoutes, tokens: Tokens) -> None:
        self.reading, self.tokens = reading, tokens

    @property
    def routes(self) -> tuple[Route, ...]:
        """What operators see."""
        return (
            *(
                reads(
                    path,
                    self.overlook,
                    f"Budget, lag, sinks, configuration and warnings of {what}.",
                    "All of it.",
                    parameters,
                    role="operator",
                )
                for path, what, parameters in (
                    ("/operator/streams/{name}", "one stream, of several queries together", (NAME,)),
                    ("/operator/streams/{name}/{query}", "one of several queries", (NAME, QUERY)),
                )
            ),
            Route(
                "POST",
                "/operator/streams/{name}/verify",
                self.verify,
                "Recompute the whole log and say whether every window kept its budget.",
                role="operator",
                parameters=(NAME,),
                answers={200: (JSON, "The verdict.")},
            ),
        )

    def _driver(self, request: Request) -> Driver:
        """The stream that an operator asks about."""
        bearer(request, self.tokens, "operator")
        read_query(request, ())
        return self.reading.driver(request)

    async def overlook(self, request: Request) -> Response:
        """One stream, for operators."""
        driver = self._driver(request)
        whole = driver.queries.listed and "query" not in request.path_params
        look = partial(together, driver) if whole else partial(overlook, self.reading.find(request))
        return answer(await run_in_threadpool(look), headers={"Cache-Control": "no-store"})

    async def verify(self, request: Request) -> Response:
        """Verification on demand; the stream continues meanwhile."""
        found = await run_in_threadpool(verify_stream, self._driver(request).queries)
        facts = {
            "ok": found.ok,
            "verdict": str(found),
            "commits": found.commits,
            "step": found.step,
            "head": found.head.hex(),
        }
        return answer(facts, headers={"Cache-Control": "no-store"})


def verify_stream(queries: Queries) -> Verification:
    """Recompute the log of a stream, beside whoever reads or writes it, as far as it has got."""
    with read_stream(queries) as stream:
        return stream.verify()


def together(driver: Driver) -> dict[str, Any]:
    """What operators see of a stream with several queries: what they spend together, and how each fares."""
    parts = {name: overlook(channel) for name, channel in driver.channels.items()}
    channels = driver.channels.values()
    spent = sum((each.spent for each in channels), Fraction(0))
    limit = sum((each.limit for each in channels), Fraction(0))
    whole = shared(driver)
    budget = {"spent_in_window": show(spent), "part": min(1.0, float(spent / limit))}
    kept = ("budget", "sink", "history", "plan", "configuration", "warnings")
    return {
        **whole,
        "budget": {**whole["budget"], **budget},
        **health(driver),
        "clients": driver.clients,
        "sinks": {name: part["sink"] for name, part in parts.items()},
        "warnings": list(dict.fromkeys(words for part in parts.values() for words in part["warnings"])),
        "queries": [
            {**short, **{name: parts[short["query"]][name] for name in kept}} for short in whole["queries"]
        ],
    }


def health(driver: Driver) -> dict[str, Any]:
    """How a stream fares, whatever its queries are."""
    return {
        "sentence": driver.sentence,
        "lag": driver.lag,
        "committed": driver.committed,
        "backlog": driver.backlog,
        "steps_behind": driver.steps_behind,
    }


def overlook(channel: Channel) -> dict[str, Any]:
    """What operators see of one query."""
    config, board, driver = channel.config, channel.board, channel.driver
    newest = board.select(since=max(1, board.step - HISTORY + 1))
    steps = newest.chunk.step
    try:
        expected: float | None = float(getattr(config.mechanism, "expected_error")())  # noqa: B009
    except Exception:  # not every mechanism can say
        expected = None
    half = (newest.high - newest.low) / 2
    known = half[np.isfinite(half)]
    return {
        **describe(channel),
        **health(driver),
        "clients": channel.feed.clients,
        "sink": None if config.sink.location == "-" else config.sink.location.rpartition("@")[2],
        "history": {
            "steps": steps.tolist(),
            "times": [channel.encoder.time(step) for step in steps.tolist()],
            "spent": channel.spent_by(steps).tolist(),
            "limit": float(channel.limit),
        },
        "plan": {
            "expected_error": expected,
            "half_interval": float(known.mean()) if len(known) else None,
        },
        "configuration": {
            "mechanism": config.mechanism.describe(),
            "steps": config.steps.describe(),
            "query": config.query.describe(),
            "parameters": {name: str(value) for name, value in config.parameters.items()},
        },
        "warnings": warnings(channel, newest.answers, half),
    }


def warnings(channel: Channel, answers: np.ndarray[Any, Any], half: np.ndarray[Any, Any]) -> list[str]:
    """What an operator should know, from releases alone."""
    found = []
    if channel.driver.state in ("failed", "waiting"):
        found.append(channel.driver.sentence)
    if channel.driver.damage:
        found.append(channel.driver.damage)
    never = [
        label for label, column in zip(channel.board.labels, answers.T, strict=True) if np.isnan(column).all()
    ]
    if len(answers) and never and channel.config.query.aggregate == "given":
        found.append(
            f"no reading was ever released for {', '.join(never[:5])}; check the names of the series."
        )
    if len(answers) and np.isfinite(half).any() and not channel.config.query.discovers:
        known = np.isfinite(half)
        noise = (
            np.where(known, half, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1) / 2
        )  # about its mean size
        small = [
            label
            for label, level, scale in zip(
                channel.board.labels, np.abs(np.nan_to_num(answers).mean(axis=0)), noise, strict=True
            )
            if scale > level
        ]
        if small:
            shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
            found.append(
                f"the noise is larger than the values of {shown}; "
                "longer steps, fewer columns or a larger budget would help."
            )
    return found
