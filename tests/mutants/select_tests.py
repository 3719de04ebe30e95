"""Which tests are run against a mutant: those nearest to its module first, then the conformance of what depends on it."""

from __future__ import annotations

import ast
import re
from collections import deque
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES, TESTS = ROOT / "src", ROOT / "tests"
ROOMS = ("mechanisms", "ledger", "noise")
NEAREST = 5  # test files
TYPICAL = ("Uniform", "Sample", "BudgetAbsorption", "BinaryTree", "OptStream", "PeGaSus")
CONFORMANCE = "tests/mechanisms/test_conformance.py"


def stages(module: str) -> list[list[str]]:
    """Arguments for pytest, stage after stage; a mutant that survives one goes on to the next."""
    near = nearest(module)
    found = [[path] for path in near[:1]]
    if near[1:]:
        found.append(near[1:])
    names = dependent_mechanisms(module)
    if len(names) > len(TYPICAL):  # code that all of them share
        names = [name for name in names if name in TYPICAL]
    if names and (ROOT / CONFORMANCE).exists():
        found.append([CONFORMANCE, "-k", " or ".join(names)])
    return found


def nearest(module: str) -> list[str]:
    """Test files by how near they are: named like the module, then by the shortest way of imports to it."""
    own = f"test_{module.rpartition('.')[2]}.py"
    ranked = []
    for path in sorted(path for room in ROOMS for path in (TESTS / room).glob("**/test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        far = 0 if path.name == own else _distance(name, module)
        if far is not None and name != CONFORMANCE:
            ranked.append((far > 0 and f".{path.parent.name}." not in module, far, _size(path), name))
    return [name for *_, name in sorted(ranked)[:NEAREST]]


def dependent_mechanisms(module: str) -> list[str]:
    """Names of mechanisms whose modules import this one, by whatever way."""
    from tidegate.mechanisms import catalogue

    found = []
    for name, kind in catalogue().items():
        if module == kind.__module__ or _reaches(kind.__module__, module):
            found.append(name)
    return sorted(found)


@cache
def _imports(path: Path) -> frozenset[str]:
    """Modules of this package that a file imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {_home(node.module, alias.name) for alias in node.names}
    return frozenset(name for name in found if name.startswith("tidegate.") and _file(name) is not None)


@cache
def _file(module: str) -> Path | None:
    plain = SOURCES.joinpath(*module.split("."))
    if plain.with_suffix(".py").exists():
        return plain.with_suffix(".py")
    package = plain / "__init__.py"
    return package if package.exists() else None


@cache
def _home(package: str, name: str) -> str:
    """The module of a package that defines a name which the package itself hands out; empty where it is none."""
    folder = SOURCES.joinpath(*package.split("."))
    if not package.startswith("tidegate") or not folder.is_dir():
        return ""
    line = re.compile(rf"^(class|def) {re.escape(name)}\b", re.MULTILINE)
    for path in sorted(folder.glob("**/*.py")):
        if line.search(path.read_text(encoding="utf-8")):
            return ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    return ""


@cache
def _distance(test: str, module: str) -> int | None:
    """How many imports lie between a test file and a module."""
    return _ways(ROOT / test).get(module)


def _reaches(start: str, module: str) -> bool:
    path = _file(start)
    return path is not None and module in _ways(path)


@cache
def _ways(path: Path) -> dict[str, int]:
    """All modules that a file reaches by imports, and in how many of them."""
    found: dict[str, int] = {}
    queue = deque((name, 1) for name in sorted(_imports(path)))
    while queue:
        name, far = queue.popleft()
        if name in found:
            continue
        found[name] = far
        inner = _file(name)
        if inner is not None and inner.name != "__init__.py":
            queue.extend((each, far + 1) for each in sorted(_imports(inner)))
    return found


@cache
def _size(path: Path) -> int:
    return path.stat().st_size
