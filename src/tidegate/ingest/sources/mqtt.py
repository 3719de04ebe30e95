"""MQTT: messages of a broker, acknowledged as soon as what they say about open steps is on disk."""

from __future__ import annotations

import hashlib
import queue
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import SourceUnavailable
from tidegate.ingest.sources.source import Arrivals, EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ingest.sources.text import CsvDialect, JsonDialect, message_records
from tidegate.servers.broker import BrokerAddress, library

IN_FLIGHT = 1024  # messages that the broker sends before the first of them is acknowledged
LARGEST_MESSAGE = 4 * 2**20  # bytes; the broker does not deliver larger ones
MOST_QUEUED = 64 * 2**20  # bytes of messages that wait here; more stay with the broker
_FOREVER = 0xFFFFFFFF
_TAKEN_OVER = 0x8E  # the broker's reason when another client has come under the same name
_LONGEST_BACKLOG = 60.0  # seconds after a connection in which steps wait for the broker to fall silent
_BRIEF, _OFTEN = 5.0, 4  # seconds of a connection that is short, and how many of them in a row are too many
_KNOWN = struct.Struct("<H16s")  # the identifier of a message, and a digest of what it says


class _Message(NamedTuple):
    """A message that has come."""

    number: int  # ours, in the order of arrival
    identifier: int  # the broker's, 0 where it wants no acknowledgement
    digest: bytes
    payload: bytes


