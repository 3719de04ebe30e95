"""Shipped code with a few words changed, in memory: files, and the machine code kept for them, stay as they are.

Only the standard library is imported here, so that changes can be in place before the modules they change.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOMS = ("tidegate.mechanisms.", "tidegate.core.", "tidegate.noise.")  # what may be changed


@dataclass(frozen=True)
class Edit:
    """One replacement in one module.

    Attributes
    ----------
    module
        Its dotted name.
    find, replace
        The text that is there, which must occur exactly once, and the text that takes its place.
    function
        The qualified name of a function or class, where `find` occurs more than once in the module and once in it.
    """

    module: str
    find: str
    replace: str
    function: str = ""

    def apply(self, source: str) -> str:
        r"""The source with the replacement made.

        Examples
        --------
        >>> Edit("tidegate.noise.scale", "+ 1", "+ 2", "second").apply("def first(): 0 + 1\ndef second(): 0 + 1")
        'def first(): 0 + 1\ndef second(): 0 + 2'
        """
        first, last = _lines(source, self.function) if self.function else (0, len(source.splitlines()))
        lines = source.splitlines(keepends=True)
        inside = "".join(lines[first:last])
        times = inside.count(self.find)
        if times != 1:
            where = f"{self.module}.{self.function}".rstrip(".")
            raise ValueError(
                f"the text to find occurs {times} times in {where} and must occur once: {self.find!r}."
            )
        changed = inside.replace(self.find, self.replace)
        return "".join(lines[:first]) + changed + "".join(lines[last:])


def check(edits: Iterable[Edit]) -> None:
    """Refuse edits that cannot be made, that change nothing or that are out of bounds."""
    by_module: dict[str, list[Edit]] = {}
    for edit in edits:
        if not edit.module.startswith(ROOMS):
            raise ValueError(f"module {edit.module!r} must be in one of {', '.join(ROOMS)}.")
        if edit.find == edit.replace:
            raise ValueError(f"the edit of {edit.module} changes nothing.")
        by_module.setdefault(edit.module, []).append(edit)
    for module, own in by_module.items():
        ast.parse(edited(path_of(module).read_text(encoding="utf-8"), own))


def edited(source: str, edits: Sequence[Edit]) -> str:
    """All edits of one module, one after the other."""
    for edit in edits:
        source = edit.apply(source)
    return source


def _package() -> Path:
    """The folder of the package."""
    found = importlib.util.find_spec("tidegate")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def path_of(module: str) -> Path:
    """The file of a module of this package, without importing it."""
    package = _package()
    plain = package.joinpath(*module.split(".")[1:])
    return plain / "__init__.py" if plain.is_dir() else plain.with_suffix(".py")


def is_kernel(module: str) -> bool:
    """Whether a module holds kernels or compiled loops, whose machine code is kept on disk."""
    from tidegate.compiled import kernel_sources

    return path_of(module) in kernel_sources(_package())


def touches_kernels(edits: Iterable[Edit]) -> bool:
    """Whether machine code would have to be compiled anew."""
    return any(is_kernel(edit.module) for edit in edits)


def own_cache(modules: Iterable[str], folder: Path) -> str:
    """A value of NUMBA_CACHE_DIR for changed kernels: what is compiled already, but for them and whatever calls them."""
    from tidegate.compiled import cache_folder

    place = cache_folder()
    if place is None:
        return str(folder)
    kept = Path(place)
    stale = {name.rpartition(".")[2] for module in modules for name in _callers(module)}
    copy = folder / "tidegate" / "kernels" / kept.name
    if kept.exists():
        shutil.copytree(kept, copy, ignore=lambda _, names: [n for n in names if n.split(".")[0] in stale])
    return str(folder)


def _callers(module: str) -> set[str]:
    """A module of kernels and all others that import it, by whatever way: their machine code has its own inside."""
    from tidegate.compiled import kernel_sources

    package = _package()
    paths = [path for path in kernel_sources(package) if path.name != "compiled.py"]
    texts = {
        ".".join(("tidegate", *path.relative_to(package).with_suffix("").parts)): path.read_text(
            encoding="utf-8"
        )
        for path in paths
    }
    found = {module}
    while True:
        more = {name for name, text in texts.items() if any(_mentions(text, each) for each in found)}
        if more <= found:
            return found
        found |= more


def _mentions(text: str, module: str) -> bool:
    package, _, name = module.rpartition(".")
    return module in text or f"from {package} import {name}" in text


def install(edits: Sequence[Edit]) -> None:
    """From now on the modules are imported with their edits; none of them may have been imported before."""
    by_module: dict[str, list[Edit]] = {}
    for edit in edits:
        by_module.setdefault(edit.module, []).append(edit)
    install_sources(
        {
            module: edited(path_of(module).read_text(encoding="utf-8"), own)
            for module, own in by_module.items()
        }
    )


def install_sources(sources: Mapping[str, str]) -> None:
    """From now on the modules are imported from these texts; none of them may have been imported before."""
    for module in sources:
        if module in sys.modules:
            raise ValueError(f"{module} has been imported already; install edits in a new process.")
    sys.meta_path.insert(0, _Finder(sources))


class _Finder(MetaPathFinder):
    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = dict(sources)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._sources:
            return None
        file = str(path_of(fullname))
        loader = _Loader(fullname, file, self._sources[fullname])
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType | None:  # never from or into a file of byte code
        code: CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code


def _lines(source: str, function: str) -> tuple[int, int]:
    """The first line of a function or class, from 0, and the one after its last."""
    node: Any = ast.parse(source)
    for name in function.split("."):
        named = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name]
        if len(named) != 1:
            raise ValueError(f"{function!r} names {len(named)} functions or classes and must name one.")
        node = named[0]
    decorators = [each.lineno for each in node.decorator_list]
    return min([node.lineno, *decorators]) - 1, node.end_lineno
