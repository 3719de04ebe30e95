"""Histories of sessions against the model, and defects that were planted in the core: the model finds every one."""

from __future__ import annotations

import inspect
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.model import (
    BACK,
    BEGIN,
    BEGIN_TWO,
    CODES,
    COMMIT_FAULTS,
    LINE_FAULTS,
    LINES,
    MECHANISMS,
    NO_SPAN,
    SHORT,
    USE,
    Action,
    Broken,
    Do,
    Model,
    Push,
    Tiny,
    any_history,
    code,
    lines_of,
)

from tidegate.core import arrays, commit, log, rows, scope, session, sqlite_log, turns, verify
from tidegate.core.account import Account
from tidegate.core.commit import Row, head_of
from tidegate.core.errors import Fenced, LogDamaged, LogMismatch, TidegateError
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session

LENGTH = 12  # of a history


def run(seeds: range, folder: Path | None, length: int = LENGTH) -> None:
    """Histories by number."""
    for seed in seeds:
        name = list(MECHANISMS)[seed % len(MECHANISMS)]
        own = None
        if folder is not None:
            own = folder / str(seed)
            own.mkdir()
        Model(MECHANISMS[name], own).run(*any_history(seed, length)).end()


def interrupted(fault: str, folder: Path | None, lines: range | None = None) -> None:
    """One push, with a fault at one of its lines, and how it goes on; for every line."""
    three = MECHANISMS["three"]
    before: list[Action] = [Push((code(1, BEGIN),)), Push((code(),))]
    last = Push((code(0, USE),))
    after: list[Action] = [
        Push((code(),)),
        Do("open"),
        Push((code(0, USE),)),
        Push((code(), code(0, BEGIN_TWO))),
        Do("read"),
    ]
    for line in lines or range(1, lines_of(three, *before, last) + 1):
        own = None
        if folder is not None:
            own = folder / f"{fault} {line}"
            own.mkdir()
        Model(three, own).run(*before, last._replace(fault=fault, line=line), *after).end()


# histories -----------------------------------------------------------------------------------------------------------


def test_histories_in_memory() -> None:
    """Whatever happened, the promises hold."""
    run(range(200), None)


def test_histories_in_files(tmp_path: Path) -> None:
    """The same on disk, with copies."""
    run(range(10_000, 10_024), tmp_path)


@pytest.mark.slow
def test_many_histories(tmp_path: Path) -> None:
    """The campaign."""
    run(range(20_000, 24_000), None, 20)
    run(range(30_000, 30_400), tmp_path, 20)


PUSHES = st.builds(
    Push,
    st.lists(st.sampled_from(CODES), max_size=3).map(tuple),
    st.sampled_from([0, 0, 1, 2, 5]),
    st.sampled_from([0, 0, 1, 2]),
    st.booleans(),
    st.sampled_from(["", "", "", *LINE_FAULTS, *COMMIT_FAULTS]),
    st.integers(1, LINES),
)
OTHERS = st.builds(
    Do,
    st.sampled_from(
        [
            "open",
            "open",
            "drop",
            "close",
            "wrong",
            "read",
            "finish",
            "event 1",
            "event fail",
            "amend 0",
            "amend 1",
        ]
    ),
    st.just(""),
    st.just(0),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(MECHANISMS)), st.lists(st.one_of(PUSHES, PUSHES, OTHERS), max_size=10))
def test_histories_that_shrink(name: str, history: list[Action]) -> None:
    """The same actions, chosen by Hypothesis: a failure is reported as its shortest history."""
    Model(MECHANISMS[name]).run(*history).end()


@pytest.mark.parametrize("fault", LINE_FAULTS)
def test_a_fault_at_lines_of_a_push(fault: str) -> None:
    """A kill, an error, a handler that pushes, reads or closes, a rival; at every line in the campaign."""
    interrupted(fault, None, range(1, 480, 5 if fault == "kill" else 13))


@pytest.mark.parametrize("fault", ["kill", "peek", "alarm"])
def test_a_fault_at_lines_of_a_push_to_a_file(fault: str, tmp_path: Path) -> None:
    """The same on disk, at some of the lines; at every line in the campaign."""
    interrupted(fault, tmp_path, range(1, 400, 23))


