"""Ledgers on disk: chain, crashes, locks, transactions and every kind of damage."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tidegate.errors import BudgetExceeded, LedgerBusy, LedgerCorrupt, LedgerError, LedgerMismatch
from tidegate.ledger import durable
from tidegate.ledger.replay import verify_file
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.policy import User, WEvent

POLICY = WEvent(epsilon="1", w=4)


@pytest.fixture
def path(tmp_path):
    """Where the ledger under test lies."""
    return tmp_path / "account.db"


@pytest.fixture
def filled(path):
    """A closed ledger with every kind of row: steps, a batch, a span, parts, a mark."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        for step in range(1, 7):
            ledger.charge(step, 2)
        ledger.charge_batch(7, [1, 2, 0, 1, 0])
        ledger.charge_span(12, 14, 3, scope="alarm")
        ledger.charge(13, 1, groups={"a": 1, "b": 2}, levels={"leaf": 1}, scope="tree")
        ledger.mark()
        ledger.charge(18, 2)
    return path


def edit(path, *statements):
    """Change the file behind the ledger's back."""
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def python(code, *arguments):
    """Another process that runs some code."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_reopened_ledger_goes_on(filled):
    """The account, the mark and the row count survive, with and without naming the policy."""
    for arguments in ((), (POLICY, 8)):
        with SQLiteLedger(filled, *arguments) as ledger:
            assert (ledger.step, ledger.rows, ledger.marked) == (18, 11, True)
            assert ledger.spent() == Fraction(2, 8)
            assert ledger.spent(11, 14) == Fraction(7, 8)
            assert ledger.spent(5, 8) == Fraction(7, 8)
            assert ledger.spent(1, 18) == Fraction(25, 8)
            with pytest.raises(BudgetExceeded):
                ledger.charge(18, 7)
    verdict = verify_file(filled)
    assert verdict.ok
    assert (verdict.rows, verdict.spent, verdict.marked, len(verdict.head)) == (11, 1, True, 64)


@pytest.mark.parametrize("row", [1, 3, 7, 8, 9, 10, 11])
@pytest.mark.parametrize("column", ["kind", "first", "last", "units", "scope", "parts", "detail", "hash"])
def test_edit_of_any_column_is_named(filled, row, column):
    """Whichever column of whichever row is edited, verify names that row."""
    values = {"kind": "'batch'", "scope": "'x'", "parts": "'{}'", "detail": "x'5200'", "hash": "zeroblob(32)"}
    value = values.get(column, f"{column} + 1")
    if column == "kind" and row == 7:
        value = "'step'"
    edit(filled, f"UPDATE charges SET {column} = {value} WHERE row = {row}")
    verdict = verify_file(filled)
    assert not verdict.ok
    assert verdict.bad_row == row
    assert f"row {row}" in str(verdict)
    with pytest.raises(LedgerCorrupt, match=f"row {row}"):
        SQLiteLedger(filled)


@pytest.mark.parametrize(
    ("statements", "problem", "row"),
    [
        (["DELETE FROM charges WHERE row = 3"], "row 3 is missing", 3),
        (["DELETE FROM charges WHERE row > 9"], "row 10 is missing", 10),
        (["DELETE FROM charges"], "row 1 is missing", 1),
        (["UPDATE charges SET row = row + 100 WHERE row = 11"], "row 11 is missing", 11),
        (["UPDATE head SET rows = 10"], "head", 11),
        (["UPDATE head SET step = 1"], "head", 11),
        (["UPDATE head SET hash = zeroblob(32)"], "head", 11),
        (["DELETE FROM head"], "head", 0),
        (["UPDATE meta SET value = '9' WHERE name = 'units'"], "row 1 ", 1),
        (["UPDATE meta SET value = 'x' WHERE name = 'fingerprint'"], "row 1 ", 1),
        (
            [
                "UPDATE charges SET row = 50 WHERE row = 2",
                "UPDATE charges SET row = 2 WHERE row = 3",
                "UPDATE charges SET row = 3 WHERE row = 50",
            ],
            "row 2 ",
            2,
        ),
    ],
)
def test_missing_reordered_and_headless(filled, statements, problem, row):
    """Rows that are gone or swapped, a wrong head, other meta: each is named."""
    edit(filled, *statements)
    verdict = verify_file(filled)
    assert not verdict.ok
    assert verdict.bad_row == row
    assert problem in verdict.problem
    with pytest.raises(LedgerCorrupt):
        SQLiteLedger(filled)


@pytest.mark.parametrize(
    ("name", "value"), [("budget", "100"), ("budget", "pure"), ("budget", "pure x"), ("window", "")]
)
def test_meta_that_cannot_be_read(filled, name, value):
    """A budget or window that is none is one sentence, for whoever verifies and for whoever goes on."""
    edit(filled, f"UPDATE meta SET value = '{value}' WHERE name = '{name}'")
    assert "damaged" in verify_file(filled).problem
    with pytest.raises(LedgerCorrupt):
        SQLiteLedger(filled)


def test_chain_that_overspends_is_found(path, monkeypatch):
    """Rows with right hashes that overspend a window are named, too."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        ledger.charge_batch(1, [2, 2, 2, 2])
        monkeypatch.setattr(type(ledger._account), "place", lambda *_: None)
        ledger.charge(4, 5)
        ledger.connection.execute("UPDATE head SET step = 4")
        monkeypatch.undo()
    verdict = verify_file(path)
    assert verdict.bad_row == 2
    assert "more than a window may spend" in verdict.problem


