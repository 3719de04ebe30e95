"""The store: releases, state and positions in the ledger's own database, so that one commit holds them all."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.config.config import fingerprint_of
from tidegate.errors import LedgerCorrupt, LedgerError, LedgerMismatch, TidegateError, check_scheme
from tidegate.ingest.quantiles import method_of
from tidegate.ledger import Ledger, SQLiteLedger, Verdict, verify_file
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.postgres import PostgresLedger, is_url, verify_url
from tidegate.ledger.replay import DAMAGE
from tidegate.ledger.rows import Row
from tidegate.ledger.windows import window_units
from tidegate.policy import Policy
from tidegate.runtime import kept
from tidegate.runtime.chain import LAST_LINK, TABLE, Anchor, Chain, state_digest, stored_bytes
from tidegate.runtime.chunks import Chunk, Integers, Values, newest
from tidegate.runtime.errors import StreamChanged
from tidegate.servers.postgres import SCHEMES

Position = dict[str, Any]

TABLES = (
    # what the stream is, and how far it has got; the state is the mechanism's snapshot
    "CREATE TABLE IF NOT EXISTS {stream} (id {integer} PRIMARY KEY CHECK (id = 1), described TEXT NOT NULL, "
    "step {integer} NOT NULL, number {integer} NOT NULL, position TEXT, state {bytes})",
    # chunks of releases under the number of their last one
    "CREATE TABLE IF NOT EXISTS {releases} (number {integer} PRIMARY KEY, content {bytes} NOT NULL)",
    # steps that were released more than once
    "CREATE TABLE IF NOT EXISTS {revisions} (first {integer} NOT NULL, last {integer} NOT NULL, "
    "revision {integer} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS {revised} ON {revisions} (last)",
    # up to which number each sink has everything, and what it needs to go on from there
    "CREATE TABLE IF NOT EXISTS {sinks} (name TEXT PRIMARY KEY, number {integer} NOT NULL, position TEXT NOT NULL)",
)


# what to do about a configuration that has changed
_AMEND = (
    "put it back, amend the stream with `tidegate amend`, or begin a new one with another ledger, whose budget adds to "
    "this one's."
)
_REMOVE = "put it back, or, since it has released nothing yet, remove its ledger and begin with the new configuration."
_compact = json.JSONEncoder(separators=(",", ":")).encode


def _loaded(text: str) -> dict[str, Any]:
    """An object that was stored as JSON."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise _unreadable() from None
    if not isinstance(found, dict):
        raise _unreadable()
    return found


def _most_revised(
    steps: list[Integers], revisions: list[Integers], archived: int
) -> tuple[Integers, Integers]:
    """Every step after those in archives that was revised, and how often."""
    nothing = [np.zeros(0, dtype=np.int64)]
    step, revision = np.concatenate(steps + nothing), np.concatenate(revisions + nothing)
    found = newest(step, revision)
    found = found[step[found] > archived]
    return step[found], revision[found]


def _unreadable() -> LedgerCorrupt:
    return LedgerCorrupt("a stored position or description is damaged; restore the ledger from a backup.")


def _sink_check(name: str, number: int, position: Position) -> str:
    """Guards what is known of a sink against damage."""
    return f"{zlib.crc32(_compact([name, number, position]).encode()):08x}"


@dataclass(frozen=True)
class Part:
    """One query at work from a step on, with tables of its own; an amendment that changes it begins another.

    Parameters
    ----------
    number
        Of its tables; 0 for those of a stream that was begun with one query.
    query
        Whose share of the ledger it charges; empty where the ledger is not divided.
    since, until
        The last step before it began, and its last step if it has ended.
    crowded
        The last step whose windows contain charges that were made before it began.
    unit
        What one unit of its charges is, where it has ended.
    described
        What it releases and how, as JSON.
    """

    number: int = 0
    query: str = ""
    since: int = 0
    until: int | None = None
    crowded: int = 0
    unit: Fraction | None = None
    described: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def tables(self) -> dict[str, str]:
        """How its tables are called."""
        end = f"_{self.number}" if self.number else ""
        return {name: name + end for name in ("stream", "releases", "revisions", "revised", "sinks", "links")}


