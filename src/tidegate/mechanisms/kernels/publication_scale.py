"""The scale of a publication's noise, for mechanisms that decide in compiled code how much to spend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import lean


@lean
def publication_scale(unit_scale: float, units: int) -> Any:
    """The noise scale of a publication that spends so many units: unit_scale/units, rounded up.

    The quotient is off by a factor 1 + δ with |δ| ≤ 2^-53, so unit_scale/scale is within units·2^-52 < 1/2 of `units`,
    which are below 2^51. A remainder is computed exactly. If it is zero, `unit_scale` is a multiple of the scale, by the
    only whole number that is so near, `units`. Then the division was exact, and its result is returned (2 and not
    2.0000000000000004). Otherwise the quotient may have been rounded down, and the next float is above the exact one.
    """
    scale = unit_scale / units
    return scale if unit_scale % scale == 0.0 else np.nextafter(scale, np.inf)
