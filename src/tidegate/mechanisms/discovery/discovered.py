"""What discovery releases besides values: which category each column is, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidegate.releases import Integers, Release, Releases, Status, Values
from tidegate.structures.category_names import OTHER
from tidegate.structures.clipped_values import ClippedValues

Names = npt.NDArray[np.int8]


def as_names(stored: Names) -> tuple[str, ...]:
    """Stored names of columns; those of empty columns are empty."""
    return tuple(row.tobytes().rstrip(b"\0").decode() for row in stored)


def columns_of(names: Sequence[str], parts: int) -> list[str]:
    """The names of columns: with two parts those of means, then those of their counts."""
    return [*names, *(f"count of {name}" for name in names)] if parts == 2 else [*names]


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

    __slots__ = ("_reading", "categories", "opened", "units_counted")
    categories: tuple[str, ...]
    opened: Integers
    units_counted: Values
    _reading: ClippedValues | None

    @property
    def counts(self) -> dict[str, float]:
        """The counts by category, "other" last; of means how many records they are of."""
        return self._by_category(-1, "count", "mean")

    @property
    def sums(self) -> dict[str, float]:
        """The sums by category, "other" last."""
        return self._by_category(0, "sum")

    @property
    def means(self) -> dict[str, float]:
        """The means by category, "other" last."""
        return self._by_category(0, "mean")

    def _by_category(self, part: int, *wanted: str) -> dict[str, float]:
        kind = "count" if self._reading is None else "mean" if self._reading.count_weight else "sum"
        if kind not in wanted:
            raise AttributeError(f"these releases are {kind}s: read .{kind}s.")
        values = answers(self._reading, self.values).reshape(-1, len(self.categories) + 1)[part]
        found = {name: float(value) for name, value in zip(self.categories, values, strict=False) if name}
        return found | {OTHER: float(values[-1])}


def answers(reading: ClippedValues | None, values: Values) -> Values:
    """What released values say: for means, the means and the counts. Post-processing, free."""
    return values if reading is None or not reading.count_weight else reading.means(values)


class DiscoveredReleases(Releases):
    """Releases of several steps, and the categories that they are about; fields as in :class:`DiscoveredRelease`.

    Attributes
    ----------
    opened, units_counted
        Steps × columns.
    """

    __slots__ = ("_modelled", "_names", "_reading", "opened", "units_counted")
    opened: Integers
    units_counted: Values
    _modelled: Values
    _names: Names
    _reading: ClippedValues | None

    @classmethod
    def of_releases(
        cls,
        releases: Releases,
        names: Names,
        opened: Integers,
        units: Values,
        changed: Integers,
        reading: ClippedValues | None = None,
    ) -> Self:
        """Releases with what the mechanism has released besides; `reading`: how values were added up.

        A value that follows from an older measurement than its category is not known, and neither is `other` after
        `changed`, the step at which categories may have opened or closed last.
        """
        found = cls.__new__(cls)
        for name in Releases.__slots__:
            setattr(found, name, getattr(releases, name))
        found._names, found.opened, found.units_counted, found._reading = names, opened, units, reading
        source = releases.source[:, np.newaxis]
        unknown = np.hstack([(opened == 0) | (source < opened), source < changed[:, np.newaxis]])
        found._modelled, found.values = releases.values, releases.values.copy()
        found.values[np.tile(unknown, found.values.shape[1] // unknown.shape[1])] = np.nan
        return found

    @property
    def modelled(self) -> Values:
        """Also of columns that are free, or not measured yet."""
        return self._modelled

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
        found.units_counted, found._reading = self.units_counted[at], self._reading
        return found

    def _table(
        self, times: Sequence[Any] | None, names: Sequence[str] | None, confidence: float, layout: str
    ) -> dict[str, Any]:
        """A row for each step and open category, and one for all others; of means one more for each with its count.

        Categories have names of their own.
        """
        low, high = self.interval(confidence)
        values, parts = answers(self._reading, self.values), 1
        if self._reading is not None and self._reading.count_weight:
            low, high = self._reading.bounds_of_means(self.values, (high - low) / 2)
            parts = 2
        open_ = np.concatenate([self.opened > 0, np.ones((len(self), 1), dtype=np.bool_)], axis=1)
        at, column = np.nonzero(np.tile(open_, parts))
        labels = {int(status): status.label for status in Status}
        shown = [columns_of([*self.categories(each), OTHER], parts) for each in range(len(self))]
        table: dict[str, Any] = {"step": self.steps[at]}
        if times is not None:
            table["time"] = [times[each] for each in at.tolist()]
        return {
            **table,
            "column": [shown[step][place] for step, place in zip(at.tolist(), column.tolist(), strict=True)],
            "value": values[at, column],
            "low": low[at, column],
            "high": high[at, column],
            "status": [labels[int(self.status[each])] for each in at.tolist()],
        }
