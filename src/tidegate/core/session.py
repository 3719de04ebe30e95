"""The session: the one owner of a log. Push values, get releases that are committed.

States and transitions (docs/proofs/core.md):

    OPEN --push, event--> BUSY --commit--> OPEN
    OPEN --finish-------> BUSY --commit--> CLOSED                            the stream has ended
    BUSY --kill, interrupt, failed commit, fenced--> CLOSED                  open the log again
    BUSY --push or event: any other exception--> CLOSED                      a halt commit: charges, and no release;
                                                                             if this fails too, the stream ends
    BUSY --finish: any other exception--> CLOSED                             an empty last commit: the stream has ended
    OPEN --close--> CLOSED

A refusal that depends on public numbers, or on the form of the input, comes before BUSY and leaves the session open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from tidegate import frames
from tidegate.core import arrays
from tidegate.core.account import Account, After, Checked
from tidegate.core.charges import SPAN_FIELDS, Charges, Span
from tidegate.core.commit import (
    AMENDED,
    EVENT,
    FINISHED,
    HALTED,
    NO_HEAD,
    OPENED,
    PUSHED,
    RESTARTED,
    Commit,
    Content,
    Row,
    Written,
    checked,
    unsealed,
)
from tidegate.core.errors import Halted, LogDamaged, LogMismatch, SessionClosed
from tidegate.core.log import Head, Loaded, Log, MemoryLog
from tidegate.core.mechanism import (
    HandlesEvents,
    MeasuresEveryStep,
    Mechanism,
    Resumes,
    unit_of,
)
from tidegate.core.postgres_log import PostgresLog, is_url
from tidegate.core.query import Query, QueryState, SessionState, new_history, releases_by
from tidegate.core.scope import Amendment, Book, Scope, amended, begun, compare, described, divided
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.turns import REENTERED, Turns
from tidegate.core.values import Matrix, ValueReader
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, whole
from tidegate.noise.entropy import Source, current
from tidegate.releases import Release, Status

BUSY = (
    "the last operation of this session was interrupted; open the log again to see whether it was committed."
)
CLOSED = "this session is closed; open the log again."
ENDED = "this stream was finished; begin another one."
HALTED_FOR_GOOD = "this stream was halted, and at user level no budget returns; begin another one."
MISMATCH = (
    "the log was begun or amended with other queries, parameters or names of columns, or with fixed noise for tests; "
    "open it with its own configuration, amend it, or choose another path."
)
COPIED = "this log is a copy; open it with the configuration that it has before it is amended."
COPIED_FOR_GOOD = "this log is a copy, and at user level it cannot restart; continue the original."
FLOAT = np.dtype(np.float64)
FRESH = Status.FRESH  # cached: to look up an attribute of an enum takes as long as a call
TABLE_FIELDS = 4  # scope, first step, number of steps, number of released arrays
CHARGED = (PUSHED, HALTED, EVENT)  # kinds of commits that have charges
TIMELESS = (
    int,
    float,
    list,
    np.ndarray,
)  # types without timestamps; compared first, because they are the most frequent

Position = bytes | str | int | None
Steps = int | Mapping[str, int] | None
Names = Iterable[str] | Mapping[str, Iterable[str]] | None


ScopeCharges = list[
    tuple[int, Charges, int]
]  # number of the scope, its charges, number of its released arrays


class Pushed(NamedTuple):
    """Charges and released arrays of a commit. No other object shares these arrays."""

    charged: ScopeCharges
    released: list[arrays.Array]

    def encoded(self) -> Written:
        """Return charges and releases as bytes."""
        return Written(encoded(self.charged), arrays.encode(self.released))

    def checked(self) -> Pushed:
        """Return self. Raise if it cannot be encoded."""
        parts = [part for _, charges, _ in self.charged for part in charges[1:]]
        arrays.header(tuple([(part.dtype, part.shape) for part in (*parts, *self.released)]))
        return self


class FastPath(NamedTuple):
    """Fast path for pushes of one step: a session with one query, whose mechanism measures every step alike."""

    query: Query
    account: Account
    read: Callable[[Any], Any]  # makes whole numbers of pushed values
    measure: Callable[..., tuple[arrays.Array, Sequence[Span]]]
    shape: tuple[int, ...]
    unit: Fraction
    follow: Callable[[Release], None] | None  # attaches intervals to a release
    scale: float
    units: int

    @classmethod
    def of(cls, query: Query) -> FastPath | None:
        """Return the fast path of a query, or None if the query has none."""
        reader, mechanism, history = query.reader, query.mechanism, query.history
        if not isinstance(mechanism, MeasuresEveryStep) or not isinstance(reader, ValueReader):
            return None
        if type(query.account) is not Account or (history is not None and not history.quick):
            return None
        if _defining(mechanism, "advance") is not _defining(mechanism, "measure"):
            return None  # a subclass overrides `advance` alone, so its `measure` may release something else
        return cls(
            query,
            query.account,
            reader.one,
            mechanism.measure,
            (mechanism.outputs,),
            query.unit,
            None if history is None else history.follow_one,
            *mechanism.every_step,
        )


def _defining(mechanism: Mechanism, name: str) -> type:
    """Return the class in which a method of the mechanism is defined."""
    return next(each for each in type(mechanism).__mro__ if name in vars(each))


class FastPush(NamedTuple):
    """Charges, release and state of one step that was pushed on the fast path. SECRET."""

    path: FastPath
    step: int
    values: bytes
    spans: Sequence[Span]
    configuration: int  # number of the commit that holds the configuration
    silent: int
    after: After
    stored: tuple[int, bytes]

    def encoded(self) -> Written:
        """Return charges and releases as bytes."""
        path = self.path
        rows = np.array(self.spans, dtype=np.int64).reshape(-1, SPAN_FIELDS)
        charges = Charges(self.step, np.array([path.units], dtype=np.int64), rows)
        released: list[arrays.Array] = [
            np.frombuffer(self.values).reshape(1, -1),
            np.array([FRESH], dtype=np.int8),
            np.array([self.step], dtype=np.int64),
            np.array([path.scale]),
        ]
        query = path.query
        return Pushed([(query.scope.number, charges, query.released)], released).encoded()

    def encoded_state(self) -> bytes:
        """Return the state after the step as bytes."""
        room = self.path.query.most_spans
        state = QueryState(self.step, self.silent, self.step, room, self.after, *self.stored)
        return SessionState(self.configuration, [state]).encoded_state()


def decoded(content: Content) -> Pushed:
    """Return charges and releases of a commit. Nobody may write to these arrays."""
    if isinstance(content, Pushed):
        return content
    charges, releases = content.encoded()
    return Pushed(_decoded_charges(charges), arrays.decode(releases))


def by_query(content: Pushed) -> Iterator[tuple[int, Charges, list[arrays.Array]]]:
    """Yield (scope, charges, released arrays) of every query of a commit."""
    parts = iter(content.released)
    for scope, charges, count in content.charged:
        yield scope, charges, list(islice(parts, count))


class Session:
    """The one writer of a log.

    Parameters
    ----------
    queries
        A mechanism, or several by name. All of them have the same policy: the session gives each its share of the budget.
    log
        Where commits are stored: a log, the path of a file, "postgresql://user@host/database#name", or None for memory.
        With None, only the releases of the last window are kept.
    head
        A head that this log had before. A log without this head is an older copy, and is refused.
    shares
        For several queries: the fraction of the budget of each query, as exact numbers. Their sum is at most 1.
    amend
        Whether a log with another configuration is amended. A changed query ends, and its successor begins. The
        successor is silent until no window contains a step that the old query read. `plan_amendment` lists these steps
        beforehand. Without `amend`, another configuration is refused.
    about
        Public properties that also define a query, by its name, as JSON: for example the columns of a source that it
        counts.
    names
        The names of the columns, in their order. For several queries: a mapping from query to names of columns.
        With `names`, mappings and DataFrames can be pushed, and are read by name; without, they are refused. Names belong
        to the configuration of the log.

    Attributes
    ----------
    step
        The last committed step of the most advanced query; 0 if none.
    steps
        The last committed step of each query.
    head
        The hash of the last commit. Keep it to notice an older copy of the log.
    position
        Where in the source the next read begins, as stored with the last commit.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> with Session(Uniform(tg.WEvent(epsilon="1", window=24), columns=3)) as session:
    ...     release = session.push([12, 0, 7])
    >>> release.values.shape, session.step
    ((3,), 1)
    """

    def __init__(
        self,
        queries: Mechanism | Mapping[str, Mechanism],
        log: Log | Path | str | None = None,
        head: bytes | None = None,
        *,
        shares: Mapping[str, ExactLike] | None = None,
        amend: bool = False,
        about: Mapping[str, Any] | None = None,
        names: Names = None,
    ) -> None:
        self._alone = not isinstance(queries, Mapping)
        source = current()
        self._queries, description = _configured(queries, shares, source, about, names)
        self._turns = Turns()
        self._closed = ""  # the reason; empty: the session is open
        self._number = 0  # of the next commit
        self._configuration_commit = 0  # number of the commit that holds the configuration
        self._head: Head = NO_HEAD
        self.step = 0
        self.position: bytes = b""
        window = max((query.account.window or 1 for query in self._queries), default=1)
        self._log = MemoryLog(window) if log is None else opened_log(log)
        self._fast_path: FastPath | None = None
        try:
            self._open(description, head, amend)
        except BaseException:
            if self._log is not log:
                self._log.close()  # the caller has no reference to a log that was opened here
            raise
        if self._alone:
            self._fast_path = FastPath.of(self._queries[0])

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return self._log.hashed(self._head)

    @property
    def steps(self) -> dict[str, int]:
        """The last committed step of each query."""
        return {query.name: query.step for query in self._queries}

    @property
    def closed(self) -> bool:
        """Whether the session refuses pushes: it was closed, has failed, or its stream has ended."""
        return bool(self._closed)

    @property
    def spent(self) -> dict[str, int]:
        """The budget units that each query has spent in its last window.

        The numbers do not include charges of an ended stream, or spans from before a halt or restart. Read these from the
        log.
        """
        return {query.name: query.account.spent() for query in self._queries}

    @property
    def remaining(self) -> dict[str, int]:
        """The budget units that the next step of each query may be charged."""
        return {query.name: query.account.remaining() for query in self._queries}

    # opening -----------------------------------------------------------------------------------------------------

    @property
    def scopes(self) -> dict[str, Scope]:
        """The scope of each query: its part of the budget, and the first step that it reads."""
        return {query.name: query.scope for query in self._queries}

    def _open(self, description: dict[str, Any], head: bytes | None, amend: bool) -> None:
        loaded = self._log.load()
        if head is not None and not self._log.has_head(head):
            raise LogMismatch(
                "the log does not have the head that was given, so it is an older copy; use the newer one."
            )
        if loaded is None:
            book = begun(description)
            for query, scope in zip(self._queries, book.alive, strict=True):
                query.begin(scope, 0)
            self._append(self._commit_without_steps(OPENED, book.encoded(), self._state()))
            return
        last = _last_commit(self._log, loaded)
        if description != last.book.description and not amend:
            raise LogMismatch(MISMATCH)
        self._resume(last, description)

    def _resume(self, last: LastCommit, description: dict[str, Any]) -> None:
        """Restore the state of the last commit; for another configuration, amend the log."""
        row, book = last.loaded.row, last.book
        amends = description != book.description
        self._head, self._number, self.step = row.head, row.number + 1, row.last
        self.position, self._configuration_commit = last.position, last.configuration
        if row.kind == FINISHED or (row.kind == HALTED and book.description["window"] is None):
            self._closed = ENDED if row.kind == FINISHED else HALTED_FOR_GOOD
            if amends:
                raise SessionClosed(self._closed)
        elif amends:
            if last.loaded.secret is None or not last.loaded.here:
                raise LogMismatch(COPIED)
            book = amended(book, description, self.step, last.steps, last.charged)
        known = {scope.number for scope in last.book.alive}
        named = {query.name: query for query in self._queries}
        # in the order of the log, which may differ from that of the configuration
        self._queries = [named[scope.name] for scope in book.alive]
        for query, scope in zip(self._queries, book.alive, strict=True):
            query.begin(scope, last.steps.get(scope.name, self.step))
            if scope.number in known:
                query.silent_until = last.silent[scope.name]
        if self._closed:
            return
        unchanged = [query for query in self._queries if query.scope.number in known]
        self._replay(unchanged, last.steps, row.number)
        for query in unchanged:
            parts = last.state[query.name]
            if parts:
                query.load(iter(parts))
                if isinstance(query.mechanism, Resumes):
                    query.mechanism.resume(query.state, query.step, query.account.recent())
            else:  # a halt commit stores no state
                query.set_state(query.mechanism.begin(query.silent_until + 1))
        self._learn_intervals(unchanged)
        if amends:
            self._configuration_commit = self._number
            self._append(self._commit_without_steps(AMENDED, book.encoded(), self._state()))
        elif last.loaded.secret is None or not last.loaded.here:
            with_state = (
                last.loaded.secret is not None
            )  # a backup without its secret has no state of any query
            self._restart([each for each in self._queries if each.mechanism.noise_in_state or not with_state])

    def _restart(self, dropped: list[Query]) -> None:
        """Drop the state of these queries, because its pre-drawn noise was written in another file, and silence them."""
        if not all(query.restart() for query in dropped):
            self._closed = COPIED_FOR_GOOD
        elif dropped:
            silent = arrays.encode(
                [np.array([query.silent_until for query in self._queries], dtype=np.int64)]
            )
            self._append(self._commit_without_steps(RESTARTED, silent, self._state()))

    def _replay(self, queries: list[Query], steps: Mapping[str, int], number: int) -> None:
        """Rebuild each account from the charges of its last window, up to the commit `number`."""
        by_scope = {query.scope.number: query for query in queries}
        since = {
            query.scope.number: max(1, steps[query.name] - (query.account.window or 1) + 1)
            for query in queries
        }
        for query in queries:
            query.account.step = since[query.scope.number] - 1
        # − 1: the row of an event ends one step before the step that is charged
        for row in checked(self._log, self._log.rows_since(min(since.values(), default=1) - 1)):
            if row.kind not in CHARGED or row.number > number:
                continue
            for scope, charges in charges_of(row):
                if scope not in by_scope:
                    continue
                begin = max(charges.first, since[scope])
                if begin > charges.last + 1:
                    continue
                account, units = by_scope[scope].account, charges.units[begin - charges.first :]
                if row.kind == EVENT:
                    account.load(Charges(begin, units[:0]))
                    account.apply_event(int(units.sum()))
                else:
                    account.load(Charges(begin, units, charges.spans))
        for query in queries:
            if query.step < steps[query.name]:
                query.account.load(Charges(steps[query.name] + 1, np.zeros(0, dtype=np.int64)))

    def _learn_intervals(self, queries: list[Query]) -> None:
        """Give the releases that are still in the log to the estimators of intervals."""
        for query in queries:
            history = query.history
            if history is None or not history.remembered:
                continue
            for row in checked(self._log, self._log.rows_since(max(1, query.step - history.remembered + 1))):
                scopes = [scope for scope, _ in charges_of(row)] if row.kind == PUSHED else []
                if row.kind == HALTED:
                    query.history = new_history(query.mechanism)
                elif query.scope.number in scopes and row.releases is not None and query.history is not None:
                    query.history.learn(partial(self._release_of, query, Written(row.charges, row.releases)))

    # pushing -----------------------------------------------------------------------------------------------------

    def push(self, values: Any, step: Steps = None, position: Position = None) -> Any:
        """Release the next step: committed before it returns.

        Parameters
        ----------
        values
            The values of the step; for several queries a mapping from names of queries to values. Queries without values
            release nothing.
        step
            The number of the step, or a mapping from names of queries to numbers; by default the next step of each query.
            Skipped steps cost nothing, and are not released.
        position
            Where in the source the next read begins; stored with the commit.
        """
        path = self._fast_path
        if path is not None and step is None and self.step == path.account.step >= path.query.silent_until:
            if type(values) in TIMELESS:
                return self._push_one(path, path.read(values), position)
            time = frames.time_of(values)
            release = self._push_one(path, path.read(values), position)
            release.time = time
            return release
        parts = [(self._queries[0], values)] if self._alone else self._parts(values)
        times = [None if type(part) in TIMELESS else frames.time_of(part) for _, part in parts]
        found = self._push([(query, query.reader.row(part)) for query, part in parts], step, position, True)
        for (query, _), known in zip(parts, times, strict=True):
            (found if self._alone else found[query.name]).time = known
        return found

    def push_batch(self, values: Any, step: Steps = None, position: Position = None) -> Any:
        """Release several steps in one commit: one row of values per step and query. `step` is the first step."""
        parts = [(self._queries[0], values)] if self._alone else self._parts(values)
        times = [frames.times_of(part, query.names) for query, part in parts]
        found = self._push([(query, query.reader.rows(part)) for query, part in parts], step, position)
        for (query, _), known in zip(parts, times, strict=True):
            (found if self._alone else found[query.name]).times = known
        return found

    def _parts(self, values: Any) -> list[tuple[Query, Any]]:
        """Split the values of several queries by query."""
        known = {query.name for query in self._queries}
        if not isinstance(values, Mapping) or not values or not known.issuperset(values):
            raise InvalidInput(
                "values of several queries are a mapping from the names of some of them; name them."
            )
        return [(query, values[query.name]) for query in self._queries if query.name in values]

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(self._closed)

    def _push(
        self, rows: list[tuple[Query, Matrix]], step: Steps, position: Position, single: bool = False
    ) -> Any:
        with self._turns.one():
            self._check_open()
            pushes = [
                Push(query, matrix, query.account.step + 1 if step is None else _first(query, step))
                for query, matrix in rows
            ]
            if isinstance(step, Mapping) and not {push.query.name for push in pushes}.issuperset(step):
                raise InvalidInput(
                    "a step was given for a query without values; name the same queries in both."
                )
            next_position = self.position if position is None else _as_bytes(position)
            for query, matrix, first in pushes:
                query.check_public(first, len(matrix))
            self._closed = BUSY
            prepared = self._prepare_push(pushes, next_position)
            if prepared is None:
                self._halt([(query, first, len(matrix)) for query, matrix, first in pushes], next_position)
            commit, verdicts, releases = prepared
            self._append(commit)
            for push, verdict in zip(pushes, verdicts, strict=True):
                push.query.account.apply(verdict)
            self.step, self.position = commit.last, next_position
            self._closed = ""
            self._attach_intervals(releases, commit.content)
            if single:
                releases = {name: each[0] for name, each in releases.items()}
            return releases[""] if self._alone else releases

    def _push_one(self, path: FastPath, row: Any, position: Position) -> Release:
        """`_push` on the fast path, for the next step. The result is the same; the account gets plain numbers."""
        turns, account, units = self._turns, path.account, path.units
        turns.check_process()
        with turns.lock:
            if turns.busy:
                raise SessionClosed(REENTERED)
            try:
                turns.busy = True
                if self._closed:
                    raise SessionClosed(self._closed)
                next_position = self.position if position is None else _as_bytes(position)
                after = account.check_next(units)
                self._closed = BUSY
                try:  # the text of an exception may reveal data or noise, so the exception is dropped
                    step, query = account.step + 1, path.query
                    values, spans = path.measure(query.state, row, step, query.draws)
                    if values.shape != path.shape or values.dtype != FLOAT or values.base is not None:
                        raise ValueError("a mechanism must release every column, in a new array")
                    if spans:
                        after = account.check_next(units, spans)
                    stored = query.stored(after)
                    push = FastPush(
                        path,
                        step,
                        values.tobytes(),
                        spans,
                        self._configuration_commit,
                        query.silent_until,
                        after,
                        stored,
                    )
                    content = push.encoded() if self._log.durable else push
                    commit = Commit(self._number, PUSHED, step, step, content, next_position, push)
                except Exception:
                    commit = None
                if commit is None:
                    self._halt([(path.query, account.step + 1, 1)], next_position)
                self._append(commit)
                account.apply_next(units, after)
                self.step, self.position, self._closed = step, next_position, ""
            finally:
                turns.busy = False
        release = Release(step, values, FRESH, step, path.scale, units, path.unit)
        if path.follow is not None:
            path.follow(release)
        return release

    def _prepare_push(
        self, pushes: list[Push], position: bytes
    ) -> tuple[Commit, list[Checked], dict[str, Any]] | None:
        """Build the commit of the next steps. Return it, the account's verdicts and the releases; None after a failure.

        The text of an exception may reveal data or noise, so the exception is dropped.
        """
        try:
            outputs = [query.advance(rows, first) for query, rows, first in pushes]
            charges, arrays_out, verdicts, verdict_by_name, releases = [], [], [], {}, {}
            for push, output in zip(pushes, outputs, strict=True):
                push.query.check_output(output, len(push.rows))
            for (query, _, first), output in zip(pushes, outputs, strict=True):
                # a view, for example of a part of the state, is copied
                units, spans, *parts = [
                    part if part.base is None else part.copy()
                    for part in (output.units, output.spans, *output.released)
                ]
                verdict = query.account.check(Charges(first, units, spans))
                verdicts.append(verdict)
                charges.append((query.scope.number, verdict.charges, query.released))
                arrays_out += parts
                verdict_by_name[query.name] = verdict
                copies = [part.copy() for part in parts]  # for the caller, who may write to them
                releases[query.name] = releases_by(
                    query.mechanism, query.unit, first, copies, units.copy(), query.names
                )
            pushed = Pushed(charges, arrays_out)
            content: Content = pushed.encoded() if self._log.durable else pushed.checked()
            begin = max(self.step + 1, min(push.first for push in pushes))
            end = max([self.step, *[push.first + len(push.rows) - 1 for push in pushes]])
            state = self._state(verdict_by_name)
            return Commit(self._number, PUSHED, begin, end, content, position, state), verdicts, releases
        except Exception:
            return None

    def _halt(self, failed: list[tuple[Query, int, int]], position: bytes) -> NoReturn:
        """Charge the whole remaining budget to the failed steps, whose noise was drawn, and release nothing."""
        prepared = self._prepare_halt(failed, position)
        if prepared is None:  # a retry would draw other noise for the same data, so the stream ends
            self._append(self._commit_without_steps(FINISHED, b"", self._state_of_end()))
            self._closed = ENDED
            raise Halted(
                "the stream has ended: a mechanism failed after noise was drawn, and the remaining budget could not be "
                "charged; begin another stream."
            )
        commit, charged = prepared
        self._append(commit)
        self.step, self.position = commit.last, position
        steps = ", ".join(sorted({f"{each.first} to {each.last}" for _, each, _ in charged}))
        self._closed = (
            f"steps {steps} failed after noise was drawn; open the log again to continue after them."
        )
        raise Halted(
            f"steps {steps} are charged and not released, because a mechanism failed after noise was drawn; "
            "open the log again: it continues when their windows have passed."
        )

    def _prepare_halt(
        self, failed: list[tuple[Query, int, int]], position: bytes
    ) -> tuple[Commit, ScopeCharges] | None:
        """Build the commit of a halt. Return it and its charges; None after a failure."""
        try:
            verdicts = [(query, query.halted(first, count)) for query, first, count in failed]
            charged = [(query.scope.number, verdict.charges, query.released) for query, verdict in verdicts]
            first = max(self.step + 1, min(verdict.charges.first for _, verdict in verdicts))
            last = max([self.step, *(verdict.charges.last for _, verdict in verdicts)])
            content = Written(encoded(charged), b"")
            for query, verdict in verdicts:
                query.account.apply(verdict)
            # a halt commit stores no state of any query, so also queries that were not pushed are silent for a window
            for query in self._queries:
                query.fall_silent()
            return Commit(self._number, HALTED, first, last, content, position, self._state_of_end()), charged
        except Exception:
            return None

    def _commit_without_steps(
        self, kind: int, charges: bytes, state: SessionState, releases: bytes = b""
    ) -> Commit:
        """Build a commit that releases no new step: OPENED, AMENDED, RESTARTED, EVENT or FINISHED."""
        content = Written(charges, releases)
        return Commit(self._number, kind, self.step + 1, self.step, content, self.position, state)

    def _append(self, commit: Commit) -> None:
        """Write a commit after the last one."""
        self._head = self._log.append(self._head, commit)
        self._number = commit.number + 1

    def _state(
        self, verdicts: Mapping[str, Checked] | None = None, events: Mapping[str, int] | None = None
    ) -> SessionState:
        """Return the state to store: the current state, with accounts as they are after the charges or events."""
        verdicts, events = verdicts or {}, events or {}
        states = [
            query.state_to_store(verdicts.get(query.name), bool(events.get(query.name)))
            for query in self._queries
        ]
        return SessionState(self._configuration_commit, states)

    def _state_of_end(self) -> SessionState:
        """Return what a halt or the end stores: the step of each query, without accounts and states of mechanisms."""
        return SessionState(self._configuration_commit, [query.state_of_end() for query in self._queries])

    def _releases_in(self, content: Pushed) -> dict[str, Any]:
        """Return the releases of a commit by query, without those of queries that an amendment has ended."""
        found: dict[str, Any] = {}
        by_scope = {query.scope.number: query for query in self._queries}
        for scope, charges, own in by_query(content):
            if scope in by_scope:
                query = by_scope[scope]
                found[query.name] = releases_by(
                    query.mechanism, query.unit, charges.first, own, charges.units, query.names
                )
        return found

    def _release_of(self, query: Query, content: Content) -> Any:
        """Return the releases of one query in a commit."""
        return self._releases_in(decoded(content))[query.name]

    def _attach_intervals(self, releases: Mapping[str, Any], content: Content) -> None:
        """Attach intervals to releases. They are computed when they are first read."""
        for query in self._queries:
            if query.history is not None and query.name in releases:
                query.history.follow(releases[query.name], partial(self._release_of, query, content))

    def releases(self, since: int = 1) -> Iterator[Any]:
        """Yield the releases from step `since` on that are still in the log, one item per commit.

        A query with a longer lateness releases older steps. Its commits are listed under the step that the session had
        reached. Queries that an amendment has ended are left out; read their releases before you amend.
        """
        histories = [(query, new_history(query.mechanism)) for query in self._queries]
        for row in self._log.rows_since(since):
            found = self._releases_of_row(row)
            for query, history in histories:
                if history is not None and query.name in found:
                    content = Written(row.charges, row.releases or b"")
                    history.follow(found[query.name], partial(self._release_of, query, content))
            if found:
                yield found[""] if self._alone else found

    def _releases_of_row(self, row: Row) -> dict[str, Any]:
        if row.releases is None or row.kind not in (PUSHED, FINISHED) or not row.charges:
            return {}
        return self._releases_in(decoded(Written(row.charges, row.releases)))

    def event(self, name: str) -> None:
        """Report a public event, for example "intrusion", to all queries. One commit stores the event and its cost.

        The cost is charged to the step in progress, which is the next step of each query. An event that no mechanism
        handles is refused, and the session stays open.
        """
        encoded_name = _encoded_event_name(name)
        with self._turns.one():
            self._check_open()
            handling = [
                query
                for query in self._queries
                if isinstance(query.mechanism, HandlesEvents) and query.mechanism.hears(name)
            ]
            if not handling:
                raise InvalidInput(
                    "no query of this session handles this event; name an event that one of its mechanisms handles."
                )
            for query in handling:
                query.check_step()
            self._closed = BUSY
            prepared = self._prepare_event(handling, name, encoded_name)
            if prepared is None:
                self._halt([(query, query.step + 1, 1) for query in handling], self.position)
            commit, units = prepared
            self._append(commit)
            for query, charged in zip(handling, units, strict=True):
                if charged:
                    query.account.apply_event(charged)
            self._closed = ""

    def _prepare_event(
        self, handling: list[Query], name: str, encoded_name: bytes
    ) -> tuple[Commit, list[int]] | None:
        """Build the commit of an event. Return it and the budget units charged to each query; None after a failure."""
        try:
            units = [query.event(name) for query in handling]
            charges = encoded(
                [
                    (
                        query.scope.number,
                        Charges(query.step + 1, np.array([each], dtype=np.int64)),
                        query.released,
                    )
                    for query, each in zip(handling, units, strict=True)
                ]
            ) + arrays.encode([np.frombuffer(encoded_name, dtype=np.int8)])
            state = self._state(events=dict(zip([query.name for query in handling], units, strict=True)))
            return self._commit_without_steps(EVENT, charges, state), units
        except Exception:
            return None

    # the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> Any:
        """End the stream permanently. Return the final corrections of earlier steps, or None if there are none.

        After the end nothing can be pushed to this log, and noise for later steps is dropped. The corrections are in
        `revised` of the returned release, which has no steps of its own. With several queries: a mapping, without queries
        that have no corrections.
        """
        with self._turns.one():
            self._check_open()
            self._closed = BUSY
            prepared = self._prepare_finish()
            if prepared is None:
                self._append(self._commit_without_steps(FINISHED, b"", self._state_of_end()))
                self._closed = ENDED
                raise Halted(
                    "the stream has ended; its final corrections could not be computed, and are dropped."
                )
            commit, releases = prepared
            self._append(commit)
            self._closed = ENDED
            self._attach_intervals(releases, commit.content)
            return releases.get("") if self._alone else releases

    def _prepare_finish(self) -> tuple[Commit, dict[str, Any]] | None:
        """Build the last commit. Return it and the final releases; None after a failure, which is never retried."""
        try:
            outputs = [(query, query.finish()) for query in self._queries]
            final = [(query, output) for query, output in outputs if output is not None]
            charged = [
                (query.scope.number, Charges(query.step + 1, np.zeros(0, dtype=np.int64)), query.released)
                for query, _ in final
            ]
            content = Pushed(charged, [part for _, output in final for part in output.released]).encoded()
            commit = self._commit_without_steps(
                FINISHED, content.charges, self._state_of_end(), content.releases
            )
            return commit, self._releases_in(decoded(content))
        except Exception:
            return None

    def close(self) -> None:
        """Close the log. Commits stay in the log."""
        if not self._turns.forked:
            with self._turns.one():
                self._closed = self._closed or CLOSED
                self._log.close()

    def __repr__(self) -> str:
        kinds = ", ".join(type(query.mechanism).__name__ for query in self._queries)
        return f"<Session of {kinds} at step {self.step}{', closed' if self._closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a session is the one writer of its log and cannot be copied or pickled; open the log instead."
        )


class Push(NamedTuple):
    """The values that are pushed to one query, and the first of their steps."""

    query: Query
    rows: Matrix
    first: int


class LastCommit(NamedTuple):
    """The last commit of a log, with what it stores for each query, by the query's name."""

    loaded: Loaded
    book: Book  # the configuration: description, scopes and budgets
    configuration: int  # number of the commit that holds the book
    steps: dict[str, int]
    silent: dict[str, int]  # the last silent step
    charged: dict[
        str, int
    ]  # the last charged step; one more than in `steps` if an event was charged to the next step
    state: dict[str, list[arrays.Array]]
    position: bytes


