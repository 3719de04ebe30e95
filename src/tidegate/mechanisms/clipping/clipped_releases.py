"""What clipped statistics release besides their values: where values are clipped."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from tidegate.releases import Releases, Values


class ClippedReleases(Releases):
    """Releases that say where values are clipped.

    Attributes
    ----------
    clip
        For each step the clip in the unit of the values; NaN before it is known.
    """

    __slots__ = ("clip",)
    clip: Values

    @classmethod
    def with_clip(cls, releases: Releases, clips: npt.NDArray[np.int64], grid: float) -> Self:
        """Releases with clips that are counted in grid units; 0: not known yet."""
        found = cls.__new__(cls)
        for name in Releases.__slots__:
            setattr(found, name, getattr(releases, name))
        found.clip = np.where(clips > 0, clips * grid, np.nan)
        return found
