"""Questions to releases: pure functions and small online operators. Post-processing: they cost no budget."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.queries.board import Board
    from tidegate.queries.consistency import Consistent
    from tidegate.queries.hierarchy import Hierarchy
    from tidegate.queries.history import History
    from tidegate.queries.monitors import Jump, LowSignal, Monitor
    from tidegate.queries.query import Query
    from tidegate.queries.state_space import StateSpace
    from tidegate.queries.windows import UnitCounts, WindowSum

_HOMES = {
    "Board": "board",
    "Consistent": "consistency",
    "Hierarchy": "hierarchy",
    "History": "history",
    "Jump": "monitors",
    "LowSignal": "monitors",
    "Monitor": "monitors",
    "Query": "query",
    "StateSpace": "state_space",
    "UnitCounts": "windows",
    "WindowSum": "windows",
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
    "StateSpace",
    "UnitCounts",
    "WindowSum",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
