"""What leaves the mechanism: one step's release, or a batch of them in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate import frames

if TYPE_CHECKING:
    import polars

Values = npt.NDArray[np.float64]


class NoiseLaw(Protocol):
    """How noise is distributed."""

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval that holds the noise with a probability."""


class Status(IntEnum):
    """How the values of a step came about."""

    FRESH = 1  # measured at this step, with noise
    APPROXIMATED = 2  # derived from measurements of other steps, because a new one would not pay
    NULLIFIED = 3  # as approximated, because the budget was already absorbed by another step
    PRUNED = 4  # not measured, because a coarser measurement said that there is nothing
    PARTIAL = 5  # some columns were measured at this step, the others are approximated
    MISSING = 6  # given input had no reading, and nothing is said in its place

    @property
    def label(self) -> str:
        """The word that files and reports use."""
        return self.name.lower()


class Release:
    """The published vector of one step.

    Attributes
    ----------
    step
        The number of the step, from 1.
    values
        The d published numbers.
    status
        How they came about.
    source
        The step at which they were measured.
    scale
        The scale of the noise on them (in the values' unit); 0 where nothing was ever measured.
    units, unit
        The budget that this step's data lost: an integer number of exact units; `spent` is their product.
    delay
        How many steps after the step itself the values became known.
    revised
        Better values of this and earlier steps that became known at this step, where a mechanism works in
        periods; else None.
    law
        How the noise is distributed, where a fresh value is the truth and such noise; else None.
    """

    __slots__ = ("delay", "law", "scale", "source", "status", "step", "unit", "units", "values")

    revised: Releases | None = None

    def __init__(
        self,
        step: int,
        values: Values,
        status: Status,
        source: int,
        scale: float,
        units: int,
        unit: Fraction,
        delay: int = 0,
    ) -> None:
        self.step = step
        self.values = values
        self.status = status
        self.source = source
        self.scale = scale
        self.units = units
        self.unit = unit
        self.delay = delay
        self.law: NoiseLaw | None = None

    def radius(self, confidence: float = 0.9) -> Values | None:
        """Half the widths of `interval`, one or one a column; None where no interval is known."""
        if self.law is None or self.status is not Status.FRESH:
            return None
        return self.law.radius([self.scale], confidence)

    def interval(self, confidence: float = 0.9) -> tuple[Values, Values]:
        """Bounds between which the true values lie with this probability; NaN where none are known.

        Of a value that was measured at its step the noise is known exactly. Of one that was taken from an earlier
        step nobody knows how far the stream has moved since, unless the mechanism has a model that says so.
        """
        return _around(self.values, self.radius(confidence))

    @property
    def spent(self) -> Fraction:
        """The exact budget that this step's data lost."""
        return self.units * self.unit

    @property
    def fresh(self) -> bool:
        """Whether the values were measured at this very step."""
        return self.status is Status.FRESH

    def __repr__(self) -> str:
        return (
            f"Release(step={self.step}, values={self.values.tolist()}, status={self.status.label}, "
            f"source={self.source}, scale={self.scale:g}, spent={self.spent})"
        )


