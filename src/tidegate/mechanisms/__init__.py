"""The catalogue of mechanisms: a family a folder, one algorithm a file, found by its name.

``tidegate.mechanisms.BudgetAbsorption`` stands in ``w_event/budget_absorption.py``: a new mechanism is a new file in a
family's folder, and nothing else has to be edited.
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
    """Where each file stands, by its name without underscores: "fast" is at "sampled.fast"."""
    found = Path(__file__).parent.glob("*/*.py")
    homes = (path for path in found if not path.stem.startswith("_") and "kernels" not in path.parts[-2:])
    return {
        path.stem.replace("_", ""): f"{path.parent.name}.{path.stem}"
        for path in homes
        if path.stem != "kernels"
    }


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
