"""Questions to releases: pure functions and small online operators. Post-processing: they cost no budget."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.queries.board import Board
    from tidegate.queries.consistency import Consistent
    from tidegate.queries.history import History
    from tidegate.queries.monitors import Jump, LowSignal, Monitor
    from tidegate.queries.query import Query, Question
    from tidegate.queries.state_space import StateSpace
    from tidegate.queries.windows import UnitCounts, WindowSum
    from tidegate.structures.hierarchy import Hierarchy

_HOMES = {
    "Board": "tidegate.queries.board",
    "Consistent": "tidegate.queries.consistency",
    "Hierarchy": "tidegate.structures.hierarchy",
    "History": "tidegate.queries.history",
    "Jump": "tidegate.queries.monitors",
    "LowSignal": "tidegate.queries.monitors",
    "Monitor": "tidegate.queries.monitors",
    "Query": "tidegate.queries.query",
    "Question": "tidegate.queries.query",
    "StateSpace": "tidegate.queries.state_space",
    "UnitCounts": "tidegate.queries.windows",
    "WindowSum": "tidegate.queries.windows",
}

__all__ = [
    "Board",
    "Consistent",
    "Hierarchy",
    "History",
    "Jump",
    "LowSignal",
    "Monitor",
    "Query",
    "Question",
    "StateSpace",
    "UnitCounts",
    "WindowSum",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
