"""``[publish] withhold``: a public rule on released numbers and their intervals, for display alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.config.keys import PublishKeys
from tidegate.errors import InvalidParameter
from tidegate.exact import positive, show

Values = npt.NDArray[np.float64]
_RULE = re.compile(r"relative error > (\d+(?:\.\d+)?)\s?%")


@dataclass(frozen=True)
class Withhold:
    """Numbers whose relative error exceeds a limit.

    Parameters
    ----------
    limit
        Half the width of an interval at 90 %, as a part of the number.
    floor
        The smallest number that a part is taken of: of next to nothing every error would be large.

    Examples
    --------
    >>> rule = Withhold(Fraction(1, 2), Fraction(10))
    >>> rule.of(np.array([100.0, 100.0, 2.0, -2.0]), np.array([50.0, 51.0, 5.0, 6.0])).tolist()
    [False, True, False, True]
    """

    limit: Fraction
    floor: Fraction

    def of(self, values: Values, halves: Values) -> npt.NDArray[np.bool_]:
        """Which numbers are withheld; one without a known interval always is, and a missing one never."""
        size = np.maximum(np.abs(values), float(self.floor))
        small = halves <= float(self.limit) * size
        return np.isfinite(values) & ~small

    def __str__(self) -> str:
        least = f", of numbers below {show(self.floor)} as of {show(self.floor)}"
        return f"relative error > {show(100 * self.limit)} %{least}"


def read_withhold(keys: PublishKeys) -> Withhold | None:
    """The rule of a configuration, checked.

    Examples
    --------
    >>> str(read_withhold(PublishKeys(withhold="relative error > 50%", floor="10")))
    'relative error > 50 %, of numbers below 10 as of 10'
    """
    floor = positive("floor", keys.floor)
    if keys.withhold is None:
        return None
    found = _RULE.fullmatch(keys.withhold.strip())
    if found is None:
        raise InvalidParameter(
            "withhold", keys.withhold, "a relative error and its limit", 'write "relative error > 50%"'
        )
    return Withhold(positive("withhold", found[1]) / 100, floor)
