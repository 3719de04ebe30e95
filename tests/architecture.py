"""Trace one event from a CSV to a sink, and one push: the files that they pass, in docs/internals/architecture.md.

python tests/architecture.py [docs/internals/architecture.md]: without a page the walks are printed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import tidegate as tg
from tidegate.cli import main

PACKAGE = Path(tg.__file__).parent.as_posix() + "/"
ROOMS = ("ingest", "pipeline", "core", "mechanisms", "noise", "intervals")
WIDTH = 150  # of a line of the page
# with so large an ε noise is all but certainly 0, so that what is published, and the walk, is always the same
STREAM = """
[source]
location = "events.csv"
time = "time"
unit = "device"
column = "building"

[steps]
start = "2026-03-02T00:00"
length = "1h"
count = 3

[query]
aggregate = "count"
most = 1
columns = ["Library"]

[protect]
policy = "w-event"
epsilon = "1000"
window = 2

[mechanism]
name = "BudgetAbsorption"

[sink]
location = "released.csv"
"""
EVENTS = "time,device,building\n" + "".join(f"2026-03-02T0{hour}:10,d{hour},Library\n" for hour in range(3))
BLOCK = re.compile(r"(<!-- walk of (\w+ \w+) -->\n```\n).*?(```\n)", re.DOTALL)


def calls_of(work: Callable[[], Any]) -> list[tuple[str, str]]:
    """The calls of functions of the package that some work makes, in order: (file, function)."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            found.append((code.co_filename[len(PACKAGE) : -3], code.co_name))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def lines_of(pairs: list[tuple[str, list[str]]], width: int) -> str:
    """A line for each pair of a name and what belongs to it, or several where one is too narrow."""
    lines = []
    for name, members in pairs:
        lines += textwrap.wrap(
            f"{name:{width}}{' · '.join(members)}",
            WIDTH,
            subsequent_indent=" " * width,
            break_on_hyphens=False,
        )
    return "".join(line + "\n" for line in lines)


def walk_of_an_event() -> str:
    """The files that the first block of a small CSV passes until a sink has it, in the order of their first calls."""
    calls: list[tuple[str, str]] = []
    for folder in ("first", "second"):  # the first one imports, and fills what is remembered
        Path(folder).mkdir()
        Path(folder, "events.csv").write_text(EVENTS)
        Path(folder, "stream.toml").write_text(STREAM)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            calls = calls_of(lambda folder=folder: main(["release", f"{folder}/stream.toml"]))
    begin = next(at for at, (file, _) in enumerate(calls) if file.startswith("ingest/sources/"))
    end = next(at for at, call in enumerate(calls) if call == ("sinks/text", "write"))
    pairs: list[tuple[str, list[str]]] = []
    for file in dict.fromkeys(file for file, _ in calls[begin : end + 1]):
        room, _, name = file.partition("/")
        if room in ROOMS:
            if not pairs or pairs[-1][0] != room:
                pairs.append((room, []))
            pairs[-1][1].append(name)
    return lines_of(pairs, 11)


def walk_of_a_push() -> str:
    """The functions that a steady push of Budget Absorption calls, by file, in the order of the first call of each."""
    session = tg.open(tg.mechanisms.BudgetAbsorption(tg.WEvent(epsilon="1", window=120), columns=3))
    traces = [tuple(calls_of(lambda: session.push([40, 3, 5]))) for _ in range(60)]
    (calls, _), *_ = Counter(traces[10:]).most_common()  # now and then random words are made again
    files: dict[str, dict[str, None]] = {}
    for file, function in calls:
        files.setdefault(file, {})[function] = None
    lines = lines_of([(file, [*functions]) for file, functions in files.items()], 38)
    return f"{lines}{len(calls)} calls in {len(files)} files\n"


def walks() -> dict[str, str]:
    """Both of them, by what the page calls them."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return {"an event": walk_of_an_event(), "one push": walk_of_a_push()}
        finally:
            os.chdir(before)


def rewritten(page: str, found: dict[str, str]) -> str:
    """The page with these walks in the places of its own."""
    return BLOCK.sub(lambda block: block[1] + found[block[2]] + block[3], page)


if __name__ == "__main__":
    if sys.argv[1:]:
        path = Path(sys.argv[1]).resolve()
        path.write_text(rewritten(path.read_text(encoding="utf-8"), walks()), encoding="utf-8")
    else:
        print("\n".join(walks().values()))
