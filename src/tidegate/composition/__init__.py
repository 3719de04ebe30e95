"""How privacy losses add up: optimal composition, group privacy and zCDP, all rounded to the safe side."""

from __future__ import annotations

from tidegate.composition.conversions import group_delta, zcdp_delta, zcdp_rho
from tidegate.composition.optimal import delta_of, largest_step, simple_step

__all__ = [
    "delta_of",
    "group_delta",
    "largest_step",
    "simple_step",
    "zcdp_delta",
    "zcdp_rho",
]
