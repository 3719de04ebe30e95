"""Times the service: clients of the live feed, events that are sent, and many streams at once.

``python benchmarks/service.py [clients|ingest|streams|page]``; everything by default. Services run in processes of
their own. Lags are by the wall, and there are no bars. ``--full`` has 1,000 clients, 2 million events and 100 streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sizes import scaled

from tidegate.web.tokens import Tokens

CLIENTS, STEPS = scaled(1000, 5, 200), scaled(20, 3, 10)
EVENTS, BATCH, PRODUCERS = scaled(2_000_000, 2_000, 400_000), scaled(20_000, 200), scaled(50, 3)
STREAMS = scaled(100, 3, 20)
TEXT = """\
[source]
location = "{location}"
time = "time"
unit = "unit"
column = "place"
{follow}

[steps]
start = "{start}"
length = "{length}s"
{more}

[query]
aggregate = "distinct"
columns = {columns}

[protect]
epsilon = "1"
window = 24

[mechanism]
name = "Uniform"
"""


def configured(
    path: Path, *, location: str = "serve:", length: int = 1, behind: int = 5, more: str = ""
) -> Path:
    start = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - datetime.timedelta(seconds=behind)
    columns = json.dumps([f"place {number}" for number in range(20)])
    follow = "complete = true" if "count" in more else "follow = true"
    path.write_text(
        TEXT.format(
            location=location,
            follow=follow,
            start=start.isoformat(),
            length=length,
            columns=columns,
            more=more,
        )
    )
    return path


@contextlib.contextmanager
def service(files: list[Path], tokens: Path) -> Iterator[tuple[str, int, int]]:
    """A service: its host, port and process."""
    command = [sys.executable, "-m", "tidegate", "serve", *map(str, files), "--port", "0", "--json"]
    with (tokens.parent / "service.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--tokens", str(tokens)], stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    try:
        yield "127.0.0.1", int(address.rstrip("/").rpartition(":")[2]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def memory(process: int) -> float:
    """Resident megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def processor(process: int) -> float:
    """Seconds of processor time that a process has taken."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


# clients of the live feed -----------------------------------------------------------------------------------


async def listen(host: str, port: int, path: str, seen: list[tuple[int, float]]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
    while line := await reader.readline():
        if line.startswith(b"data: ") and line[6:7] == b"{" and len(line) > 10:
            now = time.time()
            release = json.loads(line[6:])
            closed = datetime.datetime.fromisoformat(release["time"]).timestamp() + 1
            seen.append((release["number"], now - closed))


def clients() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = configured(folder / "hall.toml")
        with service([file], folder / "tokens.json") as (host, port, process):
            time.sleep(scaled(3, 1))
            idle = memory(process)
            seen: list[list[tuple[int, float]]] = [[] for _ in range(CLIENTS)]

            async def run() -> float:
                tasks = []
                for number in range(CLIENTS):
                    tasks.append(asyncio.create_task(listen(host, port, "/streams/hall/live", seen[number])))
                    if number % 100 == 99:
                        await asyncio.sleep(0.1)
                await asyncio.sleep(2)
                for each in seen:
                    each.clear()
                begun, used = time.perf_counter(), sum(os.times()[:2])
                while min(map(len, seen)) < STEPS:  # a release a second
                    await asyncio.sleep(0.1)
                share = (sum(os.times()[:2]) - used) / (time.perf_counter() - begun)
                busy = memory(process)
                print(f"  the clients themselves took {share:.0%} of a processor")
                for task in tasks:
                    task.cancel()
                return busy

            busy = asyncio.run(run())
        latencies = np.array([latency for each in seen for _, latency in each])
        numbers = [[number for number, _ in each] for each in seen]
        first, last = max(each[0] for each in numbers), min(each[-1] for each in numbers)
        wanted = list(range(first, last + 1))
        complete = sum([number for number in each if first <= number <= last] == wanted for each in numbers)
        p50, p99 = np.quantile(latencies, [0.5, 0.99])
        print(
            f"  {CLIENTS} clients, {len(wanted)} releases: {complete} clients have every one, once, in order"
        )
        print(
            f"  after the close of a step: median {p50:.3f} s, 99 % in {p99:.3f} s, all in {latencies.max():.3f} s"
        )
        print(f"  memory {idle:.0f} MB idle, {busy:.0f} MB with all clients: {busy - idle:.0f} MB more")


# events that are sent ---------------------------------------------------------------------------------------


def bodies(begin: float, seconds: float) -> list[bytes]:
    """Batches of events as NDJSON, made up, in the order of time."""
    units = np.random.default_rng(1).integers(0, 200_000, EVENTS)
    found = []
    for start in range(0, EVENTS, BATCH):
        lines = [
            b'{"time":%.3f,"unit":"device-%d","place":"place %d"}'
            % (begin + seconds * at / EVENTS, units[at], units[at] % 20)
            for at in range(start, start + BATCH)
        ]
        found.append(b"\n".join(lines) + b"\n")
    return found


async def produce(
    host: str, port: int, token: str, queue: asyncio.Queue[tuple[int, bytes]], late: list[int]
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while not queue.empty():
        number, body = queue.get_nowait()
        head = (
            f"POST /streams/hall/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/x-ndjson\r\nIdempotency-Key: b{number}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        while True:
            writer.write(head.encode() + body)
            await writer.drain()
            status = await reader.readline()
            size = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            await reader.readexactly(size)
            if status.split()[1] == b"200":
                break
            assert status.split()[1] == b"429", status
            late.append(number)
            await asyncio.sleep(0.2)
    writer.close()


def ingest() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        token = Tokens(folder / "tokens.json").add("producer", "bench")
        # a step of an hour that has begun a while ago, so that nothing is late and the step stays open
        file = configured(folder / "hall.toml", length=3600, behind=1800)
        batches = bodies(time.time() - 1700, 1600)
        size = sum(map(len, batches))
        (folder / "events.jsonl").write_bytes(b"".join(batches))
        with service([file], folder / "tokens.json") as (host, port, process):
            time.sleep(scaled(3, 1))
            idle = memory(process)

            async def run() -> tuple[float, int]:
                queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
                for pair in enumerate(batches):
                    queue.put_nowait(pair)
                late: list[int] = []
                begun = time.perf_counter()
                await asyncio.gather(*(produce(host, port, token, queue, late) for _ in range(PRODUCERS)))
                return time.perf_counter() - begun, len(late)

            before = processor(process)
            seconds, late = asyncio.run(run())
            used = processor(process) - before
            sent = EVENTS / seconds
            print(
                f"  {EVENTS:,} events ({size / 2**20:.0f} MB of NDJSON) by {PRODUCERS} producers in batches of {BATCH:,}:"
            )
            print(f"  {seconds:.1f} s, {sent:,.0f} events/s acknowledged; {late} batches were put off")
            print(f"  {used:.1f} s of processor time: {EVENTS / used:,.0f} events a second of one core")
            print(f"  memory {idle:.0f} MB idle, {memory(process):.0f} MB with all of them held")
        other = configured(
            folder / "file.toml", location="events.jsonl", length=3600, behind=1800, more="count = 1"
        )
        begun = time.perf_counter()
        command = [sys.executable, "-m", "tidegate", "release", str(other), "--json"]
        subprocess.run(command, check=True, capture_output=True)
        released = EVENTS / (time.perf_counter() - begun)
        print(
            f"  tidegate release of the same file: {released:,.0f} events/s; sent is {sent / released:.2f} of that"
        )


# many streams -----------------------------------------------------------------------------------------------


def releases(log: Path) -> list[dict[str, Any]]:
    """What the service has logged about releases so far."""
    events = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [event for event in events if event["event"] == "stream.released"]


def fewest(log: Path, files: list[Path]) -> int:
    """Releases of the stream that has the fewest so far."""
    found = Counter(event["stream"] for event in releases(log))
    return min(found[file.stem] for file in files)


def streams() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log, wanted = folder / "service.log", scaled(16, 4)
        files = [configured(folder / f"s{number:03d}.toml", length=2) for number in range(STREAMS)]
        with service(files, folder / "tokens.json") as (_, _, process):
            while fewest(log, files) < wanted:
                time.sleep(0.5)
            size = memory(process)
            before = processor(process)
            time.sleep(scaled(10, 1))
            used = (processor(process) - before) / scaled(10, 1)
        released = releases(log)
        last = max(event["step"] for event in released)
        late = [event for event in released if last - scaled(12, 2) <= event["step"] < last]
        lags = np.array([event["lag"] for event in late])
        p50, p99 = np.quantile(lags, [0.5, 0.99])
        own = [
            float(np.median([event["lag"] for event in late if event["stream"] == file.stem]))
            for file in files
        ]
        counts = {file.stem: sum(event["stream"] == file.stem for event in late) for file in files}
        print(f"  {STREAMS} streams, all due at once, every 2 s: median {p50:.3f} s, 99 % within {p99:.3f} s")
        print(
            f"  medians of streams from {min(own):.3f} to {max(own):.3f} s; releases of each {set(counts.values())}"
        )
        print(f"  memory {size:.0f} MB in all, {used:.0%} of a processor; load {os.getloadavg()[0]:.0f}")


# the page ---------------------------------------------------------------------------------------------------

WATCH = """
globalThis.drawn = {}; const seen = tidegate.last;
const look = () => {
  if (tidegate.last > seen && !(tidegate.last in drawn)) drawn[tidegate.last] = Date.now();
  requestAnimationFrame(look);
};
look();
"""


def page() -> None:
    """From the commit of a release, as the service logs it, to the frame in which a browser shows it."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        print("  chromium is not installed; run `make services`, and this part runs as well.")
        return
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = configured(folder / "hall.toml", behind=30)
        browser = webdriver.Chrome(options=options, service=Service(driver))
        try:
            with service([file], folder / "tokens.json") as (host, port, _):
                browser.get(f"http://{host}:{port}/view/hall")
                while not browser.execute_script("return globalThis.tidegate?.charts().length > 0"):
                    time.sleep(0.1)
                browser.execute_script(WATCH)
                while len(drawn := browser.execute_script("return drawn")) < STEPS:
                    time.sleep(0.5)
        finally:
            browser.quit()
        committed = {
            event["number"]: datetime.datetime.fromisoformat(event["time"]).timestamp()
            for event in releases(folder / "service.log")
        }
    late = [
        when - 1000 * committed[int(number)] for number, when in drawn.items() if int(number) in committed
    ]
    print(
        f"  {len(late)} releases: drawn {np.median(late):.0f} ms after their commit (median), "
        f"at most {max(late):.0f} ms; load {os.getloadavg()[0]:.0f}"
    )


def main() -> None:
    chosen = [word for word in sys.argv[1:] if word != "--full"] or ["clients", "ingest", "streams", "page"]
    for name, work in (("clients", clients), ("ingest", ingest), ("streams", streams), ("page", page)):
        if name in chosen:
            print(name, flush=True)
            work()


if __name__ == "__main__":
    main()
