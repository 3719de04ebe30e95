"""The durable loop: source → mechanism → one commit → sinks.

For every block of closed steps the charges, the releases, the mechanism's state and the position in the source go
into one transaction. Only after it is on disk does anything leave. A process that dies at any instruction is
therefore in one of two cases when it starts again: the block was not committed, then nobody has seen anything of
it, and it is read again and gets fresh noise; or it was, then its releases are in the store and are sent again,
byte for byte, to every sink that lacks them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.config import Config
from tidegate.config.answer import Answer
from tidegate.config.queries import ONLY, one
from tidegate.errors import BudgetExceeded, InvalidParameter, LedgerError, LedgerMismatch, without_secrets
from tidegate.ingest import Intake, StepBlock
from tidegate.ingest.learning import Learnt
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.postgres_connection import is_url
from tidegate.mechanisms import Mechanism, Run
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.noise import Law
from tidegate.releases import Release, Releases
from tidegate.runtime.archives import Archives
from tidegate.runtime.chunks import Chunk, joined
from tidegate.runtime.errors import LedgerIsOlder, SinkError, SinkUnavailable
from tidegate.runtime.gaps import Gaps
from tidegate.runtime.outlets import Nobody, Outlet, Watcher
from tidegate.runtime.pruning import Archiving, Pruned, Pruning, prune
from tidegate.runtime.receipts import ENDING, Receipt, remembered_place
from tidegate.runtime.sinks import Sink, open_sink
from tidegate.runtime.sinks.answers import AnswerFileSink, Beside
from tidegate.runtime.sinks.layout import Layout
from tidegate.runtime.store import Position, Progress, Store, stored_fingerprint

SYNC_EVERY = 1.0  # seconds between two moments at which sinks make sure of what they took
SHUTDOWN = 5.0  # seconds that a sink gets when the process was asked to end
RETRY_EVERY = 1.0  # seconds between two attempts at a sink that cannot be reached


class Taken(NamedTuple):
    """What a block has become: its releases, and where the stream stands with them."""

    chunk: Chunk
    progress: Progress


class Stream:
    """One stream at work.

    Parameters
    ----------
    store
        The open store; the stream goes on where it stands.
    mechanism
        The mechanism that the stream was begun with.
    sinks
        Where releases go.
    watcher
        Somebody who looks.
    last_step
        The last step of a stream that ends.
    """

    def __init__(
        self,
        store: Store,
        mechanism: Mechanism,
        sinks: Sequence[Sink] = (),
        watcher: Watcher | None = None,
        last_step: int | None = None,
    ) -> None:
        self.store = store
        self.last_step = last_step
        self.watcher: Watcher = watcher or Nobody()
        progress = store.progress
        self.mechanism = mechanism
        self._at = progress.step  # after which a run begins
        self._crowded = store.part.crowded
        try:
            run = mechanism.start(ledger=store.account, state=progress.state)
        except (OverflowError, MemoryError):
            raise InvalidParameter(
                "mechanism",
                type(mechanism).__name__,
                "one that this machine can compute: its window, columns or budget are too large or too small",
                "write numbers that are nearer to 1",
            ) from None
        self._run: Run | None = self._begun(run, fresh=progress.state is None)
        self._tell()
        self._outlets: list[Outlet] = []
        self._sinks = list(sinks)
        self._synced = time.monotonic()
        self._archiving: Archiving | None = None
        self._archives = Archives()
        known = (progress.position or {}).get("gaps")
        self._gaps = Gaps.read(known) if known is not None else None  # from the first missing reading on

    @property
    def step(self) -> int:
        """The last step that was committed."""
        return self.store.progress.step

    @property
    def revises(self) -> bool:
        """Whether steps may be released more than once."""
        return self.mechanism.revises

    def _tell(self) -> None:
        """Let readers of releases know what was learnt: it is public, and some answers need it."""
        if isinstance(self._run.mechanism, ClippedRecords) and isinstance(
            self._run.mechanism.reading, Learnt
        ):
            learning = self._run.mechanism.reading.query.learn
            if learning is not None:
                learning.clip = self._run.limit or None

    @property
    def run(self) -> Run:
        """The mechanism at work."""
        if self._run is None:
            raise LedgerMismatch("the stream is silent until charges from before its amendment have passed.")
        return self._run

    def _begun(self, run: Run, *, fresh: bool) -> Run | None:
        """A run that stands where the stream does; none where it has to wait for charges of an earlier part to pass."""
        step = self._at
        if fresh:
            if self.mechanism.needs_room:
                if step < self._crowded:
                    return None
                run.alone = True  # no window that it charges holds anything else, or none any more
            if self._crowded:
                run.begin_at(step + 1)
        if run.step != step:
            raise LedgerMismatch(
                f"the ledger stands at step {run.step} and its stream at step {step}; "
                "use a ledger that nothing else has charged."
            )
        return run

    @property
    def ledger(self) -> DurableLedger:
        """The ledger of the stream."""
        return self.store.ledger

    @property
    def releases(self) -> int:
        """How many releases there are."""
        return self.store.progress.number

    @property
    def backlogs(self) -> list[dict[str, Any]]:
        """Of each sink, how many committed releases it lacks, and whether it cannot be reached."""
        number = self.store.progress.number
        return [
            {
                "name": without_secrets(outlet.sink.name),
                "backlog": max(0, number - outlet.sent),
                "reached": not outlet.waits,
            }
            for outlet in self._outlets
        ]

    # the loop -----------------------------------------------------------------------------------------------

    def open_sinks(
        self,
        sinks: Sequence[Sink] = (),
        *,
        receipt: Path | None = None,
        begin_anew: bool = False,
        derived: Sequence[Sink] = (),
        archives: Path | None = None,
    ) -> None:
        """Bring every sink up to what was committed before this start.

        Parameters
        ----------
        sinks
            More of them.
        receipt
            Where it is kept what was released from which ledger, instead of beside the output; needed for a sink
            that is no file.
        begin_anew
            Accept that a sink has releases of an earlier stream, whose budget adds to this one's.
        derived
            Sinks of what is made from releases. They need no receipt: the one of the releases tells of a lost ledger.
        archives
            The folder of what was pruned, for a sink that is new, or whose output was lost.
        """
        self.place_sinks(sinks, receipt=receipt, derived=derived, archives=archives)
        make_room([self], begin_anew=begin_anew)
        self.resume_sinks()

    def place_sinks(
        self,
        sinks: Sequence[Sink] = (),
        *,
        receipt: Path | None = None,
        derived: Sequence[Sink] = (),
        archives: Path | None = None,
    ) -> None:
        """Know the sinks, without touching them; parameters as for `open_sinks`."""
        self._archives = Archives(archives)
        for sink in (*self._sinks, *sinks):
            number, _ = self.store.sink(sink.name)
            place = receipt
            if place is None and sink.path is not None:
                place = sink.path.with_name(sink.path.name + ENDING)
            found = Receipt(place, self.store) if place else None
            if place is not None:
                sink.remembers = {**sink.remembers, "receipt": remembered_place(place, self.ledger)}
            self._outlets.append(Outlet(sink, number, number, receipt=found))
        self._outlets += [Outlet(sink, 0, 0) for sink in derived]
        self._sinks = []
        for outlet in self._outlets:
            self._refuse_incomplete(outlet.sink)

    @property
    def receipts(self) -> list[Receipt]:
        """Those of its sinks."""
        return [outlet.receipt for outlet in self._outlets if outlet.receipt is not None]

    def resume_sinks(self) -> None:
        """Bring the sinks up to what was committed, after `make_room`."""
        for outlet in self._outlets:
            outlet.sent = outlet.sink.resume(*self.store.sink(outlet.sink.name))
            if outlet.sent > self.store.progress.number:
                raise LedgerIsOlder(
                    f"{outlet.sink.name} has {outlet.sent:,} releases of this stream and the ledger "
                    f"{self.store.ledger.where} has {self.store.progress.number:,}: it is an older copy that has "
                    "forgotten what was spent; put the newest copy back."
                )
        self.send()
        for outlet in self._outlets:
            if not outlet.waits:
                outlet.sink.settled()
            if outlet.receipt is not None and self.store.progress.number:
                outlet.receipt.note()

    def _refuse_incomplete(self, sink: Sink) -> None:
        """Refuse an output that is made from all releases, where some are archived, before anything is charged."""
        archived = self.store.archived.number
        if sink.whole and archived:
            raise LedgerError(
                f"{sink.name} is made from all releases, and releases 1 to {archived:,} of the ledger "
                f"{self.store.ledger.where} are in its archives; {sink.whole}."
            )

    def occupied_outlets(self, *, begin_anew: bool, new: bool) -> list[Outlet]:
        """The outlets that hold an earlier stream, where it may be set aside; others that do are refused.

        Parameters
        ----------
        begin_anew
            Whether that is wanted.
        new
            Whether no query of the ledger has released anything: what is no file may have the releases of all of them.
        """
        known = []
        for outlet in self._outlets:
            sink, receipt = outlet.sink, outlet.receipt
            unused = self.store.progress.number == 0
            anew = begin_anew and unused and (new or sink.path is not None)
            another = receipt is not None and receipt.check(sink.name)
            if another and not anew:
                assert receipt is not None
                raise receipt.refuse(sink.name)
            sink.vouched = receipt is not None and receipt.matches
            if anew and (another or sink.occupied()):
                known.append(outlet)
            elif unused:
                sink.refuse_occupied()
        return known

    @property
    def behind(self) -> list[str]:
        """The sinks that lack releases, which they get at the next start."""
        return [outlet.sink.name for outlet in self._outlets if outlet.waits]

    @property
    def together(self) -> str:
        """What this stream and earlier ones of its sinks cost together; empty if there were none."""
        return max((receipt.together for receipt in self.receipts), key=len, default="")

    def drive(self, intake: Intake | Iterable[StepBlock]) -> None:
        """Release every block that the intake hands out, until it ends."""
        commit = None
        if isinstance(intake, Intake):
            intake.keeper, intake.began = self.store.kept, self.begin
            commit = intake.commit
        for block in intake:
            chunk = self.take(block)
            self.send(chunk)
            self.watcher.released(chunk)
            if commit is not None:
                commit(block.position)
            if time.monotonic() - self._synced >= SYNC_EVERY:
                self.sync()
            if self._archiving is not None and self._archiving.due(self.store):
                self.record()
                self._archiving.prune([self.pruning])

    def begin(self, position: Position) -> None:
        """Keep where in its source the stream begins, before any record of it counts.

        Parameters
        ----------
        position
            As of a block before the first one.
        """
        with self.store.transaction():
            self.store.begin(position)
        self.store.refresh()

    def take(self, block: StepBlock) -> Chunk:
        """Release a block of steps and commit it with everything that belongs to it; nothing has left yet."""
        with self.store.transaction():
            taken = self.put(block)
        self.settled(taken)
        return taken.chunk

    def put(self, block: StepBlock) -> Taken:
        """Release a block of steps, and keep everything that belongs to it; only inside of a transaction."""
        before = self.store.progress
        if self._run is not None and self._run.step != before.step:
            raise LedgerMismatch(
                f"step {self._run.step} was not committed, so this run has seen what nobody may go on from; "
                "open the stream again."
            )
        if block.first_step != before.step + 1:
            raise LedgerMismatch(
                f"the next step is {before.step + 1} and the source hands out step {block.first_step}; "
                "give it the position of this stream."
            )
        chunk = self._release(block, before.number + 1)
        self._tell()
        state = None if self._run is None else self._run.snapshot()
        position = block.position if self._gaps is None else {**block.position, "gaps": self._gaps.describe()}
        self.store.put(chunk, block.last_step, position, state, forget=not block.later)
        for outlet in self._outlets:
            if outlet.safe is not None:
                self.store.put_sink(outlet.sink.name, *outlet.safe)
        return Taken(chunk, Progress(block.last_step, chunk.last, position, state))

    def settled(self, taken: Taken) -> None:
        """Hear that what was put is committed."""
        for outlet in self._outlets:
            if outlet.safe is not None:
                outlet.recorded, outlet.safe = outlet.safe[0], None
        self.store.committed(taken.progress)

    def _release(self, block: StepBlock, number: int) -> Chunk:
        """The releases of a block; the steps after an amendment one by one, while windows hold older charges."""
        chunks: list[Chunk] = []
        for index in range(min(max(self._crowded - block.first_step + 1, 0), len(block))):
            chunks.append(self._attempt(block[index : index + 1], number, block))
            number = chunks[-1].last + 1
        if len(chunks) < len(block):
            rest = block[len(chunks) : len(block)] if chunks else block
            if self._run is None:
                self._begin_after(rest.first_step - 1)
            chunks.append(self._release_all(rest, number, block))
        found, since = joined(chunks, block.units.shape[1]), self.store.part.since
        return found.measured_after(since) if since else found

    def _begin_after(self, step: int) -> None:
        """Begin a run anew, as if nothing had been released before."""
        self._at = step
        self._run = self._begun(self.mechanism.start(ledger=self.store.account), fresh=True)

    def _attempt(self, block: StepBlock, number: int, whole: StepBlock) -> Chunk:
        """The release of one step, or silence where the ledger refuses it: then the next step begins a run anew.

        What refuses are charges, which are public; mechanisms that decide on raw data have to wait instead.
        """
        if self._run is None:
            self._begin_after(block.first_step - 1)
        if self._run is not None:
            try:
                with self.store.transaction():
                    return self._release_all(block, number, whole)
            except BudgetExceeded:
                self._run = None
        self.store.account.charge_batch(block.first_step, np.zeros(len(block), dtype=np.int64))
        return Chunk.silent(number, block.first_step, self.mechanism.outputs)

    def _release_all(self, block: StepBlock, number: int, whole: StepBlock) -> Chunk:
        """The releases of a block, and after them whatever it has made known about earlier steps.

        It may be a part of the whole block, none of which is in the store yet.
        """
        results: list[Release | Releases] = []
        if self._gaps is None and block.missing is not None:
            last = self.store.last_values()
            self._gaps = Gaps.fresh(self.mechanism.columns, np.nan_to_num(last) if last is not None else None)
        if self._gaps is not None:
            chunk = self._release_with_gaps(block, number, results)
        elif len(block) > 1:
            batch = self.run.push_batch(block.units, grid_units=True)
            results.append(batch)
            chunk = Chunk.of_batch(number, batch)
        else:
            single = self.run.push(block.units[0], grid_units=True)
            results.append(single)
            chunk = Chunk.of(number, [single])
        revised = self._revisions(number + len(block), results, whole)
        if chunk.values.shape[1] != self.mechanism.outputs:
            raise InvalidParameter(
                "mechanism",
                type(self.mechanism).__name__,
                "one that releases the columns it is given",
                "use it from Python, where its further values have names",
            )
        return joined([chunk, *revised], chunk.values.shape[1])

    def _release_with_gaps(self, block: StepBlock, number: int, results: list[Release | Releases]) -> Chunk:
        """The releases of a block in which readings may be missing; those of missing cells are withheld."""
        assert self._gaps is not None
        # a sum of readings is a sum of those that there are: nothing stands for the others, and nothing is withheld
        adds = self.mechanism.statistic != "steps"
        chunks = []
        for part, missing in self._gaps.parts(block):
            standing = np.zeros(len(missing)) if adds else self._gaps.held
            releases = self.run.push_batch(block.filled_units(part, standing), grid_units=True)
            self._gaps.learn(releases, missing)
            results.append(releases)
            chunks.append(Chunk.of_batch(number + part.start, releases))
        chunk = joined(chunks, block.units.shape[1])
        return chunk if adds or block.missing is None else chunk.withheld(block.missing)

    def _revisions(self, number: int, results: Sequence[Release | Releases], block: StepBlock) -> list[Chunk]:
        """What releases tell about earlier steps, each with its revision."""
        revised = [result.revised for result in results if result.revised is not None]
        found = []
        for releases in revised:
            revisions = self.store.revisions(releases.steps) + 1
            self.store.put_revisions(releases.steps, revisions)
            found.append(self._without_gaps(Chunk.of_batch(number, releases, revisions), block))
            number = found[-1].last + 1
        return found

    def _without_gaps(self, chunk: Chunk, block: StepBlock | None = None) -> Chunk:
        """Revisions, without the cells that had no reading."""
        if self._gaps is None or self.mechanism.statistic != "steps":
            return chunk
        missing = self.store.missing(chunk.step, chunk.values.shape[1])
        if block is not None and block.missing is not None:
            now = chunk.step >= block.first_step
            missing[now] = block.missing[chunk.step[now] - block.first_step]
        return chunk.withheld(missing)

    def _end(self) -> None:
        """After the last step of all, some mechanisms have a last word on the steps before it."""
        before = self.store.progress
        position = dict(before.position or {})
        if (
            not self.revises
            or self._run is None
            or self.last_step is None
            or before.step < self.last_step
            or position.get("ended")
        ):
            return
        position["ended"] = True  # whatever comes after a last word takes this back
        with self.store.transaction():
            final = self._run.flush()
            chunk = Chunk.of(before.number + 1, [])
            if final is not None and len(final):
                numbered = self.store.revisions(final.steps) + 1
                self.store.put_revisions(final.steps, numbered)
                chunk = self._without_gaps(Chunk.of_batch(before.number + 1, final, numbered))
            state = self._run.snapshot()
            self.store.put(chunk, before.step, position, state, forget=False)  # no step is new
        self.store.committed(Progress(before.step, chunk.last, position, state))
        self.send()
        if len(chunk):
            self.watcher.released(chunk)

    def archive_into(self, archives: Path, *, keep: int | None = None) -> None:
        """Prune from time to time while the stream is driven; parameters as for `prune`."""
        self._archiving = Archiving([self.pruning], archives, keep)

    @property
    def pruning(self) -> Pruning:
        """What of it may be archived; refused where an output is made from all releases."""
        for outlet in self._outlets:
            refuse_whole(outlet.sink, str(self.ledger.where))
        sent = min((outlet.recorded for outlet in self._outlets), default=self.store.progress.number)
        return Pruning(self.store, self._run, sent)

    def prune(self, archives: Path, *, keep: int | None = None) -> Pruned | None:
        """Move what no window and no sink needs any more into an archive; see `pruning.prune`."""
        return prune([self.pruning], archives, keep=keep)

    # sinks --------------------------------------------------------------------------------------------------

    def send(self, chunk: Chunk | None = None) -> None:
        """Hand committed releases to every sink; one that cannot be reached gets them later."""
        number = self.store.progress.number
        for outlet in self._outlets:
            try:
                if outlet.receipt is not None and outlet.sent < number:
                    outlet.receipt.note()
                if chunk is not None and outlet.sent == chunk.first - 1:
                    outlet.sink.write(chunk)
                else:
                    for part in self._after(outlet.sent):
                        outlet.sink.write(part)
                        outlet.sent = part.last
                outlet.sent = max(outlet.sent, number)
                if outlet.waits:
                    outlet.waits = False
                    self.watcher.waiting("")
            except SinkUnavailable as error:
                if not outlet.waits:
                    outlet.waits = True
                    self.watcher.waiting(str(error))

    def _after(self, number: int) -> Iterator[Chunk]:
        """Committed releases after a number, also those that were archived, if it is known where."""
        if self._archives.folder is None or number >= self.store.archived.number:
            return self.store.chunks(number)
        return self._archives.chunks(self.store, number)

    def sync(self) -> None:
        """Let sinks make sure of what they took; the next commit records it."""
        self._synced = time.monotonic()
        for outlet in self._outlets:
            if outlet.sent > outlet.recorded and not outlet.waits:
                outlet.safe = (outlet.sent, {**outlet.sink.sync(), **outlet.sink.remembers})
                if outlet.receipt is not None:
                    outlet.receipt.sync()

    def finish(self, stopped: threading.Event | None = None) -> None:
        """Wait until every sink has everything, and record that.

        Parameters
        ----------
        stopped
            Set when the process was asked to end: then a sink that cannot be reached is waited for a few seconds only,
            and gets what it lacks at the next start.
        """
        self._end()
        asked: float | None = None
        while any(outlet.waits for outlet in self._outlets):
            if stopped is not None and stopped.is_set():
                asked = asked or time.monotonic()
                if time.monotonic() - asked >= SHUTDOWN:
                    break
            time.sleep(RETRY_EVERY)
            self.send()
        for outlet in self._outlets:
            outlet.sink.finish(self.store.chunks())
        self.record()

    def record(self) -> None:
        """Let sinks that answer make sure of all that they took, and record it."""
        self.sync()
        behind = [outlet for outlet in self._outlets if outlet.safe is not None]
        if behind:
            with self.store.transaction():
                for outlet in behind:
                    assert outlet.safe is not None
                    self.store.put_sink(outlet.sink.name, *outlet.safe)
            for outlet in behind:
                assert outlet.safe is not None
                outlet.recorded, outlet.safe = outlet.safe[0], None

    def close(self) -> None:
        """Let go of sinks and store; of a stream that has not begun nothing stays behind."""
        self.let_go()
        self.store.discard()

    def let_go(self) -> None:
        """Let go of sinks and archives."""
        self._archives.close()
        for outlet in self._outlets:
            if self.store.progress.number == 0:  # whatever else was begun, nothing was released
                outlet.take_back()
            outlet.sink.close()
            if outlet.receipt is not None:
                outlet.receipt.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_stream(
    config: Config,
    *,
    follow: bool = False,
    watcher: Watcher | None = None,
    sink: bool = True,
    begin_anew: bool = False,
    backfill: bool = False,
    clock: Callable[[], float] | None = None,
) -> Stream:
    r"""Open a configuration's stream, with its sink brought up to what was committed.

    Parameters
    ----------
    config
        The checked configuration.
    follow
        Whether the stream goes on, which some sinks must know.
    watcher
        Somebody who looks.
    sink
        Whether the configured sink gets the releases; a service may have readers only.
    begin_anew
        Accept that the sink has releases of an earlier stream, whose budget adds to this one's.
    backfill
        Accept that more steps close at once than `catch_up` allows, when the stream goes on.
    clock
        Public time in seconds since 1970.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from tidegate.config import read_config
    >>> folder = tempfile.TemporaryDirectory()
    >>> home = pathlib.Path(folder.name)
    >>> _ = (home / "events.csv").write_text("time,device\n60,a\n90,b\n4000,a\n")
    >>> _ = (home / "stream.toml").write_text('''
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
    ... [sink]
    ... location = "released.csv"
    ... ''')
    >>> config = read_config(home / "stream.toml")
    >>> with open_stream(config) as stream:
    ...     stream.drive(config.open())
    ...     stream.finish()
    >>> len((home / "released.csv").read_text().splitlines())
    3
    >>> folder.cleanup()
    """
    from tidegate.runtime.streams import open_streams

    streams = open_streams(
        one(config),
        follow=follow,
        watchers=None if watcher is None else {ONLY: watcher},
        sink=sink,
        begin_anew=begin_anew,
        backfill=backfill,
        clock=clock,
    )
    return streams.streams[0]


def make_room(streams: Sequence[Stream], *, begin_anew: bool) -> None:
    """Refuse sinks that know another stream, or set aside what they hold if that was wanted: of all queries, or of none.

    Parameters
    ----------
    streams
        Those of all queries.
    begin_anew
        As for `open_stream`.
    """
    new = all(stream.store.progress.number == 0 for stream in streams)
    known = [
        outlet for stream in streams for outlet in stream.occupied_outlets(begin_anew=begin_anew, new=new)
    ]
    if begin_anew and not known:
        raise InvalidParameter(
            "begin-anew",
            True,
            "used only where a sink has releases of an earlier stream and the ledger is new, because it spends a "
            "second budget",
            "drop it",
        )
    for outlet in known:
        outlet.begin_anew()


def refuse_whole(sink: Sink, ledger: str) -> None:
    """Refuse to archive releases that an output is made from as a whole."""
    if sink.whole:
        raise LedgerError(
            f"{sink.name} is made from all releases in the ledger {ledger}, so none of them is archived; {sink.whole}."
        )


def configured_sink(config: Config, stream: Stream, *, follow: bool) -> Sink:
    """The sink of a configuration; rows of one that was begun earlier stay like those it has."""
    store, wanted = stream.store, config.sink.revisions
    location, format = config.locate(config.sink.location), config.sink.format
    if follow and wanted == "newest":
        raise InvalidParameter(
            "revisions",
            wanted,
            "auto or all while the input is followed, because rows that were read stay",
            "drop it",
        )
    layout = layout_of(config, store, revised=stream.revises)
    appended = "://" in location or location.endswith("/") or Path(location).is_dir()
    whole = stream.revises and not appended and (wanted == "newest" or (wanted == "auto" and not follow))

    def opened() -> Sink:
        plain = replace(layout, revised=layout.revised and not whole)
        return open_sink(location, plain, format=format, follow=follow, newest=whole)

    outlet = opened()
    _, position = store.sink(outlet.name)
    if position is not None:
        if wanted == "auto" and not position.get("newest"):
            whole = False
        elif follow and stream.revises and position.get("newest") and Path(location).exists():
            raise SinkError(
                f"{config.sink.location} has one row a step, with its newest value, because its input was not followed; "
                "move it away, and it is written anew with all revisions, or name another location in [sink]."
            )
        layout = replace(
            layout, intervals=bool(position.get("intervals")), rounds=bool(position.get("rounds"))
        )
        outlet = opened()
    outlet.remembers = {"intervals": layout.intervals, "rounds": layout.rounds, "newest": whole}
    return outlet


def answer_sinks(
    config: Config, store: Store, beside: Mapping[str, tuple[Config, Store]] | None = None
) -> list[Sink]:
    """A sink for each standing question of a configuration.

    Parameters
    ----------
    config, store
        The query that is asked.
    beside
        All queries with their stores, for questions about two of them.
    """
    layout = layout_of(config, store, revised=False)
    return [
        AnswerFileSink(
            config.locate(answer.location),
            answer.ask,
            layout.time,
            columns=config.mechanism.outputs,
            noise=independent_noise(config),
            beside=beside_of(answer, store, beside),
        )
        for answer in config.answers
    ]


def beside_of(
    answer: Answer, store: Store, beside: Mapping[str, tuple[Config, Store]] | None
) -> Beside | None:
    """The releases of the other query that a question is about; None where there is none."""
    if answer.beside is None:
        return None
    found, releases = (beside or {})[answer.beside]
    since = max(store.part.since, releases.part.since)
    return Beside(releases.chunks, independent_noise(found), since=since)


def independent_noise(config: Config) -> str | None:
    """The kind of a mechanism's noise where that of each step is independent of all others; else None."""
    law = config.mechanism.law
    return law.kind if isinstance(law, Law) and not config.mechanism.shares_noise else None


