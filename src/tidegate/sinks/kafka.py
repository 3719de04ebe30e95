"""A topic of Apache Kafka: releases in transactions, so that careful readers see each of them once and in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidegate.errors import InvalidParameter, MissingPart
from tidegate.servers.kafka import TopicAddress, library
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import AnotherStream, SinkError, SinkUnavailable
from tidegate.sinks.layout import Layout
from tidegate.sinks.sink import Position, Sink

AT_ONCE = 5_000  # records of one transaction
PATIENCE = 10.0  # seconds to wait for the brokers before the stream continues without them
AT_START = 30.0  # seconds to wait for them at a start
_LOOK = 200  # records that are looked at first, from the end of the topic backwards


class _Away(Exception):
    """The brokers cannot be reached, or do not answer in time."""


class KafkaSink(Sink):
    """Produces every release as JSON, in transactions under the stream's own name.

    A start fences whoever had that name before, ends what it left open, reads the last committed release back from the
    topic and continues after it. Readers with `isolation.level=read_committed` see each release once, in order. It does
    the same after any failure: it reads from the topic whether an unanswered transaction was committed.

    Records have the key "stream-step" (in long layout with the column), under which a compacted topic keeps the newest
    revision, and the headers `stream`, `number`, `step`, `revision` and `guarantee`.

    Parameters
    ----------
    url
        "kafka://host:9092/topic"; ``?partition=`` chooses another than 0. One stream stays in one partition, which keeps
        its order.
    layout
        How a release reads.
    """

    def __init__(self, url: str, layout: Layout) -> None:
        self.address = TopicAddress(url, ("partition",))
        given = self.address.more.get("partition", "0")
        if not given.isdecimal() or len(given) > 6:
            raise InvalidParameter("partition", given, "a number from 0 on", "write ?partition=0")
        self.partition = int(given)
        super().__init__(f"{self.address.shown}, partition {self.partition}")
        self._layout = layout
        self._library: Any = None
        self._producer: Any = None
        self._number = 0  # the last release that the topic has

    # before the first release ---------------------------------------------------------------------------------

    def occupied(self) -> bool:
        """Whether the topic has releases of another stream."""
        return bool(self._starting(lambda: self._read_back(AT_START, self._another)))

    def refuse_occupied(self) -> None:
        """Refuse a topic that has releases of another stream, before this one has released anything."""
        if self.occupied():
            raise AnotherStream(
                f"{self.name} has releases of another stream than this one; put back the ledger that they were made from "
                "if that was lost, name another topic in [sink], or begin a new stream with --new-stream, whose budget "
                "adds to the one of those releases."
            )

    def resume(self, number: int, position: Position | None) -> int:
        """Take the stream's name, and continue after the last committed release."""
        self._number = number  # where the topic has forgotten all of them, as retention does
        self._starting(lambda: self._begin(AT_START))
        return self._number

    def _starting(self, work: Any) -> Any:
        """Do something before anything is released: what fails here refuses the start."""
        try:
            self._library = library()
        except MissingPart as error:
            raise SinkError(str(error)) from None
        try:
            return work()
        except _Away:
            pass
        raise SinkError(
            f"the brokers at {self.address.servers} do not answer; start them, or check address and rights."
        )

    def _begin(self, seconds: float) -> None:
        """A new producer under the stream's name, and what the topic has."""
        self._drop()
        producer = self._library.Producer(
            self.address.settings(
                transactional_id=f"tidegate-{self._layout.stream}-{self.address.topic}",
                linger_ms=1,
                transaction_timeout_ms=60_000,
            )
        )
        self._tried(lambda: producer.init_transactions(seconds))
        self._number = max(self._number, self._read_back(seconds, self._own))
        self._producer = producer

    def _tried(self, work: Any) -> Any:
        """Do something with the brokers. If they fence or refuse this program, it ends; other failures are retried."""
        try:
            return work()
        except self._library.KafkaException as error:
            found = error.args[0]
        fenced = (self._library.KafkaError._FENCED, self._library.KafkaError.INVALID_PRODUCER_EPOCH)
        if found.code() in fenced or found.name() == "PRODUCER_FENCED":
            self._drop()
            raise SinkError(
                f"another program has taken over this stream's place in the {self.address.shown}; nothing is lost: stop "
                "the other one and start this one again."
            )
        if "AUTHORIZATION" in found.name() or found.name() in (
            "_UNKNOWN_TOPIC",
            "UNKNOWN_TOPIC_OR_PART",
            "_UNKNOWN_PARTITION",
        ):
            raise SinkError(
                f"the {self.name} is not there or may not be written ({found.name()}); make it, or check the rights."
            )
        raise _Away

    def _own(self, headers: dict[str, bytes]) -> bool:
        """Whether a record is a release of this part of the stream; numbers of earlier parts have ended."""
        own = headers.get("stream") == self._layout.stream.encode()
        return own and min(_number(headers, "number"), _number(headers, "step") - self._layout.since) > 0

    def _another(self, headers: dict[str, bytes]) -> bool:
        """Whether a record is a release of another stream."""
        other = headers.get("stream") not in (None, self._layout.stream.encode())
        return other and _number(headers, "number") >= 0 and "guarantee" in headers

    def _read_back(self, seconds: float, wanted: Callable[[dict[str, bytes]], bool]) -> int:
        """The number of the last committed release that is wanted; 0 if the topic has none."""
        place = self._library.TopicPartition
        reader = self.address.reader(auto_offset_reset="earliest")
        try:
            here = place(self.address.topic, self.partition)
            first, end = self._tried(lambda: reader.get_watermark_offsets(here, timeout=seconds))
            look = _LOOK
            while end > first:
                begin = max(first, end - look)
                reader.assign([place(self.address.topic, self.partition, begin)])
                found = self._last(reader, seconds, wanted)
                if found or begin == first:
                    return found
                look *= 10
            return 0
        finally:
            reader.close()

    def _last(self, reader: Any, seconds: float, wanted: Callable[[dict[str, bytes]], bool]) -> int:
        """The largest number among the wanted records from here to the end."""
        found, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in reader.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    headers = dict(message.headers() or ())
                    if wanted(headers):
                        found = max(found, int(headers["number"]))
                elif error.code() == self._library.KafkaError._PARTITION_EOF:
                    return found
        raise _Away

    # releases -------------------------------------------------------------------------------------------------

    def write(self, chunk: Chunk) -> None:
        """Commit the releases that the topic lacks."""
        size = max(1, AT_ONCE // (1 if self._layout.form == "wide" else max(1, len(self._layout.labels))))
        try:
            if self._producer is None:
                self._begin(PATIENCE)
            fresh = chunk.after(self._number)
            while len(fresh):
                self._commit(fresh[:size])
                fresh = fresh.after(self._number)
        except _Away:
            self._drop()
        else:
            return
        raise SinkUnavailable(
            f"waiting for the brokers at {self.address.servers}; releases are kept and sent when they answer."
        )

    def _commit(self, part: Chunk) -> None:
        """One transaction."""
        producer, layout = self._producer, self._layout
        self._tried(producer.begin_transaction)
        steps, revisions = part.step.tolist(), part.revision.tolist()
        for at, label, record in layout.messages(part):
            key = f"{layout.stream}-{steps[at]}" + ("" if layout.form == "wide" else f"-{label}")
            headers = {
                "stream": layout.stream,
                "number": str(part.first + at),
                "step": str(steps[at]),
                "revision": str(revisions[at]),
                "guarantee": layout.guarantee,
            }
            value = record.rstrip(b"\n")
            self._tried(
                lambda key=key, value=value, headers=headers: producer.produce(
                    self.address.topic, value, key, partition=self.partition, headers=headers
                )
            )
        self._tried(lambda: producer.commit_transaction(PATIENCE))
        self._number = part.last

    def _drop(self) -> None:
        """Forget the producer; what it left open is ended by the next one, or by the brokers."""
        if self._producer is not None:
            with suppress(Exception):
                self._producer.purge()
            self._producer = None

    def close(self) -> None:
        """Leave the brokers."""
        self._drop()


def _number(headers: dict[str, bytes], name: str) -> int:
    """A number in the headers of a record, or −1: anybody may write anything to a topic."""
    found = headers.get(name) or b""
    return int(found) if found.isdigit() and len(found) < 19 else -1
