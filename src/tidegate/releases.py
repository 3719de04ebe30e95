"""What leaves the mechanism: one step's release, or a batch of them in columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from tidegate import charts, frames
from tidegate.exact import proper

if TYPE_CHECKING:
    import polars

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
MOST_SHOWN = 8  # values of one release that its repr has
Kinds = list[tuple[int, Integers]]  # from which row on columns belong to which classes


class NoiseLaw(Protocol):
    """How noise is distributed."""

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval that holds the noise with a probability."""


class Errors(NamedTuple):
    """Of what the errors of released values are made, T × d each: what sums and means of steps need to know.

    The error of a step has three parts: its own, which no other step has; a shared one, which may be correlated with
    that of the step before; and a lasting one, which has the same sign at all steps.

    Attributes
    ----------
    own
        The variance of its own part, which is not in the released value: the scatter of a count around its level.
    shared
        The variance of what is in the released value: the noise of a measurement, which later steps may repeat, or of a
        level that is tracked.
    carry
        The correlation of the shared part with that of the step before; 0 where it begins anew.
    lasting
        The square of the lasting part: a trend that is followed late, a level that is too small to be seen.
    """

    own: Values
    shared: Values
    carry: Values
    lasting: Values


class Radii:
    """Half the widths of the intervals of releases, worked out when they are asked for, and once.

    Parameters
    ----------
    work_out
        What gives them for a probability, T × d.

    Examples
    --------
    >>> radii = Radii(lambda confidence: np.full((2, 1), 5.0))
    >>> radii(0.9).tolist(), radii.rows(1)(0.9).tolist()
    ([[5.0], [5.0]], [5.0])
    """

    __slots__ = ("_known", "_work_out")

    def __init__(self, work_out: Callable[[float], Values]) -> None:
        self._work_out = work_out
        self._known: dict[float, Values] = {}

    def __call__(self, confidence: float) -> Values:
        """Those for a probability."""
        proper("confidence", confidence, "write for example 0.9")
        found = self._known.get(confidence)
        if found is None:
            found = self._known[confidence] = self._work_out(confidence)
        return found

    def errors(self) -> Errors | None:
        """Of what the errors are made, where that is known."""
        return None

    def rows(self, part: int | slice) -> Radii:
        """Those of one step, or of some."""
        return Radii(lambda confidence: self(confidence)[part])

    def of_one(self, release: Release, place: int) -> Radii:
        """Those of the release that was given this place: made when they are asked for."""
        return self.rows(place)


class SharedRadii(ABC):
    """What several single releases have in common: the radii of each are made when they are asked for."""

    __slots__ = ()

    @abstractmethod
    def of_one(self, release: Release, place: int) -> Radii:
        """Those of the release that was given this place."""


class Status(IntEnum):
    """How the values of a step came about.

    Attributes
    ----------
    FRESH
        Measured at this step.
    APPROXIMATED
        Made from earlier measurements, or from a model of them.

    Examples
    --------
    >>> Status(1).name
    'FRESH'
    """

    FRESH = 1  # measured at this step, with noise
    APPROXIMATED = 2  # derived from measurements of other steps, because a new one would not pay
    NULLIFIED = 3  # as approximated, because the budget was already absorbed by another step
    PRUNED = 4  # not measured, because a coarser measurement said that there is nothing
    PARTIAL = 5  # some columns were measured at this step, the others are approximated
    MISSING = 6  # given input had no reading, and nothing is said in its place
    SILENT = 7  # nothing is said: windows of this step were charged before an amendment

    @property
    def label(self) -> str:
        """The word that files and reports use."""
        return self.name.lower()


class Measured(NamedTuple):
    """The measurements that smoothed values were made from, of one step (d) or of several (T × d).

    All of it is private output already, so questions may smooth it again in their own way.

    Attributes
    ----------
    noisy
        The measurements of this very step; values are smoothed from them and those of earlier steps.
    groups
        For each column the first step of the group that this step belongs to; 0 where nothing was measured.
    weights
        For each column how precise the measurement is: its budget, in whole units.
    """

    noisy: Values
    groups: Integers
    weights: Integers

    def rows(self, part: int | slice | None) -> Measured:
        """Those of one step or of some; None makes several of one."""
        return Measured(self.noisy[part], self.groups[part], self.weights[part])