def opened_log(log: Log | Path | str) -> Log:
    """Return the log itself, or open the log of a path or URL."""
    if isinstance(log, Log):
        return log
    return PostgresLog(log) if isinstance(log, str) and is_url(log) else SQLiteLog(log)


def plan_amendment(
    queries: Mechanism | Mapping[str, Mechanism],
    log: Log | Path | str,
    *,
    shares: Mapping[str, ExactLike] | None = None,
    about: Mapping[str, Any] | None = None,
    names: Names = None,
) -> Amendment:
    """Return what `Session(queries, log, shares=shares, amend=True)` would begin and end. Nothing is written.

    For each query that would begin, the result has the first step that it would release.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> from tidegate.core.log import MemoryLog
    >>> log = MemoryLog()
    >>> _ = Session(Uniform(tg.WEvent(epsilon="1", window=24)), log).push_batch([[1], [2]])
    >>> plan_amendment(Uniform(tg.WEvent(epsilon="1/2", window=24)), log)
    Amendment(unchanged=(), begun={'': 26}, ended=())
    """
    _, description = _configured(queries, shares, current(), about, names)
    if not isinstance(log, Log) and not is_url(log) and not Path(log).exists():
        raise LogMismatch(f"{log} is not there, so there is nothing to amend; open it.")
    opened = opened_log(log)
    try:
        loaded = opened.load()
        if loaded is None:
            raise LogMismatch("the log is empty, so there is nothing to amend; open it.")
        last = _last_commit(opened, loaded)
        if description == last.book.description:
            return compare(last.book, last.book)
        return compare(last.book, amended(last.book, description, loaded.row.last, last.steps, last.charged))
    finally:
        if opened is not log:
            opened.close()


