"""Coverage-guided fuzzing with atheris: records, configurations and command lines.

``python tests/campaign/fuzz.py records --runs 100000``. A finding is whatever ends in anything but a result or an error
of this project, or shows the marker that every input has, or takes more than ten seconds of the processor. Where
atheris is not installed, random inputs are made from the same seeds, and the last line says so.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

MARK = "MARKED7781"
CSV = f"time,unit,place,value\n5,{MARK},a,1\n15,u,b,2\n"
LINES = (
    f'{{"time": 5, "unit": "{MARK}", "place": "a", "value": 1}}\n{{"time": 15, "unit": "u", "place": "b"}}\n'
)
SECRET = "hidden5519"
SETTINGS = """[source]
location = "events.csv"
time = "time"
unit = "unit"
column = "place"

[steps]
start = "1970-01-01T00:00Z"
length = "10s"
count = 3

[query]
aggregate = "distinct"
columns = ["a", "b"]

[protect]
epsilon = "1"
window = 2
ledger = "stream.ledger"

[mechanism]
name = "Uniform"

[sink]
location = "out.csv"
"""
VALUES = [
    *(
        "tidegate.toml",
        "other.toml",
        "events.csv",
        "out.csv",
        "out.csv.receipt",
        "stream.ledger",
        "copy.ledger",
    ),
    *(
        "absent.ledger",
        "tokens.json",
        "x.html",
        "x.png",
        "x.json",
        "out",
        ".",
        "-",
        "",
        "a/b",
        "stream.ledger.lock",
    ),
    *(
        "-1",
        "0",
        "1",
        "2",
        "7",
        "1/3",
        "0.5",
        "1e999",
        "1e-999",
        "nan",
        "inf",
        "99999999999999999999",
        "now",
        "1h",
    ),
    *(
        "1970-01-01",
        "1970-01-01T00:00:25Z",
        "9999-12-31",
        "all",
        "auto",
        "north",
        "a,b",
        "Uniform",
        "Tide,Uniform",
    ),
    *("w-event epsilon=1 window=3", "event epsilon=1", "producer", "operator", "gateway", "bash", "0" * 64),
    *(
        "\0",
        "💧",
        "[/b]",
        "$\\frac$",
        "{x}",
        "%s",
        "--",
        "mqtt://127.0.0.1:1/t",
        f"mqtt://u:{SECRET}@127.0.0.1:1/t",
    ),
    *(f"postgresql://u:{SECRET}@127.0.0.1:1/d#x", f"postgresql://u:{SECRET}@127.0.0.1:1/d?table=t"),
    *(f"postgre://u:{SECRET}@127.0.0.1:1/d", f"kafka://127.0.0.1:1/t?password={SECRET}"),
]
LENGTHY = (  # what computes for seconds by design, or continues until it is stopped: everything before it is tried
    *("tidegate.plan:make_plan", "tidegate.plan.target:reach", "tidegate.cli.preview:run_preview"),
    *("tidegate.audit.auditor:audit", "tidegate.bench.own_stream:compare"),
    *("tidegate.datasets.streams:campus", "tidegate.web.demo:run_demo"),
    "tidegate.web:serve",
)


class Finding(Exception):
    """Something that must not happen."""


def records(data: bytes) -> None:
    """Many records, a line each: a finite file, in which one bad record refuses all, or messages, each for itself.

    The first byte decides which, so that an input is not read in all four ways.
    """
    from tidegate.errors import TidegateError
    from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source
    from tidegate.ingest.combined_query import read_rows
    from tidegate.ingest.schema import TextUnits
    from tidegate.ingest.sources.text import CsvDialect, JsonDialect, message_records
    from tidegate.ingest.times import TimeReader

    schema = Schema(time="time", unit="unit", column="place", value="value")
    query = Query(aggregate="sum", columns=Columns(("a", "b")), clip=("0", "10"))
    steps = Steps(start="1970-01-01", length=10, count=3)
    needed = query.needed(schema)
    way, lines = (data[0] if data else 0) % 8, data[1:]
    _note(lines.count(b"\n") + 1)
    try:
        if way < 2:
            path = FOLDER / ("events.csv" if way else "events.jsonl")
            path.write_bytes(lines)
            for block in Intake(open_source(path, needed), schema, steps, query):
                assert block.values.shape[1] == 2
            return
        if way < 5:
            found = [record for line in lines.split(b"\n") for record in message_records(line)]
            frame = JsonDialect.table(found, needed)
        else:
            reader = CsvDialect("a message", needed, ",")
            reader.names = list(needed)
            frame = reader.parse_each(lines, needed)
        if len(frame):
            rows = read_rows(
                query, frame, schema, TimeReader("auto", "UTC", lenient=True), TextUnits(), lenient=True
            )
            assert len(rows) <= len(frame)
    except TidegateError as error:
        _unmarked(str(error))


def configurations(data: bytes) -> None:
    """The text of a configuration: it is one, or a line and a sentence say why not."""
    from tidegate.config import parse_queries
    from tidegate.errors import TidegateError

    try:
        parse_queries(data.decode(errors="replace"), FOLDER / "tidegate.toml")
    except TidegateError as error:
        if "\n" in str(error):
            raise Finding("a refusal of several lines") from None


def commands(data: bytes) -> None:
    """Words after the program's name; every failure is one sentence and no traceback, and shows no record."""
    from tidegate.cli import main

    _note(1)
    _settle()
    known = _known()
    path, words = known[(data[0] if data else 0) % len(known)]
    arguments = [
        *path,
        *(
            words[byte % len(words)] if byte < 224 else data[at : at + 9].decode(errors="replace")
            for at, byte in enumerate(data[1:9], 1)
        ),
    ]
    if "--follow" in arguments:
        return
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd(), sys.stdin, tempfile.tempdir
    os.chdir(FOLDER / "work")
    tempfile.tempdir = str(FOLDER / "temporary")
    try:
        with Path(os.devnull).open() as sys.stdin, redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
    finally:
        os.chdir(before[0])
        sys.stdin, tempfile.tempdir = before[1:]
    shown = out.getvalue() + err.getvalue()
    if (code == 1 and "unexpected" in shown) or "Traceback" in shown:
        raise Finding(f"{arguments}: {shown[-300:]}")
    if code == 2 and not out.getvalue() and len(err.getvalue().splitlines()) != 1:
        raise Finding(f"{arguments}: not one sentence: {shown[-600:]}")
    _unmarked(shown)
    if SECRET in shown:
        raise Finding(f"{arguments}: a password is shown: {shown[-600:]}")
    left = [path for path in FOLDER.glob("temporary/**/*") if path.is_file()]
    for path in [*left, *(path for path in FOLDER.glob("work/**/*") if path.is_file())]:
        if path.name != "events.csv" and MARK.encode() in path.read_bytes():
            raise Finding(f"{arguments}: {path.name} has a record")


