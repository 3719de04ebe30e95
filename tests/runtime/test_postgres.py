"""The ledger in PostgreSQL: the same account, a lease, damage, a server that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers import open_one, release, settings

from tidegate.core.errors import LogMismatch
from tidegate.errors import (
    BudgetExceeded,
    InvalidParameter,
    LedgerBusy,
    LedgerCorrupt,
    LedgerError,
    LedgerMismatch,
)
from tidegate.ledger import open_ledger, postgres
from tidegate.ledger.postgres import Place, PostgresLedger, verify_url
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.mechanisms import Uniform
from tidegate.policy import WEvent
from tidegate.releases import Status

POLICY = WEvent(epsilon="1", w=4)


@pytest.fixture
def url(postgres: Any) -> str:
    """A stream that does not exist yet."""
    return str(postgres.new_stream())


def fill(ledger: Any) -> None:
    """Every kind of row."""
    for step in range(1, 7):
        ledger.charge(step, 2)
    ledger.charge_batch(7, [1, 2, 0, 1, 0])
    ledger.charge_span(12, 14, 3, scope="alarm")
    ledger.charge(13, 1, groups={"a": 1, "b": 2}, levels={"leaf": 1}, scope="tree")
    ledger.mark()
    ledger.charge(18, 2)


def test_same_rows_and_hashes_as_in_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both databases keep the same chain, so that either can be checked against the other."""
    monkeypatch.setattr("tidegate.ledger.durable.fresh_name", lambda: "the same")
    with SQLiteLedger(tmp_path / "file", POLICY, 8) as file, PostgresLedger(url, POLICY, 8) as ledger:
        for one in (file, ledger):
            fill(one)
            with pytest.raises(BudgetExceeded):
                one.charge(18, 7)
        assert file.verify() == ledger.verify()
        assert file.spent(1, 18) == ledger.spent(1, 18)
    with PostgresLedger(url) as again:
        assert (again.step, again.rows, again.marked) == (18, 11, True)
    assert verify_url(url).ok


def test_groups_and_shares_as_in_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, shares and amendments have the same rows, hashes and verdicts, and are taken up again."""
    monkeypatch.setattr("tidegate.ledger.durable.fresh_name", lambda: "the same")
    monkeypatch.setattr("tidegate.ledger.durable.CHECKPOINT_ROWS", 6)
    with SQLiteLedger(tmp_path / "file", POLICY, 8) as file, PostgresLedger(url, POLICY, 8) as ledger:
        for one in (file, ledger):
            group = one.extend_group(one.charge_group(1, 2, 1), 4)
            one.charge_batch(5, [0, 1, 0], groups=[[5, 6, 2]], extended=[[*group, 7]])
            shares = one.divide({"a": "1/3", "b": "2/3"})
            shares["a"].fit(shares["a"].policy, 5, "test")
            for step in range(9, 15):
                with one.transaction():
                    shares["a"].charge(step, 0)
                    shares["b"].charge_group(step, step + 1, 0, scope="pair")
            one.divide({"b": "1/2"}, budget="1/2")["b"].charge(15, 0)
        assert file.verify() == ledger.verify()
        assert str(file.verify()) == str(ledger.verify())
        position = ledger.share("b").position
    with PostgresLedger(url) as again:
        assert (again.step, again.rows, again.shares) == (15, ledger.rows, {"b": Fraction(1, 2)})
        assert again.share("b").position == position
    assert verify_url(url).ok


def test_long_ledgers_have_a_checkpoint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain rows are replayed in chunks, and opening begins at the checkpoint."""
    from tidegate.ledger import durable

    monkeypatch.setattr(durable, "CHECKPOINT_ROWS", 100)
    with PostgresLedger(url, POLICY, 4) as ledger, ledger.transaction():
        for step in range(1, 251):
            ledger.charge(step, 1)
    with PostgresLedger(url, POLICY, 4) as ledger:
        assert ledger._checkpoint_row == 250
        assert ledger.verify().ok
        with pytest.raises(BudgetExceeded):
            ledger.charge(250, 1)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE charges SET units = 1 WHERE row = 3", "row 3"),
        ("DELETE FROM charges WHERE row = 5", "row 5"),
        ("UPDATE head SET step = 7", "head"),
        ("DROP TABLE checkpoint", "lacks a table"),
    ],
)
def test_damage_is_named(url: str, statement: str, words: str) -> None:
    """An edited database is noticed, by verify and by opening."""
    with PostgresLedger(url, POLICY, 8) as ledger:
        fill(ledger)
        ledger.connection.execute(statement)
    verdict = verify_url(url)
    assert not verdict.ok
    assert words in str(verdict)
    with pytest.raises(LedgerCorrupt, match=words):
        PostgresLedger(url, POLICY, 8)