def _configured(
    queries: Mechanism | Mapping[str, Mechanism],
    shares: Mapping[str, ExactLike] | None,
    source: Source,
    about: Mapping[str, Any] | None,
    names: Names,
) -> tuple[list[Query], dict[str, Any]]:
    """Return the queries, each with its share of the budget, and the description of the configuration."""
    named: Mapping[str, Mechanism] = queries if isinstance(queries, Mapping) else {"": queries}
    parts, fractions = divided(named, shares)
    configured = [Query(name, mechanism, source) for name, mechanism in parts.items()]
    accounts = {query.name: query.account.describe() for query in configured}
    columns = _named_columns(configured, names, not isinstance(queries, Mapping))
    return configured, described(not source.marked, parts, fractions, accounts, about or {}, columns)


def _named_columns(queries: list[Query], names: Names, alone: bool) -> dict[str, tuple[str, ...]]:
    """Set the names of columns of the queries, so that values are read by name. Return them by query."""
    if names is None:
        return {}
    if isinstance(names, Mapping) == alone:
        wanted = (
            "the names of the columns" if alone else "a mapping from queries to the names of their columns"
        )
        raise InvalidParameter("names", names, wanted, 'write for example names=["north", "south"]')
    given = names if isinstance(names, Mapping) else {"": names}
    known, found = {query.name: query for query in queries}, dict[str, tuple[str, ...]]()
    for name, columns in given.items():
        query = known.get(name)
        reader = None if query is None else query.reader
        if query is None or not isinstance(reader, ValueReader):
            raise InvalidParameter("names", name, "of queries that read columns", "name one of this session")
        own = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else ()
        if not len(own) == len(set(own)) == reader.columns or not all(isinstance(each, str) for each in own):
            wanted = f"{reader.columns} different names, one a column"
            raise InvalidParameter("names", columns, wanted, "give as many, in the order of the columns")
        reader.names = query.names = found[name] = own
    return found