def as_begun(config: Config) -> Config:
    """The configuration, with what it meant where its stream was begun before steps could share noise.

    What a file leaves open is settled when its stream begins; one that says ``noise`` is taken at its word.

    Parameters
    ----------
    config
        The checked configuration.
    """
    begun = None if "noise" in config.parameters else stored_fingerprint(config.ledger)
    if begun is None or begun == config.fingerprint:
        return config
    mechanisms = [config.mechanism.earlier]
    if config.mechanism_keys.name == "auto":
        from tidegate.config.auto import chosen_earlier  # plans, which most streams never need

        mechanisms.append(chosen_earlier(config))
    for mechanism in mechanisms:
        earlier = config if mechanism is None else replace(config, mechanism=mechanism)
        if begun == earlier.fingerprint:
            return earlier
    return config


def receipt_of(config: Config, sink: Sink) -> Path:
    """Where the receipt of a sink lies: beside its file, or, where it has none, beside the ledger."""
    if config.sink.receipt is not None:
        return Path(config.locate(config.sink.receipt))
    beside = sink.path or (config.path if is_url(config.ledger) else Path(config.ledger))
    return beside.with_name(beside.name + ENDING)


def layout_of(config: Config, store: Store, *, revised: bool) -> Layout:
    """How the releases of a configuration read."""
    return Layout(
        labels=config.query.answer_labels,
        boundary=config.steps.boundary,
        zone=config.steps.zone,
        unit=store.unit,
        stream=(store.ledger.name or config.fingerprint)[:12],
        form=config.sink.layout,
        revised=revised,
        answers=config.query.answers,
        bounds=config.query.intervals,
        # decimals of a hierarchy are the same for all nodes, so that parts add up to their whole in what is written
        rounds=config.query.levels is None or config.query.aggregate == "quantile",
        guarantee=config.fingerprint,
        since=store.part.since,
    )
