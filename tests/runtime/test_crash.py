"""SIGKILL at random moments, over and over: nothing is lost, nothing is released twice with different noise."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import Targets, Worker

from tidegate.runtime.store import verify_target

pytestmark = pytest.mark.slow  # kills

POINTS = ("before commit", "between commit and sink", "in the middle of a line", "between sink and record")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all tests of this file."""
    found = Worker("crash_worker.py")
    yield found
    found.close()


@pytest.fixture(scope="module")
def promised(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run without interruption writes with the same entropy; with real input, too."""
    transcripts = []
    for real in (False, True):
        folder = tmp_path_factory.mktemp("promised")
        assert not worker.start(folder, "", real=real)["killed"]
        transcripts.append({name: (folder / name).read_bytes() for name in ("out.csv", "out.jsonl")})
    assert transcripts[0] == transcripts[1]
    assert len(transcripts[0]["out.csv"].splitlines()) == 81
    return transcripts[0]


def run_with_kills(
    worker: Worker,
    targets: Targets,
    promised: dict[str, bytes],
    folders: Iterator[Path],
    kills: int,
    orders: Callable[[], dict[str, Any]],
    **always: Any,
) -> None:
    """Start and kill until there were enough kills and the stream has come to its end."""
    killed, finished = 0, 0
    while killed < kills:
        folder, target = next(folders), targets()
        while True:
            # the last start of each stream is left alone, so that every stream ends
            order = orders() if killed < kills else {}
            answer = worker.start(folder, target, **order, **always)
            for name, whole in promised.items():
                there = (folder / name).read_bytes() if (folder / name).exists() else b""
                assert whole.startswith(there), f"{name} after {order}"
            if not answer["killed"]:
                break
            killed += 1
        finished += 1
        assert {name: (folder / name).read_bytes() for name in promised} == promised
        verdict = verify_target(target or folder / "stream.ledger")
        assert verdict.ok, str(verdict)
        assert (verdict.steps, verdict.spent <= 1) == (always.get("charged", 80), True)
    assert finished


def folders(tmp_path: Path) -> Iterator[Path]:
    """New folders."""
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        yield folder


def test_killed_at_random_lines(
    worker: Worker, targets: Targets, promised: dict[str, bytes], tmp_path: Path
) -> None:
    """80 kills at random lines of the runtime and the ledger, from the first to some blocks later."""
    chance = random.Random(5)
    run_with_kills(
        worker,
        targets,
        promised,
        folders(tmp_path),
        80,
        lambda: {"lines": chance.randint(1, 2500), "real": chance.random() < 0.2},
    )


def test_killed_at_random_moments(
    worker: Worker, targets: Targets, promised: dict[str, bytes], tmp_path: Path
) -> None:
    """40 kills after random times, wherever the processor happens to be."""
    chance = random.Random(6)
    run_with_kills(
        worker,
        targets,
        promised,
        folders(tmp_path),
        40,
        lambda: {"seconds": 0.08 * chance.random() ** 2, "real": chance.random() < 0.2},
    )


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_turn_of_the_loop(
    worker: Worker, targets: Targets, promised: dict[str, bytes], tmp_path: Path, point: str
) -> None:
    """8 kills at each point where something is promised but not yet there."""
    chance = random.Random(point)
    run_with_kills(
        worker,
        targets,
        promised,
        folders(tmp_path),
        8,
        lambda: {"cut": point, "at": chance.randint(1, 6)},
    )


def test_killed_while_steps_are_revised(worker: Worker, tmp_path: Path) -> None:
    """40 kills of a stream that releases every step twice and has a last word at its end."""
    chance, always = random.Random(8), {"mechanism": "OptStream", "steps": 45}
    folder = tmp_path / "promised"
    folder.mkdir()
    assert not worker.start(folder, "", **always)["killed"]
    promised = {name: (folder / name).read_bytes() for name in ("out.csv", "out.jsonl")}
    rows = [line.split(b",") for line in promised["out.csv"].splitlines()[1:]]
    assert [row[2] for row in rows].count(b"0") == [row[2] for row in rows].count(b"1") == 45
    orders = lambda: {"lines": chance.randint(1, 2500)}  # noqa: E731
    # the steps, and the end of the last period, to which the last word has moved the ledger
    run_with_kills(worker, lambda: "", promised, folders(tmp_path), 40, orders, charged=46, **always)


def grows_only(
    worker: Worker, targets: Targets, folder: Path, kills: int, orders: Callable[[], dict[str, Any]]
) -> str:
    """Kill a stream with fresh noise; what anybody has seen must stay. Returns what went wrong, or ""."""
    target, seen, killed = targets(), {"out.csv": b"", "out.jsonl": b""}, 0
    while True:
        order = orders() if killed < kills else {"fresh_noise": True}
        try:
            answer = worker.start(folder, target, **order)
        except AssertionError as error:  # the sink itself refuses to go on
            return str(error)
        for name in seen:
            there = (folder / name).read_bytes() if (folder / name).exists() else b""
            if not there.startswith(seen[name]):
                return f"{name} lost or changed what it had shown"
            seen[name] = there
        if not answer["killed"]:
            break
        killed += 1
    assert verify_target(target or folder / "stream.ledger").ok
    steps = [line.split(b",")[1] for line in seen["out.csv"].splitlines()[1:]]
    return "" if steps == [str(step).encode() for step in range(1, 81)] else "a step is lost or there twice"


def test_killed_with_fresh_noise(worker: Worker, targets: Targets, tmp_path: Path) -> None:
    """Six streams, some 10 kills each, with the system's entropy: nobody ever sees a step with other noise."""
    chance = random.Random(7)
    for folder in itertools.islice(folders(tmp_path), 6):
        orders = lambda: {"lines": chance.randint(1, 1500), "fresh_noise": True}  # noqa: E731
        assert grows_only(worker, targets, folder, 10, orders) == ""


def test_a_runtime_that_sends_before_it_commits_is_caught(worker: Worker, tmp_path: Path) -> None:
    """The negative control: the planted mistake does not survive the same test."""
    orders = lambda: {"cut": "before commit", "at": 2, "fresh_noise": True, "wrong": True}  # noqa: E731
    assert grows_only(worker, lambda: "", tmp_path, 10, orders) != ""
