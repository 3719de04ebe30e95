"""Names: a wrong or familiar one is answered with the right one, and every parameter is documented where help() looks."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from typing import Any, TypeVar

from tidegate.exact import show

Kind = TypeVar("Kind", bound=type)
MOST_NAMES = 8  # of columns that are spelt out

# what papers and other libraries call things; the first that a class has is offered
PARAMETERS = {
    "w": ("window",),
    "window": ("horizon",),
    "eps": ("epsilon",),
    "privacy_budget": ("epsilon",),
    "sensitivity": ("max_change",),
    "alpha": ("max_change",),
    "max_contribution": ("max_change",),
    "length": ("window", "horizon"),
    "steps": ("horizon", "window"),
    "max_time": ("horizon",),
    "d": ("columns",),
    "dim": ("columns",),
    "dimensions": ("columns",),
    "resolution": ("grid",),
    "neighbours": ("adjacency",),
    "neighbors": ("adjacency",),
    "bound": ("clamp",),
    "clip": ("clamp",),
}
CLASSES = {
    "BD": "BudgetDistribution",
    "BA": "BudgetAbsorption",
    "PGS": "PeGaSus",
    "DFT": "Fourier",
    "LPA": "Uniform",
    "Laplace": "Uniform",
    "BLT": "Factorization",
    "MatrixFactorization": "Factorization",
    "Rescue": "RescueDP",
    "HSPGS": "HierarchicalPeGaSus",
    "BinaryMechanism": "BinaryTree",
    "HybridMechanism": "HybridTree",
}


def listed(names: Sequence[str]) -> str:
    """Names of columns in a sentence; a few of them where there are many.

    Examples
    --------
    >>> listed(["time", "device"]), listed([f"stop{number}" for number in range(900)])[-26:]
    ('time, device', 'stop7 and 892 more columns')
    """
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES:,} more columns"


def nearest(name: str, known: Iterable[str], familiar: str | None = None) -> str | None:
    """Which of the known names is meant, if that can be guessed.

    Examples
    --------
    >>> nearest("colums", ["policy", "columns"])
    'columns'
    """
    names = sorted(known)
    if familiar in names:
        return familiar
    same = [each for each in names if each.lower() == name.lower().replace("_", "")]
    return next(iter([*same, *difflib.get_close_matches(name, names, 1)]), None)


MOST_WRITTEN = 160  # characters of one parameter


def spelled(configuration: Any) -> str:
    """A frozen configuration as one would write it: its class, and every parameter that is not as by default.

    Examples
    --------
    >>> import tidegate as tg
    >>> tg.mechanisms.Uniform(tg.WEvent(epsilon="0.1", window=24), columns=2, grid="0.01")
    Uniform(WEvent(epsilon='0.1', window=24), columns=2, grid='0.01')
    """
    parts = []
    for each in fields(configuration):
        value = getattr(configuration, each.name)
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if each.init and each.repr and not (default is not MISSING and _same(value, default)):
            parts.append(f"{'' if each.name == 'policy' else f'{each.name}='}{_written(value)}")
    return f"{type(configuration).__name__}({', '.join(parts)})"


def keep_repr(kind: type) -> None:
    """Let a subclass have the repr of its base; a dataclass would otherwise write one of its own."""
    if "__repr__" not in vars(kind):
        kind.__repr__ = kind.__repr__  # type: ignore[method-assign]


def _same(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except ValueError:  # arrays
        return False


def _written(value: Any) -> str:
    if isinstance(value, Fraction):
        return repr(show(value))
    if isinstance(value, tuple):
        text = f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    else:
        text = spelled(value) if is_dataclass(value) and not isinstance(value, type) else repr(value)
    if len(text) <= MOST_WRITTEN:
        return text
    return f"<{len(value)} of them>" if isinstance(value, tuple) else f"<{type(value).__name__}>"


def helpful(kind: Kind) -> Kind:
    """Let a class of parameters say which one is meant, and document those that it has from its bases."""
    if "_answers_for" in vars(kind):
        return kind
    known = [each.name for each in fields(kind) if each.init]
    given = kind.__init__  # type: ignore[misc]

    @functools.wraps(given)
    def init(self: Any, *values: Any, **named: Any) -> None:
        for name in named.keys() - set(known):
            if type(self) is kind:
                raise TypeError(_unknown(kind.__name__, name, known))
        given(self, *values, **named)

    kind.__init__ = init  # type: ignore[misc]
    kind._answers_for = kind.__name__  # type: ignore[attr-defined]
    kind.__doc__ = documented(kind, known)
    return kind


def _unknown(kind: str, name: str, known: list[str]) -> str:
    familiar = next((each for each in PARAMETERS.get(name, ()) if each in known), None)
    meant = nearest(name, known, familiar)
    remedy = f"did you mean {meant!r}" if meant else f"it has {', '.join(known)}"
    return f"{kind} has no parameter {name!r}; {remedy}{'?' if meant else '.'}"


# one entry: names in a line of their own, then what they mean, indented
_ENTRY = re.compile(r"^(?P<names>[a-z]\w*(?:, \w+)*)\n(?P<text>(?:^(?:    .*)?\n)+)", re.MULTILINE)
_SECTION = re.compile(r"^Parameters\n-+\n(?P<body>(?:^(?:    .*|[a-z]\w*(?:, \w+)*|)\n)+)", re.MULTILINE)


def documented(kind: type, known: list[str]) -> str:
    """The docstring of a class with the parameters of its bases, which their docstrings explain."""
    text = inspect.cleandoc(kind.__doc__ or "") + "\n"
    section = _SECTION.search(text)
    own = [
        entry
        for entry in (_ENTRY.finditer(section["body"]) if section else ())
        if not entry["text"].strip().startswith("As for every")
    ]
    said = {name for entry in own for name in entry["names"].split(", ")}
    entries = [f"{entry['names']}\n{entry['text'].rstrip()}" for entry in own]
    for base in kind.__mro__[1:]:
        above = _SECTION.search(inspect.cleandoc(vars(base).get("__doc__") or "") + "\n")
        for entry in _ENTRY.finditer(above["body"]) if above else ():
            names = [name for name in entry["names"].split(", ") if name in known and name not in said]
            if names and not entry["text"].strip().startswith("As for every"):
                said.update(names)
                entries.append(f"{', '.join(names)}\n{entry['text'].rstrip()}")
    whole = "Parameters\n----------\n" + "\n".join(entries) + "\n\n"
    if section:
        return (text[: section.start()] + whole + text[section.end() :]).rstrip() + "\n"
    first, _, rest = text.partition("\n\n")
    return f"{first.rstrip()}\n\n{whole}{rest}".rstrip() + "\n"
