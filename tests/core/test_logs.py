"""Where commits are kept: the same session on every log, memory that is bounded, PostgreSQL, groups."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.conftest import Postgres, postgres  # noqa: F401  a fixture

import tidegate as tg
from tidegate.core import arrays, commit, place, sqlite_log
from tidegate.core.errors import Fenced, LogDamaged, LogMismatch, SessionClosed
from tidegate.core.log import Log, MemoryLog
from tidegate.core.postgres_log import Group, PostgresLog
from tidegate.core.session import Session, SessionState
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.pipeline.logs import LogReader, open_log
from tidegate.releases import Status
from tidegate.servers.postgres import ServerAway
from tiers import slow

W = 4
ROWS = np.array([[(7 * step) % 23, 3 * step] for step in range(1, 41)])


def mechanisms() -> dict[str, Any]:
    """With noise of every kind."""
    policy = tg.WEvent(epsilon="2", window=W)
    return {
        "laplace": Uniform(policy, columns=2, noise="laplace"),
        "semiorder": Uniform(policy, columns=2, noise="semiorder"),
        "cube": Uniform(tg.WEvent(epsilon="2", window=12), columns=2, noise="cube"),
        "absorbing": BudgetAbsorption(policy, columns=2),
        "distributing": BudgetDistribution(policy, columns=2, noise="laplace"),
    }


@pytest.fixture(params=["memory", "file", *slow("postgresql")])
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Log]:
    """What opens the log of a test, again and again."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_stream()
        return lambda: PostgresLog(url)
    memory = MemoryLog()
    return lambda: memory if request.param == "memory" else SQLiteLog(tmp_path / "log.db")


# the same on every log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(mechanisms()))
def test_a_session_is_the_same_on_every_log(name: str, new_log: Callable[[], Log]) -> None:
    """Batches, single pushes and reopened logs; rows that verify; heads that are found."""
    mechanism = mechanisms()[name]
    with install(FixedEntropy("logs")):
        expected = Session(mechanism).push_batch(ROWS).values
        found, head = [], b""
        for begin, end in ((0, 1), (1, 9), (9, 10), (10, 11), (11, 33), (33, 40)):
            session = Session(mechanism, new_log(), head=head or None)
            if end - begin == 1:
                found.append(session.push(ROWS[begin], position=end).values[np.newaxis])
            else:
                found.append(session.push_batch(ROWS[begin:end], position=end).values)
            head = session.head
            assert Session(mechanism, new_log()).position == str(end).encode()
        with pytest.raises(LogMismatch, match="older copy"):
            Session(mechanism, new_log(), head=bytes(31) + b"x")
    assert np.array_equal(np.concatenate(found), expected)
    log = new_log()
    rows = list(log.rows())
    checked = verify(rows)
    assert (checked.ok, checked.step, checked.head) == (True, 40, head)
    assert [row.number for row in log.rows_since(11)] == [4, 5, 6]
    assert list(log.rows_since(41)) == []
    assert [row.number for row in log.rows(3)] == [3, 4, 5, 6]
    log.forget_releases(4)
    again = list(log.rows())
    assert [row.releases is None for row in again] == [True] * 4 + [False] * 3
    assert verify(again).ok


def test_two_writers_and_a_stale_one(new_log: Callable[[], Log]) -> None:
    """At most one of them releases a step; the other is fenced, and stays so."""
    mechanism = mechanisms()["semiorder"]
    first, second = Session(mechanism, new_log()), Session(mechanism, new_log())
    second.push(ROWS[0])
    second.push(ROWS[1])
    with pytest.raises(Fenced):
        first.push(ROWS[0])
    with pytest.raises(SessionClosed):
        first.push(ROWS[0])
    assert verify(new_log().rows()).step == 2


# files ----------------------------------------------------------------------------------------------------------------


def opened_elsewhere(path: Path) -> int:
    """Another process opens a log, and closes it; the commits that it has seen."""
    look = f"from tidegate.core.sqlite_log import SQLiteLog; log = SQLiteLog({str(path)!r})"
    look += "; print(len(list(log.rows()))); log.close()"
    return int(subprocess.run([sys.executable, "-c", look], capture_output=True, check=True).stdout)


