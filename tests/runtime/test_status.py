"""What operators see of a stream that continues: status file, systemd, logs, and a clock that was set."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import open_one, release, settings

from tidegate.cli import main
from tidegate.clock.steps import PublicClock
from tidegate.config import read_queries
from tidegate.errors import InvalidParameter
from tidegate.pipeline import status as status_module
from tidegate.pipeline.backup import verify_log
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.status import Heartbeat, StatusReporter
from tidegate.pipeline.systemd import Notifier
from tidegate.sinks.errors import SinkError, SinkUnavailable
from waiting import LIMIT, until


def listening(path: str) -> socket.socket:
    """The socket of a systemd of our own."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(path)
    found.settimeout(LIMIT)
    return found


def followed(folder: Path, run: str, *changes: tuple[str, str]) -> Path:
    """A configuration of a file that is followed, with steps of a second that began a minute ago."""
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=10)
    settings(
        folder,
        ('start = "2026-03-02T00:00"', f'start = "{begin:%Y-%m-%dT%H:%M:%SZ}"'),
        ('length = "1h"', 'length = "1s"'),
        ("count = 12\n", ""),
        ('column = "place"', 'column = "place"\nfollow = true'),
        ("[sink]", f"[run]\n{run}\n\n[sink]"),
        *changes,
    )
    return folder / "tidegate.toml"


def started(config: Path, **environment: str) -> subprocess.Popen[str]:
    """The command, as systemd would start it."""
    command = [sys.executable, "-m", "tidegate", "release", str(config), "--follow"]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_stream_under_systemd(tmp_path: Path) -> None:
    """Ready when it is at work, alive all the time, stopping on SIGTERM; the status file and the log say the same."""
    config = followed(tmp_path, 'status = "status.json"\nlog = "json"')
    place = str(tmp_path / "notify")
    with listening(place) as system:
        process = started(config, NOTIFY_SOCKET=place, WATCHDOG_USEC="2000000")
        try:
            words = system.recv(4096).decode()
            assert words.startswith("READY=1\nSTATUS=step ")
            signs = [system.recv(4096).decode() for _ in range(3)]
            assert all(sign.startswith("WATCHDOG=1\nSTATUS=") for sign in signs)

            def kept_up() -> dict[str, Any] | None:
                found = json.loads((tmp_path / "status.json").read_text())
                return found if found["step"] >= 10 and found["steps_behind"] <= 3 else None

            facts = until(kept_up)
            assert facts["state"] == "running"
            assert facts["budget"]["limit"] == "1"
            assert [sink["backlog"] for sink in facts["sinks"]] == [0]
            assert facts["source"] == {"connected": True}
            assert stat.S_IMODE((tmp_path / "status.json").stat().st_mode) == 0o644
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT) == 0
            rest = []
            system.settimeout(0.1)
            while True:
                try:
                    rest.append(system.recv(4096).decode())
                except TimeoutError:
                    break
            assert any(words.startswith("STOPPING=1") for words in rest)
        finally:
            process.kill()
            _, errors = process.communicate()
    events = [json.loads(line) for line in errors.splitlines()]
    assert {"opened", "released", "stage"} <= {event["event"] for event in events}
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "ended"
    assert "walrus" not in errors + (tmp_path / "status.json").read_text()
    assert {path.name for path in tmp_path.iterdir() if "status" in path.name} == {"status.json"}