class ClassDeviations(NamedTuple):
    """Standard deviations that columns of one class have in common, T × classes, and the classes of the columns."""

    by_class: Values
    kinds: Kinds

    def expanded(self, columns: int) -> Values:
        """One for each column, T × d."""
        result = np.empty((len(self.by_class), columns))
        ends = [begin for begin, _ in self.kinds[1:]] + [len(result)]
        for (begin, kind), end in zip(self.kinds, ends, strict=True):
            if begin < end:  # no steps have no classes
                result[begin:end] = self.by_class[begin:end][:, kind]
        return result

    def at(self, row: int) -> Values:
        """Those of one step."""
        return np.asarray(self.by_class[row][self._kind(row)])

    def rows(self, part: slice) -> ClassDeviations:
        """Those of steps between which no classes change."""
        return ClassDeviations(self.by_class[part], [(0, self._kind(part.start))])

    def _kind(self, row: int) -> Integers:
        return [kind for begin, kind in self.kinds if begin <= row][-1]


class _Published:
    """What one release and several have in common."""

    __slots__ = ()
    values: Values
    measured: Measured | None
    law: NoiseLaw | None
    radii: Radii | None
    deviation: Values | None

    def radius(self, confidence: float = 0.9) -> Values | None:
        """Half the widths of `interval`, one or one a column for each step; None where no interval is known."""
        if self.radii is not None:
            return self.radii(confidence)
        if (deviation := self.deviation) is not None:
            # around Laplace noise a Gaussian interval covers nearly the same at 90 %
            found: Values = NormalDist().inv_cdf(0.5 + confidence / 2) * deviation
            return found
        return None if self.law is None else self._radius_by(self.law, confidence)

    def _radius_by(self, law: NoiseLaw, confidence: float) -> Values:
        """The same from the law of the noise alone: infinite where nothing was measured, NaN without a value."""
        raise NotImplementedError

    def interval(self, confidence: float = 0.9) -> tuple[Values, Values]:
        """Bounds between which the true values lie with this probability, in their shape.

        Of a value that was measured at its step, and of a sum of such, the noise is known exactly, and so is how often
        the interval holds. Of a value that was taken from an earlier step, or smoothed, it also has what the stream has
        moved, by a model that was learnt from earlier releases (:mod:`tidegate.mechanisms.uncertainty`, or the
        mechanism's own): such intervals hold as often as they say while a stream moves as it did before, and less often
        at a jump that nothing has announced. What clipping or `clamp` takes away is in no interval; what rounding to the
        grid moves is, but for sums of several rounded values. Infinite while nothing was
        measured; NaN where there is no value.

        Parameters
        ----------
        confidence
            The probability, above 0 and below 1.
        """
        radius = self.radius(confidence)
        half = np.full(self.values.shape, np.nan) if radius is None else radius
        return self.values - half, self.values + half

    @property
    def noisy(self) -> Values | None:
        """The measurements behind smoothed values; None where values are the measurements."""
        return None if self.measured is None else self.measured.noisy

    @property
    def groups(self) -> Integers | None:
        """The first step of each column's group, as in :class:`Measured`."""
        return None if self.measured is None else self.measured.groups

    @property
    def weights(self) -> Integers | None:
        """How precise each measurement is, as in :class:`Measured`."""
        return None if self.measured is None else self.measured.weights


