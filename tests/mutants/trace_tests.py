"""Which tests run which blocks of the code that is mutated, and how long each takes; kept in a file.

Every block of statements (a body, a branch, a loop) begins with a call that notes its number; what is compiled cannot
note anything, so a kernel's tests are those that run the blocks which call it.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import mutate
import pytest
from mutate import PACKAGE, ROOT, Mutant

from tidegate.audit import patching

ROOMS = ("tests/mechanisms", "tests/ledger", "tests/noise")
LONGEST = 4.0  # seconds of processor time after which a test is left out
NOTE = "__tidegate_ran__"
FOLDER = "TIDEGATE_TRACE"  # where the workers of a run write


@dataclass(frozen=True)
class Block:
    """Statements that run one after the other; `first` and `last` are its lines."""

    module: str
    first: int
    last: int
    text: str


@dataclass(frozen=True)
class Traced:
    """A test that passed: its seconds of processor time, and the numbers of the blocks that it ran."""

    seconds: float
    blocks: frozenset[int]


class Map:
    """What is known from one run of all tests without any mutant."""

    def __init__(self, path: Path) -> None:
        known = json.loads(path.read_text(encoding="utf-8"))
        self.tests = {name: Traced(seconds, frozenset(ran)) for name, (seconds, ran) in known.items()}
        self.by_block: dict[int, list[str]] = {}
        for name, traced in self.tests.items():
            for number in traced.blocks:
                self.by_block.setdefault(number, []).append(name)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run a mutant's block, one of each function in turn, the quickest first."""
        wanted = (
            _calling(mutant.module, mutant.function.split(".")[0])
            if patching.is_kernel(mutant.module)
            else _around(mutant.module, mutant.line)
        )
        names = {name for number in wanted for name in self.by_block.get(number, ())}
        own = f"/test_{mutant.module.rpartition('.')[2]}.py"
        turns: dict[str, int] = {}
        ranked = []
        for name in sorted(names, key=lambda name: self.tests[name].seconds):
            function = name.partition("[")[0]
            turns[function] = turns.get(function, -1) + 1
            ranked.append((turns[function], own not in name, self.tests[name].seconds, name))
        return [name for *_, name in sorted(ranked)]


@cache
def blocks() -> tuple[Block, ...]:
    """Every block of every module that is not compiled; its place in the list is its number."""
    found = []
    for path in mutate.files():
        module = "tidegate." + path.removesuffix(".py").replace("/", ".")
        if not patching.is_kernel(module):
            source = (PACKAGE / path).read_text(encoding="utf-8")
            lines = source.splitlines()
            for body in _bodies(ast.parse(source)):
                first, last = body[0].lineno, body[-1].end_lineno or 0
                found.append(Block(module, first, last, "\n".join(lines[first - 1 : last])))
    return tuple(found)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements inside functions, outer ones first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _inner(node)


def _inner(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if isinstance(body, list) and body:
            yield body
            for statement in body:
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _inner(statement)
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _inner(part)


@cache
def _around(module: str, line: int) -> tuple[int, ...]:
    """The innermost block in which a line stands."""
    holding = [
        (block.last - block.first, number)
        for number, block in enumerate(blocks())
        if block.module == module and block.first <= line <= block.last
    ]
    return (min(holding)[1],) if holding else ()


@cache
def _calling(module: str, kernel: str) -> tuple[int, ...]:
    """The innermost blocks that call a kernel, or one that calls it; of its own family where there are any."""
    names = {kernel}
    while more := {name for name, text in _kernels() if name not in names and _mentions(text, names)}:
        names |= more
    every = blocks()
    calling = [number for number, block in enumerate(every) if _mentions(block.text, names)]
    family = module.partition(".kernels")[0]
    calling = [number for number in calling if every[number].module.startswith(family)] or calling
    return tuple(
        number
        for number in calling
        if not any(
            every[other].module == every[number].module
            and every[number].first <= every[other].first
            and every[other].last <= every[number].last
            for other in calling
            if other != number
        )
    )


def _mentions(text: str, names: set[str]) -> bool:
    return not names.isdisjoint(_words(text))


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


@cache
def _kernels() -> tuple[tuple[str, str], ...]:
    """Names and bodies of all compiled functions."""
    found = []
    for path in (*PACKAGE.glob("**/kernels.py"), *PACKAGE.glob("**/kernels/*.py")):
        source = path.read_text(encoding="utf-8")
        found += [
            (node.name, "\n".join(ast.unparse(each) for each in node.body))
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef)
        ]
    return tuple(found)


def make(path: Path, workers: int) -> None:
    """Run all tests once with notes in the code, and keep what they ran."""
    folder = path.with_suffix(".parts")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    environment = {**os.environ, "CI": "", FOLDER: str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "trace_tests", "-p", "no:cacheprovider",
               "--hypothesis-seed=1", "-n", str(workers), *ROOMS]  # fmt: skip
    subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL)
    known: dict[str, object] = {}
    for part in sorted(folder.glob("*.json")):
        known |= json.loads(part.read_text(encoding="utf-8"))
    path.write_text(json.dumps(known), encoding="utf-8")


def _noted(module: str) -> str:
    """A module's source in which every block notes its number."""
    numbers = {
        (block.first, block.last): number for number, block in enumerate(blocks()) if block.module == module
    }
    tree = ast.parse(patching.path_of(module).read_text(encoding="utf-8"))
    for body in list(_bodies(tree)):
        number = numbers[body[0].lineno, body[-1].end_lineno or 0]
        documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        note = ast.parse(f"{NOTE}({number})").body[0]
        body.insert(1 if documented else 0, note)
    return ast.unparse(ast.fix_missing_locations(tree))


# From here on: a plugin of pytest, in each worker of the run that makes the map.

_ran: set[int] = set()
_known: dict[str, tuple[float, list[int]]] = {}


def _too_long(signal_number: int, frame: FrameType | None) -> None:
    pytest.skip("takes too long for the map")


def pytest_configure() -> None:
    """Put the notes into the code, before it is imported."""
    if FOLDER in os.environ and not hasattr(builtins, NOTE):
        setattr(builtins, NOTE, _ran.add)
        modules = {block.module for block in blocks()} - set(sys.modules)
        patching.install_sources({module: _noted(module) for module in modules})
        signal.signal(signal.SIGPROF, _too_long)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Time a test and collect what it ran; its set-up counts too."""
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    outcome = yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    if outcome.excinfo is None:
        _known[item.nodeid] = (round(time.process_time() - begun, 3), sorted(_ran))
    _ran.clear()


def pytest_sessionfinish() -> None:
    """Write what this worker has seen."""
    if FOLDER in os.environ and _known:
        Path(os.environ[FOLDER], f"{os.getpid()}.json").write_text(json.dumps(_known), encoding="utf-8")
