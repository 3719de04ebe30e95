"""The life of a session: what is committed, what is refused, how it ends, and how it is opened again."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate._mechanisms.plain.uniform import Uniform
from tidegate._mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.core.commit import HALTED, RESTARTED, Commit
from tidegate.core.errors import AccountRefused, Fenced, Halted, LogMismatch, SessionClosed
from tidegate.core.log import Log, MemoryLog
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.releases import Status

W = 4
ROWS = np.array([[(7 * step) % 23, 3 * step] for step in range(1, 41)])


def mechanisms() -> dict[str, Any]:
    """Representative mechanisms: own noise, the cube, the semiorder, and one that decides on the data."""
    policy = tg.WEvent(epsilon="2", w=W)
    return {
        "laplace": Uniform(policy, columns=2, noise="laplace"),
        "semiorder": Uniform(policy, columns=2, noise="semiorder"),
        "cube": Uniform(tg.WEvent(epsilon="2", w=12), columns=2, noise="cube"),
        "deciding": BudgetAbsorption(policy, columns=2),
    }


@pytest.fixture(params=list(mechanisms()))
def mechanism(request: pytest.FixtureRequest) -> Any:
    """One after the other."""
    return mechanisms()[request.param]


@pytest.fixture(params=["memory", "file"])
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Log]:
    """What opens the log of a test, again and again."""
    memory = MemoryLog()
    return lambda: memory if request.param == "memory" else SQLiteLog(tmp_path / "log.db")


@dataclass(frozen=True)
class Failing(Uniform):
    """Raises where the noise of a step is large: a failure that depends on it."""

    error: type[BaseException] = RuntimeError

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release, or raise."""
        output = super().advance(state, rows, first, noise)
        if len(rows) and first + len(rows) > 6:
            raise self.error(f"a secret: {rows.tolist()}")
        return output


def failing(mechanism: Uniform, error: type[BaseException] = RuntimeError) -> Failing:
    """The same configuration, failing from step 6 on."""
    return Failing(**{each.name: getattr(mechanism, each.name) for each in fields(mechanism)}, error=error)


def push_all(session: Session, rows: Any) -> list[float]:
    """Single pushes."""
    return [value for row in rows for value in session.push(row).values[0].tolist()]


def test_single_pushes_batches_and_reopened_logs_agree(mechanism: Any, new_log: Callable[[], Log]) -> None:
    """Under fixed entropy the same bits, however the steps were pushed."""
    with install(FixedEntropy("agree")):
        batch = Session(mechanism).push_batch(ROWS).values.ravel().tolist()
        single, parts = push_all(Session(mechanism), ROWS), []
        for begin, end in ((0, 1), (1, 9), (9, 10), (10, 33), (33, 40)):
            session = Session(mechanism, new_log())
            parts += session.push_batch(ROWS[begin:end], position=end).values.ravel().tolist()
            assert Session(mechanism, new_log()).position == str(end).encode()
    assert batch == single == parts
    found = verify(new_log().rows())
    assert (found.ok, found.step, found.head) == (True, 40, session.head)