def test_checkpoint_is_used_and_checked(path, monkeypatch):
    """Opening replays only what follows the checkpoint; verify compares the checkpoint with the rows."""
    monkeypatch.setattr(durable, "CHECKPOINT_ROWS", 100)
    with SQLiteLedger(path, POLICY, 8) as ledger, ledger.transaction():
        for step in range(1, 1205):
            ledger.charge(step, 2, scope="uniform")
    with SQLiteLedger(path) as ledger:
        assert ledger._checkpoint_row > 1000
        assert (ledger.step, ledger.spent()) == (1204, 1)
        ledger.charge(1205, 1)
        assert ledger.verify().ok
    edit(path, "UPDATE checkpoint SET account = x'00'")
    with SQLiteLedger(path) as ledger:  # a damaged checkpoint is of no use, but the rows are all there
        assert (ledger._checkpoint_row, ledger.spent()) == (0, Fraction(7, 8))
        assert "checkpoint" in ledger.verify().problem


def test_other_policy_units_schedule_or_mechanism_is_refused(path):
    """What the ledger was opened for cannot be changed, and the message says what differs."""
    SQLiteLedger(path, POLICY, 8, fingerprint="uniform 1").close()
    with pytest.raises(LedgerMismatch, match="policy"):
        SQLiteLedger(path, WEvent(epsilon="2", w=4), 8)
    with pytest.raises(LedgerMismatch, match="policy"):
        SQLiteLedger(path, User(epsilon="1", horizon=9), 8)
    with pytest.raises(LedgerMismatch, match="units"):
        SQLiteLedger(path, POLICY, 9)
    with pytest.raises(LedgerMismatch, match="schedule"):
        SQLiteLedger(path, POLICY, 8, "public")
    with pytest.raises(LedgerMismatch, match="another mechanism"):
        SQLiteLedger(path, POLICY, 8, fingerprint="uniform 2")
    SQLiteLedger(path, POLICY, 8, fingerprint="uniform 1").close()


