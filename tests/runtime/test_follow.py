"""Following a live input: a growing file, a broker at both ends, a broker that goes away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import open_one, publish, release, settings, verified

from tidegate.sinks import mqtt
from waiting import LIMIT, until


def live(folder: Path, *changes: tuple[str, str], seconds: int = 0) -> Any:
    """A stream with steps of one second that begin now."""
    start = datetime.fromtimestamp(int(time.time()) + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    (folder / "events.csv").write_text("time,unit,place\n")
    common = (
        ('start = "2026-03-02T00:00"', f'start = "{start}"'),
        ('length = "1h"', 'length = "1s"'),
        ('column = "place"', 'column = "place"\nfollow = true'),
    )
    return settings(folder, *common, *changes)


class Notes:
    """What a watcher was told."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def released(self, chunk: Any) -> None:
        """Nothing."""

    def waiting(self, sentence: str) -> None:
        """Note it."""
        self.sentences.append(sentence)


def test_a_growing_file(tmp_path: Path) -> None:
    """Steps close by the clock, without events as well; events go into their own step."""
    config = live(tmp_path, ("count = 12", "count = 4"), ('epsilon = "1"', 'epsilon = "1000000"'))
    start = config.steps.origin / 1e6

    class World(Notes):
        """The clock continues, and events arrive, whenever a step has been released."""

        now = start + 0.5

        def released(self, chunk: Any) -> None:
            """The next second."""
            self.arrive(int(chunk.step[-1]))

        def arrive(self, second: int) -> None:
            """Five units, but none in the third second."""
            with (tmp_path / "events.csv").open("a") as file:
                if second != 2:
                    file.write("".join(f"{start + second + 0.25},u{k},north\n" for k in range(5)))
            self.now = start + second + 1.01

    world = World()
    with open_one(config, follow=True, observers={"query": world}) as stream:
        intake = config.open(None, follow=True, clock=lambda: world.now)
        world.arrive(0)
        stream.drive(intake)
        intake.close()
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert [row[1] for row in rows] == ["1", "2", "3", "4"]
    assert [row[2] for row in rows] == ["5", "5", "0", "5"]
    assert {row[3] for row in rows} == {"0"}


@pytest.mark.slow
def test_the_command_stops_in_order(tmp_path: Path) -> None:
    """SIGTERM ends the stream after a committed step, with a summary and exit code 0; it continues later."""
    live(tmp_path, ("count = 12", "count = 100000"))
    command = [sys.executable, "-m", "tidegate", "release", str(tmp_path / "tidegate.toml"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = tmp_path / "out.csv"
    until(lambda: out.exists() and len(out.read_text().splitlines()) >= 3)
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    done = json.loads(shown)
    assert done["steps"] == len((tmp_path / "out.csv").read_text().splitlines()) - 1 >= 2
    assert verified(tmp_path / "tidegate.ledger").ok


class Listener:
    """Collects messages of a topic."""

    def __init__(self, port: int, topic: str) -> None:
        import paho.mqtt.client as paho

        self.messages: list[bytes] = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)  # type: ignore[attr-defined]
        self.client.on_message = lambda _client, _data, message: self.messages.append(message.payload)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert subscribed.wait(LIMIT)

    def wait(self, count: int) -> None:
        """Until there are as many messages."""
        until(lambda: len(self.messages) >= count)

    def close(self) -> None:
        """Leave."""
        self.client.disconnect()
        self.client.loop_stop()


def test_releases_go_to_a_broker(broker: Any, tmp_path: Path) -> None:
    """One message a release with its id; a second start sends nothing again."""
    broker.start()
    listener = Listener(broker.port, "released")
    config = settings(tmp_path, (f"{tmp_path}/out.csv", f"{broker.url}/released"))
    release(config)
    listener.wait(12)
    release(config)
    publish(broker.port, [b"the last"], b"released")  # comes after whatever was sent again
    listener.wait(13)
    listener.close()
    assert listener.messages[12:] == [b"the last"]
    found = [json.loads(message) for message in listener.messages[:12]]
    assert [message["step"] for message in found] == list(range(1, 13))
    assert len({message["id"] for message in found}) == 12
    assert set(found[0]["values"]) == {"north", "south"}


def test_a_broker_that_goes_away(broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps continue being committed, one line says what is waited for, and everything is sent when it is back."""
    monkeypatch.setattr(mqtt, "PATIENCE", 0.3)
    notes = Notes()
    config = settings(tmp_path, (f"{tmp_path}/out.csv", f"{broker.url}/released"))
    with open_one(config, observers={"query": notes}) as stream:
        intake = config.open(None)
        stream.drive(intake)
        intake.close()
        assert stream.step == 12
        assert [sentence.partition(";")[0] for sentence in notes.sentences] == [
            f"waiting for the broker at 127.0.0.1:{broker.port}"
        ]
        broker.start()
        listener = Listener(broker.port, "released")
        stream.finish()
        listener.wait(12)
        listener.close()
        assert notes.sentences[-1] == ""
    assert len({json.loads(message)["id"] for message in listener.messages}) == 12


def test_from_a_broker_to_a_file(broker: Any, tmp_path: Path) -> None:
    """Events come as messages, releases go to a file; what was acknowledged is not read again after a restart."""
    import paho.mqtt.client as paho

    broker.start()
    config = live(
        tmp_path,
        ("count = 12", "count = 10"),
        (f"{tmp_path}/events.csv", f"{broker.url}/events/#"),
        ('epsilon = "1"', 'epsilon = "1000000"'),
        ("follow = true", 'client = "runtime test"'),
        ('length = "1s"', 'length = "1s"\nlateness = "2s"'),
    )
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)  # type: ignore[attr-defined]
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.2):
            now = time.time()
            for unit in range(4):
                client.publish(
                    "events/x", json.dumps({"time": now, "unit": f"u{unit}", "place": "south"}), qos=1
                )

    sender = threading.Thread(target=send)
    sender.start()
    try:
        release(config, follow=True)
    finally:
        stop.set()
        sender.join()
        client.disconnect()
        client.loop_stop()
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert [row[1] for row in rows] == [str(step) for step in range(1, 11)]
    assert {row[3] for row in rows} <= {"0", "4"}  # a busy machine may be late, but never counts a unit twice
    assert "4" in {row[3] for row in rows}


def test_a_source_that_does_not_answer_is_one_line(broker: Any, tmp_path: Path) -> None:
    """The command waits and says so once; when the broker is there it continues."""
    live(tmp_path, ("count = 12", "count = 100000"), (f"{tmp_path}/events.csv", f"{broker.url}/events/#"))
    command = [sys.executable, "-m", "tidegate", "release", str(tmp_path / "tidegate.toml"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    broker.start()
    until(lambda: len((tmp_path / "out.csv").read_text().splitlines()) >= 2)
    process.send_signal(signal.SIGINT)
    shown, more = process.communicate(timeout=LIMIT)
    # why it does not answer may be said, too
    assert line.startswith(f"tidegate: waiting for the broker at 127.0.0.1:{broker.port}")
    assert "; nothing is lost" in line
    assert (process.returncode, more) == (0, "")
    assert json.loads(shown)["steps"] >= 1