class Rows(Protocol):
    """The answer to a statement."""

    def fetchone(self) -> Any:
        """The first row, or None."""

    def __iter__(self) -> Iterator[Any]:
        """All rows."""


@dataclass(frozen=True)
class Progress:
    """How far a stream has got, as committed."""

    step: int = 0
    number: int = 0
    position: Position | None = None
    state: bytes | None = None


@dataclass(frozen=True)
class Archived:
    """What of a stream is in archives and no longer here: nothing, by default.

    Parameters
    ----------
    number, step
        The last release, and the last step.
    revision
        How often any of these steps was revised at most.
    anchor
        Where the chain of releases goes on.
    """

    number: int = 0
    step: int = 0
    revision: int = 0
    anchor: Anchor | None = None

    @classmethod
    def of(cls, ledger: DurableLedger, part: int = 0) -> Archived:
        """As the ledger's base tells of a part."""
        with ledger.told():
            base = ledger.base()
        facts = {} if base is None else base.facts
        if part:  # those of the one query that a stream was begun with stand by themselves
            facts = facts.get("parts", {}).get(str(part), {})
        if "number" not in facts:
            return cls()
        anchor = Anchor(facts["number"], bytes.fromhex(facts["link"]), facts["start"])
        return cls(facts["number"], facts["last"], facts["revision"], anchor)

    def facts(self) -> dict[str, Any]:
        """What a base remembers of a part, ready for JSON."""
        if self.anchor is None:
            return {}
        return {
            "number": self.number,
            "link": self.anchor.hash.hex(),
            "start": self.anchor.start,
            "last": self.step,
            "revision": self.revision,
        }


