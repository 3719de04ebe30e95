"""The loop of a stream: it reads blocks of closed steps, commits each block, and sends releases to every sink.

    process(block):  stage → push (the commit) → on_committed; then the source may forget the block

An interruption before the commit releases and charges nothing. Rows of the side tables that it left are replaced by the
next start. After an interruption that follows a commit, the next start sends the releases that sinks lack.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.config import Config, Queries
from tidegate.core.commit import FINISHED, Row, head_of
from tidegate.core.errors import LogMismatch
from tidegate.core.log import Log
from tidegate.core.mechanism import Finishes, unit_of
from tidegate.core.postgres_log import PostgresLog, is_url
from tidegate.core.scope import part_of
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import Verification, verify
from tidegate.errors import InvalidParameter, without_secrets
from tidegate.exact import show
from tidegate.ingest import CombinedQuery, Intake, StepBlock
from tidegate.ingest.query import MISSING
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.pipeline.archive import Archives
from tidegate.pipeline.clock_check import check_clock, check_closed
from tidegate.pipeline.delivery import NullObserver, Observer, SinkState
from tidegate.pipeline.errors import LogUnavailable
from tidegate.pipeline.lock import StreamLock
from tidegate.pipeline.logs import LogReader, log_exists, open_log, unusable
from tidegate.pipeline.numbered_releases import no_releases_after
from tidegate.pipeline.open_epochs import OpenEpochs
from tidegate.pipeline.outputs import (
    NullSink,
    answer_sinks,
    archive_previous_outputs,
    configured_sink,
    layout_of,
    placed,
    receipt_path,
)
from tidegate.pipeline.receipts import LogIsOlder, Origin, Receipt, Written
from tidegate.pipeline.side_tables import Mark, SideTables
from tidegate.pipeline.stream_reader import (
    Reading,
    about_of,
    archives_of,
    difference,
    history_of,
    other_configuration,
    stream_finished,
)
from tidegate.sinks.chunks import Chunk

SYNC_EVERY = 1.0  # seconds between two checkpoints of the sinks
SHUTDOWN = 5.0  # seconds until the process ends, if it was asked to end and a sink cannot be reached
MARK_EVERY = 1000  # releases between two marks; older releases can be read again from a mark on
FULL_CHECK_COMMITS = 10_000  # longer logs are not recomputed in full at the end of a run
RETRY_EVERY = 1.0  # seconds between two attempts at a sink that cannot be reached
SIDES = ("", "-wal", "-shm", "-last")  # endings of a log's files

Position = dict[str, Any]


class Staged(NamedTuple):
    """The input of a commit: the values of every query, and the position of the next read in the source."""

    values: dict[str, Any]
    position: bytes


class Pipeline:
    """A running stream; see `open_pipeline`.

    Parameters
    ----------
    queries
        The checked configuration.
    log
        The open log of the stream.
    observers
        For each query, an object that is called with its releases.
    lock
        A lock that the pipeline holds until it is closed.
    """

    def __init__(
        self,
        queries: Queries,
        log: Log,
        observers: Mapping[str, Observer] | None = None,
        lock: StreamLock | None = None,
    ) -> None:
        self.queries, self.log, self._lock = queries, log, lock
        loaded = log.load()
        self._log_is_new = loaded is None
        self._finished = loaded is not None and loaded.row.kind == FINISHED
        # one list of queries per edition, in the order of the columns that ingest delivers
        self.editions = queries.editions
        self.parts: list[Config] = [part for edition in self.editions for part in edition]
        self.observers = {part.name: (observers or {}).get(part.name, NullObserver()) for part in self.parts}
        self.mechanisms = {
            part.name: part.mechanism for part in self.parts
        }  # each with its share of the budget
        self.session = _session(
            {part.name: part_of(self.mechanisms[part.name], 1 / part.share) for part in self.parts},
            log,
            queries,
        )
        log.take_over()  # last: a start that is refused must not fence the running worker
        self.identity = next(log.rows()).head.hex()
        self.side_tables = SideTables(log, queries.ledger, lambda: self.session.head)
        try:
            self.archives = Archives(
                log, self.side_tables, archives_of(queries.first), queries.first.run.keep
            )
            self._gappy = {part.name for part in self.parts if part.query.fill == MISSING}
            self._epochs = {
                name: OpenEpochs(name, each, self.side_tables)
                for name, each in self.mechanisms.items()
                if isinstance(each, Discover)
            }
            self.side_tables.remove_ended_queries(self._epochs)
            self.side_tables.remove_marked(self.session.head)
            self.reading = Reading(
                self.parts, self.mechanisms, self.session.scopes, self.side_tables, self.archives
            )
            self.readers, self.released = self.reading.readers, self.reading.released
            self.chunks = self.reading.chunks
            self._marks: dict[int, list[Mark]] = {}  # by number of the scope: marks that are not stored yet
            # by query: the number of the release at the last mark
            self._marked = {
                name: self.side_tables.last_mark(reader.scope.number) for name, reader in self.readers.items()
            }
            for _ in self._read_commits():
                pass  # only advance the readers; `open_sinks` sends what each sink lacks
        except BaseException:
            self.side_tables.close()  # the caller closes the log
            raise
        # configurations of the queries; `open_sinks` sets the names of outputs after an amendment
        self.placed = {part.name: part for part in self.parts}
        self.sinks: dict[str, list[SinkState]] = {part.name: [] for part in self.parts}
        self._former_receipts: list[Receipt] = []  # of outputs that this stream wrote earlier
        self._synced = time.monotonic()

    # state of the stream -----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The last step that was committed."""
        return self.session.step

    @property
    def position(self) -> Position | None:
        """Where the intake continues; None before the first read."""
        steps = [self.session.steps[edition[0].name] for edition in self.editions]
        if self.session.position:
            found: Position = json.loads(self.session.position)
        else:
            # a restored backup has no position: the source is read from its beginning, without the released steps
            found = {"step": steps[-1], "source": self.side_tables.note("begin")}
            if not any(steps) and found["source"] is None:
                return None
        return {**found, "editions": steps[:-1]} if len(steps) > 1 else found

    @property
    def states(self) -> Iterator[tuple[str, SinkState]]:
        """The sinks of all queries."""
        return ((name, state) for name, states in self.sinks.items() for state in states)

    @property
    def backlogs(self) -> list[dict[str, Any]]:
        """For each sink: the number of committed releases that it lacks, and whether it can be reached."""
        return [
            {
                "name": without_secrets(state.sink.name),
                "backlog": max(0, self.readers[name].number - state.sent),
                "reached": not state.waits,
            }
            for name, state in self.states
        ]

    @property
    def behind(self) -> list[str]:
        """The sinks that lack releases, because they cannot be reached."""
        return [without_secrets(state.sink.name) for _, state in self.states if state.waits]

    @property
    def releases(self) -> int:
        """The number of committed releases of all queries."""
        return sum(reader.number for reader in self.readers.values())

    @property
    def budget(self) -> dict[str, str]:
        """The limit of a window, the budget that the last window spent, and the remaining budget of the next step.

        Each is the sum over all queries.
        """
        units = {name: each.unit for name, each in self.released.items()}

        def budget_of(counted: Mapping[str, int]) -> Fraction:
            return sum((units[name] * count for name, count in counted.items()), Fraction(0))

        adds = all(each.adds for each in self.released.values())
        most = {name: each.units for name, each in self.released.items()}
        spent, remaining = self.session.spent, self.session.remaining
        if self._finished:  # the session of an ended stream does not read its charges again
            for name, each in self.released.items():
                now, following = each.spent_by(np.array([each.step, each.step + 1])).tolist()
                spent[name], remaining[name] = now, max(0, each.units - following)
        return {
            "limit": show(self.queries.policy.budget.total if adds else budget_of(most)),
            "spent_in_last_window": show(budget_of(spent)),
            "remaining_for_next_step": show(budget_of(remaining)),
        }

    @property
    def history(self) -> list[str]:
        """Sentences about the shares of the budget, and one sentence per amendment."""
        with LogReader(self.queries.ledger) as log:
            return history_of([book for _, book in log.books()])

    @property
    def together(self) -> str:
        """The cost of this stream and of earlier streams with the same outputs; empty if there were no earlier ones."""
        found = (state.receipt.together for _, state in self.states if state.receipt is not None)
        return max(found, key=len, default="")

    def _sink_key(self, name: str, sink: str) -> str:
        """Return the key of a sink in the side tables. Release numbers start again in each scope, so it has the scope."""
        return f"{name}/{self.session.scopes[name].number}/{sink}"

    # sinks -------------------------------------------------------------------------------------------------------

    def open_sinks(self, *, follow: bool = False, new_stream: bool = False, sink: bool = True) -> None:
        """Open the configured sinks, and send each the committed releases that it lacks; see `open_pipeline`."""
        known = self.side_tables.sinks()
        sources = {part.name: (part, partial(self.chunks, part.name)) for part in self.parts}
        begins = {name: scope.first - 1 for name, scope in self.session.scopes.items()}
        self.placed = {part.name: placed(part, begins) for part in self.parts}
        for part in self.placed.values():
            since = begins[part.name]
            layout = layout_of(
                part,
                since,
                self.identity[:12],
                unit_of(self.mechanisms[part.name]),
                revised=part.mechanism.revises,
            )

            def noted(name: str, query: str = part.name) -> dict[str, Any] | None:
                return known.get(self._sink_key(query, name), (0, None))[1]

            found = configured_sink(part, layout, noted, follow=follow) if sink else NullSink()
            path = receipt_path(part, found.path, self._path, listed=self.queries.listed)
            found.remembers["receipt"] = self._relative(path)
            states = [SinkState(found, Receipt(path, self._origin))]
            states += [SinkState(each) for each in answer_sinks(part, layout, sources, begins)]
            self.sinks[part.name] = states
        self._former_receipts = self._find_former_receipts(known)
        self._compare_receipts()
        self._set_largest_budgets()
        states = [state for _, state in self.states]
        archive_previous_outputs(states, new_stream=new_stream, begun=self.step > 0)
        for name, state in self.states:
            number, position = known.get(self._sink_key(name, state.sink.name), (0, None))
            state.sent = state.confirmed = state.sink.resume(number, position)
            if state.sent > self.readers[name].number:
                raise LogIsOlder(
                    f"{state.sink.name} has {state.sent:,} releases of this stream and the log has "
                    f"{self.readers[name].number:,}: it is an older copy that lacks the latest charges; restore "
                    "the newest copy."
                )
        self.send()
        for _, state in self.states:
            if not state.waits:
                state.sink.settled()
        if self.step:
            self._write_receipts()

    @property
    def _path(self) -> Path | None:
        """The path of a log in SQLite; None for any other log."""
        return self.log.path if isinstance(self.log, SQLiteLog) else None

    @property
    def _origin(self) -> Origin:
        queries, window = (
            self.queries,
            self.queries.first.window,
        )  # the protected window is that of the first query
        return Origin.of(self.identity, queries.fingerprint, queries.policy.budget, window)

    def _relative(self, path: Path) -> str:
        """Return the path of a receipt relative to the folder of the log, so that both can be moved together."""
        return (
            str(path.absolute()) if self._path is None else os.path.relpath(path.resolve(), self._log_folder)
        )

    @property
    def _log_folder(self) -> Path:
        return Path() if self._path is None else self._path.resolve().parent

    def _find_former_receipts(self, known: Mapping[str, tuple[int, Position]]) -> list[Receipt]:
        """Return the receipts of outputs that this stream wrote earlier, if they still exist."""
        present = {state.receipt.path.resolve() for _, state in self.states if state.receipt is not None}
        paths = {
            (self._log_folder / position["receipt"]).resolve()
            for _, position in known.values()
            if "receipt" in position
        }
        found = [Receipt(path, self._origin) for path in sorted(paths - present) if path.exists()]
        return [receipt for receipt in found if receipt.matches]

    def _compare_receipts(self) -> None:
        """Refuse a log that is older than a receipt of one of its outputs."""
        for receipt in self._former_receipts:
            receipt.refuse_older(self.log, str(receipt.path))
        for _, state in self.states:
            if state.receipt is None:
                continue
            state.receipt.refuse_older(self.log, state.sink.name)
            if self.side_tables.note("restored") and not state.receipt.matches:
                raise LogIsOlder(
                    f"the log is a backup that was restored, and the receipt {state.receipt.path} of its output, which "
                    "would show whether it is the newest, is missing; put the receipt back, or restore again with a head."
                )
        self.side_tables.put_note("restored", None)

    def _set_largest_budgets(self) -> None:
        """Set in every receipt the largest budget that the stream ever had. A second stream adds its cost to it."""
        current = (state.receipt for _, state in self.states if state.receipt is not None)
        receipts = [*self._former_receipts, *current]
        found = [each.found.origin for each in receipts if each.found is not None and each.matches]
        largest = self._origin.with_budgets_of(found)
        for receipt in receipts:
            receipt.origin = largest

    def _write_receipts(self) -> None:
        """Write the last commit into every receipt, before its releases are sent."""
        written = Written(self.step, self.reading.next - 1, self.session.head.hex())
        for receipt in (*self._former_receipts, *(state.receipt for _, state in self.states)):
            if receipt is not None:
                receipt.note(written)

    def send(self) -> None:
        """Send every sink the committed releases that it lacks."""
        if self.step:
            self._write_receipts()
        for name, state in self.states:
            state.send(
                no_releases_after(self.readers[name].number), partial(self.chunks, name), self.observers[name]
            )

    # the loop ----------------------------------------------------------------------------------------------------

    def drive(self, intake: Intake) -> None:
        """Release every block of an intake, until it ends."""
        intake.keeper, intake.began = self.side_tables, self.begin
        for block in intake:
            edition = self.editions[-1 - block.later]
            self.process(
                edition, intake.query.apart(block) if isinstance(intake.query, CombinedQuery) else (block,)
            )
            intake.commit(block.position)
            self.housekeeping()

    def begin(self, position: Position) -> None:
        """Store the position in the source at which the stream begins, before any of its records is counted."""
        self.side_tables.put_note("begin", position["source"])

    def process(self, edition: Sequence[Config], blocks: Sequence[StepBlock]) -> None:
        """Release a block of every query of an edition: commit, then send.

        If the set of missing readings differs between two steps, the block is cut there into two commits.
        """
        step = self.session.steps[edition[0].name]
        if self._finished:
            raise stream_finished(step)
        if blocks[0].first_step != step + 1:
            raise LogMismatch(
                f"the next step is {step + 1} and the source has step {blocks[0].first_step}; give it the position of "
                "this stream."
            )
        for part in _cuts(blocks):
            staged = self.stage(edition, blocks, part)
            with _log_errors(self.queries, "nothing of this block was released"):
                self.session.push_batch(staged.values, position=staged.position)
            self.on_committed()

    def stage(self, edition: Sequence[Config], blocks: Sequence[StepBlock], part: slice) -> Staged:
        """Return the values to push. Missing readings get a public value: the column's last released value, or 0."""
        values: dict[str, Any] = {}
        for config, block in zip(edition, blocks, strict=True):
            own, name = block[part], config.name
            if name in self._epochs:
                values[name] = self._epochs[name].stage(own)
                continue
            if name in self._gappy:
                self.side_tables.put_gaps(name, own.first_step, own.missing)
            if own.missing is None:
                values[name] = own.values
            else:
                last_released = self.readers[name].gaps.held
                # in a running sum a missing reading counts as 0
                by_step = config.mechanism.statistic == "steps"
                values[name] = own.filled(
                    slice(0, len(own)), last_released if by_step else np.zeros_like(last_released)
                )
        return Staged(values, json.dumps(self._position_after(blocks[0], part.stop)).encode())

    def _position_after(self, block: StepBlock, count: int) -> Position:
        """Return where the source continues after `count` steps of a block are committed."""
        last, before = block.first_step + count - 1, self.position or {"step": 0, "source": None}
        if block.later:  # a later edition of these steps needs the same records
            return {"step": before["step"], "source": before["source"] or block.position["source"]}
        if last < block.last_step:  # the rest of the block is read again, from the beginning of the block
            return {"step": last, "source": before["source"]}
        return block.position

    def on_committed(self) -> None:
        """Send the releases of commits that were not sent yet."""
        for chunks in self._read_commits():
            self._write_receipts()
            for name, chunk in chunks.items():
                for state in self.sinks[name]:
                    state.send(chunk, partial(self.chunks, name), self.observers[name])
                if len(chunk):
                    self.observers[name].released(chunk)
        self.side_tables.forget(self.session.steps[self.editions[-1][0].name])
        for name, epochs in self._epochs.items():
            epochs.forget(self.session.steps[name])

    def _read_commits(self) -> Iterator[dict[str, Chunk]]:
        """Yield the releases of every commit that was not read yet, and set marks."""
        for found in self.reading.commits():
            for name, reader in self.readers.items():
                if reader.number - self._marked[name] >= MARK_EVERY:
                    mark = Mark(reader.number, reader.step, reader.state)
                    self._marks.setdefault(reader.scope.number, []).append(mark)
                    self._marked[name] = reader.number
            yield found

    def housekeeping(self) -> None:
        """Make a checkpoint of the sinks about once per second, and an archive when the log holds enough steps."""
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.checkpoint()
        if self.archives.due(self.step):
            self.checkpoint()
            self.archive()

    def checkpoint(self) -> None:
        """Let each sink sync its releases, and store the number of the last release that it has confirmed."""
        self._synced = time.monotonic()
        confirmed = {}
        for name, state in self.states:
            found = state.confirm()
            if found is not None:
                confirmed[self._sink_key(name, state.sink.name)] = found
        complete = all(state.confirmed == self.readers[name].number for name, state in self.states)
        readers = {name: reader.state for name, reader in self.readers.items()} if complete else None
        marks, self._marks = self._marks, {}
        self.side_tables.checkpoint(confirmed, readers, marks)
        self.reading.checkpoint = readers or self.reading.checkpoint

    def archive(self, keep: int | None = None) -> Path | None:
        """Move releases that every sink has confirmed into an archive. Return its path, or None if there are none."""
        for _, state in self.states:
            if state.sink.whole:
                raise InvalidParameter(
                    "archives", state.sink.name, "used with outputs that only grow", state.sink.whole
                )
        safe = {
            name: min((state.confirmed for state in states), default=self.readers[name].number)
            for name, states in self.sinks.items()
        }
        readers = {name: self.reading.reader(name, self.archives.readers) for name in self.readers}
        window = self.queries.policy.window or 1

        def may_archive(row: Row) -> bool:
            """Whether every sink has the releases of a commit."""
            released = self.reading.released_by(row)
            return all(reader.read(row, released).last <= safe[name] for name, reader in readers.items())

        return self.archives.move(
            may_archive,
            lambda: {name: reader.state for name, reader in readers.items()},
            self.step,
            max(window, keep or 0),
        )

    def finish(self, stopped: threading.Event | None = None) -> None:
        """Wait until every sink has all releases, and store this.

        Parameters
        ----------
        stopped
            Set when the process was asked to end. Then the pipeline waits `SHUTDOWN` seconds for sinks that cannot be
            reached; the next start sends the releases that they lack.
        """
        self._end()
        asked: float | None = None
        while any(state.waits for _, state in self.states):
            if stopped is not None and stopped.is_set():
                asked = asked or time.monotonic()
                if time.monotonic() - asked >= SHUTDOWN:
                    break
            time.sleep(RETRY_EVERY)
            self.send()
        for name, state in self.states:
            state.sink.finish(self.chunks(name) if state.sink.whole else ())
        self.checkpoint()

    def _end(self) -> None:
        """Finish the session after the last step, if a mechanism then releases corrections of earlier steps."""
        last, done = self.queries.first.steps.count, self.session.steps[self.editions[-1][0].name]
        ends = any(part.mechanism.revises and isinstance(part.mechanism, Finishes) for part in self.parts)
        if done == last and not self._finished and ends:
            with _log_errors(self.queries, "the last values of earlier steps were not released"):
                self.session.finish()
            self._finished = True
            self.on_committed()

    @property
    def unused(self) -> bool:
        """Whether nothing was ever released from the log, by this process or by one that has fenced it."""
        loaded = self.log.load()
        return self.step == 0 and (loaded is None or loaded.row.head == self.session.head)

    def check(self) -> tuple[bool, str]:
        """Return whether the log on disk is the one that this process wrote, and a sentence about the comparison.

        A log of at most `FULL_CHECK_COMMITS` commits is recomputed in full. For a longer log only the hashes of the last
        commits are recomputed, so a short run takes the same time for an old and for a new stream. `tidegate ledger
        verify` recomputes the whole log.
        """
        if self.reading.next <= FULL_CHECK_COMMITS:
            found = self.verify()
            return found.ok, str(found)
        with LogReader(self.queries.ledger) as log:
            head, last = None, b""
            for row in log.rows(self.reading.next - FULL_CHECK_COMMITS):
                digests = (row.charges, row.releases_digest, row.secret_digest)
                if head is not None and head_of(head, row[:4], *digests) != row.head:
                    return (
                        False,
                        f"the hash of commit {row.number} is not that of its content; restore a backup.",
                    )
                head = last = row.head
        if last != self.session.head:
            return False, "the log on disk is not what this process has written; restore a backup."
        return True, (
            f"the hashes of the last {FULL_CHECK_COMMITS:,} of {self.reading.next:,} commits agree (`tidegate ledger "
            f"verify` recomputes all); the last step is {self.step}."
        )

    def verify(self) -> Verification:
        """Recompute the whole log, with archived releases if there are archives."""
        return verify(self.archives.rows())

    def close(self) -> None:
        """Close sinks, side tables and log, and release the lock.

        If one of them cannot be closed (a server may have gone away), the rest are closed anyway. If the stream has
        released nothing, outputs become as they were before.
        """
        with ExitStack() as locked:
            if self._lock is not None:
                locked.callback(self._lock.release)
            with ExitStack() as opened:  # closed in the reverse order
                opened.callback(self.log.close)
                opened.callback(self.session.close)
                opened.callback(self.side_tables.close)
                for receipt in self._former_receipts:
                    opened.callback(receipt.close)
                for _, state in self.states:
                    opened.callback(state.close)
                unused = self.unused
                for _, state in self.states:
                    if unused:
                        state.on_rollback()
                # with these notes, the side tables may hold records that the broker has already forgotten
                remove = (
                    unused
                    and self._log_is_new
                    and not (self.side_tables.note("begin") or self.side_tables.note("client"))
                )
                if remove and isinstance(self.log, PostgresLog):
                    self.side_tables.remove_log(self.session.head)
            if remove and self._path is not None:
                remove_unused_log(self._path)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_pipeline(
    queries: Queries,
    *,
    follow: bool = False,
    observers: Mapping[str, Observer] | None = None,
    sink: bool = True,
    new_stream: bool = False,
    backfill: bool = False,
    clock: Callable[[], float] | None = None,
) -> Pipeline:
    r"""Open the stream of a configuration: begin a new stream, or resume an existing one at its last commit.

    Parameters
    ----------
    queries
        The checked configuration, with one query or several.
    follow
        Whether steps close by the clock. Some sinks depend on this.
    observers
        For each query, an object that is called with its releases.
    sink
        Whether to write the configured sinks. A service without sinks only serves web clients.
    new_stream
        Accept that an output has releases of an earlier stream. The budget of that stream adds to the budget of this one.
    backfill
        Accept that more steps close at once than `catch_up` allows.
    clock
        Public time in seconds since 1970.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from tidegate.config import parse_queries
    >>> folder = tempfile.TemporaryDirectory()
    >>> home = pathlib.Path(folder.name)
    >>> _ = (home / "events.csv").write_text("time,device\n60,a\n90,b\n4000,a\n")
    >>> queries = parse_queries('''
    ... [source]
    ... location = "events.csv"
    ... time = "time"
    ... unit = "device"
    ... [steps]
    ... start = "1970-01-01T00:00"
    ... length = "1h"
    ... count = 2
    ... [protect]
    ... epsilon = "1"
    ... window = 2
    ... [mechanism]
    ... name = "Uniform"
    ... [sink]
    ... location = "released.csv"
    ... ''', home / "stream.toml")
    >>> with open_pipeline(queries) as pipeline:
    ...     pipeline.drive(queries.open(pipeline.position))
    ...     pipeline.finish()
    >>> len((home / "released.csv").read_text().splitlines())
    3
    >>> folder.cleanup()
    """
    lock = lock_of(queries)
    try:
        log = open_log(queries.ledger)
    except BaseException:
        lock.release()
        raise
    log_is_new, pipeline = log.load() is None, None
    try:
        pipeline = Pipeline(queries, log, observers, lock)
        now, first = (clock or time.time)(), queries.first
        if follow:
            check_clock(first.steps, pipeline.step, now, most=first.steps_keys.catch_up, backfill=backfill)
        elif not first.source.complete:
            for edition in pipeline.editions:  # each edition has another lateness
                check_closed(edition[0].steps, pipeline.session.steps[edition[0].name], now)
        pipeline.open_sinks(follow=follow, new_stream=new_stream, sink=sink)
    except BaseException:
        try:
            if pipeline is not None:
                pipeline.close()
            elif log_is_new and log.load() is None and isinstance(log, SQLiteLog):
                log.close()
                remove_unused_log(log.path)
            log.close()
        finally:
            lock.release()
        raise
    return pipeline