@pytest.mark.parametrize("name", ["user", "select", "order", "table", "default"])
def test_words_of_sql_are_names_of_streams(url: str, name: str) -> None:
    """A stream may be called as its people call it."""
    place = f"{url.partition('#')[0]}#{name}"
    with PostgresLedger(place, WEvent(epsilon="1", w=2), units=2) as ledger:
        ledger.charge(1, 1)
    with PostgresLedger(place) as ledger:
        assert ledger.step == 1
    assert verify_url(place).ok


@pytest.mark.parametrize("name", ["information_schema", "pg_catalog", "pg_temp"])
def test_schemas_of_the_server_are_refused(name: str) -> None:
    """Nobody's tables belong there."""
    with pytest.raises(InvalidParameter, match="small letters"):
        Place(f"postgresql://host/database#{name}")


def test_another_policy_is_refused(url: str) -> None:
    """As in a file."""
    PostgresLedger(url, POLICY, 8, fingerprint="one").close()
    with pytest.raises(LedgerMismatch, match="policy"):
        PostgresLedger(url, WEvent(epsilon="1", w=5), 8)
    with pytest.raises(LedgerMismatch, match="another mechanism"):
        PostgresLedger(url, POLICY, 8, fingerprint="two")


def test_one_worker_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is refused while the first lives, and may begin when it has closed."""
    monkeypatch.setattr(postgres, "PATIENCE", 0.2)
    with PostgresLedger(url, POLICY, 8) as first:
        with pytest.raises(LedgerBusy, match="another worker"):
            PostgresLedger(url, POLICY, 8)
        first.charge(1, 2)
        with PostgresLedger(url, read_only=True) as reader:  # looking is always allowed
            assert reader.step == 1
            with pytest.raises(LedgerError, match="read-only"):
                reader.charge(2, 1)
    open_ledger(url, POLICY, 8).close()


def test_a_worker_that_lost_its_lease_cannot_commit(url: str) -> None:
    """Even without the lock, as behind a connection pool, the older worker's next charge is refused."""
    older = PostgresLedger(url, POLICY, 8)
    older.charge(1, 2)
    older.connection.execute("SELECT pg_advisory_unlock_all()")
    newer = PostgresLedger(url, POLICY, 8)
    with pytest.raises(LedgerBusy, match="taken over"):
        older.charge(2, 2)
    newer.charge(2, 2)
    older.close()
    newer.close()
    assert (verify_url(url).ok, verify_url(url).steps) == (True, 2)


def test_a_dead_worker_leaves_its_lease(url: str) -> None:
    """A worker that is killed in the middle of a transaction: the next one goes on, and its charge is not there."""
    code = """
        import os, signal, sys
        from tidegate.ledger.postgres import PostgresLedger
        from tidegate.policy import WEvent
        ledger = PostgresLedger(sys.argv[1], WEvent(epsilon="1", w=4), 8)
        ledger.charge(1, 2)
        with ledger.transaction():
            ledger.charge(2, 2)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), url], check=False)
    assert done.returncode == -9
    with PostgresLedger(url, POLICY, 8) as ledger:
        assert ledger.step == 1


def test_a_fork_cannot_use_it(url: str) -> None:
    """The child of a fork is refused, and leaves the parent's session alone."""
    ledger = PostgresLedger(url, POLICY, 8)
    child = os.fork()
    if child == 0:
        try:
            ledger.charge(1, 1)
        except LedgerBusy:
            ledger.close()
            os._exit(7)
        os._exit(1)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
    ledger.charge(1, 1)
    ledger.close()