class Store:
    """What a stream keeps, beside its ledger and in the same transactions.

    Parameters
    ----------
    ledger
        A durable ledger, open for writing or reading.
    described
        What must not change while the stream runs, as JSON; None to look at whatever there is.
    part
        Which of several queries it keeps.
    position
        Where in the source a part begins.
    """

    def __init__(
        self,
        ledger: DurableLedger,
        described: dict[str, Any] | None = None,
        part: Part | None = None,
        position: Position | None = None,
    ) -> None:
        self.ledger = ledger
        self.part = part or Part()
        self._words = {**self.part.tables, **ledger.types}
        self.archived = Archived.of(ledger, self.part.number)
        if described is not None:
            text = json.dumps(described, sort_keys=True, ensure_ascii=False)
            with self.transaction():
                for table in (*TABLES, TABLE, *kept.TABLES):
                    self._execute(table)
                if self._execute("SELECT id FROM {stream}").fetchone() is None:
                    at = None if position is None else _compact(position)
                    begin = (text, self.part.since, at)
                    self._execute("INSERT INTO {stream} VALUES (1, ?, ?, 0, ?, NULL)", begin)
                self._chain = self._links()
                self._chain.begin(self._execute("SELECT number FROM {stream}").fetchone()[0])
                self._check_described()
        else:
            self._chain = self._links()
        self._progress = self._read(check=True)
        self.kept = kept.Kept(ledger)

    def _links(self) -> Chain:
        ledger, number = self.ledger, self.part.number
        identity = f"{ledger.identity}/{number}" if number else ledger.identity
        # tables of their own are no older than links are
        named = bool(ledger.name) or number > 0
        return Chain(self._execute, identity, named=named, anchor=self.archived.anchor)

    # reading ------------------------------------------------------------------------------------------------

    @property
    def account(self) -> Ledger:
        """What the query charges: its share of the ledger, or all of it."""
        return self.ledger.share(self.part.query) if self.part.query else self.ledger

    @property
    def unit(self) -> Fraction:
        """What one unit of its charges is."""
        return self.account.unit if self.part.unit is None else self.part.unit

    def window_units(self, steps: Integers, rows: Sequence[Row] | None = None) -> Integers:
        """What the window that ends at each of some steps was charged, in units; the steps are in order.

        `rows` are all that were charged to these windows, where some of them are in archives.
        """
        if not len(steps):
            return np.zeros(0, dtype=np.int64)
        first, last = int(steps[0]), int(steps[-1])
        if rows is None:
            rows = list(self.charges(self.first_step_needed(steps), last).values())
        query = self.part.query
        own = (row for row in rows if not query or row.scope.partition(":")[0] == query)
        return window_units(own, self.account.rule, first, last)[steps - first]

    def first_step_needed(self, steps: Integers) -> int:
        """The first step whose charges may count in the windows that end at some steps, which are in order."""
        window = self.account.rule.policy.window
        # groups reach less than two windows further than the steps of their row
        early = 0 if window is None else int(steps[0]) - 3 * window
        return max(early, self.part.since, 0) + 1

    def charges(self, first: int, last: int) -> dict[int, Row]:
        """All rows here that have charged any of some steps, by their numbers."""
        wanted = (
            f"SELECT row, {', '.join(Row._fields)} FROM charges WHERE last >= ? AND first <= ? ORDER BY row"
        )
        with self.ledger.told():
            found = self.ledger.connection.execute(wanted, (first, last)).fetchall()
        return {int(number): Row(*columns) for number, *columns in found}

    @property
    def progress(self) -> Progress:
        """How far the stream has got."""
        return self._progress

    def _read(self, *, check: bool = False) -> Progress:
        chained = check and self._chain.start is not None
        # one statement sees one state of the database, also while a writer goes on
        found = self._execute(
            f"SELECT step, number, position, state{LAST_LINK if chained else ''} FROM {{stream}}"
        ).fetchone()
        if found is None:
            raise LedgerMismatch("the ledger holds no stream; give one that `tidegate release` has written.")
        step, number, position, state, *link = found
        if not (isinstance(step, int) and isinstance(number, int) and isinstance(position, str | None)):
            raise _unreadable()
        state = None if state is None else stored_bytes(state)
        if check:
            self._chain.check_begun(number)
        if chained and not self.ledger.archive:  # archives have no state
            self._chain.check_state(number, state_digest(step, position, state), *link)
        return Progress(step, number, None if position is None else _loaded(position), state)

    def described(self) -> dict[str, Any]:
        """What the stream was begun with."""
        return _loaded(self._execute("SELECT described FROM {stream}").fetchone()[0])

    def chunks(self, after: int = 0) -> Iterator[Chunk]:
        """All releases with a number greater than `after`, in order."""
        if after < self.archived.number:
            raise LedgerError(
                f"releases 1 to {self.archived.number} of the ledger {self.ledger.where} are in its archives; put the "
                "output back that has them, or name the folder of the archives as archives in [run]."
            )
        while True:
            # one by one, so that a sink may be slow without holding a cursor open over commits
            found = self._execute(
                "SELECT number, content FROM {releases} WHERE number > ? ORDER BY number LIMIT 1", (after,)
            ).fetchone()
            if found is None:
                if after < self._progress.number:
                    raise self._lacks(after + 1)
                return
            chunk = self._decoded(found[0], stored_bytes(found[1]))
            if chunk.first > after + 1:
                raise self._lacks(after + 1)
            yield chunk.after(after)
            after = found[0]

    def latest(self) -> Iterator[Chunk]:
        """All chunks of releases that are here, the newest first."""
        before = self._progress.number + 1
        while before > self.archived.number + 1:
            chunk = self._chunk_before(before)
            if chunk is None or chunk.last != before - 1:
                raise self._lacks(before - 1)
            yield chunk
            before = chunk.first

    def _chunk_before(self, number: int) -> Chunk | None:
        """The last chunk that ends before a release; None where there is none."""
        found = self._execute(
            "SELECT number, content FROM {releases} WHERE number < ? ORDER BY number DESC LIMIT 1", (number,)
        ).fetchone()
        return None if found is None else self._decoded(found[0], stored_bytes(found[1]))

    def _lacks(self, number: int) -> LedgerCorrupt:
        return LedgerCorrupt(f"release {number} is missing; restore the ledger from a backup.")

    def _decoded(self, number: int, content: bytes) -> Chunk:
        """Stored releases, after a look at their link."""
        self._chain.check(number, content)
        chunk = Chunk.decode(content)
        if chunk.last != number:
            raise LedgerCorrupt(f"release {number} is stored under another number; restore a backup.")
        return chunk

    def verify(self) -> Verdict:
        """Replay all charges, and compare all releases with their links."""
        return self._with_releases(self.ledger.verify())

    def _with_releases(self, verdict: Verdict) -> Verdict:
        """A verdict on the charges, and on the releases as well."""
        if not verdict.ok:
            return verdict
        connection = self.ledger.connection
        try:
            with self.ledger.told():
                connection.execute("BEGIN")  # one consistent view, also while a writer goes on
                try:
                    self._chain.verify()
                    progress = self._read(check=True)
                    self._check_described()
                    self._check_revisions(progress.step)
                    self.sinks()
                finally:
                    connection.execute("ROLLBACK")
        except LedgerCorrupt as error:
            return replace(verdict, ok=False, problem=str(error))
        except DAMAGE:
            return replace(verdict, ok=False, problem=str(_unreadable()))
        number, start = progress.number, self._chain.start
        return replace(verdict, releases=number, unchained=number if start is None else start)

    def _check_described(self) -> None:
        """Refuse another description than that of the part, or of the one query that the ledger was begun for."""
        described, wanted = self.described(), self.part.described
        if wanted:
            same = described == wanted
        else:
            same = "steps" not in described or fingerprint_of(described) == self.ledger.fingerprint
        if not same:
            raise _unreadable()

    def _check_revisions(self, step: int) -> None:
        """Refuse numbers of revisions that are not those of the releases, up to a step."""
        steps: list[Integers] = []
        revisions: list[Integers] = []
        for chunk in self.chunks(self.archived.number):  # whose values are not kept
            revised = chunk.revision > 0
            steps.append(chunk.step[revised])
            revisions.append(chunk.revision[revised].astype(np.int64))
        rows = list(self._execute("SELECT first, last, revision FROM {revisions}"))
        for row in rows:
            whole = all(isinstance(number, int) for number in row)
            if not whole or not 0 < row[0] <= row[1] <= step or not 0 < row[2] < 2**31:
                raise _unreadable()
        released = _most_revised(steps, revisions, self.archived.step)
        remembered = _most_revised(
            [np.arange(first, last + 1, dtype=np.int64) for first, last, _ in rows],
            [np.full(max(last + 1 - first, 0), revision, dtype=np.int64) for first, last, revision in rows],
            self.archived.step,
        )
        if not all(map(np.array_equal, released, remembered)):
            raise _unreadable()

    def last_values(self) -> Values | None:
        """The first release of the last step; None before any."""
        before = self._progress.number + 1
        while True:
            chunk = self._chunk_before(before)
            if chunk is None:
                return None
            first: Values = chunk.values[chunk.revision == 0]
            if len(first):  # else it is the last word on a stream that has ended
                last: Values = first[-1]
                return last
            before = chunk.last

    def missing(self, steps: Integers, width: int) -> npt.NDArray[np.bool_]:
        """Which cells of some steps were first released as missing."""
        found = np.zeros((len(steps), width), dtype=np.bool_)
        before, earliest = self._progress.number + 1, int(steps.min(initial=2**62))
        while before > 1:
            chunk = self._chunk_before(before)
            if chunk is None:
                break
            first = chunk.revision == 0
            known = dict(zip(chunk.step[first].tolist(), np.isnan(chunk.values[first]), strict=True))
            for row, step in enumerate(steps.tolist()):
                if step in known:
                    found[row] = known[step]
            if known and min(known) <= earliest:
                break
            before = chunk.first
        return found

    def sink(self, name: str) -> tuple[int, Position | None]:
        """Up to which number a sink has everything, and its position."""
        found = self._execute("SELECT number, position FROM {sinks} WHERE name = ?", (name,)).fetchone()
        if found is None:
            return 0, None
        number, position = found[0], _loaded(found[1])
        if not isinstance(number, int):
            raise _unreadable()
        check = position.pop("check", None)  # positions of version 0.1 have none
        if check not in (None, _sink_check(name, number, position)):
            raise _unreadable()
        return number, position

    def sinks(self) -> dict[str, Position]:
        """Everything that it was ever released to, with what is remembered of it."""
        names = [name for (name,) in self._execute("SELECT name FROM {sinks} ORDER BY name")]
        if not all(isinstance(name, str) for name in names):
            raise _unreadable()
        return {name: self.sink(name)[1] or {} for name in names}

    def revisions(self, steps: Integers) -> Integers:
        """How often each of some steps, which are in order, was revised."""
        # of a step that is in an archive it is only known how often it was revised at most
        found = np.where(steps <= self.archived.step, self.archived.revision, 0).astype(np.int64)
        if len(steps):
            ends = (int(steps.min()), int(steps.max()))
            wanted = "SELECT first, last, revision FROM {revisions} WHERE last >= ? AND first <= ?"
            for first, last, revision in self._execute(wanted, ends):
                begin, end = np.searchsorted(steps, (first, last + 1))
                np.maximum(found[begin:end], revision, out=found[begin:end])
        return found

    # writing ------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is on disk together when the block is left, or not at all."""
        with self.ledger.transaction(unseen=True):
            yield

    def begin(self, position: Position) -> None:
        """Keep where in its source a stream begins that has no position yet; only inside of a transaction."""
        before = self._progress
        if before.position is None:
            chunk = Chunk.of(before.number + 1, [])
            self.put(chunk, before.step, position, before.state, forget=False)

    def put(
        self, chunk: Chunk, step: int, position: Position, state: bytes | None, *, forget: bool = True
    ) -> None:
        """Keep releases with the state and the position they lead to; only inside of a transaction.

        `forget` removes the rows of these steps that were put away; another edition of them may still need those.
        """
        content, text = chunk.encode() if len(chunk) else self._content(chunk.last), _compact(position)
        if len(chunk):
            self._execute("INSERT INTO {releases} VALUES (?, ?)", (chunk.last, content))
        self._chain.add(chunk.last, self.ledger.head, content, state_digest(step, text, state))
        self._execute(
            "UPDATE {stream} SET step = ?, number = ?, position = ?, state = ?",
            (step, chunk.last, text, state),
        )
        if forget:
            with self.ledger.told():
                self.kept.forget(step)

    def _content(self, number: int) -> bytes:
        found = self._execute("SELECT content FROM {releases} WHERE number = ?", (number,)).fetchone()
        return b"" if found is None else stored_bytes(found[0])

    def refresh(self) -> None:
        """Look up how far the stream has got: after an interruption nobody knows whether the commit came before it."""
        self._progress = self._read()

    def committed(self, progress: Progress) -> None:
        """Tell what the last transaction has made of the stream."""
        self._progress = progress

    def archived_at(self, number: int, step: int) -> Archived:
        """What is archived when the releases up to a number are.

        Parameters
        ----------
        number
            The last of them, which ended a commit.
        step
            The last step that they released.
        """
        wanted = "SELECT coalesce(max(revision), 0) FROM {revisions} WHERE last <= ?"
        revision = max(self.archived.revision, self._execute(wanted, (step,)).fetchone()[0])
        anchor = Anchor(number, self._chain.link_at(number).hash, self._chain.start or 0)
        return Archived(number, step, revision, anchor)

    def forget(self, archived: Archived) -> None:
        """Forget what an archive has, after the ledger's base has it; only inside of a transaction."""
        self._execute("DELETE FROM {releases} WHERE number <= ?", (archived.number,))
        self._execute("DELETE FROM {links} WHERE number < ?", (archived.number,))
        self._execute("DELETE FROM {revisions} WHERE last <= ?", (archived.step,))
        self.archived = archived
        self._chain = self._links()

    def chained(self, number: int) -> bool:
        """Whether a release is in the chain of hashes; those of version 0.1 are not."""
        return self._chain.start is not None and number > self._chain.start

    def link_hash(self, number: int) -> bytes:
        """The hash of the commit that ended with a release."""
        return self._chain.link_at(number).hash

    def first_row_needed(self, archived: Archived) -> int | None:
        """The first row of the ledger that the links after archived releases name; None where there are none."""
        after = (self._chain.start or 0) if archived.anchor is None else archived.number
        wanted = "SELECT min(rows) FROM {links} WHERE number > ?"
        found = self._execute(wanted, (after,)).fetchone()[0]
        return None if found is None else int(found)

    def put_revisions(self, steps: Integers, revisions: Integers) -> None:
        """Remember how often steps were revised; neighbours that were revised equally often share a row."""
        breaks = np.flatnonzero((np.diff(steps) != 1) | (np.diff(revisions) != 0)) + 1
        for part in np.split(np.arange(len(steps)), breaks):
            if len(part):
                first, last = int(part[0]), int(part[-1])
                values = (int(steps[first]), int(steps[last]), int(revisions[first]))
                self._execute("INSERT INTO {revisions} VALUES (?, ?, ?)", values)

    def put_sink(self, name: str, number: int, position: Position) -> None:
        """Remember that a sink has everything up to a number."""
        self._execute(
            "INSERT INTO {sinks} VALUES (?, ?, ?) ON CONFLICT (name) "
            "DO UPDATE SET number = excluded.number, position = excluded.position",
            (name, number, _compact({**position, "check": _sink_check(name, number, position)})),
        )

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        with self.ledger.told():
            found: Rows = self.ledger.connection.execute(statement.format_map(self._words), values)
            return found

    def close(self) -> None:
        """Give up ledger and store."""
        self.ledger.close()

    @property
    def begun(self) -> bool:
        """Whether anything was committed, also where a source begins, or a broker was asked for anything."""
        if self._progress.step > 0 or self._progress.number > 0 or self._progress.position is not None:
            return True
        try:
            return self.kept.in_use
        except TidegateError:  # a database that is away may hold anything, and nothing of it is touched
            return True

    def discard(self) -> None:
        """Give up ledger and store; of a stream that has not begun no file stays behind."""
        give_up(self.ledger, begun=self.begun)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def give_up(ledger: DurableLedger, *, begun: bool) -> None:
    """Let go of a ledger; of one with which nothing has begun no file stays behind."""
    if begun:
        ledger.close()
    else:
        ledger.discard()