def lock_of(queries: Queries) -> StreamLock:
    """Return the lock of a stream. Raise `LogBusy` if another process holds it."""
    if is_url(queries.ledger):
        return StreamLock(queries.path, needed=False)
    path = Path(queries.ledger)
    try:
        return StreamLock(path)
    except OSError as error:
        raise unusable(path, error) from None


def prune(queries: Queries, folder: Path, *, keep: int | None = None) -> Path | None:
    """Move the releases that every sink has into an archive. The stream must not be running.

    Return the path of the archive, or None if there is nothing to move.

    Parameters
    ----------
    queries
        The checked configuration.
    folder
        The folder of archives: the one that `archives` in [run] names, where readers look for archives.
    keep
        How many of the last steps stay in the log; 1,000 by default, and always at least a window.
    """
    named = archives_of(queries.first)
    if named is not None and named.resolve() != folder.resolve():
        raise InvalidParameter(
            "archives",
            str(folder),
            "the folder that [run] names, where releases are looked for",
            f"give {named}",
        )
    if not log_exists(queries.ledger):
        raise LogMismatch(f"there is no log {without_secrets(queries.ledger)}; start the stream first.")
    run = replace(queries.first.run, archives=str(folder.absolute()), keep=keep or queries.first.run.keep)
    queries = replace(queries, parts=tuple(replace(part, run=run) for part in queries.parts))
    with ExitStack() as locked:
        locked.callback(lock_of(queries).release)
        log = open_log(queries.ledger)
        locked.callback(log.close)
        with Pipeline(queries, log) as pipeline:
            pipeline.open_sinks(follow=queries.first.source.follow)
            pipeline.checkpoint()
            found = pipeline.archive(keep)
        if found is not None and isinstance(log, SQLiteLog):
            with closing(sqlite3.connect(log.path, isolation_level=None)) as database:
                database.execute("PRAGMA secure_delete = ON")
                database.execute("VACUUM")
    return found


