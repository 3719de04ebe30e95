"""Ledgers of earlier versions: opened, verified, gone on with, upgraded and amended."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import BudgetExceeded, LedgerError, LedgerMismatch
from tidegate.ledger import Group
from tidegate.ledger.amendments import specifications_of
from tidegate.ledger.replay import verify_file
from tidegate.ledger.sqlite import SQLiteLedger

FIXTURES = Path(__file__).with_name("fixtures")
VERSIONS = sorted(path.parent.name for path in FIXTURES.glob("*/rows.ledger"))
DIVIDED = sorted(path.parent.name for path in FIXTURES.glob("*/divided.ledger"))  # of format 2


@pytest.fixture(params=VERSIONS)
def folder(request, tmp_path):
    """Copies of the ledgers that a version has written."""
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / "old"))


def kinds(path):
    """The kinds of the rows, from the newest on, without repetitions."""
    with sqlite3.connect(path) as connection:
        found = [kind for (kind,) in connection.execute("SELECT kind FROM charges ORDER BY row DESC")]
    connection.close()
    return list(dict.fromkeys(found))


def test_every_kind_of_row_is_read(folder):
    """Steps, batches, spans, parts, a mark and a checkpoint; the account goes on with rows that were known."""
    path = folder / "rows.ledger"
    before = verify_file(path)
    assert (before.ok, before.rows, before.marked, before.spent) == (True, 1034, True, 1)
    with SQLiteLedger(path, tg.WEvent(epsilon="1", w=4), 8, fingerprint="0.1.0") as ledger:
        assert ledger._checkpoint_row == 1034
        assert (ledger.step, ledger.spent(), ledger.spent(11, 14)) == (2240, Fraction(5, 8), Fraction(7, 8))
        ledger.charge(2241, 2)
        with pytest.raises(BudgetExceeded):
            ledger.charge(2241, 3)
    assert verify_file(path).ok
    assert "format" not in kinds(path)


def test_new_rows_follow_a_row_that_says_the_format(folder):
    """Whoever knows format 1 only stops there; it is written once, and taken back with what it announced."""
    path = folder / "rows.ledger"

    def fail(ledger):
        with ledger.transaction():
            ledger.charge_group(2239, 2241, 1)
            raise ZeroDivisionError

    with SQLiteLedger(path) as ledger:
        with pytest.raises(ZeroDivisionError):
            fail(ledger)
        rows = ledger.rows
        group = ledger.extend_group(Group(2240, 2244, 2), 2250)
        assert ledger.rows == rows + 2
        ledger.extend_group(group, 2251)
        assert ledger.rows == rows + 3
    assert kinds(path)[:2] == ["extend", "format"]
    with SQLiteLedger(path) as ledger:
        ledger.charge_group(2251, 2252, 1)
        ledger.charge_group(2250, 2252, 1)
        assert ledger.rows == rows + 5
    assert verify_file(path).ok


@pytest.mark.parametrize(("name", "window"), [("rows", 4), ("user", None)])
def test_old_accounts_are_divided_and_amended(folder, name, window):
    """What was charged before stays in the windows; twice amended on the way, killed in between."""
    path = folder / f"{name}.ledger"
    with SQLiteLedger(path) as ledger:
        step, spent = ledger.step, ledger.spent()
        shares = ledger.divide({"visits": "1/2", "spend": "1/4"})
        assert ledger.spent() == spent
        assert shares["visits"].remaining() <= Fraction(1, 2)
    code = f"""
        import os, signal
        from tidegate.ledger.sqlite import SQLiteLedger
        ledger = SQLiteLedger({str(path)!r})
        with ledger.transaction():
            ledger.share("visits").charge({step} + 1, 0)
            ledger.divide({{"spend": 1}}, budget="1/2")
            ledger.share("spend").charge({step} + 2, 0)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -9
    with SQLiteLedger(path) as ledger:
        assert (ledger.step, ledger.shares) == (step, {"visits": Fraction(1, 2), "spend": Fraction(1, 4)})
        spend = ledger.divide({"spend": 1}, budget="1/2")["spend"]
        spend.charge(step + 1, 0)
        assert spend.remaining(step + 20) == (Fraction(1, 2) if window else 0)
        with pytest.raises(LedgerError, match="divided among queries"):
            ledger.charge(step + 2, 0)
    verdict = verify_file(path)
    assert verdict.ok
    assert "spend" in str(verdict)
    command = [sys.executable, "-m", "tidegate", "ledger", "show", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "spend: 0.5 of every window from now on" in shown
    assert "amend" in shown


@pytest.mark.parametrize("version", DIVIDED)
def test_ledgers_of_format_2_are_read_and_amended(version, tmp_path):
    """Groups, batches with groups, shares, finer units and an amendment, as written by the code of each version."""
    path = Path(shutil.copy(FIXTURES / version / "divided.ledger", tmp_path))
    assert set(kinds(path)) == {"step", "batch", "span", "extend", "group", "groups", "amend", "query"}
    before = verify_file(path)
    assert (before.ok, before.rows) == (True, 15)
    with SQLiteLedger(path) as ledger:
        assert (ledger.step, ledger.shares) == (16, {"visits": Fraction(1, 3), "spend": Fraction(1, 3)})
        assert ledger.share("visits").spent(13, 16) == Fraction(1, 16)
        with pytest.raises(BudgetExceeded):  # the window of step 17 holds 1/16 of what is 1/6 now
            ledger.share("visits").charge(17, ledger.share("visits").units)
        ledger.share("visits").charge(20, ledger.share("visits").units)
        ledger.divide({"visits": "1/2", "orders": "1/2"}, budget="1/2")
        ledger.share("orders").charge(24, 1)
        ledger.learnt(24, {"clip": "7"})
    assert kinds(path)[0] == "learnt"
    assert verify_file(path).ok


def test_swellfish_amendments_are_read(folder):
    """Specifications that came and went are in force as they were."""
    path = folder / "secrets.ledger"
    assert verify_file(path).ok
    with SQLiteLedger(path) as ledger:
        assert sorted(each.label for each in specifications_of(ledger)) == ["flat", "house"]
        ledger.charge(10, 1)
        with pytest.raises(LedgerMismatch, match="does not add up"):
            ledger.divide({"a": 1})
    assert verify_file(path).ok


@pytest.mark.slow
def test_a_stream_goes_on_where_it_was_killed(folder):
    """`tidegate release` of an earlier version, killed after step 6 of 10: the rest, and the same releases again."""
    worker = Path(__file__).parents[1] / "runtime" / "killed_worker.py"
    done = subprocess.run(
        [sys.executable, str(worker), ".", "0"], cwd=folder / "stream", timeout=120, check=False
    )
    assert done.returncode == 0
    lines = (folder / "stream" / "out.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == [str(step) for step in range(1, 11)]
    assert [line.split(",")[2] for line in lines[1:7]] == ["1", "11", "22", "20", "35", "52"]
    assert verify_file(folder / "stream" / "tidegate.ledger").ok
