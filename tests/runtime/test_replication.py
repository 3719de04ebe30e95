"""What replication does to charges: two real servers, a crash, a promotion, and a disk that is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers import release, settings, verified

import tidegate as tg
from tidegate.cli import main
from tidegate.core.errors import LogMismatch
from tidegate.errors import TidegateError
from tidegate.pipeline.receipts import LogIsOlder
from waiting import until

NAME = "postgres#campus"
FAILOVERS = int(os.environ.get("TIDEGATE_FAILOVERS", "1"))  # one after the other, each with a new replica


@pytest.fixture
def servers(postgres: Any) -> Iterator[list[Any]]:
    """Servers that a test has started; all are gone after it."""
    found: list[Any] = []
    yield found
    for server in found:
        server.close()


def server(servers: list[Any], postgres: Any, **more: Any) -> Any:
    """One more server."""
    servers.append(type(postgres)(postgres.programs, postgres.user, **more))
    return servers[-1]


def address(server: Any) -> str:
    """The ledger on a server."""
    return f"postgresql://tidegate@127.0.0.1:{server.port}/{NAME}"


def answer(server: Any, question: str) -> Any:
    """One value from a server."""
    import psycopg

    place = address(server).partition("#")[0]
    with psycopg.connect(place, autocommit=True, connect_timeout=5) as connection:
        found = connection.execute(question).fetchone()
        return None if found is None else found[0]


def kept(session: Any) -> list[Any]:
    """The values of all steps that a log has."""
    return [row for each in session.releases() for row in np.atleast_2d(each.values)]


def test_no_charge_is_lost_under_synchronous_replication(postgres: Any, servers: list[Any]) -> None:
    """The primary dies while steps are pushed; what push had returned is on the promoted replica, bit for bit."""
    mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24), columns=3)
    primary = server(servers, postgres)
    seen: list[Any] = []
    for _ in range(FAILOVERS):
        replica = server(servers, postgres, primary=primary)
        primary.configure("synchronous_standby_names = 'FIRST 1 (replica)'")
        until(lambda: answer(primary, "SELECT sync_state FROM pg_stat_replication") == "sync")  # noqa: B023
        begun = len(seen)

        def push(place: str) -> None:
            try:
                with tg.open(mechanism, place) as run:
                    seen.extend(kept(run)[len(seen) :])  # in doubt when the last server died
                    while True:
                        seen.append(run.push([1, 2, 3]).values)
            except TidegateError:
                return

        thread = threading.Thread(target=push, args=(address(primary),))
        thread.start()
        until(lambda: len(seen) >= begun + 20 or not thread.is_alive())  # noqa: B023
        assert thread.is_alive()
        primary.stop()
        thread.join()
        assert not thread.is_alive()
        replica.promote()
        replica.configure("synchronous_standby_names = ''")
        with tg.open(mechanism, address(replica)) as run:
            assert len(seen) <= run.step <= len(seen) + 1
            np.testing.assert_array_equal(kept(run)[: len(seen)], np.array(seen))
        assert verified(address(replica)).ok
        primary = replica


def test_a_replica_that_is_behind_is_refused(
    tmp_path: Path, postgres: Any, servers: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """An asynchronous replica forgets; the receipt of the output knows, and check has said so before."""
    primary = server(servers, postgres)

    def stream(place: Any, count: int) -> Any:
        return settings(
            tmp_path,
            ("count = 12", f"count = {count}"),
            ("window = 4", f'window = 4\nledger = "{address(place)}"'),
        )

    release(stream(primary, 6))
    replica = server(servers, postgres, primary=primary)
    until(lambda: answer(primary, "SELECT count(*) FROM pg_stat_replication") == 1)
    with pytest.raises(LogMismatch, match="is a replica"):
        release(stream(replica, 9))
    stream(primary, 9)
    assert main(["check", str(tmp_path / "tidegate.toml")]) == 0
    assert "a failover may forget charges" in capsys.readouterr().out
    replica.stop()
    release(stream(primary, 9))
    before = (tmp_path / "out.csv").read_bytes()
    primary.stop()
    replica.start()
    replica.promote()
    with pytest.raises(LogIsOlder, match=r"does not have commit 2, .* up to step 9: it is an older copy"):
        release(stream(replica, 12))
    assert main(["ledger", "verify", address(replica), "--head", str(tmp_path / "out.csv.receipt")]) == 1
    assert "lacks charges" in capsys.readouterr().out
    assert (tmp_path / "out.csv").read_bytes() == before
    replica.stop()
    primary.start()  # the old primary is the newest copy, and continues
    assert release(stream(primary, 12)).step == 12
    assert (tmp_path / "out.csv").read_bytes().startswith(before)


@pytest.fixture
def small() -> Iterator[Path]:
    """A small file system that the server's user can reach."""
    place = Path(tempfile.mkdtemp(prefix="tidegate-small-"))
    place.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", "size=128m,mode=0777", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        place.rmdir()
        pytest.skip("a small file system cannot be mounted here; run the tests as root to see this one.")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)
    shutil.rmtree(place, ignore_errors=True)


def test_a_full_disk_of_the_server(tmp_path: Path, postgres: Any, small: Path, servers: list[Any]) -> None:
    """One sentence; with room again the stream continues, and the account holds."""
    data = small / "server"
    data.mkdir()
    primary = server(servers, postgres, folder=data)
    primary.configure("max_wal_size = '2MB'", "min_wal_size = '2MB'", "autovacuum = off")
    config = settings(tmp_path, ("window = 4", f'window = 4\nledger = "{address(primary)}"'))
    with tg.open(
        tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=4), columns=20), f"{address(primary)}_b"
    ) as run:
        ballast = small / "ballast"
        room = 2**20 * 3
        with ballast.open("wb") as file:
            status = subprocess.run(
                ["df", "-B1", "--output=avail", str(small)], capture_output=True, check=True
            )
            left = int(status.stdout.split()[-1])
            for _ in range(max(0, left - room) // 2**16):
                file.write(bytes(2**16))
        done, words = 0, ""
        while not words:
            try:
                run.push_batch(np.random.default_rng(done).integers(0, 9, (2000, 20)))
                done += 2000
            except TidegateError as error:
                words = str(error)
            assert done < 10**6
    assert "is full; free some space" in words or "cannot be reached" in words
    ballast.unlink()
    primary.stop()
    primary.start()
    with tg.open(
        tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=4), columns=20), f"{address(primary)}_b"
    ) as run:
        assert run.step >= done
        run.push([1] * 20)
    assert verified(f"{address(primary)}_b").ok
    assert release(config).step == 12
