"""What a step of units and categories is: read by public rules, one record at a time, and gathered over an epoch."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import polars as pl

from tidegate import frames
from tidegate.core.values import Matrix
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import whole
from tidegate.structures.clipped_values import ClippedValues

UNIT, CATEGORY, STEP, VALUE = "unit", "category", "step", "value"
NOTHING = pl.DataFrame(schema={UNIT: pl.String, CATEGORY: pl.String})
NO_VALUES = pl.DataFrame(schema={UNIT: pl.String, CATEGORY: pl.String, VALUE: pl.Int64})
NOTHING_EARLIER = pl.DataFrame(schema={STEP: pl.Int64, UNIT: pl.String, CATEGORY: pl.String})
PAIRS = (
    'a step is a list of pairs (unit, category), or a DataFrame with the columns "unit" and "category"; push what '
    "`mechanism.collector()` makes of it."
)
TRIPLES = (
    'a step is a list of triples (unit, category, value), or a DataFrame with the columns "unit", "category" and '
    '"value"; push what `mechanism.collector()` makes of it.'
)


class Step(NamedTuple):
    """What is pushed at a step.

    Attributes
    ----------
    now
        The records of the step, in their order: columns `unit` and `category`; where values are added up also `value`,
        in grid units, as :class:`~tidegate.structures.clipped_values.ClippedValues` has them.
    earlier
        Where categories are tested, which is at the last step of an epoch, or at every step with early tests: the records
        of its earlier steps as well, with a column `step`; they are only tested, since their own steps have counted
        them. Elsewhere it is empty.
    number
        Its step: public.
    since
        From which step of the epoch on all records are given: public, and said by who gives them, whatever they are.
    """

    now: pl.DataFrame
    earlier: pl.DataFrame
    number: int
    since: int


class Collector:
    """Remembers the records of the present epoch, so that its last step has all of them.

    Nothing of an open epoch is in the log: after a restart its records are read again from where they come, and given to
    `add`, every step of them, also those without records.

    Parameters
    ----------
    epoch
        The steps of an epoch.
    after
        The last step that the session has committed.
    early
        Whether every step has the records of the epoch so far.
    values
        How values of records are added up; None where records are counted.

    Examples
    --------
    >>> collector = Collector(epoch=2)
    >>> [len(collector.step([("ann", "bakery")]).earlier) for _ in range(4)]
    [0, 1, 0, 1]
    >>> Collector(epoch=5, after=3).step([]).since
    4
    """

    def __init__(
        self, epoch: int, after: int = 0, *, early: bool = False, values: ClippedValues | None = None
    ) -> None:
        self.epoch, self._last, self._early = whole("epoch", epoch), whole("after", after, least=0), early
        self._values = values
        self._since = self._last + 1  # from which step on all were seen
        self._kept: list[tuple[int, pl.DataFrame]] = []

    @property
    def needed_from(self) -> int:
        """The first step whose records the next step's epoch has: those before are not needed any more."""
        return self._last - self._last % self.epoch + 1

    def add(self, step: int, pairs: Any) -> None:
        """Give the records of a step again that was pushed before."""
        step = whole("step", step)
        if step < self.needed_from or step > self._last:
            raise InvalidParameter(
                "step", step, f"from {self.needed_from} to {self._last}", "give the steps of the open epoch"
            )
        self._kept = [each for each in self._kept if each[0] != step]
        self._kept.append((step, records(pairs, self._values).select(UNIT, CATEGORY)))
        given = {each for each, _ in self._kept}
        while self._since - 1 in given:
            self._since -= 1

    def step(self, pairs: Any, step: int | None = None) -> Step:
        """What is pushed for the records of the next step, or of one with a later number."""
        number = self._last + 1 if step is None else whole("step", step, least=self._last + 1)
        now = records(pairs, self._values)
        begins = number - (number - 1) % self.epoch
        kept = [each for each in self._kept if each[0] >= begins]
        earlier = NOTHING_EARLIER
        ends = number % self.epoch == 0
        if ends or self._early:
            parts = [
                rows.select(pl.lit(at, dtype=pl.Int64).alias(STEP), UNIT, CATEGORY)
                for at, rows in sorted(kept, key=_number)
                if len(rows)
            ]
            earlier = together(parts, NOTHING_EARLIER)
        if ends:
            kept = []
        elif len(now):
            kept.append((number, now.select(UNIT, CATEGORY).unique(maintain_order=True)))
        self._last, self._kept = number, kept
        return Step(now, earlier, number, max(begins, self._since))


def _number(kept: tuple[int, pl.DataFrame]) -> int:
    return kept[0]


def records(pairs: Any, values: ClippedValues | None = None) -> pl.DataFrame:
    """Pairs of units and categories as a DataFrame; each is read by itself, and incomplete ones are left out.

    A unit is text, a whole number or a UUID. Whatever else stands in its place names nobody. With `values` a record has
    a value as well, which is clipped and rounded to the grid; one whose value is no number is incomplete.
    """
    wanted = PAIRS if values is None else TRIPLES
    if isinstance(pairs, pl.DataFrame) or frames.names_of(pairs) is not None:
        names = [UNIT, CATEGORY] if values is None else [UNIT, CATEGORY, VALUE]
        if not _of_objects(pairs, names):
            return _of_frame(pairs, values, wanted)
        pairs = list(zip(*(pairs[name].tolist() for name in names), strict=True))
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise InvalidInput(wanted)
    found = list(pairs)
    if not found:
        return NOTHING if values is None else NO_VALUES
    width = 2 if values is None else 3
    if not all(isinstance(each, tuple | list) and len(each) == width for each in found):
        raise InvalidInput(wanted)
    columns: dict[str, Any] = {
        UNIT: [_unit(each[0]) for each in found],
        CATEGORY: [_category(each[1]) for each in found],
    }
    kinds: dict[str, Any] = {UNIT: pl.String, CATEGORY: pl.String}
    if values is not None:
        columns[VALUE], kinds[VALUE] = [_value(each[2]) for each in found], pl.Float64
    return _added_up(pl.DataFrame(columns, schema=kinds), values)