class Releases:
    """The published vectors of consecutive steps, in columns.

    Attributes
    ----------
    first_step
        The number of the first step.
    values
        T × d published numbers.
    status, source, scale, units
        One entry a step, as in :class:`Release`.
    unit
        The exact value of one budget unit.
    delay
        How many steps after a step its values became known; the longest of them.
    revised
        Better values of these and earlier steps that became known during them, where a mechanism works in
        periods; else None.
    law
        As in :class:`Release`.
    names
        The names of the columns, where the run knows them; else None.
    """

    __slots__ = (
        "_source",
        "delay",
        "first_step",
        "law",
        "names",
        "scale",
        "status",
        "unit",
        "units",
        "values",
    )

    revised: Releases | None = None

    def __init__(
        self,
        first_step: int,
        values: Values,
        status: npt.NDArray[np.int8],
        source: npt.NDArray[np.int64] | None,
        scale: Values,
        units: npt.NDArray[np.int64],
        unit: Fraction,
        delay: int = 0,
    ) -> None:
        self.first_step = first_step
        self.values = values
        self.status = status
        self._source = source
        self.scale = scale
        self.units = units
        self.unit = unit
        self.delay = delay
        self.law: NoiseLaw | None = None
        self.names: tuple[str, ...] | None = None

    def to_polars(
        self,
        times: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        *,
        confidence: float = 0.9,
        layout: str = "long",
    ) -> polars.DataFrame:
        """A polars DataFrame: step, time, column, value, low, high and status.

        Parameters
        ----------
        times
            When each step began, one entry a step; without them there is no column `time`.
        names
            The names of the columns; by default those of the DataFrame that was pushed, else "1", "2", ….
        confidence
            With which probability the true value lies between `low` and `high`; see :meth:`interval`.
        layout
            "long": one row for each step and column. "wide": one row a step, with the columns "north", "north low" and
            "north high" for each name.

        Examples
        --------
        >>> from tidegate import WEvent
        >>> from tidegate.mechanisms import Uniform
        >>> releases = Uniform(WEvent(epsilon="1", w=3), columns=2).start().push_batch([[1, 2], [3, 4]])
        >>> releases.to_polars(names=["north", "south"]).columns
        ['step', 'column', 'value', 'low', 'high', 'status']
        """
        frame: polars.DataFrame = frames.library("polars").DataFrame(
            frames.columns_of(self, times, names, confidence, layout)
        )
        return frame

    def to_pandas(
        self,
        times: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        *,
        confidence: float = 0.9,
        layout: str = "long",
    ) -> Any:
        """The same as a pandas DataFrame."""
        return frames.library("pandas").DataFrame(frames.columns_of(self, times, names, confidence, layout))

    def to_arrow(
        self,
        times: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        *,
        confidence: float = 0.9,
        layout: str = "long",
    ) -> Any:
        """The same as an Arrow table."""
        return frames.library("pyarrow").table(frames.columns_of(self, times, names, confidence, layout))

    def radius(self, confidence: float = 0.9) -> Values | None:
        """Half the widths of `interval`, T × 1 or T × d, NaN where it is not known; None where it never is."""
        if self.law is None:
            return None
        found = np.where(self.fresh, self.law.radius(self.scale, confidence), np.nan)
        return np.asarray(found[:, np.newaxis], dtype=np.float64)

    def interval(self, confidence: float = 0.9) -> tuple[Values, Values]:
        """Bounds of all values, T × d, as in :meth:`Release.interval`."""
        return _around(self.values, self.radius(confidence))

    @property
    def source(self) -> npt.NDArray[np.int64]:
        """The step at which each step's values were measured."""
        return self.steps if self._source is None else self._source

    @property
    def final(self) -> Releases:
        """The best values: the revised ones where there are any, else these."""
        return self if self.revised is None else self.revised

    def __len__(self) -> int:
        return len(self.values)

    @property
    def fresh(self) -> npt.NDArray[np.bool_]:
        """Which steps were measured."""
        return np.equal(self.status, Status.FRESH)

    @property
    def spent(self) -> Values:
        """The budget each step's data lost, for display; `units * unit` is exact."""
        return np.asarray(self.units * float(self.unit), dtype=np.float64)

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The numbers of the steps."""
        return np.arange(self.first_step, self.first_step + len(self.values), dtype=np.int64)

    def __getitem__(self, index: int) -> Release:
        at = range(len(self.values))[index]
        release = Release(
            self.first_step + at,
            self.values[at],
            Status(int(self.status[at])),
            int(self.source[at]),
            float(self.scale[at]),
            int(self.units[at]),
            self.unit,
            self.delay,
        )
        release.law = self.law
        return release

    def __iter__(self) -> Iterator[Release]:
        return (self[index] for index in range(len(self.values)))

    def __repr__(self) -> str:
        steps, columns = self.values.shape
        return f"Releases({steps} steps from step {self.first_step}, {columns} columns, {int(self.fresh.sum())} fresh)"


def _around(values: Values, radius: Values | None) -> tuple[Values, Values]:
    half = np.full(values.shape, np.nan) if radius is None else radius
    return values - half, values + half


class GroupedRelease(Release):
    """A release with the measurements behind it, and the group of steps each of them belongs to.

    Attributes
    ----------
    noisy
        The d measurements of this very step; `values` are smoothed from them and those of earlier steps.
    groups
        For each column the first step of the group that this step belongs to; 0 where nothing was measured.
    weights
        For each column how precise the measurement is: its budget, in whole units.

    All of it is private output already, so questions may smooth it again in their own way.
    """

    __slots__ = ("groups", "noisy", "weights")

    def __init__(
        self, *release: Any, noisy: Values, groups: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]
    ) -> None:
        super().__init__(*release)
        self.noisy = noisy
        self.groups = groups
        self.weights = weights


class GroupedReleases(Releases):
    """Releases with the measurements behind them (T × d arrays), as in `GroupedRelease`."""

    __slots__ = ("groups", "noisy", "weights")

    def __init__(
        self, *releases: Any, noisy: Values, groups: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]
    ) -> None:
        super().__init__(*releases)
        self.noisy = noisy
        self.groups = groups
        self.weights = weights

    def __getitem__(self, index: int) -> GroupedRelease:
        plain, at = super().__getitem__(index), range(len(self.values))[index]
        fields = (plain.step, plain.values, plain.status, plain.source, plain.scale, plain.units, plain.unit)
        behind = {"noisy": self.noisy[at], "groups": self.groups[at], "weights": self.weights[at]}
        return GroupedRelease(*fields, plain.delay, **behind)


class PeriodicRelease(Release):
    """A release of a mechanism that works in periods: `revised` is set at the last step of each."""

    __slots__ = ("revised",)

    def __init__(self, *release: Any, revised: Releases | None) -> None:
        super().__init__(*release)
        self.revised = revised


class PeriodicReleases(Releases):
    """Releases of a mechanism that works in periods; `revised` has the periods that ended among the steps."""

    __slots__ = ("revised",)

    def __init__(self, *releases: Any, revised: Releases | None) -> None:
        super().__init__(*releases)
        self.revised = revised

    def __getitem__(self, index: int) -> PeriodicRelease:
        plain, at = super().__getitem__(index), range(len(self.values))[index]
        fields = (plain.step, plain.values, plain.status, plain.source, plain.scale, plain.units, plain.unit)
        revised = self.revised
        period = revised.ending_at(self.first_step + at) if isinstance(revised, RevisedReleases) else None
        return PeriodicRelease(*fields, plain.delay, revised=period)


class RevisedReleases(Releases):
    """The values of whole periods, each known when its period ended.

    Attributes
    ----------
    ends
        For each step the step at which its values became known.
    """

    __slots__ = ("ends",)

    def __init__(self, *releases: Any, ends: npt.NDArray[np.int64]) -> None:
        super().__init__(*releases)
        self.ends = ends

    def __getitem__(self, index: int) -> Release:
        release = super().__getitem__(index)
        release.delay = int(self.ends[range(len(self.values))[index]]) - release.step
        return release

    def ending_at(self, step: int) -> RevisedReleases | None:
        """The part that became known at a step."""
        begin, end = (int(at) for at in np.searchsorted(self.ends, [step, step + 1]))
        if begin == end:
            return None
        part = slice(begin, end)
        fields = (self.values, self.status, self.source, self.scale, self.units)
        first = self.first_step + begin
        longest = int(self.ends[begin]) - first
        return RevisedReleases(
            first, *(field[part] for field in fields), self.unit, longest, ends=self.ends[part]
        )
