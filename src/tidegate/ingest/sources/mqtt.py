"""MQTT: messages of a broker, acknowledged only when the steps they belong to have been committed."""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import SourceUnavailable
from tidegate.ingest.sources.source import Batch, Patience, Position, Source, no_patience
from tidegate.ingest.sources.text import CsvDialect, JsonDialect, records

MOST_IN_FLIGHT = 65_535  # what MQTT's two-byte identifiers allow
_FOREVER = 0xFFFFFFFF
_AT_ONCE = 20_000  # messages in one batch


class MqttSource(Source):
    """Messages of quality of service 1: a JSON object, a JSON array, JSON lines, or CSV without a header.

    The session is persistent: what was not acknowledged comes again after a restart. A message is
    acknowledged when all steps of its events have been committed, so at most 65,535 messages can belong to
    steps that are still open; put several events into a message where there are more. A message that cannot
    be read is dropped without a word, since one device must not be able to stop the stream of all.

    Parameters
    ----------
    url
        "mqtt://host:1883/topic/with/#", or "mqtts://…" for TLS; user and password may stand before the host.
    columns
        The needed columns: keys of the JSON objects.
    client
        The session's name at the broker: the same at every start, different for every stream.
    format
        "jsonl" or "csv".
    fields
        For CSV: the names of the fields, in order.
    settle
        Seconds after a connection in which a backlog is awaited before any step closes.
    """

    lenient = True

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        *,
        client: str = "tidegate",
        format: str = "jsonl",
        fields: Sequence[str] = (),
        separator: str = ",",
        settle: float = 1.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or len(parts.path) < 2:
            shown = f"{parts.scheme}://{parts.hostname or ''}"  # never the password
            raise InvalidParameter(
                "location",
                shown,
                "a broker and a topic",
                'write for example "mqtt://localhost:1883/sensors/#"',
            )
        self.host = parts.hostname
        self.port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        self.topic = unquote(parts.path[1:]) + (
            f"#{parts.fragment}" if url.endswith("#") or parts.fragment else ""
        )
        super().__init__(f"the broker at {self.host}:{self.port}", columns)
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
        self._messages: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._outstanding: dict[int, int] = {}  # identifier at the broker → our number
        self._last = 0  # the number of the newest message
        self._taken = 0  # the number of the newest that was handed out
        self._connected_at: float | None = None
        self._refused: str | None = None
        self._client = self._make(parts.scheme == "mqtts", client, parts.username, parts.password)

    def _make(self, encrypted: bool, name: str, user: str | None, password: str | None) -> Any:
        paho = _paho("client")
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5, manual_ack=True
        )
        if user:
            client.username_pw_set(unquote(user), unquote(password) if password else None)
        if encrypted:
            client.tls_set()
        client.reconnect_delay_set(min_delay=1, max_delay=15)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    # called by the client's thread --------------------------------------------------------------------------

    def _on_connect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)
            return
        client.subscribe(self.topic, qos=1)

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self._refused = "subscription refused"
        else:
            self._connected_at = time.monotonic()

    def _on_disconnect(self, *_: Any) -> None:
        self._connected_at = None

    def _on_message(self, client: Any, _data: Any, message: Any) -> None:
        with self._lock:
            if message.qos and message.mid in self._outstanding:
                return  # sent again after a lost connection; it is still waiting here
            self._last += 1
            if message.qos:
                self._outstanding[message.mid] = self._last
            number = self._last
        self._messages.put((number, message.payload))

    # called by the intake -----------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """One line for people: connected, or waiting for what."""
        if len(self._outstanding) >= MOST_IN_FLIGHT:
            return f"{self.name} waits for steps to close; put several events into one message"
        return (
            f"connected to {self.name[4:]}" if self._connected_at is not None else f"waiting for {self.name}"
        )

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[Batch]:
        """Take messages as they come; positions are numbers of messages in this connection's session."""
        self._connect()
        while True:
            if self._refused:
                raise SourceUnavailable(
                    f"{self.name} refuses the connection: {self._refused}; check user and topic."
                )
            settled = self._connected_at is not None and time.monotonic() - self._connected_at >= self.settle
            messages = self._take(max(0.0, patience()))
            before = self._taken
            self._taken = messages[-1][0] if messages else before
            frame = self._read([payload for _, payload in messages])
            yield Batch(
                frame, {"message": before}, {"message": self._taken}, settled and self._messages.empty()
            )

    def _connect(self) -> None:
        properties = _paho("properties").Properties(_paho("packettypes").PacketTypes.CONNECT)
        properties.SessionExpiryInterval = _FOREVER
        properties.ReceiveMaximum = MOST_IN_FLIGHT
        self._client.connect_async(
            self.host, self.port, keepalive=30, clean_start=False, properties=properties
        )
        self._client.loop_start()

    def _take(self, seconds: float) -> list[tuple[int, bytes]]:
        try:
            messages = [self._messages.get(timeout=seconds) if seconds else self._messages.get_nowait()]
        except queue.Empty:
            return []
        while len(messages) < _AT_ONCE:
            try:
                messages.append(self._messages.get_nowait())
            except queue.Empty:
                break
        return messages

    def _read(self, payloads: list[bytes]) -> pl.DataFrame:
        """What can be read of each message; no record reaches beyond its own."""
        if not payloads:
            return self.nothing()
        if self.format == "csv":
            reader = CsvDialect("a message", self.columns, self.separator)
            reader.names = list(self.fields)
            return reader.parse_each(b"\n".join(payloads), self.columns)
        found = [record for payload in payloads for record in _records(payload)]
        return JsonDialect.table(found, self.columns)

    def commit(self, position: Position) -> None:
        """Acknowledge the messages up to a position, in the order in which they came."""
        done = position.get("message", 0)
        with self._lock:
            ready = sorted((number, mid) for mid, number in self._outstanding.items() if number <= done)
            for _, mid in ready:
                del self._outstanding[mid]
        for _, mid in ready:
            self._client.ack(mid, 1)

    def close(self) -> None:
        """Leave the broker; the session stays."""
        self._client.disconnect()
        self._client.loop_stop()


def _paho(module: str) -> Any:
    """A module of the client library, which is an extra."""
    try:
        return importlib.import_module(f"paho.mqtt.{module}")
    except ImportError:
        pass
    raise SourceUnavailable('a broker needs the extra "mqtt"; install tidegate[mqtt].')


def _records(payload: bytes) -> list[dict[str, Any]]:
    """The objects of a message: one, those of an array, or one a line."""
    found = records(payload)
    if not found and b"\n" in payload.strip():
        return [record for line in payload.split(b"\n") for record in records(line)]
    return found