def test_a_loop_that_hangs_gives_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread continues, the status says that it hangs, and systemd hears nothing."""
    monkeypatch.setattr(status_module, "EVERY", 0.05)
    config = settings(tmp_path, ("[sink]", '[run]\nstatus = "status.json"\n\n[sink]'))
    place = str(tmp_path / "notify")
    with listening(place) as system, open_one(config) as stream:
        notifier = Notifier({"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "100000"})
        assert notifier.every == 0.05
        reporter = StatusReporter(config, live=True, notifier=notifier)
        reporter.begin(stream)
        heart = Heartbeat(time.time)
        heart.last -= 100  # for as long nobody has asked it
        reporter.watch(heart, None)
        assert system.recv(4096).startswith(b"READY=1")
        status = tmp_path / "status.json"
        until(lambda: json.loads(status.read_text())["state"] == "hangs")
        written: set[int] = set()
        until(lambda: written.add(status.stat().st_mtime_ns) or len(written) > 5)  # signs were due meanwhile
        system.setblocking(False)
        with pytest.raises(BlockingIOError):
            system.recv(4096)
        heart()
        system.settimeout(LIMIT)
        assert system.recv(4096).startswith(b"WATCHDOG=1")
        reporter.end("failed", "a sentence.")
    facts = json.loads((tmp_path / "status.json").read_text())
    assert (facts["state"], facts["sentence"]) == ("failed", "a sentence.")


def test_a_name_without_a_file_and_no_name_at_all() -> None:
    """An abstract socket is reached; without systemd, or for another process, nothing is sent."""
    name = f"tidegate-test-{os.getpid()}"
    with listening("\0" + name) as system:
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).send(STATUS="two\nlines")
        assert system.recv(100) == b"STATUS=two lines"
    Notifier({}).send(READY="1")
    Notifier({"NOTIFY_SOCKET": "/nowhere"}).send(READY="1")
    assert Notifier({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}).every is None
    assert Notifier({"WATCHDOG_USEC": "5"}).every is None


def test_a_clock_that_was_set_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each time, by the loop that every followed stream has; small corrections are not worth a word."""
    queries = read_queries(followed(tmp_path, 'status = "status.json"'))
    real, by, looks = time.time, [0.0], iter((0.0, 1.5, -7200.0, -7200.0, -7201.0, 0.5, 3600.0))
    monkeypatch.setattr(time, "time", lambda: real() + by[0])
    heart = Heartbeat(PublicClock())
    intake = queries.open(None, follow=True, clock=heart)
    reporter = StatusReporter(queries.first, live=True)
    reporter._facts = {"state": "running"}
    reporter._heart = heart
    said: list[str] = []
    intake.source.tell = said.append
    batches = intake.source.batches

    def looked_at(*arguments: Any, **more: Any) -> Any:
        for batch, moved in zip(batches(*arguments, **more), looks, strict=False):
            by[0] = moved
            yield batch
        intake.stop()

    intake.source.batches = looked_at  # type: ignore[method-assign]
    for _ in intake:
        pass
    assert reporter.facts()["clock_set_by_seconds"] == 3600
    on = "the steps of this stream continue by the clock of its start, so start it again if the new time is right."
    assert said == [
        f"the system's clock was set back by 7,200 s; {on}",
        "the system's clock is again that of this stream.",
        f"the system's clock was set forward by 3,600 s; {on}",
    ]