@pytest.mark.slow
@pytest.mark.parametrize("fault", LINE_FAULTS)
def test_a_fault_at_every_line_of_a_push_to_a_file(fault: str, tmp_path: Path) -> None:
    """The campaign."""
    interrupted(fault, tmp_path)
    interrupted(fault, None)


def test_a_kill_at_every_line_of_a_halt() -> None:
    """The step was computed and failed; it is charged, or the kill came first and it is computed again."""
    three, failing = MECHANISMS["three"], Push((code(0, BEGIN), code(0, USE, SHORT)))
    for line in range(1, 480, 11):
        Model(three).run(
            Push((code(1, BEGIN),)),
            failing._replace(fault="kill", line=line),
            Do("open"),
            *[Push((code(),))] * 4,
        ).end()


def test_a_kill_at_lines_of_opening_a_copy(tmp_path: Path) -> None:
    """Noise to come is dropped, however often the first opening fails."""
    for line in range(1, 330, 15):
        folder = tmp_path / str(line)
        folder.mkdir()
        model = Model(MECHANISMS["two queries"], folder).run(Push((code(0, BEGIN),)), Push((code(),)))
        model._new_world(model.world.path)
        model.run(
            Do("open", "kill", line), Do("open"), Push((code(),) * 3), Push((code(0, BEGIN),)), Do("back")
        )
        model.run(Push((code(0, USE),)), Push((code(),))).end()


def test_the_model_does_what_it_says() -> None:
    """Histories come to every end that they are about."""
    done: Counter[str] = Counter()
    for seed in range(80):
        queries = MECHANISMS[sorted(MECHANISMS)[seed % 4]]
        done += Model(queries).run(*any_history(seed, LENGTH)).done
    ends = ("pushed", "Halted", "AccountRefused", "Fenced", "OSError", "Kill", "Alarm", "SessionClosed")
    for name in (*ends, "amended", "event ", "event Halted"):
        assert done[name] > 0, name


# forks ---------------------------------------------------------------------------------------------------------------


def forked() -> None:
    """A child neither pushes with its parent's session nor opens its copy of a log in memory."""
    log = MemoryLog()
    parent = Session(Tiny(), log)
    parent.push([code()])
    child = os.fork()
    if not child:
        seen = 0
        for attempt in (lambda: parent.push([code()]), lambda: Session(Tiny(), log).push([code()])):
            try:
                attempt()
                seen += 1
            except Fenced:
                continue
            except BaseException:
                os._exit(9)
        os._exit(seen)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    parent.push([code()])
    if status:
        raise Broken(f"a fork has released {status} steps that its parent releases as well")


def test_forks() -> None:
    """Two processes never share the noise to come of one log."""
    forked()


# tampering -----------------------------------------------------------------------------------------------------------