def _last_commit(log: Log, loaded: Loaded) -> LastCommit:
    """Decode the last commit of a log, after its state was compared with its digest."""
    if loaded.secret is None:
        return _last_commit_of_backup(log, loaded)
    position, state = unsealed(loaded.secret, loaded.row.secret_digest)
    try:
        table, *rest = arrays.decode(state)
        configuration = int(table[0, 0])
        book = Book.decoded(next(checked(log, log.rows(configuration))).charges)
        steps, silent, charged, states = {}, {}, {}, {}
        for scope, row in zip(book.alive, table[1:].tolist(), strict=True):
            steps[scope.name], silent[scope.name], charged[scope.name], length = row
            states[scope.name], rest = rest[:length], rest[length:]
    except (ValueError, IndexError, StopIteration):
        raise LogDamaged("the log's state is not one that Tidegate has written; restore a backup.") from None
    return LastCommit(loaded, book, configuration, steps, silent, charged, states, position)


def _last_commit_of_backup(log: Log, loaded: Loaded) -> LastCommit:
    """Compute the steps of each query from the rows of a backup without its secret: it has no state and no position."""
    book, configuration = Book({}, (), (), (), 0), 0
    steps, charged = dict[str, int](), dict[str, int]()
    for row in checked(log, log.rows()):
        if row.kind in (OPENED, AMENDED):
            book, configuration = Book.decoded(row.charges), row.number
            steps = {scope.name: steps.get(scope.name, row.last) for scope in book.alive}
            charged = {name: max(step, charged.get(name, 0)) for name, step in steps.items()}
        elif row.kind in CHARGED:
            names = {scope.number: scope.name for scope in book.alive}
            for number, charges in charges_of(row):
                charged[names[number]] = charges.last
                if row.kind != EVENT:
                    steps[names[number]] = charges.last
    silent = {scope.name: scope.first - 1 for scope in book.alive}
    states: dict[str, list[arrays.Array]] = {name: [] for name in silent}
    return LastCommit(loaded, book, configuration, steps, silent, charged, states, b"")


