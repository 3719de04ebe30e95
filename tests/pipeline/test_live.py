"""Events of a program of one's own: counted like those of a file, released by the clock, safe at every instruction."""

from __future__ import annotations

import asyncio
import copy
import datetime
import decimal
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.test_docs import blocks

import tidegate as tg
from tidegate.core.errors import Fenced, LogMismatch, SessionClosed
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source
from tidegate.mechanisms import Uniform
from tidegate.pipeline.clock_check import ClockRefused
from tidegate.pipeline.errors import LogBusy
from tidegate.pipeline.side_tables import SideTables
from waiting import until

HOUR = 3600
VISITS = Query(aggregate="distinct", columns=Columns(("hall", "yard")))
STEPS = Steps(start="1970-01-01T00:00", length="1h")
CERTAIN = tg.WEvent(epsilon="4000000", window=4)  # hardly any noise: released values are the counts


def stream(log: Path | None, now: list[float], query: Query = VISITS, **more: Any) -> tg.Live:
    """A stream whose clock the test sets."""
    policy = tg.WEvent(epsilon="4000000", window=4, max_change=query.max_change() or 1)
    mechanism = Uniform(policy, columns=query.width, grid=query.grid)
    more = {"steps": STEPS, **more}
    return tg.Live(mechanism, log, query=query, clock=lambda: now[0], **more)


def counts(released: list[Any]) -> dict[int, list[float]]:
    """Values by step."""
    return {each.step: np.round(each.values, 2).tolist() for each in released}


def test_events_count_like_those_of_a_file(tmp_path: Path) -> None:
    """The same events in a file and one by one, in another order, give the same steps."""
    rng = np.random.default_rng(3)
    events = [
        (
            int(rng.integers(0, 5 * HOUR)),
            f"u{rng.integers(12)}",
            str(rng.choice(["hall", "yard", "roof"])),
            float(rng.integers(-3, 9)),
        )
        for _ in range(100)
    ]
    pl.DataFrame(events, schema=["time", "unit", "column", "value"], orient="row").write_csv(
        tmp_path / "e.csv"
    )
    columns = Columns(("hall", "yard"))
    for query in (
        Query(aggregate="distinct", columns=columns),
        Query(aggregate="count", columns=columns, most=2),
        Query(aggregate="sum", columns=columns, most=2, clip=("0", "5"), grid="1/2"),
        Query(aggregate="count", columns=columns, where="value >= 2"),
    ):
        schema = Schema(time="time", unit="unit", column="column", value="value" if query.clip else None)
        with open_source(tmp_path / "e.csv", query.needed(schema)) as source:
            steps = Steps(start="1970-01-01T00:00", length="1h", count=5)
            wanted = {
                block.first_step + at: row.tolist()
                for block in Intake(source, schema, steps, query)
                for at, row in enumerate(block.values)
            }
        now = [10.0]
        with stream(tmp_path / f"{query.aggregate}{query.where}.ledger", now, query) as live:
            now[0] = 5 * HOUR - 1
            live.add_many(events[60:][::-1])
            for event in events[:15]:
                live.add(*event)
            live.add_many(events[15:60])
            now[0] = 5 * HOUR
            found = live.release()
        assert counts(found) == wanted


def test_an_open_step_survives_a_restart(tmp_path: Path) -> None:
    """What was handed over before counts once with what comes after; nothing of it stays when its step is released."""
    now = [60.0]
    with stream(tmp_path / "a.ledger", now) as live:
        live.add(60, "somebody-with-a-name", "hall")
        live.add(70, "u2", "yard")
        assert "somebody" not in repr(live)
    assert (tmp_path / "a.ledger").stat().st_mode & 0o077 == 0
    with stream(tmp_path / "a.ledger", now) as live:
        live.add(80, "somebody-with-a-name", "yard")  # seen before: the first column counts
        live.add(3 * HOUR, "u3", "hall")  # further ahead than clocks differ
        now[0] = HOUR
        (release,) = live.release()
        assert counts([release]) == {1: [1, 1]}
        assert release.time == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        assert [each.time for each in live.releases()] == [release.time]
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"somebody" not in left
    found = SQLiteLog(tmp_path / "a.ledger")
    assert verify(found.rows()).ok
    found.close()


