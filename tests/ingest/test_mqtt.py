from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.helpers import listening_broker

from tidegate.errors import InvalidParameter
from tidegate.ingest import Columns, Intake, Query, Schema, Steps
from tidegate.ingest.errors import SourceUnavailable
from tidegate.ingest.sources import mqtt
from waiting import until

SCHEMA = Schema(time="time", unit="unit", column="place")
QUERY = Query(aggregate="distinct", columns=Columns(("a", "b")))
NEEDED = QUERY.needed(SCHEMA)
Require = Callable[[str, str], None]


class Broker:
    """A real Mosquitto on a free port that keeps its sessions on disk."""

    def __init__(self, program: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.program = program
        self.settings = folder / "mosquitto.conf"
        self.settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\nmax_inflight_messages 0\nuser root\n"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def forget(self) -> None:
        """Lose all sessions, as a broker without a disk does when it is restarted."""
        self.stop()
        (self.settings.parent / "mosquitto.db").unlink(missing_ok=True)
        self.start()

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.process = listening_broker(self.program, self.settings, self.port)

    def stop(self) -> None:
        """Stop it, with its sessions saved."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(10)

    def source(self, **more: Any) -> mqtt.MqttSource:
        """A source with a short settling time."""
        more = {"settle": 0.2, "client": "reader", **more}
        return mqtt.MqttSource(f"mqtt://127.0.0.1:{self.port}/events/#", NEEDED, **more)

    def send(self, *payloads: bytes | str, retain: bool = False, qos: int = 1) -> None:
        """Publish and wait until the broker has them."""
        import paho.mqtt.client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2)  # type: ignore[attr-defined]
        # what is published before the broker's answer was handled may be sent twice; after a second answer it was
        ready = threading.Event()
        client.on_connect = lambda *_: client.subscribe("nobody/writes/here")
        client.on_subscribe = lambda *_: ready.set()
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        assert ready.wait(10)
        for info in [client.publish("events/x", payload, qos=qos, retain=retain) for payload in payloads]:
            info.wait_for_publish(10)
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path, require_service: Require) -> Iterator[Broker]:
    """A broker of its own for a test."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        require_service("mosquitto", "an MQTT broker to test against")
    pytest.importorskip("paho.mqtt.client")
    running = Broker(str(program), tmp_path)
    yield running
    running.stop()


def message(time: int, unit: str, place: str = "a") -> str:
    """One event as JSON."""
    return json.dumps({"time": time, "unit": unit, "place": place, "more": [1, 2]})


def connect(source: mqtt.MqttSource) -> None:
    """Wait until the broker keeps what comes for this source."""
    batches = source.batches(patience=lambda: 0.05)
    until(lambda: next(batches) is not None and not source.status.startswith("waiting"))


def heard(source: mqtt.MqttSource) -> None:
    """Wait until the broker has read all acknowledgements: it reads one connection in order, and answers.

    A new connection of the same session may be served before the rest of the old one is read.
    """
    answered, connection = threading.Event(), source._client
    connection.on_subscribe = lambda *_: answered.set()
    connection.subscribe("nobody/writes/here")
    assert answered.wait(60)


def drain(source: mqtt.MqttSource, wanted: int) -> list[tuple[str, ...]]:
    """Records until there are enough, and until nothing more has come for as long as it takes to settle."""
    rows: list[tuple[str, ...]] = []
    batches = source.batches(patience=lambda: 0.05)

    def enough() -> bool:
        batch = next(batches)
        rows.extend(batch.frame.rows())
        return len(rows) >= wanted and batch.caught_up

    until(enough)
    return rows


def test_payloads_of_every_shape(broker: Broker) -> None:
    """Objects, arrays and lines are read; what cannot be read is dropped without a word and stops nobody."""
    with broker.source() as source:
        connect(source)
        broker.send(
            message(1, "u"),
            f"[{message(2, 'v')}, {message(3, 'w')}]",
            message(4, "x") + "\n" + message(5, "y"),
            b"\xff\xfe",
            "not json",
            "[1",
            "17",
            "",
            message(6, "z"),
        )
        rows = drain(source, 6)
    assert [row[:2] for row in rows if row[0] is not None] == [
        (str(n), unit) for n, unit in enumerate("uvwxyz", 1)
    ]


def test_retained_messages_count_once(broker: Broker) -> None:
    """As they are sent, and not again with every connection, also where the broker has lost the session."""
    broker.send(message(1, "before"), retain=True)
    with broker.source() as source:
        drain(source, 0)
        broker.send(message(2, "live"), retain=True)
        assert [row[1] for row in drain(source, 1)] == ["live"]
        source.commit({"message": source._taken})
        heard(source)
    for client in ("reader", "another"):
        with broker.source(client=client) as source:
            assert drain(source, 0) == []
            broker.send(message(3, client))
            assert [row[1] for row in drain(source, 1)] == [client]
            source.commit({"message": source._taken})
            heard(source)


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_that_wait_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    """More stay with the broker, or on the way, until those were taken; then all of them come."""
    monkeypatch.setattr(mqtt, "MOST_QUEUED", 20_000)
    padding, count = " " * 1000, 200
    deadline = time.monotonic() + 60
    with broker.source() as source:
        batches = source.batches(patience=lambda: 0.05)
        while not next(batches).caught_up:
            assert time.monotonic() < deadline
        for wanted in (count, 0):  # the second time it is closed while it is full
            broker.send(*(message(number, f"u{number}") + padding for number in range(count)), qos=qos)
            until(lambda: source._queued >= 20_000)
            rows = 0
            while rows < wanted:
                assert time.monotonic() < deadline
                assert source._queued <= 20_000 + 1200
                batch = next(batches)
                rows += len(batch.frame)
                source.commit(batch.after)
            assert rows == wanted


def test_csv_payloads(broker: Broker) -> None:
    """Fields in a declared order."""
    with broker.source(format="csv", fields=("place", "noise", "time", "unit")) as source:
        connect(source)
        broker.send("a,0,1,u\nb,0,2,v", "a,0,3,w\n")
        assert sorted(drain(source, 3)) == [("1", "u", "a"), ("2", "v", "b"), ("3", "w", "a")]


def test_what_was_not_committed_comes_again(broker: Broker) -> None:
    """A reader that dies before its commit loses nothing; one that committed gets nothing twice."""
    with broker.source() as source:
        connect(source)
        broker.send(*[message(n, "u") for n in range(50)])
        assert len(drain(source, 50)) == 50
        # dies here: nothing was committed
    with broker.source() as source:
        rows = drain(source, 50)
        assert len(rows) == 50
        source.commit({"message": 30})
        heard(source)
    with broker.source() as source:
        again = [int(row[0]) for row in drain(source, 20)]
    assert again == list(range(30, 50))


def test_messages_wait_while_the_reader_is_away(broker: Broker) -> None:
    """The session is persistent, and no step closes before the backlog has been read."""
    with broker.source() as source:
        connect(source)
    now = int(time.time())
    broker.send(*[message(now - 25 + n, f"u{n}") for n in range(20)])
    steps = Steps(start="1970-01-01", length=10)
    first = (now - 25) // 10
    intake = Intake(
        broker.source(), SCHEMA, steps, QUERY, follow=True, position={"step": first, "source": {"message": 0}}
    )
    total = 0
    for block in intake:
        total += int(block.values.sum())
        intake.commit(block.position)
        if block.last_step >= (now - 6) // 10 + 1:
            intake.stop()
    intake.close()
    assert total == 20


@pytest.mark.parametrize("resumed", [False, True])
def test_a_session_that_is_new_has_no_backlog(monkeypatch: pytest.MonkeyPatch, resumed: bool) -> None:
    """Where messages never pause, a first start closes steps at once; one that continues waits for what was kept."""
    now = 100.0
    monkeypatch.setattr(mqtt.time, "monotonic", lambda: now)
    source, client = mqtt.MqttSource("mqtt://host/events", NEEDED, settle=1.0), SimpleNamespace()
    client.subscribe = lambda *_, **__: None
    flags, fine = SimpleNamespace(session_present=resumed), SimpleNamespace(is_failure=False)
    source._on_connect(client, None, flags, fine, None)
    source._on_subscribe(client, None, 1, [fine], None)
    found = []
    for now in (100.5, 101.0, 159.9, 160.0):
        source._stirred = now  # a message has come just now
        found.append(source._settled())
    assert found == ([False, False, False, True] if resumed else [False, True, True, True])


def test_what_is_not_acknowledged_is_the_same_message() -> None:
    """A broker may send it twice at a new connection, the second time not marked as a repeat; later it is another one."""
    source, acknowledged = mqtt.MqttSource("mqtt://host/events", NEEDED), []
    client = SimpleNamespace(ack=lambda identifier, _: acknowledged.append(identifier))

    def come(identifier: int, payload: bytes, *, repeat: bool) -> None:
        source._on_message(
            client, None, SimpleNamespace(mid=identifier, qos=1, dup=repeat, retain=False, payload=payload)
        )

    come(21, b"one", repeat=True)
    come(21, b"one", repeat=False)
    come(22, b"one", repeat=False)
    assert [source._messages.get_nowait().identifier for _ in range(2)] == [21, 22]
    assert source._messages.empty()
    with source._lock:  # as after an acknowledgement
        source._done, source._outstanding = 2, {}
    come(21, b"one", repeat=False)
    assert source._messages.get_nowait().number == 3


def test_a_broker_that_goes_away_is_waited_for(broker: Broker) -> None:
    """The source says so, does not claim to have caught up, and continues; a message sent again counts once."""
    with broker.source() as source:
        batches = source.batches(patience=lambda: 0.05)
        while source.status.startswith("waiting"):
            next(batches)
        broker.send(message(1, "u"), message(2, "v"))
        rows: list[tuple[str, ...]] = []
        while len(rows) < 2:
            rows += next(batches).frame.rows()
        broker.stop()
        while source.status.startswith("connected"):
            next(batches)
        assert "waiting for the broker at 127.0.0.1" in source.status
        assert not next(batches).caught_up
        broker.start()
        while source.status.startswith("waiting"):
            next(batches)
        broker.send(message(3, "w"))
        while len(rows) < 3:
            rows += next(batches).frame.rows()
        for _ in range(5):
            rows += next(batches).frame.rows()
    assert [row[0] for row in rows] == ["1", "2", "3"]


def test_identifiers_of_a_lost_session_mean_nothing(broker: Broker) -> None:
    """A broker that was restarted without its sessions counts from 1 again: all new messages count, no old one twice."""
    with broker.source() as source:
        batches = source.batches(patience=lambda: 0.05)
        while source.status.startswith("waiting"):
            next(batches)
        broker.send(*[message(n, "old") for n in range(50)])
        rows: list[tuple[str, ...]] = []
        while len(rows) < 50:
            rows += next(batches).frame.rows()  # none of them is acknowledged
        broker.forget()
        while source.status.startswith("connected"):
            next(batches)
        while source.status.startswith("waiting"):
            next(batches)
        broker.send(*[message(n, "new") for n in range(50)])
        while len(rows) < 100:
            rows += next(batches).frame.rows()
    assert [row[0] for row in rows if row[1] == "new"] == [str(n) for n in range(50)]
    assert len(rows) == 100


def test_who_is_pushed_out_says_so(broker: Broker) -> None:
    """Two streams under one name do not push each other out for ever: a sentence says why; by default names differ."""
    with broker.source(client="twins") as first, broker.source(client="twins") as second:
        batches = first.batches(patience=lambda: 0.05)
        while first.status.startswith("waiting"):
            next(batches)
        others = second.batches(patience=lambda: 0.05)

        def both() -> None:
            for _ in range(1000):
                next(batches)
                next(others)

        with pytest.raises(SourceUnavailable, match="another program uses the session 'twins'"):
            both()
    one, two = broker.source(client=""), broker.source(client="")
    one.begin("a", ())
    two.begin("b", ())
    assert one.client != two.client


def test_a_message_that_was_put_away_is_known_again(broker: Broker) -> None:
    """Its acknowledgement was lost with the process: after a restart it comes again, and is not delivered."""
    with broker.source() as source:
        connect(source)
        broker.send(*[message(n, "u") for n in range(20)])
        kept, rows = [], 0
        for batch in source.batches(patience=lambda: 0.05):
            rows += len(batch.frame)
            kept += [batch.arrivals] if batch.arrivals else []
            if rows >= 20:
                break
        # dies here: stored, but not acknowledged
    with broker.source() as source:
        source.begin("", kept)
        assert drain(source, 0) == []
        broker.send(message(20, "u"))
        assert [row[0] for row in drain(source, 1)] == ["20"]


def test_unreadable_messages_cost_no_more_than_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is parsed once, readable or not; halving until bad ones were alone took a thousandfold."""
    parsed = 0
    read = mqtt.message_records

    def counted(content: bytes) -> list[dict[str, Any]]:
        nonlocal parsed
        parsed += 1
        return read(content)

    monkeypatch.setattr(mqtt, "message_records", counted)
    with broker.source() as source:
        connect(source)
        broker.send(*["[" * 3000, '{"time": "noon'] * 200, message(1, "u"))
        assert len(drain(source, 1)) == 1
    assert parsed == 401


def test_bad_records_stop_nobody(broker: Broker) -> None:
    """A device that sends nonsense, or times without a zone, leaves the others as they are."""
    now = int(time.time())
    start = now - now % 10
    steps = Steps(start="1970-01-01", length=10, lateness=1)
    intake = Intake(
        broker.source(), SCHEMA, steps, QUERY, follow=True, position={"step": start // 10 - 1, "source": None}
    )
    with broker.source() as source:  # makes the session
        connect(source)
    broker.send(
        message(start - 5, "u"), '{"time": "noon", "unit": 5}', message(start - 4, "w"), '{"unit": 7}'
    )
    intake.clock = lambda: start + 5.0
    total = 0
    for block in intake:
        total += int(block.values.sum())
        intake.stop()
    intake.close()
    assert total == 2


def test_ten_thousand_events_a_second(broker: Broker) -> None:
    """Events in messages of a hundred arrive and are parsed; the time is not asserted, only that none is lost."""
    with broker.source() as source:
        connect(source)
        body = "[" + ",".join(message(n, f"u{n}") for n in range(100)) + "]"
        broker.send(*[body] * 100)
        assert len(drain(source, 10_000)) == 10_000


def test_wrong_addresses_are_refused_without_the_password() -> None:
    """The message shows the host and what to write."""
    with pytest.raises(InvalidParameter) as caught:
        mqtt.MqttSource("mqtt://user:hunter2@host", NEEDED)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="fields"):
        mqtt.MqttSource("mqtt://host/topic", NEEDED, format="csv", fields=("time",))


def test_the_client_library_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the sentence says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "paho.mqtt.client", None)
    with pytest.raises(SourceUnavailable, match=r"tidegate\[mqtt\]"):
        mqtt.MqttSource("mqtt://host/topic", NEEDED)