@pytest.mark.parametrize("name", ["Campus", "pg_x", "a b", "a;drop", "x" * 64])
def test_names_of_streams_are_checked(name: str) -> None:
    """Small letters, digits and underscores; nothing of the password is ever shown."""
    with pytest.raises(InvalidParameter) as refusal:
        Place(f"postgresql://user:secret@host/database#{name}")
    assert "secret" not in str(refusal.value)


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    """Without the password."""
    with pytest.raises(LedgerError) as refusal:
        PostgresLedger("postgresql://user:secret@127.0.0.1:9/database#campus", POLICY, 8)
    assert "cannot be reached" in str(refusal.value)
    assert "secret" not in str(refusal.value)
    with pytest.raises(LedgerError, match="cannot be reached"):
        verify_url("postgresql://127.0.0.1:9/database#campus")


def test_a_stream_in_postgres(url: str, tmp_path: Path) -> None:
    """A whole release; a changed ε is refused; nothing twice."""
    change = ("window = 4", f'window = 4\nledger = "{url}"')
    config = settings(tmp_path, change)
    release(config)
    whole = (tmp_path / "out.csv").read_bytes()
    assert len(whole.splitlines()) == 13
    release(config)
    assert (tmp_path / "out.csv").read_bytes() == whole
    with pytest.raises(LogMismatch, match=r'epsilon = "1" and the configuration now says "2"'):
        open_one(settings(tmp_path, change, ('epsilon = "1"', 'epsilon = "2"')))
    assert verify_url(url).steps == 12


def test_a_server_that_goes_away(postgres: Any, tmp_path: Path) -> None:
    """It stops with one sentence; when the server is back the stream goes on as if nothing had happened."""
    config = settings(tmp_path, ("window = 4", f'window = 4\nledger = "{postgres.new_stream()}"'))
    with open_one(config) as stream:
        intake = config.open(None)
        found = list(intake)
        intake.close()
        postgres.stop()
        try:
            with pytest.raises(LedgerError, match="cannot be reached"):
                stream.drive(found)
        finally:
            postgres.start()
    assert not (tmp_path / "out.csv").exists()
    release(config)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 13


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dump", "template"])
def test_a_copy_of_the_schema_does_not_go_on_with_the_originals_noise(how, request, tmp_path):
    """One that was dumped and put back, or a database that was made from it: the difference of both would be exact."""
    psycopg = pytest.importorskip("psycopg")
    mechanism = Uniform(WEvent(epsilon="1", w=8), noise="semiorder")
    running = request.getfixturevalue("postgres")
    server = running.new_stream().rpartition("/")[0]
    source, copied = (f"source_{how}", f"copied_{how}")

    def asked(database, *statements):
        with psycopg.connect(f"{server}/{database}", autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    asked("postgres", f"CREATE DATABASE {source}")
    url = f"{server}/{source}#campus"
    with PostgresLedger(url, mechanism.policy, mechanism.units) as ledger:
        run = mechanism.start(ledger)
        run.push_batch(np.zeros((11, 1), dtype=np.int64))
        state = run.snapshot()
    if how == "template":
        asked("postgres", f"CREATE DATABASE {copied} TEMPLATE {source}")
    else:
        asked("postgres", f"CREATE DATABASE {copied}")
        dump = tmp_path / "campus.sql"
        found = subprocess.run(
            [running.programs / "pg_dump", "--schema=campus", f"{server}/{source}"],
            check=True, capture_output=True,
        )  # fmt: skip
        dump.write_bytes(found.stdout)
        subprocess.run(
            [running.programs / "psql", "--set=ON_ERROR_STOP=1", f"--file={dump}", f"{server}/{copied}"],
            check=True, capture_output=True,
        )  # fmt: skip
    measured = {}
    for database in (source, copied):
        with PostgresLedger(f"{server}/{database}#campus", mechanism.policy, mechanism.units) as ledger:
            run = mechanism.start(ledger, state=state)
            measured[database] = [run.push(0).status is Status.FRESH for _ in range(12)]
    assert measured == {source: [True] * 12, copied: [False] * 7 + [True] * 5}
