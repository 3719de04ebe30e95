"""Dynamic grouping, RescueDP's way to measure columns that are small beside the noise: together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegate.exact import whole
from tidegate.mechanisms.sampled.kalman import finite


@dataclass(frozen=True)
class Grouping:
    """Which columns share one measurement: small ones of similar size and movement, judged by releases only.

    Parameters
    ----------
    small
        τ₁: columns whose recent releases are on average below this are grouped, and a group takes columns until
        its values add up to this. None is the noise scale of the measurement.
    similarity
        τ₂: the least correlation of the recent releases with those of the group's first column.
    difference
        τ₃: the largest difference from the group's first column. None is the same as `small`.
    recent
        κ: how many releases are compared. A column with fewer is measured by itself.

    Examples
    --------
    >>> Grouping(small=30).describe()
    {'small': 30.0, 'similarity': 0.5, 'difference': None, 'recent': 3}
    """

    small: float | None = None
    similarity: float = 0.5
    difference: float | None = None
    recent: int = 3

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("small", "difference"):
            value = getattr(self, name)
            if value is not None:
                put(self, name, finite(name, value, 1e-9))
        put(self, "similarity", finite("similarity", self.similarity, -1.0, 1.0))
        put(self, "recent", whole("recent", self.recent, least=2, most=1000))

    def describe(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self)
