"""For tests of mechanisms, ours or a user's own: entropy that repeats, conformance, statistics, sample streams."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.testing.checks import check
    from tidegate.testing.entropy import fixed_entropy, zero_noise

__all__ = ["check", "fixed_entropy", "zero_noise"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"tidegate.testing.{'checks' if name == 'check' else 'entropy'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