@pytest.mark.parametrize("how", ["log", "open_log", "reader"])
def test_a_log_that_is_opened_again_keeps_its_locks(tmp_path: Path, how: str) -> None:
    """To close a descriptor of a file ends all locks of its process; then who closes last removes what others write."""
    path = tmp_path / "log.db"
    session = Session(mechanisms()["semiorder"], path)
    {"log": SQLiteLog, "open_log": open_log, "reader": LogReader}[how](str(path)).close()
    assert opened_elsewhere(path) == 1
    session.push(ROWS[0])
    assert opened_elsewhere(path) == 2
    rival = Session(mechanisms()["semiorder"], path)
    rival.push(ROWS[1])
    with pytest.raises(Fenced):
        session.push(ROWS[1])


@pytest.mark.parametrize("how", ["read", "removed", "moved", "replaced", "linked"])
def test_what_others_would_not_see_is_not_released(tmp_path: Path, how: str) -> None:
    """Somebody reads the file in this process, so that its locks are gone, or moves it: the next push says so."""
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    session = Session(mechanisms()["semiorder"], path)
    session.push(ROWS[0])
    if how == "read":
        path.read_bytes()
        opened_elsewhere(path)
    elif how == "removed":
        Path(f"{path}-wal").unlink()
    elif how == "linked":
        os.link(path, other)
    else:
        path.rename(other)
        if how == "replaced":
            shutil.copy(other, path)
    with pytest.raises(LogMismatch, match="moved, replaced, removed or linked"):
        session.push(ROWS[1])
    assert session.closed


def test_a_file_without_a_write_ahead_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SQLite cannot have one, nothing would notice that the file was replaced."""

    class Elsewhere(sqlite3.Connection):
        """A file system without shared memory."""

        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            return super().execute(sql.replace("journal_mode = WAL", "journal_mode"), parameters)

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite_log.sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Elsewhere)
    )
    with pytest.raises(LogMismatch, match=r"cannot have a write-ahead log .*'delete'.*local disk"):
        SQLiteLog(tmp_path / "log.db")


def test_a_copy_with_the_inode_of_a_removed_file_drops_noise_to_come(tmp_path: Path) -> None:
    """A file system gives the inode of a removed file to the next one: then the two are told apart by their birth."""
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    mechanism = mechanisms()["cube"]
    with Session(mechanism, path) as session:
        session.push(ROWS[0])
    shutil.copy(path, copy)
    with Session(mechanism, path) as session:
        assert session.push(ROWS[1]).status == Status.FRESH  # the same file
    inode = path.stat().st_ino
    path.unlink()
    for _ in range(100):
        shutil.copy(copy, path)
        if path.stat().st_ino == inode or place.born(path) == 0:
            break
        path.rename(tmp_path / f"{path.stat().st_ino}.other")
    if place.born(path) == 0:
        pytest.skip("this file system does not know when files were made")
    with Session(mechanism, path) as session:
        assert session.push(ROWS[1]).status == Status.SILENT


def overwritten(source: Path, target: Path) -> None:
    """Write a copy over a file, which stays the same one; nothing has it open."""
    before = target.stat().st_ino
    shutil.copyfile(source, target)
    assert target.stat().st_ino == before


@pytest.mark.parametrize("pushes", [1, 5])
def test_an_older_copy_over_the_same_file_drops_noise_to_come(tmp_path: Path, pushes: int) -> None:
    """Its noise to come was used already: another release with it would show the exact difference of two inputs."""
    path, older, newer = (tmp_path / name for name in ("log.db", "older.db", "newer.db"))
    mechanism = mechanisms()["cube"]
    with Session(mechanism, path) as session:
        session.push(ROWS[0])
    shutil.copyfile(path, older)
    with Session(mechanism, path) as session:
        for row in ROWS[1 : 1 + pushes]:
            assert session.push(row).status == Status.FRESH
    shutil.copyfile(path, newer)
    overwritten(older, path)
    with Session(mechanism, path) as session:
        assert [session.push(row).status for row in ROWS[1:13]] == [Status.SILENT] * 11 + [Status.FRESH]
    with Session(mechanism, path) as session:  # from here on it is the log
        assert session.push(ROWS[13]).status == Status.FRESH
        assert verify(SQLiteLog(path).rows()).ok
    overwritten(
        newer, path
    )  # and what was there before is a copy, although it has a larger number than the older one
    with Session(mechanism, path) as session:
        assert session.push(ROWS[1]).status == Status.SILENT


def test_an_older_copy_of_the_same_opening_drops_noise_to_come(tmp_path: Path) -> None:
    """The copy was made between two pushes of one session, and the process was killed."""
    path, older = tmp_path / "log.db", tmp_path / "older.db"
    mechanism = mechanisms()["semiorder"]
    if (child := os.fork()) == 0:
        try:
            session = Session(mechanism, path)
            session.push(ROWS[0])
            subprocess.run(["cp", path, older], check=True)
            subprocess.run(["cp", f"{path}-wal", f"{older}-wal"], check=True)
            session.push(ROWS[1])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    overwritten(older, path)
    overwritten(Path(f"{older}-wal"), Path(f"{path}-wal"))
    with Session(mechanism, path) as session:
        assert session.step == 1
        assert session.push(ROWS[1]).status == Status.SILENT


@pytest.mark.parametrize("how", ["removed", "cut", "another", "moved alone"])
def test_a_log_without_its_number_drops_noise_to_come(tmp_path: Path, how: str) -> None:
    """What stands beside a log is lost, or is another log's."""
    path, other, mechanism = tmp_path / "log.db", tmp_path / "other.db", mechanisms()["semiorder"]
    for each in (path, other):
        with Session(mechanism, each) as session:
            session.push(ROWS[0])
    beside = Path(f"{path}{place.ENDING}")
    if how == "removed":
        beside.unlink()
    elif how == "cut":
        beside.write_bytes(beside.read_bytes()[:20])
    elif how == "another":
        beside.write_bytes(Path(f"{other}{place.ENDING}").read_bytes())
    else:
        path = path.rename(tmp_path / "moved.db")
    for expected in (Status.SILENT, Status.SILENT, Status.SILENT, Status.FRESH):
        with Session(mechanism, path) as session:
            assert session.push(ROWS[1]).status == expected