def test_only_the_clock_closes_a_step() -> None:
    """Not a record of the next step, nor one of the future; late ones are left out."""
    now = [HOUR - 10.0]
    with stream(None, now, steps=Steps(start="1970-01-01T00:00", length="1h", lateness=600)) as live:
        live.add(HOUR + 5, "u1", "hall")  # its clock is a little ahead
        now[0] = HOUR + 599
        live.add(HOUR - 1, "u2", "hall")  # late, and in time
        assert live.release() == []
        assert live.due == HOUR + 600
        now[0] = HOUR + 600
        assert counts(live.release()) == {1: [1, 0]}
        live.add(HOUR - 1, "u3", "hall")  # too late
        now[0] = 2 * HOUR + 600
        assert counts(live.release()) == {2: [1, 0]}


def test_a_stream_that_ends() -> None:
    """After its last step nothing is due."""
    now = [10.0]
    with stream(None, now, steps=Steps(start="1970-01-01T00:00", length="1h", count=2)) as live:
        now[0] = 9 * HOUR
        assert [each.step for each in live.release()] == [1, 2]
        assert live.due == float("inf")
        assert live.release() == []


@pytest.mark.parametrize(
    ("missed", "seen"),
    [("pass over", {1: [1, 0], 5: [0, 1]}), ("release", {1: [1, 0], 2: [0, 0], 5: [0, 1]})],
)
def test_missed_steps(tmp_path: Path, missed: str, seen: dict[int, list[float]]) -> None:
    """Nothing is said of steps that nobody could see; the step in which the program died is released."""
    now, found = [60.0], []
    with stream(tmp_path / "a.ledger", now, missed=missed) as live:
        live.add(60, "u1", "hall")
    now[0] = 4.5 * HOUR
    with stream(tmp_path / "a.ledger", now, missed=missed) as live:
        live.add(4.2 * HOUR, "u2", "yard")
        found += live.release()
    now[0] = 5 * HOUR
    with stream(tmp_path / "a.ledger", now, missed=missed) as live:
        found += live.release()
    assert counts(found).items() >= seen.items()
    assert len(found) == (2 if missed == "pass over" else 5)


def test_what_is_passed_over_is_public(tmp_path: Path) -> None:
    """Whatever was handed over, the same starts release the same steps, also where one dies between two commits."""
    rng = np.random.default_rng(5)
    for turn in range(4):
        plans = []
        for busy in (False, True):
            path, now, time = tmp_path / f"{turn}{busy}.ledger", [0.0], 0.0
            starts = np.random.default_rng(turn)
            steps = []
            for _ in range(6):
                time += float(starts.exponential(2 * HOUR))
                now[0] = time
                with stream(path, now) as live:
                    for _ in range(int(starts.integers(4))):
                        if busy:
                            live.add(now[0] - rng.exponential(HOUR), f"u{rng.integers(5)}", "hall")
                        time += float(starts.exponential(HOUR))
                        now[0] = time
                        steps += [each.step for each in live.release()]
            plans.append(steps)
        assert plans[0] == plans[1]
        assert plans[0] == sorted(set(plans[0]))


