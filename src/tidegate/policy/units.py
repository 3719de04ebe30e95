"""What is protected: one event, any w consecutive steps, or a user; `swellfish` has secrets that change over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate import naming
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, one_of, positive, show, whole
from tidegate.policy import neighbours
from tidegate.policy.budget import (
    LARGEST_BUDGET,
    LARGEST_CHANGE,
    Approximate,
    Budget,
    Pure,
    ZeroConcentrated,
)

Matrix = npt.NDArray[np.int64]
_P = TypeVar("_P", bound="Policy")
LONGEST = 2**40  # steps: windows and horizons beyond this would leave the ledger's integers


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A unit of protection and its budget; the common part of all policies.

    Parameters
    ----------
    epsilon, delta, rho
        The budget: ε, (ε, δ), or ρ for zCDP. Exact: an int, a Fraction or a string such as "0.1".
    max_change
        How much one protected unit can change the vector of one step, in L1 (Δ or α), when it is added or removed.
    adjacency
        "add-remove": a unit's contribution to a step is added or removed. "replace": it is replaced by another,
        which may stand in another column and then changes the step by twice `max_change`.
    signed
        Whether a contribution may be negative: then one that is replaced within its column changes it by twice
        `max_change` as well. Counts, and values in [0, B] with ``max_change`` = B, are not signed.
    mobility
        "moving": within a window a unit may be in different columns at different steps. "fixed": it stays in one.
    touches
        The most columns that one unit touches in one step; None means all of them. It matters only where
        pre-aggregated values are rounded to the grid, since rounding can move every touched column.
    horizon
        After how many steps the stream ends; None means never.

    Examples
    --------
    >>> from tidegate.policy import WEvent
    >>> isinstance(WEvent(epsilon="1", window=24), Policy)
    True
    """

    epsilon: ExactLike | None = None
    delta: ExactLike = 0
    rho: ExactLike | None = None
    max_change: ExactLike = 1
    adjacency: str = "add-remove"
    mobility: str = "moving"
    touches: int | None = None
    horizon: int | None = None
    signed: bool = False

    name: ClassVar[str] = ""

    __repr__ = naming.spelled

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        naming.keep_repr(cls)

    def __post_init__(self) -> None:
        put = object.__setattr__
        if (self.epsilon is None) == (self.rho is None):
            raise InvalidParameter(
                "epsilon", self.epsilon, "given, or else rho, but not both", 'write epsilon="1" or rho="0.5"'
            )
        if self.epsilon is not None:
            put(self, "epsilon", positive("epsilon", self.epsilon, LARGEST_BUDGET))
        delta = exact("delta", self.delta)
        if not 0 <= delta < 1:
            raise InvalidParameter("delta", self.delta, "in [0, 1)", 'write for example delta="1e-9"')
        put(self, "delta", delta)
        if self.rho is not None:
            put(self, "rho", positive("rho", self.rho, LARGEST_BUDGET))
            if delta:
                raise InvalidParameter(
                    "delta", self.delta, "absent where rho is given", "drop one of the two"
                )
        put(self, "max_change", positive("max_change", self.max_change, LARGEST_CHANGE))
        for field, allowed in (("adjacency", ("add-remove", "replace")), ("mobility", ("moving", "fixed"))):
            one_of(field, getattr(self, field), allowed, f"write {field}={allowed[0]!r}")
        if not isinstance(self.signed, bool):
            raise InvalidParameter("signed", self.signed, "True or False", "write signed=True if unsure")
        if self.touches is not None:
            put(self, "touches", whole("touches", self.touches))
        if self.horizon is not None:
            put(self, "horizon", whole("horizon", self.horizon, most=LONGEST))

    @property
    def budget(self) -> Budget:
        """The budget as a frozen fact."""
        if self.rho is not None:
            return ZeroConcentrated(Fraction(self.rho))
        assert self.epsilon is not None
        epsilon, delta = Fraction(self.epsilon), Fraction(self.delta)
        return Approximate(epsilon, delta) if delta else Pure(epsilon)

    if TYPE_CHECKING:  # a field of WEvent; a property here would be taken for that field's default

        @property
        def window(self) -> int | None:
            """How many consecutive steps one unit may influence; None means all of them."""

    @property
    def steps_charged(self) -> int:
        """Over how many steps the budget is shared when each gets the same."""
        length = self.window or self.horizon
        assert length is not None
        return length

    def restated(self, kind: type[_P], total: Fraction, **length: int) -> _P:
        """Another unit of protection with another ε or ρ, whose contributions change a step as those of this one do.

        Examples
        --------
        >>> WEvent(epsilon="1", window=3, adjacency="replace").restated(User, Fraction(2), horizon=9)
        User(epsilon='2', adjacency='replace', horizon=9)
        """
        same = ("max_change", "adjacency", "mobility", "touches", "signed")
        described: dict[str, Any] = {name: getattr(self, name) for name in same}
        described["epsilon" if self.rho is None else "rho"] = total
        return kind(**described | length)

    def doubles(self, columns: int) -> bool:
        """Whether a unit changes a step by up to twice `max_change`: THE place that decides about it.

        A replaced contribution leaves one column for another; in the same column it can only do so if it is signed.
        """
        return self.adjacency == "replace" and (whole("columns", columns) > 1 or self.signed)

    def step_sensitivity(self, columns: int) -> Fraction:
        """The L1 distance by which one unit can change one step.

        Examples
        --------
        >>> WEvent(epsilon="1", window=3).step_sensitivity(columns=5)
        Fraction(1, 1)
        >>> WEvent(epsilon="1", window=3, adjacency="replace").step_sensitivity(columns=5)
        Fraction(2, 1)
        >>> WEvent(epsilon="1", window=3, adjacency="replace", signed=True).step_sensitivity(columns=1)
        Fraction(2, 1)
        """
        return Fraction(self.max_change) * (2 if self.doubles(columns) else 1)

    def grid_sensitivity(self, columns: int, grid: Fraction, *, rounded: bool) -> int:
        """The same in units of the grid, rounded up; rounding pre-aggregated values adds one per touched column."""
        steps = self.step_sensitivity(columns) / grid
        sensitivity = -(-steps.numerator // steps.denominator)
        if rounded:
            touched = min(columns, self.touches or columns)
            if self.adjacency == "replace" and columns > 1:
                touched = min(columns, 2 * touched)
            sensitivity += touched
        return sensitivity

    def distance(self, one: Matrix, other: Matrix) -> int:
        """How many neighbours apart two streams (T × d arrays) are; 1 means that they are neighbours."""
        return neighbours.distance(self, one, other)

    def neighbour(self, stream: Matrix, first: int, change: Matrix) -> Matrix:
        """Add a change (rows for steps first, first+1, …; 0-based) and check that the result is a neighbour."""
        return neighbours.neighbour(self, stream, first, change)

    def extreme_neighbour(self, stream: Matrix, choose: Callable[[int], int]) -> Matrix:
        """A neighbour for tests and audits: every step of one window changes by Δ; choose(n) picks from range(n)."""
        return neighbours.extreme_neighbour(self, stream, choose)

    def describe(self) -> dict[str, Any]:
        """Identify the policy exactly, as JSON: fractions are strings."""
        described: dict[str, Any] = {"policy": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            described[field.name] = show(value) if isinstance(value, Fraction) else value
        if not self.signed:
            del described["signed"]  # as policies were described before contributions could be signed
        return described

    def unit(self) -> str:
        """The protected unit, in words."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Event(Policy):
    """Event-level privacy: neighbouring streams differ in one step, by at most Δ.

    Examples
    --------
    >>> Event(epsilon="0.5").unit()
    'one event: a change of at most 1 in one step'
    """

    name: ClassVar[str] = "event-level privacy"

    @property
    def window(self) -> int:
        """One step."""
        return 1

    def unit(self) -> str:
        """One event."""
        return f"one event: a change of at most {_amount(self)} in one step"


@dataclass(frozen=True, kw_only=True)
class WEvent(Policy):
    """w-event privacy: neighbouring streams differ only inside one window of w consecutive steps.

    Parameters
    ----------
    window
        Its length in steps: all that happens within so many consecutive steps is protected together.

    Examples
    --------
    >>> WEvent(epsilon="1", window=24).unit()
    'everything within any 24 consecutive steps: a change of at most 1 in each of them'
    """

    window: int

    name: ClassVar[str] = "w-event privacy"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "window", whole("window", self.window, most=LONGEST))

    def unit(self) -> str:
        """All that happens within one window."""
        if self.window == 1:
            return f"everything within any one step: a change of at most {_amount(self)} in it"
        return (
            f"everything within any {self.window} consecutive steps: "
            f"a change of at most {_amount(self)} in each of them"
        )


@dataclass(frozen=True, kw_only=True)
class User(Policy):
    """User-level privacy on a stream of a known length: neighbouring streams may differ in every step.

    The `horizon` is required: an endless stream has no user-level guarantee at a finite budget.

    Examples
    --------
    >>> User(epsilon="1", horizon=365).unit()
    'one user over all 365 steps: a change of at most 1 in each of them'
    """

    name: ClassVar[str] = "user-level privacy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon is None:
            raise InvalidParameter(
                "horizon",
                None,
                "the number of steps of the stream",
                "give one, or use WEvent on an endless stream",
            )

    @property
    def window(self) -> None:
        """All steps."""
        return None

    def unit(self) -> str:
        """One user, over the whole stream."""
        return f"one user over all {self.horizon} steps: a change of at most {_amount(self)} in each of them"


def _amount(policy: Policy) -> str:
    amount = show(Fraction(policy.max_change))
    kind = "signed contribution" if policy.signed else "contribution"
    return f"{amount} (one {kind} replaced by another)" if policy.adjacency == "replace" else amount