def _first(query: Query, step: Steps) -> int:
    """Return the first step of the values that are pushed to a query."""
    given = step.get(query.name) if isinstance(step, Mapping) else step
    return query.step + 1 if given is None else whole("step", given)


def encoded(charged: ScopeCharges) -> bytes:
    """Encode charges: a table with a row of `TABLE_FIELDS` per query, then the budget units and spans of each query."""
    table = [(scope, charges.first, len(charges.units), count) for scope, charges, count in charged]
    parts = [np.array(table, dtype=np.int64).reshape(-1, TABLE_FIELDS)]
    for _, charges, _ in charged:
        parts += [charges.units, charges.spans]
    return arrays.encode(parts)


def _decoded_charges(data: bytes) -> ScopeCharges:
    """Decode charges; the inverse of `encoded`."""
    table, *found = arrays.decode(data) if data else [np.zeros((0, TABLE_FIELDS), dtype=np.int64)]
    count = len(table)
    if (
        table.shape != (count, TABLE_FIELDS)
        or table.dtype != np.int64
        or len(found) not in (2 * count, 2 * count + 1)
    ):
        raise LogDamaged("a commit has no charges that can be read; restore a backup.")
    result = []
    for (scope, first, steps, released), units, spans in zip(
        table.tolist(), found[0 : 2 * count : 2], found[1 : 2 * count : 2], strict=True
    ):
        if units.shape != (steps,) or spans.ndim != 2 or spans.shape[1] != SPAN_FIELDS:
            raise LogDamaged("a commit does not have one charge per step; restore a backup.")
        result.append((scope, Charges(first, units, spans), released))
    return result