def remove_unused_log(path: Path) -> None:
    """Delete the files of a log. Only for a log that has released nothing."""
    for ending in SIDES:
        path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def _log_errors(queries: Queries, lost: str) -> Iterator[None]:
    """Raise `LogUnavailable` if the log cannot be written; `lost` says what was not released."""
    try:
        yield
    except sqlite3.OperationalError as error:  # for example because the disk is full
        raise LogUnavailable(
            f"the log {without_secrets(queries.ledger)} cannot be written ({error}); {lost}: free some space, and start "
            "again."
        ) from None


def _session(mechanisms: Mapping[str, Any], log: Log, queries: Queries) -> Session:
    """Open the session of a configuration. A refusal names the difference to the configuration that began the log."""
    about = about_of(queries)
    try:
        with _log_errors(queries, "nothing was released"):
            return Session(mechanisms, log, shares=queries.shares, about=about)
    except LogMismatch:
        row = next(log.rows(), None)
        changed = None if row is None else difference(_about_of_row(row), about)
        if changed is None:
            raise
    raise other_configuration(*changed)


def _about_of_row(row: Row) -> dict[str, Any]:
    """Return `about` of each query, from the row that began the log."""
    return {name: query["about"] for name, query in json.loads(row.charges)["description"]["queries"].items()}


def _cuts(blocks: Sequence[StepBlock]) -> Iterator[slice]:
    """Cut the blocks of all queries into parts in which every step has the same missing readings."""
    count, cuts = len(blocks[0]), {0}
    for block in blocks:
        if block.missing is not None:
            changes = (block.missing[1:] != block.missing[:-1]).any(axis=1)
            cuts |= set((np.flatnonzero(changes) + 1).tolist())
    edges = [*sorted(cuts), count]
    yield from (slice(begin, end) for begin, end in pairwise(edges))
