"""Requests made up from the OpenAPI document, right and wrong ones: no failure, no traceback, nothing of the data."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from tests.web.helpers import in_two_queries, served
from tests.web.test_producer_routes import NDJSON, posted_text, record

from tidegate.config import parse_queries
from tidegate.web import Service
from tidegate.web.tokens import Tokens
from waiting import until

pytestmark = pytest.mark.slow  # a live service

REQUESTS = int(os.environ.get("TIDEGATE_REQUESTS", "2000"))  # over all routes
OVER_HTTP = (
    18 if REQUESTS <= 10_000 else 150
)  # of each route, through a real connection; the others call the application
Fuzzed = tuple[Any, httpx.Client, dict[str, str], Service]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """Live streams, with one query and with two, and the description of their service."""
    schemathesis = pytest.importorskip("schemathesis")
    folder = tmp_path_factory.mktemp("fuzz")
    tokens = Tokens(folder / "tokens.json")
    held = {role: tokens.add(role, role) for role in ("producer", "operator")}
    text = posted_text(folder, seconds=1, behind=60)
    answer = '[[answer]]\nname = "crowd"\nkind = "alarm"\nthreshold = 20\n'
    hall = parse_queries(text + answer, folder / "hall.toml")
    more = 'query = "people"\nlocation = "people.csv"\n'
    shop = parse_queries(in_two_queries(text) + answer + more, folder / "shop.toml")
    with served([hall, shop], tokens=folder / "tokens.json") as (address, service):
        until(lambda: all(driver.step > 3 for driver in service.drivers.values()))
        with httpx.Client(base_url=address, timeout=30) as client:
            document = client.get("/openapi.json").json()
            yield schemathesis.openapi.from_dict(document), client, held, service


def operations(schema: Any) -> Iterator[Any]:
    """All routes."""
    for found in schema.get_all_operations():
        yield found.ok()


def test_made_up_requests(fuzzed: Fuzzed, capsys: pytest.CaptureFixture[str]) -> None:
    """Each route answers only what it says it does; the stream continues meanwhile."""
    from schemathesis.generation import GenerationMode

    schema, client, held, service = fuzzed
    before = service.drivers["hall"].first.board.step
    routes = list(operations(schema))
    assert len(routes) >= 24
    each = max(OVER_HTTP, math.ceil(REQUESTS / len(routes)))
    sent: dict[str, int] = {}
    for operation in routes:
        begun = Sent.count
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            # a route without parameters has no wrong ones
            with suppress(Unsatisfiable):
                fuzz(operation, mode, client, held, OVER_HTTP // 3)
        nonsense(operation, client, held, OVER_HTTP // 3)
        called(operation, service, held, each - (Sent.count - begun))
        sent[f"{operation.method.upper()} {operation.path}"] = Sent.count - begun
    assert min(sent.values()) >= each
    if REQUESTS > 10_000:
        with capsys.disabled():
            for route, count in sent.items():
                print(f"{count:7,}  {route}")
            print(f"{sum(sent.values()):7,}  in all, answered with {dict(sorted(Sent.statuses.items()))}")
    until(lambda: service.drivers["hall"].first.board.step > before)
    assert service.drivers["hall"].state == "running"
    logged = capsys.readouterr().err
    assert "walrus" not in logged
    assert "Traceback" not in logged
    assert "request.failed" not in logged


class Sent:
    """How many requests were sent, and how they were answered."""

    count = 0
    statuses: ClassVar[Counter[int]] = Counter()


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
        # most requests are for streams that are there
        path = existing(case.path) if len(repr(case.query)) % 4 else case.formatted_path
        headers = {str(name): str(value) for name, value in (case.headers or {}).items()}
        headers.setdefault("Authorization", f"Bearer {held['operator']}")
        if case.media_type:
            headers["Content-Type"] = case.media_type
        body = case.body if isinstance(case.body, str | bytes) else repr(case.body)
        exchange(operation, client, path, case.query, headers, body if operation.method == "post" else None)

    send()


def existing(path: str) -> str:
    """The path of something that is there."""
    names = {"name": "shop" if "{query}" in path else "hall", "query": "people", "answer": "crowd"}
    for name, found in names.items():
        path = path.replace(f"{{{name}}}", found)
    return path


def nonsense(operation: Any, client: httpx.Client, held: dict[str, str], count: int) -> None:
    """Send queries, headers and bodies of any letters to one route."""
    letters = strategies.text(max_size=20)
    words = strategies.dictionaries(letters, letters, max_size=3)

    @quickly(count)
    @given(words, words, strategies.binary(max_size=200), strategies.sampled_from(["", *held.values()]))
    def send(query: dict[str, str], headers: dict[str, str], body: bytes, token: str) -> None:
        path = existing(operation.path)
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
    Sent.statuses[answer.status_code] += 1
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


ODD = (
    "",
    "0",
    "-1",
    "narwhal",
    "ä€",
    "1e9",
    "9" * 30,
    "../..",
    "%00",
    "null",
    "[]",
    "a,b",
    "'\"<script>",
    "\x00",
)
KINDS = (NDJSON, "text/csv", "application/vnd.apache.arrow.file", "application/json", "walrus/walrus", "")
HEADERS = (
    "accept",
    "if-none-match",
    "last-event-id",
    "content-encoding",
    "idempotency-key",
    "range",
    "x-forwarded-for",
)
VALUES = (*ODD, "text/csv", "gzip", "zstd", "*", "*/*;q=0", "47", "bytes=0-10", 'W/"walrus"')


def called(operation: Any, service: Service, held: dict[str, str], count: int) -> None:
    """Requests that are made by chance, to the application itself, in the loop of its server."""
    loop = service.drivers["hall"].first.feed._loop
    assert loop is not None
    chance = random.Random(operation.path)
    known = {404, 405, *(int(status) for status in operation.definition.raw["responses"])}

    async def all_of_them() -> None:
        for _ in range(count):
            status, headers, body = await ask(service.app, made_up(operation, held, chance))
            Sent.count += 1
            Sent.statuses[status] += 1
            assert status in known, (status, operation.path)
            assert b"Traceback" not in body
            assert b"walrus" not in body
            if status >= 400:
                assert set(json.loads(body)) <= {"error", "line", "rule"}
            assert b"content-security-policy" in dict(headers)

    if count > 0:
        asyncio.run_coroutine_threadsafe(all_of_them(), loop).result()


def made_up(operation: Any, held: dict[str, str], chance: random.Random) -> tuple[dict[str, Any], bytes]:
    """A request as the server hands it on: right in most parts and odd in some."""
    path = existing(operation.path)
    if chance.random() < 0.1:
        path = path.replace(chance.choice(("hall", "shop", "people", "crowd")), chance.choice(ODD) or "x")
    names = [each["name"] for each in operation.definition.raw.get("parameters", []) if each["in"] == "query"]
    pairs = []
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        name = chance.choice([*names, *names, *names, chance.choice(ODD)])
        pairs.append((name, chance.choice((*ODD, "1", "5", "latest", "all", "csv", "parquet", "north", "0"))))
    headers = [(b"host", b"127.0.0.1")]
    token = chance.choice((*held.values(), *held.values(), "tide_walrus", ""))
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    some = chance.sample(HEADERS, chance.choice((0, 1, 2, 3)))
    headers += [(name.encode(), chance.choice(VALUES).encode()) for name in some]
    body = b""
    if operation.method == "post":
        headers += [(b"content-type", chance.choice((NDJSON, *KINDS)).encode())]
        headers += [(b"idempotency-key", f"{chance.random()}".encode())]
        body = bytearray(b"".join(record(f"walrus{number}") for number in range(chance.choice((0, 1, 3)))))
        for _ in range(chance.choice((0, 0, 1, 5))):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        body = chance.choice((bytes(body), bytes(body), gzip.compress(bytes(body)), chance.randbytes(50)))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": operation.method.upper() if chance.random() < 0.98 else "DELETE",
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": urlencode(pairs).encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }
    return scope, body


async def ask(
    app: Any, request: tuple[dict[str, Any], bytes]
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """One request to the application; of an endless answer the first piece is read."""
    scope, body = request
    left = asyncio.Event()
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    found: dict[str, Any] = {"status": 0, "headers": [], "body": b""}

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.update(status=message["status"], headers=message["headers"])
        else:
            found["body"] += message.get("body", b"")
            left.set()

    await app(scope, receive, send)
    return found["status"], found["headers"], found["body"]


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
    paths += ("/streams/shop/people", "/streams/hall/answers/crowd", "/streams/shop/visits/account")
    texts += [client.get(path).text for path in paths]
    texts += [client.get("/operator/streams/hall", headers=operator).text]
    texts += [client.post("/operator/streams/hall/verify", headers=operator).text]
    step = service.drivers["hall"].first.board.step
    until(lambda: service.drivers["hall"].first.board.step > step)  # whatever is logged about them
    for text in (*texts, capsys.readouterr().err):
        assert "walrus" not in text
