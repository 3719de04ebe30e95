"""Post-processing of noisy sums: no value below what is possible, and a moving average where noise is high.

The Swellfish paper's two steps. Both read nothing but releases; the threshold of the filter is a public constant,
since one that was chosen by looking at the data would tell about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.releases import Release, Releases

Values = npt.NDArray[np.float64]


def truncate(values: npt.ArrayLike, least: float = 0.0, most: float | None = None) -> Values:
    """Values below `least` (or above `most`) become that bound: a sum of consumptions is never negative.

    Examples
    --------
    >>> truncate([-3.5, 2.0])
    array([0., 2.])
    """
    clipped: Values = np.clip(np.asarray(values, dtype=np.float64), least, most)
    return clipped


@dataclass
class SmoothWhereNoisy:
    """The average of the last `window` releases at steps whose noise scale exceeds a public threshold.

    Other steps pass unchanged. Memory of one window; time O(d) a step.

    Parameters
    ----------
    columns
        The number of columns of the releases.
    window
        Steps in the average; one day in the paper.
    threshold
        Noise scale, in the values' unit, above which the average is better than the single value: one for all columns, or
        one for each, since it depends on how much a column moves within a window. Public.
    least
        Bound below which values are cut off before averaging; None for no bound.

    Examples
    --------
    >>> import tidegate as tg
    >>> run = tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24)))
    >>> SmoothWhereNoisy(window=24, threshold=10).push_batch(run.push_batch(np.full(100, 500))).shape
    (100, 1)
    """

    columns: int = 1
    window: int = 96
    threshold: float | Sequence[float] | Values = 0.0
    least: float | None = 0.0
    _last: Values = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.window = whole("window", self.window)
        self.columns = whole("columns", self.columns)
        given = np.asarray(self.threshold, dtype=np.float64)
        if given.shape not in ((), (self.columns,)) or not (given >= 0).all():
            raise InvalidParameter(
                "threshold",
                self.threshold,
                f"not negative, and one number or {self.columns}",
                "write threshold=0 to smooth always",
            )
        self._last = np.zeros((0, self.columns))

    def push(self, release: Release) -> Values:
        """The answer of one step."""
        answer: Values = self._answer(release.values[np.newaxis], np.array([release.scale]))[0]
        return answer

    def push_batch(self, releases: Releases) -> Values:
        """The answers of many steps, as from single pushes."""
        return self._answer(releases.values, releases.scale)

    def _answer(self, values: Values, scales: Values) -> Values:
        bounded = values if self.least is None else truncate(values, self.least)
        known = np.concatenate([self._last, bounded])
        before = len(self._last)
        sums = np.concatenate([np.zeros((1, self.columns)), np.cumsum(known, axis=0)])
        ends = np.arange(before + 1, len(known) + 1)
        begins = np.maximum(ends - self.window, 0)
        averages = (sums[ends] - sums[begins]) / (ends - begins)[:, np.newaxis]
        self._last = known[max(0, len(known) - self.window + 1) :] if self.window > 1 else known[:0]
        answers: Values = np.where(scales[:, np.newaxis] > np.asarray(self.threshold), averages, bounded)
        return answers