@cache
def _known() -> list[tuple[tuple[str, ...], list[str]]]:
    """All commands, and of each the options and values that may follow."""
    from tidegate.cli import COMMANDS, load

    found: list[tuple[tuple[str, ...], list[str]]] = []

    def walk(path: tuple[str, ...], command: Any) -> None:
        options = [word for each in command.params for word in each.opts if word.startswith("-")]
        inner = getattr(command, "commands", {})
        found.append((path, [*inner, *3 * options, "--help", *VALUES]))
        for name, each in inner.items():
            walk((*path, name), each)

    for name in COMMANDS:
        walk((name,), load(name))
    return [((), [*COMMANDS, "--version", "--help", *VALUES]), *found]


def _settle() -> None:
    """Put a folder of a stream that has released something there, unless it is as it was."""
    global LOOK
    work = FOLDER / "work"
    if LOOK and _look(work) == LOOK:
        return
    if not (FOLDER / "first").exists():
        _leave_out()
        from tidegate.cli import main

        first = FOLDER / "first"
        first.mkdir()
        (first / "events.csv").write_text(CSV)
        (first / "tidegate.toml").write_text(SETTINGS)
        (first / "other.toml").write_text(SETTINGS.replace('"out', '"other').replace("stream.l", "other.l"))
        before = Path.cwd()
        os.chdir(first)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main(["release", "tidegate.toml"])
            main(["ledger", "backup", "stream.ledger", "copy.ledger"])
            main(["serve", "token", "add", "producer", "--as", "gateway"])
        os.chdir(before)
        assert {"out.csv", "stream.ledger", "copy.ledger", "tokens.json"} <= {x.name for x in first.iterdir()}
    for place in (work, FOLDER / "temporary"):
        shutil.rmtree(place, ignore_errors=True)
    (FOLDER / "temporary").mkdir()
    shutil.copytree(FOLDER / "first", work)
    LOOK = _look(work)