def _of_objects(frame: Any, names: list[str]) -> bool:
    """Whether a pandas frame has objects in some column: then its types are no schema, but follow from its records."""
    if isinstance(frame, pl.DataFrame) or not set(names) <= set(frames.names_of(frame) or ()):
        return False
    return any(str(getattr(frame[name], "dtype", "")) == "object" for name in names)


def _added_up(read: pl.DataFrame, values: ClippedValues | None) -> pl.DataFrame:
    """Complete records, with what each adds to a sum in place of its value."""
    if values is None:
        return read.drop_nulls()
    read = read.with_columns(pl.col(VALUE).fill_nan(None)).drop_nulls()
    return read.with_columns(pl.Series(VALUE, values.of_records(read[VALUE].to_numpy()), dtype=pl.Int64))


def _value(value: Any) -> float | None:
    """A value as a number; None for what is none."""
    known: Any = value
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        return None
    try:
        found = float(known)
    except OverflowError:  # a whole number beyond every clip
        return math.inf if known > 0 else -math.inf
    except Exception:  # it is no number after all
        return None
    return None if math.isnan(found) else found


def _unit(value: Any) -> str | None:
    """A unit as text; None for what names nobody, or could be taken for another one."""
    if not isinstance(value, str | int | np.integer | UUID) or isinstance(value, bool):
        return None
    try:
        found = str(value)
        found.encode()
    except ValueError:  # half of a character, a number of thousands of digits
        return None
    return found


def _category(value: Any) -> str | None:
    """A category as text that can be written: half of a character is none."""
    try:
        return None if value is None else str(value).encode(errors="replace").decode()
    except Exception:  # it has no text
        return None


def _of_frame(frame: Any, values: ClippedValues | None, wanted: str) -> pl.DataFrame:
    names = [UNIT, CATEGORY] if values is None else [UNIT, CATEGORY, VALUE]
    try:
        table: pl.DataFrame = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)
    except (TypeError, ValueError):
        raise InvalidInput(wanted) from None
    if not set(names) <= set(table.columns):
        raise InvalidInput(wanted)
    if values is not None and not table.schema[VALUE].is_numeric() and table.schema[VALUE] != pl.Null:
        raise InvalidInput(
            f"the column of values has type {table.schema[VALUE]}, but must be numbers; convert it first."
        )
    kind = table.schema[UNIT]
    if not kind.is_integer() and not isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null):
        raise InvalidInput(
            f"the column of units has type {kind}, but must be whole numbers or text; convert it first."
        )
    number = kind.is_integer() and kind not in (pl.UInt64, pl.Int128)
    try:
        read = table.select(
            pl.col(UNIT).cast(pl.Int64 if number else pl.String),
            pl.col(CATEGORY).cast(pl.String),
            *([] if values is None else [pl.col(VALUE).cast(pl.Float64)]),
        )
    except pl.exceptions.PolarsError:  # lists, objects
        raise InvalidInput(wanted) from None
    return _added_up(read, values)


def together(parts: list[pl.DataFrame], empty: pl.DataFrame) -> pl.DataFrame:
    """Frames of one form one behind the other; where some have units that are text, all have."""
    if not parts:
        return empty
    if len({each.schema[UNIT] for each in parts}) > 1:
        parts = [each.with_columns(pl.col(UNIT).cast(pl.String)) for each in parts]
    return pl.concat(parts)


class OccurrenceReader:
    """Reads steps; it refuses by their form alone.

    Parameters
    ----------
    valued
        Whether records have values.
    """

    def __init__(self, *, valued: bool = False) -> None:
        self._now, self._wanted = (NO_VALUES, TRIPLES) if valued else (NOTHING, PAIRS)

    def row(self, values: Any) -> Matrix:
        """One step, as an array of one."""
        return self.rows([values])

    def rows(self, values: Any) -> Matrix:
        """Several steps."""
        given = list(values) if isinstance(values, Iterable) and not isinstance(values, Step) else [None]
        if not all(isinstance(each, Step) and _is_step(each, self._now) for each in given):
            raise InvalidInput(self._wanted)
        found = np.empty(len(given), dtype=object)
        for at, each in enumerate(given):
            found[at] = each
        return found


def _is_step(step: Step, now: pl.DataFrame) -> bool:
    """Whether it has the form that a collector gives it."""
    if type(step.number) is not int or type(step.since) is not int:
        return False
    for part, empty in ((step.now, now), (step.earlier, NOTHING_EARLIER)):
        if not isinstance(part, pl.DataFrame) or part.columns != empty.columns:
            return False
        kinds = dict(part.schema)
        if (
            kinds[CATEGORY] != pl.String
            or kinds[UNIT] not in (pl.String, pl.Int64)
            or part.null_count().sum_horizontal()[0]
        ):
            return False
        if any(kinds.get(name, pl.Int64) != pl.Int64 for name in (STEP, VALUE)):
            return False
    return True
