"""Mechanisms of the core that `tidegate.mechanisms` does not have yet; goes when the last family has moved."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any


def core_kind(kind: type[Any]) -> type[Any]:
    """The class of the core that belongs to a configuration class."""
    if hasattr(kind, "advance"):
        return kind
    found: type[Any] = getattr(
        import_module(kind.__module__.replace(".mechanisms.", "._mechanisms.", 1)), kind.__name__
    )
    return found


def on_core(mechanism: Any) -> Any:
    """The same configuration as a mechanism of the core."""
    kind = core_kind(type(mechanism))
    if kind is type(mechanism):
        return mechanism
    given = {each.name: getattr(mechanism, each.name) for each in fields(mechanism) if each.init}
    if given.get("per_leaf"):
        kind = import_module("tidegate.mechanisms.optstream.per_leaf_opt_stream").PerLeafOptStream
    if kind.__name__ == "Blocks":
        given["mechanism"] = on_core(given["mechanism"])
    return kind(**given)