def test_a_log_that_is_ahead_of_its_number_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was killed, or the power failed, before the number was written: the log has more commits."""
    path, mechanism = tmp_path / "log.db", mechanisms()["semiorder"]

    def killed(self: place.Place, number: int) -> None:
        raise KeyboardInterrupt

    with Session(mechanism, path) as session:
        session.push(ROWS[0])
        with monkeypatch.context() as patched:
            patched.setattr(place.Place, "note", killed)
            with pytest.raises(KeyboardInterrupt):
                session.push(ROWS[1])
    beside = Path(f"{path}{place.ENDING}")
    assert place.NUMBER.unpack(beside.read_bytes()[place.MARK_BYTES :]) == (1,)
    with Session(mechanism, path) as session:
        assert place.NUMBER.unpack(beside.read_bytes()[place.MARK_BYTES :]) == (2,)
        assert session.step == 2
        assert session.push(ROWS[2]).status == Status.FRESH


def test_both_files_may_be_moved(tmp_path: Path) -> None:
    """Then it is the same log."""
    path, mechanism = tmp_path / "log.db", mechanisms()["semiorder"]
    with Session(mechanism, path) as session:
        session.push(ROWS[0])
    Path(f"{path}{place.ENDING}").rename(tmp_path / f"moved.db{place.ENDING}")
    with Session(mechanism, path.rename(tmp_path / "moved.db")) as session:
        assert session.push(ROWS[1]).status == Status.FRESH


def test_a_log_is_found_by_another_name_and_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A symbolic link, and a path that is relative to where the process was."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "log.db")
    monkeypatch.chdir(tmp_path)
    with Session(mechanisms()["laplace"], "link.db") as session:
        monkeypatch.chdir("/")
        for row in ROWS[:9]:
            session.push(row)
    assert len(list(SQLiteLog(tmp_path / "folder" / "log.db").rows())) == 10


# in memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(mechanisms()))
def test_single_pushes_have_the_bytes_of_batches(name: str) -> None:
    """Charges, releases and state are the same."""
    kept = []
    for batch in (False, True):
        log = MemoryLog()
        with install(FixedEntropy("bytes")):
            session = Session(mechanisms()[name], log)
            session.push_batch(ROWS[:3])
            for row in ROWS[3:30]:
                if batch:
                    session.push_batch(row[np.newaxis])
                else:
                    session.push(row)
        loaded = log.load()
        assert loaded is not None
        _, state = commit.unsealed(loaded.secret, loaded.row.secret_digest)
        kept.append(([row[:7] for row in log.rows()], state))
    assert kept[0] == kept[1]


def test_a_memory_log_keeps_one_secret() -> None:
    """What a commit has overwritten is gone, read or not."""
    log = MemoryLog()
    session = Session(mechanisms()["semiorder"], log)
    for row in ROWS[:10]:
        session.push(row)
        log.load()
    assert [commit.number for commit in log._commits.values() if commit.secret is not None] == [10]


def test_the_log_of_a_session_in_memory_is_bounded() -> None:
    """It has the commits of the last window, however long the stream is."""
    session = Session(mechanisms()["laplace"])
    log: Any = session._log
    heads = set()
    for number in range(400):
        if number % 7 == 0:
            session.push_batch(ROWS[:3])
        else:
            session.push(ROWS[0])
        heads.add(session.head)
    assert len(heads) == 400
    assert W <= len(log._commits) <= 2 * W + 1
    assert len(log._seen) <= 2 * W + 2
    assert sum(len(each) for each in session.releases()) >= W
    assert [row.number for row in log.rows(399)] == [399, 400]


def test_a_log_that_has_dropped_commits_is_not_opened_again() -> None:
    """Its steps are fewer than the window, so it has forgotten charges that an amendment must count."""
    log = MemoryLog(1)
    session = Session(mechanisms()["laplace"], log)
    Session(mechanisms()["laplace"], log)  # nothing is dropped yet
    for row in ROWS[: 2 * W]:
        session.push(row)
    other = Uniform(tg.WEvent(epsilon="1", window=W), columns=2, noise="laplace")
    for mechanism, amend in ((mechanisms()["laplace"], False), (other, True)):
        with pytest.raises(LogMismatch, match="has dropped commits"):
            Session(mechanism, log, amend=amend)
    session.push(ROWS[0])  # who writes it goes on


def test_a_bounded_log_releases_what_an_unbounded_one_does() -> None:
    """Batches, steps that are passed over, and a window that is longer than the stream."""
    for window in (1, 3, 1000):
        found = []
        for log in (None, MemoryLog()):
            with install(FixedEntropy("bounded")):
                session = Session(
                    Uniform(tg.WEvent(epsilon="1", window=window), columns=2, noise="laplace"), log
                )
                for number in range(0, 30, 3):
                    session.push(ROWS[number])
                    session.push_batch(ROWS[number + 1 : number + 3], step=session.step + 1 + number % 4)
                found.append([each.values.tolist() for each in session.releases(session.step - 2)])
        assert found[0] == found[1]


def test_a_release_is_the_callers() -> None:
    """Whoever writes to it changes neither the log, nor the state, nor a later charge."""
    values = []
    for written in (False, True):
        with install(FixedEntropy("written")):
            session = Session(mechanisms()["absorbing"], MemoryLog())
            for row in ROWS[:20]:
                release = session.push_batch(row[np.newaxis])
                if written:
                    for part in (
                        release.values,
                        release.status,
                        release.source,
                        release.scale,
                        release.units,
                    ):
                        part[:] = 7
        values.append([(each.values.tolist(), each.units.tolist()) for each in session.releases()])
    assert values[0] == values[1]


# arrays ---------------------------------------------------------------------------------------------------------------


def test_records_behind_each_other_are_one() -> None:
    """Kinds of every width, empty arrays, and several records."""
    given: list[Any] = [
        np.array([1, -1], dtype=np.int8),
        np.zeros((0, 5)),
        np.array([True]),
        np.arange(6).reshape(1, 2, 3),
    ]
    data = arrays.encode(given[:2]) + arrays.encode(given[2:])
    assert len(data) % arrays.WORD == 0
    for one, other in zip(arrays.decode(data), given, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert arrays.Packed(given).stored() == arrays.encode(given)
    for broken in (data[:-1], data[:-8], data + b"\0" * 8 + b"\1", b"\xff" * 64, data[8:]):
        with pytest.raises(LogDamaged):
            arrays.decode(broken)
    with pytest.raises(ValueError, match="dimensions"):
        arrays.encode([np.zeros((1, 1, 1, 1))])


# opening --------------------------------------------------------------------------------------------------------------


def test_opening_reads_one_window_of_a_long_log(tmp_path: Path) -> None:
    """A head is found by an index, and the rows of the last window by the primary key: as many in a longer log."""
    mechanism, path = mechanisms()["laplace"], tmp_path / "log.db"
    read: list[int] = []

    class Counting(SQLiteLog):
        def rows(self, number: int = 0) -> Any:
            for row in super().rows(number):
                read.append(row.number)
                yield row

    lengths = []
    for _ in range(3):
        with Session(mechanism, path) as session:
            for row in ROWS:
                session.push(row)
            head = session.head
        read.clear()
        Session(mechanism, Counting(path), head=head).close()
        lengths.append(len(read))
    # the description, the last window for the account, and as many for the intervals
    assert set(lengths) == {lengths[0]}
    assert lengths[0] <= 2 * W + 2
    log = SQLiteLog(path)
    plan = log._reader.execute("EXPLAIN QUERY PLAN SELECT 1 FROM log WHERE head = ?", (head,)).fetchall()
    assert "log_head" in str(plan)


# PostgreSQL -----------------------------------------------------------------------------------------------------------

needs_server = pytest.mark.slow


def test_urls_are_checked_and_passwords_never_shown() -> None:
    """A # in a password puts its end into the name."""
    for url in (
        "postgresql://ann:se#cret@host/base",
        "postgresql://host/base#Upper",
        "postgresql://host:0/base#a",
    ):
        with pytest.raises(InvalidParameter) as caught:
            PostgresLog(url)
        assert "cret" not in str(caught.value)
    with pytest.raises(ServerAway) as away:
        PostgresLog("postgresql://ann:secret@127.0.0.1:9/base#a")
    assert "secret" not in str(away.value)


