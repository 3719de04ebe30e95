"""What released noise loses of a budget, from the scales that releases state and from the policy alone.

An audit compares it with what was charged, so nothing here asks a mechanism which sensitivity it has taken.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.policy import Approximate, ZeroConcentrated
from tidegate.releases import Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.mechanism import Mechanism

Floats = npt.NDArray[np.float64]


def policy_change(mechanism: Mechanism) -> float:
    """By how many grid units one unit of the policy can change a step."""
    rounded = mechanism.rounding == "nearest"
    return float(
        mechanism.policy.grid_sensitivity(mechanism.columns, Fraction(mechanism.grid), rounded=rounded)
    )


def noise_losses(mechanism: Mechanism, releases: Releases) -> Floats | None:
    """What each measured step has lost through the noise on its values; None with a δ, where steps have no loss each."""
    budget, change = mechanism.policy.budget, policy_change(mechanism)
    if isinstance(budget, Approximate):
        return None
    in_grid = np.where(releases.scale > 0, releases.scale, np.inf) / float(Fraction(mechanism.grid))
    ratio = change / in_grid
    lost = ratio**2 / 2 if isinstance(budget, ZeroConcentrated) else ratio
    return np.where(np.isin(releases.status, [Status.FRESH, Status.PARTIAL]), lost, 0.0)
