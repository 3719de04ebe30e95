"""What a ledger records and what it answers: frozen facts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from tidegate.errors import InvalidParameter
from tidegate.exact import show, whole

MOST_UNITS = 2**50  # a window of 2^12 such charges still fits into 64 bits; budgets are at most 2^50 units
MOST_STEPS = 2**60


@dataclass(frozen=True)
class Charge:
    """An amount of privacy loss of the data of some steps.

    Parameters
    ----------
    first, last
        The steps whose data are touched: one step, or a group of steps that counts once in each window that meets it.
    units
        The amount that every release costs, whatever its scope.
    scope
        A label for people: which run or part of it spent the units.
    groups
        Units by group of columns. Groups are disjoint parts of one step's data, so the largest counts.
    levels
        Units by level of a tree. Every level reads the same data, so they add.

    Examples
    --------
    >>> Charge(3, 3, groups={"north": 2, "south": 5}).total
    5
    >>> Charge(3, 3, levels={"leaf": 2, "root": 5}).total
    7
    """

    first: int
    last: int
    units: int = 0
    scope: str = ""
    groups: Mapping[str, int] = field(default_factory=dict)
    levels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "first", whole("step", self.first, most=MOST_STEPS))
        put(self, "last", whole("last", self.last, least=self.first, most=MOST_STEPS))
        put(self, "units", whole("units", self.units, least=0, most=MOST_UNITS))
        for name in ("groups", "levels"):
            if not getattr(self, name):
                put(self, name, {})
                continue
            parts = {
                str(key): whole(name, value, 0, MOST_UNITS) for key, value in getattr(self, name).items()
            }
            put(self, name, dict(sorted(parts.items())))
        if not isinstance(self.scope, str):
            raise InvalidParameter("scope", self.scope, "a string", "write for example scope='counts'")

    def labelled(self, scope: str) -> Charge:
        """The same charge with another label; a batch's sum, which may exceed what one charge may have, stays."""
        other = copy.copy(self)
        object.__setattr__(other, "scope", scope)
        return other

    @property
    def sizes(self) -> list[int]:
        """The separate mechanisms that the charge stands for, by their size in units."""
        sizes = [self.units, max(self.groups.values(), default=0), *self.levels.values()]
        return [size for size in sizes if size]

    @property
    def total(self) -> int:
        """The units of the charge: plain units, the largest group, and all levels."""
        return sum(self.sizes)


class Group(NamedTuple):
    """Steps that one mechanism reads together, as they were charged: plain numbers, to be kept in a run's state.

    Attributes
    ----------
    first, last
        Its first step, and the last one up to which it reaches so far.
    units
        What it cost.

    Examples
    --------
    >>> Group(1, 4, 2).last
    4
    """

    first: int
    last: int
    units: int


def several(steps: int) -> str:
    """So many steps."""
    return f"{steps} step{'' if steps == 1 else 's'}"


@dataclass(frozen=True)
class Verdict:
    """The answer of `verify`: whether the whole account holds, and how full the fullest window was.

    Attributes
    ----------
    ok
        Whether the account holds: no window overspent, the chain unbroken.
    rows, steps
        How many charges and how many steps there are.
    spent, place
        What the fullest window has spent, and its first and last step.
    budget, window
        What a window may spend, in words, and its length.
    head
        The head of the chain, to be compared with one that was kept elsewhere.
    problem, bad_row
        What is wrong, in one sentence, and in which row.
    marked
        Whether noise of tests was used.
    releases, unchained, archived
        How many releases are in the chain, how many are not (of version 0.1), and how many rows are in archives.
    before
        Up to which row a checkpoint was believed; 0 where everything was replayed.

    Examples
    --------
    >>> print(Verdict(True, 672, 672, Fraction(1), (1, 24), "1", 24))
    ledger verified: 672 steps, no window of 24 steps spent more than 1 (the fullest, steps 1 to 24, spent 1)
    """

    ok: bool
    rows: int
    steps: int
    spent: Fraction
    place: tuple[int, int]
    budget: str
    window: int | None
    head: str = ""
    problem: str = ""
    bad_row: int | None = None
    marked: bool = False
    releases: int = 0  # that were compared with their hashes, where the runtime has stored any
    unchained: int = 0  # the first of them, stored by a version that had no hashes for them
    archived: int = 0  # rows that are in archives, and were not replayed
    before: int = 0  # rows up to a checkpoint, from whose account the others were replayed

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if not self.ok:
            return f"ledger NOT verified: {self.problem}"
        counted = several(self.steps)
        windows = "all steps together" if self.window is None else f"no window of {several(self.window)}"
        if self.window is None:
            amount = f"spent no more than {self.budget} (they spent {show(self.spent)})"
        elif self.spent == 0:
            amount = f"spent more than {self.budget} (nothing was spent)"
        else:
            first, last = self.place
            place = f"step {first}" if first == last else f"steps {first} to {last}"
            amount = f"spent more than {self.budget} (the fullest, {place}, spent {show(self.spent)})"
        return f"ledger verified: {counted}, {windows} {amount}{self.remarks}"

    @property
    def remarks(self) -> str:
        """What else has to be said of an account that holds; empty for most."""
        mark = "; test entropy was used, so nothing of this run is private" if self.marked else ""
        older = (
            f"; releases 1 to {self.unchained} have no hashes, as of an earlier version"
            if self.unchained
            else ""
        )
        archived = f"; rows 1 to {self.archived} are in archives" if self.archived else ""
        before = (
            f"; rows 1 to {self.before} were not replayed, which tidegate ledger verify does"
            if self.before
            else ""
        )
        return f"{mark}{older}{archived}{before}"


class Overspent(NamedTuple):
    """A refused charge: the step it was for, the window that has the least room for it, and that room.

    Of a batch the step is the first that cannot be charged after those before it, and those count as spent.
    """

    step: int
    window_end: int
    spent: int
    requested: int
    remaining: int
