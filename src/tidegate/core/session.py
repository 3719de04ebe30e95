"""The session: the one owner of a log. Push values, get releases that are committed.

States and transitions (docs/proofs/core.md):

    OPEN --push--> BUSY --commit--> OPEN
                   BUSY --kill, interrupt, failed commit, fenced--> CLOSED    open the log again
                   BUSY --anything else is raised--> CLOSED                  a halt commit: charged, nothing is released
    OPEN --close, finish--> CLOSED

A refusal that depends on public numbers, or on the form of the input, comes before BUSY and leaves the session open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from tidegate.core import arrays
from tidegate.core.account import Account, Checked
from tidegate.core.charges import NO_SPANS, Charges, Integers, Span, span_rows
from tidegate.core.commit import (
    FINISHED,
    HALTED,
    NO_HEAD,
    OPENED,
    PUSHED,
    RESTARTED,
    SALT_BYTES,
    Commit,
    Row,
    sealed,
    unsealed,
)
from tidegate.core.errors import Halted, LogDamaged, LogMismatch, SessionClosed
from tidegate.core.log import Loaded, Log, MemoryLog
from tidegate.core.mechanism import Mechanism, Output, Resumes, unit_of
from tidegate.core.rows import Draws
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.turns import Turns
from tidegate.core.values import Matrix, ValueReader
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import whole
from tidegate.noise.entropy import Source, current, fresh_bytes
from tidegate.releases import Releases

BUSY = "a push of this session was interrupted, and what it made was not committed; open the log again."
CLOSED = "this session is closed; open the log again."
ENDED = "this stream was finished; begin another one."
HALTED_FOR_GOOD = "this stream was halted, and at user level no budget returns; begin another one."
COPIED_FOR_GOOD = "this log is a copy, and at user level noise cannot begin anew; continue the original."
OUTPUTS = 4  # arrays that every query releases: values, status, source, scale

Position = bytes | str | int | None


class Query:
    """One statistic of a session: its mechanism, its account, its state."""

    __slots__ = ("account", "draws", "mechanism", "name", "reader", "silent_until", "state")

    def __init__(self, name: str, mechanism: Mechanism, source: Source) -> None:
        self.name, self.mechanism, self.draws = name, mechanism, Draws(source)
        policy = mechanism.policy
        self.account = Account(mechanism.units, policy.window, policy.horizon)
        clamp = None if mechanism.clamp is None else Fraction(mechanism.clamp)
        self.reader = ValueReader(mechanism.columns, Fraction(mechanism.grid), mechanism.rounding, clamp)
        self.state: Any = mechanism.begin(1)
        self.silent_until = 0  # steps up to this one release nothing and cost nothing

    def check_public(self, first: int, count: int) -> None:
        """Refuse what the next steps cost at least, before a random word is drawn."""
        silent = self._silent(first, count)
        self.account.check(
            self.mechanism.public(self.state, first + silent, count - silent).after_silence(silent)
        )

    def halted(self, first: int, count: int) -> Checked:
        """What is charged for steps that failed: all that is left, but for those that are silent anyway."""
        silent = self._silent(first, count)
        return self.account.check(self.account.fill(first + silent, first + count - 1).after_silence(silent))

    def _silent(self, first: int, count: int) -> int:
        """How many of the next steps are silent."""
        return min(max(0, self.silent_until - first + 1), count)

    def advance(self, rows: Matrix, first: int) -> Output:
        """Release the next steps, the first of which may be silent."""
        silent = self._silent(first, len(rows))
        if not silent:
            return self.mechanism.advance(self.state, rows, first, self.draws)
        rest = self.mechanism.advance(self.state, rows[silent:], first + silent, self.draws)
        if (rest.spans[rest.spans[:, 4] > 0, 2] < first + silent).any():
            raise ValueError("a span begins at a silent step")
        return rest.after_silence(silent)

    def restart(self, last: int) -> bool:
        """Begin anew when no window contains a step up to `last` any more; False where that never happens."""
        window = self.account.window
        if window is None:
            return False
        self.silent_until = max(self.silent_until, last + window - 1)
        self.account.end_spans()
        self.state = self.mechanism.begin(self.silent_until + 1)
        return True

    def stored(self, checked: Checked) -> Iterator[arrays.Array]:
        """What a commit keeps of it: the account's spans, and the state."""
        room = self.mechanism.most_spans
        known = np.full((room, 2), -1, dtype=np.int64)  # never more laws than spans
        for row, pair in zip(known[: len(checked.ordinals)], checked.ordinals.items(), strict=True):
            row[:] = pair
        yield np.array([checked.total, self.silent_until], dtype=np.int64)
        yield span_rows(list(checked.live.values()), room)
        yield known
        yield from arrays.flat(self.state)

    def load(self, parts: Iterator[arrays.Array]) -> None:
        """Take over what `stored` has given."""
        template = (
            np.zeros(2, dtype=np.int64),
            NO_SPANS,
            np.zeros((0, 2), dtype=np.int64),
            self.mechanism.begin(1),
        )
        numbers, spans, ordinals, self.state = arrays.rebuilt(template, parts)
        total, self.silent_until = numbers.tolist()
        live = {(row[0], row[1]): Span(*row) for row in spans.tolist() if row[4]}
        self.account.restore(
            total, live, {law: ordinal for law, ordinal in ordinals.tolist() if ordinal >= 0}
        )


