"""MQTT: one message a release, with quality of service 1."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from tidegate.errors import InvalidParameter
from tidegate.servers.broker import BrokerAddress
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError, SinkUnavailable
from tidegate.sinks.layout import Layout
from tidegate.sinks.sink import Position, Sink

AT_ONCE = 1000  # messages between two waits
PATIENCE = 2.0  # seconds to wait for the broker's word before the stream continues without it


class MqttSink(Sink):
    """Publishes every release as a JSON object; it counts as sent when the broker has acknowledged it.

    After a crash, or where the broker's word was lost, a message may come twice: both copies are byte for byte
    the same and carry the same id.

    Parameters
    ----------
    url
        "mqtt://host:1883/topic", or "mqtts://…" for TLS; see :class:`tidegate.servers.broker.BrokerAddress`.
    layout
        How a release reads.
    """

    def __init__(self, url: str, layout: Layout) -> None:
        if "#" in url:  # which may have put a password anywhere
            raise _no_topic(url)
        self.address = BrokerAddress(url)
        self.host, self.port, self.topic = self.address.host, self.address.port, self.address.topic
        if "+" in self.topic:
            raise _no_topic(url)
        super().__init__(f"broker {self.address.place}/{self.topic}")
        self._layout = layout
        self._refused = ""
        self._published = 0  # the number of the last release that was given to the client
        self._open: deque[int] = (
            deque()
        )  # identifiers of messages in their order, without the broker's word yet
        self._acknowledged: set[int] = set()
        self._news = threading.Event()
        self._client = self._make()

    def _make(self) -> Any:
        client = self.address.client(SinkError)
        client.max_queued_messages_set(0)
        client.max_inflight_messages_set(1000)
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        return client

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._refused = str(reason) if reason.is_failure else ""

    def _on_publish(self, _client: Any, _data: Any, mid: int, _reason: Any, _properties: Any) -> None:
        # called under the client's own locks: no lock may be taken here
        self._acknowledged.add(mid)
        self._news.set()

    def resume(self, number: int, position: Position | None) -> int:
        """Connect; a broker that is not there yet is waited for."""
        self._client.connect_async(self.host, self.port, keepalive=30)
        self._client.loop_start()
        self._published = number
        return number

    def write(self, chunk: Chunk) -> None:
        """Publish what was not, and wait for the broker's word on everything."""
        fresh = chunk.after(self._published)
        size = 1 if self._layout.form == "wide" else len(self._layout.labels)
        most = max(1, AT_ONCE // size)  # identifiers are two bytes long, so not too many at once
        while len(fresh):
            self._settle()
            part, fresh = fresh[:most], fresh.after(fresh.first + most - 1)
            for message in self._layout.objects(part):
                self._open.append(self._client.publish(self.topic, message.rstrip(b"\n"), qos=1).mid)
            self._published = part.last
        self._settle()

    def _settle(self) -> None:
        """Wait until the broker has acknowledged everything."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self._news.clear()
            while self._open and self._open[0] in self._acknowledged:
                self._acknowledged.discard(self._open.popleft())
            if not self._open:
                return
            if self._refused:
                raise SinkError(
                    f"the broker at {self.host}:{self.port} refuses the connection: {self._refused}; "
                    "check user and topic."
                )
            if not self._news.wait(max(0.0, deadline - time.monotonic())):
                raise SinkUnavailable(
                    f"waiting for the broker at {self.host}:{self.port}; releases are kept and sent when it answers."
                )

    def close(self) -> None:
        """Leave the broker."""
        self._client.disconnect()
        self._client.loop_stop()


def _no_topic(url: str) -> InvalidParameter:
    return InvalidParameter(
        "location",
        f"{url.partition(':')[0]}://…",
        "a broker and a topic without # and +",
        'write for example "mqtt://localhost:1883/released"',
    )
