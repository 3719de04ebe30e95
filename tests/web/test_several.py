"""A stream with several queries, served: each has an address, a feed, a page and an account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import polars as pl
import pytest
from tests.web.helpers import served, settled, two_queries, verified
from tests.web.test_public_routes import numbers

from tidegate.cli import main
from tidegate.config import ConfigError, parse_queries
from tidegate.errors import InvalidParameter
from tidegate.web import Service
from tidegate.web.tokens import Tokens

Hall = tuple[httpx.Client, Service, Path]


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    """People at two places, and visits, released and served; with an operator's token in the client."""
    folder = tmp_path_factory.mktemp("several")
    operator = Tokens(folder / "tokens.json").add("operator", "you")
    (folder / "hall.geojson").write_text(
        json.dumps(
            {
                "type": "FeatureCollection",
                "features": [{"type": "Feature", "properties": {"name": "north"}, "geometry": None}],
            }
        )
    )
    with served([two_queries(folder)], tokens=folder / "tokens.json") as (address, service):
        settled(service)
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {operator}"}) as client:
            yield client, service, folder


def test_a_stream_names_its_queries(hall: Hall) -> None:
    """The list has both, the stream says what they promise together, and each query its share."""
    client, _, _ = hall
    (listed,) = client.get("/streams").json()["streams"]
    assert [each["address"] for each in listed["queries"]] == ["/streams/hall/people", "/streams/hall/visits"]
    assert (listed["columns"], listed["number"], listed["step"]) == (3, 96, 48)
    whole = client.get("/streams/hall").json()
    assert whole["guarantee"].startswith("All queries together are 1-differentially private")
    assert whole["budget"]["limit"] == "1"
    people = client.get("/streams/hall/people").json()
    assert people["labels"] == ["north", "south"]
    assert (people["share"], people["budget"]["limit"]) == ("0.25", "0.25")
    assert people["queries"] == ["people", "visits"]
    assert client.get("/streams/hall/visits").json()["budget"]["limit"] == "0.75"
    assert next(each["answer"] for each in people["meaning"] if "ε" in each["question"]).count("Here ε = 1.")


def test_each_query_has_its_releases_and_its_feed(hall: Hall) -> None:
    """In all formats, with tags of their own; the stream's own address says where to ask."""
    client, _, _ = hall
    people = client.get("/streams/hall/people/releases")
    visits = client.get("/streams/hall/visits/releases")
    assert people.headers["etag"] != visits.headers["etag"]
    assert (people.json()["query"], people.json()["columns"]) == ("people", ["north", "south"])
    assert len(visits.json()["releases"]) == 48
    downloaded = client.get("/streams/hall/visits/releases?format=csv")
    assert 'filename="hall-visits.csv"' in downloaded.headers["content-disposition"]
    values = [value for each in visits.json()["releases"] for value in each["values"]]
    assert pl.read_csv(downloaded.content)["value"].to_list() == values
    ids = {each["id"] for answer in (people, visits) for each in answer.json()["releases"]}
    assert len(ids) == 96
    assert numbers(client, "/streams/hall/visits/live?after=40", 8) == list(range(41, 49))
    for path in ("releases", "live", "map", "account/rows"):
        refused = client.get(f"/streams/hall/{path}")
        assert refused.status_code == 404
        assert "people, visits" in refused.json()["error"]
    for path in ("/streams/hall/nothing", "/streams/hall/nothing/releases", "/view/hall/nothing"):
        assert client.get(path).status_code == 404


def test_only_queries_of_places_have_the_map(hall: Hall) -> None:
    """A map whose areas are columns of one query is drawn for that one."""
    client, _, _ = hall
    assert client.get("/streams/hall/people/map").status_code == 200
    assert client.get("/streams/hall/visits/map").status_code == 404
    assert not client.get("/streams/hall/visits").json()["map"]