@needs_server
def test_a_connection_that_dies_during_a_commit(postgres: Postgres) -> None:  # noqa: F811
    """Made or not made: the log says where the stream stands, and the session continues from there."""
    url, mechanism = postgres.new_stream(), mechanisms()["semiorder"]
    with install(FixedEntropy("dies")):
        expected = Session(mechanism).push_batch(ROWS[:12]).values
        session = Session(mechanism, url)
        session.push_batch(ROWS[:5])
        for when in ("before", "after"):
            log: Any = session._log
            writer = log._group._writer
            usual = writer.all

            def dying(
                statement: str, values: Any, when: str = when, writer: Any = writer, usual: Any = usual
            ) -> Any:
                if when == "after":
                    usual(statement, values)
                writer._connection.pgconn.finish()
                return (
                    usual(statement, values) if when == "before" and not writer.lost else writer_fails(writer)
                )

            writer.all = dying
            with pytest.raises(ServerAway):
                session.push(ROWS[session.step])
            with pytest.raises(SessionClosed, match="interrupted"):
                session.push(ROWS[session.step])
            session = Session(mechanism, url)
            assert session.step == (5 if when == "before" else 6)
        session.push_batch(ROWS[session.step : 12])
        values = np.concatenate([each.values for each in session.releases()])
    assert np.array_equal(values, expected)
    assert verify(PostgresLog(url).rows()).ok