def open_store(
    target: str | PathLike[str], policy: Policy, units: int, fingerprint: str, described: dict[str, Any]
) -> Store:
    """Open the store of a stream for writing, or begin one.

    Parameters
    ----------
    target
        A file, or the URL of a PostgreSQL database.
    policy, units
        Of the ledger.
    fingerprint, described
        What must not change while the stream runs: a digest, and in words.
    """
    try:
        ledger = open_durable(target, policy, units, fingerprint=fingerprint)
    except LedgerMismatch:
        _explain(target, described)
        raise
    try:
        return Store(ledger, described)
    except BaseException:
        ledger.close()
        raise


def open_durable(target: str | PathLike[str], *arguments: Any, **more: Any) -> DurableLedger:
    """The ledger in a file or, by URL, in PostgreSQL; parameters as for `SQLiteLedger`."""
    if is_url(target):
        return PostgresLedger(str(target), *arguments, **more)
    check_scheme("ledger", str(target), SCHEMES)
    return SQLiteLedger(Path(target), *arguments, **more)


def stored_fingerprint(target: str | PathLike[str]) -> str | None:
    """What the ledger in a file or at a URL was begun for; None where there is none, or none that can be read."""
    try:
        with open_durable(target, read_only=True) as ledger:
            return ledger.fingerprint
    except TidegateError:
        return None