def test_pages_metrics_and_operators_see_each_query(hall: Hall) -> None:
    """The stream's page leads to its first query; metrics have a label; the operator sees shares and sinks."""
    client, _, _ = hall
    moved = client.get("/view/hall")
    assert (moved.status_code, moved.headers["location"]) == (307, "/view/hall/people")
    assert client.get("/view/hall/visits").status_code == 200
    metrics = client.get("/metrics").text
    assert 'tidegate_steps_total{stream="hall"} 48' in metrics
    assert 'tidegate_releases_total{stream="hall",query="visits"} 48' in metrics
    assert 'tidegate_budget_spent_ratio{stream="hall",query="people"} 1' in metrics
    seen = client.get("/operator/streams/hall/visits").json()
    assert seen["history"]["limit"] == 0.75
    assert max(seen["history"]["spent"]) == pytest.approx(0.75)
    whole = client.get("/operator/streams/hall").json()
    assert (whole["budget"]["limit"], whole["budget"]["spent_in_window"], whole["budget"]["part"]) == (
        "1",
        "1",
        1.0,
    )
    assert set(whole["sinks"]) == {"people", "visits"}
    assert len(set(whole["sinks"].values())) == 2
    assert all("released" in place for place in whole["sinks"].values())
    assert {"lag", "committed", "backlog", "steps_behind", "sentence", "warnings"} <= set(whole)
    assert [each["query"] for each in whole["queries"]] == ["people", "visits"]
    assert whole["queries"][1]["history"] == seen["history"]
    assert httpx.get(client.base_url.join("/operator/streams/hall")).status_code == 401
    assert client.post("/operator/streams/hall/verify").json()["ok"]
    assert {"/streams/{name}/{query}/live", "/operator/streams/{name}/{query}"} <= set(
        client.get("/openapi.json").json()["paths"]
    )


def test_anybody_can_check_all_accounts_at_once(hall: Hall, capsys: pytest.CaptureFixture[str]) -> None:
    """The charges of all queries are one chain, and the releases of each lead to its own signed head."""
    client, service, folder = hall
    address, seen = f"{str(client.base_url).rstrip('/')}/streams/hall", str(folder / "heads.json")
    assert main(["verify", address, "--seen", seen, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert list(found["queries"]) == ["people", "visits"]
    assert len({each["head"] for each in found["queries"].values()}) == 1
    described = (
        client.get("/streams/hall/people").json()["budget"],
        client.get("/streams/hall/visits").json()["budget"],
    )
    assert [each["spent_in_window"] for each in described] == ["0.25", "0.75"]
    assert (
        main(["verify", f"{address}/visits", "--seen", seen, "--key", service.publishing.public("hall")]) == 0
    )
    assert "continues from the head seen before" in capsys.readouterr().out
    assert main(["verify", address, "--seen", seen, "--key", "another"]) == 2


def test_an_account_of_another_chain_is_noticed(
    hall: Hall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A publisher that shows each query a log of its own, with the whole budget, is caught."""
    from tidegate.cli import verify

    client, _, _ = hall
    with served([two_queries(tmp_path)], tokens=tmp_path / "tokens.json") as (other, service):
        settled(service)
        address, ask = f"{str(client.base_url).rstrip('/')}/streams/hall", verify._ask

        def forked(url: str) -> dict[str, object]:
            moved = url.replace(address, f"{other}/streams/hall") if "/visits/" in url else url
            return ask(moved)

        monkeypatch.setattr(verify, "_ask", forked)
        assert main(["verify", address, "--seen", str(tmp_path / "heads.json")]) == 2
        assert "key has changed" in capsys.readouterr().err


def test_the_log_holds_after_a_restart(tmp_path: Path) -> None:
    """A service that is started again shows the same releases of each query, and charges nothing."""
    queries = two_queries(tmp_path)
    before = {}
    for _ in range(2):
        with served([queries], tokens=tmp_path / "tokens.json") as (address, service):
            settled(service)
            for name in ("people", "visits"):
                found = httpx.get(f"{address}/streams/hall/{name}/releases").json()["releases"]
                assert before.setdefault(name, found) == found
    found = verified(queries.ledger)
    assert found.ok
    assert (found.step, found.checked["pushed"]) == (48, 1)


def test_an_alarm_says_which_query_it_looks_at(tmp_path: Path) -> None:
    """Each alarm belongs to one query; one that names none, or another, is refused."""
    queries = two_queries(tmp_path)
    alarms = tmp_path / "hall.alarms.toml"
    alarms.write_text('[[alarm]]\nname = "full"\nquery = "people"\ncolumn = "north"\nabove = -1000\n')
    with served([queries], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        assert httpx.get(f"{address}/streams/hall/people").json()["alarms"][0]["raised"]
        assert httpx.get(f"{address}/streams/hall/visits").json()["alarms"] == []
    for wrong in ("", 'query = "nothing"\n'):
        alarms.write_text(f'[[alarm]]\nname = "full"\n{wrong}column = "north"\nabove = 1\n')
        with pytest.raises(ConfigError, match="one of people, visits"):
            Service([queries])


def test_words_of_addresses_are_no_names(tmp_path: Path) -> None:
    """A query that is called like a part of the service's addresses is refused by the service."""
    text = two_queries(tmp_path).path.read_text().replace('"visits"', '"live"')
    with pytest.raises(InvalidParameter, match="no word of the service's addresses"):
        Service([parse_queries(text, tmp_path / "hall.toml")])
