"""Services for tests: servers of their own, on free ports, as users without privileges."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Require = Callable[[str, str], None]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Postgres:
    """A PostgreSQL server in a folder of its own. It refuses to run as root, so root lends it another user."""

    def __init__(self, programs: Path, user: str) -> None:
        self.programs, self.user = programs, user
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
        if os.getuid() == 0:
            shutil.chown(self.folder, user)
        self.port = free_port()
        self._streams = itertools.count(1)
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", "tidegate", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        self.start()

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=check,
            user=self.user if os.getuid() == 0 else None,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-w", "-l", "log", "start")

    def stop(self) -> None:
        """Stop at once, as a crash would."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop", check=False)

    def new_stream(self) -> str:
        """The URL of a stream that does not exist yet."""
        return f"postgresql://tidegate@127.0.0.1:{self.port}/postgres#stream_{next(self._streams)}"

    def close(self) -> None:
        """Stop and remove everything."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(require_service: Require) -> Iterator[Postgres]:
    """A PostgreSQL server for all tests of a process."""
    pytest.importorskip("psycopg")
    found = shutil.which("initdb")
    places = (
        [Path(found).resolve().parent]
        if found
        else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    if not places or not (places[0] / "initdb").exists():
        require_service("PostgreSQL", "initdb is not installed")
    user = "postgres"
    try:
        pwd.getpwnam(user)
    except KeyError:
        user = "nobody"
    server = Postgres(places[0], user)
    yield server
    server.close()


class Broker:
    """A Mosquitto broker on a free port."""

    def __init__(self, program: str, folder: Path) -> None:
        self.port = free_port()
        self.program = program
        self.settings = folder / "mosquitto.conf"
        self.settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.process = subprocess.Popen(
            [self.program, "-c", str(self.settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the broker does not listen")

    def stop(self) -> None:
        """Stop, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None


@pytest.fixture
def broker(tmp_path: Path, require_service: Require) -> Iterator[Broker]:
    """A broker of its own for a test, not started yet."""
    pytest.importorskip("paho.mqtt.client")
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        require_service("Mosquitto", "no program of that name is installed")
    assert program is not None
    found = Broker(program, tmp_path)
    yield found
    found.stop()
