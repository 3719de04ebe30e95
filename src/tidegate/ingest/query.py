"""The query: what is counted or added up for each step and column, and how much one unit can change it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, positive, show, whole
from tidegate.ingest.columns import OTHER, Columns, Discovered, Intervals
from tidegate.ingest.condition import Condition
from tidegate.ingest.learned_clip import Learning
from tidegate.ingest.levels import NODES, Levels, decimals_of
from tidegate.ingest.lookup import Lookup
from tidegate.ingest.quantiles import Quantiles, Range, fan_out
from tidegate.ingest.requirements import RequirementTable
from tidegate.ingest.schema import Schema
from tidegate.policy import Policy
from tidegate.structures.clipped_values import ClippedValues
from tidegate.structures.value_bins import ValueBins

AGGREGATES = ("count", "distinct", "sum", "mean", "histogram", "quantile", "given")
COUNTS = ("count", "distinct", "histogram", "quantile")  # of which a cell counts contributions
ZERO, MISSING = "zero", "missing"
PREVIOUS = "previous release"  # refused: it added noise to its own releases again and again
LARGEST = 2**53  # in grid units: what a mechanism accepts
MOST_OVER = 1000  # steps at which a record counts
ALL = Columns(("all",))  # one column for everything


@dataclass(frozen=True, kw_only=True)
class Query:
    """An aggregate per step and column, with at most `most` contributions of a unit in a step.

    Parameters
    ----------
    aggregate
        "count": events. "distinct": units, each once a column. "sum": of a clipped value. "mean": the sum and
        the count, which share the budget. "histogram": events by intervals of the value. "quantile": the same in
        bins of a range, from which quantiles are read. "given": the input is already aggregated, one reading for each
        step and column.
    columns
        The public columns: :class:`Columns` or :class:`Intervals`; or :class:`Discovered`, where nobody has listed them.
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
        For "given": what becomes of a missing reading. "missing": its cell is released as missing, which takes for
        public which readings there are. "zero" or a public constant stands for it, which takes nothing for public.
    rounding
        For "given": "refuse" readings that are not on the grid, or round them to the "nearest", which costs
        sensitivity.
    where
        A public :class:`~tidegate.ingest.condition.Condition` on the fields of a record, or its text: the records for
        which it does not hold are as if they had never been.
    lookup
        A public :class:`~tidegate.ingest.lookup.Lookup`: the input's categories are its keys, and their groups are the
        columns.
    levels
        The :class:`~tidegate.ingest.levels.Levels` of which the columns are the lowest: then all nodes are released,
        and parents are the sums of their children.
    quantiles
        For "quantile": which ones; "1/2" is the median.
    learn
        For "sum" and "mean": a :class:`~tidegate.ingest.learned_clip.Learning` where the upper end of `clip` is only a
        bound on values, and they are clipped at a threshold that is learnt. Steps are then vectors of :attr:`bins`, for
        :class:`~tidegate.mechanisms.clipped_records.ClippedRecords`.
    over
        For "distinct": a unit counts at a step if it was seen in this step or in one of the `over` − 1 before it.
    requirements
        A public :class:`~tidegate.ingest.requirements.RequirementTable`: a step has the columns of the units that ask
        for nothing else, then those of each requirement, and their sums are released.

    Privacy
    -------
    What a unit does within w steps changes w + `over` − 1 of them, so the policy's window must be as long as that.
    Without bounding a unit that is left out of a window is still in a part of the columns in which it was, so Δ is as
    many. Where `most` bounds it, the columns that it is in without that window may be others: Δ is twice as many.
    :meth:`max_change` is Δ for add-remove or replace, in the units of the values; :meth:`check` refuses a
    policy that declares less. For "given" nobody but the declarer can know it, and the policy's is taken.

    Examples
    --------
    >>> query = Query(aggregate="sum", most=2, clip=("0", "5"), grid="0.1")
    >>> query.max_change("add-remove")
    Fraction(10, 1)
    """

    aggregate: str
    columns: Columns | Intervals | Discovered = ALL
    most: int = 1
    clip: tuple[ExactLike, ExactLike] | None = None
    grid: ExactLike = 1
    weighting: str = "keep"
    share: ExactLike = "1/2"
    layout: str = "long"
    fill: ExactLike | None = None
    rounding: str = "refuse"
    where: Condition | str | None = None
    lookup: Lookup | None = None
    levels: Levels | None = None
    quantiles: tuple[ExactLike, ...] = ()
    learn: Learning | None = None
    over: int = 1
    requirements: RequirementTable | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        _one_of("aggregate", self.aggregate, AGGREGATES)
        _one_of("weighting", self.weighting, ("keep", "share"))
        _one_of("layout", self.layout, ("long", "wide"))
        _one_of("rounding", self.rounding, ("refuse", "nearest"))
        put(self, "most", whole("most", self.most, most=10_000))
        grid = positive("grid", self.grid)
        if grid.numerator != 1 or grid.denominator > LARGEST:
            raise InvalidParameter(
                "grid", self.grid, "one over a whole number", 'write for example grid="0.01"'
            )
        put(self, "grid", grid)
        share = exact("share", self.share)
        if not 0 < share < 1:
            raise InvalidParameter("share", self.share, "between 0 and 1", 'write for example share="1/2"')
        put(self, "share", share)
        if isinstance(self.where, str):
            put(self, "where", Condition(self.where))
        self._validate_clip(grid)
        self._validate_combination()
        self._validate_lookup()
        self._validate_levels()
        self._validate_learning()
        self._validate_over()
        self._validate_discovery()
        self._validate_requirements()

    @property
    def discovers(self) -> bool:
        """Whether nobody has listed the categories: then steps are records, and the mechanism finds the columns."""
        return isinstance(self.columns, Discovered)

    def _validate_discovery(self) -> None:
        if not self.discovers:
            return
        added = self.aggregate in ("sum", "mean")
        if not added and self.aggregate not in ("count", "distinct"):
            raise InvalidParameter(
                "aggregate",
                self.aggregate,
                "count, distinct, sum or mean where categories are found",
                'write aggregate = "count", or list the columns',
            )
        for name, given in (
            ("lookup", self.lookup is not None),
            ("hierarchy", self.levels is not None),
            ("over", self.over > 1),
            ("weighting", self.weighting != "keep"),
            ("grid", self.grid != 1 and not added),
            ("learn", self.learn is not None),
        ):
            if given:
                raise InvalidParameter(
                    name, "given", "absent where categories are found", "drop it, or list the columns"
                )

    def _validate_requirements(self) -> None:
        if self.requirements is None:
            return
        for name, given in (
            ("aggregate", self.aggregate not in ("count", "distinct", "sum", "histogram")),
            ("clip", self.learn is not None),
            ("hierarchy", self.levels is not None),
            ("over", self.over > 1),
            ("columns", self.discovers),
        ):
            if given:
                raise InvalidParameter(
                    "requirements",
                    "a table",
                    "absent unless steps have counts or clipped sums of listed columns, each of its own records",
                    f"drop it, or change {name} in [query]",
                )

    def _validate_over(self) -> None:
        whole("over", self.over, most=MOST_OVER)
        if self.over == 1:
            return
        if self.aggregate != "distinct":
            raise InvalidParameter(
                "over", self.over, f'absent for "{self.aggregate}"', 'write aggregate = "distinct"'
            )
        if self.levels is not None or self.weighting != "keep":
            name = "hierarchy" if self.levels is not None else "weighting"
            raise InvalidParameter(name, "given", "absent where units count over several steps", "drop it")

    def _validate_learning(self) -> None:
        if self.learn is None:
            return
        if self.aggregate not in ("sum", "mean") or self.clip is None or Fraction(self.clip[0]) != 0:
            raise InvalidParameter(
                "clip",
                "learn",
                'given for "sum" and "mean" of values that are not negative',
                'write clip = ["0", "100"]',
            )
        if self.weighting == "share":
            raise InvalidParameter("weighting", "share", '"keep" where the clip is learnt', "drop it")

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
        if self.aggregate in COUNTS:
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
            if abs(bound / grid) > LARGEST:
                raise InvalidParameter(
                    "clip", show(bound), f"within {LARGEST} grid units", "choose a coarser grid"
                )
        object.__setattr__(self, "clip", (low, high))

    def _validate_combination(self) -> None:
        put = object.__setattr__
        if self.aggregate == "quantile":
            if not isinstance(self.columns, Range):
                raise InvalidParameter(
                    "columns", "names", 'a Range for "quantile"', "give the range of values"
                )
            found = tuple(exact("quantiles", part) for part in self.quantiles or ("1/2",))
            if not all(0 < part < 1 for part in found) or len(set(found)) < len(found):
                raise InvalidParameter(
                    "quantiles", tuple(map(show, found)), "different numbers between 0 and 1", 'write ["1/2"]'
                )
            put(self, "quantiles", found)
        elif self.quantiles:
            raise InvalidParameter("quantiles", "given", 'absent unless aggregate is "quantile"', "drop it")
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
            elif self.fill == PREVIOUS:
                raise InvalidParameter(
                    "fill",
                    PREVIOUS,
                    "missing, zero or a public constant: noise would be added to noise at every missing reading",
                    'write fill = "missing"',
                )
            elif self.fill != MISSING:
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
            if self.bounds == (0, 0) if self.aggregate == "sum" else self.weight == 0:
                raise InvalidParameter(
                    "grid",
                    show(Fraction(self.grid)),
                    f"at most 1/{self.most} of a contribution when it is shared",
                    f'write grid="1/{self.most}"',
                )

    def _validate_lookup(self) -> None:
        if self.lookup is None:
            return
        if not isinstance(self.columns, Columns):
            raise InvalidParameter(
                "lookup", "given", "absent for intervals, which are of a number", "drop it, or name columns"
            )
        if self.wide:
            raise InvalidParameter("lookup", "given", "absent for wide input, which has no keys", "drop it")
        wanted = [group for group in self.lookup.groups if group in set(self.columns.names)]
        if not wanted:
            raise InvalidParameter(
                "lookup",
                "given",
                "a table in which at least one column is a group",
                "name its groups as columns",
            )
        several = len(set(wanted)) != len(wanted) or self.columns.outside == OTHER
        if self.aggregate == "given" and several:
            raise InvalidParameter(
                "lookup",
                "given",
                'one that puts one key into each column for "given", whose readings are not added up',
                "add them up before",
            )

    def _validate_levels(self) -> None:
        if self.levels is None:
            return
        parts_of_columns = isinstance(self.columns, Columns) or self.aggregate == "quantile"
        if self.aggregate in ("mean", "histogram") or not parts_of_columns:
            raise InvalidParameter(
                "hierarchy", "given", f"absent for {self.aggregate}, which is no sum of its parts", "drop it"
            )
        if self.fill == MISSING:
            raise InvalidParameter(
                "fill", MISSING, '"zero" or a constant where columns are added up', 'write fill = "zero"'
            )
        tree = self.levels.hierarchy
        if self.columns.labels != tuple(tree.names[leaf] for leaf in tree.leaves):
            raise InvalidParameter(
                "columns", "…", "the leaves of the hierarchy, without other", 'write outside = "drop"'
            )

    # shape and sensitivity ----------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of a step, as a mechanism sees them."""
        names = self.columns.labels
        if self.levels is not None and self.levels.measured == NODES:
            return self.levels.hierarchy.names
        if self.aggregate == "mean":
            return (*(f"sum of {name}" for name in names), *(f"count of {name}" for name in names))
        return names

    @property
    def width(self) -> int:
        """The number of columns of a step, as a mechanism sees them."""
        if self.learn is not None:
            return self.bins.width
        if self.levels is not None and self.levels.measured == NODES:
            return len(self.levels.hierarchy.names)
        return self.counted

    @property
    def counted(self) -> int:
        """The number of columns of a step, as records are counted in them."""
        if self.learn is not None:
            return self.bins.width
        promises = 1 if self.requirements is None else len(self.requirements.promises)
        return len(self.columns) * promises * (2 if self.aggregate == "mean" else 1)

    @property
    def outputs(self) -> int:
        """The number of columns of a release that a mechanism makes of steps: those of all requirements are added up."""
        return self.width if self.requirements is None else len(self.columns)

    @cached_property
    def bins(self) -> ValueBins:
        """Where the clip is learnt: the bins of values that a step holds for each column."""
        assert self.clip is not None
        return ValueBins(int(Fraction(self.clip[1]) * self.ticks), len(self.columns))

    def clipped_at(self, clip: int) -> Query:
        """The query as if values had always been clipped at so many grid units."""
        return replace(self, learn=None, clip=(0, clip * Fraction(self.grid)))

    @property
    def applied(self) -> Query:
        """The query with the clip that is in force; with the bound of values while it is being learnt."""
        return self if self.learn is None else self.clipped_at(self.learn.clip or self.bins.bound)

    @property
    def nonnegative(self) -> bool:
        """Whether no cell of a step can be negative, whatever the data: so it may be said of releases, too.

        Examples
        --------
        >>> Query(aggregate="sum", clip=(0, 5)).nonnegative, Query(aggregate="sum", clip=(-5, 5)).nonnegative
        (True, False)
        >>> Query(aggregate="mean", clip=(0, 5)).nonnegative  # measured as deviations from the middle of the clip
        False
        """
        if self.aggregate == "mean":
            return False
        if self.aggregate in COUNTS:
            return True
        filled = self.fill if isinstance(self.fill, Fraction) else Fraction(0)
        return self.clip is not None and Fraction(self.clip[0]) >= 0 and filled >= 0

    @property
    def ticks(self) -> int:
        """Grid units in 1."""
        return Fraction(self.grid).denominator

    @property
    def weight(self) -> int:
        """What one contribution counts, in grid units."""
        return self.ticks // self.most if self.weighting == "share" else self.ticks

    @property
    def limits(self) -> tuple[float, float]:
        """The clip of one value, as floats."""
        assert self.clip is not None
        low, high = (float(Fraction(bound)) for bound in self.clip)
        return low, high

    @property
    def limits_in_units(self) -> tuple[int, int]:
        """The clip of one value in grid units."""
        assert self.clip is not None
        low, high = (int(Fraction(bound) * self.ticks) for bound in self.clip)
        return low, high

    @property
    def bounds(self) -> tuple[int, int]:
        """Bounds of one contribution's value in grid units, after sharing or centring."""
        low, high = self.limits_in_units
        if self.aggregate == "mean":
            return self.clipped.bounds
        if self.weighting == "share":
            return _towards_zero(low, self.most), _towards_zero(high, self.most)
        return low, high

    @property
    def clipped(self) -> ClippedValues:
        """How values are added up, where no record is shared."""
        return ClippedValues(
            *self.limits_in_units, self.ticks, Fraction(self.share) if self.aggregate == "mean" else None
        )

    @property
    def centre(self) -> int:
        """The public middle of the clip, in grid units: a mean is measured as a deviation from it."""
        return sum(self.limits_in_units) // 2

    @property
    def count_weight(self) -> int:
        """What a count of 1 weighs in a mean, in grid units: this is how sum and count share the budget."""
        return self.clipped.count_weight

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
            if self.over > 1 and times < len(self.columns) and adjacency != "replace":
                times = min(2 * times, len(self.columns))
        if self.aggregate in ("sum", "mean"):
            low, high = self.bounds
            change = max(high, 0) + max(-low, 0) if adjacency == "replace" else max(abs(low), abs(high))
            change += self.count_weight if self.aggregate == "mean" else 0
        else:
            change = self.weight
        levels = 1 if self.levels is None else self.levels.factor
        return Fraction(times * change * levels, self.ticks)

    def maps_units(self, schema: Schema) -> bool:
        """Whether public names put each unit into one column: its category is the unit itself, or a table's entry for it.

        A key such as "07" does not count: it is another unit than 7, and the same category as a whole number.
        """
        if schema.unit is None or schema.column != schema.unit or not isinstance(self.columns, Columns):
            return False
        keys = self.columns.names if self.lookup is None else self.lookup.keys
        return all(key == str(int(key)) for key in keys if _is_whole(key))

    def check(self, policy: Policy, *, records: bool = False, mapped: bool = False) -> None:
        """Refuse a policy that promises to hide less than one unit can change.

        Parameters
        ----------
        policy
            What is to be protected.
        records
            Whether every record is a unit of its own.
        mapped
            Whether public names put each unit into one column; see `maps_units`.
        """
        needed = self.max_change(policy.adjacency, records=records)
        if needed is not None and Fraction(policy.max_change) < needed:
            raise InvalidParameter(
                "max_change",
                show(Fraction(policy.max_change)),
                f"at least {show(needed)}, which one unit can change in one step",
                f'write max_change="{show(needed)}"',
            )
        if self.over > 1:
            for name, usual in (("adjacency", "add-remove"), ("mobility", "moving"), ("touches", None)):
                if getattr(policy, name) != usual:
                    raise InvalidParameter(
                        name, getattr(policy, name), "absent where units count over several steps", "drop it"
                    )
        if self.levels is not None and self.levels.measured == NODES:
            moving = "where all levels are measured, of which a unit is in each"
        else:
            moving = {
                "mean": "for a mean, where a unit is in a sum and in a count",
                "quantile": "for quantiles, where a unit is in the bin of its value",
            }.get(self.aggregate, "")
        if policy.mobility == "fixed" and moving:
            raise InvalidParameter("mobility", "fixed", f'"moving" {moving}', "drop it")
        if policy.mobility == "fixed" and self.aggregate != "given" and self.width > 1 and not mapped:
            raise InvalidParameter(
                "mobility",
                "fixed",
                '"moving" where records say in which column their unit is',
                "drop it, or write the column of units as column, with a public lookup from units to columns",
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
        # only where they are there: a stream of an earlier version has neither
        if self.where is not None:
            described["where"] = str(self.where)
        if self.lookup is not None:
            described["lookup"] = self.lookup.describe()
        if self.levels is not None:
            described["levels"] = self.levels.describe()
        if self.learn is not None:
            described["learn"] = self.learn.steps
        if self.over > 1:
            described["over"] = self.over
        if self.requirements is not None:
            described["requirements"] = self.requirements.describe()
        if self.quantiles:
            described["quantiles"] = [show(Fraction(part)) for part in self.quantiles]
        return described

    # what is read --------------------------------------------------------------------------

    @property
    def wide(self) -> bool:
        """Whether the input has a row for each step and a column for each series."""
        return self.aggregate == "given" and self.layout == "wide"

    def needed(self, schema: Schema) -> tuple[str, ...]:
        """The columns of the input that are read."""
        named = schema.needed
        if self.wide:
            assert isinstance(self.columns, Columns)
            named = (schema.time, *self.columns.names)
        return (*named, *(name for name in self.looked_at if name not in named))

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns of the input that the condition looks at."""
        return self.where.fields if isinstance(self.where, Condition) else ()

    def check_schema(self, schema: Schema) -> None:
        """Refuse a schema that lacks what the query needs."""
        if schema.value is None and not self.wide:
            if self.aggregate in ("sum", "mean", "histogram", "quantile", "given"):
                raise InvalidParameter(
                    "value", None, f'given for "{self.aggregate}"', "name the column of values"
                )
            if isinstance(self.columns, Intervals):
                raise InvalidParameter("value", None, "given for intervals", "name the column of values")
        several = isinstance(self.columns, Columns | Discovered) and len(self.columns) > 1
        if schema.column is None and not self.wide and (several or self.lookup is not None):
            raise InvalidParameter(
                "column", None, "given for several columns, or for a lookup", "name the column of categories"
            )
        if self.discovers and schema.unit is None:
            raise InvalidParameter(
                "unit",
                None,
                "given where categories are found, of which enough units must have one",
                "name the column of units",
            )
        if self.aggregate == "distinct" and schema.unit is None:
            raise InvalidParameter("unit", None, 'given for "distinct"', "name the column of units")
        if schema.unit is None and self.requirements is not None:
            raise InvalidParameter(
                "unit", None, "given for requirements of units", "name the column of units"
            )
        if schema.unit is None and self.most != 1:
            raise InvalidParameter(
                "most", self.most, "1 where every record is a unit", "name the column of units"
            )

    # what a release means -----------------------------------------------------------------------------------

    @property
    def answer_labels(self) -> tuple[str, ...]:
        """The names of the columns of :meth:`answers`."""
        names = self.columns.labels
        if self.aggregate == "quantile":
            return self._quantiles.labels
        if self.levels is not None:
            return self.levels.hierarchy.names
        return (*names, *(f"count of {name}" for name in names)) if self.aggregate == "mean" else names

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The names of the columns that were asked for: of a mean, the means without their counts."""
        names = self.answer_labels
        return names[: len(self.columns)] if self.aggregate == "mean" and self.levels is None else names

    @property
    def parts(self) -> int:
        """In how many columns of the answers a category stands: 2 for a mean and its count."""
        return 2 if self.aggregate == "mean" else 1

    @property
    def rest_labels(self) -> tuple[str, ...]:
        """Where categories are found: the names of what all others are in."""
        return self.answer_labels[len(self.columns) - 1 :: len(self.columns)]

    def answers(self, released: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """What released vectors say: for a mean, the means and the counts. Post-processing, free."""
        values = np.asarray(released, dtype=np.float64)
        if self.learn is not None:
            return self.applied.answers(values)
        if self.aggregate == "quantile":  # of a silent step there is none
            said = np.isfinite(values).all(axis=-1, keepdims=True)
            return np.where(said, self._quantiles.read(self._bins(np.where(said, values, 0.0))), np.nan)
        if self.levels is not None:
            return self.levels.answers(values, grid=float(Fraction(self.grid)), positive=self.nonnegative)
        if self.aggregate != "mean":
            return values
        return self.clipped.means(values)

    def exact_answers(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What exact vectors of steps say, as a mechanism sees them; for comparisons with :meth:`answers`."""
        if self.learn is not None:
            return self.clipped_at(self.bins.bound).exact_answers(values)
        if self.aggregate == "quantile":
            return self._quantiles.read(values if self.levels is None else self.levels.leaves(values))
        return self.answers(values) if self.levels is None else self.levels.truth(values)

    @property
    def _quantiles(self) -> Quantiles:
        assert isinstance(self.columns, Range)
        edges = np.array([float(Fraction(edge)) for edge in self.columns.edges])
        return Quantiles(tuple(Fraction(part) for part in self.quantiles), edges)

    def _bins(self, released: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The counts of the bins, from what was released of them or of a tree over them."""
        if self.levels is None or self.levels.released != NODES:
            return released
        return self.levels.consistent(released)

    def intervals(
        self, released: npt.ArrayLike, radius: npt.ArrayLike | None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Intervals around :meth:`answers`, NaN where none is known. Post-processing, free.

        Parameters
        ----------
        released
            Released vectors.
        radius
            Half the widths of the intervals around them at 90 %, one for each value or one a vector; None where none
            is known.
        """
        if self.learn is not None:
            return self.applied.intervals(released, radius)
        values = np.asarray(released, dtype=np.float64)
        half = np.broadcast_to(
            np.nan if radius is None else np.asarray(radius, dtype=np.float64), values.shape
        )
        known = np.isfinite(half) & np.isfinite(values)
        if self.aggregate == "quantile":
            all_known = known.all(axis=-1, keepdims=True)
            values, half = np.where(all_known, values, 0.0), np.where(all_known, half, 0.0)
            low, high = self._intervals_of_quantiles(values, half)
            return np.where(all_known, low, np.nan), np.where(all_known, high, np.nan)
        if self.aggregate == "mean":
            low, high = self.clipped.bounds_of_means(np.where(known, values, 0.0), np.where(known, half, 0.0))
            sums, counts = np.split(known, 2, axis=-1)
            both = np.concatenate([sums & counts, counts], axis=-1)
            return np.where(both, low, np.nan), np.where(both, high, np.nan)
        if self.levels is not None:
            values, half = self.answers(values), self.levels.radius(np.array(half))
        half = np.where(np.isfinite(half), half, np.nan)
        low, high = values - half, values + half
        if self.nonnegative:  # the truth is not below 0, but the interval continues to hold what was released
            low, high = np.maximum(low, np.minimum(values, 0.0)), np.maximum(high, 0.0)
        if self.levels is not None:
            power = 10.0 ** decimals_of(float(Fraction(self.grid)))
            return np.floor(low * power) / power, np.ceil(high * power) / power
        return low, high

    def _intervals_of_quantiles(
        self, values: npt.NDArray[np.float64], half: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The values that quantiles can have."""
        counts, around = self._bins(values), np.array(half)
        if self.levels is not None and self.levels.hierarchy.height == 2:
            part, own = self.levels.weights or (1, 1)
            return self._quantiles.bounds(counts, around.max(axis=-1, keepdims=True), (own, part))
        if self.levels is not None:  # a sum up to a bin has the noise of fewer nodes than it has bins
            nodes = math.sqrt(2 * fan_out(counts.shape[-1]) / counts.shape[-1])
            around = np.broadcast_to(around[..., :1] * min(1.0, nodes), counts.shape)
        return self._quantiles.bounds(counts, around)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(name, value, "one of " + ", ".join(allowed), f'write {name}="{allowed[0]}"')


def _towards_zero(value: int, divisor: int) -> int:
    return abs(value) // divisor * (1 if value >= 0 else -1)


def _is_whole(key: str) -> bool:
    """Whether a category is read as a whole number where its column has whole numbers."""
    try:
        int(key)
    except ValueError:
        return False
    return True
