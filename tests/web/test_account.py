from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.web.helpers import TEXT, finite, in_two_queries, served, settled, verified, write_events

from tidegate.cli import main
from tidegate.config.queries import Queries, one, parse_queries
from tidegate.core.errors import LogDamaged, LogMismatch
from tidegate.pipeline.amend import amend
from tidegate.pipeline.public_account import COLUMNS, check_published, published_head
from tidegate.web import Service, release_cache

Account = tuple[str, Service, Path]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """The address of a stream with an adaptive mechanism."""
    folder = tmp_path_factory.mktemp("account")
    config = finite(folder, ('"Uniform"', '"BudgetAbsorption"'))
    with served([config], tokens=folder / "tokens.json") as (address, service):
        settled(service)
        yield f"{address}/streams/hall", service, folder


def fetched(address: str) -> tuple[dict[str, Any], list[list[Any]], list[list[Any]]]:
    """The signed head, all rows and all releases."""
    head = httpx.get(f"{address}/account").json()
    rows = httpx.get(f"{address}/account/rows").json()["rows"]
    releases = httpx.get(f"{address}/account/transcript").json()["releases"]
    # more may have come since the head was signed
    return head, rows[: head["commits"]], releases[: head["number"]]


def test_anybody_can_check_the_account(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command: a first check, and a second that compares it with the first."""
    address, service, folder = account
    seen = str(folder / "heads.json")
    assert main(["verify", address, "--seen", seen, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert found["step"] == 48
    assert found["earlier_heads"] == 0
    assert found["key"] == service.publishing.public("hall")
    assert main(["verify", address, "--seen", seen, "--key", found["key"]]) == 0
    assert "continues from the head seen before" in capsys.readouterr().out
    assert main(["verify", address, "--seen", seen, "--key", "another"]) == 2
    assert main(["verify", f"{address}-not-there", "--seen", seen]) == 2


def test_what_is_published_has_no_values(account: Account) -> None:
    """Charges, their steps and digests; nothing that was released, and nothing of the data."""
    address, _, _ = account
    assert "walrus" not in json.dumps(fetched(address))
    found = httpx.get(f"{address}/account/rows").json()
    assert tuple(found["columns"]) == COLUMNS
    assert not {"releases", "secret", "state", "position"} & set(found["columns"])
    assert httpx.get(f"{address}/account/rows?after=1").json()["rows"] == found["rows"][1:]


@pytest.mark.parametrize(
    "way",
    [
        "units",
        "dropped",
        "moved",
        "head",
        "signature",
        "key",
        "log",
        "longer",
        "time",
        "value",
        "transcript",
    ],
)
def test_every_forgery_is_noticed(account: Account, way: str) -> None:
    """Whatever is changed of what is published, the check refuses it or its verdict does."""
    head, rows, releases = copy.deepcopy(fetched(account[0]))
    assert check_published(head, rows, releases)[0].ok
    if way == "units":
        charges = bytearray(base64.b64decode(rows[-1][4]))
        charges[-8] ^= 1
        rows[-1][4] = base64.b64encode(charges).decode()
    elif way == "dropped":
        del rows[-1]
        head["commits"] -= 1
    elif way == "moved":
        rows[-1][2] += 1
    elif way == "head":
        head["head"] = "00" * 32
    elif way == "signature":
        head["signature"] = (
            "A" + head["signature"][1:] if head["signature"][0] != "A" else "B" + head["signature"][1:]
        )
    elif way == "key":
        head["key"] = "A" * 43 + "="
    elif way == "log":
        head["log"] = "00" * 32
    elif way == "longer":
        rows.append([len(rows), *rows[-1][1:]])
    elif way == "value":
        releases[7][3][0] += 1
    elif way == "transcript":
        del releases[7]
    else:
        head["time"] = "2030-01-01T00:00:00+00:00"
    try:
        verdict, _ = check_published(head, rows, releases)
    except LogDamaged:
        return
    assert not verdict.ok


def test_a_rollback_is_noticed(tmp_path: Path) -> None:
    """A second stream, which had its budget twice, does not continue from what was seen."""
    config = finite(tmp_path)
    with served([config]) as (address, service):
        settled(service)
        published = fetched(f"{address}/streams/hall")
        tag = httpx.get(f"{address}/streams/hall/releases").headers["ETag"]
        _, seen = check_published(*published)
    with served([config]) as (address, service):
        settled(service)
        check_published(*fetched(f"{address}/streams/hall"), [seen])
    for path in tmp_path.glob("hall.ledger*"):
        path.unlink()
    with served([config]) as (address, service):
        settled(service)
        again = fetched(f"{address}/streams/hall")
        # other releases, also for who has kept the earlier ones
        assert (
            httpx.get(f"{address}/streams/hall/releases", headers={"If-None-Match": tag}).status_code == 200
        )
    with pytest.raises(LogDamaged, match="new stream was begun"):
        check_published(*again, [seen])
    # also by its releases alone, whatever its log says
    with pytest.raises(LogDamaged, match="made again"):
        check_published(*again, [replace(seen, log=again[0]["log"], commits=0)])
    changed: list[dict[str, Any]] = [
        {"head": "11" * 32},
        {"key": "x"},
        {"log": "y"},
        {"commits": 99},
        {"number": 99},
    ]
    for change in changed:
        with pytest.raises(LogDamaged, match=r"rolled back|key|new stream was begun"):
            check_published(*published, [replace(seen, **change)])


def test_an_amended_stream_is_no_rollback(tmp_path: Path) -> None:
    """Releases that are counted again with an amendment are accepted, and without one they are not."""
    short = finite(tmp_path, ("count = 48", "count = 24"))
    with served([short], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        _, before = check_published(*fetched(f"{address}/streams/hall"))
    longer = finite(tmp_path, ('epsilon = "1"', 'epsilon = "1/2"'))
    amend(one(longer))
    with served([longer], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        head, rows, releases = fetched(f"{address}/streams/hall")
        verdict, now = check_published(head, rows, releases, [before])
        assert verdict.ok
        assert (before.scope, before.number) == (0, 24)
        assert (now.scope, now.number) == (1, len(releases))
        driver = service.drivers["hall"]
        with driver.reader() as door:
            transcript, scope = driver.first.board.transcript, driver.first.scope
            forged = published_head(
                door.identity,
                door.last,
                scope._replace(number=2),
                transcript,
                stream="hall",
                time=head["time"],
                key=driver.key,
            )
        with pytest.raises(LogDamaged, match="not alive"):
            check_published(forged, rows, releases, [before])
        with pytest.raises(LogDamaged, match="rolled back"):
            check_published(head, rows, releases, [replace(now, number=now.number + 1)])


@pytest.mark.parametrize("queries", [1, 2])
def test_a_log_with_archives_is_published_from_its_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], queries: int
) -> None:
    """What is archived is read from the archives: rows, releases, and what windows have spent."""
    monkeypatch.setattr(release_cache, "KEPT_CELLS", 1)  # readers are answered from disk
    write_events(tmp_path)
    (tmp_path / "archives").mkdir()
    text = TEXT.format(folder=tmp_path)
    if queries == 2:
        text = in_two_queries(text) + '[sink]\nlocation = "released.csv"\n'

    def until(count: int, run: str = 'archives = "archives"\nkeep = 4\n') -> Queries:
        written = text.replace("count = 48", f"count = {count}") + f"[run]\n{run}"
        (tmp_path / "hall.toml").write_text(written)
        return parse_queries(written, tmp_path / "hall.toml")

    seen = str(tmp_path / "heads.json")
    for count in (12, 24, 36, 48):
        with served([until(count)], tokens=tmp_path / "tokens.json") as (address, service):
            settled(service)
            assert main(["verify", f"{address}/streams/hall", "--seen", seen]) == 0, capsys.readouterr().out
            capsys.readouterr()
    log, archives = tmp_path / "hall.ledger", tmp_path / "archives"
    assert verified(log).counts.dropped > 0
    assert verified(log, archives.iterdir()).counts.dropped == 0
    place = "hall/people" if queries == 2 else "hall"
    with served([until(48)], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        found = httpx.get(f"{address}/streams/{place}/releases").json()
        spent = service.drivers["hall"].first.spent_by(np.arange(1, 49))
    assert len(found["releases"]) == 48
    # steps share noise that is paid when it begins, so that the first window is full at once
    np.testing.assert_allclose(spent, np.full(48, 1 / 4 if queries == 2 else 1))
    for path in archives.iterdir():
        path.rename(tmp_path / path.name)
    with pytest.raises(LogMismatch, match="are in an archive"):
        Service([until(48)])
    with pytest.raises(LogMismatch, match=r"name its folder as archives in \[run\]"):
        Service([until(48, "")])