def test_no_ledger_empty_truncated_and_newer_files(path, filled):
    """A text file, another database, an empty, a truncated and a newer file: one sentence each."""
    good = filled.read_bytes()
    with pytest.raises(LedgerError, match="give a policy"):
        SQLiteLedger(path.with_name("none.db"))
    with pytest.raises(LedgerError, match="No such file"):
        SQLiteLedger(path.with_name("none.db"), read_only=True)
    cases = [
        (b"step,count\n" * 50, LedgerMismatch, "not a ledger"),
        (b"", LedgerCorrupt, "empty"),
        (good[:60], LedgerCorrupt, "truncated"),
        (good[: len(good) // 2], LedgerCorrupt, "truncated or damaged"),
        (good[:4096] + bytes(len(good) - 4096), LedgerCorrupt, "damaged"),
    ]
    for content, kind, message in cases:
        path.write_bytes(content)
        with pytest.raises(kind, match=message):
            SQLiteLedger(path, POLICY, 8)
        with contextlib.suppress(LedgerError):
            assert not verify_file(path).ok
    path.unlink()
    edit(path, "CREATE TABLE other (x)")
    with pytest.raises(LedgerMismatch, match="not a ledger"):
        SQLiteLedger(path, POLICY, 8)
    path.write_bytes(good)
    edit(path, "UPDATE meta SET value = '3' WHERE name = 'format'")
    with pytest.raises(LedgerMismatch, match="format 3"):
        SQLiteLedger(path, POLICY, 8)


def test_transaction_commits_charges_and_the_callers_writes_together(path):
    """A runtime's own table and the charges are there together or not at all; transactions nest."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        ledger.connection.execute("CREATE TABLE releases (step INTEGER, value INTEGER)")
        with ledger.transaction():
            ledger.charge(1, 3)
            ledger.connection.execute("INSERT INTO releases VALUES (1, 7)")

        def fail():
            with ledger.transaction():
                with ledger.transaction():
                    ledger.charge(2, 3)
                ledger.connection.execute("INSERT INTO releases VALUES (2, 7)")
                raise OSError("sink")

        with pytest.raises(OSError, match="sink"):
            fail()
        assert (ledger.step, ledger.rows, ledger.spent()) == (1, 1, Fraction(3, 8))
        with ledger.transaction():
            with pytest.raises(BudgetExceeded):
                ledger.charge(2, 6)
            ledger.charge(2, 5)
            with pytest.raises(LedgerError, match="verify after"):
                ledger.verify()
    with SQLiteLedger(path) as ledger:
        assert ledger.connection.execute("SELECT step FROM releases").fetchall() == [(1,)]
        assert (ledger.rows, ledger.spent(), ledger.verify().ok) == (2, 1, True)


@pytest.mark.parametrize("failure", ["mine", "database"])
def test_what_was_handed_out_stays_paid_and_the_callers_writes_do_not(path, failure):
    """A transaction that fails after a release was handed out is undone but for its charges, whatever has failed."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        ledger.connection.execute("CREATE TABLE releases (step INTEGER)")

        def fail():
            with ledger.transaction():
                ledger.charge(1, 3)
                ledger.connection.execute("INSERT INTO releases VALUES (1)")
                ledger.handed_out()
                if failure == "database":
                    ledger.connection.execute("ROLLBACK")  # as a database does that fails
                raise OSError("sink")

        with pytest.raises(OSError, match="sink"):
            fail()
        assert (ledger.step, ledger.rows, ledger.spent()) == (1, 1, Fraction(3, 8))
        with contextlib.suppress(ZeroDivisionError), ledger.transaction(unseen=True):
            ledger.charge(2, 3)
            ledger.handed_out()
            raise ZeroDivisionError
        assert ledger.rows == 1
    with SQLiteLedger(path) as ledger:
        assert ledger.connection.execute("SELECT step FROM releases").fetchall() == []
        assert (ledger.rows, ledger.spent(), ledger.verify().ok) == (1, Fraction(3, 8), True)


def test_batch_lent_to_a_loop_is_one_durable_row(path):
    """A recorded batch is on disk; batches of all shapes read back as they were."""
    shapes = [np.ones(10_000, dtype=int), np.arange(9) % 3, np.array([5]), np.array([0, 2**40] * 20)]
    with SQLiteLedger(path, WEvent(epsilon="1", w=10), 2**45) as ledger:
        for units in shapes:
            with ledger.begin_batch(len(units)) as batch:
                batch.record(ledger.step + 1, units)
        assert ledger.rows == len(shapes)
        spent = ledger.spent()
    with SQLiteLedger(path) as ledger:
        assert ledger.spent() == spent
        assert ledger.verify().ok


def test_a_second_name_is_refused(tmp_path: Path) -> None:
    """A hard link has a lock and a log of its own: under it the same steps could be paid for twice."""
    path, other = tmp_path / "a.ledger", tmp_path / "b.ledger"
    with SQLiteLedger(path, POLICY, 24) as ledger:
        ledger.charge(1, 1)
        os.link(path, other)
        for name in (other, path):
            with pytest.raises(LedgerError):
                SQLiteLedger(name, POLICY, 24)
        ledger.charge(2, 1)
    with pytest.raises(LedgerError, match="hard link"):
        SQLiteLedger(path, POLICY, 24)
    other.unlink()
    with SQLiteLedger(path, POLICY, 24) as ledger:
        assert ledger.step == 2


def test_readers_look_while_a_writer_writes(path):
    """A second writer is refused by name, a reader sees what is committed and cannot charge."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        ledger.charge(1, 1)
        with pytest.raises(LedgerBusy, match=str(path)):
            SQLiteLedger(path, POLICY, 8)
        with SQLiteLedger(path, read_only=True) as reader:
            assert (reader.step, reader.spent()) == (1, Fraction(1, 8))
            ledger.charge(2, 1)
            assert reader.verify().rows == 2
            with pytest.raises(LedgerError, match="read-only"):
                reader.charge(3, 1)
    SQLiteLedger(path, POLICY, 8).close()


def test_second_process_is_refused_and_a_killed_one_does_not_block(path):
    """The lock belongs to a living process; what a killed one committed is there, and verifies."""
    child = python(
        """
        import sys
        from tidegate.ledger.sqlite import SQLiteLedger
        from tidegate.policy import WEvent
        ledger = SQLiteLedger(sys.argv[1], WEvent(epsilon="1", w=4), 8)
        step = 0
        while True:
            step += 1
            ledger.charge(step, 2)
            print(step, flush=True)
        """,
        path,
    )
    for _ in range(40):
        granted = int(child.stdout.readline())
    with pytest.raises(LedgerBusy, match="another run"):
        SQLiteLedger(path, POLICY, 8)
    child.send_signal(signal.SIGKILL)
    granted = max(
        [
            granted,
            *(int(line) for line in child.communicate()[0].splitlines(keepends=True) if line.endswith("\n")),
        ]
    )
    with SQLiteLedger(path, POLICY, 8) as ledger:
        assert ledger.step in (granted, granted + 1)
        assert ledger.verify().ok
        ledger.charge(ledger.step + 1, 2)


def test_fork_neither_charges_nor_holds_the_lock(path):
    """A forked child is refused, may close, and the parent's file stays whole."""
    ledger = SQLiteLedger(path, POLICY, 8)
    ledger.charge(1, 1)
    child = os.fork()
    if child == 0:
        try:
            ledger.charge(2, 1)
        except LedgerBusy:
            ledger.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.charge(2, 1)
    assert ledger.verify().ok
    ledger.close()
    SQLiteLedger(path, POLICY, 8).close()


def test_database_locked_by_another_program(path, monkeypatch):
    """A stranger's lock on the database is told in a sentence and charges nothing."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        ledger.charge(1, 1)
        ledger.connection.execute("PRAGMA busy_timeout=50")
        stranger = sqlite3.connect(path, isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerBusy, match="locked"):
            ledger.charge(2, 1)
        stranger.close()
        assert (ledger.step, ledger.spent()) == (1, Fraction(1, 8))
        ledger.charge(2, 1)


def test_full_disk_changes_nothing(path):
    """When a row cannot be written (a page limit stands in for the disk), nothing is charged."""
    with SQLiteLedger(path, POLICY, 8) as ledger:
        ledger.charge(1, 1)
        pages = ledger.connection.execute("PRAGMA page_count").fetchone()[0]
        ledger.connection.execute(f"PRAGMA max_page_count={pages}")
        scope = "x" * 20_000
        with pytest.raises(LedgerError, match="full"):
            ledger.charge(2, 1, scope=scope)
        assert (ledger.step, ledger.rows, ledger.spent()) == (1, 1, Fraction(1, 8))
        ledger.connection.execute("PRAGMA max_page_count=1000000")
        ledger.charge(2, 1, scope=scope)
        assert ledger.verify().ok


def test_full_file_system(tmp_path):
    """On a file system of 256 KiB the ledger stops with a sentence, and what was granted is there."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root; the page limit test stands in for it")
    try:
        ledger = SQLiteLedger(tmp_path / "account.db", POLICY, 8)

        def fill():
            for step in range(1, 2000):
                ledger.charge(step, 2, scope="x" * 1000)

        with pytest.raises(LedgerError, match="nothing was charged"):
            fill()
        granted = ledger.step
        assert ledger.rows == granted
        ledger.close()
        assert verify_file(tmp_path / "account.db").rows == granted
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=False)


