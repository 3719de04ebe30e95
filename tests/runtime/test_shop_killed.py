"""Three statistics of one shop, one with a learnt clip, a hierarchy, answers and an alarm: killed and amended on the way.

Over SQLite and PostgreSQL.
"""

from __future__ import annotations

import csv
import itertools
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import Targets, Worker, verified
from tidegate.runtime.pruning import verify_archives

from tidegate.ledger import Verdict

pytestmark = pytest.mark.slow  # kills

OLD = Path(__file__).parents[1] / "ledger" / "fixtures" / "0.1.0" / "stream"
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
    assert len(answered) == 12
    assert all(len(content.splitlines()) > PHASE for content in answered.values())
    for row in csv.DictReader(found["released-orders.csv"].decode().splitlines()):
        assert float(row["both"]) == pytest.approx(float(row["north"]) + float(row["south"]))
    learning = list(csv.DictReader(found["released-revenue.csv"].decode().splitlines()))
    assert [row["status"] for row in learning][: 3 + WINDOW - 1] == ["silent"] * (3 + WINDOW - 1)
    assert float(learning[-1]["scale"]) < 5000  # with the bound, 5,000, it would be 12 times that
    assert sorted(found) == [
        "released-customers.csv",
        "released-customers.from-21.csv",
        "released-customers.from-41.csv",
        "released-orders.csv",
        "released-orders.from-21.csv",
        "released-orders.from-41.csv",
        "released-revenue.csv",
        "released-revenue.from-21.csv",
        "released-revenue.from-41.csv",
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
    """By brute force: no window is over the smallest promise in force at any of its steps, once charged anew."""
    spent = spent_by_step(found)
    assert sorted(spent) == list(range(1, 3 * PHASE + 1))
    for end in range(1, 3 * PHASE + 1):
        steps = range(max(1, end - WINDOW + 1), end + 1)
        total = sum((spent[step] for step in steps), Fraction(0))
        newest = (end - 1) // PHASE
        if any(spent[step] for step in steps if (step - 1) // PHASE == newest):
            limit = min(PROMISES[(step - 1) // PHASE] for step in steps)
        else:  # nothing was charged after the change: what was promised before holds
            limit = min(PROMISES[(step - 1) // PHASE] for step in steps if (step - 1) // PHASE < newest)
        assert total <= limit, end


def test_the_promised_stream_keeps_its_promises(promised: dict[str, bytes]) -> None:
    """Also with the smaller ε in between; and the check would notice a step that costs more."""
    check_windows(promised)
    wrong = promised["released-orders.from-21.csv"].splitlines()
    index = next(at for at, line in enumerate(wrong) if b"fresh" in line)
    wrong[index] = wrong[index].rpartition(b",")[0] + b",1/2"
    with pytest.raises(AssertionError):
        check_windows({**promised, "released-orders.from-21.csv": b"\n".join(wrong)})


def test_a_stream_of_version_0_1_is_amended_under_kills(worker: Worker, tmp_path: Path) -> None:
    """The account that 0.1.0 has begun goes on with two queries, whatever the moment; it verifies over both."""
    chance, killed, promised = random.Random(10), 0, b""
    for number in itertools.count():
        folder = tmp_path / str(number)
        shutil.copytree(OLD, folder)
        while True:
            how = {"lines": chance.randint(1, 20_000)} if number and killed < KILLS else {}
            if not worker.start(folder, "", old=True, **how)["killed"]:
                break
            killed += 1
        found = (folder / "out-first.from-7.csv").read_bytes()
        promised = promised or found
        assert found == promised
        verdict = verified(folder / "tidegate.ledger")
        assert verdict.ok, str(verdict)
        assert (verdict.steps, verdict.unchained) == (10, 6)
        if killed >= KILLS:
            return


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
        assert verdict.steps == 3 * PHASE
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
        archives, ledger = sorted((folder / "archives").iterdir()), target or str(folder / "tidegate.ledger")
        assert verify_archives(archives, ledger) == ""
        verdict = verified(ledger)
        assert told(verdict) == wanted
        assert f"rows 1 to {verdict.archived} are in archives" in str(verdict)
        assert verdict.archived > 0
        for archive in archives:
            assert_nothing_to_go_on_from(archive)
        if killed >= KILLS:
            return


def told(verdict: Verdict) -> tuple[Any, ...]:
    """What a verdict says about all windows, wherever the rows are."""
    assert verdict.ok, str(verdict)
    return verdict.steps, verdict.spent, verdict.budget, verdict.releases


def assert_nothing_to_go_on_from(archive: Path) -> None:
    """States of mechanisms hold noise that nobody may see; rows of open steps are raw."""
    connection = sqlite3.connect(archive)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    streams = [name for name in tables if re.fullmatch(r"stream(_[0-9]+)?", name)]
    assert len(streams) >= 3
    for name in streams:
        assert set(connection.execute(f"SELECT position, state FROM {name}")) == {(None, None)}
    for name in ("kept", "arrivals"):
        assert name not in tables or connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)
    connection.close()
