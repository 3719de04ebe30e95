"""Numbers of the pages come out of commands, and a small run of each command works: tests/numbers.toml is the table."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # numbers of pages

ROOT = Path(__file__).resolve().parent.parent
TABLE = tomllib.loads((ROOT / "tests" / "numbers.toml").read_text(encoding="utf-8"))
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "tests" / "reports").glob("*.md")),
]
PAGES = [page for page in PAGES if page.parent.name not in ("papers", "notebooks")]
MADE = {each["page"] for each in TABLE["made"]}
FENCE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
# a number with a unit of time, memory or rate, a percentage, or so many times as much
MEASURED = re.compile(
    r"(?<![\w^=])\d[\d,.]* ?(?:×|%|ms\b|µs\b|ns\b|s\b|[KMG]i?B\b|kB\b|million\b|bytes\b|events/s|seconds\b|minutes\b|"
    r"times (?!\d)|(?:rows|events|steps|cells|records) a second)|times as fast as|of the variance for"
)
ROWS = re.compile(r"^\|.*\d.*\|$", re.MULTILINE)
FEW = 3  # rows with a digit that a table may have without being one of numbers
SCRIPTS = sorted({run for each in TABLE["measured"] for run in each["small"] if not run.startswith("tests/")})


def sections() -> Iterator[tuple[str, str]]:
    """Pages and headings of which numbers look measured."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        if name in MADE:
            continue
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        heading = ""
        for place, part in enumerate(re.split(r"^#{1,6} +(.*?) *$", text, flags=re.MULTILINE)):
            if place % 2:
                heading = FENCE.sub("", part)
            elif MEASURED.search(part) or len(ROWS.findall(part)) > FEW:
                yield name, heading


def test_every_number_has_a_command() -> None:
    """A section whose numbers look measured names its command in tests/numbers.toml, or that nothing was measured."""
    known = {(each["page"], heading) for each in TABLE["measured"] for heading in each["sections"]}
    known |= {tuple(place.split(": ", 1)) for each in TABLE["stated"] for place in each["sections"]}
    assert sorted(set(sections()) - known) == []
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
    gone = [
        (page, heading)
        for page, heading in known
        if not any(
            FENCE.sub("", found) == heading
            for found in re.findall(r"^#{1,6} +(.*?) *$", texts[page], re.MULTILINE)
        )
    ]
    assert gone == []


def test_every_command_is_there() -> None:
    """Scripts, rules of make and tests that the table names exist."""
    named = " ".join(each["command"] for each in (*TABLE["measured"], *TABLE["made"]))
    scripts = re.findall(r"(?:benchmarks|docs|tests)/[\w/]+\.py", named)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", named)) <= rules
    for each in TABLE["measured"]:
        for run in each["small"]:
            file, _, test = run.partition("::")
            assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks that run for seconds, with scripts that they import, and without a trace of either afterwards."""
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are not part of this copy.")
    monkeypatch.setenv("TIDEGATE_SMALL", "1")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in [path.stem for path in (ROOT / "benchmarks").glob("*.py")]:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("run", SCRIPTS)
def test_a_small_run(run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The script runs to its end and says something; whether its speed is enough is not asked of a small run."""
    file, *arguments = shlex.split(run)
    monkeypatch.setattr(sys, "argv", [file, *arguments])
    with contextlib.suppress(SystemExit):
        runpy.run_path(str(ROOT / file), run_name="__main__")
    assert capsys.readouterr().out.strip()


def script(path: str) -> ModuleType:
    """A script as a module, which is not run."""
    found = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_small_runs_of_the_w_event_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Both scripts of docs/mechanisms/w_event.md on a made-up stream."""
    stream = {"made up": (np.arange(120)[:, np.newaxis] % 24 * 10, 24)}
    parts = script("docs/figures/w_event_ablation.py")
    parts.table(parts.Fast, parts.FAST, stream, 2)
    parts.table(parts.RescueDP, parts.RESCUE, stream, 2)
    assert capsys.readouterr().out.count("made up") == 2
    names, *_ = script("docs/figures/w_event.py").table(stream, ("1",))
    assert len(names) == 1


@pytest.mark.usefixtures("small")
def test_a_small_run_of_the_service() -> None:
    """Every row of the page, with few clients, producers and streams, all parts at the same time."""
    pytest.importorskip("uvicorn", reason="the service needs tidegate[web]")
    rows = {
        "clients": "5 clients, \\d+ releases: 5 clients have every one, once, in order",
        "ingest": "events/s acknowledged; .* batches were put off(?s:.*) sent is [\\d.]+ of that",
        "streams": r"3 streams, all due at once, every 2 s: median [\d.]+ s",
        "page": r"releases: drawn -?\d+ ms after their commit|chromium is not installed",
    }
    command = [sys.executable, str(ROOT / "benchmarks" / "service.py")]
    started = {
        part: subprocess.Popen([*command, part], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for part in rows
    }
    for part, row in rows.items():
        out, failed = started[part].communicate(timeout=300)
        assert re.search(row, out), failed or out


@pytest.mark.usefixtures("small")
def test_a_small_run_of_the_engines(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of PostgreSQL through parse, bounding and steps."""
    pytest.importorskip("psycopg", reason="tests of engines need tidegate[postgres]")
    engines = script("benchmarks/engines.py")
    engines.postgres(2_000)
    assert re.search("a second through parse|not installed", capsys.readouterr().out)


@pytest.mark.usefixtures("small")
def test_a_small_run_of_spark() -> None:
    """A session of its own reads, bounds and releases a few events, and counts them."""
    pytest.importorskip("pyspark", reason="tests of Spark need tidegate[spark]")
    command = [sys.executable, str(ROOT / "benchmarks" / "spark.py"), "--cores", "1", "--memory", "512m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search(r"2,000 events of 100 units .* of it|Spark is not here", done.stdout), done.stderr


@pytest.mark.usefixtures("small")
def test_a_small_run_of_the_installations() -> None:
    """Wheel and archive are built, and the wheel works away from its sources; the page stays as it is."""
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests" / "install.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search(r"^wheel · .* MB\narchive of the sources · .* MB\nwheel · Python", done.stdout), (
        done.stderr
    )
    assert (ROOT / "docs" / "install.md").read_text(encoding="utf-8") == page
