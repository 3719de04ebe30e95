"""A stream that is asked to end does, also while a sink or a database does not answer."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.runtime.helpers import settings, verified

from waiting import LIMIT

FOLLOWED = (
    ('column = "place"', 'column = "place"\nfollow = true'),
    ("count = 12\n", ""),
    ('start = "2026-03-02T00:00"', 'start = "{start}"'),
    ('length = "1h"', 'length = "1s"'),
)


@pytest.mark.slow
def test_one_signal_is_enough_without_a_broker(tmp_path: Path) -> None:
    """A real process: the sink's broker takes connections and says nothing; one SIGTERM ends it in order."""
    pytest.importorskip("paho.mqtt.client")
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(8)
    port = silent.getsockname()[1]
    settings(
        tmp_path,
        *[(before, after.format(start=start)) for before, after in FOLLOWED],
        (f"{tmp_path}/out.csv", f"mqtt://127.0.0.1:{port}/released"),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "release", str(tmp_path / "tidegate.toml"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "waiting for the broker" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        silent.close()
    assert process.returncode == 0
    assert f"broker 127.0.0.1:{port}/released" in output
    found = verified(tmp_path / "tidegate.ledger")
    assert found.ok
    assert found.counts.releases > 0  # committed, and sent at the next start
