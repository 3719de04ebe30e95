"""Requirements of units: a public table of who asks for a smaller ε or a longer window than all units have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.exact import positive, show, whole
from tidegate.ingest.columns import MOST, Indices
from tidegate.ingest.public_table import refused, table_rows

NAMES = ("epsilon", "window")
# what `str.strip` takes off the cells of the table
BLANKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
BLANKS += "\u2028\u2029\u202f\u205f\u3000"


class Promise(NamedTuple):
    """What units lose at most: ε in any so many consecutive steps."""

    epsilon: Fraction
    window: int


@dataclass(frozen=True)
class RequirementTable:
    """A public table: what each unit asks for.

    Parameters
    ----------
    promises
        What all units have, and after it what some ask for beyond that.
    units
        Their names, each once.
    numbers
        Of each unit, which of the promises it asks for; 0 for nothing else.
    population
        About how many units there are, also those that are not in the table; by default as many as are in it.

    Privacy
    -------
    The table is public, or at least not made from the records that are released with it. A unit that is not in it has
    what all have, promise 0. Which records are of units of the table is never said.

    Examples
    --------
    >>> table = RequirementTable((Promise(Fraction(1), 24), Promise(Fraction(1, 4), 24)), ("ann", "bob"), (1, 0))
    >>> table.of(pl.Series(["bob", "ann", "eve"])).tolist()
    [0, 1, 0]
    >>> table.shares
    (Fraction(1, 2), Fraction(1, 2))
    """

    promises: tuple[Promise, ...]
    units: tuple[str, ...] = field(repr=False)
    numbers: tuple[int, ...] = field(repr=False)
    population: int | None = None

    def __post_init__(self) -> None:
        if self.population is not None and whole("population", self.population) < len(self.units):
            raise InvalidParameter(
                "population",
                self.population,
                f"at least {len(self.units)}, the units of the table",
                "count the others, too",
            )

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many units are expected of each promise; at least one that asks for nothing else."""
        found = np.bincount(np.array(self.numbers), minlength=len(self.promises)).tolist()
        others = 0 if self.population is None else self.population - len(self.units)
        return (max(1, found[0] + others), *found[1:])

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """How units divide among the promises, as they are expected to."""
        return tuple(Fraction(count, sum(self.counts)) for count in self.counts)

    @cached_property
    def _known(self) -> pl.Enum:
        return pl.Enum(list(self.units))

    def of(self, units: pl.Series) -> Indices:
        """Which promise each unit asks for, by its name as text without blanks at its edges, as in the table."""
        names = units.cast(pl.String).str.strip_chars(BLANKS)
        codes = names.cast(self._known, strict=False).to_physical().cast(pl.Int32)
        asked: Indices = np.array([*self.numbers, 0], dtype=np.int32)
        found: Indices = asked[codes.fill_null(len(self.units)).to_numpy()]
        return found

    def describe(self) -> dict[str, Any]:
        """Identify the table exactly, as JSON; it may be long, so its digest stands for it."""
        content = json.dumps(sorted(zip(self.units, self.numbers, strict=True)), ensure_ascii=False)
        return {"units": len(self.units), "digest": hashlib.sha256(content.encode()).hexdigest()[:32]}


def read_requirements(
    path: str | Path,
    least: Promise,
    population: int | None = None,
    steps: Callable[[int | str], int] = lambda window: whole("window", window),  # type: ignore[arg-type]
) -> RequirementTable:
    r"""Read a table from a CSV: units in the first column, and columns epsilon and window, either of which may be absent.

    Parameters
    ----------
    path
        The file: UTF-8, separated by commas, semicolons, tabs or bars.
    least
        What all units have; also what an empty field says.
    population
        About how many units there are.
    steps
        Reads a window: a number of steps, or a duration.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "requirements.csv"
    ...     _ = file.write_text("unit,epsilon,window\nann,1/4,\nbob,,48\neve,,\n")
    ...     read_requirements(file, Promise(Fraction(1), 24)).promises[1:]
    (Promise(epsilon=Fraction(1, 4), window=24), Promise(epsilon=Fraction(1, 1), window=48))
    """
    file = Path(path)
    rows = table_rows("requirements", file)
    names = next(rows, (0, []))[1][1:]
    if not names or len(set(names)) < len(names) or not set(names) <= set(NAMES):
        raise refused(
            "requirements",
            file,
            "a table with a header: the unit, then epsilon, window, or both",
            "begin it with unit,epsilon,window",
        )
    promises, asked = {least: 0}, dict[tuple[str, ...], int]()
    found: dict[str, int] = {}
    for line, (unit, *fields) in rows:
        if not unit or unit in found or len(fields) != len(names):
            wrong = "lacks one" if not unit else "repeats one" if unit in found else "has other fields"
            raise refused(
                "requirements",
                file,
                f"a table with a unit in every line, each once, and line {line} {wrong}",
                "correct it",
            )
        key = tuple(fields)
        if key not in asked:
            try:
                promise = _promise(dict(zip(names, fields, strict=True)), least, steps)
            except InvalidParameter as error:
                raise refused(
                    "requirements",
                    file,
                    f"a table of exact budgets and whole windows, and in line {line} {str(error).rstrip('.')}",
                    "correct the table",
                ) from None
            if promise.epsilon > least.epsilon or promise.window < least.window:
                raise refused(
                    "requirements",
                    file,
                    f"a table of budgets and windows that promise at least ε = {show(least.epsilon)} in {least.window} "
                    f"steps, which all units have, and line {line} has a larger ε or a shorter window",
                    "correct it, or promise less to all",
                )
            asked[key] = promises.setdefault(promise, len(promises))
        found[unit] = asked[key]
    if not found or len(found) > MOST:
        raise refused("requirements", file, f"a table with 1 to {MOST} units", "write one a line")
    return RequirementTable(tuple(promises), tuple(found), tuple(found.values()), population)


def _promise(fields: dict[str, str], least: Promise, steps: Callable[[int | str], int]) -> Promise:
    """What one line asks for."""
    epsilon, window = fields.get("epsilon"), fields.get("window")
    return Promise(
        positive("epsilon", epsilon) if epsilon else least.epsilon,
        whole("window", steps(int(window) if window.isdecimal() else window)) if window else least.window,
    )


def in_words(promise: Promise) -> str:
    """What is lost at most.

    Examples
    --------
    >>> in_words(Promise(Fraction(1, 4), 48))
    'ε = 0.25 in any 48 consecutive steps'
    """
    return f"ε = {show(promise.epsilon)} in any {promise.window} consecutive steps"
