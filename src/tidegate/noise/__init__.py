"""Exact noise: one door for randomness, a readable reference, compiled draws that agree with it bit for bit.

Importing this package is light; the compiler is loaded when the first draw is looked up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.noise.entropy import Source, current, installed

if TYPE_CHECKING:
    from tidegate.noise.discrete_gaussian import gaussian
    from tidegate.noise.discrete_laplace import (
        expected_absolute,
        laplace,
        laplace_one,
        quantile,
        radius,
        variance,
    )
    from tidegate.noise.scale import Scale, prepare

__all__ = [
    "Scale",
    "Source",
    "current",
    "expected_absolute",
    "gaussian",
    "installed",
    "laplace",
    "laplace_one",
    "prepare",
    "quantile",
    "radius",
    "variance",
]

_WHERE = {
    "Scale": "scale",
    "expected_absolute": "discrete_laplace",
    "gaussian": "discrete_gaussian",
    "laplace": "discrete_laplace",
    "laplace_one": "discrete_laplace",
    "prepare": "scale",
    "quantile": "discrete_laplace",
    "radius": "discrete_laplace",
    "variance": "discrete_laplace",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
