"""Three statistics of one shop, one with a learnt clip, a hierarchy, answers and an alarm: killed and amended on the way.

Over SQLite and PostgreSQL.
"""

from __future__ import annotations

import csv
import itertools
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import Targets, Worker, verified

from tidegate.core.verify import Verification
from tidegate.pipeline.backup import verify_log
from tidegate.pipeline.logs import LogReader

pytestmark = pytest.mark.slow  # kills

KILLS = int(os.environ.get("TIDEGATE_KILLS", "20"))
PHASE, WINDOW = 20, 6
PROMISES = (Fraction(1), Fraction(1, 2), Fraction(1))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all tests of this file."""
    found = Worker("shop_worker.py")
    yield found
    found.close()


def answers(folder: Path) -> dict[str, bytes]:
    """What was answered from releases; computed again at every start, so it is whole only at the end."""
    wanted = ("day*.csv", "smoothed*.csv", "crowded*.csv", "paid*.csv")
    return {path.name: path.read_bytes() for name in wanted for path in sorted(folder.glob(name))}


def outputs(folder: Path) -> dict[str, bytes]:
    """Everything that was released."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("released*.csv"))}


@pytest.fixture(scope="module")
def promised(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a stream without interruption releases with the same entropy."""
    folder = tmp_path_factory.mktemp("promised")
    assert not worker.start(folder, "")["killed"]
    found, answered = outputs(folder), answers(folder)
    assert len(answered) == 11
    assert all(len(content.splitlines()) > PHASE - WINDOW for content in answered.values())
    for row in csv.DictReader(found["released-orders.csv"].decode().splitlines()):
        assert float(row["both"]) == pytest.approx(float(row["north"]) + float(row["south"]))
    learning = list(csv.DictReader(found["released-revenue.csv"].decode().splitlines()))
    assert [row["status"] for row in learning][: 3 + WINDOW - 1] == ["silent"] * (3 + WINDOW - 1)
    assert float(learning[-1]["scale"]) < 5000  # with the bound, 5,000, it would be 12 times that
    # what an amendment changes begins again behind a window; 1/8 of ε = 1 is what orders had before
    assert sorted(found) == [
        "released-customers.csv",
        "released-customers.from-26.csv",
        "released-customers.from-46.csv",
        "released-orders.csv",
        "released-orders.from-26.csv",
        "released-revenue.csv",
        "released-revenue.from-26.csv",
        "released-revenue.from-46.csv",
    ]
    return found | answered


def spent_by_step(found: dict[str, bytes]) -> dict[int, Fraction]:
    """What all queries together say that they have spent at each step."""
    spent: dict[int, Fraction] = {}
    for name, content in found.items():
        if not name.startswith("released"):
            continue
        for row in csv.DictReader(content.decode().splitlines()):
            step = int(row["step"])
            spent[step] = spent.get(step, Fraction(0)) + Fraction(row["spent"])
    return spent


def check_windows(found: dict[str, bytes]) -> None:
    """By brute force: no window is over the smallest promise in force at any of its steps, once charged again."""
    spent = spent_by_step(found)
    assert sorted(spent) == [*range(1, PHASE + 1), *range(PHASE + WINDOW, 3 * PHASE + 1)]
    for end in range(1, 3 * PHASE + 1):
        steps = range(max(1, end - WINDOW + 1), end + 1)
        total = sum((spent.get(step, Fraction(0)) for step in steps), Fraction(0))
        newest = (end - 1) // PHASE
        if any(spent.get(step) for step in steps if (step - 1) // PHASE == newest):
            limit = min(PROMISES[(step - 1) // PHASE] for step in steps)
        else:  # nothing was charged after the change: what was promised before holds
            limit = min(PROMISES[(step - 1) // PHASE] for step in steps if (step - 1) // PHASE < newest)
        assert total <= limit, end


def test_the_promised_stream_keeps_its_promises(promised: dict[str, bytes]) -> None:
    """Also with the smaller ε in between; and the check would notice a step that costs more."""
    check_windows(promised)
    wrong = promised["released-orders.from-26.csv"].splitlines()
    index = next(at for at, line in enumerate(wrong) if b"fresh" in line)
    wrong[index] = wrong[index].rpartition(b",")[0] + b",1/2"
    with pytest.raises(AssertionError):
        check_windows({**promised, "released-orders.from-26.csv": b"\n".join(wrong)})


def test_killed_at_random_and_amended_twice(
    worker: Worker, targets: Targets, promised: dict[str, bytes], tmp_path: Path
) -> None:
    """Whatever the moment, also within an amendment: the transcript as promised, and the account verifies."""
    chance, killed = random.Random(9), 0
    for number in itertools.count():
        folder, target = tmp_path / str(number), targets()
        folder.mkdir()
        while True:
            how = (
                {"lines": chance.randint(1, 6000)}
                if chance.random() < 0.8
                else {"seconds": 0.4 * chance.random()}
            )
            was_killed = worker.start(folder, target, **(how if killed < KILLS else {}))["killed"]
            for name, there in outputs(folder).items():
                assert promised[name].startswith(there), f"{name} after {how}"
            if not was_killed:
                break
            killed += 1
        assert outputs(folder) | answers(folder) == promised
        verdict = verified(target or folder / "tidegate.ledger")
        assert verdict.ok, str(verdict)
        assert verdict.step == 3 * PHASE
        if killed >= KILLS:
            return


def test_killed_at_random_while_it_is_pruned(worker: Worker, targets: Targets, tmp_path: Path) -> None:
    """Whatever the moment: the transcript of a stream that was never pruned, and archives and ledger are one account."""
    chance, killed = random.Random(12), 0
    whole = tmp_path / "whole"
    whole.mkdir()
    assert not worker.start(whole, "", archives=False)["killed"]
    wanted = told(verified(whole / "tidegate.ledger"))
    for number in itertools.count():
        folder, target = tmp_path / str(number), targets()
        folder.mkdir()
        while True:
            how = {"lines": chance.randint(1, 12_000)} if killed < KILLS else {}
            if not worker.start(folder, target, archives=True, **how)["killed"]:
                break
            killed += 1
        assert outputs(folder) == outputs(whole)
        archives, log = [folder / "archives"], target or str(folder / "tidegate.ledger")
        with LogReader(log) as reader:
            moved = [row.number for row in reader.rows() if row.releases is None]
            found = verify_log(reader.rows(), archives)
        assert moved
        assert told(found) == wanted
        for archive in archives[0].iterdir():
            assert_nothing_to_continue_from(archive)
        if killed >= KILLS:
            return


def told(found: Verification) -> tuple[Any, ...]:
    """What is found about all commits, wherever their releases are."""
    assert found.ok, found.reason
    return found.step, found.counts


def assert_nothing_to_continue_from(archive: Path) -> None:
    """States of mechanisms hold noise that nobody may see, and rows of open steps are raw: an archive has rows only."""
    with closing(sqlite3.connect(archive)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert tables == ["log"]
