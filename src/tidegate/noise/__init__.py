"""Exact noise: one door for randomness, a readable reference, compiled draws that agree with it bit for bit.

Importing this package is light; the compiler is loaded when the first draw is looked up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.noise.entropy import Source, current, install

if TYPE_CHECKING:
    from tidegate.noise.discrete_gaussian import expected_absolute as expected_absolute_gaussian
    from tidegate.noise.discrete_gaussian import gaussian
    from tidegate.noise.discrete_gaussian import variance as variance_gaussian
    from tidegate.noise.discrete_laplace import add_laplace, laplace, laplace_one
    from tidegate.noise.discrete_laplace import expected_absolute as expected_absolute_laplace
    from tidegate.noise.discrete_laplace import quantile as quantile_laplace
    from tidegate.noise.discrete_laplace import radius as radius_laplace
    from tidegate.noise.discrete_laplace import variance as variance_laplace
    from tidegate.noise.law import Law
    from tidegate.noise.scale import Scale, check_scale, prepare

__all__ = [
    "Law",
    "Scale",
    "Source",
    "add_laplace",
    "check_scale",
    "current",
    "expected_absolute_gaussian",
    "expected_absolute_laplace",
    "gaussian",
    "install",
    "laplace",
    "laplace_one",
    "prepare",
    "quantile_laplace",
    "radius_laplace",
    "variance_gaussian",
    "variance_laplace",
]

_WHERE = {
    "Law": ("law", "Law"),
    "Scale": ("scale", "Scale"),
    "add_laplace": ("discrete_laplace", "add_laplace"),
    "check_scale": ("scale", "check_scale"),
    "expected_absolute_gaussian": ("discrete_gaussian", "expected_absolute"),
    "expected_absolute_laplace": ("discrete_laplace", "expected_absolute"),
    "gaussian": ("discrete_gaussian", "gaussian"),
    "laplace": ("discrete_laplace", "laplace"),
    "laplace_one": ("discrete_laplace", "laplace_one"),
    "prepare": ("scale", "prepare"),
    "quantile_laplace": ("discrete_laplace", "quantile"),
    "radius_laplace": ("discrete_laplace", "radius"),
    "variance_gaussian": ("discrete_gaussian", "variance"),
    "variance_laplace": ("discrete_laplace", "variance"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found
