"""Which tests are nearest to a module: for mutants in lines that no test is known to run."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES, TESTS = ROOT / "src", ROOT / "tests"
ROOMS = ("mechanisms", "noise", "core")
NEAREST = 5  # test files
CONFORMANCE = "tests/core/test_checks.py"


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


def near(modules: Iterable[str]) -> list[str]:
    """The files nearest to each of several modules, and the checks of all mechanisms."""
    return [*sorted({name for module in modules for name in nearest(module)}), CONFORMANCE]


def family(module: str) -> str:
    """The folder of a mechanism's family, with dots; empty for what is no mechanism's alone.

    Examples
    --------
    >>> family("tidegate.mechanisms.plain.uniform"), family("tidegate.mechanisms.run"), family("tidegate.noise.entropy")
    ('tidegate.mechanisms.plain.', '', '')
    """
    parts = module.split(".")
    return ".".join(parts[:3]) + "." if parts[1] == "mechanisms" and len(parts) > 3 else ""


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