def charges_of(row: Row) -> list[tuple[int, Charges]]:
    """Return (scope, charges) of every query of a row."""
    return [(scope, charges) for scope, charges, _ in _decoded_charges(row.charges)]


def _as_bytes(position: bytes | str | int) -> bytes:
    return position if isinstance(position, bytes) else str(position).encode()


def _encoded_event_name(name: object) -> bytes:
    """Return the name of an event as the bytes that a row stores; refuse other types than text."""
    with suppress(UnicodeEncodeError):
        if isinstance(name, str):
            return name.encode()
    raise InvalidInput("the name of an event must be text; write for example intrusion.")


def releases_of(row: Row, queries: Mapping[int, tuple[str, Mechanism]]) -> dict[str, Any] | None:
    """Return the releases of a commit, without intervals. For readers that open a log without a session.

    Parameters
    ----------
    row
        The commit.
    queries
        Name and mechanism of each scope to read, by the number of the scope.

    Returns
    -------
    dict or None
        Releases by the names of queries; None if the commit has no releases, or they were moved out of the log.
    """
    if row.releases is None or row.kind not in (PUSHED, FINISHED) or not row.charges:
        return None
    if sha256(row.releases).digest() != row.releases_digest:
        raise LogDamaged(
            f"the releases of commit {row.number} are not those of its digest; restore a backup."
        )
    found: dict[str, Any] = {}
    for scope, charges, own in by_query(decoded(Written(row.charges, row.releases))):
        if scope in queries:
            name, mechanism = queries[scope]
            found[name] = releases_by(mechanism, unit_of(mechanism), charges.first, own, charges.units)
    return found or None


def open(
    queries: Mechanism | Mapping[str, Mechanism],
    log: Log | Path | str | None = None,
    *,
    shares: Mapping[str, ExactLike] | None = None,
    head: bytes | None = None,
    amend: bool = False,
    about: Mapping[str, Any] | None = None,
    names: Names = None,
) -> Session:
    """Open the session of a mechanism, or of several by name; see :class:`Session`.

    Examples
    --------
    >>> import tempfile, tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> mechanism = Uniform(tg.WEvent(epsilon="1", window=24))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for count in (12, 7):  # two processes, one after the other
    ...         with tg.open(mechanism, f"{folder}/visits.ledger") as session:
    ...             release = session.push([count])
    >>> release.step
    2
    """
    return Session(queries, log, head, shares=shares, amend=amend, about=about, names=names)
