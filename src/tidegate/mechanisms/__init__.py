"""The catalogue of mechanisms: one algorithm a file, found by its name.

``tidegate.mechanisms.BudgetAbsorption`` stands in ``budget_absorption.py``: a new mechanism is a new file here,
and nothing else has to be edited.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

from tidegate.mechanisms.mechanism import Mechanism, Run

__all__ = ["Mechanism", "Run", "catalogue"]


@cache
def _files() -> dict[str, str]:
    names = (path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    return {name.replace("_", ""): name for name in names}


def __getattr__(name: str) -> Any:
    module = _files().get(name.lower())
    if module is not None:
        found = getattr(importlib.import_module(f"{__name__}.{module}"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def catalogue() -> dict[str, type[Mechanism]]:
    """Every mechanism by its class name."""
    found: dict[str, type[Mechanism]] = {}
    for module in sorted(_files().values()):
        for name, member in inspect.getmembers(
            importlib.import_module(f"{__name__}.{module}"), inspect.isclass
        ):
            here = member.__module__ == f"{__name__}.{module}"
            if here and issubclass(member, Mechanism) and not inspect.isabstract(member):
                found[name] = member
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *catalogue()])