def _look(work: Path) -> set[tuple[str, int, int]]:
    """What would tell that a command has changed something."""
    if not work.is_dir():
        return set()
    return {(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in os.scandir(work)}


def _leave_out() -> None:
    """Let what takes long refuse to, or be done once."""
    import typer

    from tidegate.errors import TidegateError

    def refuse(*_: Any, **__: Any) -> None:
        raise TidegateError("this is left out here.")

    from tidegate import cli

    cli.load = cache(cli.load)  # the parser of a command is made once, which takes longer than all the rest
    cli.app = typer.main.get_command(cli.app)
    for place in LENGTHY:
        module, _, name = place.partition(":")
        setattr(importlib.import_module(module), name, refuse)


def _note(records: int) -> None:
    """Count records, and write the count down from time to time: a fuzzer leaves without a word to Python."""
    global COUNTED, NOTED
    COUNTED += records
    if COUNTED >= NOTED:
        NOTED = COUNTED + 1000
        (FOLDER / "counted").write_text(str(COUNTED))
        if COUNTED_IN:
            Path(COUNTED_IN).write_text(str(COUNTED))


def _unmarked(sentence: str) -> None:
    if MARK in sentence:
        raise Finding("a sentence shows a record")


def seeds(kind: str) -> list[bytes]:
    """Where the fuzzer begins."""
    if kind == "records":
        table, lines = CSV.encode(), LINES.encode()
        odd = CSV.replace("5,", '"5,', 1).encode()
        many = [b"\x07" + 20 * table.partition(b"\n")[2], b"\x02" + 20 * lines, b"\x07" + 20 * odd]
        return [b"\x01" + table, b"\x00" + lines, b"\x01" + odd, b"\x02" + b"[" * 3000, *many]
    if kind == "configurations":
        from tidegate.config.document import EXAMPLE, SEVERAL

        editions = EXAMPLE.replace(
            "[query]", '[editions]\nafter = ["1h", "48h"]\nshares = ["1/4", "3/4"]\n\n[query]'
        )
        return [EXAMPLE.encode(), EXAMPLE.replace('"', "'").encode(), SEVERAL.encode(), editions.encode()]
    return [
        bytes([number, *rest]) for number in range(len(_known())) for rest in ([], [0], [60, 61], [240, 159])
    ]


LONGEST = 10.0  # seconds
COUNTED, NOTED = 0, 1000
LOOK: set[tuple[str, int, int]] = set()
COUNTED_IN = os.environ.get("TIDEGATE_COUNTED", "")  # a file for the number of records
MEMORY = Path("/dev/shm")  # quicker than a disk
FOLDER = Path(tempfile.mkdtemp(prefix="tidegate-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
KINDS: dict[str, Callable[[bytes], None]] = {
    "records": records,
    "configurations": configurations,
    "commands": commands,
}


def compiled() -> list[str]:
    """Modules with kernels, which cannot be compiled once they are instrumented."""
    source = Path(__file__).resolve().parents[2] / "src"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in (source / "tidegate").rglob("*.py")
        if "njit" in (text := path.read_text(encoding="utf-8")) or "tidegate.compiled" in text
    ]


def mutated(text: bytes, chance: random.Random) -> bytes:
    """A seed with some bytes dropped, doubled or changed."""
    data = bytearray(text)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data) + 1)
        what = chance.randrange(4)
        if what == 0:
            del data[at : at + chance.randint(1, 6)]
        elif what == 1:
            data[at:at] = data[at : at + chance.randint(1, 40)]
        elif what == 2:
            data[at : at + 1] = bytes([chance.randrange(256)])
        else:
            data[at:at] = chance.choice(
                [b'"', b"\n", b",", b"{", b"[", b"\\", b"1e999", b"\xff", b"null", b"-0"]
            )
    return bytes(data)


def main() -> int:
    """Fuzz one kind of input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="random inputs, also where atheris is installed")
    options = parser.parse_args()
    target = KINDS[options.kind]
    try:
        if options.plain:
            raise ImportError
        atheris: Any = __import__("atheris")
    except ImportError:
        return plain(options.kind, target, options.runs)
    with atheris.instrument_imports(
        include=["tidegate.config", "tidegate.ingest", "tidegate.cli", "tidegate.pipeline"],
        exclude=compiled(),
    ):
        for name in (
            "tidegate.config",
            "tidegate.ingest",
            "tidegate.ingest.sources.mqtt",
            "tidegate.pipeline",
        ):
            __import__(name)
        if options.kind == "commands":
            _known()
    for seed in seeds(options.kind):  # kernels are compiled here, which may take longer than an input may
        target(seed)
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds(options.kind)):
        (corpus / str(number)).write_bytes(seed)
    flags = [
        f"-runs={options.runs}",
        "-timeout=300",
        f"-max_len={64 if options.kind == 'commands' else 4096}",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    flags += [f"-max_total_time={options.seconds}"] if options.seconds else []
    atheris.Setup([sys.argv[0], *flags, str(corpus)], lambda data: timed(target, data))
    atheris.Fuzz()
    return 0


def timed(target: Callable[[bytes], None], data: bytes) -> None:
    """Try an input, and find fault if it takes more than ten seconds of the processor; a busy machine takes longer."""
    begun = time.process_time()
    target(data)
    if time.process_time() - begun > LONGEST:
        raise Finding("it takes too long")


def plain(kind: str, target: Callable[[bytes], None], runs: int) -> int:
    """Random changes of the seeds, without a look at what they cover."""
    chance, given = random.Random(1), seeds(kind)
    for number in range(runs):
        data = mutated(chance.choice(given), chance)
        try:
            timed(target, data)
        except Exception:
            print(json.dumps({"run": number, "input": data.hex()}))
            traceback.print_exc()
            return 1
    print(json.dumps({"kind": kind, "runs": runs, "findings": 0, "guided": False}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
