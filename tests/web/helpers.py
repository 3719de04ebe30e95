"""Real services for tests: in a thread of this process, or in a process of their own that can be killed."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.runtime.helpers import TEXT as STREAM

from tidegate.config import Config, Queries, parse_config, parse_queries
from tidegate.core.verify import Verification
from tidegate.pipeline.backup import verify_log
from tidegate.pipeline.logs import LogReader
from tidegate.web import Service, Settings
from tidegate.web.service import Server, listen, server_config
from waiting import LIMIT, until

TEXT = STREAM.replace("count = 12", "count = 48").partition("\n[sink]")[0]  # sends to whoever reads


PEOPLE_AND_VISITS = """\
[[query]]
name = "people"
aggregate = "distinct"
columns = ["north", "south"]
share = "1/4"

[[query]]
name = "visits"
aggregate = "count"
most = 2
share = "3/4"
"""


def in_two_queries(text: str) -> str:
    """The same stream with two statistics: people at each place, and all visits."""
    one = '[query]\naggregate = "distinct"\ncolumns = ["north", "south"]\n'
    assert one in text
    return text.replace(one, PEOPLE_AND_VISITS)


def two_queries(folder: Path) -> Queries:
    """A stream that ends, with two queries."""
    write_events(folder)
    text = in_two_queries(TEXT.format(folder=folder)) + '[sink]\nlocation = "released.csv"\n'
    (folder / "hall.toml").write_text(text)
    return parse_queries(text, folder / "hall.toml")


def write_events(folder: Path, hours: int = 48) -> None:
    """Three units in the north and one in the south at every hour."""
    lines = ["time,unit,place"]
    for hour in range(hours):
        day, at = divmod(hour, 24)
        lines += [
            f"2026-03-{2 + day:02d}T{at:02d}:{10 * k:02d},walrus{k},{'south' if k == 3 else 'north'}"
            for k in range(4)
        ]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")


def configured(folder: Path, *changes: tuple[str, str], name: str = "hall") -> Config:
    """A stream's configuration in a folder, with pieces of its text replaced."""
    text = TEXT.format(folder=folder)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return parse_config(text, path)


def finite(folder: Path, *changes: tuple[str, str], name: str = "hall") -> Config:
    """A stream that ends."""
    write_events(folder)
    return configured(folder, *changes, name=name)


def live_text(folder: Path, *, seconds: int = 1, behind: int = 0, mechanism: str = "Uniform") -> str:
    """A stream of short steps that follows a file, and began some seconds ago."""
    start = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - datetime.timedelta(seconds=behind)
    return (
        TEXT.format(folder=folder)
        .replace('column = "place"', 'column = "place"\nfollow = true')
        .replace('"2026-03-02T00:00"', f'"{start.isoformat()}"')
        .replace('length = "1h"', f'length = "{seconds}s"')
        .replace("count = 48\n", "")
        .replace('"Uniform"', f'"{mechanism}"')
    )


@contextmanager
def served(configs: Sequence[Config | Queries], **settings: Any) -> Iterator[tuple[str, Service]]:
    """A service in this process on a free port; its address."""
    chosen = Settings(port=0, **settings)
    listening = listen(chosen)
    service = Service(configs, chosen)
    config = server_config(service)
    config.timeout_graceful_shutdown = 5
    server = Server(config, service, None)
    service.connections = server.server_state.connections  # for tests that look whether somebody has gone
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        assert server.started
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", service
    finally:
        service.stop()
        server.should_exit = True
        thread.join(LIMIT)
        assert not thread.is_alive()


def settled(service: Service, name: str = "hall") -> None:
    """Wait until a finite stream has ended."""
    until(lambda: service.drivers[name].state == "ended")


def verified(location: str | Path, archives: Iterable[Path] = ()) -> Verification:
    """What a second reading of a log, with its archives, has found."""
    with LogReader(str(location)) as log:
        return verify_log(log.rows(), archives)


class Process:
    """A service in a process of its own, by the command line, on the same port at every start."""

    def __init__(
        self, files: list[Path], *options: str, port: int = 0, open_files: int | None = None
    ) -> None:
        self.files, self.options, self.port = files, options, port
        self.prefix = ["prlimit", f"--nofile={open_files}:{open_files}"] if open_files else []
        self.logs = files[0].with_suffix(".log")
        self.process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> str:
        """Start it and wait until it answers."""
        command = [*self.prefix, sys.executable, "-m", "tidegate", "serve", *map(str, self.files)]
        command += ["--port", str(self.port), "--json", *self.options]
        with self.logs.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.logs.read_text()[-2000:]
        self.address = json.loads(line)["address"].rstrip("/")
        self.port = int(self.address.rpartition(":")[2])
        return self.address

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        os.kill(process.pid, number)
        code = process.wait(LIMIT)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def __enter__(self) -> Process:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
