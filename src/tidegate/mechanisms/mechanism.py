"""The shape of every mechanism: a frozen configuration and functions over plain state, which a session owns."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tidegate import naming
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, one_of, positive, show, sqrt_up, whole
from tidegate.noise import Law
from tidegate.noise.law import AnyLaw, SpreadLaw
from tidegate.policy import Guarantee, Policy, ZeroConcentrated
from tidegate.structures.clamping import read_clamp

if TYPE_CHECKING:
    import numpy.typing as npt

    from tidegate.core.charges import Charges
    from tidegate.core.mechanism import Matrix, Output
    from tidegate.core.rows import Draws
    from tidegate.intervals import Fold
    from tidegate.noise.kinds import Kind
    from tidegate.releases import Releases
    from tidegate.structures.hierarchy import Hierarchy

PUBLIC_CLOCK = "steps close by a public clock, never because of what was recorded"
BOUNDED = "one unit changes a step by at most max_change, as contribution bounding ensures"
NOT_NEGATIVE = (
    "contributions are not negative, so that a replaced one changes its column by no more than that"
)

SECRET_STATE = (
    "the commit log is kept as secret as the data, because it holds noise that released steps "
    "share with steps to come"
)
ON_GRID = "contributions were rounded to the grid before they were summed, which is no longer checked"
BUDGETS = {"Pure": "epsilon alone", "Approximate": "epsilon and delta", "ZeroConcentrated": "rho"}


@dataclass(frozen=True)
class Mechanism(ABC):
    """A validated configuration, and the algorithm over plain state. It holds no data: a session owns the state.

    Parameters
    ----------
    policy
        What is protected, and its budget.
    columns
        The number d of columns of each step.
    grid
        The public resolution g of all values, with 1/g a whole number: "1" for counts, "0.01" for cents.
    rounding
        "refuse": pushed values must lie on the grid, since contributions were rounded before they were summed.
        "nearest": pre-aggregated real values are rounded here, and the sensitivity grows by one grid unit for
        each column that a unit touches.
    clamp
        A public bound, by keyword: values beyond ±clamp are cut to it, values off the grid are rounded, and what is no
        number counts as 0. Without it such values are refused, and whoever sees the refusal learns that there was one.
        Intervals around releases are for the value that was cut.

    Examples
    --------
    >>> import tidegate as tg
    >>> mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24), columns=2)
    >>> isinstance(mechanism, Mechanism), mechanism.outputs
    (True, 2)
    """

    policy: Policy
    columns: int = 1
    grid: ExactLike = 1
    rounding: str = "refuse"
    clamp: ExactLike | None = field(default=None, kw_only=True)

    supports: ClassVar[tuple[type[Policy], ...]] = (Policy,)
    budgets: ClassVar[tuple[str, ...]] = ("Pure",)
    plain: ClassVar[bool] = False  # whether a fresh value is the truth and noise of the release's scale
    holds: ClassVar[bool] = False  # whether a value stays until the next one is measured
    spreads: ClassVar[bool] = False  # whether a release's scale is the standard deviation of its noise
    reads_columns: ClassVar[bool] = True  # whether a step is a vector of its columns, and nothing else
    needs_room: ClassVar[bool] = False  # whether it begins only where windows hold no charges of others
    statistic: ClassVar[str] = (
        "steps"  # what is released: the values of "steps", or what is made of them; see `ideal`
    )

    __repr__ = naming.spelled

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        naming.keep_repr(cls)

    def __post_init__(self) -> None:
        put = object.__setattr__
        name = type(self).__name__
        if not isinstance(self.policy, self.supports):
            kinds = " or ".join(kind.__name__ for kind in self.supports)
            raise InvalidParameter(
                "policy", type(self.policy).__name__, f"{kinds} for {name}", f"use {kinds}"
            )
        if type(self.policy.budget).__name__ not in self.budgets:
            if self.budgets == ("Approximate",):
                raise InvalidParameter(
                    "delta",
                    show(Fraction(self.policy.delta)),
                    f"given beside epsilon for {name}",
                    'write delta="1e-6"',
                )
            raise InvalidParameter(
                "policy",
                str(self.policy.budget),
                f"a budget of kind {' or '.join(self.budgets)} for {name}",
                f"write {' or '.join(BUDGETS[kind] for kind in self.budgets)}, or choose another mechanism",
            )
        put(self, "columns", whole("columns", self.columns, most=2**31))
        grid = positive("grid", self.grid)
        if grid.numerator != 1:
            raise InvalidParameter(
                "grid", self.grid, "one over a whole number", 'write for example grid="0.01"'
            )
        put(self, "grid", grid)
        one_of("rounding", self.rounding, ("refuse", "nearest"), "round contributions before summing them")
        if self.clamp is not None:
            put(self, "clamp", read_clamp(self.clamp, grid))
        self.validate()

    def validate(self) -> None:  # noqa: B027  most mechanisms have nothing to add
        """Check what is particular to a mechanism; called once by the constructor."""

    @cached_property
    def sensitivity(self) -> int:
        """By how many grid units one unit can change one step, in L1."""
        assert isinstance(self.grid, Fraction)
        return self.policy.grid_sensitivity(self.columns, self.grid, rounded=self.rounding == "nearest")

    @property
    def outputs(self) -> int:
        """The number of columns of each release; more than `columns` where aggregates are released as well."""
        return self.columns

    @property
    def forest(self) -> Hierarchy | None:
        """The hierarchy whose nodes are released, where there is one."""
        return None

    @property
    def revises(self) -> bool:
        """Whether steps may be released more than once."""
        return False

    @property
    def columns_independent(self) -> bool:
        """Whether copies of the columns beside each other, or of the hierarchy, are independent runs."""
        return False

    @property
    def keeps_raw_values(self) -> bool:
        """Whether the state holds values of steps as they were pushed, or exact sums of them."""
        return False

    @property
    def independent_period(self) -> int:
        """The length of periods that have nothing in common but the data; 0 where there are none."""
        return 0

    def expected_error(self, first: int | None = None, last: int | None = None) -> float | None:
        """The mean absolute error of a released value, as it is known before there is any data.

        Parameters
        ----------
        first, last
            Of one step, of the steps from `first` to `last`, or by default of a long run (a horizon, where there is one).

        Returns
        -------
        The error in the unit of the values; None where it depends on the data, as it does for every mechanism that
        leaves steps out, smooths or models them. `tidegate plan` predicts those on made-up streams.
        """
        return None

    @property
    def noise_error(self) -> float | None:
        """The mean absolute error of what is measured, before anything is made of it; None where it changes."""
        return self.expected_error()

    def step_losses(self, releases: Releases) -> npt.NDArray[np.float64] | None:
        """What each step lost, from the scales that were released alone; None where scales do not tell."""
        return None

    def ideal(self, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What would be released of exact steps (T × d) without noise: themselves, running sums, sums of windows."""
        if self.statistic == "steps":
            return steps
        sums = np.nancumsum(steps, axis=0)
        if self.statistic == "windows":
            length: int = self.window  # type: ignore[attr-defined]  # such mechanisms have one
            sums[length:] -= sums[:-length].copy()
        return sums

    @property
    def units(self) -> int:
        """Into how many exact units the whole budget is divided on the ledger: one for each step that it is shared by."""
        return self.policy.steps_charged

    def noise_scale(self, parts: int) -> float:
        """The scale of noise for a measurement that spends one of so many parts of the budget, in grid units; rounded up.

        That of Laplace noise, or σ where the budget is a ρ.
        """
        budget = self.policy.budget
        if isinstance(budget, ZeroConcentrated):
            return sqrt_up(Fraction(self.sensitivity**2 * parts) / (2 * budget.rho))
        return float_up(self.sensitivity * parts / budget.total)

    def refuse_wide_noise(
        self, widest: float, bits: int = 50, remedy: str = "raise epsilon, or choose a coarser grid"
    ) -> None:
        """Refuse a budget so small that noise, or a limit made of it, could leave the numbers."""
        if widest > 2**bits:
            raise InvalidParameter(
                "epsilon",
                show(self.policy.budget.total),
                f"large enough that noise stays below 2^{bits} grid units ({show(Fraction(self.grid))})",
                remedy,
            )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted."""
        replaced = self.policy.adjacency == "replace" and not self.policy.doubles(self.columns)
        unchecked = self.clamp is not None and self.rounding == "refuse"
        return (
            PUBLIC_CLOCK,
            BOUNDED,
            *((NOT_NEGATIVE,) if replaced else ()),
            *((ON_GRID,) if unchecked else ()),
            *((SECRET_STATE,) if self.shares_noise else ()),
        )

    @property
    def shares_noise(self) -> bool:
        """Whether steps share noise: then the state is secret, and one session alone may use it."""
        return False

    @cached_property
    def law(self) -> AnyLaw | None:
        """How the noise of a fresh value is distributed, where it is nothing but the truth and noise; else None."""
        grid = float(Fraction(self.grid))
        if self.spreads:
            return SpreadLaw(self.noise_kind, grid)
        return Law(self.noise_kind, grid, self.rounded_by) if self.plain else None

    @property
    def rounded_by(self) -> float:
        """By how much a value is moved at most when it is put on the grid, in its unit; 0 where that is refused."""
        rounds = self.rounding == "nearest" or self.clamp is not None
        return float(Fraction(self.grid)) / 2 if rounds else 0.0

    @property
    def noise_kind(self) -> str:
        """What is drawn: "laplace" or "gaussian" noise."""
        return "gaussian" if isinstance(self.policy.budget, ZeroConcentrated) else "laplace"

    @property
    def own_noise(self) -> Kind:
        """How it is drawn, and what is known of it, where it is not shared."""
        from tidegate.noise.kinds import KINDS  # loads the compiler

        return KINDS[self.noise_kind]

    @property
    def guarantee(self) -> Guarantee:
        """What is proved, under which assumptions; reads as a sentence."""
        return Guarantee(type(self).__name__, self.policy, self.assumptions)

    # what a session asks; see `tidegate.core.mechanism` ----------------------------------------------------------

    @property
    def more(self) -> tuple[str, ...]:
        """Names of what it releases besides values, in the order of `Output.more`."""
        return ()

    @property
    def revised(self) -> tuple[str, ...]:
        """Names of what it releases about earlier steps, in the order of `Output.revised`."""
        return ()

    @property
    def most_spans(self) -> int:
        """The most spans that can meet a window; public."""
        return 0

    @property
    def noise_in_state(self) -> bool:
        """Whether the state holds noise that is still to be used: then a copy of a log restarts."""
        return False

    @property
    def skips_steps(self) -> bool:
        """Whether it looks at the steps that it measures and at no others: of these releases say nothing."""
        return False

    @abstractmethod
    def begin(self, first: int) -> Any:
        """The state before the first step, when no window has spent anything: a tuple of arrays, or of such tuples."""

    @abstractmethod
    def public(self, state: Any, first: int, count: int) -> Charges:
        """What the next steps cost at least, whatever the data are: refused before a random word is drawn."""

    @abstractmethod
    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release the next steps and change the state; what it raises ends the session, and the steps stay charged."""

    def intervals(self) -> Fold | None:
        """A fold over releases that says how far values may be off; None where nothing is known.

        Where nothing else is said, a value is the truth and noise of its law, or stays until the next one is measured.
        """
        from tidegate.intervals import ByLaw, Held  # loads the compiler

        if self.law is None:
            return None
        if self.holds:
            return Held(self.outputs, replace(self.law, rounded=self.rounded_by), self.law)
        return ByLaw(self.outputs, self.law)

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON."""
        described: dict[str, Any] = {"mechanism": type(self).__name__, "policy": self.policy.describe()}
        for each in fields(self):
            if each.name != "policy" and (each.name != "clamp" or self.clamp is not None):
                described[each.name] = describe_value(getattr(self, each.name))
        return described

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the configuration: what a snapshot or a ledger belongs to."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:32]

    @classmethod
    def as_published(cls, policy: Policy, **options: Any) -> Self:
        """As its paper has it, in the sound calibration; by default every default. `options` are other parameters."""
        return cls(policy, **options)

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """Public parameter choices that a plan compares on made-up counts; `season` is the steps of a day, if known."""
        return [cls(policy, columns=columns)]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return []


MOST_STEPS = 500  # that a mean over steps looks at


def mean_over_steps(error_of: Callable[[int], float], first: int, last: int) -> float:
    """The mean of a step's error over many steps; over very many, of some that are equally far apart."""
    first, last = whole("first", first), whole("last", last, least=first)
    steps = range(first, last + 1, max(1, (last - first + 1) // MOST_STEPS))
    return sum(error_of(step) for step in steps) / len(steps)


def describe_value(value: Any) -> Any:
    """A configuration value as JSON: by its own words, if it has some; fractions as strings, tuples as lists."""
    if callable(describe := getattr(value, "describe", None)):
        return describe()
    if isinstance(value, Fraction):
        return show(value)
    if isinstance(value, list | tuple):
        return [describe_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)
