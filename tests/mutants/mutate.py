"""Small mistakes in lines that hold scales, charges, sensitivities and comparisons, made from the syntax tree.

A mutant is one replacement of one expression: a comparison that is off by its border or turned round, an operator
swapped, a term dropped, a constant or a whole result off by one, ``min`` for ``max``, rounding the other way.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "tidegate"
ROOMS = ("mechanisms", "core", "noise")
TELLING = re.compile(
    r"scale|charg|unit|sensitiv|epsilon|budget|spent|spend|remain|window|share|level|thresh|limit|noise|delta|rho"
    r"|pool|taken|paid|laplace|gauss|sigma|step|draw|word|cost|change|clip|bound|norm"
)
# what only speaks, draws, plans or sets examples up is not what privacy hangs on
SILENT_FUNCTIONS = re.compile(
    r"^(__repr__|__str__|examples|candidates|describe|expected_.*|assumptions|guarantee|_?refus.*|unit|label)$"
)
SILENT_FILES = re.compile(r"(picture|__init__)")
COMPARISONS = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
BORDERS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
TURNED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
OPERATORS = {
    "Add": ("+", "-"),
    "Sub": ("-", "+"),
    "Mult": ("*", "/"),
    "Div": ("/", "*"),
    "FloorDiv": ("//", "*"),
}
SWAPPED = {
    "min": "max",
    "max": "min",
    "floor": "ceil",
    "ceil": "floor",
    "float_up": "float",
    "sqrt_up": "math.sqrt",
}


@dataclass(frozen=True)
class Mutant:
    """One replacement.

    Attributes
    ----------
    path, function
        The file below src/tidegate, and the function or class in which it stands.
    line
        The number of its line; not part of its identity.
    kind
        What was done.
    before, after
        The expression, and what takes its place.
    statement, occurrence
        The statement in which it stands, and which of several equal replacements in it this is.
    begin, end
        Where the expression stands in the file, in bytes.
    """

    path: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    statement: str
    occurrence: int
    begin: int
    end: int

    @property
    def key(self) -> str:
        """The same for the same mistake, wherever its lines move."""
        parts = (
            self.path,
            self.function,
            self.kind,
            self.before,
            self.after,
            self.statement,
            str(self.occurrence),
        )
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()

    @property
    def module(self) -> str:
        """The dotted name of its module."""
        return "tidegate." + self.path.removesuffix(".py").replace("/", ".")

    def original(self) -> str:
        """The whole file as it is."""
        return (PACKAGE / self.path).read_text(encoding="utf-8")

    def source(self) -> str:
        """The whole file with the mistake in it."""
        content = (PACKAGE / self.path).read_bytes()
        assert content[self.begin : self.end].decode() == self.before
        return (content[: self.begin] + self.after.encode() + content[self.end :]).decode()


def files() -> list[str]:
    """All files whose lines may be changed, below src/tidegate."""
    found = [path for room in ROOMS for path in sorted((PACKAGE / room).glob("**/*.py"))]
    return [path.relative_to(PACKAGE).as_posix() for path in found if not SILENT_FILES.search(path.name)]


def mutants_of(path: str) -> list[Mutant]:
    """Every mutant of a file."""
    return list(_Finder(path).find())


def sampled(count: int) -> list[Mutant]:
    """So many mutants of all rooms, chosen by their keys, so that the choice outlives other changes of the code."""
    unique = {mutant.key: mutant for path in files() for mutant in mutants_of(path)}
    order = sorted(unique, key=lambda key: hashlib.blake2b(key.encode(), digest_size=8).digest())
    return [unique[key] for key in order[:count]]


class _Finder:
    def __init__(self, path: str) -> None:
        self.path = path
        self.content = (PACKAGE / path).read_bytes()
        self.starts = [0]
        for line in self.content.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.seen: dict[tuple[str, ...], int] = {}

    def find(self) -> Iterator[Mutant]:
        tree = ast.parse(self.content)
        yield from self._inside(tree, "")

    def _inside(self, node: ast.AST, function: str) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                if not SILENT_FUNCTIONS.match(child.name):
                    inner = f"{function}.{child.name}".lstrip(".")
                    for statement in child.body:
                        yield from self._statement(statement, inner)
            elif isinstance(child, ast.stmt):
                yield from self._statement(child, function)

    def _statement(self, statement: ast.stmt, function: str) -> Iterator[Mutant]:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield from self._inside(ast.Module([statement], []), function)
            return
        if isinstance(statement, ast.Raise | ast.Import | ast.ImportFrom | ast.Assert | ast.Pass):
            return
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return  # a docstring
        for part in ast.iter_child_nodes(statement):
            if isinstance(part, ast.stmt):
                yield from self._statement(part, function)
            elif isinstance(part, ast.ExceptHandler | ast.match_case):
                for inner in part.body:
                    yield from self._statement(inner, function)
            elif isinstance(part, ast.expr) and not self._annotates(statement, part):
                text = self._text(part)
                if function and TELLING.search(text.lower() + function.lower()):
                    yield from self._expression(part, function, text)

    @staticmethod
    def _annotates(statement: ast.stmt, part: ast.expr) -> bool:
        return isinstance(statement, ast.AnnAssign) and part is statement.annotation

    def _expression(self, top: ast.expr, function: str, statement: str) -> Iterator[Mutant]:
        for node in ast.walk(top):
            if isinstance(node, ast.expr) and not isinstance(node, ast.JoinedStr | ast.FormattedValue):
                for kind, before, after, (begin, end) in self._changes(node):
                    name = (function, kind, before, after, statement)
                    occurrence = self.seen[name] = self.seen.get(name, -1) + 1
                    line = node.lineno
                    yield Mutant(
                        self.path, function, line, kind, before, after, statement, occurrence, begin, end
                    )

    def _changes(self, node: ast.expr) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
        place = self._place(node)
        text = self.content[place[0] : place[1]].decode()
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sign = COMPARISONS.get(type(node.ops[0]).__name__)
            if sign:
                left, right = self._text(node.left), self._text(node.comparators[0])
                yield "border", text, f"({left} {BORDERS[sign]} {right})", place
                if sign in TURNED:
                    yield "turned round", text, f"({left} {TURNED[sign]} {right})", place
        elif isinstance(node, ast.BinOp) and type(node.op).__name__ in OPERATORS:
            left, right = self._text(node.left), self._text(node.right)
            if left.startswith(("'", '"')) or right.startswith(("'", '"', "[", "(")):
                return  # texts and lists are put together like this too
            _, other = OPERATORS[type(node.op).__name__]
            yield "operator swapped", text, f"({left} {other} {right})", place
            yield "term dropped", text, left, place
            yield "one more", text, f"({text} + 1)", place
        elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1 << 20:
            yield "constant", text, str(node.value + 1), place
            if node.value > 0:
                yield "constant", text, str(node.value - 1), place
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = self._text(node.func)
            last = called.rpartition(".")[2]
            if last in SWAPPED and len(node.args) >= 1:
                swapped = called[: len(called) - len(last)] + SWAPPED[last]
                yield "function swapped", called, swapped, self._place(node.func)
        elif isinstance(node, ast.BoolOp):
            sign, other = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
            yield "and for or", text, "(" + other.join(self._text(each) for each in node.values) + ")", place

    def _place(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self.starts[node.lineno - 1] + node.col_offset
        return begin, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        begin, end = self._place(node)
        return self.content[begin:end].decode()