class Session:
    """The one writer of a log.

    Parameters
    ----------
    queries
        A mechanism, or several by name. All of them read the same steps.
    log
        Where commits are kept: a log, the path of a file, or None for memory.
    head
        A head that this log had before. A log that does not have it is an older copy, and is refused.

    Attributes
    ----------
    step
        The last step that was committed; 0 before any.
    head
        The hash of the last commit. Keep it to notice an older copy of the log.
    position
        Where in the source the next read begins, as it was committed last.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate._mechanisms.plain.uniform import Uniform
    >>> with Session(Uniform(tg.WEvent(epsilon="1", w=24), columns=3)) as session:
    ...     releases = session.push([12, 0, 7])
    >>> releases.values.shape, session.step
    ((1, 3), 1)
    """

    def __init__(
        self,
        queries: Mechanism | Mapping[str, Mechanism],
        log: Log | Path | str | None = None,
        head: bytes | None = None,
    ) -> None:
        named: Mapping[str, Mechanism] = queries if isinstance(queries, Mapping) else {"": queries}
        if not named:
            raise InvalidParameter("queries", "none", "at least one mechanism", "name one")
        self._alone = not isinstance(queries, Mapping)
        source = current()
        self._queries = [Query(name, mechanism, source) for name, mechanism in named.items()]
        self._turns = Turns()
        self._closed = ""  # why, if it is
        self._number = 0
        self.head: bytes = NO_HEAD
        self.step = 0
        self.position: bytes = b""
        self._log = MemoryLog() if log is None else SQLiteLog(log) if isinstance(log, Path | str) else log
        try:
            self._open(json.dumps(self._description(source)).encode(), head)
        except BaseException:
            if self._log is not log:
                self._log.close()  # opened here: nobody else could
            raise

    # opening -----------------------------------------------------------------------------------------------------

    def _description(self, source: Source) -> dict[str, Any]:
        accounts = {query.name: query.account.describe() for query in self._queries}
        described = {query.name: query.mechanism.describe() for query in self._queries}
        return {"tidegate": 1, "private": not source.marked, "accounts": accounts, "queries": described}

    def _open(self, description: bytes, head: bytes | None) -> None:
        loaded = self._log.load()
        if head is not None and not any(row.head == head for row in self._log.rows()):
            raise LogMismatch(
                "the log does not have the head that was given, so it is an older copy; use the newer one."
            )
        if loaded is None:
            self._append(self._commit(OPENED, 1, 0, description, b"", b"", self._standing()))
            return
        if next(self._log.rows()).charges != description:
            raise LogMismatch(
                "the log was begun with other queries, parameters or entropy; open it with its own configuration, or "
                "choose another path."
            )
        self._resume(loaded)

    def _resume(self, loaded: Loaded) -> None:
        """Stand where the last commit stands."""
        row = loaded.row
        self.head, self._number, self.step = row.head, row.number + 1, row.last
        self.position, state = unsealed(loaded.secret, row.secret_digest)
        if row.kind == FINISHED:
            self._closed = ENDED
            return
        self._replay(row.number)
        if row.kind == HALTED:  # has no state, and its steps say until when nothing is released
            if not all(query.restart(self.step) for query in self._queries):
                self._closed = HALTED_FOR_GOOD
            return
        parts = iter(arrays.decode(state))
        for query in self._queries:
            query.load(parts)
            if isinstance(query.mechanism, Resumes):
                query.mechanism.resume(query.state, self.step, query.account.recent())
        dropped = [query for query in self._queries if query.mechanism.noise_in_state and not loaded.here]
        if not all(query.restart(self.step) for query in dropped):
            self._closed = COPIED_FOR_GOOD
        elif dropped:
            silent = np.array([query.silent_until for query in self._queries], dtype=np.int64)
            told = arrays.encode([silent])
            self._append(
                self._commit(RESTARTED, self.step + 1, self.step, told, b"", self.position, self._standing())
            )

    def _replay(self, number: int) -> None:
        """Rebuild the units of the last windows from their charges, up to a commit."""
        windows = [query.account.window or 1 for query in self._queries]
        first = max(1, self.step - max(windows) + 2)
        for query in self._queries:
            query.account.step = first - 1
        for row in self._log.rows_since(first):
            if row.last >= row.first and row.number <= number:
                begin = max(row.first, first)
                for query, (units, _) in zip(self._queries, charges_of(row), strict=True):
                    query.account.load(Charges(begin, units[begin - row.first :]))

    # pushing -----------------------------------------------------------------------------------------------------

    def push(self, values: Any, step: int | None = None, position: Position = None) -> Any:
        """Release the next step: committed before it returns.

        Parameters
        ----------
        values
            The values of the step; for several queries a mapping from their names.
        step
            Its number. Steps that are passed over cost nothing, and nothing is said of them.
        position
            Where in the source the next read begins; stored with the commit.
        """
        return self._push([query.reader.row(part) for query, part in self._parts(values)], step, position)

    def push_batch(self, values: Any, position: Position = None) -> Any:
        """Release several steps in one commit."""
        return self._push([query.reader.rows(part) for query, part in self._parts(values)], None, position)

    def _parts(self, values: Any) -> Iterator[tuple[Query, Any]]:
        if self._alone:
            yield self._queries[0], values
            return
        if not isinstance(values, Mapping) or set(values) != {query.name for query in self._queries}:
            raise InvalidInput(
                "values of several queries are a mapping with the name of each; name all of them."
            )
        for query in self._queries:
            yield query, values[query.name]

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(self._closed)

    def _push(self, matrices: list[Matrix], step: int | None, position: Position) -> Any:
        count = len(matrices[0])
        if any(len(matrix) != count for matrix in matrices):
            raise InvalidInput("all queries release the same steps; push as many rows for each.")
        with self._turns.one():
            self._check_open()
            first = self.step + 1 if step is None else whole("step", step)
            place = self.position if position is None else _as_bytes(position)
            for query in self._queries:
                query.check_public(first, count)
            self._closed = BUSY
            made = self._made(matrices, first, place)
            if made is None:
                self._halt(first, first + count - 1, place)
            commit, checked, released = made
            self._append(commit)
            for query, fits in zip(self._queries, checked, strict=True):
                query.account.apply(fits)
            self.step, self.position = commit.last, place
            self._closed = ""
            return released

    def _made(
        self, matrices: list[Matrix], first: int, position: bytes
    ) -> tuple[Commit, list[Checked], Any] | None:
        """The commit of the next steps, and what is returned after it; None where anything failed.

        What was raised may tell of the data or of the noise, so nothing of it leaves.
        """
        try:
            count = len(matrices[0])
            outputs = [
                query.advance(rows, first) for query, rows in zip(self._queries, matrices, strict=True)
            ]
            for query, output in zip(self._queries, outputs, strict=True):
                output.check_shape(count, query.mechanism.outputs)
            checked = [
                query.account.check(Charges(first, output.units, output.spans))
                for query, output in zip(self._queries, outputs, strict=True)
            ]
            releases = arrays.encode(part for output in outputs for part in output.released)
            commit = self._commit(
                PUSHED, first, first + count - 1, encoded(checked), releases, position, self._state(checked)
            )
            return commit, checked, self._released(first, releases, [each.units for each in outputs])
        except Exception:
            return None

    def _halt(self, first: int, last: int, position: bytes) -> NoReturn:
        """Charge all that is left for steps whose noise was drawn, and release nothing of them."""
        checked = [query.halted(first, last - first + 1) for query in self._queries]
        self._append(self._commit(HALTED, first, last, encoded(checked), b"", position, b""))
        self.step, self.position = last, position
        self._closed = f"steps {first} to {last} failed after noise was drawn; open the log again to continue after them."
        raise Halted(
            f"steps {first} to {last} are charged and not released, because a mechanism failed after noise was drawn; "
            "open the log again: it continues when their windows have passed."
        )

    def _commit(
        self, kind: int, first: int, last: int, charges: bytes, releases: bytes, position: bytes, state: bytes
    ) -> Commit:
        secret = sealed(fresh_bytes(SALT_BYTES), position, state)
        return Commit(self._number, kind, first, last, charges, releases, secret)

    def _append(self, commit: Commit) -> None:
        """Write a commit behind the last one."""
        self.head = self._log.append(self.head, commit)
        self._number = commit.number + 1

    def _state(self, checked: list[Checked]) -> bytes:
        """What a commit keeps of all queries."""
        return arrays.encode(
            part for query, fits in zip(self._queries, checked, strict=True) for part in query.stored(fits)
        )

    def _standing(self) -> bytes:
        """The same for a commit that charges nothing."""
        return self._state([query.account.standing() for query in self._queries])

    def _released(self, first: int, releases: bytes, units: list[Integers]) -> Any:
        """What a commit has released, from its bytes: nothing that is returned is shared with a state."""
        parts = iter(arrays.decode(releases))
        found = {}
        for query, charged in zip(self._queries, units, strict=True):
            own = [next(parts) for _ in range(OUTPUTS + sum(_further(query.mechanism)))]
            found[query.name] = _releases(query.mechanism, first, own, charged.copy())
        return found[""] if self._alone else found

    def releases(self, since: int = 1) -> Iterator[Any]:
        """What was committed from a step on and is still in the log, one item per commit."""
        for row in self._log.rows_since(since):
            if row.kind == PUSHED and row.releases is not None:
                yield self._released(row.first, row.releases, [units for units, _ in charges_of(row)])

    # the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the stream for good: no session pushes to this log any more, and noise to come is dropped."""
        with self._turns.one():
            self._check_open()
            self._closed = BUSY
            self._append(self._commit(FINISHED, self.step + 1, self.step, b"", b"", self.position, b""))
            self._closed = ENDED

    def close(self) -> None:
        """Close the log; what was committed stays."""
        if not self._turns.forked:
            with self._turns.one():
                self._closed = self._closed or CLOSED
                self._log.close()

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


def encoded(checked: list[Checked]) -> bytes:
    """The charges of all queries."""
    return arrays.encode(part for fits in checked for part in (fits.charges.units, fits.charges.spans))


def charges_of(row: Row) -> list[tuple[arrays.Array, arrays.Array]]:
    """Units and spans of every query, as a row has them."""
    found = arrays.decode(row.charges)
    if len(found) % 2:
        raise LogDamaged(f"commit {row.number} has no charges that can be read; restore a backup.")
    return list(zip(found[::2], found[1::2], strict=True))


def _as_bytes(position: bytes | str | int) -> bytes:
    return position if isinstance(position, bytes) else str(position).encode()


def _further(mechanism: Mechanism) -> tuple[int, int]:
    """How many arrays it releases besides: per step, and about earlier ones."""
    return len(getattr(mechanism, "more", ())), len(getattr(mechanism, "revised", ()))


def _releases(mechanism: Mechanism, first: int, parts: Sequence[arrays.Array], units: arrays.Array) -> Any:
    values, status, source, scale, *further = parts
    found = Releases(first, values, status, source, scale, units, unit_of(mechanism))
    attach = getattr(mechanism, "attach", None)
    more = _further(mechanism)[0]
    return found if attach is None else attach(found, further[:more], further[more:])
