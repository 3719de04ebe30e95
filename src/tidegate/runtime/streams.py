"""All queries of a configuration at work: one pass over the source, one ledger, one commit for every block of steps."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidegate.config import Config, Queries
from tidegate.config.queries import ONLY
from tidegate.errors import InvalidParameter, LedgerCorrupt, LedgerMismatch, TidegateError
from tidegate.ingest import Intake, Several, StepBlock
from tidegate.ingest.aggregate import valued
from tidegate.ledger import Verdict
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.postgres_connection import is_url
from tidegate.runtime.chunks import Chunk
from tidegate.runtime.clock import check_clock, check_closed
from tidegate.runtime.errors import StreamChanged
from tidegate.runtime.outlets import Readers, Watcher
from tidegate.runtime.parts import (
    Amendment,
    amendments_of,
    check_amendments,
    create_tables,
    parts_of,
    put_amendment,
    put_part,
)
from tidegate.runtime.pruning import Archiving, Pruned, prune
from tidegate.runtime.receipts import ENDING, Receipt, known_places
from tidegate.runtime.store import (
    Part,
    Position,
    Store,
    give_up,
    open_durable,
    open_store,
    refuse_change,
    with_releases,
)
from tidegate.runtime.stream import (
    SYNC_EVERY,
    Stream,
    answer_sinks,
    as_begun,
    configured_sink,
    make_room,
    receipt_of,
    refuse_whole,
)

SHORT = 10_000  # rows and releases that are all checked when a stream stops


class Streams:
    """The streams of all queries, which go on together.

    Parameters
    ----------
    queries
        The configuration, with the outputs that its queries have.
    streams
        An open stream for each query, in the same order, on one ledger.
    """

    def __init__(self, queries: Queries, streams: Sequence[Stream]) -> None:
        self.queries = queries
        self.streams = tuple(streams)
        placed = dict(zip((config.name for config in queries.parts), self.streams, strict=True))
        self._editions = [[placed[config.name] for config in edition] for edition in queries.editions]
        self._synced = time.monotonic()
        self._archiving: Archiving | None = None
        reached = [{stream.step for stream in edition} for edition in self._editions]
        behind = [max(steps) for steps in reached]
        if any(len(steps) > 1 for steps in reached) or sorted(behind, reverse=True) != behind:
            raise LedgerMismatch(
                "the queries of the stream stand at different steps; restore the ledger from a backup."
            )

    @property
    def ledger(self) -> DurableLedger:
        """The ledger of all queries."""
        return self.streams[0].store.ledger

    @property
    def step(self) -> int:
        """The last step that was committed."""
        return self.streams[0].step

    @property
    def position(self) -> Position | None:
        """Where in the source the stream goes on: the last edition knows, and before it has a step the first one."""
        *earlier, last = [edition[0] for edition in self._editions]
        found = last.store.progress.position
        if not earlier:
            return found
        if found is None:
            began = earlier[0].store.progress.position
            found = {"step": 0, "source": began and began["source"]}
        return {**found, "editions": [stream.step for stream in earlier]}

    @property
    def releases(self) -> int:
        """How many releases there are of all queries."""
        return sum(stream.store.progress.number for stream in self.streams)

    @property
    def behind(self) -> list[str]:
        """The sinks that lack releases, which they get at the next start."""
        return [name for stream in self.streams for name in stream.behind]

    @property
    def backlogs(self) -> list[dict[str, Any]]:
        """Of each sink, how many committed releases it lacks, and whether it cannot be reached."""
        return [each for stream in self.streams for each in stream.backlogs]

    @property
    def together(self) -> str:
        """What these streams and earlier ones of their sinks cost together; empty if there were none."""
        return max((stream.together for stream in self.streams), key=len)

    def drive(self, intake: Intake | Iterable[StepBlock]) -> None:
        """Release every block that the intake hands out, until it ends."""
        if len(self.streams) == 1 and not isinstance(getattr(intake, "query", None), Several):
            self.streams[0].drive(intake)
            return
        assert isinstance(intake, Intake)
        assert isinstance(intake.query, Several)
        intake.keeper, intake.began = self.streams[0].store.kept, self.begin
        for block in intake:
            self._release(self._editions[-1 - block.later], intake.query.apart(block))
            intake.commit(block.position)
            self._from_time_to_time()

    def begin(self, position: Position) -> None:
        """Keep where in the source all queries begin; see `Stream.begin`."""
        with self.ledger.transaction(unseen=True):
            for stream in self.streams:
                stream.store.begin(position)
        for stream in self.streams:
            stream.store.refresh()

    def advance(self, blocks: Sequence[StepBlock]) -> None:
        """Release a block of each query, all of them in one commit, and hand the releases to the sinks."""
        if len(self.streams) == 1:
            self.streams[0].drive(blocks)
            return
        self._release(self.streams, blocks)
        self._from_time_to_time()

    def _release(self, streams: Sequence[Stream], blocks: Sequence[StepBlock]) -> None:
        """Release a block of each of some queries in one commit, and hand the releases to their sinks."""
        for stream, chunk in zip(streams, self.take(streams, blocks), strict=True):
            stream.send(chunk)
            stream.watcher.released(chunk)

    def _from_time_to_time(self) -> None:
        """Let sinks make sure of what they took, and prune if it is time."""
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self._synced = time.monotonic()
            for stream in self.streams:
                stream.sync()
        if self._archiving is not None and self._archiving.due(self.streams[0].store):
            for stream in self.streams:
                stream.record()
            self._archiving.prune([stream.pruning for stream in self.streams])

    def take(self, streams: Sequence[Stream], blocks: Sequence[StepBlock]) -> list[Chunk]:
        """Release a block of each of some queries and commit all of it together; nothing has left yet."""
        with self.ledger.transaction(unseen=True):
            taken = [stream.put(block) for stream, block in zip(streams, blocks, strict=True)]
        for stream, each in zip(streams, taken, strict=True):
            stream.settled(each)
        return [each.chunk for each in taken]

    def finish(self, stopped: threading.Event | None = None) -> None:
        """Wait until every sink has everything, and record that; see `Stream.finish`."""
        for stream in self.streams:
            stream.finish(stopped)

    def archive_into(self, archives: Path, *, keep: int | None = None) -> None:
        """Prune from time to time while the stream is driven; see `pruning.prune`."""
        if len(self.streams) == 1:
            self.streams[0].archive_into(archives, keep=keep)
        else:
            self._archiving = Archiving([stream.pruning for stream in self.streams], archives, keep)

    def check(self) -> Verdict:
        """Look at the ledger as the next start will, which takes as long however long the stream is; a short one wholly.

        The next start believes a checkpoint, and replays what was charged after it. So does this, with the file as it is
        on disk, and compares it with what this process has charged.
        """
        if self.ledger.rows + self.releases <= SHORT:
            return self.verify()
        try:
            with open_durable(self.queries.ledger, read_only=True) as again:
                stored = [Store(again, part=stream.store.part).progress for stream in self.streams]
                known = [stream.store.progress for stream in self.streams]
                same = [(each.step, each.number, each.state) for each in stored] == [
                    (each.step, each.number, each.state) for each in known
                ]
                if not same or again.head != self.ledger.head:
                    raise LedgerCorrupt(
                        f"the ledger {again.where} is not what this process has written; restore it from a backup."
                    )
                return replace(again.taken_up(), releases=self.releases)
        except LedgerCorrupt as error:
            return replace(self.ledger.taken_up(), ok=False, problem=str(error))

    def verify(self) -> Verdict:
        """Replay all charges, and compare all releases, also of parts that have ended, with their links."""
        try:
            check_amendments(self.ledger)
        except LedgerCorrupt as error:
            return replace(self.ledger.verify(), ok=False, problem=str(error))
        stores = [Store(self.ledger, part=part) for part in parts_of(self.ledger)]
        return with_releases(self.ledger.verify(), stores or [self.streams[0].store])

    def close(self) -> None:
        """Let go of sinks and ledger; of a stream that has not begun nothing stays behind."""
        begun = any(stream.store.begun for stream in self.streams)
        for stream in self.streams:
            stream.let_go()
        give_up(self.ledger, begun=begun)

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_streams(
    queries: Queries,
    *,
    follow: bool = False,
    watchers: Mapping[str, Watcher] | None = None,
    sink: bool = True,
    begin_anew: bool = False,
    backfill: bool = False,
    clock: Callable[[], float] | None = None,
) -> Streams:
    """Open the streams of a configuration, with their sinks brought up to what was committed.

    Parameters
    ----------
    queries
        The checked configuration, with one query or several.
    watchers
        Who looks at each query.
    follow, sink, begin_anew, backfill, clock
        As for `open_stream`.
    """
    streams = opened(queries, watchers)
    try:
        now = (clock or time.time)()
        if follow:
            most = streams.queries.first.steps_keys.catch_up
            check_clock(queries.first.steps, streams.step, now, most=most, backfill=backfill)
        elif not queries.first.source.complete:
            for part in queries.parts:  # editions have clocks of their own
                check_closed(part.steps, streams.step, now)
        placed = _placed(streams)
        for config, stream in zip(streams.queries.parts, streams.streams, strict=True):
            outlet = configured_sink(config, stream, follow=follow) if sink else Readers()
            place = receipt_of(config, outlet)
            derived = answer_sinks(config, stream.store, placed)
            stream.place_sinks([outlet], receipt=place, derived=derived, archives=archives_of(config))
        _follow(queries, streams)
        make_room(streams.streams, begin_anew=begin_anew)
        for stream in streams.streams:
            stream.resume_sinks()
    except BaseException:
        streams.close()
        raise
    return streams


def _follow(queries: Queries, streams: Streams) -> None:
    """Let the receipts of outputs that the stream has left follow its ledger."""
    present = [receipt for stream in streams.streams for receipt in stream.receipts]
    places = {receipt.path.resolve() for receipt in present}
    stores = [stream.store for stream in streams.streams]
    left = [each for each in left_receipts(queries, stores) if each.path.resolve() not in places]
    for receipt in left:
        if not receipt.archived:
            receipt.refuse_older(str(receipt.path))
    for receipt in present:
        receipt.others = left


def left_receipts(queries: Queries, stores: Sequence[Store]) -> list[Receipt]:
    """The receipts of everything that a stream was ever released to, as far as they are there and its own.

    Parameters
    ----------
    queries
        The configuration as it was read.
    stores
        Those of the present parts.
    """
    ledger = stores[0].ledger
    ended = [Store(ledger, part=part) for part in parts_of(ledger) if part.until is not None]
    found = {}
    for store in (*ended, *stores):
        for place in receipt_places(queries, store):
            receipt = Receipt(place, store)
            if receipt.matches:
                found[place.resolve()] = receipt
    return list(found.values())


def receipt_places(queries: Queries, store: Store) -> list[Path]:
    """Where receipts of a part may lie: where its ledger remembers them, and where the configuration puts them."""
    places = known_places(store)
    config = next((each for each in queries.parts if each.name == (store.part.query or ONLY)), None)
    if config is not None:
        placed = output_of(config, store.part, listed=queries.listed)
        own = placed.sink.receipt
        location = Path(placed.locate(placed.sink.location))
        places.append(location.with_name(location.name + ENDING) if own is None else Path(placed.locate(own)))
    return places


def _placed(streams: Streams) -> dict[str, tuple[Config, Store]]:
    """All queries with their stores, for answers about two of them."""
    pairs = zip(streams.queries.parts, streams.streams, strict=True)
    return {config.name: (config, stream.store) for config, stream in pairs}


def archives_of(config: Config) -> Path | None:
    """The folder of archives that a configuration names."""
    return None if config.run.archives is None else Path(config.locate(config.run.archives))


def _refuse_hidden(store: Store, archives: Path, config: Config) -> None:
    """Refuse a folder in which a service would not find what it publishes from the first row on."""
    known = archives_of(config)
    served = store.sink(Readers().name)[1] is not None
    if served and (known is None or known.resolve() != archives.resolve()):
        raise InvalidParameter(
            "archives",
            str(archives),
            "the folder that [run] names, because a service publishes this account from its first row",
            f'write archives = "{archives}" in [run]' if known is None else f"give {known}",
        )


def prune_streams(queries: Queries, archives: Path, *, keep: int | None = None) -> Pruned | None:
    """Prune the ledger of a configuration whose stream is not running; see `pruning.prune`."""
    with opened(queries) as streams:
        wanted = []
        for config, stream in zip(streams.queries.parts, streams.streams, strict=True):
            sink = configured_sink(config, stream, follow=config.source.follow)
            _refuse_hidden(stream.store, archives, config)
            for each in (sink, *answer_sinks(config, stream.store, _placed(streams))):
                refuse_whole(each, queries.ledger)
            sent, served = stream.store.sink(sink.name), stream.store.sink(Readers().name)
            wanted.append(replace(stream.pruning, sent=(sent if served[1] is None else served)[0]))
        moved = prune(wanted, archives, keep=keep)
        if moved is not None and not is_url(queries.ledger):  # a server makes room by itself
            with streams.ledger.told():
                streams.ledger.connection.execute("VACUUM")
        return moved


def opened(queries: Queries, watchers: Mapping[str, Watcher] | None = None) -> Streams:
    """The streams of a configuration without their sinks; begun if there are none."""
    known = _known(queries)
    if not queries.listed and (known is None or not known[1]):
        config = as_begun(queries.first)
        mechanism = config.mechanism
        store = open_store(
            queries.ledger, config.policy, mechanism.units, config.fingerprint, config.describe()
        )
        return _started(replace(queries, parts=(config,)), [store], watchers)
    if known is None or (known[0] == queries.fingerprint and not known[1]):
        ledger = open_durable(queries.ledger, queries.policy, 1, fingerprint=queries.fingerprint)
    else:
        ledger = open_durable(queries.ledger)
    try:
        amendments = amendments_of(ledger)
        check_amendments(ledger, whole=False)
        if not amendments and ledger.shares and ledger.fingerprint == queries.fingerprint:
            raise LedgerCorrupt(
                f"the ledger {ledger.where} lacks what it was begun with; restore it from a backup."
            )
        if not amendments and ledger.fingerprint == queries.fingerprint:
            parts = _begin(ledger, queries)
        else:
            parts = parts_of(ledger)
            queries = as_amended(queries, parts)
            _refuse_another(queries, ledger, amendments)
        present = {part.query: part for part in parts if part.until is None}
        ordered = [present[config.name] for config in queries.parts]
        stores = [Store(ledger, part=part) for part in ordered]
        placed = [
            output_of(config, part, listed=queries.listed, present=present)
            for config, part in zip(queries.parts, ordered, strict=True)
        ]
    except BaseException:
        ledger.discard()
        raise
    return _started(replace(queries, parts=tuple(placed)), stores, watchers)


def _started(queries: Queries, stores: Sequence[Store], watchers: Mapping[str, Watcher] | None) -> Streams:
    ledger, streams = stores[0].ledger, []
    try:
        for config, store in zip(queries.parts, stores, strict=True):
            watcher = (watchers or {}).get(config.name)
            streams.append(Stream(store, config.mechanism, watcher=watcher, last_step=config.steps.count))
        return Streams(queries, streams)
    except BaseException:
        give_up(ledger, begun=any(store.begun for store in stores))
        raise


def _known(queries: Queries) -> tuple[str, bool] | None:
    """What a ledger was begun for, and whether it has parts; None where there is none, or none that can be read."""
    try:
        with open_durable(queries.ledger, read_only=True) as ledger:
            return ledger.fingerprint, bool(amendments_of(ledger) or parts_of(ledger))
    except TidegateError:
        return None


def _begin(ledger: DurableLedger, queries: Queries) -> list[Part]:
    """Divide a new ledger among the queries."""
    with ledger.transaction(), ledger.told():
        create_tables(ledger)
        ledger.divide(queries.shares, configuration=queries.fingerprint)
        put_amendment(ledger, Amendment(1, ledger.rows, 0, queries.fingerprint, queries.describe()))
        parts = []
        for number, config in enumerate(queries.parts, 1):
            parts.append(Part(number, config.name, described=described_of(config)))
            put_part(ledger, parts[-1])
            Store(ledger, described_of(config), parts[-1])
    return parts


def described_of(config: Config) -> dict[str, Any]:
    """What a part releases and how, and where its rows lie among those of all queries, as JSON."""
    query = config.query
    read = {
        "column": config.schema.column,
        "value": config.schema.value if valued(query) else None,
        "places": 1 + max(query.width, len(query.columns)),
        "values": valued(query),
    }
    found: dict[str, Any] = json.loads(json.dumps({**config.describe(), "read": read}))
    return found


def as_amended(queries: Queries, parts: Sequence[Part]) -> Queries:
    """The configuration, with Laplace noise where a part was begun before its steps could share any."""
    present = {part.query: part.described.get("mechanism") for part in parts if part.until is None}

    def settled(config: Config) -> Config:
        mechanism, begun = config.mechanism, present.get(config.name)
        if "noise" in config.parameters or begun is None or mechanism.describe() == begun:
            return config
        earlier = mechanism.earlier
        return (
            config if earlier is None or earlier.describe() != begun else replace(config, mechanism=earlier)
        )

    return replace(queries, parts=tuple(settled(config) for config in queries.parts))


def _refuse_another(queries: Queries, ledger: DurableLedger, amendments: Sequence[Amendment]) -> None:
    """Refuse a configuration that is not the one in force."""
    if amendments and amendments[-1].fingerprint == queries.fingerprint:
        return
    if amendments:
        refuse_change(str(ledger.where), amendments[-1].described, queries.describe())
    raise StreamChanged(
        f"the stream in {ledger.where} was begun with one query and the configuration now has several, or others; put it "
        "back, or amend the stream with `tidegate amend`."
    )


def output_of(
    config: Config, part: Part, *, listed: bool, present: Mapping[str, Part] | None = None
) -> Config:
    """The configuration of a query with an output of its own for this part: one that begins later says so in its name.

    Parameters
    ----------
    config, part
        The query, and its part.
    listed
        Whether the file says ``[[query]]``.
    present
        The parts of all queries: an answer about two of them begins with the later one.
    """
    keys, begin = config.sink, _begin_of(part.since)
    location, receipt = _later(config, keys.location, begin), keys.receipt
    if receipt is None and (
        location == "-" or "://" in location
    ):  # beside the ledger, with those of all queries
        beside = config.path if "://" in config.ledger else Path(config.ledger)
        receipt = str(beside.absolute())
    if receipt is not None:
        name = f"-{config.name}" if listed else ""
        receipt = f"{receipt}{name}{begin}.receipt" if keys.receipt is None else f"{receipt}{name}{begin}"
    answers = []
    for answer in config.answers:
        second = (present or {}).get(answer.beside or "", part)
        later = _begin_of(max(part.since, second.since))
        answers.append(replace(answer, location=_later(config, answer.location, later)))
    return replace(config, sink=replace(keys, location=location, receipt=receipt), answers=tuple(answers))


def _begin_of(since: int) -> str:
    return f".from-{since + 1}" if since else ""


def _later(config: Config, location: str, begin: str) -> str:
    """The place of an output that begins later than its stream; a broker's topic goes on."""
    if not begin or location == "-" or "://" in location:
        return location
    if location.endswith("/") or Path(config.locate(location)).is_dir():
        return f"{location.rstrip('/')}/{begin[1:]}/"
    path = Path(location)
    return str(path.with_name(f"{path.stem}{begin}{path.suffix}"))


def unit_of(ledger: DurableLedger, part: Part) -> Fraction:
    """What one unit of a part's charges is now."""
    return ledger.share(part.query).unit if part.query else ledger.unit