def test_read_only_folder(tmp_path):
    """A folder that may not be written: one sentence; an old ledger in it can still be read."""
    folder = tmp_path / "closed"
    folder.mkdir()
    SQLiteLedger(folder / "old.db", POLICY, 8).close()
    (folder / "old.db").chmod(0o644)  # whoever may not write it is allowed to read it here
    code = """
        import os, sys
        from tidegate.errors import LedgerError
        from tidegate.ledger.sqlite import SQLiteLedger
        from tidegate.policy import WEvent
        SQLiteLedger(sys.argv[1] + "/old.db", read_only=True).verify()  # compiles while it still may
        if os.getuid() == 0:
            os.setuid(65534)  # root may write everywhere
        try:
            SQLiteLedger(sys.argv[1] + "/new.db", WEvent(epsilon="1", w=4), 8)
        except LedgerError as error:
            print(error)
        print(SQLiteLedger(sys.argv[1] + "/old.db", read_only=True).verify())
    """
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    folder.chmod(0o555)
    try:
        said, failed = python(code, folder).communicate()
    finally:
        folder.chmod(0o755)
    assert "make its folder writable" in said, failed
    assert "ledger verified" in said


def test_an_unused_ledger_can_be_discarded_and_a_used_one_cannot(tmp_path):
    """What was never charged leaves no file, not even its lock; what was charged is only closed."""
    path = tmp_path / "ledger"
    SQLiteLedger(path, WEvent(epsilon="1", w=4), 4).discard()
    assert list(tmp_path.iterdir()) == []
    with SQLiteLedger(path, WEvent(epsilon="1", w=4), 4) as ledger:
        ledger.charge(1, 1)
    SQLiteLedger(path, WEvent(epsilon="1", w=4), 4).discard()
    with SQLiteLedger(path, WEvent(epsilon="1", w=4), 4) as ledger:
        assert ledger.rows == 1


