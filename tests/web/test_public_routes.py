from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from tests.web.helpers import configured, finite, in_two_queries, served, settled, verified

from tidegate.config import Queries, parse_queries
from tidegate.config.queries import one
from tidegate.pipeline.amend import amend
from tidegate.pipeline.earlier_releases import ended_scopes
from tidegate.pipeline.logs import LogReader
from tidegate.web import Service
from tidegate.web.monitoring_routes import STATES
from tidegate.web.release_cache import ReleaseCache

ALERTS = Path(__file__).resolve().parents[2] / "docs" / "examples" / "tidegate-alerts.yml"


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Service]]:
    """A finite stream, released and served."""
    folder = tmp_path_factory.mktemp("hall")
    with served([finite(folder)], tokens=folder / "tokens.json") as (address, service):
        settled(service)
        with httpx.Client(base_url=address) as client:
            yield client, service


Hall = tuple[httpx.Client, Service]


def test_streams_are_listed_and_described(hall: Hall) -> None:
    """A stream tells its guarantee, clock, columns and budget."""
    client, _ = hall
    assert [each["name"] for each in client.get("/streams").json()["streams"]] == ["hall"]
    found = client.get("/streams/hall").json()
    assert found["labels"] == ["north", "south"]
    assert "1-differentially private" in found["guarantee"]
    assert found["clock"]["zone"] == "Europe/Berlin"
    assert found["clock"]["start"] == "2026-03-02T00:00:00+01:00"
    assert found["budget"]["limit"] == "1"
    assert found["budget"]["part"] == 1.0
    assert any("ε" in each["question"] for each in found["meaning"])


def test_all_formats_hold_the_same_values(hall: Hall) -> None:
    """JSON, CSV, Parquet and Arrow say the same, each value with its interval."""
    client, _ = hall
    document = client.get("/streams/hall/releases").json()
    values = [value for each in document["releases"] for value in each["values"]]
    assert len(document["releases"]) == 48
    assert document["last"] == 48
    frames = {
        "csv": pl.read_csv(client.get("/streams/hall/releases?format=csv").content),
        "parquet": pl.read_parquet(io.BytesIO(client.get("/streams/hall/releases?format=parquet").content)),
        "arrow": pl.read_ipc(io.BytesIO(client.get("/streams/hall/releases?format=arrow").content)),
    }
    for frame in frames.values():
        assert frame["value"].to_list() == values
        assert frame["column"].to_list() == ["north", "south"] * 48
        assert ((frame["low"] <= frame["value"]) & (frame["value"] <= frame["high"])).all()
    one = document["releases"][0]
    assert all(
        low <= value <= high for low, value, high in zip(one["low"], one["values"], one["high"], strict=True)
    )


def test_ranges_and_columns(hall: Hall) -> None:
    """Since, until and columns choose; what is not there is refused in a sentence."""
    client, _ = hall
    found = client.get("/streams/hall/releases", params={"since": 5, "until": 7, "columns": ["south"]}).json()
    assert [each["step"] for each in found["releases"]] == [5, 6, 7]
    assert found["columns"] == ["south"]
    assert all(len(each["values"]) == 1 for each in found["releases"])
    assert client.get("/streams/hall/releases?since=47&until=900").json()["releases"][-1]["step"] == 48
    for query in (
        "columns=east",
        "since=0",
        "since=x",
        "format=xml",
        "revision=first",
        "limit=3",
        "since=1&since=2",
    ):
        refused = client.get(f"/streams/hall/releases?{query}")
        assert refused.status_code == 400, query
        assert refused.json()["error"].endswith("."), query
    assert client.get("/streams/attic").status_code == 404
    assert client.get("/streams/attic/releases").status_code == 404


