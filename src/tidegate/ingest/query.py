"""The query: what is counted or added up for each step and column, and how much one unit can change it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, exact, positive, show, whole
from tidegate.ingest import kernels
from tidegate.ingest.columns import Columns, Intervals, numbers
from tidegate.ingest.errors import RepeatedReading
from tidegate.ingest.schema import Schema, UnitReader, unit_codes
from tidegate.ingest.times import TimeReader
from tidegate.policy import Policy

Matrix = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

AGGREGATES = ("count", "distinct", "sum", "mean", "histogram", "given")
ZERO, PREVIOUS = "zero", "previous release"
_LARGEST = 2**53  # in grid units: what a mechanism accepts
ALL = Columns(("all",))  # one column for everything
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Query:
    """An aggregate per step and column, with at most `most` contributions of a unit in a step.

    Parameters
    ----------
    aggregate
        "count": events. "distinct": units, each once a column. "sum": of a clipped value. "mean": the sum and
        the count, which share the budget. "histogram": events by intervals of the value. "given": the input
        is already aggregated, one reading for each step and column.
    columns
        The public columns: :class:`Columns` or :class:`Intervals`.
    most
        The most contributions of one unit in one step (m). The first ones by time are kept, at equal times
        those of the first columns, then of the smallest values: a rule that looks at the unit's own events
        only.
    clip
        Bounds (low, high) of one contribution's value, exact and on the grid.
    grid
        The public resolution, one over a whole number. Contributions are rounded to it before they are added.
    weighting
        "keep": each contribution counts in full and Δ grows with `most`. "share": each counts 1/most, rounded
        down on the grid, and Δ stays that of one contribution.
    share
        For "mean": the part of the budget that goes to the sum.
    layout
        For "given": "long" (a row for each step and column) or "wide" (a row for each step).
    fill
        For "given": what stands for a missing reading: "zero", "previous release", or a public constant.
    rounding
        For "given": "refuse" readings that are not on the grid, or round them to the "nearest", which costs
        sensitivity.

    Privacy
    -------
    :meth:`max_change` is Δ for add-remove or replace, in the units of the values; :meth:`check` refuses a
    policy that declares less. For "given" nobody but the declarer can know it, and the policy's is taken.

    Examples
    --------
    >>> query = Query(aggregate="sum", most=2, clip=("0", "5"), grid="0.1")
    >>> query.max_change("add-remove")
    Fraction(10, 1)
    """

    aggregate: str
    columns: Columns | Intervals = ALL
    most: int = 1
    clip: tuple[ExactLike, ExactLike] | None = None
    grid: ExactLike = 1
    weighting: str = "keep"
    share: ExactLike = "1/2"
    layout: str = "long"
    fill: ExactLike | None = None
    rounding: str = "refuse"

    def __post_init__(self) -> None:
        put = object.__setattr__
        _one_of("aggregate", self.aggregate, AGGREGATES)
        _one_of("weighting", self.weighting, ("keep", "share"))
        _one_of("layout", self.layout, ("long", "wide"))
        _one_of("rounding", self.rounding, ("refuse", "nearest"))
        put(self, "most", whole("most", self.most, most=10_000))
        grid = positive("grid", self.grid)
        if grid.numerator != 1 or grid.denominator > _LARGEST:
            raise InvalidParameter(
                "grid", self.grid, "one over a whole number", 'write for example grid="0.01"'
            )
        put(self, "grid", grid)
        share = exact("share", self.share)
        if not 0 < share < 1:
            raise InvalidParameter("share", self.share, "between 0 and 1", 'write for example share="1/2"')
        put(self, "share", share)
        self._validate_clip(grid)
        self._validate_combination()

    def _validate_clip(self, grid: Fraction) -> None:
        if self.clip is None:
            if self.aggregate in ("sum", "mean"):
                raise InvalidParameter(
                    "clip",
                    None,
                    f'given for "{self.aggregate}"',
                    'write the bounds of one value, clip=["0", "100"]',
                )
            return
        if self.aggregate in ("count", "distinct", "histogram"):
            raise InvalidParameter(
                "clip", "given", f'absent for "{self.aggregate}", which adds up no values', "drop it"
            )
        if isinstance(self.clip, str) or len(self.clip) != 2:
            raise InvalidParameter("clip", self.clip, "two numbers", 'write clip=["0", "100"]')
        low, high = (exact("clip", bound) for bound in self.clip)
        if not low < high:
            raise InvalidParameter("clip", (show(low), show(high)), "increasing", 'write clip=["0", "100"]')
        for bound in (low, high):
            if (bound / grid).denominator != 1:
                raise InvalidParameter(
                    "clip", show(bound), f"on the grid of {show(grid)}", "round it to the grid"
                )
            if abs(bound / grid) > _LARGEST:
                raise InvalidParameter(
                    "clip", show(bound), f"within {_LARGEST} grid units", "choose a coarser grid"
                )
        object.__setattr__(self, "clip", (low, high))

    def _validate_combination(self) -> None:
        put = object.__setattr__
        if self.aggregate == "histogram" and not isinstance(self.columns, Intervals):
            raise InvalidParameter(
                "columns", "names", 'Intervals for "histogram"', "give the edges of the intervals"
            )
        if self.fill is not None:
            if self.aggregate != "given":
                raise InvalidParameter(
                    "fill",
                    self.fill,
                    'absent unless aggregate is "given": no events are zero events',
                    "drop it",
                )
            if self.fill == ZERO:
                put(self, "fill", Fraction(0))
            elif self.fill != PREVIOUS:
                constant = exact("fill", self.fill)
                if (constant / Fraction(self.grid)).denominator != 1:
                    raise InvalidParameter(
                        "fill", self.fill, f"on the grid of {show(Fraction(self.grid))}", "round it"
                    )
                put(self, "fill", constant)
        if self.aggregate == "given":
            if not isinstance(self.columns, Columns):
                raise InvalidParameter(
                    "columns", "intervals", 'a list of names for "given"', "name the series"
                )
            if self.layout == "wide" and self.columns.outside != "drop":
                raise InvalidParameter("outside", "other", '"drop" for wide input', "drop it")
            if self.most != 1 or self.weighting != "keep":
                raise InvalidParameter("most", self.most, 'absent for "given", which has no units', "drop it")
        elif self.layout != "long" or self.rounding != "refuse":
            raise InvalidParameter("layout", self.layout, 'absent unless aggregate is "given"', "drop it")
        if self.weighting == "share":
            if self.aggregate == "mean":
                raise InvalidParameter("weighting", "share", '"keep" for a mean', "drop it")
            if self._bounds == (0, 0) if self.aggregate == "sum" else self._weight == 0:
                raise InvalidParameter(
                    "grid",
                    show(Fraction(self.grid)),
                    f"at most 1/{self.most} of a contribution when it is shared",
                    f'write grid="1/{self.most}"',
                )

    # shape and sensitivity ----------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of a step, as a mechanism sees them."""
        names = self.columns.labels
        if self.aggregate == "mean":
            return (*(f"sum of {name}" for name in names), *(f"count of {name}" for name in names))
        return names

    @property
    def width(self) -> int:
        """The number of columns of a step, as a mechanism sees them."""
        return len(self.columns) * (2 if self.aggregate == "mean" else 1)

    @property
    def _ticks(self) -> int:
        """Grid units in 1."""
        return Fraction(self.grid).denominator

    @property
    def _weight(self) -> int:
        """What one contribution counts, in grid units."""
        return self._ticks // self.most if self.weighting == "share" else self._ticks

    @property
    def _bounds(self) -> tuple[int, int]:
        """Bounds of one contribution's value in grid units, after sharing or centring."""
        assert self.clip is not None
        low, high = (int(Fraction(bound) * self._ticks) for bound in self.clip)
        if self.aggregate == "mean":
            return low - self._centre, high - self._centre
        if self.weighting == "share":
            return _towards_zero(low, self.most), _towards_zero(high, self.most)
        return low, high

    @property
    def _centre(self) -> int:
        """The public middle of the clip, in grid units: a mean is measured as a deviation from it."""
        assert self.clip is not None
        low, high = (int(Fraction(bound) * self._ticks) for bound in self.clip)
        return (low + high) // 2

    @property
    def _count_weight(self) -> int:
        """What a count of 1 weighs in a mean, in grid units: this is how sum and count share the budget."""
        largest = max(abs(bound) for bound in self._bounds)
        share = Fraction(self.share)
        return max(1, round(largest * (1 - share) / share))

    def max_change(self, adjacency: str = "add-remove", *, records: bool = False) -> Fraction | None:
        """Δ: by how much one unit can change a step in L1; None for "given", where it must be declared.

        Parameters
        ----------
        adjacency
            "add-remove", or "replace": then it is the largest gain (or loss) of a step, which the policy
            doubles where there are several columns.
        records
            Whether every record is a unit of its own, as in an input without a column of units.
        """
        if self.aggregate == "given":
            return None
        times = 1 if records else self.most
        if self.aggregate == "distinct":
            times = min(times, len(self.columns))
        if self.aggregate in ("sum", "mean"):
            low, high = self._bounds
            change = max(high, 0) + max(-low, 0) if adjacency == "replace" else max(abs(low), abs(high))
            change += self._count_weight if self.aggregate == "mean" else 0
        else:
            change = self._weight
        return Fraction(times * change, self._ticks)

    def check(self, policy: Policy, *, records: bool = False) -> None:
        """Refuse a policy that promises to hide less than one unit can change."""
        needed = self.max_change(policy.adjacency, records=records)
        if needed is not None and Fraction(policy.max_change) < needed:
            raise InvalidParameter(
                "max_change",
                show(Fraction(policy.max_change)),
                f"at least {show(needed)}, which one unit can change in one step",
                f'write max_change="{show(needed)}"',
            )
        if self.aggregate == "mean" and policy.mobility == "fixed":
            raise InvalidParameter(
                "mobility", "fixed", '"moving" for a mean, where a unit is in a sum and in a count', "drop it"
            )

    def describe(self) -> dict[str, Any]:
        """Identify the query exactly, as JSON."""
        described: dict[str, Any] = {"columns": self.columns.describe()}
        for name in ("aggregate", "most", "weighting", "layout", "rounding"):
            described[name] = getattr(self, name)
        for name in ("grid", "share"):
            described[name] = show(Fraction(getattr(self, name)))
        described["clip"] = None if self.clip is None else [show(Fraction(bound)) for bound in self.clip]
        described["fill"] = show(self.fill) if isinstance(self.fill, Fraction) else self.fill
        return described

    # what a batch of input becomes --------------------------------------------------------------------------

    def needed(self, schema: Schema) -> tuple[str, ...]:
        """The columns of the input that are read."""
        if self.aggregate == "given" and self.layout == "wide":
            assert isinstance(self.columns, Columns)
            return (schema.time, *self.columns.names)
        return schema.needed

    def check_schema(self, schema: Schema) -> None:
        """Refuse a schema that lacks what the query needs."""
        wide = self.aggregate == "given" and self.layout == "wide"
        if schema.value is None and not wide:
            if self.aggregate in ("sum", "mean", "histogram", "given"):
                raise InvalidParameter(
                    "value", None, f'given for "{self.aggregate}"', "name the column of values"
                )
            if isinstance(self.columns, Intervals):
                raise InvalidParameter("value", None, "given for intervals", "name the column of values")
        if schema.column is None and isinstance(self.columns, Columns) and len(self.columns) > 1 and not wide:
            raise InvalidParameter(
                "column", None, "given for several columns", "name the column of categories"
            )
        if self.aggregate == "distinct" and schema.unit is None:
            raise InvalidParameter("unit", None, 'given for "distinct"', "name the column of units")
        if schema.unit is None and self.most != 1:
            raise InvalidParameter(
                "most", self.most, "1 where every record is a unit", "name the column of units"
            )

    def rows(self, frame: pl.DataFrame, schema: Schema, times: TimeReader, units: UnitReader) -> pl.DataFrame:
        """A batch as rows of time, unit, column and value in grid units; incomplete records are left out."""
        time = times.read(frame[schema.time])
        if self.aggregate == "given" and self.layout == "wide":
            return self._wide_rows(frame, time)
        parts: dict[str, Any] = {"time": time}
        if schema.unit is not None and self.aggregate != "given":
            parts["unit"] = units.read(frame[schema.unit])
        values = None
        if schema.value is not None and self.aggregate in ("sum", "mean", "given"):
            values = numbers(frame[schema.value], schema.value)
            parts["value"] = self._on_grid(values)
        if isinstance(self.columns, Intervals):
            assert schema.value is not None
            parts["column"] = self.columns.indices(frame[schema.value])
        elif schema.column is not None:
            parts["column"] = self.columns.indices(frame[schema.column])
        else:
            parts["column"] = np.zeros(len(frame), dtype=np.int32)
        rows = pl.DataFrame(parts)
        if values is not None and values.dtype.kind == "f":
            lacking = np.isnan(values)
            if lacking.any():
                rows = rows.filter(~lacking)
        return rows.drop_nulls() if any(rows[name].null_count() for name in rows.columns) else rows

    def _wide_rows(self, frame: pl.DataFrame, time: pl.Series) -> pl.DataFrame:
        assert isinstance(self.columns, Columns)
        parts = []
        for index, name in enumerate(self.columns.names):
            values = numbers(frame[name], name)
            part = pl.DataFrame(
                {
                    "time": time,
                    "value": self._on_grid(values),
                    "column": np.full(len(frame), index, dtype=np.int32),
                }
            )
            parts.append(part.filter(~np.isnan(values)) if values.dtype.kind == "f" else part)
        return pl.concat(parts).drop_nulls().sort("time", maintain_order=True)

    def _on_grid(self, values: npt.NDArray[Any]) -> Matrix:
        """Clip, then round to grid units with floor(x/g + ½); NaN becomes 0, to be left out by the caller."""
        ticks = self._ticks
        low, high = (
            (-_LARGEST, _LARGEST) if self.clip is None else (int(Fraction(b) * ticks) for b in self.clip)
        )
        if values.dtype.kind == "f":
            usable = np.nan_to_num(values, nan=0.0, posinf=math.inf, neginf=-math.inf)
            scaled = np.clip(usable, float(low) / ticks, float(high) / ticks) * ticks
            units = np.floor(scaled + 0.5).astype(np.int64)
            if self.aggregate == "given":
                self._check_readings(usable, units)
        else:
            if (
                self.aggregate == "given"
                and self.clip is None
                and len(values)
                and int(np.abs(values).max()) > _LARGEST // ticks
            ):
                raise _beyond()
            units = np.clip(values, -(-low // ticks) - 1, high // ticks + 1) * ticks
        units = np.clip(units, low, high).astype(np.int64, copy=False)
        if self.aggregate == "mean":
            units -= self._centre
        elif self.weighting == "share":
            units = (np.sign(units) * (np.abs(units) // self.most)).astype(np.int64, copy=False)
        result: Matrix = units
        return result

    def _check_readings(self, values: npt.NDArray[np.float64], units: Matrix) -> None:
        if self.clip is None and len(values) and float(np.abs(values).max()) > _LARGEST / self._ticks:
            raise _beyond()
        if self.rounding == "refuse":
            inside = np.ones(len(values), dtype=np.bool_)
            if self.clip is not None:
                low, high = (float(Fraction(bound)) for bound in self.clip)
                inside = (values > low) & (values < high)
            if not np.array_equal(values[inside], units[inside] / self._ticks):
                raise InvalidInput(
                    f"a reading does not lie on the grid of {show(Fraction(self.grid))}; "
                    'choose a finer grid, or declare rounding="nearest", which raises the sensitivity.'
                )

    # what complete steps become -----------------------------------------------------------------------------

    def vectors(
        self, rows: pl.DataFrame, steps: Matrix, first: int, count: int, *, finite: bool = True
    ) -> tuple[Matrix, Mask | None]:
        """The vectors of `count` complete steps in grid units, and which cells have no reading.

        Parameters
        ----------
        rows
            What :meth:`rows` made, of these steps only.
        steps
            The step of each row.
        finite
            Whether a second reading of a cell is refused (a file is wrong) or replaces the first (a broker
            may send a message twice).
        """
        out = np.zeros((count, self.width), dtype=np.int64)
        given = self.aggregate == "given"
        missing = np.ones((count, self.width), dtype=np.bool_) if given else None
        if len(rows):
            at = steps - first
            if len(at) > 1 and not kernels.in_order(at, -(2**63)):
                order = np.argsort(at, kind="stable")
                at, rows = at[order], rows[order]
            columns = rows["column"].to_numpy()
            values = rows["value"].to_numpy() if "value" in rows.columns else _NOTHING
            also = self._count_weight if self.aggregate == "mean" else 0
            if given:
                if kernels.put_readings(at, columns, values, missing, out) and finite:
                    raise RepeatedReading(
                        "two readings fall into one step and column; aggregate the input first or use "
                        "shorter steps."
                    )
            elif "unit" in rows.columns:
                kernels.add_bounded(
                    at,
                    rows["time"].to_numpy(),
                    unit_codes(rows["unit"]),
                    columns,
                    values,
                    self._weight,
                    also,
                    self.most,
                    self.aggregate == "distinct",
                    out,
                )
            else:
                kernels.add_records(at, columns, values, self._weight, also, out)
        return out, missing

    # what a release means -----------------------------------------------------------------------------------

    @property
    def answer_labels(self) -> tuple[str, ...]:
        """The names of the columns of :meth:`answers`."""
        names = self.columns.labels
        return (*names, *(f"count of {name}" for name in names)) if self.aggregate == "mean" else names

    def answers(self, released: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """What released vectors say: for a mean, the means and the counts. Post-processing, free."""
        values = np.asarray(released, dtype=np.float64)
        if self.aggregate != "mean":
            return values
        assert self.clip is not None
        half = len(self.columns)
        low, high = (float(Fraction(bound)) for bound in self.clip)
        counts = values[..., half:] * (self._ticks / self._count_weight)
        means = self._centre / self._ticks + values[..., :half] / np.maximum(counts, 1.0)
        return np.concatenate([np.clip(means, low, high), counts], axis=-1)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(name, value, "one of " + ", ".join(allowed), f'write {name}="{allowed[0]}"')


def _towards_zero(value: int, divisor: int) -> int:
    return abs(value) // divisor * (1 if value >= 0 else -1)


def _beyond() -> InvalidInput:
    return InvalidInput(
        f"a reading lies beyond ±{_LARGEST} grid units; choose a coarser grid or declare clip."
    )