def writer_fails(writer: Any) -> Any:
    """The error of a connection that is gone."""
    with writer._described():
        writer._connection.execute("SELECT 1")


@needs_server
def test_a_server_that_stops_is_one_sentence(postgres: Postgres) -> None:  # noqa: F811
    """And the log continues when it is back, on the same connections."""
    log = PostgresLog(postgres.new_stream())
    session = Session(mechanisms()["laplace"], log)
    session.push(ROWS[0])
    postgres.stop()
    try:
        with pytest.raises(ServerAway, match="cannot be reached"):
            session.push(ROWS[1])
    finally:
        postgres.start()
    with pytest.raises(ServerAway):
        log.load()  # the reader's connection was lost as well
    again = Session(mechanisms()["laplace"], log)
    again.push(ROWS[again.step])
    assert verify(log.rows()).ok


@needs_server
def test_copies_within_a_database_drop_noise_to_come(postgres: Postgres) -> None:  # noqa: F811
    """A log that was copied under another name, and a table that was made anew."""
    url, mechanism = postgres.new_stream(), mechanisms()["semiorder"]
    with Session(mechanism, url) as session:
        session.push_batch(ROWS[:5])
    copied = PostgresLog(url + "_copy")
    copied._group.write(
        "UPDATE tidegate.logs AS c SET head = l.head, number = l.number, place = l.place, secret = l.secret "
        "FROM tidegate.logs AS l WHERE l.name = %s AND c.name = %s",
        (url.split("#")[1], url.split("#")[1] + "_copy"),
    )
    copied._group.write(
        "INSERT INTO tidegate.commits SELECT (SELECT id FROM tidegate.logs WHERE name = %s), number, kind, first, last, "
        "charges, releases, releases_digest, secret_digest, head FROM tidegate.commits WHERE log = "
        "(SELECT id FROM tidegate.logs WHERE name = %s)",
        (url.split("#")[1] + "_copy", url.split("#")[1]),
    )
    with Session(mechanism, copied) as session:
        released = session.push_batch(ROWS[5:12])
    assert released.status.tolist() == [Status.SILENT] * (W - 1) + [Status.FRESH] * (7 - W + 1)
    with Session(mechanism, url) as session:
        assert set(session.push_batch(ROWS[5:12]).status.tolist()) == {Status.FRESH}