def tampered(kept: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Every row changed in every field, dropped, doubled and swapped."""
    for at, row in enumerate(kept):
        for name in Row._fields:
            value = getattr(row, name)
            if isinstance(value, bytes):
                for place in {0, len(value) // 2, len(value) - 1} if value else ():
                    changed = value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
                    yield f"{name} of {at}", [*kept[:at], row._replace(**{name: changed}), *kept[at + 1 :]]
                yield f"no {name} of {at}", [*kept[:at], row._replace(**{name: "x"}), *kept[at + 1 :]]
            elif isinstance(value, int):
                for other in (value + 1, value - 1, 2**70, "x"):
                    yield f"{name} of {at}", [*kept[:at], row._replace(**{name: other}), *kept[at + 1 :]]
        if at + 1 < len(kept):
            yield f"without {at}", kept[:at] + kept[at + 1 :]
            yield f"{at} swapped", [*kept[:at], kept[at + 1], row, *kept[at + 2 :]]
        yield f"{at} twice", [*kept[: at + 1], row, *kept[at + 1 :]]


def rehashed(kept: list[Row], at: int, **fields: Any) -> list[Row]:
    """A row that was changed, with all hashes computed again."""
    found, head = [], commit.NO_HEAD
    for number, row in enumerate(kept):
        row = row._replace(**fields) if number == at else row
        head = head_of(head, row[:4], row.charges, row.releases_digest, row.secret_digest)
        found.append(row._replace(head=head))
    return found


def a_log(path: Path | None = None) -> Any:
    """A push, a span, a halt, silent steps, and steps after them."""
    log: Any = MemoryLog() if path is None else sqlite_log.SQLiteLog(path)
    for told in (
        [[code(1)]],
        [[code(1, BEGIN)]],
        [[code()], [code(0, BEGIN, SHORT)]],
        [[code()]] * 4,
        [[code(1)]],
    ):
        owner = Session(Tiny(), log)
        try:
            owner.push_batch(told, position=b"here")
        except TidegateError:
            continue
    return log


def edited() -> None:
    """Whatever is edited is noticed, also where hashes were computed again but the account disagrees."""
    kept = list(a_log().rows())
    if [row.kind for row in kept] != [0, 1, 1, 2, 1, 1] or not verify.verify(kept).ok:
        raise Broken("a log that nobody has edited is not as it should be")
    for what, changed in tampered(kept):
        if verify.verify(changed).ok:
            raise Broken(f"not noticed: {what}")
    whole, free = arrays.decode(kept[3].charges), arrays.decode(kept[4].charges)
    nothing = arrays.encode([whole[0], whole[1] * 0, whole[2]])
    loud = arrays.encode([free[0], free[1] * 0 + 1, free[2]])
    for what, at, charges in (("a free halt", 3, nothing), ("no silence", 4, loud), ("odd", 4, b"")):
        if verify.verify(rehashed(kept, at, charges=charges)).ok:
            raise Broken(f"not noticed: {what}")


def test_edited_rows_are_noticed() -> None:
    """A second reading finds every one of them."""
    edited()


def test_truncated_files_are_noticed(tmp_path: Path) -> None:
    """The head stands beside the rows, so the last ones cannot be dropped alone; nor can the state be replaced."""
    edits = {
        "DELETE FROM log WHERE number = (SELECT max(number) FROM log)": "last commit",
        "DELETE FROM log": "last commit",
        "DELETE FROM now": "no head",
        "UPDATE now SET secret = zeroblob(length(secret))": "state",
        "UPDATE now SET head = zeroblob(32)": "last commit",
    }
    for number, (edit, why) in enumerate(edits.items()):
        path = tmp_path / f"{number}.db"
        kept = a_log(path)
        kept._writer.execute(edit)
        kept.close()
        with pytest.raises(LogDamaged, match=why):
            Session(Tiny(), path)


def test_bytes_of_a_file_are_noticed(tmp_path: Path) -> None:
    """A byte that is flipped anywhere is noticed, or is of no use to anybody."""
    path = tmp_path / "log.db"
    a_log(path).close()
    whole = path.read_bytes()
    expected = _reading(path)
    for place in range(100, len(whole), 397):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        assert _reading(path) in (expected, None), place
    path.write_bytes(whole)


def _reading(path: Path) -> Any:
    """All that a session goes by; None where the file is refused."""
    try:
        opened = sqlite_log.SQLiteLog(path)
    except (TidegateError, sqlite_log.sqlite3.Error):
        return None
    try:
        kept = list(opened.rows())
        found = verify.verify(kept)
        owner = Session(Tiny(), opened)
        return (
            (found.head, owner.position, owner.step, arrays.encode(arrays.flat(owner._queries[0].state)))
            if (found.ok and found.head == owner.head)
            else None
        )
    except (TidegateError, sqlite_log.sqlite3.Error):
        return None
    finally:
        opened.close()


# planted defects -----------------------------------------------------------------------------------------------------


def plant(patch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str) -> None:
    """Replace a piece of a function of the core."""
    found = inspect.getattr_static(owner, name)
    function = found.fget if isinstance(found, property) else inspect.unwrap(found)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{name} does not have {old!r} once"
    scope: dict[str, Any] = {}
    changed = compile(
        "from __future__ import annotations\n" + source.replace(old, new),
        function.__code__.co_filename,
        "exec",
    )
    exec(changed, vars(sys.modules[function.__module__]), scope)
    patch.setattr(owner, name, scope[name])


# where, what, and what was planted in its place
PLANTED: dict[str, tuple[Any, str, str, str]] = {
    "a release leaves before its commit": (
        Session, "_push", "self._append(commit)\n",
        "try:\n            self._append(commit)\n        except OSError:\n            pass\n",
    ),
    "a failure inside is retried at once": (
        Session, "_push", "if prepared is None:",
        "prepared = prepared or self._prepare_push(pushes, next_position)\n        if prepared is None:",
    ),
    "a failure inside is retried after opening": (
        Session, "_halt", "self._append(commit)", "raise SessionClosed(BUSY)",
    ),
    "the error of a mechanism leaves": (
        Session, "_prepare_push", "return None", "raise Halted('it failed')",
    ),
    "a charge is not applied": (
        Session, "_push", "push.query.account.apply(verdict)", "push.query.account.step = verdict.charges.last",
    ),
    "a halt is not written": (Session, "_halt", "self._append(commit)", "str(commit)"),
    "an interrupted session goes on": (Session, "_push", "self._closed = BUSY", "self._closed = ''"),
    "no compare, only swap": (
        MemoryLog, "append", "self._commits.setdefault(commit.number, commit) is not commit",
        "self._commits.__setitem__(commit.number, commit)",
    ),
    "no compare in a file": (sqlite_log.SQLiteLog, "append", "AND head = ?", "AND ? IS NOT NULL"),
    "a fork may push": (turns.Turns, "check_process", "self._process != os.getpid()", "False"),
    "a span counts at its first step only": (
        Account, "check_next", "span.last > step - window", "span.first > step - window",
    ),
    "a span counts at its first step of a batch only": (
        Account, "_allowed", "span.last + self.window", "span.first + self.window",
    ),
    "a span may reach back": (
        Account, "_with_spans", "elif not first <= span.first <= last:", "elif False:",
    ),
    "two spans of one step are one": (Account, "_with_spans", "live[key] = span", "live[span.law, span.first] = span"),
    "opening forgets spans": (session.Query, "load", "if row[UNITS]", "if False"),
    "opening forgets a step of the window": (
        Session, "_replay", "(query.account.window or 1) + 1", "(query.account.window or 1) + 3",
    ),
    "opening forgets what an endless window has spent": (
        Account, "restore", "self.total = after.total", "self.total = 0",
    ),
    "a halt charges nothing": (Account, "fill", "max(0, rest - total)", "0"),
    "a halt does not silence": (session.Query, "fall_silent", "self.step + self.account.window - 1", "0"),
    "silence is forgotten when a log is opened": (
        Session, "_resume", "query.silent_until = last.silent[scope.name]", "pass",
    ),
    "silent steps are computed": (session.Query, "_silent", "max(0, self.silent_until - first + 1)", "0"),
    "charges may be too short": (
        Session, "_prepare_push", "push.query.check_output(output, len(push.rows))", "pass",
    ),
    "a finished stream goes on": (
        Session, "finish",
        "self._closed = ENDED\n        self._attach_intervals", "self._closed = ''\n        self._attach_intervals",
    ),
    "copies keep noise to come": (
        sqlite_log.SQLiteLog, "_loaded", "Loaded(row, secret, self._here)", "Loaded(row, secret, True)",
    ),
    "the digest of a state has no salt": (commit, "secret_of", "fresh_bytes(SALT_BYTES)", "bytes(SALT_BYTES)"),
    "a position has its own length": (commit, "sealed", "bytes(_room(len(position)) - len(position))", "b''"),
    "a record is as long as its numbers": (
        arrays, "encode", "array.tobytes()", "array.tobytes().rstrip(b'\\0')",
    ),
    "words are drawn again": (rows.RowNoise, "refill", "position[0] = 0", "words[:] = 9 << 58; position[0] = 0"),
    "two draws share words": (rows, "draw_row", "", ""),
    "verify does not hash releases": (verify, "_check_chain", "or not kept", ""),
    "verify does not count silent steps": (verify.Reader, "_check_charges", "units[:hushed].any() or", ""),
    "verify does not compute halts": (verify.Reader, "_check_charges", "if kind == HALTED:", "if False:"),
    "amounts are not added up": (scope.Room, "_holds", "_sum(one.amount for one in inside)", "NOTHING"),
    "a query begins one step early": (session.Query, "begin", "scope.first - 1", "scope.first - 2"),
    "ended queries are forgotten": (scope, "amended", "(one.last or 0) > low - window", "False"),
    "windows forget the budget before a raise": (
        scope, "amended", "(*book.budgets, (clock + 1, budget))", "((1, budget),)",
    ),
    "the clock goes back when a query ends": (
        scope, "amended", 'window = description["window"]', 'window, clock = description["window"], max(steps.values())',
    ),
    "a cut is not looked at": (scope, "amended", "budgets is not book.budgets and", "False and"),
    "a changed query goes on as the old one": (
        Session, "_resume", "scope.number for scope in last.book.alive", "scope.number for scope in book.alive",
    ),
    "the description is not compared": (
        Session, "_open", "description != last.book.description and not amend", "False",
    ),
    "the first description is compared": (session, "_last_commit", "int(table[0, 0])", "0"),
    "the account of one query is that of another": (
        Session, "_replay", "by_scope[scope].account", "next(iter(by_scope.values())).account",
    ),
    "a query that was not pushed moves": (
        Session, "_state", "verdicts.get(query.name)", "next(iter(verdicts.values()), None)",
    ),
    "an event is free": (Session, "event", "query.account.apply_event(charged)", "pass"),
    "opening forgets an event": (Session, "_replay", "account.apply_event(int(units.sum()))", "pass"),
    "an event of a query that ends is forgotten": (
        session.Query, "state_to_store", "(event or self.has_event)", "False",
    ),
    "an event that fails is told again": (
        Session, "event", "if prepared is None:",
        "prepared = prepared or self._prepare_event(handling, name, encoded_name)\n        if prepared is None:",
    ),
    "an end that fails is computed again": (
        Session, "finish", "self._prepare_finish()", "self._prepare_finish() or self._prepare_finish()",
    ),
    "a halt forgets the queries that were not pushed": (
        Session, "_prepare_halt", "for query in self._queries:", "for query, _ in verdicts:",
    ),
    "verify does not compute amendments": (verify.Reader, "_read_book", "if book != expected:", "if False:"),
    "verify does not add up shares": (scope, "begun", "if not _fits(_sum(amounts.values()), budget):", "if False:"),
    "verify does not compare budgets": (verify.Reader, "_check_policies", "Fraction(policy[kind]) != amount", "False"),
}  # fmt: skip


def edited_books() -> None:
    """A description that was changed, with all hashes computed again, does not follow from the one before."""
    log = MemoryLog()
    for config in (MECHANISMS["two queries"][0], MECHANISMS["two queries"][1]):
        config.session(log, amend=True).push_batch({name: [[code()]] * 2 for name in config.queries})
    kept = list(log.rows())
    if [row.kind for row in kept] != [0, 1, 6, 1] or not verify.verify(kept).ok:
        raise Broken("a log that nobody has edited is not as it should be")

    def changed(at: int, *path: Any, value: Any) -> list[Row]:
        book = found = json.loads(kept[at].charges)
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value
        return rehashed(kept, at, charges=json.dumps(book).encode())

    edits = {
        "earlier": changed(2, "alive", 1, 4, value=1),
        "no ended scope": changed(2, "ended", value=[]),
        "another budget": changed(2, "budgets", 0, 1, value="9"),
        "a share": changed(0, "description", "queries", "a", "share", value="3/4"),
        "two shares": changed(0, "description", "queries", "b", "share", value="1"),
        "a budget": changed(0, "description", "queries", "a", "mechanism", "policy", "epsilon", value="1"),
        "nothing": changed(0, "description", "queries", value={}),
        "text": changed(0, "description", value="x"),
    }
    for what, edit in edits.items():
        if verify.verify(edit).ok:
            raise Broken(f"not noticed: {what}")
    if verify.verify(edits["a budget"][:1]).ok:
        raise Broken("not noticed: a mechanism with another budget than its share")
    # shares, scopes and the mechanisms' policies agree with each other, but not with the budget
    book = json.loads(kept[0].charges)
    for name, each in book["description"]["queries"].items():
        each["share"], each["mechanism"]["policy"]["epsilon"] = "1", "1"
        book["alive"]["ab".index(name)][2] = "1"
    if verify.verify(rehashed(kept[:1], 0, charges=json.dumps(book).encode())).ok:
        raise Broken("not noticed: two budgets")


def test_edited_descriptions_are_noticed() -> None:
    """Scopes, shares and budgets are computed again."""
    edited_books()


def two_queries() -> None:
    """Histories in which queries share a budget."""
    for seed in range(400):
        Model(MECHANISMS["two queries" if seed % 2 else "three"]).run(*any_history(seed, LENGTH)).end()


def one_waits() -> None:
    """The first of two queries fails, and the second, which was not pushed, begins anew with it."""
    Model(MECHANISMS["two queries"]).run(
        Push((code(), code(0, BEGIN))),
        Push((code(0, NO_SPAN, SHORT),), only=1),
        Do("open"),
        *[Push((code(0, USE),))] * 4,
    ).end()


def one_is_behind() -> None:
    """A query that was not pushed is where it was when the log is opened again."""
    Model(MECHANISMS["two queries"]).run(
        Push((code(),)), Push((code(),), only=1), Do("open"), Push((code(),), only=2), Do("read")
    ).end()
    log, (config, *_) = MemoryLog(), MECHANISMS["two queries"]
    config.session(log).push_batch({"a": [[code()]] * 2})
    if config.session(log).steps != {"a": 2, "b": 0}:
        raise Broken("a query that was not pushed has moved")


def long_span() -> None:
    """A span of four steps counts in the window that meets its last one."""
    told = code(0, BEGIN), code(0, USE), code(1, USE), code(1, USE), code(1)
    Model(MECHANISMS["three"]).run(*(Push((each,)) for each in told)).end()
    Model(MECHANISMS["three"]).run(Push(told[:1]), Push(told[1:])).end()


def there_and_back() -> None:
    """A query ends, another one that is still silent as well, and the first one is wanted again."""
    steps = [Push((code(),))] * 2
    Model(MECHANISMS["three"]).run(*steps, Do("amend 2"), Do("amend 0"), *steps, *steps).end()


def cut_beside_another() -> None:
    """The budget is cut to what one query has, while windows still hold what the other one had."""
    steps = [Push((code(),))] * 3
    Model(MECHANISMS["two queries"]).run(*steps, Do("amend 2"), *steps).end()


def behind() -> None:
    """The query that was farthest ends, and the budget is cut and raised before the other one has caught up."""
    ahead = Push((code(),) * 3, only=2)
    Model(MECHANISMS["two queries"]).run(
        ahead,
        ahead,
        Do("amend 2"),
        Do("amend 3"),
        *[Push((code(),))] * 3,
        Do("amend 0"),
        *[Push((code(),))] * 4,
    ).end()


def event_then_amended() -> None:
    """An event in the step in progress counts for a query that ends before the step is pushed."""
    for before in range(2):
        Model(MECHANISMS["three"]).run(
            *[Push((code(),))] * before, Do("event 1"), Do("open"), Do("amend 2"), *[Push((code(),))] * 5
        ).end()


def reaching_back() -> None:
    """Steps 1 and 2 have spent all of a window, and step 4 asks for a span from step 2 on."""
    Model(MECHANISMS["three"]).run(
        Push((code(3),)), Push((code(1),)), Push((code(0, NO_SPAN, BACK),), skip=1)
    ).end()


def copied(folder: Path) -> None:
    """A copy goes on, and so does the original."""
    Model(MECHANISMS["three"], folder).run(
        Push((code(0, BEGIN),)), Do("copy"), Push((code(0, USE),) * 3), Do("back"), Push((code(0, USE),))
    ).end()


# the part of the model that is run; for all others histories in memory
FOUND_BY: dict[str, Callable[[Path], None]] = {
    "no compare in a file": lambda folder: run(range(10_000, 10_024), folder),
    "an interrupted session goes on": lambda folder: interrupted("kill", None),
    "a span may reach back": lambda folder: reaching_back(),
    "a fork may push": lambda folder: forked(),
    "copies keep noise to come": copied,
    "verify does not hash releases": lambda folder: edited(),
    "verify does not count silent steps": lambda folder: edited(),
    "verify does not compute halts": lambda folder: edited(),
    "verify does not compute amendments": lambda folder: edited_books(),
    "verify does not add up shares": lambda folder: edited_books(),
    "verify does not compare budgets": lambda folder: edited_books(),
    "an event of a query that ends is forgotten": lambda folder: event_then_amended(),
    "a halt forgets the queries that were not pushed": lambda folder: one_waits(),
    "a query that was not pushed moves": lambda folder: one_is_behind(),
    "the account of one query is that of another": lambda folder: two_queries(),
    "a span counts at its first step only": lambda folder: long_span(),
    "a span counts at its first step of a batch only": lambda folder: long_span(),
    "ended queries are forgotten": lambda folder: there_and_back(),
    "a cut is not looked at": lambda folder: cut_beside_another(),
    "the clock goes back when a query ends": lambda folder: behind(),
}


def test_queries_side_by_side() -> None:
    """The histories that find the defects of scopes."""
    one_waits()
    one_is_behind()
    event_then_amended()
    long_span()
    there_and_back()
    cut_beside_another()
    behind()


def test_a_span_that_reaches_back() -> None:
    """It is refused, and the step is charged."""
    reaching_back()


def test_copies(tmp_path: Path) -> None:
    """Noise to come is used once."""
    copied(tmp_path)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With any of them the model reports a broken promise; without them the same runs are the tests above."""
    owner, function, old, new = PLANTED[name]
    if name == "two draws share words":
        made = rows.RowNoise.__init__

        def one_slot(self: Any, *given: Any) -> None:
            made(self, *given)
            self.slots = (self.slots[0],) * len(self.slots)

        monkeypatch.setattr(rows.RowNoise, "__init__", one_slot)
    else:
        plant(monkeypatch, owner, function, old, new)
        if owner in (commit, scope):  # whoever has imported the function by its name
            for module in (session, verify, log):
                if hasattr(module, function):
                    monkeypatch.setattr(module, function, getattr(owner, function))
    with pytest.raises(Broken):
        FOUND_BY.get(name, lambda folder: run(range(200), None))(tmp_path)


def test_nobody_reads_what_is_not_committed(tmp_path: Path) -> None:
    """Not even a handler, or another thread, in the middle of a commit."""
    path = tmp_path / "log.db"
    owner = Session(Tiny(), path)
    owner.push([code()])
    kept: Any = owner._log
    row = list(kept.rows())[-1]
    kept._writer.execute("BEGIN IMMEDIATE")
    kept._writer.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (row.number + 1, *row[1:]))
    assert len(list(owner.releases())) == 1
    kept._writer.execute("ROLLBACK")
    owner.push([code()])


def test_old_secrets_do_not_stay_in_the_file(tmp_path: Path) -> None:
    """Noise that was used would remove itself from its release; the write-ahead log is emptied after a few commits."""
    path = tmp_path / "log.db"
    owner, salts = Session(Tiny(), path), []
    for _ in range(20):
        owner.push([code()])
        found = owner._log.load()
        assert found is not None
        salts.append(found.secret[: commit.SALT_BYTES])
    beside = path.read_bytes() + Path(f"{path}-wal").read_bytes()
    assert sum(salt in beside for salt in salts) <= 2 * sqlite_log.BEGINS_AGAIN_AFTER
    owner.close()
    assert [salt in path.read_bytes() for salt in salts] == [False] * 19 + [True]
    assert path.stat().st_mode & 0o077 == 0


def test_a_second_name_is_refused(tmp_path: Path) -> None:
    """The write-ahead log lies beside one of them: a writer under the other would not be noticed."""
    path = tmp_path / "log.db"
    Session(Tiny(), path).close()
    (tmp_path / "other.db").hardlink_to(path)
    with pytest.raises(LogMismatch, match="second name"):
        Session(Tiny(), path)
