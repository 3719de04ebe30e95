"""What discovery releases besides values: which category each column is, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidegate.releases import Integers, Release, Releases, Status, Values
from tidegate.structures.category_names import OTHER

Names = npt.NDArray[np.int8]


def as_names(stored: Names) -> tuple[str, ...]:
    """Stored names of columns; those of empty columns are empty."""
    return tuple(row.tobytes().rstrip(b"\0").decode() for row in stored)


def as_stored(name: str, length: int) -> Names:
    """A name as so many bytes."""
    return np.frombuffer(name.encode().ljust(length, b"\0"), dtype=np.int8)


class DiscoveredRelease(Release):
    """The release of one step, and the categories that it is about.

    Attributes
    ----------
    categories
        The name of each column; empty where a column is free. The last value is that of all other categories.
    opened
        For each column the step at which its category opened; 0 where it is free.
    units_counted
        For each column the noisy number of units that the last test of its category has seen; NaN where it is free.
    """

    __slots__ = ("categories", "opened", "units_counted")
    categories: tuple[str, ...]
    opened: Integers
    units_counted: Values

    @property
    def counts(self) -> dict[str, float]:
        """The values by category, "other" last."""
        found = {
            name: float(value) for name, value in zip(self.categories, self.values, strict=False) if name
        }
        return found | {OTHER: float(self.values[-1])}


class DiscoveredReleases(Releases):
    """Releases of several steps, and the categories that they are about; fields as in :class:`DiscoveredRelease`.

    Attributes
    ----------
    opened, units_counted
        Steps × columns.
    """

    __slots__ = ("_names", "opened", "units_counted")
    opened: Integers
    units_counted: Values
    _names: Names

    @classmethod
    def of_releases(cls, releases: Releases, names: Names, opened: Integers, units: Values) -> Self:
        """Releases with what the mechanism has released besides."""
        found = cls.__new__(cls)
        for name in Releases.__slots__:
            setattr(found, name, getattr(releases, name))
        found._names, found.opened, found.units_counted = names, opened, units
        found.values = releases.values.copy()  # of a free column it is noise around nothing
        found.values[:, :-1][opened == 0] = np.nan
        return found

    @property
    def found(self) -> tuple[Names, Integers, Values]:
        """Stored names, since when, and how many units: for those who keep releases."""
        return self._names, self.opened, self.units_counted

    def categories(self, at: int) -> tuple[str, ...]:
        """The name of each column at a step of these, counted from 0."""
        return as_names(self._names[at])

    def __getitem__(self, index: int) -> DiscoveredRelease:
        at, plain = range(len(self.values))[index], super().__getitem__(index)
        found = DiscoveredRelease.__new__(DiscoveredRelease)
        for name in Release.__slots__:
            if hasattr(plain, name):
                setattr(found, name, getattr(plain, name))
        found.categories, found.opened = self.categories(at), self.opened[at]
        found.units_counted = self.units_counted[at]
        return found

    def _table(
        self, times: Sequence[Any] | None, names: Sequence[str] | None, confidence: float, layout: str
    ) -> dict[str, Any]:
        """A row for each step and open category, and one for all others; categories have names of their own."""
        low, high = self.interval(confidence)
        open_ = np.concatenate([self.opened > 0, np.ones((len(self), 1), dtype=np.bool_)], axis=1)
        at, column = np.nonzero(open_)
        labels = {int(status): status.label for status in Status}
        shown = [[*self.categories(each), OTHER] for each in range(len(self))]
        table: dict[str, Any] = {"step": self.steps[at]}
        if times is not None:
            table["time"] = [times[each] for each in at.tolist()]
        return {
            **table,
            "column": [shown[step][place] for step, place in zip(at.tolist(), column.tolist(), strict=True)],
            "value": self.values[at, column],
            "low": low[at, column],
            "high": high[at, column],
            "status": [labels[int(self.status[each])] for each in at.tolist()],
        }
