"""Numbers without the digits that the noise has made meaningless.

A value that is off by 5 is not known to a hundredth. What is written has as many decimals as a twentieth of the
interval's half width, so that rounding costs a fortieth of it at most, and never fewer than whole numbers. Ends of
intervals are rounded outwards. All of it is post-processing, and the same for one release as for many.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
PART = 20.0  # of half an interval: finer than that is noise
MOST_DECIMALS = 12
# half widths from which on so many decimals are enough: 20 needs none, 2 needs one, …
_ENOUGH = np.array([PART * 10.0**-decimals for decimals in range(MOST_DECIMALS, -1, -1)])
_POWERS = 10.0 ** np.arange(MOST_DECIMALS + 1)


def powers(half: Values) -> Values:
    """The power of ten of each number's last decimal; NaN where nothing is known of its noise.

    Examples
    --------
    >>> powers(np.array([55.0, 3.0, 0.05, np.nan])).tolist()
    [1.0, 10.0, 1000.0, nan]
    """
    known = np.isfinite(half) & (half > 0)
    place = np.searchsorted(_ENOUGH, np.where(known, half, 1.0), side="right") - 1
    found: Values = np.where(known, _POWERS[MOST_DECIMALS - np.maximum(place, 0)], np.nan)
    return found


def rounded(
    values: Values, low: Values, high: Values, scale: npt.NDArray[np.float64]
) -> tuple[Values, Values, Values]:
    """Values and the ends of their intervals; where there is no interval the scale of the noise stands for it.

    Parameters
    ----------
    values, low, high
        Releases × columns; NaN where there is no number.
    scale
        One entry a release; 0 where nothing was measured, and then nothing is rounded.
    """
    half = (high - low) / 2
    half = np.where(np.isfinite(half), half, np.asarray(scale, dtype=np.float64)[:, np.newaxis])
    power = powers(half)
    exact = np.isnan(power)
    with np.errstate(invalid="ignore"):
        return (
            np.where(exact, values, np.rint(values * power) / power),
            np.where(exact, low, np.floor(low * power) / power),
            np.where(exact, high, np.ceil(high * power) / power),
        )