class MqttSource(EventSource):
    """Messages of quality of service 1: a JSON object, a JSON array, JSON lines, or CSV without a header.

    The session is persistent: what was not acknowledged comes again after a restart. A message is acknowledged when the
    intake has stored it, and what is stored of one unit is bounded: so a device that sends without end takes no
    space from others here. Whether it does in the broker is up to the broker, whose queue must not be limited
    (`max_queued_messages 0` for Mosquitto), and the guarantee assumes it. What cannot be read is dropped without a word,
    since one device must not be able to stop the stream of all.

    A message counts if it is published while the session exists. The copy that a broker retains of one does not count: it
    would come again with every connection.

    A message that comes a second time because its acknowledgement was lost is known by its identifier and a digest of
    what it says, also after a restart.

    Parameters
    ----------
    url
        "mqtt://host:1883/topic/with/#", or "mqtts://…" for TLS; see :class:`tidegate.servers.broker.BrokerAddress`.
    columns
        The needed columns: keys of the JSON objects.
    client
        The session's name at the broker: the same at every start, different for every stream. By default one that
        belongs to the stream's ledger.
    format
        "jsonl" or "csv".
    fields
        For CSV: the names of the fields, in order.
    settle
        Seconds without a message after which the backlog of a new connection counts as read. Before that no step
        closes, for at most a minute: a broker that is never silent must not hold releases back. A session that the broker
        has only just made has no backlog, and waits no longer than this.
    """

    repeatable = False
    lenient = True

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        *,
        client: str = "",
        format: str = "jsonl",
        fields: Sequence[str] = (),
        separator: str = ",",
        settle: float = 1.0,
    ) -> None:
        self.address = BrokerAddress(url)
        self.host, self.port, self.topic = self.address.host, self.address.port, self.address.topic
        super().__init__(f"the broker at {self.address.place}", columns)
        self.format = format
        self.fields = tuple(fields)
        if format == "csv":
            missing = [name for name in columns if name not in self.fields]
            if missing:
                raise InvalidParameter(
                    "fields", self.fields, f"a list with {missing[0]!r}", "name all fields of a message"
                )
        self.separator = separator
        self.settle = settle
        self.client = client
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued = 0  # bytes of messages that wait
        self._room = threading.Condition()
        self._closing = False
        self._outstanding: dict[int, int] = {}  # identifier in the present session → our number
        self._known: dict[int, tuple[int, bytes]] = {}  # identifier → number and digest, of the last messages
        self._last = 0  # the number of the newest message
        self._taken = 0  # the number of the newest that was delivered
        self._done = 0  # the number of the newest that was stored
        self._connected_at: float | None = None
        self._began = 0.0  # when the present connection was made
        self._stirred = 0.0  # when a message came, or room was made for the next ones
        self._backlog = True  # whether the present connection may still have old messages to deliver
        self._resumed = True  # whether the broker knew the session, and so may have kept messages for it
        self._brief = 0  # how many connections in a row were short
        self._refused: str | None = None
        self._client: Any = None
        library("client", SourceUnavailable)  # refuses at once where it is not installed

    def begin(self, identity: str, arrivals: Iterable[Arrivals]) -> None:
        """Take the stream's name, and know again what was stored before this start."""
        self.client = (
            self.client or f"tidegate-{identity or hashlib.sha256(self.topic.encode()).hexdigest()[:16]}"
        )
        for each in arrivals:
            self._last = self._taken = self._done = max(self._last, each.number)
            for identifier, digest in _KNOWN.iter_unpack(each.content):
                self._remember(identifier, each.number, digest)

    def _make(self) -> Any:
        client = self.address.client(SourceUnavailable, client_id=self.client, manual_ack=True)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    # called by the client's thread --------------------------------------------------------------------------

    def _on_connect(self, client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._refused = f"{self.name} refuses the connection: {reason}; check user and topic."
            return
        if not flags.session_present:  # identifiers of the session before mean nothing in this one
            with self._lock:
                self._outstanding.clear()
                self._known.clear()
        self._resumed, self._began = bool(flags.session_present), time.monotonic()
        options = library("subscribeoptions", SourceUnavailable).SubscribeOptions
        # a retained message would come again with every connection
        client.subscribe(self.topic, options=options(qos=1, retainHandling=options.RETAIN_DO_NOT_SEND))

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self._refused = f"{self.name} refuses the subscription; check user and topic."
        else:
            self._connected_at = self._stirred = time.monotonic()
            self._backlog = True

    def _on_disconnect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        brief = time.monotonic() - self._began < _BRIEF
        self._connected_at, self._brief = None, self._brief + 1 if brief else 0
        # some brokers say why, others just close the connection of whoever was there first
        if reason.value == _TAKEN_OVER or self._brief >= _OFTEN:
            self._refused = (
                f"{self.name} closes the connection again and again, as it does when another program uses the session "
                f"{self.client!r}; stop that one, or give each stream a client of its own in [source]."
            )
            client.disconnect()  # coming back would push the other one out in turn

    def _on_message(self, client: Any, _data: Any, message: Any) -> None:
        identifier = message.mid if message.qos else 0
        digest = hashlib.blake2b(message.payload, digest_size=16).digest()
        self._stirred = time.monotonic()
        if message.retain:  # the broker was asked not to send it: a copy of what was sent before
            if identifier:
                client.ack(identifier, 1)
            return
        with self._lock:
            before = self._known.get(identifier)
            # an identifier is not used again before it is acknowledged: some brokers repeat without saying so
            waiting = identifier in self._outstanding
            again = identifier and (message.dup or waiting) and before is not None and before[1] == digest
            if again:
                assert before is not None
                if before[0] > self._done:
                    self._outstanding[identifier] = before[0]  # still waiting here
                    return
            else:
                self._last += 1
                number = self._last
                if identifier:
                    self._outstanding[identifier] = number
                    self._remember(identifier, number, digest)
        if again:
            client.ack(identifier, 1)
        else:
            self._enqueue(_Message(number, identifier, digest, message.payload))

    def _enqueue(self, message: _Message) -> None:
        """Let a message wait for the intake; where too many do, the connection is not read until there is space."""
        with self._room:
            self._room.wait_for(lambda: self._closing or self._queued < MOST_QUEUED)
            self._queued += len(message.payload)
        self._messages.put(message)

    def _remember(self, identifier: int, number: int, digest: bytes) -> None:
        """Know a message again. The broker waits for acknowledgements, so that older ones cannot come again."""
        self._known.pop(identifier, None)
        self._known[identifier] = number, digest
        while len(self._known) > 2 * IN_FLIGHT:
            del self._known[next(iter(self._known))]

    # called by the intake -----------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """One line for people: connected, or waiting for what."""
        return (
            f"connected to {self.name[4:]}" if self._connected_at is not None else f"waiting for {self.name}"
        )

    def trouble(self) -> str:
        """Why the broker cannot be reached, where that can be found out; it takes a moment."""
        return self.address.trouble()

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Take messages as they come; positions are numbers of messages in this connection's session."""
        self._connect()
        while True:
            if self._refused:
                raise SourceUnavailable(self._refused)
            settled = self._settled()
            messages = self._take(max(0.0, patience()))
            before = self._taken
            self._taken = messages[-1].number if messages else before
            yield EventBatch(
                self._read([message.payload for message in messages]),
                {"message": before},
                {"message": self._taken},
                settled and self._messages.empty(),
                self._arrivals(messages),
            )

    def _settled(self) -> bool:
        """Whether nothing that was sent before this connection is still on its way.

        The broker delivers a backlog in pieces, each after the one before was acknowledged, which takes as long as
        putting it away does. So an empty queue says little: the end of a backlog is a silence after the last message
        and after the last acknowledgement. Of a session that was made with this connection nothing can be old.
        """
        connected = self._connected_at
        if connected is None:
            return False
        now = time.monotonic()
        silent = self._messages.empty() and now - self._stirred >= self.settle
        longest = _LONGEST_BACKLOG if self._resumed else self.settle
        if silent or now - connected >= longest:
            self._backlog = False
        return not self._backlog

    def _arrivals(self, messages: Sequence[_Message]) -> Arrivals | None:
        known = [_KNOWN.pack(one.identifier, one.digest) for one in messages if one.identifier]
        return Arrivals(self._taken, b"".join(known), self._taken - 2 * IN_FLIGHT) if known else None

    def _connect(self) -> None:
        if self._client is not None:
            return  # a second connection would push the first one out
        kinds = library("packettypes", SourceUnavailable).PacketTypes
        properties = library("properties", SourceUnavailable).Properties(kinds.CONNECT)
        properties.SessionExpiryInterval = _FOREVER
        properties.ReceiveMaximum = IN_FLIGHT
        properties.MaximumPacketSize = LARGEST_MESSAGE
        self._client = self._make()
        self._client.connect_async(
            self.host, self.port, keepalive=30, clean_start=False, properties=properties
        )
        self._client.loop_start()

    def _take(self, seconds: float) -> list[_Message]:
        messages: list[_Message] = []
        try:
            messages.append(self._messages.get(timeout=seconds) if seconds else self._messages.get_nowait())
            while len(messages) < IN_FLIGHT:
                messages.append(self._messages.get_nowait())
        except queue.Empty:
            pass
        with self._room:
            self._queued -= sum(len(message.payload) for message in messages)
            self._room.notify_all()
        return messages

    def _read(self, payloads: list[bytes]) -> pl.DataFrame:
        """What can be read of each message; no record reaches beyond its own."""
        if not payloads:
            return self.nothing()
        if self.format == "csv":
            reader = CsvDialect("a message", self.columns, self.separator)
            reader.names = list(self.fields)
            return reader.parse_each(b"\n".join(payloads), self.columns)
        found = [record for payload in payloads for record in message_records(payload)]
        return JsonDialect.table(found, self.columns)

    def commit(self, position: Position) -> None:
        """Acknowledge the messages up to a position, in the order in which they came."""
        with self._lock:
            self._done = max(self._done, position.get("message", 0))
            if self._connected_at is None:
                return  # in which session they will count is not known yet
            ready = sorted(
                (number, identifier)
                for identifier, number in self._outstanding.items()
                if number <= self._done
            )
            for _, identifier in ready:
                del self._outstanding[identifier]
                self._client.ack(identifier, 1)
            if ready:
                self._stirred = time.monotonic()

    def close(self) -> None:
        """Leave the broker; the session stays."""
        with self._room:
            self._closing = True
            self._room.notify_all()
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
