"""The session: the one owner of a log. Push values, get releases that are committed.

States and transitions (docs/proofs/core.md):

    OPEN --push--> BUSY --commit--> OPEN
                   BUSY --kill, interrupt, failed commit, fenced--> CLOSED    open the log again
                   BUSY --anything else is raised--> CLOSED                  a halt commit: charged, nothing is released;
                                                                             where that fails too, the stream ends
    OPEN --close, finish--> CLOSED

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
from tidegate.core.query import Query, Standing, Stands, new_history, releases_by
from tidegate.core.scope import Amendment, Book, Scope, amended, begun, compare, described, divided
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.turns import REENTERED, Turns
from tidegate.core.values import Matrix, ValueReader
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, whole
from tidegate.noise.entropy import Source, current
from tidegate.releases import Release, Status

BUSY = "a push of this session was interrupted, and what it made was not committed; open the log again."
CLOSED = "this session is closed; open the log again."
ENDED = "this stream was finished; begin another one."
HALTED_FOR_GOOD = "this stream was halted, and at user level no budget returns; begin another one."
MISMATCH = (
    "the log was begun or amended with other queries, parameters, names or entropy; open it with its own configuration, "
    "amend it, or choose another path."
)
COPIED = "this log is a copy; open it with the configuration that it has before it is amended."
COPIED_FOR_GOOD = "this log is a copy, and at user level it cannot restart; continue the original."
FLOAT = np.dtype(np.float64)
FRESH = Status.FRESH  # named once: to look it up takes as long as a call
TABLE_FIELDS = 4  # scope, first step, steps, released arrays
CHARGED = (PUSHED, HALTED, EVENT)
NO_TIMES = (int, float, list, np.ndarray)  # what is pushed most, and does not say when

Position = bytes | str | int | None
Steps = int | Mapping[str, int] | None
Names = Iterable[str] | Mapping[str, Iterable[str]] | None


Charged = list[tuple[int, Charges, int]]  # scope, charges, and how many arrays are released


class Pushed(NamedTuple):
    """What a push charges and releases, in arrays that nobody else has."""

    charged: Charged
    released: list[arrays.Array]

    def encoded(self) -> Written:
        """The same as bytes."""
        return Written(encoded(self.charged), arrays.encode(self.released))

    def checked(self) -> Pushed:
        """Itself; raises where it could not be encoded."""
        parts = [part for _, charges, _ in self.charged for part in charges[1:]]
        arrays.header(tuple([(part.dtype, part.shape) for part in (*parts, *self.released)]))
        return self


class Single(NamedTuple):
    """The only query of a session, where it measures every step in the same way."""

    query: Query
    account: Account
    read: Callable[[Any], Any]  # pushed values as whole numbers
    measure: Callable[..., tuple[arrays.Array, Sequence[Span]]]
    shape: tuple[int, ...]
    unit: Fraction
    follow: Callable[[Release], None] | None  # gives a release its intervals
    scale: float
    units: int

    @classmethod
    def of(cls, query: Query) -> Single | None:
        """That of a query whose single pushes may take the short way; None for any other."""
        reader, mechanism, history = query.reader, query.mechanism, query.history
        if not isinstance(mechanism, MeasuresEveryStep) or not isinstance(reader, ValueReader):
            return None
        if type(query.account) is not Account or (history is not None and not history.quick):
            return None
        if _defining(mechanism, "advance") is not _defining(mechanism, "measure"):
            return None  # a subclass that releases in its own way
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
    """The class that has written a method."""
    return next(each for each in type(mechanism).__mro__ if name in vars(each))


class One(NamedTuple):
    """What a push of one such step charges and releases, and where the query stands after it. SECRET."""

    single: Single
    step: int
    values: bytes
    spans: Sequence[Span]
    described: int
    silent: int
    after: After
    stored: tuple[int, bytes]

    def encoded(self) -> Written:
        """The same as bytes."""
        single = self.single
        rows = np.array(self.spans, dtype=np.int64).reshape(-1, SPAN_FIELDS)
        charges = Charges(self.step, np.array([single.units], dtype=np.int64), rows)
        released: list[arrays.Array] = [
            np.frombuffer(self.values).reshape(1, -1),
            np.array([FRESH], dtype=np.int8),
            np.array([self.step], dtype=np.int64),
            np.array([single.scale]),
        ]
        query = single.query
        return Pushed([(query.scope.number, charges, query.released)], released).encoded()

    def encoded_state(self) -> bytes:
        """Where the query stands, as bytes."""
        room = self.single.query.most_spans
        stands = Stands(self.step, self.silent, self.step, room, self.after, *self.stored)
        return Standing(self.described, [stands]).encoded_state()


def read_again(content: Content) -> Pushed:
    """What a commit has charged and released, in arrays that nobody changes."""
    if isinstance(content, Pushed):
        return content
    charges, releases = content.encoded()
    return Pushed(_described_charges(charges), arrays.decode(releases))


def by_query(content: Pushed) -> Iterator[tuple[int, Charges, list[arrays.Array]]]:
    """(scope, charges, released arrays) of every query of a commit."""
    parts = iter(content.released)
    for scope, charges, count in content.charged:
        yield scope, charges, list(islice(parts, count))


class Session:
    """The one writer of a log.

    Parameters
    ----------
    queries
        A mechanism, or several by name. All of them name one policy: the session gives each its share of the budget.
    log
        Where commits are kept: a log, the path of a file, "postgresql://user@host/database#name", or None for memory.
        In memory without a log of your own, the releases of the last window are kept.
    head
        A head that this log had before. A log that does not have it is an older copy, and is refused.
    shares
        Of several queries: the part of the budget that each has, exactly, at most 1 in all.
    amend
        Whether a log of another configuration is amended: queries that changed end and begin, and are silent while
        windows still hold what the ended ones have read. `plan_amendment` says beforehand which. Otherwise another
        configuration is refused.
    about
        What else defines each query, by name, public and as JSON: for example which columns of a source it counts.
    names
        The names of the columns, in their order; for several queries a mapping from those whose columns have names. Then
        mappings and DataFrames are read by name; without, they are refused. They belong to the configuration of the log.

    Attributes
    ----------
    step
        The last step that was committed, of the query that is farthest; 0 before any.
    steps
        The same of each query.
    head
        The hash of the last commit. Keep it to notice an older copy of the log.
    position
        Where in the source the next read begins, as it was committed last.

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
        self._closed = ""  # why, if it is
        self._number = 0
        self._described = 0  # the commit that has the description
        self._head: Head = NO_HEAD
        self.step = 0
        self.position: bytes = b""
        window = max((query.account.window or 1 for query in self._queries), default=1)
        self._log = MemoryLog(window) if log is None else opened_log(log)
        self._single: Single | None = None
        try:
            self._open(description, head, amend)
        except BaseException:
            if self._log is not log:
                self._log.close()  # opened here: nobody else could
            raise
        if self._alone:
            self._single = Single.of(self._queries[0])

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return self._log.hashed(self._head)

    @property
    def steps(self) -> dict[str, int]:
        """The last step of each query."""
        return {query.name: query.step for query in self._queries}

    @property
    def closed(self) -> bool:
        """Whether it takes no more pushes: it was closed, has failed, or its stream has ended."""
        return bool(self._closed)

    @property
    def spent(self) -> dict[str, int]:
        """What the last window of each query has spent, in units.

        Of an ended stream, and of noise that steps shared before a halt or a restart, ask the log.
        """
        return {query.name: query.account.spent() for query in self._queries}

    @property
    def remaining(self) -> dict[str, int]:
        """What the next step of each query may be charged, in units."""
        return {query.name: query.account.remaining() for query in self._queries}

    # opening -----------------------------------------------------------------------------------------------------

    @property
    def scopes(self) -> dict[str, Scope]:
        """The part of the budget of each query, and the first step that it reads."""
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
            self._append(self._noted(OPENED, book.encoded(), self._standing()))
            return
        kept = _kept(self._log, loaded)
        if description != kept.book.description and not amend:
            raise LogMismatch(MISMATCH)
        self._resume(kept, description)

    def _resume(self, kept: Kept, description: dict[str, Any]) -> None:
        """Stand where the last commit stands, or begin what an amendment has begun."""
        row, book = kept.loaded.row, kept.book
        amends = description != book.description
        self._head, self._number, self.step = row.head, row.number + 1, row.last
        self.position, self._described = kept.position, kept.described
        if row.kind == FINISHED or (row.kind == HALTED and book.description["window"] is None):
            self._closed = ENDED if row.kind == FINISHED else HALTED_FOR_GOOD
            if amends:
                raise SessionClosed(self._closed)
        elif amends:
            if kept.loaded.secret is None or not kept.loaded.here:
                raise LogMismatch(COPIED)
            book = amended(book, description, self.step, kept.steps, kept.read)
        known = {scope.number for scope in kept.book.alive}
        named = {query.name: query for query in self._queries}
        self._queries = [
            named[scope.name] for scope in book.alive
        ]  # whatever their order in the configuration
        for query, scope in zip(self._queries, book.alive, strict=True):
            query.begin(scope, kept.steps.get(scope.name, self.step))
            if scope.number in known:
                query.silent_until = kept.silent[scope.name]
        if self._closed:
            return
        kept_queries = [query for query in self._queries if query.scope.number in known]
        self._replay(kept_queries, kept.steps, row.number)
        for query in kept_queries:
            parts = kept.state[query.name]
            if parts:
                query.load(iter(parts))
                if isinstance(query.mechanism, Resumes):
                    query.mechanism.resume(query.state, query.step, query.account.recent())
            else:  # behind a halt there is none
                query.stand_on(query.mechanism.begin(query.silent_until + 1))
        self._remember(kept_queries)
        if amends:
            self._described = self._number
            self._append(self._noted(AMENDED, book.encoded(), self._standing()))
        elif kept.loaded.secret is None or not kept.loaded.here:
            whole = kept.loaded.secret is not None  # a backup has no state of any query
            self._restart([each for each in self._queries if each.mechanism.noise_in_state or not whole])

    def _restart(self, dropped: list[Query]) -> None:
        """Begin queries anew whose noise to come belongs to another file."""
        if not all(query.restart() for query in dropped):
            self._closed = COPIED_FOR_GOOD
        elif dropped:
            silent = arrays.encode(
                [np.array([query.silent_until for query in self._queries], dtype=np.int64)]
            )
            self._append(self._noted(RESTARTED, silent, self._standing()))

    def _replay(self, queries: list[Query], steps: Mapping[str, int], number: int) -> None:
        """Rebuild the units of the last windows from their charges, up to a commit."""
        by_scope = {query.scope.number: query for query in queries}
        since = {
            query.scope.number: max(1, steps[query.name] - (query.account.window or 1) + 1)
            for query in queries
        }
        for query in queries:
            query.account.step = since[query.scope.number] - 1
        # an event before the first step is charged to it
        for row in checked(self._log, self._log.rows_since(min(since.values(), default=1) - 1)):
            if row.kind not in CHARGED or row.number > number:
                continue
            for scope, charges in charges_of(row):
                begin = max(charges.first, since.get(scope, charges.last + 2))
                if scope not in by_scope or begin > charges.last + 1:
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

    def _remember(self, queries: list[Query]) -> None:
        """Let intervals be learnt from what the log still has of the last steps."""
        for query in queries:
            history = query.history
            if history is None or not history.remembered:
                continue
            for row in checked(self._log, self._log.rows_since(max(1, query.step - history.remembered + 1))):
                scopes = [scope for scope, _ in charges_of(row)] if row.kind == PUSHED else []
                if row.kind == HALTED:
                    query.history = new_history(query.mechanism)
                elif query.scope.number in scopes and row.releases is not None and query.history is not None:
                    query.history.learn(partial(self._again, query, Written(row.charges, row.releases)))

    # pushing -----------------------------------------------------------------------------------------------------

    def push(self, values: Any, step: Steps = None, position: Position = None) -> Any:
        """Release the next step: committed before it returns.

        Parameters
        ----------
        values
            The values of the step; for several queries a mapping from their names. Queries that are not named stay
            where they are.
        step
            Its number, or a mapping from names to numbers; by default the next one of each query. Steps that are passed
            over cost nothing, and nothing is said of them.
        position
            Where in the source the next read begins; stored with the commit.
        """
        single = self._single
        if (
            single is not None
            and step is None
            and self.step == single.account.step >= single.query.silent_until
        ):
            if type(values) in NO_TIMES:
                return self._push_one(single, single.read(values), position)
            time = frames.time_of(values)
            release = self._push_one(single, single.read(values), position)
            release.time = time
            return release
        parts = [(self._queries[0], values)] if self._alone else self._parts(values)
        times = [None if type(part) in NO_TIMES else frames.time_of(part) for _, part in parts]
        found = self._push([(query, query.reader.row(part)) for query, part in parts], step, position, True)
        for (query, _), known in zip(parts, times, strict=True):
            (found if self._alone else found[query.name]).time = known
        return found

    def push_batch(self, values: Any, step: Steps = None, position: Position = None) -> Any:
        """Release several steps in one commit, of each query as many as are given; `step` is the first of them."""
        parts = [(self._queries[0], values)] if self._alone else self._parts(values)
        times = [frames.times_of(part, query.names) for query, part in parts]
        found = self._push([(query, query.reader.rows(part)) for query, part in parts], step, position)
        for (query, _), known in zip(parts, times, strict=True):
            (found if self._alone else found[query.name]).times = known
        return found

    def _parts(self, values: Any) -> list[tuple[Query, Any]]:
        """The values of each query, where there are several."""
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
            place = self.position if position is None else _as_bytes(position)
            for query, matrix, first in pushes:
                query.check_public(first, len(matrix))
            self._closed = BUSY
            made = self._made(pushes, place)
            if made is None:
                self._halt([(query, first, len(matrix)) for query, matrix, first in pushes], place)
            commit, checked, released = made
            self._append(commit)
            for push, fits in zip(pushes, checked, strict=True):
                push.query.account.apply(fits)
            self.step, self.position = commit.last, place
            self._closed = ""
            self._attach_intervals(released, commit.content)
            if single:
                released = {name: each[0] for name, each in released.items()}
            return released[""] if self._alone else released

    def _push_one(self, single: Single, row: Any, position: Position) -> Release:
        """`_push` of the next step of a query that measures all steps in the same way: the same, with plain numbers."""
        turns, account, units = self._turns, single.account, single.units
        turns.check_process()
        with turns.lock:
            if turns.busy:
                raise SessionClosed(REENTERED)
            try:
                turns.busy = True
                if self._closed:
                    raise SessionClosed(self._closed)
                place = self.position if position is None else _as_bytes(position)
                after = account.check_next(units)
                self._closed = BUSY
                try:  # what is raised may tell of the data or of the noise, so nothing of it leaves
                    step, query = account.step + 1, single.query
                    values, spans = single.measure(query.state, row, step, query.draws)
                    if values.shape != single.shape or values.dtype != FLOAT or values.base is not None:
                        raise ValueError("a mechanism must release every column, in a new array")
                    if spans:
                        after = account.check_next(units, spans)
                    stored = query.stored(after)
                    state = One(
                        single,
                        step,
                        values.tobytes(),
                        spans,
                        self._described,
                        query.silent_until,
                        after,
                        stored,
                    )
                    content = state.encoded() if self._log.durable else state
                    commit = Commit(self._number, PUSHED, step, step, content, place, state)
                except Exception:
                    commit = None
                if commit is None:
                    self._halt([(single.query, account.step + 1, 1)], place)
                self._append(commit)
                account.apply_next(units, after)
                self.step, self.position, self._closed = step, place, ""
            finally:
                turns.busy = False
        release = Release(step, values, FRESH, step, single.scale, units, single.unit)
        if single.follow is not None:
            single.follow(release)
        return release

    def _made(
        self, pushes: list[Push], position: bytes
    ) -> tuple[Commit, list[Checked], dict[str, Any]] | None:
        """The commit of the next steps, and what is returned after it; None where anything failed.

        What was raised may tell of the data or of the noise, so nothing of it leaves.
        """
        try:
            outputs = [query.advance(rows, first) for query, rows, first in pushes]
            charged, leaving, checked, after, released = [], [], [], {}, {}
            for push, output in zip(pushes, outputs, strict=True):
                push.query.check_output(output, len(push.rows))
            for (query, _, first), output in zip(pushes, outputs, strict=True):
                # an array that is a part of another one, such as a state's, is copied
                units, spans, *parts = [
                    part if part.base is None else part.copy()
                    for part in (output.units, output.spans, *output.released)
                ]
                fits = query.account.check(Charges(first, units, spans))
                checked.append(fits)
                charged.append((query.scope.number, fits.charges, query.released))
                leaving += parts
                after[query.name] = fits
                copies = [part.copy() for part in parts]  # for the caller, who may write to them
                released[query.name] = releases_by(
                    query.mechanism, query.unit, first, copies, units.copy(), query.names
                )
            made = Pushed(charged, leaving)
            content: Content = made.encoded() if self._log.durable else made.checked()
            begin = max(self.step + 1, min(push.first for push in pushes))
            end = max([self.step, *[push.first + len(push.rows) - 1 for push in pushes]])
            commit = Commit(self._number, PUSHED, begin, end, content, position, self._standing(after))
            return commit, checked, released
        except Exception:
            return None

    def _halt(self, failed: list[tuple[Query, int, int]], position: bytes) -> NoReturn:
        """Charge all that is left for steps whose noise was drawn, and release nothing of them."""
        made = self._halt_made(failed, position)
        if made is None:  # never tried again with other noise: the log takes nothing more
            self._append(self._noted(FINISHED, b"", self._no_standing()))
            self._closed = ENDED
            raise Halted(
                "the stream has ended: a mechanism failed after noise was drawn, and what is left could not be "
                "charged; begin another one."
            )
        commit, charged = made
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

    def _halt_made(
        self, failed: list[tuple[Query, int, int]], position: bytes
    ) -> tuple[Commit, Charged] | None:
        """The commit of a halt, and its charges; None where anything failed."""
        try:
            checked = [(query, query.halted(first, count)) for query, first, count in failed]
            charged = [(query.scope.number, fits.charges, query.released) for query, fits in checked]
            first = max(self.step + 1, min(fits.charges.first for _, fits in checked))
            last = max([self.step, *(fits.charges.last for _, fits in checked)])
            content = Written(encoded(charged), b"")
            for query, fits in checked:
                query.account.apply(fits)
            for query in self._queries:  # also those that were not pushed: nothing of any state is stored
                query.fall_silent()
            return Commit(self._number, HALTED, first, last, content, position, self._no_standing()), charged
        except Exception:
            return None

    def _noted(self, kind: int, charges: bytes, state: Standing, releases: bytes = b"") -> Commit:
        """A commit that is about no step."""
        content = Written(charges, releases)
        return Commit(self._number, kind, self.step + 1, self.step, content, self.position, state)

    def _append(self, commit: Commit) -> None:
        """Write a commit behind the last one."""
        self._head = self._log.append(self._head, commit)
        self._number = commit.number + 1

    def _standing(
        self, after: Mapping[str, Checked] | None = None, events: Mapping[str, int] | None = None
    ) -> Standing:
        """What a commit keeps of all queries: as they are, or after charges or an event."""
        checked, charged = after or {}, events or {}
        return Standing(
            self._described,
            [query.stands(checked.get(query.name), bool(charged.get(query.name))) for query in self._queries],
        )

    def _no_standing(self) -> Standing:
        """The same without any state."""
        return Standing(self._described, [query.stands_without_state() for query in self._queries])

    def _released(self, content: Pushed) -> dict[str, Any]:
        """What a commit has released, by query.

        Queries that an amendment has ended are left out.
        """
        found: dict[str, Any] = {}
        by_scope = {query.scope.number: query for query in self._queries}
        for scope, charges, own in by_query(content):
            if scope in by_scope:
                query = by_scope[scope]
                found[query.name] = releases_by(
                    query.mechanism, query.unit, charges.first, own, charges.units, query.names
                )
        return found

    def _again(self, query: Query, content: Content) -> Any:
        """What a query has released with a commit."""
        return self._released(read_again(content))[query.name]

    def _attach_intervals(self, released: Mapping[str, Any], content: Content) -> None:
        """Give releases their intervals, which are worked out when somebody asks for them."""
        for query in self._queries:
            if query.history is not None and query.name in released:
                query.history.follow(released[query.name], partial(self._again, query, content))

    def releases(self, since: int = 1) -> Iterator[Any]:
        """What was committed from a step on and is still in the log, one item per commit.

        Queries that read late data are behind: their commits belong to the steps that the session had come to. Queries
        that an amendment has ended are left out; read what they have released before it.
        """
        histories = [(query, new_history(query.mechanism)) for query in self._queries]
        for row in self._log.rows_since(since):
            found = self._released_by(row)
            for query, history in histories:
                if history is not None and query.name in found:
                    content = Written(row.charges, row.releases or b"")
                    history.follow(found[query.name], partial(self._again, query, content))
            if found:
                yield found[""] if self._alone else found

    def _released_by(self, row: Row) -> dict[str, Any]:
        if row.releases is None or row.kind not in (PUSHED, FINISHED) or not row.charges:
            return {}
        return self._released(read_again(Written(row.charges, row.releases)))

    def event(self, name: str) -> None:
        """Tell all queries of a public event, for example "intrusion": one commit, with what it costs.

        What it costs is charged to the step in progress, the next one of each query. An event that no query knows is
        refused, and the session stays open.
        """
        told = _name_of_event(name)
        with self._turns.one():
            self._check_open()
            handling = [
                query
                for query in self._queries
                if isinstance(query.mechanism, HandlesEvents) and query.mechanism.hears(name)
            ]
            if not handling:
                raise InvalidInput(
                    "no query of this session hears of this event; name one that a mechanism knows."
                )
            for query in handling:
                query.check_step()
            self._closed = BUSY
            made = self._event_made(handling, name, told)
            if made is None:
                self._halt([(query, query.step + 1, 1) for query in handling], self.position)
            commit, units = made
            self._append(commit)
            for query, charged in zip(handling, units, strict=True):
                if charged:
                    query.account.apply_event(charged)
            self._closed = ""

    def _event_made(self, handling: list[Query], name: str, told: bytes) -> tuple[Commit, list[int]] | None:
        """The commit of an event, and what it costs each query; None where anything failed."""
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
            ) + arrays.encode([np.frombuffer(told, dtype=np.int8)])
            state = self._standing(events=dict(zip([query.name for query in handling], units, strict=True)))
            return self._noted(EVENT, charges, state), units
        except Exception:
            return None

    # the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> Any:
        """End the stream for good, and return what its end releases; None where nothing is left to say.

        No session pushes to this log any more, and noise to come is dropped. What the end says is in `revised`: it has
        0 steps of its own. For several queries it is a mapping of those that say something.
        """
        with self._turns.one():
            self._check_open()
            self._closed = BUSY
            made = self._finish_made()
            commit = self._noted(FINISHED, b"", self._no_standing()) if made is None else made[0]
            self._append(commit)
            self._closed = ENDED
            if made is None:
                raise Halted(
                    "the stream has ended; what its end releases could not be computed, and is dropped."
                )
            self._attach_intervals(made[1], commit.content)
            return made[1].get("") if self._alone else made[1]

    def _finish_made(self) -> tuple[Commit, dict[str, Any]] | None:
        """The last commit, and what is returned after it; None where anything failed: that is never retried."""
        try:
            outputs = [(query, query.finish()) for query in self._queries]
            said = [(query, output) for query, output in outputs if output is not None]
            charged = [
                (query.scope.number, Charges(query.step + 1, np.zeros(0, dtype=np.int64)), query.released)
                for query, _ in said
            ]
            content = Pushed(charged, [part for _, output in said for part in output.released]).encoded()
            commit = self._noted(FINISHED, content.charges, self._no_standing(), content.releases)
            return commit, self._released(read_again(content))
        except Exception:
            return None

    def close(self) -> None:
        """Close the log; what was committed stays."""
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
    """What one query gets in a push."""

    query: Query
    rows: Matrix
    first: int


