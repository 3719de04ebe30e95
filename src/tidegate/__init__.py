"""Tidegate: live statistics about people, published under differential privacy.

The names below load on first use, so that ``import tidegate`` and ``tidegate --help`` are quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidegate.version import __version__

_HOMES = {
    "Event": "tidegate.policy",
    "Live": "tidegate.pipeline.live",
    "WEvent": "tidegate.policy",
    "User": "tidegate.policy",
    "Swellfish": "tidegate.policy",
    "Guarantee": "tidegate.policy",
    "Release": "tidegate.releases",
    "Releases": "tidegate.releases",
    "Status": "tidegate.releases",
}
_DOORS = {"open": ("tidegate.core.session", "open")}  # not in __all__: `import *` would hide the built-in one
_ROOMS = {
    "audit",
    "core",
    "datasets",
    "errors",
    "ingest",
    "mechanisms",
    "noise",
    "plan",
    "policy",
    "queries",
    "pipeline",
    "testing",
}

__all__ = [
    "Event",
    "Guarantee",
    "Live",
    "Release",
    "Releases",
    "Status",
    "Swellfish",
    "User",
    "WEvent",
    "__version__",
    "audit",
    "core",
    "datasets",
    "errors",
    "ingest",
    "mechanisms",
    "noise",
    "pipeline",
    "plan",
    "policy",
    "queries",
    "testing",
]

if TYPE_CHECKING:
    from tidegate import (
        audit,
        core,
        datasets,
        errors,
        ingest,
        mechanisms,
        noise,
        pipeline,
        plan,
        policy,
        queries,
        testing,
    )
    from tidegate.core.session import open as open
    from tidegate.pipeline.live import Live
    from tidegate.policy import Event, Guarantee, Swellfish, User, WEvent
    from tidegate.releases import Release, Releases, Status


if not TYPE_CHECKING:  # or any name would pass

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name in _DOORS:
            module, function = _DOORS[name]
            return getattr(importlib.import_module(module), function)
        if name in _ROOMS:
            return importlib.import_module(f"tidegate.{name}")
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}{_meant(name)}")


def _meant(name: str) -> str:
    """Which class was meant, as the end of a sentence; nothing is loaded for names that begin like a module's."""
    if not name[:1].isupper():
        return ""
    naming, rooms = importlib.import_module("tidegate.naming"), importlib.import_module("tidegate.mechanisms")
    homes = {**{each: f"tidegate.mechanisms.{each}" for each in rooms.__all__}}
    homes |= {each: f"tidegate.{each}" for each in _HOMES}
    meant = naming.nearest(name, homes, naming.CLASSES.get(name))
    return f"; did you mean {homes[meant]}?" if meant else ""


def __dir__() -> list[str]:
    return sorted([*__all__, *_DOORS])
