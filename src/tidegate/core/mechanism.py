"""What the core asks of a mechanism: functions over plain state. It never sees an account, a log or a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import NO_SPANS, Charges, Integers, Span
from tidegate.core.rows import Draws
from tidegate.core.values import Reader
from tidegate.exact import ExactLike
from tidegate.policy import Policy
from tidegate.releases import Status

if TYPE_CHECKING:
    from tidegate.core.account import Account
    from tidegate.intervals import Fold

Matrix = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
State = Any  # a tuple of arrays and of further such tuples

NOTHING: tuple[npt.NDArray[Any], ...] = ()


class Output(NamedTuple):
    """What steps release and what they cost: new arrays, of which the mechanism keeps none.

    Attributes
    ----------
    values
        Steps × outputs, in the unit of the values.
    status
        How each step came about; numbers of `releases.Status`.
    source
        The step at which its values were measured; 0 before anything was.
    scale
        The scale of their noise, in the unit of the values.
    units, spans
        What the steps cost; see `charges.Charges`.
    more
        Further released arrays with one row per step, named by the mechanism's `more`.
    revised
        Released arrays about earlier steps, named by the mechanism's `revised`; their number of rows is public.
    """

    values: Floats
    status: npt.NDArray[np.int8]
    source: Integers
    scale: Floats
    units: Integers
    spans: Integers = NO_SPANS
    more: tuple[npt.NDArray[Any], ...] = NOTHING
    revised: tuple[npt.NDArray[Any], ...] = NOTHING

    @property
    def released(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays that leave."""
        return (self.values, self.status, self.source, self.scale, *self.more, *self.revised)

    @property
    def charged(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays that every mechanism has, one row per step, and what the steps cost."""
        return (self.values, self.status, self.source, self.scale, self.units)

    def check_shape(self, steps: int, outputs: int) -> None:
        """Raise where it does not have a row, and a charge, for every step."""
        each = (self.status, self.source, self.scale, self.units)
        if self.values.shape != (steps, outputs) or {part.shape for part in each} != {(steps,)}:
            raise ValueError("a mechanism must release, and charge, every step that it was given")

    def part(self, steps: slice) -> Output:
        """Some of the steps, as views, without spans."""
        return Output(
            self.values[steps], self.status[steps], self.source[steps], self.scale[steps], self.units[steps]
        )

    def after_silence(self, steps: int) -> Output:
        """The same behind so many steps of which nothing is said."""
        quiet = empty_output(steps, self.values.shape[1])
        quiet.values[:], quiet.status[:] = np.nan, int(Status.SILENT)
        quiet.source[:], quiet.scale[:] = 0, 0.0
        return self._replace(
            values=np.concatenate([quiet.values, self.values]),
            status=np.concatenate([quiet.status, self.status]),
            source=np.concatenate([quiet.source, self.source]),
            scale=np.concatenate([quiet.scale, self.scale]),
            units=np.concatenate([quiet.units, self.units]),
            more=tuple(_behind(steps, part) for part in self.more),
        )


def _behind(steps: int, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array behind rows that say nothing: NaN, or 0."""
    quiet = np.full((steps, *part.shape[1:]), np.nan if part.dtype == np.float64 else 0, dtype=part.dtype)
    return np.concatenate([quiet, part])


class Mechanism(Protocol):
    """A frozen configuration. All that changes is in the state, which the session owns."""

    @property
    def policy(self) -> Policy:
        """What is protected, and the budget."""

    @property
    def columns(self) -> int:
        """Values of a step."""

    @property
    def outputs(self) -> int:
        """Released values of a step."""

    @property
    def grid(self) -> ExactLike:
        """The public resolution of values."""

    @property
    def rounding(self) -> str:
        """Whether values off the grid are refused or rounded."""

    @property
    def clamp(self) -> ExactLike | None:
        """The public bound of values."""

    @property
    def units(self) -> int:
        """Into how many units the budget of a window is divided."""

    @property
    def more(self) -> tuple[str, ...]:
        """Names of what it releases besides, in the order of `Output.more`."""

    @property
    def most_spans(self) -> int:
        """The most spans that can meet a window; public."""

    @property
    def noise_in_state(self) -> bool:
        """Whether the state holds noise that is still to be used: then a copy of a log restarts."""

    def describe(self) -> dict[str, Any]:
        """The configuration, exactly, as JSON."""

    def begin(self, first: int) -> State:
        """The state before the first step, when no window has spent anything."""

    def public(self, state: State, first: int, count: int) -> Charges:
        """What the next steps cost at least, whatever the data are: refused before a random word is drawn."""

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release the next steps and change the state. What it raises ends the session, and the steps stay charged."""


class EveryStep(NamedTuple):
    """What all steps have in common, where each is measured in the same way.

    Attributes
    ----------
    scale
        Of their noise, in the unit of the values.
    units
        What each costs by itself, besides spans.
    """

    scale: float
    units: int


@runtime_checkable
class MeasuresEveryStep(Protocol):
    """A mechanism that measures all steps in the same way, so that single pushes have a fast path."""

    @property
    def every_step(self) -> EveryStep:
        """What is the same at all of them; they are fresh, and measured at their own step."""

    def measure(self, state: State, row: Any, step: int, noise: Draws) -> tuple[Floats, Sequence[Span]]:
        """What `advance` releases of one step: its values in a new array, and the spans that pay for them.

        `row` are its whole numbers, and for one column a plain one.
        """


@runtime_checkable
class Resumes(Protocol):
    """A mechanism whose state has parts that follow from charges."""

    def resume(self, state: State, step: int, recent: Integers) -> None:
        """Fill them when a log was opened: `recent` are the units of the last steps, up to `step`."""


@runtime_checkable
class Reads(Protocol):
    """A mechanism whose steps are no plain columns."""

    def reader(self) -> Reader:
        """What checks pushed values, and makes them rows of whole numbers; it refuses by their form alone."""


@runtime_checkable
class Finishes(Protocol):
    """A mechanism that has something to say at the end of a stream."""

    def finish(self, state: State, last: int, noise: Draws) -> Output | None:
        """What the end releases: 0 steps, and `revised` arrays about earlier ones, with a public number of rows.

        It costs nothing: it is made from noise that was charged. `last` is the last step. Whether it is None is public.
        """


@runtime_checkable
class HandlesEvents(Protocol):
    """A mechanism with announced public events, for example an intrusion."""

    def hears(self, name: str) -> bool:
        """Whether an event of this name concerns it: a function of public configuration."""

    def event(self, state: State, name: str, step: int, noise: Draws) -> Charges | None:
        """Change the state. `step` is the one in progress, the next to be pushed.

        What the event costs is charged to that step, beside what its release costs: `Charges(step, [units])` without
        spans, or None. What it costs is public.
        """


@runtime_checkable
class HasAccount(Protocol):
    """A mechanism whose policy needs another account than units per window."""

    def account(self) -> Account:
        """A new one, with the interface of `account.Account`."""


@runtime_checkable
class KnowsErrors(Protocol):
    """A mechanism that says how far its values may be off."""

    def intervals(self) -> Fold | None:
        """A fold over its releases; None where nothing is known."""


@runtime_checkable
class SharesBudget(Protocol):
    """A mechanism that says itself how it runs with another budget; all others have a field `policy` that is replaced."""

    def with_policy(self, policy: Policy) -> Mechanism:
        """The same configuration with this policy."""


def empty_output(steps: int, outputs: int) -> Output:
    """Arrays for a loop to fill; the units begin at 0."""
    return Output(
        np.empty((steps, outputs)),
        np.empty(steps, dtype=np.int8),
        np.empty(steps, dtype=np.int64),
        np.empty(steps),
        np.zeros(steps, dtype=np.int64),
    )


def unit_of(mechanism: Mechanism) -> Fraction:
    """What a unit is worth, in ε or ρ."""
    return mechanism.policy.budget.total / mechanism.units