class Kept(NamedTuple):
    """What the last commit of a log has, by the names of its queries."""

    loaded: Loaded
    book: Book
    described: int  # the commit that has the book
    steps: dict[str, int]
    silent: dict[str, int]
    read: dict[str, int]  # the last step that was charged: an event is charged to the step in progress
    state: dict[str, list[arrays.Array]]
    position: bytes


def opened_log(log: Log | Path | str) -> Log:
    """A log, or the one of a path or URL."""
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
    """What `Session(queries, log, shares=shares, amend=True)` would do: which queries are silent until when.

    Nothing is written.

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
        kept = _kept(opened, loaded)
        if description == kept.book.description:
            return compare(kept.book, kept.book)
        return compare(kept.book, amended(kept.book, description, loaded.row.last, kept.steps, kept.read))
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
    """Queries that run with their shares, and their description."""
    named: Mapping[str, Mechanism] = queries if isinstance(queries, Mapping) else {"": queries}
    parts, fractions = divided(named, shares)
    made = [Query(name, mechanism, source) for name, mechanism in parts.items()]
    accounts = {query.name: query.account.describe() for query in made}
    columns = _named_columns(made, names, not isinstance(queries, Mapping))
    return made, described(not source.marked, parts, fractions, accounts, about or {}, columns)


def _named_columns(queries: list[Query], names: Names, alone: bool) -> dict[str, tuple[str, ...]]:
    """The names of the columns of queries that have some, which are read by them from now on."""
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


def _kept(log: Log, loaded: Loaded) -> Kept:
    """The last commit, taken apart; its state is compared with its digest."""
    if loaded.secret is None:
        return _kept_in_rows(log, loaded)
    position, state = unsealed(loaded.secret, loaded.row.secret_digest)
    try:
        place, *rest = arrays.decode(state)
        described = int(place[0, 0])
        book = Book.decoded(next(checked(log, log.rows(described))).charges)
        steps, silent, read, states = {}, {}, {}, {}
        for scope, (step, quiet, charged, length) in zip(book.alive, place[1:].tolist(), strict=True):
            steps[scope.name], silent[scope.name], read[scope.name] = step, quiet, charged
            states[scope.name], rest = rest[:length], rest[length:]
    except (ValueError, IndexError, StopIteration):
        raise LogDamaged("the log's state is not one that Tidegate has written; restore a backup.") from None
    return Kept(loaded, book, described, steps, silent, read, states, position)


def _kept_in_rows(log: Log, loaded: Loaded) -> Kept:
    """What a backup without its secret has: no state and no position, and how far each query has come."""
    book, described, steps, read = Book({}, (), (), (), 0), 0, dict[str, int](), dict[str, int]()
    for row in checked(log, log.rows()):
        if row.kind in (OPENED, AMENDED):
            book, described = Book.decoded(row.charges), row.number
            steps = {scope.name: steps.get(scope.name, row.last) for scope in book.alive}
            read = {name: max(step, read.get(name, 0)) for name, step in steps.items()}
        elif row.kind in CHARGED:
            names = {scope.number: scope.name for scope in book.alive}
            for number, charges in charges_of(row):
                read[names[number]] = charges.last
                if row.kind != EVENT:
                    steps[names[number]] = charges.last
    silent = {scope.name: scope.first - 1 for scope in book.alive}
    states: dict[str, list[arrays.Array]] = {name: [] for name in silent}
    return Kept(loaded, book, described, steps, silent, read, states, b"")


def _first(query: Query, step: Steps) -> int:
    """The first step that a query is pushed."""
    given = step.get(query.name) if isinstance(step, Mapping) else step
    return query.step + 1 if given is None else whole("step", given)


def encoded(charged: Charged) -> bytes:
    """Charges: a table of scope, first step, steps and released arrays; then units and spans of each."""
    table = [(scope, charges.first, len(charges.units), count) for scope, charges, count in charged]
    parts = [np.array(table, dtype=np.int64).reshape(-1, TABLE_FIELDS)]
    for _, charges, _ in charged:
        parts += [charges.units, charges.spans]
    return arrays.encode(parts)


def _described_charges(data: bytes) -> Charged:
    """(scope, charges, released arrays) of every query that a commit is about."""
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
    """The charges of a row, by scope."""
    return [(scope, charges) for scope, charges, _ in _described_charges(row.charges)]


def _as_bytes(position: bytes | str | int) -> bytes:
    return position if isinstance(position, bytes) else str(position).encode()


def _name_of_event(name: object) -> bytes:
    """As a row has it."""
    with suppress(UnicodeEncodeError):
        if isinstance(name, str):
            return name.encode()
    raise InvalidInput("the name of an event must be text; write for example intrusion.")


def releases_of(row: Row, queries: Mapping[int, tuple[str, Mechanism]]) -> dict[str, Any] | None:
    """What a commit has released, without intervals, for who reads a log without a session.

    Parameters
    ----------
    row
        The commit.
    queries
        Name and mechanism of each scope that is read, by its number.

    Returns
    -------
    dict or None
        Releases by the names of queries; None where the commit has none, or they are not kept.
    """
    if row.releases is None or row.kind not in (PUSHED, FINISHED) or not row.charges:
        return None
    if sha256(row.releases).digest() != row.releases_digest:
        raise LogDamaged(
            f"the releases of commit {row.number} are not those of its digest; restore a backup."
        )
    found: dict[str, Any] = {}
    for scope, charges, own in by_query(read_again(Written(row.charges, row.releases))):
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
