"""The scale of a publication's noise, for mechanisms that decide in compiled code how much to spend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def publication_scale(whole: float, units: int) -> Any:
    """The noise scale of a publication that spends so many units: whole/units, rounded up."""
    return np.nextafter(whole / units, np.inf)