def verify_target(target: str | PathLike[str]) -> Verdict:
    """Check the ledger in a file or at a URL, without its program or its policy."""
    verdict = verify_url(str(target)) if is_url(target) else verify_file(Path(target))
    if not verdict.ok:
        return verdict
    try:
        with open_durable(target, read_only=True) as ledger:
            from tidegate.runtime.parts import check_amendments, parts_of

            parts = parts_of(ledger)
            check_amendments(ledger)
            if not parts and not holds_stream(ledger):
                return verdict
            return with_releases(verdict, [Store(ledger, part=part) for part in parts or [Part()]])
    except LedgerCorrupt as error:
        return replace(verdict, ok=False, problem=str(error))
    except DAMAGE:
        return replace(verdict, ok=False, problem=str(_unreadable()))


def with_releases(verdict: Verdict, stores: Sequence[Store]) -> Verdict:
    """A verdict on the charges, and on the releases of all parts of a stream."""
    found = [store._with_releases(verdict) for store in stores]
    bad = next((each for each in found if not each.ok), None)
    if bad is not None or not found:
        return verdict if bad is None else bad
    counts = {name: [getattr(each, name) or 0 for each in found] for name in ("releases", "unchained")}
    return replace(verdict, releases=sum(counts["releases"]), unchained=sum(counts["unchained"]))


