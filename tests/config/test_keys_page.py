"""The page that says by which key every mechanism and every operator is reached."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from tidegate.config.keys import ANSWERS
from tidegate.mechanisms import catalogue
from tidegate.queries import Board, Consistent, Query, StateSpace
from tidegate.queries.sums import LinearQuery

HOMES = (
    "averages",
    "board",
    "consistency",
    "decayed",
    "forecast",
    "monitors",
    "state_space",
    "sums",
    "windows",
)


def rows(root: Path, heading: str) -> dict[str, str]:
    """The first and the last cell of each row of a table."""
    text = (root / "docs" / "reference" / "keys.md").read_text(encoding="utf-8")
    part = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", part, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_every_mechanism_has_a_row(root: Path) -> None:
    """It is named there as in a file, or it is said that it is for Python."""
    found = rows(root, "Mechanisms")
    assert set(found) == set(catalogue())
    for name, key in found.items():
        assert f'name = "{name}"' in key or key.startswith("from Python: ")


def operators() -> set[str]:
    """The public questions to releases, and what works on them."""
    found = {"forecast", "SmoothWhereNoisy"}
    for home in HOMES:
        module = importlib.import_module(f"tidegate.queries.{home}")
        for name, member in inspect.getmembers(module, inspect.isclass):
            here = member.__module__ == module.__name__ and not inspect.isabstract(member)
            if here and issubclass(member, Query | LinearQuery | Board | Consistent | StateSpace):
                found.add(name)
    return found


def test_every_operator_has_a_row(root: Path) -> None:
    """And the kinds of answers that rows name are kinds."""
    found = rows(root, "Operators on releases")
    assert set(found) == operators()
    named = set(re.findall(r'kind = "(\w+)"', " ".join(found.values())))
    assert named <= set(ANSWERS)
    assert {"window", "jump", "low", "average", "decayed", "smooth", "forecast"} <= named