def test_a_divided_ledger_is_kept_from_its_first_charge_on(tmp_path):
    """A division alone is no charge; a single one, to the first step of one share, is."""
    path, policy = tmp_path / "ledger", WEvent(epsilon="1", w=4)
    with SQLiteLedger(path, policy, 4) as ledger:
        ledger.divide({"visits": Fraction(1, 2), "sales": Fraction(1, 2)})
    SQLiteLedger(path, policy, 4).discard()
    assert list(tmp_path.iterdir()) == []
    with SQLiteLedger(path, policy, 4) as ledger:
        ledger.divide({"visits": Fraction(1, 2), "sales": Fraction(1, 2)})
        ledger.share("visits").charge(1, 1)
    SQLiteLedger(path, policy, 4).discard()
    assert path.exists()


def test_a_lock_that_was_removed_keeps_nobody_out(tmp_path, monkeypatch):
    """Whoever waited at the lock of a discarded ledger takes the new one, and holds it alone."""
    path = tmp_path / "ledger"
    real, stolen = fcntl.flock, []

    def late(descriptor, operation):
        real(descriptor, operation)
        if not stolen:  # between opening the lock and taking it, its owner has discarded it
            stolen.append(True)
            Path(f"{path}.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", late)
    with SQLiteLedger(path, WEvent(epsilon="1", w=4), 4):
        monkeypatch.undo()
        with pytest.raises(LedgerBusy):
            SQLiteLedger(path, WEvent(epsilon="1", w=4), 4)


def test_reading_beside_a_writer_keeps_its_locks(path):
    """Who closes a file loses all locks on it: another program would take itself for the last, and remove the log."""
    with SQLiteLedger(path, WEvent(epsilon="1", w=4), units=4) as ledger:
        ledger.charge(1, 1)
        log = Path(f"{path}-wal").stat().st_ino
        with SQLiteLedger(path, read_only=True) as reader:
            assert reader.rows == 1
        look = (
            f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT * FROM head'); c.close()"
        )
        subprocess.run([sys.executable, "-c", look], check=True)
        assert Path(f"{path}-wal").stat().st_ino == log
        ledger.charge(2, 1)
    assert verify_file(path).ok