def test_releases_are_in_the_log_as_they_left(mechanism: Any, new_log: Callable[[], Log]) -> None:
    """What a push returned can be read again, byte for byte."""
    session = Session(mechanism, new_log())
    seen = [session.push_batch(ROWS[:7]), session.push(ROWS[7])]
    stored = list(Session(mechanism, new_log()).releases())
    for one, other in zip(seen, stored, strict=True):
        for name in ("values", "status", "source", "scale", "units"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_public_refusals_leave_the_session_open(mechanism: Any) -> None:
    """Wrong shapes, steps that are over, and the horizon cost nothing."""
    session = Session(mechanism)
    session.push(ROWS[0])
    head = session.head
    for wrong in ([1], [1, 2, 3], ["a", "b"], [float("nan"), 1]):
        with pytest.raises(InvalidInput):
            session.push(wrong)
    with pytest.raises(AccountRefused):
        session.push(ROWS[1], step=1)
    assert session.head == head
    session.push(ROWS[1], step=9)
    assert session.step == 9


def test_the_horizon_is_refused_before_noise_is_drawn() -> None:
    """A stream of five steps has five."""
    session = Session(Uniform(tg.User(epsilon="1", horizon=5)))
    session.push_batch(np.arange(5))
    with pytest.raises(AccountRefused, match="horizon"):
        session.push(1)
    assert session.step == 5


def test_a_failure_inside_is_charged_and_never_retried(new_log: Callable[[], Log]) -> None:
    """A halt commit charges all that is left; nothing of the steps, and nothing of the error, is passed on."""
    plain = mechanisms()["semiorder"]
    session = Session(failing(plain), new_log())
    session.push_batch(ROWS[:5])
    with pytest.raises(Halted) as caught:
        session.push(ROWS[5])
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(SessionClosed, match="failed after noise"):
        session.push(ROWS[5])
    *_, last = new_log().rows()
    assert (last.kind, last.first, last.last, last.releases) == (HALTED, 6, 6, b"")

    session = Session(failing(plain), new_log())
    assert session.step == 6
    silent = session.push_batch(ROWS[6 : 6 + W - 1])
    assert set(silent.status.tolist()) == {Status.SILENT}
    assert not silent.units.any()
    assert verify(new_log().rows()).ok


def test_a_halted_stream_continues_after_a_window() -> None:
    """The windows of the halted step have passed, and the budget is back."""
    plain, log = mechanisms()["cube"], MemoryLog()
    session = Session(failing(plain), log)
    session.push_batch(ROWS[:5])
    with pytest.raises(Halted):
        session.push(ROWS[5])
    # the failing mechanism is described like the plain one, but for its error
    log._rows[0] = log._rows[0]._replace(charges=_opening(plain))
    session = Session(plain, log)
    released = session.push_batch(ROWS[6:30])
    assert released.status.tolist() == [Status.SILENT] * 11 + [Status.FRESH] * 13


def _opening(mechanism: Any) -> bytes:
    log = MemoryLog()
    Session(mechanism, log)
    return next(log.rows()).charges


def test_at_user_level_a_halt_is_for_good() -> None:
    """No budget returns."""
    log = MemoryLog()
    session = Session(failing(Uniform(tg.User(epsilon="1", horizon=50), columns=2)), log)
    session.push_batch(ROWS[:5])
    with pytest.raises(Halted):
        session.push(ROWS[5])
    with pytest.raises(SessionClosed, match="begin another"):
        Session(failing(Uniform(tg.User(epsilon="1", horizon=50), columns=2)), log).push(ROWS[6])


def test_an_interrupt_is_computed_again(new_log: Callable[[], Log]) -> None:
    """Ctrl-C does not depend on values: nothing was seen, nothing is charged, and the step is free."""
    session = Session(failing(mechanisms()["laplace"], KeyboardInterrupt), new_log())
    session.push_batch(ROWS[:5])
    head = session.head
    with pytest.raises(KeyboardInterrupt):
        session.push(ROWS[5])
    with pytest.raises(SessionClosed, match="interrupted"):
        session.push(ROWS[5])
    loaded = new_log().load()
    assert loaded is not None
    assert loaded.row.head == head


class Broken(MemoryLog):
    """A log whose commits fail, made or not made."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: str = ""

    def append(self, expected: bytes, commit: Commit) -> bytes:
        """Fail before or after the commit."""
        if self.fails == "before":
            raise OSError("the disk is full")
        head = super().append(expected, commit)
        if self.fails == "after":
            raise OSError("the answer was lost")
        return head


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_fails(mechanism: Any, when: str) -> None:
    """Whether it was made or not, the log says where the stream stands, and its state is that of its last commit."""
    log = Broken()
    with install(FixedEntropy("broken")):
        expected = Session(mechanism).push_batch(ROWS[:30]).values
        session = Session(mechanism, log)
        session.push_batch(ROWS[:10])
        for end in (20, 30):  # a second failure after a reopen as well
            log.fails = when
            with pytest.raises(OSError, match=r"disk|answer"):
                session.push_batch(ROWS[session.step : end])
            log.fails = ""
            session = Session(mechanism, log)
            session.push_batch(ROWS[session.step : end])
        values = np.concatenate([each.values for each in session.releases()])
    assert np.array_equal(values, expected)
    assert verify(log.rows()).ok


def test_two_writers(mechanism: Any, new_log: Callable[[], Log]) -> None:
    """The second one moves the head, and the first is fenced: at most one of them releases a step."""
    first, second = Session(mechanism, new_log()), Session(mechanism, new_log())
    second.push(ROWS[0])
    with pytest.raises(Fenced):
        first.push(ROWS[0])
    with pytest.raises(SessionClosed):
        first.push(ROWS[0])
    second.push(ROWS[1])
    assert verify(new_log().rows()).step == 2


def test_copies_of_a_session_are_refused(mechanism: Any) -> None:
    """Neither copied nor pickled."""
    session = Session(mechanism)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="one writer"):
            copied(session)


def test_a_fork_is_fenced(mechanism: Any, new_log: Callable[[], Log]) -> None:
    """The child refuses; the parent continues."""
    session = Session(mechanism, new_log())
    session.push(ROWS[0])
    child = os.fork()
    if not child:
        try:
            session.push(ROWS[1])
        except Fenced:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    session.push(ROWS[1])


def test_a_signal_handler_must_not_push() -> None:
    """Re-entry is refused; the push that was interrupted is not."""
    refused = []

    @dataclass(frozen=True)
    class Signalling(Uniform):
        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            os.kill(os.getpid(), signal.SIGUSR1)
            return super().advance(state, rows, first, noise)

    session = Session(Signalling(tg.WEvent(epsilon="1", w=3)))

    def handler(number: int, frame: object) -> None:
        with pytest.raises(SessionClosed, match="under way"):
            session.push(1)
        refused.append(number)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        session.push(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert refused == [signal.SIGUSR1]
    assert session.step == 1


def test_threads_take_turns() -> None:
    """Every push is a step of its own."""
    session, log = None, MemoryLog()
    session = Session(mechanisms()["semiorder"], log)
    threads = [threading.Thread(target=push_all, args=(session, ROWS[:20])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.step == 80
    assert verify(log.rows()).ok


@pytest.mark.parametrize("name", ["laplace", "semiorder", "cube"])
def test_a_copied_file_drops_noise_to_come(tmp_path: Path, name: str) -> None:
    """Two copies that continue with the same noise would reveal the difference of their data; a moved file continues."""
    mechanism, path, copied = mechanisms()[name], tmp_path / "log.db", tmp_path / "copy.db"
    with Session(mechanism, path) as session:
        session.push_batch(ROWS[:5])
    shutil.copy(path, copied)
    window = mechanism.policy.window
    with Session(mechanism, copied) as session:
        released = session.push_batch(ROWS[5:30])
        silent = 0 if name == "laplace" else window - 1
        assert released.status.tolist() == [Status.SILENT] * silent + [Status.FRESH] * (25 - silent)
        kinds = [row.kind for row in SQLiteLog(copied).rows()]
        assert kinds.count(RESTARTED) == int(name != "laplace")
        assert verify(SQLiteLog(copied).rows()).ok
    path.rename(tmp_path / "moved.db")
    with Session(mechanism, tmp_path / "moved.db") as session:
        assert set(session.push_batch(ROWS[5:30]).status.tolist()) == {Status.FRESH}


def test_an_older_copy_is_noticed_by_its_head(tmp_path: Path) -> None:
    """No transaction can see it; whoever keeps a head can."""
    mechanism, path, old = mechanisms()["laplace"], tmp_path / "log.db", tmp_path / "old.db"
    with Session(mechanism, path) as session:
        session.push(ROWS[0])
    shutil.copy(path, old)
    with Session(mechanism, path) as session:
        session.push(ROWS[1])
        head = session.head
    Session(mechanism, path, head=head).close()
    with pytest.raises(LogMismatch, match="older copy"):
        Session(mechanism, old, head=head)


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    """A log belongs to its queries, their budget, and real noise."""
    path = tmp_path / "log.db"
    Session(mechanisms()["laplace"], path).close()
    with pytest.raises(LogMismatch):
        Session(Uniform(tg.WEvent(epsilon="3", w=W), columns=2, noise="laplace"), path)
    with install(FixedEntropy("x")), pytest.raises(LogMismatch):
        Session(mechanisms()["laplace"], path)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE something (one INTEGER)")
    with pytest.raises(LogMismatch, match="no log"):
        Session(mechanisms()["laplace"], other)


def test_a_finished_stream_takes_nothing_more(new_log: Callable[[], Log]) -> None:
    """Nor does a session that opens it."""
    session = Session(mechanisms()["laplace"], new_log())
    session.push(ROWS[0])
    session.finish()
    for ended in (session, Session(mechanisms()["laplace"], new_log())):
        with pytest.raises(SessionClosed, match="finished"):
            ended.push(ROWS[1])
    assert verify(new_log().rows()).ok


def test_several_queries_are_one_commit(new_log: Callable[[], Log]) -> None:
    """Each has its account; a failure of one releases nothing of the other."""
    named = {"visits": mechanisms()["deciding"], "spend": mechanisms()["cube"]}
    session = Session(named, new_log())
    released = session.push({"visits": ROWS[0], "spend": ROWS[1]})
    assert set(released) == {"visits", "spend"}
    session.push_batch({"visits": ROWS[:9], "spend": ROWS[:9]})
    with pytest.raises(InvalidInput):
        session.push({"visits": ROWS[0]})
    assert Session(named, new_log()).step == 10
    assert verify(new_log().rows()).ok


def test_records_have_a_public_size(mechanism: Any) -> None:
    """The size of a commit depends on shapes alone, never on values or noise."""
    sizes = []
    for rows in (ROWS, ROWS * 0, ROWS * 10**12):
        log = MemoryLog()
        session = Session(mechanism, log)
        for row in rows[:20]:
            session.push(row)
        session.push_batch(rows[20:])
        loaded = log.load()
        assert loaded is not None
        sizes.append(
            [len(loaded.secret), *((len(row.charges), len(row.releases or b"")) for row in log.rows())]
        )
    assert sizes[0] == sizes[1] == sizes[2]


def test_opening_reads_one_window(tmp_path: Path) -> None:
    """However long the log is."""
    mechanism, path = mechanisms()["laplace"], tmp_path / "log.db"
    read = []

    class Counting(SQLiteLog):
        def rows_since(self, step: int) -> Any:
            for row in super().rows_since(step):
                read.append(row.number)
                yield row

    session = Session(mechanism, path)
    for row in ROWS:
        session.push(row)
    Session(mechanism, Counting(path))
    assert len(read) <= W


@pytest.mark.parametrize("name", list(mechanisms()))
def test_a_long_pause_is_no_failure(name: str) -> None:
    """Steps that are passed over are public: noise that was shared before them is charged anew, not refused."""
    log = MemoryLog()
    session = Session(mechanisms()[name], log)
    session.push_batch(ROWS[:2])
    for step in (100, 101, 113, 500, 501):
        session.push(ROWS[2], step=step)
    assert session.step == 501
    assert verify(log.rows()).ok


def test_what_is_returned_is_not_shared_with_the_state() -> None:
    """Whoever changes a release changes nothing that is to come."""

    @dataclass(frozen=True)
    class Sharing(Uniform):
        def begin(self, first: int) -> Any:
            return (np.zeros((1, 1)),)

        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            output = super().advance(super().begin(1), rows, first, noise)
            return output._replace(values=state[0])

    session = Session(Sharing(tg.WEvent(epsilon="1", w=3), noise="laplace"))
    session.push(1).values[:] = 7
    assert session.push(1).values.tolist() == [[0.0]]


def test_further_arrays_of_one_query_are_not_those_of_another() -> None:
    """Releases are read again query by query."""

    @dataclass(frozen=True)
    class Telling(Uniform):
        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            return super().advance(state, rows, first, noise)._replace(more=(np.arange(5),))

    policy = tg.WEvent(epsilon="1", w=3)
    session = Session({"a": Telling(policy), "b": Telling(policy)})
    seen = session.push({"a": [1], "b": [2]})
    (stored,) = session.releases()
    for name in seen:
        assert np.array_equal(seen[name].values, stored[name].values)


def test_a_position_is_kept_as_it_was_given(new_log: Callable[[], Log]) -> None:
    """Byte for byte, and it moves with the commit alone."""
    session = Session(mechanisms()["laplace"], new_log())
    session.push(ROWS[0], position=b"\0at\0")
    assert session.position == b"\0at\0"
    loaded = new_log().load()
    again = Session(mechanisms()["laplace"], new_log())
    assert again.position == b"\0at\0"
    again.push(ROWS[1])
    last = new_log().load()
    assert loaded is not None
    assert last is not None
    assert len(loaded.secret) == len(last.secret)
    with pytest.raises(Fenced):
        session.push(ROWS[1], position=b"elsewhere")
    assert session.position == b"\0at\0"
