"""SIGKILL at every point: nothing is lost, nothing is released twice with different noise."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.crash_worker import POINTS
from tests.pipeline.streams import places, readings, settings, shop, stalls
from tests.runtime.helpers import Worker

from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify

pytestmark = pytest.mark.slow  # kills

STREAMS: dict[str, Callable[[Path], str]] = {
    "one query": places,
    "shop": shop,
    "missing readings": readings,
    "found categories": stalls,
}
CUTS = [*POINTS, "within a line"]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all tests of this file."""
    found = Worker("../pipeline/crash_worker.py")
    yield found
    found.close()


@pytest.fixture(scope="module")
def promised(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """What a run without interruption writes with the same entropy."""
    found = {}
    for name in STREAMS:
        folder = new_folder(tmp_path_factory.mktemp("promised"), name)
        assert not worker.start(folder, "")["killed"]
        found[name] = outputs(folder)
    return found


def new_folder(folder: Path, name: str) -> Path:
    """A stream that has not begun."""
    folder.mkdir(exist_ok=True)
    settings(folder, STREAMS[name](folder))
    return folder


def outputs(folder: Path) -> dict[str, bytes]:
    """What was published."""
    return {path.name: path.read_bytes() for path in folder.glob("out*.csv")}


def check_whole(folder: Path, promised: dict[str, bytes]) -> None:
    """All releases are there, and every step was charged once."""
    assert outputs(folder) == promised
    log = SQLiteLog(folder / "tidegate.ledger")
    found = verify(log.rows())
    log.close()
    assert (found.ok, found.step) == (True, 40), found


def run_with_kills(
    worker: Worker, folder: Path, promised: dict[str, bytes], kills: int, orders: Callable[[], dict[str, Any]]
) -> int:
    """Start and kill, then let the stream come to its end; returns how often it was killed."""
    killed = 0
    for number in itertools.count(1):
        answer = worker.start(folder, "", **(orders() if number <= kills else {}))
        for name, content in outputs(folder).items():
            assert promised[name].startswith(content), name
        killed += answer["killed"]
        if not answer["killed"]:
            assert answer["code"] == 0
            break
    check_whole(folder, promised)
    return killed


@pytest.mark.parametrize("name", STREAMS)
def test_killed_at_random_lines(
    worker: Worker, promised: dict[str, dict[str, bytes]], tmp_path: Path, name: str
) -> None:
    """Anywhere in the pipeline and the core, from the first line of a start to some blocks later."""
    chance = random.Random(name)
    folder = new_folder(tmp_path / "stream", name)
    killed = run_with_kills(
        worker, folder, promised[name], 16, lambda: {"lines": int(10 ** chance.uniform(1, 4.2))}
    )
    assert killed >= 8


@pytest.mark.parametrize("point", CUTS)
def test_killed_at_every_point(
    worker: Worker, promised: dict[str, dict[str, bytes]], tmp_path: Path, point: str
) -> None:
    """At the first and at later blocks, of two queries."""
    turns = iter([1, 2, 5, 3, 4])
    folder = new_folder(tmp_path / "stream", "shop")
    killed = run_with_kills(worker, folder, promised["shop"], 5, lambda: {"cut": point, "at": next(turns)})
    assert killed >= 3


def test_killed_with_fresh_noise(worker: Worker, tmp_path: Path) -> None:
    """Rows that were seen never change, although all noise is fresh."""
    chance, seen = random.Random(2), b""
    folder = new_folder(tmp_path / "stream", "one query")
    for number in itertools.count(1):
        order = {"lines": int(10 ** chance.uniform(2, 4.2))} if number <= 12 else {}
        answer = worker.start(folder, "", fresh_noise=True, **order)
        now = outputs(folder).get("out.csv", b"")
        assert now.startswith(seen)
        seen = now
        if not answer["killed"]:
            break
    check_whole(folder, {"out.csv": seen})


def test_the_harness_notices_what_is_sent_too_early(worker: Worker, tmp_path: Path) -> None:
    """With rows that leave before their commit, a killed stream does not continue."""
    folder = new_folder(tmp_path / "stream", "one query")
    order = {"cut": "between commit and receipt", "at": 4, "wrong": True, "fresh_noise": True}
    worker.start(folder, "", **order)
    with pytest.raises(AssertionError, match="SinkError"):
        worker.start(folder, "", fresh_noise=True)
