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
from typing import Any, ClassVar

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.account import Account
from tidegate.core.charges import Charges, Span
from tidegate.core.commit import AMENDED, HALTED, PUSHED, RESTARTED, Commit, Written
from tidegate.core.errors import AccountRefused, Fenced, Halted, LogMismatch, SessionClosed
from tidegate.core.log import Log, MemoryLog
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import Draws
from tidegate.core.session import Session, charges_of, plan_amendment
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.pipeline.window_spending import window_units
from tidegate.releases import Status

W = 4
ROWS = np.array([[(7 * step) % 23, 3 * step] for step in range(1, 41)])


def mechanisms() -> dict[str, Any]:
    """Representative mechanisms: own noise, the cube, the semiorder, and one that decides on the data."""
    policy = tg.WEvent(epsilon="2", window=W)
    return {
        "laplace": Uniform(policy, columns=2, noise="laplace"),
        "semiorder": Uniform(policy, columns=2, noise="semiorder"),
        "cube": Uniform(tg.WEvent(epsilon="2", window=12), columns=2, noise="cube"),
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
    return [value for row in rows for value in session.push(row).values.tolist()]


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
    seen = [session.push_batch(ROWS[:7]), session.push_batch(ROWS[7:8])]
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
    log._commits[0].content = Written(_opening(plain), b"")
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

    session = Session(Signalling(tg.WEvent(epsilon="1", window=3)))

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
    Path(f"{path}-last").rename(tmp_path / "moved.db-last")
    with Session(mechanism, tmp_path / "moved.db") as session:
        assert set(session.push_batch(ROWS[5:30]).status.tolist()) == {Status.FRESH}


@pytest.mark.parametrize("name", ["uniform", "two queries"])
def test_a_backup_without_its_secret_begins_anew(tmp_path: Path, name: str) -> None:
    """Silent while windows hold steps of before; its position is lost, its account is not."""
    policy = tg.WEvent(epsilon="1", window=4)
    queries: Any = Uniform(policy)
    shares: Any = None
    if name == "two queries":
        queries, shares = {"a": Uniform(policy), "b": Uniform(policy)}, {"a": "1/2", "b": "1/2"}

    def values(count: int) -> Any:
        return {each: [[1]] * count for each in queries} if shares else [[1]] * count

    with Session(queries, tmp_path / "log", shares=shares) as session:
        session.push_batch(values(5), position=b"secret place")
        if shares:
            session.push_batch({"a": [[1]] * 2})  # one query is ahead
    with sqlite3.connect(tmp_path / "log") as database:
        database.execute("UPDATE now SET secret = NULL")
    database.close()
    with Session(queries, tmp_path / "log", shares=shares) as session:
        assert session.position == b""
        assert session.steps == ({"a": 7, "b": 5} if shares else {"": 5})
        found = session.push_batch(values(5))
        for each in found.values() if shares else [found]:
            assert each.status.tolist() == [Status.SILENT] * 3 + [Status.FRESH] * 2
    log = SQLiteLog(tmp_path / "log")
    assert verify(log.rows()).ok
    log.close()


def test_at_user_level_a_backup_without_its_secret_is_for_good(tmp_path: Path) -> None:
    """No budget returns, so nothing begins anew."""
    mechanism = Uniform(tg.User(epsilon="1", horizon=9))
    with Session(mechanism, tmp_path / "log") as session:
        session.push([1])
    with sqlite3.connect(tmp_path / "log") as database:
        database.execute("UPDATE now SET secret = NULL")
    database.close()
    with Session(mechanism, tmp_path / "log") as session, pytest.raises(SessionClosed, match="copy"):
        session.push([1])


def test_what_is_said_about_a_query_is_compared(tmp_path: Path) -> None:
    """As its mechanism is; an amendment lets it begin again."""
    mechanism = Uniform(tg.WEvent(epsilon="1", window=4))
    with Session(mechanism, tmp_path / "log", about={"": {"column": "place"}}) as session:
        session.push([1])
    with pytest.raises(LogMismatch):
        Session(mechanism, tmp_path / "log", about={"": {"column": "street"}})
    with Session(mechanism, tmp_path / "log", about={"": {"column": "street"}}, amend=True) as session:
        assert session.scopes[""].first == 5


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
        Session(Uniform(tg.WEvent(epsilon="3", window=W), columns=2, noise="laplace"), path)
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


HALVES = {"visits": "1/2", "spend": "1/2"}


def test_several_queries_are_one_commit(new_log: Callable[[], Log]) -> None:
    """Each has its account, and runs with its share of the budget."""
    policy = tg.WEvent(epsilon="2", window=12)
    named = {"visits": BudgetAbsorption(policy, columns=2), "spend": mechanisms()["cube"]}
    session = Session(named, new_log(), shares=HALVES)
    released = session.push({"visits": ROWS[0], "spend": ROWS[1]})
    assert set(released) == {"visits", "spend"}
    assert {query.mechanism.policy.epsilon for query in session._queries} == {1}
    session.push_batch({"visits": ROWS[:9], "spend": ROWS[:9]})
    for wrong in ({}, {"visits": ROWS[0], "other": ROWS[0]}, ROWS[0]):
        with pytest.raises(InvalidInput):
            session.push(wrong)
    assert Session(named, new_log(), shares=HALVES).step == 10
    assert verify(new_log().rows()).ok


def test_shares_are_at_most_one_budget() -> None:
    """Two full budgets are no budget; thirds are exact."""
    policy = tg.WEvent(epsilon="1", window=3)
    three = dict.fromkeys("abc", Uniform(policy))
    with pytest.raises(InvalidParameter, match=r'write shares=\{"a": "1/3", "b": "1/3", "c": "1/3"\}'):
        Session(three)
    wrong_shares: list[dict[str, Any]] = [
        {"a": "1/2", "b": "1/2", "c": "1/1000000"},
        {"a": 1},
        dict.fromkeys("abcd", "1/4"),
        {"a": "1/2", "b": "1/2", "c": 0},
        {"a": "1", "b": "1", "c": "-1"},
    ]
    for wrong in wrong_shares:
        with pytest.raises(InvalidParameter, match="share"):
            Session(three, shares=wrong)
    Session(three, shares=dict.fromkeys("abc", "1/3")).push(dict.fromkeys("abc", 5))
    for other in (
        tg.WEvent(epsilon="2", window=3),
        tg.WEvent(epsilon="1", window=4),
        tg.WEvent(rho="1", window=3),
        tg.Event(epsilon="1"),
    ):
        with pytest.raises(InvalidParameter, match="one policy"):
            Session({"a": Uniform(policy), "b": Uniform(other)}, shares={"a": "1/2", "b": "1/2"})


def test_queries_move_at_their_own_pace(new_log: Callable[[], Log]) -> None:
    """A second edition is released later, in the same log and in the same commits."""
    policy = tg.WEvent(epsilon="2", window=W)
    editions = {"first": Uniform(policy, columns=2), "second": Uniform(policy, columns=2, noise="laplace")}
    shares = {"first": "3/4", "second": "1/4"}
    session = Session(editions, new_log(), shares=shares)
    session.push_batch({"first": ROWS[:3]})
    for step in range(4, 9):
        session = Session(editions, new_log(), shares=shares)
        released = session.push(
            {"first": ROWS[step], "second": ROWS[step - 3]}, step={"first": step, "second": step - 3}
        )
        assert (released["first"].step, released["second"].step) == (step, step - 3)
    assert (session.steps, session.step) == ({"first": 8, "second": 5}, 8)
    late = session.push_batch({"second": ROWS[5:7]})["second"]
    assert late.steps.tolist() == [6, 7]
    with pytest.raises(AccountRefused, match="released already"):
        session.push({"first": ROWS[0], "second": ROWS[0]}, step=8)
    with pytest.raises(InvalidInput, match="without values"):
        session.push({"first": ROWS[0]}, step={"second": 9})
    session.push({"first": ROWS[0], "second": ROWS[0]}, step=9)
    seen = [
        (name, int(step)) for each in session.releases() for name, part in each.items() for step in part.steps
    ]
    assert sorted(seen) == [("first", step) for step in range(1, 10)] + [
        ("second", step) for step in (1, 2, 3, 4, 5, 6, 7, 9)
    ]
    assert verify(new_log().rows()).ok


# amendments ----------------------------------------------------------------------------------------------------------


def uniform(epsilon: str = "2", **options: Any) -> Uniform:
    """A query with noise of its own."""
    return Uniform(tg.WEvent(epsilon=epsilon, window=W), noise="laplace", **options)


def statuses(session: Session, name: str, count: int) -> str:
    """s for silent, f for fresh."""
    found = session.push_batch({name: np.arange(count)})[name].status.tolist()
    return "".join("s" if each == Status.SILENT else "f" for each in found)


def test_a_new_query_waits_for_the_share_of_an_ended_one(new_log: Callable[[], Log]) -> None:
    """And an unchanged one beside it notices nothing."""
    before, after = {"a": uniform(), "b": uniform()}, {"a": uniform(), "c": uniform()}
    ab, ac = {"a": "1/2", "b": "1/2"}, {"a": "1/2", "c": "1/2"}
    Session(before, new_log(), shares=ab).push_batch({"a": np.arange(6), "b": np.arange(5)})
    with pytest.raises(LogMismatch, match="amend"):
        Session(after, new_log(), shares=ac)
    planned = plan_amendment(after, new_log(), shares=ac)
    assert planned == (("a",), {"c": 5 + W}, ("b",))
    session = Session(after, new_log(), shares=ac, amend=True)
    assert session.steps == {"a": 6, "c": 6}
    assert statuses(session, "a", 4) == "ffff"
    assert statuses(session, "c", 4) == "ssff"  # b has read step 5, and its last window ends at step 8
    with pytest.raises(LogMismatch):
        Session(before, new_log(), shares=ab)
    session = Session(after, new_log(), shares=ac, amend=True)  # nothing changes: nothing is written
    assert [row.kind for row in new_log().rows()].count(AMENDED) == 1
    assert statuses(session, "c", 2) == "ff"
    assert [set(each) for each in session.releases()] == [{"a"}, {"a"}, {"c"}, {"c"}]
    assert verify(new_log().rows()).ok


def test_a_cut_silences_every_query(new_log: Callable[[], Log]) -> None:
    """Windows hold the larger budget already, for w − 1 steps."""
    halves = {"a": "1/2", "b": "1/2"}
    Session({"a": uniform(), "b": uniform()}, new_log(), shares=halves).push_batch(
        {"a": np.arange(6), "b": np.arange(6)}
    )
    less = {"a": uniform("1"), "b": uniform("1")}
    session = Session(less, new_log(), shares=halves, amend=True)
    assert statuses(session, "a", W + 1) == "sss" + "ff"
    assert statuses(session, "b", W + 1) == "sss" + "ff"
    assert verify(new_log().rows()).ok


def test_a_cut_beside_an_amount_that_stays() -> None:
    """The same ε for a query, of half the budget: it begins again, because windows still hold what the other had."""
    log = MemoryLog()
    Session({"a": uniform(), "b": uniform()}, log, shares={"a": "1/2", "b": "1/2"}).push_batch(
        {"a": np.arange(6), "b": np.arange(4)}
    )
    session = Session({"a": uniform("1")}, log, amend=True)
    assert statuses(session, "a", W) == "sssf"
    assert verify(log.rows()).ok


def test_a_small_query_is_not_touched_by_a_cut() -> None:
    """What windows hold fits the smaller budget as well."""
    log = MemoryLog()
    Session({"a": uniform()}, log, shares={"a": "1/4"}).push_batch({"a": np.arange(6)})
    session = Session({"a": uniform("1")}, log, shares={"a": "1/2"}, amend=True)
    assert statuses(session, "a", W) == "ffff"
    assert verify(log.rows()).ok


def test_free_budget_is_free_at_once_and_a_raise_is_not() -> None:
    """A query that fits beside the others begins at once; a larger budget counts when no window has a step of before."""
    log = MemoryLog()
    Session({"a": uniform()}, log, shares={"a": "1/2"}).push_batch({"a": np.arange(6)})
    session = Session({"a": uniform(), "b": uniform()}, log, shares={"a": "1/2", "b": "1/2"}, amend=True)
    assert statuses(session, "b", 2) == "ff"
    three = {"a": uniform("4"), "b": uniform("4"), "c": uniform("4")}
    session = Session(three, log, shares={"a": "1/4", "b": "1/4", "c": "1/2"}, amend=True)
    assert statuses(session, "a", 2) == "ff"
    assert statuses(session, "b", 2) == "ff"
    assert statuses(session, "c", W) == "sssf"
    assert verify(log.rows()).ok


def test_back_and_forth() -> None:
    """A query that ended while it was silent has read nothing; one that begins again inherits nothing."""
    log = MemoryLog()
    Session({"a": uniform()}, log).push_batch({"a": np.arange(6)})
    for _ in range(3):
        Session({"b": uniform()}, log, amend=True)
        session = Session({"a": uniform()}, log, amend=True)
    assert statuses(session, "a", W) == "sssf"
    assert verify(log.rows()).ok


def test_at_user_level_a_budget_never_returns() -> None:
    """A new query needs a share that nobody has had."""
    policy, log = tg.User(epsilon="1", horizon=50), MemoryLog()
    one = Uniform(policy)
    Session({"a": one}, log, shares={"a": "1/2"}).push_batch({"a": np.arange(6)})
    with pytest.raises(LogMismatch, match="never returns"):
        Session({"b": one}, log, amend=True)
    session = Session({"b": one}, log, shares={"b": "1/2"}, amend=True)
    assert statuses(session, "b", 2) == "ff"
    with pytest.raises(LogMismatch, match="never returns"):
        Session({"c": one}, log, shares={"c": "1/100"}, amend=True)
    assert verify(log.rows()).ok


def test_amendments_keep_what_is_protected() -> None:
    """The window, the kind of budget and the entropy stay."""
    log = MemoryLog()
    Session(uniform(), log).push(1)
    for other in (
        tg.WEvent(epsilon="2", window=W + 1),
        tg.WEvent(rho="2", window=W),
        tg.WEvent(epsilon="2", window=W, adjacency="replace"),
    ):
        with pytest.raises(LogMismatch, match="begin another log"):
            Session(Uniform(other, noise="laplace" if other.rho is None else "auto"), log, amend=True)
    with install(FixedEntropy("x")), pytest.raises(LogMismatch, match="entropy"):
        Session(uniform("1"), log, amend=True)


def test_amendments_of_copies_halted_and_finished_logs(tmp_path: Path) -> None:
    """A copy is opened first; a halted one continues its silence; a finished one has ended."""
    path, copied = tmp_path / "log.db", tmp_path / "copy.db"
    with Session(mechanisms()["semiorder"], path) as session:
        session.push(ROWS[0])
    shutil.copy(path, copied)
    with pytest.raises(LogMismatch, match="copy"):
        Session(mechanisms()["laplace"], copied, amend=True)
    Session(mechanisms()["semiorder"], copied).close()
    Session(mechanisms()["laplace"], copied, amend=True).finish()
    with pytest.raises(SessionClosed, match="finished"):
        Session(mechanisms()["semiorder"], copied, amend=True)
    log = MemoryLog()
    session = Session({"a": hooked(), "b": hooked()}, log, shares={"a": "1/2", "b": "1/2"})
    session.push_batch({"a": ROWS[:9], "b": ROWS[:5]})
    with pytest.raises(Halted):
        session.event("failure")
    session = Session({"a": hooked(), "c": hooked()}, log, shares={"a": "1/2", "c": "1/2"}, amend=True)
    assert session.steps == {"a": 10, "c": 10}
    assert session.push_batch({"a": ROWS[:W]})["a"].status.tolist() == [Status.SILENT] * (W - 1) + [
        Status.FRESH
    ]
    assert (
        session.push_batch({"c": ROWS[:W]})["c"].status.tolist() == [Status.FRESH] * W
    )  # b has read no step after 6
    assert verify(log.rows()).ok


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
    """However long the log is; and the commit before it, because an event may precede its first step."""
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
    assert len(read) <= W + 1


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

    session = Session(Sharing(tg.WEvent(epsilon="1", window=3), noise="laplace"))
    session.push(1).values[:] = 7
    assert session.push(1).values.tolist() == [0.0]


def test_further_arrays_of_one_query_are_not_those_of_another() -> None:
    """Releases are read again query by query."""

    @dataclass(frozen=True)
    class Telling(Uniform):
        more: ClassVar[tuple[str, ...]] = ("counted",)

        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            return super().advance(state, rows, first, noise)._replace(more=(np.arange(5),))

    policy = tg.WEvent(epsilon="1", window=3)
    session = Session({"a": Telling(policy), "b": Telling(policy)}, shares={"a": "1/2", "b": "1/2"})
    seen = session.push({"a": [1], "b": [2]})
    (stored,) = session.releases()
    for name in seen:
        assert np.array_equal(seen[name].values, stored[name].values[0])


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


@dataclass(frozen=True)
class Hooked(Uniform):
    """Says something at the end, and is told of events that cost a unit."""

    revised: ClassVar[tuple[str, ...]] = ("steps",)
    cost: int = 1
    fails: bool = False

    @property
    def units(self) -> int:
        """Some more, for events."""
        return 2 * W

    def describe(self) -> dict[str, Any]:
        """All of it."""
        return {**super().describe(), "cost": self.cost}

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Nothing is revised before the end."""
        return super().advance(state, rows, first, noise)._replace(revised=(np.zeros(0, dtype=np.int64),))

    def attach(self, releases: Any, more: Any, revised: Any) -> Any:
        """As it is."""
        releases.names = tuple(map(str, revised[0].tolist()))
        return releases

    def finish(self, state: Any, last: int, noise: Draws) -> Output:
        """The last step."""
        if self.fails:
            raise RuntimeError("a secret")
        return empty_output(0, self.outputs)._replace(revised=(np.array([last]),))

    def hears(self, name: str) -> bool:
        """Of all events but one."""
        return name != "rain"

    def event(self, state: Any, name: str, step: int, noise: Draws) -> Charges | None:
        """Cost something."""
        if name == "failure":
            raise RuntimeError("a secret")
        return Charges(step, np.array([self.cost]))


def hooked(**options: Any) -> Hooked:
    """With noise of its own, so that a step costs one unit of eight."""
    return Hooked(tg.WEvent(epsilon="2", window=W), columns=2, noise="laplace", **options)


def test_the_end_releases_what_a_mechanism_still_has_to_say(new_log: Callable[[], Log]) -> None:
    """In the last commit, and readable from the log."""
    session = Session(hooked(), new_log())
    session.push_batch(ROWS[:3])
    said = session.finish()
    assert (len(said), said.names) == (0, ("3",))
    *_, stored = Session(hooked(), new_log()).releases()
    assert (len(stored), stored.names) == (0, ("3",))
    assert verify(new_log().rows()).ok


def test_an_end_that_fails_is_not_tried_again() -> None:
    """The stream has ended, and nothing of the failure leaves."""
    log = MemoryLog()
    session = Session(hooked(fails=True), log)
    session.push(ROWS[0])
    with pytest.raises(Halted) as caught:
        session.finish()
    assert caught.value.__context__ is None
    for ended in (session, Session(hooked(fails=True), log)):
        with pytest.raises(SessionClosed, match="finished"):
            ended.finish()
    assert verify(log.rows()).ok


def test_an_event_is_charged_to_the_step_in_progress(new_log: Callable[[], Log]) -> None:
    """Beside what the step costs, whether it is pushed or passed over, and in a log that is opened again."""
    session = Session(hooked(cost=5), new_log())
    session.push(ROWS[0])
    session.event("intrusion")
    assert session.step == 1
    session = Session(hooked(cost=5), new_log())
    session.push(ROWS[1])  # 1 + 5 + 1 of 8
    with pytest.raises(Halted):  # the event would be the second of five units in one window
        session.event("intrusion")
    assert verify(new_log().rows()).ok
    session = Session(hooked(cost=5), new_log())
    assert session.step == 3
    silent = session.push_batch(ROWS[3 : 3 + W])
    assert silent.status.tolist() == [Status.SILENT] * (W - 1) + [Status.FRESH]
    assert verify(new_log().rows()).ok


def test_events_that_fail_are_charged(new_log: Callable[[], Log]) -> None:
    """As a step that fails."""
    session = Session(hooked(), new_log())
    with pytest.raises(Halted):
        session.event("failure")
    assert Session(hooked(), new_log()).step == 1
    assert verify(new_log().rows()).ok


def test_a_halt_that_cannot_be_charged_ends_the_stream(
    new_log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same steps are never computed again with other noise, whatever fails inside."""

    def fails(*_: Any) -> Any:
        raise AccountRefused("a secret")

    mechanism = failing(uniform(columns=2))
    session = Session(mechanism, new_log())
    session.push_batch(ROWS[:3])
    monkeypatch.setattr(Account, "fill", fails)
    with pytest.raises(Halted, match="the stream has ended") as caught:
        session.push_batch(ROWS[3:7])
    monkeypatch.undo()
    assert caught.value.__context__ is None
    for ended in (session, Session(mechanism, new_log())):
        with pytest.raises(SessionClosed, match="finished"):
            ended.push(ROWS[3])
    assert verify(new_log().rows()).ok


def test_an_event_behind_the_horizon_is_refused_in_public() -> None:
    """Before anything is drawn: the session stays open."""
    session = Session(Hooked(tg.User(epsilon="2", horizon=2), columns=2, noise="laplace"))
    session.push_batch(ROWS[:2])
    with pytest.raises(AccountRefused, match="step 3"):
        session.event("failure")
    assert not session.closed


@pytest.mark.parametrize("name", ["rain", "\udc80", 7, None])
def test_an_event_that_nobody_knows_is_refused_in_public(name: Any) -> None:
    """Nothing is charged and nothing is silent: the session stays open. Queries that do not know it are left alone."""
    log = MemoryLog()
    session = Session(
        {"a": hooked(), "b": BudgetAbsorption(hooked().policy)}, log, shares={"a": "1/2", "b": "1/2"}
    )
    session.push({"a": ROWS[0], "b": [3]})
    before = session.head
    with pytest.raises(InvalidInput):
        session.event(name)
    assert not session.closed
    assert session.head == before
    session.event("intrusion")
    assert session.push({"a": ROWS[1], "b": [3]})["b"].status != Status.SILENT
    assert verify(log.rows()).ok


@pytest.mark.parametrize("form", [None, "single"])
def test_an_intrusion_that_was_not_promised_halts_nothing(form: str | None) -> None:
    """Of a mechanism that is not pan-private, or allows for one that nobody notices."""
    session = Session(BudgetAbsorption(tg.WEvent(epsilon="2", window=W), pan_private=form))
    with pytest.raises(InvalidInput, match="no query"):
        session.event("intrusion")
    assert not session.closed


def test_an_announced_intrusion_concerns_those_that_announce_them() -> None:
    """And leaves others of the session as they are."""
    policy, log = tg.WEvent(epsilon="2", window=W), MemoryLog()
    forms = {"announced": "announced", "single": "single", "none": None}
    queries = {name: BudgetAbsorption(policy, pan_private=form) for name, form in forms.items()}
    session = Session(queries, log, shares=dict.fromkeys(queries, "1/3"))
    session.push({name: [3] for name in queries})
    session.event("intrusion")
    found = session.push({name: [3] for name in queries})
    assert all(each.status != Status.SILENT for each in found.values())
    assert verify(log.rows()).ok


def test_an_event_counts_where_its_step_is_passed_over() -> None:
    """And at user level for ever."""
    log = MemoryLog()
    session = Session(hooked(cost=7), log)
    session.event("intrusion")
    session.push(ROWS[0], step=3)
    assert Session(hooked(cost=7), log)._queries[0].account.recent().tolist() == [0, 7, 0, 1]
    with pytest.raises(AccountRefused):
        session.push(ROWS[0])
    session.push(ROWS[0], step=5)
    assert verify(log.rows()).ok


@pytest.mark.parametrize("name", list(mechanisms()))
@pytest.mark.parametrize("reopened", [False, True])
def test_what_the_last_window_has_spent_is_what_the_log_says(name: str, reopened: bool) -> None:
    """After every step, and after steps that were passed over: also noise whose last step is the window's first."""
    mechanism, log = mechanisms()[name], MemoryLog()
    session = Session(mechanism, log)
    for at in range(5 * W):
        session = Session(mechanism, log) if reopened else session
        session.push(ROWS[at % len(ROWS)], step=session.step + (3 if at % 11 == 10 else 1))
        charges = [each for row in log.rows() if row.kind == PUSHED for _, each in charges_of(row)]
        spans = {row[:2]: Span(*row) for each in charges for row in map(tuple, each.spans.tolist()) if row[4]}
        (spent,) = window_units(
            charges, spans.values(), np.array([session.step]), mechanism.policy.window
        ).tolist()
        again = Session(mechanism, log) if reopened else session
        assert again.spent == {"": spent}, session.step
        session = again
    assert verify(log.rows()).ok


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_queries_in_another_order_keep_their_own_scopes(tmp_path: Path, kind: str) -> None:
    """The order of a mapping is no part of a configuration: each query resumes its own account and state."""
    policy = tg.WEvent(epsilon="1", window=4)
    shares = {"a": "1/4", "b": "3/4"}
    queries = {"b": Uniform(policy, columns=1, noise="laplace"), "a": BudgetAbsorption(policy)}
    turned = {name: queries[name] for name in shares}
    log = MemoryLog() if kind == "memory" else SQLiteLog(tmp_path / "log.db")
    session = Session(queries, log, shares=shares)
    session.push_batch({"a": [[3], [9], [4]], "b": [[1]]})
    reopened = Session(turned, log, shares=shares)
    assert reopened.scopes == session.scopes
    assert reopened.steps == session.steps == {"a": 3, "b": 1}
    assert reopened.spent == session.spent
    reopened.push({"a": [5], "b": [2]})
    again = Session(queries, log, shares=shares)
    assert again.spent == reopened.spent
    assert again.steps == {"a": 4, "b": 2}
    assert verify(log.rows()).ok