@needs_server
def test_edited_logs_are_noticed(postgres: Postgres) -> None:  # noqa: F811
    """The head stands beside the rows; the state has a digest."""
    edits = {
        "DELETE FROM tidegate.commits WHERE log = %s AND number = 1": "last commit",
        r"UPDATE tidegate.logs SET secret = '\x00' WHERE id = %s": "state",
        "DELETE FROM tidegate.logs WHERE id = %s": "no head",
    }
    for edit, why in edits.items():
        log = PostgresLog(postgres.new_stream())
        Session(mechanisms()["laplace"], log).push(ROWS[0])
        log._group.write(edit, (log.number,))
        with pytest.raises(LogDamaged, match=why):
            Session(mechanisms()["laplace"], log)


@needs_server
def test_sizes_are_those_of_shapes(postgres: Postgres) -> None:  # noqa: F811
    """Nothing is compressed on its way to the disk."""
    sizes = []
    for factor in (0, 10**12):
        log = PostgresLog(postgres.new_stream())
        session = Session(BudgetAbsorption(tg.WEvent(epsilon="2", window=W), columns=2000), log)
        for _ in range(3):
            session.push(np.full(2000, factor))
        found = log._group.read(
            "SELECT pg_column_size(charges)::bigint, pg_column_size(releases)::bigint FROM tidegate.commits "
            "WHERE log = %s AND number > 0 ORDER BY number",
            (log.number,),
        )
        secret = log._group.read(
            "SELECT pg_column_size(secret)::bigint FROM tidegate.logs WHERE id = %s", (log.number,)
        )
        sizes.append((found, secret))
    assert sizes[0] == sizes[1]


@needs_server
def test_streams_of_one_database_share_commits(postgres: Postgres) -> None:  # noqa: F811
    """Each has its own head; one that is fenced does not fail the others."""
    group = Group(postgres.new_stream())
    sent = []
    usual = group._send

    def counting(requests: Any) -> None:
        sent.append(len(requests))
        usual(requests)

    group._send = counting  # type: ignore[method-assign]
    mechanism = mechanisms()["semiorder"]
    streams = [Session(mechanism, group.log(f"shared_{number}")) for number in range(16)]
    rival = Session(mechanism, PostgresLog(f"{group.address.address}#shared_3"))
    rival.push(ROWS[0])
    failed: dict[int, str] = {}

    def drive(number: int) -> None:
        try:
            for row in ROWS[:10]:
                streams[number].push(row)
        except Exception as error:
            failed[number] = type(error).__name__

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == {3: "Fenced"}
    for number, stream in enumerate(streams):
        log = group.log(f"shared_{number}")
        assert verify(log.rows()).ok
        assert stream.step == (0 if number == 3 else 10)
    assert sum(sent) >= 15 * 10
    group.close()


@needs_server
def test_many_requests_are_one_statement(postgres: Postgres) -> None:  # noqa: F811
    """Those whose head was moved, and the one that the server refuses, fail alone."""
    group = Group(postgres.new_stream())
    logs = [group.log(f"many_{number}") for number in range(5)]
    requests = []
    for log in logs:
        Session(mechanisms()["laplace"], log)
        loaded = log.load()
        assert loaded is not None
        made = commit.Commit(
            1, commit.PUSHED, 1, 1, commit.Written(b"c", b"r"), b"position", SessionState(0, [])
        )
        requests.append(log.request(loaded.row.head, made))
    requests[1].given = (requests[1].given[0], bytes(32), *requests[1].given[2:])
    requests[2].row = requests[2].row._replace(number=0)  # is there already: the server refuses the row
    group.append_many(requests)
    assert [type(request.error).__name__ for request in requests] == [
        "NoneType", "Fenced", "ServerRefuses", "NoneType", "NoneType",
    ]  # fmt: skip
    assert [len(list(log.rows())) for log in logs] == [2, 1, 1, 2, 2]
    group.close()


@needs_server
def test_a_fork_does_not_use_the_connection(postgres: Postgres) -> None:  # noqa: F811
    """The child is refused before it writes a byte; the parent continues."""
    log = PostgresLog(postgres.new_stream())
    session = Session(mechanisms()["laplace"], log)
    child = os.fork()
    if not child:
        code = 0
        for attempt in (lambda: session.push(ROWS[0]), log.load, session.close, log.close):
            try:
                attempt()
            except Fenced:
                code += 1
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    session.push(ROWS[0])
    assert verify(log.rows()).ok
