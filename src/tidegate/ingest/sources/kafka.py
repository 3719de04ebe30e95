"""A topic of Apache Kafka, read at offsets that are committed with the releases and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import EmptyInput, InputChanged, SourceUnavailable, UnreadableInput
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ingest.sources.text import CsvDialect, JsonDialect, message_records
from tidegate.servers.kafka import TopicAddress, library

RECORDS = 50_000  # read at once
PORTION = 64  # records that are asked for at a time, so that a batch is not much larger than BYTES
BYTES = 64 * 2**20  # of a batch, and of what waits in the client
LARGEST_RECORD = 2**20  # bytes, unpacked; a larger one cannot be read
ANSWER = 10.0  # seconds that the brokers may take for an answer
NEW_PARTITIONS = 5.0  # seconds between two looks at how many there are
Offsets = dict[int, int]


class _Away(Exception):
    """The brokers cannot be reached."""


class KafkaSource(EventSource):
    """Records of all partitions of a topic: a JSON object (or an array, or one a line), or CSV without a header.

    Partitions are assigned by this program, at the offsets of the position; no group is joined and no offset is committed
    to the brokers. Only records of committed transactions are read. A partition without records holds nothing up: a step
    closes by the public clock when everything is read that had arrived in any of them. Partitions that are added later
    are read from their beginning.

    Parameters
    ----------
    url
        "kafka://host:9092/topic"; see :class:`tidegate.servers.kafka.TopicAddress`. ``?lost=accepted`` continues where
        records were removed before they were read.
    columns
        The needed columns: keys of the JSON objects.
    follow
        Whether to wait for more. Then what cannot be read is left out. Otherwise the input ends where the topic ended at
        first, and what cannot be read refuses it.
    format, fields, separator
        "jsonl", or "csv" with the names of the fields in order.
    """

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        *,
        follow: bool = False,
        format: str = "jsonl",
        fields: Sequence[str] = (),
        separator: str = ",",
    ) -> None:
        self.address = TopicAddress(url, ("lost",))
        super().__init__(f"the {self.address.shown}", columns)
        if format not in ("jsonl", "csv"):
            raise InvalidParameter("format", format, "jsonl or csv for a topic", 'write format = "jsonl"')
        if self.address.more.get("lost", "accepted") != "accepted":
            raise InvalidParameter(
                "lost", self.address.more["lost"], "accepted", "write ?lost=accepted, or drop it"
            )
        missing = [name for name in columns if name not in fields] if format == "csv" else []
        if missing:
            raise InvalidParameter(
                "fields", tuple(fields), f"a list with {missing[0]!r}", "name all fields of a record"
            )
        self.follow = self.lenient = follow
        self.format, self.fields, self.separator = format, tuple(fields), separator
        self._library = library()
        self._admin: Any = None
        self._consumer: Any = None
        self._ends: Offsets | None = None  # of a finite input: what was there at first
        self._looked = 0.0
        self._topic = ""  # the id of the topic that is read
        self._away = False

    @property
    def status(self) -> str:
        """One line for people: connected, or waiting for what."""
        return f"{'waiting for' if self._away else 'connected to'} the brokers at {self.address.servers}"

    # the brokers ----------------------------------------------------------------------------------------------

    def _partitions(self) -> list[int]:
        """The numbers of the topic's partitions."""
        try:
            found = self._admin.list_topics(self.address.topic, timeout=ANSWER).topics[self.address.topic]
        except self._library.KafkaException:
            raise _Away from None
        if found.error is not None:
            raise SourceUnavailable(
                f"{self.name} is not there or may not be read ({found.error.name()}); check name and rights."
            )
        return sorted(found.partitions)

    def _identity(self) -> str:
        """The id that the brokers gave the topic when it was made; empty where they are too old for that."""
        wanted = self._library.TopicCollection([self.address.topic])
        try:
            answer = self._admin.describe_topics(wanted, request_timeout=ANSWER)[self.address.topic]
            found = answer.result(ANSWER).topic_id
        except (self._library.KafkaException, TimeoutError):
            raise _Away from None
        return str(found) if found.get_most_significant_bits() or found.get_least_significant_bits() else ""

    def _made_anew(self, known: str) -> bool:
        """Whether the topic is another one than that of some id; refused, unless losses are accepted."""
        if not known or self._topic == known:
            return False
        if self.address.more.get("lost") != "accepted":
            raise InputChanged(
                f"{self.name} was recreated since the committed position, which says nothing of the new one: what was "
                "not read of the earlier one is lost; give the topic that the position belongs to, or accept the loss "
                "with ?lost=accepted in the location, and the new one is read from its beginning."
            )
        return True

    def _place(self, offsets: Offsets) -> Position:
        return {
            "topic": self._topic,
            "offsets": {str(one): offset for one, offset in sorted(offsets.items())},
        }

    def _limits(self, partitions: Sequence[int], *, first: bool) -> Offsets:
        """Where partitions begin, or where what is committed of them ends; one question for all."""
        admin = library(".admin")
        spec = admin.OffsetSpec.earliest() if first else admin.OffsetSpec.latest()
        wanted = {self._library.TopicPartition(self.address.topic, one): spec for one in partitions}
        committed = self._library.IsolationLevel.READ_COMMITTED
        try:
            answers = self._admin.list_offsets(wanted, isolation_level=committed, request_timeout=ANSWER)
            found = {place.partition: answer.result(ANSWER).offset for place, answer in answers.items()}
        except (self._library.KafkaException, TimeoutError):
            raise _Away from None
        if min(found.values(), default=0) < 0:  # a broker that has just started answers without a number
            raise _Away
        return found

    def _assign(self, offsets: Offsets) -> None:
        if self._consumer is None:
            self._consumer = self.address.reader(
                auto_offset_reset="error", fetch_wait_max_ms=100, queued_max_messages_kbytes=BYTES // 1024
            )
        place = self._library.TopicPartition
        self._consumer.assign([place(self.address.topic, one, offset) for one, offset in offsets.items()])

    def _begin(self, position: Position | None) -> Offsets:
        """The offset to resume from in each partition; refuses where records are gone."""
        if self._admin is None:
            self._admin = library(".admin").AdminClient(self.address.settings())
        partitions = self._partitions()
        self._topic = self._identity()
        first, ends = self._limits(partitions, first=True), self._limits(partitions, first=False)
        known = {int(one): offset for one, offset in ((position or {}).get("offsets") or {}).items()}
        if position is None or self._made_anew(str(position.get("topic", ""))):
            known = first
        offsets = {}
        for one in partitions:
            offset = known.get(one, 0)
            if offset > ends[one]:
                raise InputChanged(
                    f"partition {one} of {self.name} ends before what has been read of it; give the topic that the "
                    "committed position belongs to."
                )
            if offset < first[one]:
                self._lost(one)
            offsets[one] = max(offset, first[one])
        self._looked = time.monotonic()
        return offsets

    def _lost(self, partition: int) -> None:
        """Refuse a gap, without saying how many records it has: how much people send is theirs."""
        if self.address.more.get("lost") != "accepted":
            raise InputChanged(
                f"records of partition {partition} of {self.name} were removed before they were read, as retention does; "
                "put them back, or accept the gap with ?lost=accepted in the location, and keep records for longer."
            )

    # reading --------------------------------------------------------------------------------------------------

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Read records of all partitions as they come."""
        columns = self.columns if columns is None else columns
        if self.follow:
            yield from self._follow(position, columns, patience)
            return
        try:
            yield from self._finite(position, columns)
        except _Away:
            pass
        else:
            return
        raise SourceUnavailable(
            f"the brokers at {self.address.servers} do not answer; start them, or check address and settings."
        )

    def _finite(self, position: Position | None, columns: Sequence[str]) -> Iterator[EventBatch]:
        offsets = self._begin(position)
        if self._ends is None:
            self._ends = self._limits(list(offsets), first=False)
        ends = self._ends
        if not any(ends.values()):
            raise EmptyInput(f"{self.name} is empty; it needs at least one record.")
        self._assign(offsets)
        silent = time.monotonic()
        while any(offsets[one] < end for one, end in ends.items()):
            before = dict(offsets)
            payloads = self._take(offsets, 0.2, ends)
            if offsets != before:
                silent = time.monotonic()
                yield EventBatch(self._read(payloads, columns), self._place(before), self._place(offsets))
            elif time.monotonic() - silent > 3 * ANSWER:
                raise _Away

    def _follow(
        self, position: Position | None, columns: Sequence[str], patience: Patience
    ) -> Iterator[EventBatch]:
        offsets: Offsets | None = None
        here, full = position or {}, False
        while True:
            try:
                if offsets is None:
                    offsets = self._begin(position)
                    self._assign(offsets)
                    here = self._place(offsets)
                self._new_partitions(offsets)
                ends = None if full else self._limits(list(offsets), first=False)
                payloads = self._take(offsets, min(max(patience(), 0.005), 0.25))
                self._away = False
            except _Away:
                self._away = True
                yield EventBatch(self.nothing(), here, here, caught_up=False)
                time.sleep(0.2)
                continue
            before = here
            caught_up = ends is not None and all(offsets[one] >= end for one, end in ends.items())
            here, full = self._place(offsets), len(payloads) >= RECORDS
            yield EventBatch(self._read(payloads, columns), before, here, caught_up)

    def _new_partitions(self, offsets: Offsets) -> None:
        """Read partitions that were added meanwhile, too."""
        if time.monotonic() - self._looked < NEW_PARTITIONS:
            return
        partitions, known, self._topic = self._partitions(), self._topic, self._identity()
        self._looked = time.monotonic()
        if self._made_anew(known):
            offsets.clear()
        added = [one for one in partitions if one not in offsets]
        if added:
            offsets |= dict.fromkeys(added, 0)
            self._assign(offsets)

    def _messages(self, seconds: float) -> Iterator[Any]:
        """What comes within some seconds, up to a number of records and of bytes."""
        until, records, size = time.monotonic() + seconds, 0, 0
        while records < RECORDS and size < BYTES:
            found = self._consumer.consume(PORTION, timeout=max(0.0, until - time.monotonic()))
            yield from found
            if len(found) < PORTION:
                return
            records += len(found)
            size += sum(len(message) for message in found)

    def _take(self, offsets: Offsets, seconds: float, ends: Offsets | None = None) -> list[bytes | None]:
        """Records that have come, and how far that is; the end of a partition moves on past what is no record."""
        payloads: list[bytes | None] = []
        for message in self._messages(seconds):
            error, one, offset = message.error(), message.partition(), message.offset()
            if error is None:
                if ends is None or offset < ends[one]:
                    value = message.value()
                    payloads.append(value if value is None or len(value) <= LARGEST_RECORD else None)
                    offsets[one] = offset + 1
                else:
                    offsets[one] = ends[one]
            elif error.code() == self._library.KafkaError._PARTITION_EOF:
                offsets[one] = max(offsets[one], offset)
            elif error.code() == self._library.KafkaError._AUTO_OFFSET_RESET:
                self._lost(one)
                offsets[one] = self._limits([one], first=True)[one]
                self._assign(offsets)
                return payloads  # what came behind it is read again from there
        return payloads

    def _read(self, payloads: Sequence[bytes | None], columns: Sequence[str]) -> pl.DataFrame:
        """What can be read of each record; no one reaches beyond its own."""
        if not payloads:
            return self.nothing().select(columns)
        if self.format == "csv":
            reader = CsvDialect(f"a record of {self.name}", columns, self.separator)
            reader.names = list(self.fields)
            if self.lenient:
                lines = [one for one in payloads if one]
                return (
                    reader.parse_each(b"\n".join(lines), columns) if lines else self.nothing().select(columns)
                )
            if any(not one for one in payloads):
                raise self._refused("CSV")
            return reader.parse(b"\n".join(one for one in payloads if one) + b"\n", columns)
        found = []
        for one in payloads:
            read = message_records(one) if one else []
            if not read and not self.lenient:
                raise self._refused("JSON")
            found += read
        return JsonDialect.table(found, columns)

    def _refused(self, kind: str) -> UnreadableInput:
        return UnreadableInput(
            f"a record of {self.name} cannot be read as {kind}; correct it, or follow the topic, where such are left out."
        )

    def check(self) -> None:
        """Refuse a topic that could not be read."""
        try:
            self._begin(None)
        except _Away:
            pass
        else:
            return
        finally:
            self.close()
        raise SourceUnavailable(
            f"the brokers at {self.address.servers} do not answer; start them, or check address and settings."
        )

    def close(self) -> None:
        """Leave the brokers."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None