def test_etags_are_strong(hall: Hall) -> None:
    """The same question has the same tag and the same bytes; another question has another tag."""
    client, _ = hall
    first = client.get("/streams/hall/releases?format=parquet")
    again = client.get("/streams/hall/releases?format=parquet")
    assert first.headers["etag"] == again.headers["etag"]
    assert first.content == again.content
    assert not first.headers["etag"].startswith("W/")
    unchanged = client.get(
        "/streams/hall/releases?format=parquet", headers={"If-None-Match": first.headers["etag"]}
    )
    assert unchanged.status_code == 304
    assert unchanged.content == b""
    assert client.get("/streams/hall/releases").headers["etag"] != first.headers["etag"]


def test_accept_chooses_the_format(hall: Hall) -> None:
    """Where no format is named, Accept decides."""
    client, _ = hall
    found = client.get("/streams/hall/releases", headers={"Accept": "text/csv"})
    assert found.headers["content-type"].startswith("text/csv")
    assert found.headers["vary"] == "Accept"


def test_old_releases_come_from_the_store(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no longer in memory reads the same from the store."""
    _, service = hall
    driver = service.drivers["hall"].first
    whole, chunk = driver.board.select(), driver.board.after(0, 10**6)
    monkeypatch.setattr("tidegate.web.release_cache.KEPT_CELLS", 40)
    small = ReleaseCache(driver.config, driver._past)
    for at in range(48):
        small.add(chunk[at : at + 1])
    assert len(small._tail) < 10
    assert small.number == 48
    assert small.select().answers.tolist() == whole.answers.tolist()
    assert small.select(since=47).answers.tolist() == whole.answers[46:].tolist()
    assert small.after(3, 5).step.tolist() == [4, 5, 6, 7, 8]
    assert small.after(46, 5).step.tolist() == [47, 48]


def test_small_chunks_are_put_together(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that releases one step at a time for ever keeps few and large pieces, and reads the same."""
    _, service = hall
    driver = service.drivers["hall"].first
    whole, chunk = driver.board.select(), driver.board.after(0, 10**6)
    monkeypatch.setattr("tidegate.web.release_cache.TOGETHER", 10)
    board = ReleaseCache(driver.config, driver._past)
    for at in range(48):
        board.add(chunk[at : at + 1])
        assert board.number == at + 1
        assert len(board._tail) <= at // 10 + 10
    assert len(board._tail) == 4 + 8
    assert board.select().answers.tolist() == whole.answers.tolist()
    assert board.after(37, 5).step.tolist() == [38, 39, 40, 41, 42]
    assert board.transcript == driver.board.transcript


def test_every_answer_has_a_strict_policy(hall: Hall) -> None:
    """No inline script, no third-party host, no cookie, on pages, files and refusals alike."""
    client, _ = hall
    for path in ("/", "/view/hall", "/operator", "/streams", "/nothing", "/static/nothing.js", "/metrics"):
        found = client.get(path)
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in found.headers


def test_another_host_name_is_refused(hall: Hall) -> None:
    """A page that has its own name point to this machine does not get in."""
    client, _ = hall
    assert client.get("/streams", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/streams", headers={"Host": "localhost:1"}).status_code == 200


def test_metrics_do_not_show_how_much_was_counted(hall: Hall) -> None:
    """Neither processor time nor lag: what takes longer shows how many events there were."""
    client, service = hall
    service.drivers["hall"].lag = 0.123
    lines = client.get("/metrics").text.splitlines()
    names = {line.partition(" ")[0].partition("{")[0] for line in lines if not line.startswith("#")}
    assert not [name for name in names if any(word in name for word in ("cpu", "memory", "lag", "commit"))]


def test_machines_read_health_and_metrics(hall: Hall) -> None:
    """Health, readiness, metrics and the description of the interface."""
    client, _ = hall
    assert client.get("/healthz").json() == {"ok": True}
    assert client.get("/readyz").json() == {"ready": True, "streams": {"hall": "ended"}}
    metrics = client.get("/metrics").text
    assert 'tidegate_steps_total{stream="hall"} 48' in metrics
    assert 'tidegate_budget_spent_ratio{stream="hall"} 1' in metrics
    assert "cpu" not in metrics, "how long things took is for operators"
    assert "lag" not in metrics
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.")
    assert "/streams/{name}/live" in described["paths"]


def test_the_feed_starts_where_it_is_asked_to(hall: Hall) -> None:
    """After a number, or after Last-Event-ID, which goes before it; a number of another life resets."""
    client, _ = hall
    assert numbers(client, "/streams/hall/live?after=0", 48) == list(range(1, 49))
    assert numbers(client, "/streams/hall/live?after=3", 2, {"Last-Event-ID": "45"}) == [46, 47]
    with client.stream("GET", "/streams/hall/live?after=99") as found:
        lines = found.iter_lines()
        assert "event: reset" in [next(lines) for _ in range(3)]


def numbers(client: httpx.Client, path: str, count: int, headers: dict[str, str] | None = None) -> list[int]:
    """The numbers of the next events of a feed."""
    found: list[int] = []
    with client.stream("GET", path, headers=headers or {}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: ") and line != "data: {}":
                found.append(json.loads(line[6:])["number"])
                if len(found) == count:
                    break
    return found


def test_a_map_is_served_where_there_is_one(tmp_path: Path) -> None:
    """A GeoJSON file beside the configuration; one that is none is refused at the start."""
    from tidegate.errors import InvalidParameter

    config = finite(tmp_path)
    (tmp_path / "hall.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    with served([config]) as (address, _):
        assert httpx.get(f"{address}/streams/hall/map").json()["features"] == []
    (tmp_path / "hall.geojson").write_text("{}")
    with pytest.raises(InvalidParameter, match="FeatureCollection"):
        Service([config])


def test_alerts_name_what_is_published(hall: Hall) -> None:
    """Every metric and every state in the rules is one that the service tells operators."""
    client, service = hall
    tokens = {role: service.tokens.add(role, role) for role in ("operator", "producer")}
    answers = {
        role: client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        for role, token in tokens.items()
    }
    assert answers["producer"].status_code == 403
    published = set(re.findall(r"^# TYPE (\w+)", answers["operator"].text, re.MULTILINE))
    rules = ALERTS.read_text(encoding="utf-8")
    expressions = re.findall(r"expr: (.*)", rules)
    asked = {name for text in expressions for name in re.findall(r"\b((?:tidegate|process)_\w+)", text)}
    assert len(expressions) == rules.count("- alert:") >= 8
    assert asked <= published
    states = re.findall(r'state="(\w+)"', rules)
    assert set(states) <= set(STATES)
    assert {"tidegate_sink_backlog", "tidegate_steps_behind", "tidegate_source_connected"} <= published


def test_alerts_are_rules_of_prometheus() -> None:
    """As its own tool says."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; it comes with Debian's package prometheus")
    done = subprocess.run(
        [program, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_an_amended_stream_is_served_from_where_it_begins(tmp_path: Path) -> None:
    """The service continues a stream that was amended, within the smaller promise, when windows have room for it."""
    short = finite(tmp_path, ("count = 48", "count = 24"))
    with served([short], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        before = httpx.get(f"{address}/streams/hall/releases").json()["releases"]
    longer = finite(tmp_path, ('epsilon = "1"', 'epsilon = "1/2"'))
    assert amend(one(longer)).begun == {"query": 28}
    with served([longer], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        assert service.drivers["hall"].step == 48
        with httpx.Client(base_url=address) as client:
            found = client.get("/streams/hall/releases").json()["releases"]
            assert [each["step"] for each in found] == list(range(1, 49))
            assert [each["status"] for each in found] == ["fresh"] * 24 + ["silent"] * 3 + ["fresh"] * 21
            for then, now in zip(before, found, strict=False):
                for key in ("time", "values", "low", "high", "status", "scale"):
                    assert now[key] == then[key]
            assert {(each["number"], each["spent"]) for each in found[:27]} == {(None, None)}
            assert [each["number"] for each in found[27:]] == list(range(1, 22))
            part = client.get("/streams/hall/releases?since=20&until=29&format=csv").text.splitlines()
            assert [line.split(",")[2] for line in part[1::2]] == [str(step) for step in range(20, 30)]
            assert part[1].startswith(",2026")
            assert client.get("/streams/hall/releases?until=3").json()["releases"] == found[:3]
            columns = httpx.get(f"{address}/streams/hall").json()["labels"]
            wide = client.get(f"/streams/hall/releases?columns={columns[1]}").json()["releases"]
            assert [each["values"] for each in wide] == [each["values"][1:2] for each in found]
            assert client.get("/streams/hall").json()["budget"]["limit"] == "0.5"
    assert verified(longer.ledger).ok


def test_what_is_shown_from_before_an_amendment_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last values: the service does not keep a long past in memory."""
    monkeypatch.setattr("tidegate.web.release_cache.EARLIER_CELLS", 20)
    short = finite(tmp_path, ("count = 48", "count = 24"))
    with served([short], tokens=tmp_path / "tokens.json") as (_, service):
        settled(service)
    longer = finite(tmp_path, ('epsilon = "1"', 'epsilon = "1/2"'))
    amend(one(longer))
    with served([longer], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        found = httpx.get(f"{address}/streams/hall/releases").json()["releases"]
        assert [each["step"] for each in found] == list(range(28 - 10, 49))


def test_only_the_same_statistic_is_shown_from_before_an_amendment(tmp_path: Path) -> None:
    """Another column of the input is another statistic, and so is `other` beside another list."""
    short = finite(tmp_path, ("count = 48", "count = 24"))
    with served([short], tokens=tmp_path / "tokens.json") as (_, service):
        settled(service)
    half = ("columns = [", 'outside = "other"\ncolumns = [')
    less = finite(tmp_path, half)
    amend(one(less))
    with served([less], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        found = httpx.get(f"{address}/streams/hall/releases").json()
        other = found["columns"].index("other")
        early = [each for each in found["releases"] if each["number"] is None]
        assert len(early) == 27
        assert {each["values"][other] for each in early} == {None}
        assert None not in {each["values"][1 - min(other, 1)] for each in early[:24]}
    with LogReader(less.ledger) as log:
        (ended,) = ended_scopes(log.rows())
    assert ended.same_statistic(less)
    assert not ended.same_statistic(configured(tmp_path, half, ('column = "place"', 'column = "unit"')))


def test_an_ended_stream_says_what_it_has_spent(tmp_path: Path) -> None:
    """Also after a restart, when its session is closed: a mechanism that has a last word ends the stream finally."""
    for _ in range(2):
        with served([finite(tmp_path, ('"Uniform"', '"Tide"'))], tokens=tmp_path / "tokens.json") as (
            address,
            service,
        ):
            settled(service)
            budget = httpx.get(f"{address}/streams/hall").json()["budget"]
            assert (budget["spent_in_window"], budget["part"]) == ("1", 1.0)


def test_an_unchanged_query_keeps_its_history_through_an_amendment(tmp_path: Path) -> None:
    """Another query is added beside it: its releases, their numbers and their address stay as they were."""
    text = in_two_queries(finite(tmp_path).path.read_text()) + '[sink]\nlocation = "released.csv"\n'
    third = '[[query]]\nname = "again"\naggregate = "count"\nshare = "1/4"\n\n[protect]'

    def queries(count: int, *, more: bool) -> Queries:
        written = text.replace("count = 48", f"count = {count}").replace('"3/4"', '"1/2"')
        return parse_queries(written.replace("[protect]", third) if more else written, tmp_path / "hall.toml")

    def releases(address: str, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{address}/streams/hall/{query}/releases").json()["releases"]
        return found

    with served([queries(24, more=False)], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        before = releases(address, "people")
    amend(queries(48, more=True))
    with served([queries(48, more=True)], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        after = releases(address, "people")
        assert len(before) == 24
        assert len(after) == 48
        assert after[:24] == before
        assert releases(address, "again")[0]["step"] > 24