def holds_stream(ledger: DurableLedger) -> bool:
    """Whether the runtime has used a ledger; one that was charged from Python has no stream."""
    try:
        with ledger.told():
            found = ledger.connection.execute("SELECT id FROM stream").fetchone()
    except LedgerCorrupt as error:
        if "no such table" in str(error) or "lacks a table" in str(error):
            return False
        raise
    if found is None:  # both come in one transaction
        raise _unreadable()
    return True


def _explain(target: str | PathLike[str], described: dict[str, Any]) -> None:
    """Refuse another stream's ledger with a sentence that says what differs, where that can be found out."""
    try:
        with open_durable(target, read_only=True) as ledger:
            store, where = Store(ledger), str(ledger.where)
            before, unused = store.described(), not ledger.rows and not store.progress.number
    except TidegateError:
        return
    refuse_change(where, before, described, remedy=_REMOVE if unused else _AMEND)


def refuse_change(name: str, before: Any, now: Any, key: str = "", *, remedy: str = _AMEND) -> None:
    """Say which part of a description differs, if one does."""
    if isinstance(before, dict) and isinstance(now, dict):
        _refuse_method(name, before.get("query"), now.get("query"))
        for part in sorted({*before, *now}, key=_telling):
            inner = f"{key}.{part}" if key else str(part)
            refuse_change(name, before.get(part), now.get(part), inner, remedy=remedy)
    elif before != now:
        raise StreamChanged(
            f"the stream in {name} was begun with {key} = {_short(before)} and the configuration now says "
            f"{_short(now)}; {remedy}"
        )


def _refuse_method(name: str, before: Any, now: Any) -> None:
    """Say by which method quantiles were begun: what "auto" chooses is another than in version 0.2."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return
    begun, wanted = method_of(before), method_of(now)
    if None not in (begun, wanted) and begun != wanted:
        raise StreamChanged(
            f'the quantiles of the stream in {name} were begun with method = "{begun}" and the configuration now means '
            f'"{wanted}"; write method = "{begun}" in the query to go on as it was, or amend the stream with '
            "`tidegate amend`."
        )


def _telling(part: object) -> tuple[bool, bool, str]:
    """Parts in the order in which people want to hear of them; the law of noise follows from the others."""
    return part != "mechanism", part == "noise", str(part)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