def test_a_program_that_was_up_misses_nothing(tmp_path: Path) -> None:
    """A step in which a program ran at any time is released, whenever it was killed before its next release."""
    rng = np.random.default_rng(8)
    for turn in range(4):
        path, now, seen, released = tmp_path / f"{turn}.ledger", [0.0], set[int](), set[int]()
        time = 0.0
        for _ in range(6):
            time += float(rng.exponential(3 * HOUR))
            now[0] = time
            live = stream(path, now)
            for _ in range(int(rng.integers(1, 5))):
                released |= {each.step for each in live.release()}
                seen.add(int(now[0] // HOUR) + 1)
                time += float(rng.uniform(0, HOUR))
                now[0] = time
            live.close()
        assert {step for step in seen if step < max(released)} <= released


def test_a_clock_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """Years ahead, or before what was released: one sentence, and the stream continues when it is right."""
    now = [60.0]
    with stream(tmp_path / "a.ledger", now) as live:
        now[0] = HOUR
        live.release()
    for time, words in ((3e8, "raise catch_up"), (-2 * HOUR, "begin a new log")):
        now[0] = time
        with pytest.raises(ClockRefused, match=words) as refusal:
            stream(tmp_path / "a.ledger", now)
        assert str(refusal.value).count(". ") == 0
    now[0] = HOUR
    with stream(tmp_path / "a.ledger", now) as live:
        live.add(HOUR, "u1", "hall")


def test_sensitivity_is_tied_to_the_policy() -> None:
    """A policy that hides less than a unit may contribute is refused, and so is a mechanism of another shape."""
    query = Query(aggregate="count", columns=Columns(("hall", "yard")), most=3)
    with pytest.raises(InvalidParameter, match='max_change="3"'):
        tg.Live(Uniform(tg.WEvent(epsilon="1", window=4), columns=2), steps=STEPS, query=query)
    policy = tg.WEvent(epsilon="1", window=4, max_change=3)
    for mechanism, words in (
        (Uniform(policy), "query.width"),
        (Uniform(policy, columns=2, grid="1/2"), "grid"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            tg.Live(mechanism, steps=STEPS, query=query)
    for wrong in (
        Query(aggregate="given"),
        Query(aggregate="distinct", over=3),
        Query(aggregate="count", where="colour == 'red'"),
    ):
        with pytest.raises(InvalidParameter):
            tg.Live(Uniform(policy), steps=STEPS, query=wrong)


class Nowhere(datetime.tzinfo):
    """A zone without an offset."""

    def utcoffset(self, moment: datetime.datetime | None) -> None:
        """Unknown."""


WRONG: list[tuple[Any, ...]] = [
    ("1970-01-01", "u1", "hall", 1),
    (datetime.datetime(1970, 1, 1), "u1", "hall", 1),
    (float("nan"), "u1", "hall", 1),
    (None, "u1", "hall", 1),
    (60, None, "hall", 1),
    (60, 1.5, "hall", 1),
    (60, True, "hall", 1),
    (60, "\ud800", "hall", 1),
    (60, "secret-unit", None, 1),
    (60, "secret-unit", "hall", "much"),
    (60, "secret-unit", "hall", float("inf")),
    (60, "secret-unit", "hall", None),
    (60,),
    (decimal.Decimal("sNaN"), "u1", "hall", 1),
    (60, "secret-unit", "hall", decimal.Decimal("sNaN")),
    (datetime.datetime(1970, 1, 1, tzinfo=Nowhere()), "u1", "hall", 1),
    (60, 10**5000, "hall", 1),
]


@pytest.mark.parametrize("event", WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_record_that_cannot_be_read_is_its_own_trouble(event: tuple[Any, ...]) -> None:
    """It is refused in one sentence that does not show it; among others it is left out, and they count."""
    now = [90.0]
    query = Query(aggregate="sum", columns=Columns(("hall",)), clip=("0", "5"))
    with stream(None, now, query) as live:
        with pytest.raises((InvalidInput, TypeError)) as refusal:
            live.add(*event)
        assert "secret" not in str(refusal.value)
        assert not live.closed
        live.add_many(
            [
                (60, "u1", "hall", 2),
                event,
                (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), uuid.UUID(int=7), "hall", 9),
            ]
        )
        now[0] = HOUR
        assert counts(live.release()) == {1: [7]}


def test_numbers_of_any_type_are_times() -> None:
    """Narrow ones do not overflow, one that no clock reaches is of the far future, and others count as before."""
    now = [1_700_000_100.0]
    query = Query(aggregate="count", columns=Columns(("hall",)), most=1)
    with stream(None, now, query) as live:
        times = (np.int32(1_700_000_000), np.uint32(1_700_000_000), np.int64(1_700_000_000), 1_700_000_000.5)
        live.add_many(
            [*((time, f"u{at}", "hall") for at, time in enumerate(times)), (10**400, "far", "hall")]
        )
        live.add_many(
            [None, 5, "text", (np.int8(5), "old", "hall"), (np.float64(1_700_000_000), "last", "hall")]
        )  # type: ignore[list-item]
        now[0] += HOUR
        assert sum(sum(each) for each in counts(live.release()).values()) == 5


def test_units_and_times_are_read_apart() -> None:
    """A number and the same digits are one unit; times have any zone, and come out in that of the steps."""
    berlin = Steps(start="1970-01-01T00:00", length="1h", zone="Europe/Berlin")
    now = [60.0]
    moment = datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    with stream(None, now, Query(aggregate="distinct"), steps=berlin) as live:
        for time, unit in (
            (moment, 7),
            (0, "7"),
            (0.25, np.int64(7)),
            (moment.replace(tzinfo=datetime.UTC), 8),
        ):
            live.add(time, unit)
        now[0] = HOUR
        (release,) = live.release()
        assert counts([release]) == {2: [1]}
        assert release.time.isoformat() == "1970-01-01T01:00:00+01:00"


def test_several_queries_share_events() -> None:
    """Each has its part of the budget and its own columns."""
    columns = Columns(("hall", "yard"))
    queries = {
        "visitors": Query(aggregate="distinct"),
        "amount": Query(aggregate="sum", columns=columns, clip=("0", "5")),
    }
    policy = tg.WEvent(epsilon="4000000", window=4, max_change=5)
    mechanisms = {name: Uniform(policy, columns=query.width) for name, query in queries.items()}
    now = [60.0]
    shares = {"visitors": "1/4", "amount": "3/4"}
    with tg.Live(mechanisms, steps=STEPS, query=queries, shares=shares, clock=lambda: now[0]) as live:
        live.add(60, "u1", "hall", 9)
        live.add(60, "u2", "yard", 2)
        now[0] = HOUR
        ((found),) = live.release()
        assert np.round(found["visitors"].values).tolist() == [2]
        assert np.round(found["amount"].values).tolist() == [5, 2]
        assert found["amount"].time == found["visitors"].time
    with pytest.raises(InvalidParameter, match="like"):
        tg.Live(mechanisms, steps=STEPS, query={"visitors": queries["visitors"]})
    with pytest.raises(InvalidParameter, match="mapping"):
        tg.Live(mechanisms["visitors"], steps=STEPS, query=queries)


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    """Another clock or query belongs to another log; one program at a time has it."""
    now = [60.0]
    with stream(tmp_path / "a.ledger", now), pytest.raises(LogBusy):
        stream(tmp_path / "a.ledger", now)
    for more in (
        {"steps": Steps(start="1970-01-01T00:00", length="2h")},
        {"query": Query(aggregate="distinct", columns=Columns(("hall", "roof")))},
    ):
        with pytest.raises(LogMismatch):
            stream(tmp_path / "a.ledger", now, **more)
    with pytest.raises(InvalidParameter, match="a file"):
        tg.Live(Uniform(CERTAIN), "postgresql://host/base#a", steps=STEPS, query=Query(aggregate="distinct"))
    with pytest.raises(InvalidParameter, match="missed"):
        stream(None, now, missed="forget")
    stream(tmp_path / "a.ledger", now).close()


def test_threads_take_turns(tmp_path: Path) -> None:
    """Events of many threads all count, while another one releases."""
    now, found = [60.0], []
    with stream(tmp_path / "a.ledger", now, Query(aggregate="distinct")) as live:

        def send(name: int) -> None:
            for number in range(20):
                live.add(60, f"{name}-{number}")
                found.extend(live.release())

        threads = [threading.Thread(target=send, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        now[0] = HOUR
        assert counts(found + live.release()) == {1: [100]}
        with pytest.raises(TypeError, match="copied"):
            copy.copy(live)


def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    """It neither adds nor closes what its parent has."""
    now = [60.0]
    with stream(tmp_path / "a.ledger", now) as live:
        child = os.fork()
        if not child:
            try:
                live.close()
                live.add(60, "u1", "hall")
            except Fenced:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        live.add(60, "u1", "hall")
        now[0] = HOUR
        assert counts(live.release()) == {1: [1, 0]}
    with pytest.raises(SessionClosed, match="closed"):
        live.add(60, "u1", "hall")


def test_what_could_not_be_stored_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails ends the stream; opened again, it has what was acknowledged, and nothing else."""
    now = [60.0]
    live = stream(tmp_path / "a.ledger", now)
    live.add(60, "u1", "hall")
    with monkeypatch.context() as broken:
        broken.setattr(SideTables, "keep", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            live.add(60, "u2", "hall")
    with pytest.raises(SessionClosed, match="open it again"):
        live.add(60, "u2", "hall")
    assert live.closed
    live.close()
    with stream(tmp_path / "a.ledger", now) as live:
        now[0] = HOUR
        assert counts(live.release()) == {1: [1, 0]}


def test_asyncio_follows_the_clock() -> None:
    """Releases come as steps close, and the loop is free meanwhile."""
    now = [60.0]

    async def run() -> list[Any]:
        with stream(None, now, steps=Steps(start="1970-01-01T00:00", length="1h", count=2)) as live:

            async def send() -> None:
                for hour in (1, 2):
                    await asyncio.to_thread(live.add, now[0], f"u{hour}", "yard")
                    now[0] = hour * HOUR

            sending = asyncio.create_task(send())
            found = [released async for released in live.follow()]
            await sending
        return found

    assert counts(asyncio.run(run())) == {1: [0, 1], 2: [0, 1]}


# the service of the page ----------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/howto/embedding.md"
RUN = """
import sys, pathlib, socket, uvicorn
import tidegate.pipeline.live as live
live.PublicClock = lambda: lambda: float(pathlib.Path("now").read_text() or 0)
from service import app
listener = socket.socket(fileno=int(sys.argv[1]))
uvicorn.run(app, fd=listener.detach(), log_level="error")
"""


def example() -> str:
    """The service as the page has it."""
    (found,) = (body for _, body in blocks(PAGE, "python") if "Starlette(" in body)
    return found


def test_the_example_is_short() -> None:
    """At most 40 lines."""
    assert len(example().splitlines()) <= 40


class Service:
    """The example in a process of its own, with a clock in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "service.py").write_text(re.sub(r'epsilon="1"', 'epsilon="4000000"', example()))
        (folder / "run.py").write_text(RUN)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            os.set_inheritable(listener.fileno(), True)
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            command = [sys.executable, "run.py", str(listener.fileno())]
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        until(lambda: self.process.poll() is not None or self.ask("/releases") is not None)
        assert self.process.poll() is None

    def ask(self, path: str, body: Any = None) -> Any:
        """What it answers; None where it cannot be reached any more."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=60) as answer:
                return json.loads(answer.read() or b"true")
        except urllib.error.HTTPError as error:
            return error.code
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def kill(self) -> None:
        """Not even Python gets a chance."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[list[Service]]:
    """Those that are running, which are killed at the end."""
    found: list[Service] = []
    yield found
    for each in found:
        each.kill()


@pytest.mark.slow
def test_the_example_survives_sigkill(tmp_path: Path, services: list[Service]) -> None:
    """Every event that was acknowledged counts once, in its hour, whenever the service is killed."""
    pytest.importorskip("uvicorn")
    begin = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    now, acknowledged = begin, dict[str, int]()

    def set_clock() -> None:
        (tmp_path / "now.new").write_text(str(now.timestamp()))
        (tmp_path / "now.new").rename(tmp_path / "now")

    set_clock()
    rng = np.random.default_rng(2)
    doubtful = dict[str, int]()
    for start in range(8):
        service = Service(tmp_path)
        services.append(service)
        killer = threading.Timer(float(rng.uniform(0.05, 0.8)), service.kill)
        killer.start()
        for number in range(400):
            hour = now.replace(minute=0).isoformat()
            if number % 40 == 39:
                now += datetime.timedelta(minutes=20)
                set_clock()
                continue
            event = {"time": now.isoformat(), "unit": f"{start}-{number}", "column": "hall"}
            found = service.ask("/events", event)
            if found is None:  # killed: it may be stored, or not
                doubtful[hour] = doubtful.get(hour, 0) + 1
                break
            assert found is True
            acknowledged[hour] = acknowledged.get(hour, 0) + 1
        killer.join()
        service.kill()
    assert doubtful
    service = Service(tmp_path)
    services.append(service)
    assert service.ask("/events", {"time": "yesterday", "unit": "u"}) == 400
    now += datetime.timedelta(hours=2)
    set_clock()
    last = max({*acknowledged, *doubtful})

    def released() -> dict[str, int]:
        found = {}
        for each in service.ask("/releases"):
            time = datetime.datetime.fromisoformat(each["time"]).astimezone(datetime.UTC)
            found[time.isoformat()] = round(each["values"][0])
        return found

    found = until(lambda: each if last in (each := released()) else None)
    for hour, count in found.items():
        least = acknowledged.get(hour, 0)
        assert least <= count <= least + doubtful.get(hour, 0)
    assert set(acknowledged) <= set(found)
    service.kill()
    log = SQLiteLog(tmp_path / "visits.ledger")
    assert verify(log.rows()).ok
    log.close()