def test_a_failure_is_in_status_and_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same sentence that the command ends with, and no password."""
    settings(tmp_path, ("[sink]", '[run]\nstatus = "status.json"\nlog = "json"\n\n[sink]'))
    config = str(tmp_path / "tidegate.toml")
    assert main(["release", config]) == 0
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "ended"
    (tmp_path / "events.csv").unlink()
    settings(tmp_path)
    (tmp_path / "events.csv").unlink()
    text = (tmp_path / "tidegate.toml").read_text().replace("count = 12", "count = 15")
    (tmp_path / "tidegate.toml").write_text(
        text.replace("[sink]", '[run]\nstatus = "status.json"\nlog = "json"\n\n[sink]')
    )
    capsys.readouterr()
    assert main(["release", config]) == 2
    *events, last = capsys.readouterr().err.splitlines()
    found = [json.loads(line) for line in events]
    assert found[-1]["event"] == "failed"
    assert f"tidegate: {found[-1]['sentence']}" == last
    facts = json.loads((tmp_path / "status.json").read_text())
    assert (facts["state"], facts["sentence"]) == ("failed", found[-1]["sentence"])


def test_a_status_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """Later a full disk does not stop the stream."""
    config = settings(tmp_path, ("[sink]", '[run]\nstatus = "absent/status.json"\n\n[sink]'))
    with open_one(config) as stream, pytest.raises(SinkError, match="status in"):
        StatusReporter(config, live=True).begin(stream)


def test_a_status_file_replaces_nothing_else(tmp_path: Path) -> None:
    """An earlier status and an empty file make room; anything else stays, and so does what is no file."""
    config = settings(tmp_path, ("[sink]", '[run]\nstatus = "status.json"\n\n[sink]'))
    place = tmp_path / "status.json"
    with open_one(config) as stream:
        reporter = StatusReporter(config, live=True)
        place.write_text("")
        reporter.begin(stream)
        reporter.begin(stream)
        place.write_text("time,unit\n")
        with pytest.raises(InvalidParameter, match="an earlier status file"):
            reporter.begin(stream)
        assert place.read_text() == "time,unit\n"
        place.unlink()
        place.mkdir()
        with pytest.raises(InvalidParameter, match="no folder or device"):
            reporter.begin(stream)


def test_a_sink_that_lacks_releases_is_counted(tmp_path: Path) -> None:
    """Its backlog is what was committed and not taken."""
    config = settings(tmp_path)
    with open_one(config) as stream:
        intake = config.open(stream.position)

        def refuse(_: Any) -> None:
            raise SinkUnavailable("away.")

        stream.sinks["query"][0].sink.write = refuse  # type: ignore[method-assign]
        stream.drive(intake)
        intake.close()
        assert [(sink["backlog"], sink["reached"]) for sink in stream.backlogs] == [(12, False)]


def test_the_budget_of_a_stream_that_has_ended(tmp_path: Path) -> None:
    """A start that finds all steps released says what the last window has spent, as the run before it did."""
    config = settings(tmp_path, ('name = "Uniform"', 'name = "OptStream"'))
    with open_one(config) as stream:
        intake = config.open(stream.position)
        stream.drive(intake)
        before = stream.budget
        stream.finish()
        intake.close()
        assert stream.budget == before
    assert before["spent_in_last_window"] == "1"
    with open_one(config) as again:
        assert again.budget == before


def test_a_followed_stream_prunes_itself(tmp_path: Path) -> None:
    """With archives in [run]; the folder must be there before anything is released."""
    run = ("[sink]", '[run]\narchives = "archives"\nkeep = 4\n\n[sink]')
    with pytest.raises(InvalidParameter, match="archives"):
        open_one(settings(tmp_path, run))
    (tmp_path / "archives").mkdir()
    for count in range(2, 13):
        config = settings(tmp_path, run, ("count = 12", f"count = {count}"))
        release(config)
    archives = list((tmp_path / "archives").iterdir())
    assert len(archives) >= 1
    with LogReader(config.ledger) as log:
        found = verify_log(log.rows(), archives)
    assert found.ok
    assert found.counts.dropped == 0
    assert release(config).step == 12


def test_the_unit_of_the_page(tmp_path: Path) -> None:
    """It is of the kind that notifies, with a watchdog that is slower than the signs of life; systemd can read it."""
    unit = Path(__file__).resolve().parents[2] / "docs" / "examples" / "tidegate.service"
    text = unit.read_text(encoding="utf-8")
    assert "Type=notify" in text
    assert int(re.findall(r"WatchdogSec=(\d+)", text)[0]) >= 2 * status_module.HANGS
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed, so systemd cannot be asked about the unit")
    copy = tmp_path / "tidegate@.service"
    copy.write_text(text.replace("/opt/tidegate/bin/tidegate", sys.executable))
    done = subprocess.run(
        [program, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "tidegate@" in line] == []
