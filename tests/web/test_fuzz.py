"""Requests made up from the OpenAPI document, right and wrong ones: no failure, no traceback, nothing of the data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from tests.web.helpers import served, until
from tests.web.test_sending import NDJSON, posted_text, record

from tidegate.config import parse_config, parse_queries
from tidegate.web import Service
from tidegate.web.tokens import Tokens

REQUESTS = int(os.environ.get("TIDEGATE_REQUESTS", "400"))  # over all routes
Fuzzed = tuple[Any, httpx.Client, dict[str, str], Service]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """A live stream with some releases, and the description of its service."""
    schemathesis = pytest.importorskip("schemathesis")
    folder = tmp_path_factory.mktemp("fuzz")
    tokens = Tokens(folder / "tokens.json")
    held = {role: tokens.add(role, role) for role in ("producer", "operator")}
    config = parse_config(posted_text(folder, seconds=1, behind=60), folder / "hall.toml")
    with served([config], tokens=folder / "tokens.json") as (address, service):
        until(lambda: service.drivers["hall"].first.board.step > 3)
        with httpx.Client(base_url=address, timeout=30) as client:
            document = client.get("/openapi.json").json()
            yield schemathesis.openapi.from_dict(document), client, held, service


def operations(schema: Any) -> Iterator[Any]:
    """All routes."""
    for found in schema.get_all_operations():
        yield found.ok()


def test_made_up_requests(fuzzed: Fuzzed, capsys: pytest.CaptureFixture[str]) -> None:
    """Each route answers only what it says it does; the stream goes on meanwhile."""
    from schemathesis.generation import GenerationMode

    schema, client, held, service = fuzzed
    before = service.drivers["hall"].first.board.step
    routes = list(operations(schema))
    assert len(routes) >= 14
    each = max(10, REQUESTS // (3 * len(routes)))
    for operation in routes:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            # a route without parameters has no wrong ones
            with suppress(Unsatisfiable):
                fuzz(operation, mode, client, held, each)
        sent = Sent.count
        nonsense(operation, client, held, each)
        assert Sent.count >= sent + each
    assert Sent.count >= each * len(routes)
    until(lambda: service.drivers["hall"].first.board.step > before)
    assert service.drivers["hall"].state == "running"
    logged = capsys.readouterr().err
    assert "walrus" not in logged
    assert "Traceback" not in logged
    assert "request.failed" not in logged


class Sent:
    """How many requests were sent."""

    count = 0


def quickly(count: int) -> settings:
    """So many examples, and nothing remembered."""
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


def fuzz(operation: Any, mode: Any, client: httpx.Client, held: dict[str, str], count: int) -> None:
    """Send requests that the document allows, or forbids, to one route."""

    @quickly(count)
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        path = case.formatted_path
        if len(repr(case.query)) % 4:  # most requests are for the stream that is there
            path = case.path.replace("{name}", "hall")
        headers = {str(name): str(value) for name, value in (case.headers or {}).items()}
        headers.setdefault("Authorization", f"Bearer {held['operator']}")
        if case.media_type:
            headers["Content-Type"] = case.media_type
        body = case.body if isinstance(case.body, str | bytes) else repr(case.body)
        exchange(operation, client, path, case.query, headers, body if operation.method == "post" else None)

    send()


def nonsense(operation: Any, client: httpx.Client, held: dict[str, str], count: int) -> None:
    """Send queries, headers and bodies of any letters to one route."""
    letters = strategies.text(max_size=20)
    words = strategies.dictionaries(letters, letters, max_size=3)

    @quickly(count)
    @given(words, words, strategies.binary(max_size=200), strategies.sampled_from(["", *held.values()]))
    def send(query: dict[str, str], headers: dict[str, str], body: bytes, token: str) -> None:
        path = operation.path.replace("{name}", "hall")
        headers = {"Content-Type": NDJSON, "Idempotency-Key": repr(query)[:99], **headers}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        exchange(operation, client, path, query, headers, body if operation.method == "post" else None)

    send()


def exchange(
    operation: Any, client: httpx.Client, path: str, query: Any, headers: dict[str, str], body: Any
) -> None:
    """Send one request and look at the answer."""
    known = {404, 405, *(int(status) for status in operation.definition.raw["responses"])}
    headers = {name: value for name, value in headers.items() if _sendable(name, value)}
    Sent.count += 1
    try:
        request = client.build_request(operation.method, path, params=query, headers=headers, content=body)
        answer = client.send(request, stream=True)
    except (httpx.InvalidURL, UnicodeError, TypeError, httpx.UnsupportedProtocol):
        return  # the client itself refuses it
    except httpx.HTTPError:
        client.get("/healthz").raise_for_status()  # the server closed the connection on nonsense, and lives
        return
    try:
        if answer.status_code == 400 and not answer.headers.get("content-type", "").startswith(
            "application/json"
        ):
            return  # no HTTP at all: the server's own answer
        assert answer.status_code in known, (answer.status_code, path)
        endless = answer.headers.get("content-type", "").startswith("text/event-stream")
        text = "" if endless else answer.read().decode("utf-8", "replace")
        assert "Traceback" not in text
        assert "walrus" not in text
        if answer.status_code >= 400:
            assert set(json.loads(text)) <= {"error", "line", "rule"}
    finally:
        answer.close()


def _sendable(name: str, value: str) -> bool:
    return (
        name.isascii() and value.isascii() and "\n" not in value and "\r" not in value and bool(name.strip())
    )


def test_events_are_in_no_answer_and_no_log(fuzzed: Fuzzed, capsys: pytest.CaptureFixture[str]) -> None:
    """Markers that were sent, taken or refused, come back nowhere."""
    _, client, held, service = fuzzed
    headers = {"Authorization": f"Bearer {held['producer']}", "Content-Type": NDJSON}
    good, bad = record("walrus1") + record("walrus2", "walrus"), record("walrus3") + b'{"unit": "walrus"}\n'
    bodies = (good, bad, b"walrus", good.replace(b'"time"', b'"walrus"'))
    texts = [
        client.post(
            "/streams/hall/events", content=body, headers={**headers, "Idempotency-Key": f"m{number}"}
        ).text
        for number, body in enumerate(bodies)
    ]
    step = service.drivers["hall"].first.board.step
    until(lambda: service.drivers["hall"].first.board.step > step + 1)
    operator = {"Authorization": f"Bearer {held['operator']}"}
    paths = ("/streams", "/streams/hall", "/streams/hall/releases", "/metrics", "/streams/hall/account/rows")
    texts += [client.get(path).text for path in paths]
    texts += [client.get("/operator/streams/hall", headers=operator).text]
    texts += [client.post("/operator/streams/hall/verify", headers=operator).text]
    time.sleep(0.1)
    for text in (*texts, capsys.readouterr().err):
        assert "walrus" not in text


def test_damaged_arrow_is_refused(tmp_path: Path) -> None:
    """Whatever bytes are changed in an Arrow batch, it is taken or refused, and the process lives."""
    import io

    import polars as pl

    from tidegate.errors import TidegateError
    from tidegate.web.parsing import ARROW, Parser

    parser = Parser(parse_queries(posted_text(tmp_path), tmp_path / "hall.toml"))
    frame = pl.DataFrame({"time": [time.time()] * 50, "unit": ["a"] * 50, "place": ["north"] * 50})
    for write in (frame.write_ipc, frame.write_ipc_stream):
        file = io.BytesIO()
        write(file)
        whole = bytearray(file.getvalue())
        for at in range(0, len(whole), 3):
            damaged = bytes(whole[:at]) + bytes([whole[at] ^ (1 << at % 8)]) + bytes(whole[at + 1 :])
            for body in (damaged, damaged[:at]):
                with suppress(TidegateError):
                    parser.parse(ARROW[0], body)
