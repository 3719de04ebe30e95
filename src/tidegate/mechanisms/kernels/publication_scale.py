"""The scale of a publication's noise, for mechanisms that decide in compiled code how much to spend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import lean


@lean
def publication_scale(whole: float, units: int) -> Any:
    """The noise scale of a publication that spends so many units: whole/units, rounded up.

    The quotient is off by a factor 1 + δ with |δ| ≤ 2^-53, so whole/scale is within units·2^-52 < 1/2 of `units`, which
    are below 2^51. A remainder is computed exactly: if it is zero, whole is a multiple of the scale, by the only whole
    number that is so near, `units`; then the division was exact, and the scale is what it is said to be (2 and not
    2.0000000000000004). Else the quotient may have been rounded down, and the next float is above the exact one.
    """
    scale = whole / units
    return scale if whole % scale == 0.0 else np.nextafter(scale, np.inf)