class Release(_Published):
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
        The scale of the noise on them (in the values' unit): b of Laplace and σ of Gaussian noise; of noise that steps
        share, the b of Laplace noise with the same variance. 0 where nothing was ever measured.
    units, unit
        The budget that was charged to this step alone: an integer number of exact units; `spent` is their product. Steps
        that share noise are charged together, as a span. No release has that charge, and their `spent` is 0: what the
        last window has spent in all is in `session.spent`.
    delay
        How many steps after the step itself the values became known.
    revised
        Better values of this and earlier steps that became known at this step, where a mechanism works in
        periods; otherwise None.
    deviation
        The standard deviation of the error of each value, where a mechanism estimates it from releases (infinite before
        anything was measured); otherwise None.
    measured
        The measurements behind smoothed values; otherwise None.
    law
        How the noise is distributed, where a fresh value is the truth and such noise; otherwise None.
    radii
        What gives half the widths of intervals where the law of the noise is not all; otherwise None.
    time
        When the step began, where that is known: by the clock of a :class:`~tidegate.pipeline.Live`, or because the row
        of a DataFrame that was pushed said it. The log has no times.

    Examples
    --------
    >>> import tidegate as tg
    >>> release = tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=4), columns=3)).push([5, 0, 9])
    >>> release.step, release.values.shape, release.status.name, release.spent  # the noise is shared
    (1, (3,), 'FRESH', Fraction(0, 1))
    >>> low, high = release.interval(0.9)
    >>> bool((low < release.values).all() and (release.values < high).all())
    True
    """

    __slots__ = (
        "_place", "_radii", "delay", "deviation", "law", "measured", "revised", "scale", "source", "status", "step",
        "time", "unit", "units", "values",
    )  # fmt: skip
    _place: int | None  # among releases that share what gives their radii; None: it has its own

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
        *,
        revised: Releases | None = None,
        deviation: Values | None = None,
        measured: Measured | None = None,
    ) -> None:
        self.step = step
        self.values = values
        self.status = status
        self.source = source
        self.scale = scale
        self.units = units
        self.unit = unit
        self.delay = delay
        self.revised = revised
        self.deviation = deviation
        self.measured = measured
        self.time: Any = None
        self.law = None
        self._radii: Radii | SharedRadii | None = None
        self._place = None

    @property
    def radii(self) -> Radii | None:
        """What gives half the widths of intervals where the law of the noise is not all; otherwise None."""
        if self._place is not None and self._radii is not None:
            self._radii, self._place = self._radii.of_one(self, self._place), None
        return cast(Radii | None, self._radii)

    @radii.setter
    def radii(self, radii: Radii | None) -> None:
        self._radii, self._place = radii, None

    def _radius_by(self, law: NoiseLaw, confidence: float) -> Values:
        if self.status is Status.FRESH:
            return law.radius([self.scale], confidence)
        return np.full(1, np.nan if np.isnan(self.values).all() else np.inf)

    @property
    def spent(self) -> Fraction:
        """The exact budget that was charged to this step alone; 0 where steps that share noise are charged together."""
        return self.units * self.unit

    @property
    def fresh(self) -> bool:
        """Whether the values were measured at this very step."""
        return self.status is Status.FRESH

    def __repr__(self) -> str:
        shown = ", ".join(f"{value:.12g}" for value in self.values[:MOST_SHOWN])
        more = f", … {len(self.values)} in all" if len(self.values) > MOST_SHOWN else ""
        return (
            f"Release(step={self.step}, values=[{shown}{more}], status={self.status.label}, "
            f"source={self.source}, scale={self.scale:g}, spent={self.spent})"
        )


class Releases(_Published):
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
        periods; otherwise None.
    ends
        For each step the step at which its values became known, where they are revised values; otherwise None.
    deviation, measured, law, radii
        As in :class:`Release`, T × d.
    readings
        The measurements that a model was given, NaN at steps without one, where it has released them; otherwise None.
    names
        The names of the columns, where the session was given them; otherwise None.
    times
        When the steps began, as the pushed DataFrame or the clock of a stream has said it; otherwise None. Tables have
        them as `time`, and pandas DataFrames with a row per step as their index. The log has none.

    Examples
    --------
    >>> import tidegate as tg
    >>> run = tg.open(tg.mechanisms.Sample(tg.WEvent(epsilon="1", window=4), columns=2))
    >>> releases = run.push_batch([[5, 0]] * 8)
    >>> len(releases), releases.values.shape, int(releases.fresh.sum())
    (8, (8, 2), 2)
    >>> releases[4].step, releases.to_polars().width > 3
    (5, True)
    """

    __slots__ = (
        "_deviation", "_source", "delay", "ends", "first_step", "law", "measured", "names", "radii", "readings",
        "revised", "scale", "status", "times", "unit", "units", "values",
    )  # fmt: skip

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
        *,
        revised: Releases | None = None,
        deviation: ClassDeviations | None = None,
        measured: Measured | None = None,
        ends: Integers | None = None,
    ) -> None:
        self.first_step = first_step
        self.values = values
        self.status = status
        self._source = source
        self.scale = scale
        self.units = units
        self.unit = unit
        self.delay = delay
        self.revised = revised
        self._deviation = deviation
        self.measured = measured
        self.ends = ends
        self.law = None
        self.radii = None
        self.readings: Values | None = None
        self.names: tuple[str, ...] | None = None
        self.times: Sequence[Any] | None = None

    @classmethod
    def of(cls, singles: Sequence[Release], first_step: int, columns: int, unit: Fraction) -> Releases:
        """Single releases of consecutive steps, of which there may be none, as one."""
        measured = [each.measured for each in singles if each.measured is not None]
        return cls(
            first_step,
            np.array([each.values for each in singles]).reshape(len(singles), columns),
            np.array([each.status for each in singles], dtype=np.int8),
            np.array([each.source for each in singles], dtype=np.int64),
            np.array([each.scale for each in singles], dtype=np.float64),
            np.array([each.units for each in singles], dtype=np.int64),
            unit,
            measured=Measured(*map(np.array, zip(*measured, strict=True))) if measured else None,
        )

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
            When each step began, one entry a step; by default `times`. Where neither is there, there is no column `time`.
        names
            The names of the columns; by default those of the DataFrame that was pushed, else "1", "2", ….
        confidence
            With which probability the true value lies between `low` and `high`; see :meth:`interval`.
        layout
            "long": one row for each step and column. "wide": one row a step, with the columns "north", "north low" and
            "north high" for each name.

        Examples
        --------
        >>> import tidegate as tg
        >>> from tidegate.mechanisms import Uniform
        >>> releases = tg.open(Uniform(tg.WEvent(epsilon="1", window=3), columns=2)).push_batch([[1, 2], [3, 4]])
        >>> releases.to_polars(names=["north", "south"]).columns
        ['step', 'column', 'value', 'low', 'high', 'status']
        """
        frame: polars.DataFrame = frames.library("polars").DataFrame(
            self._table(times, names, confidence, layout)
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
        """The same as a pandas DataFrame; with a row per step, the times of the input are its index."""
        found = frames.library("pandas").DataFrame(self._table(times, names, confidence, layout))
        if times is None and layout == "wide" and "time" in found:
            return found.set_index("time").rename_axis(getattr(self.times, "name", None))
        return found

    def to_arrow(
        self,
        times: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        *,
        confidence: float = 0.9,
        layout: str = "long",
    ) -> Any:
        """The same as an Arrow table."""
        return frames.library("pyarrow").table(self._table(times, names, confidence, layout))

    def _table(
        self, times: Sequence[Any] | None, names: Sequence[str] | None, confidence: float, layout: str
    ) -> dict[str, Any]:
        """Columns by their names."""
        return frames.columns_of(self, times, names, confidence, layout)

    @property
    def deviation(self) -> Values | None:  # type: ignore[override]  # nobody sets it
        """The standard deviation of the error of each value, T × d; looked up by class of columns when asked for."""
        return None if self._deviation is None else self._deviation.expanded(self.values.shape[1])

    def _radius_by(self, law: NoiseLaw, confidence: float) -> Values:
        found = law.radius(self.scale, confidence)[:, np.newaxis]
        if (fresh := self.fresh).all():
            return found
        nothing = np.where(np.isnan(self.values).all(axis=1), np.nan, np.inf)
        return np.where(fresh[:, np.newaxis], found, nothing[:, np.newaxis])

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
        """The budget that was charged to each step alone, for display; `units * unit` is exact."""
        return np.asarray(self.units * float(self.unit), dtype=np.float64)

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The numbers of the steps."""
        return np.arange(self.first_step, self.first_step + len(self.values), dtype=np.int64)

    def __getitem__(self, index: int) -> Release:
        at = range(len(self.values))[index]
        step = self.first_step + at
        release = Release(
            step,
            self.values[at],
            Status(int(self.status[at])),
            step if self._source is None else int(self._source[at]),
            float(self.scale[at]),
            int(self.units[at]),
            self.unit,
            self.delay if self.ends is None else int(self.ends[at]) - step,
            revised=None if self.revised is None else self.revised.ending_at(step),
            deviation=None if self._deviation is None else self._deviation.at(at),
            measured=None if self.measured is None else self.measured.rows(at),
        )
        release.law = self.law
        release._radii, release._place = self.radii, at
        release.time = None if self.times is None else self.times[at]
        return release

    @property
    def modelled(self) -> Values:
        """The values that a model goes on with, also where a release says nothing."""
        return self.values

    def ending_at(self, step: int) -> Releases | None:
        """Of revised values, the part that became known at a step; None where there is none."""
        if self.ends is None:
            return None
        begin, end = (int(at) for at in np.searchsorted(self.ends, [step, step + 1]))
        if begin == end:
            return None
        part, first = slice(begin, end), self.first_step + begin
        found = Releases(
            first,
            self.values[part],
            self.status[part],
            self.source[part],
            self.scale[part],
            self.units[part],
            self.unit,
            int(self.ends[begin]) - first,
            deviation=None if self._deviation is None else self._deviation.rows(part),
            ends=self.ends[part],
        )
        found.radii = None if self.radii is None else self.radii.rows(part)
        return found

    def __iter__(self) -> Iterator[Release]:
        return (self[index] for index in range(len(self.values)))

    def __repr__(self) -> str:
        steps, columns = self.values.shape
        width = "1 column" if columns == 1 else f"{columns} columns"
        measured = int(self.fresh.sum())
        how = "all fresh" if measured == steps else f"{measured} fresh"
        noise = f", noise of scale {_range(self.scale[self.fresh])}" if measured else ""
        return f"Releases({steps} steps from step {self.first_step}, {width}, {how}{noise})"

    def _repr_html_(self) -> str:
        """A small chart of what was released, which notebooks show."""
        return charts.chart(self)


def _range(scales: Values) -> str:
    least, most = float(scales.min()), float(scales.max())
    return f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
