"""What the core refuses, and how a session ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from tidegate.errors import TidegateError

LISTED = 3  # charges that a refusal names; the others are summed


class Held(NamedTuple):
    """What a window holds already: units that steps, or a span, were charged. Public, as all charges are."""

    first: int
    last: int
    units: int

    def __str__(self) -> str:
        return f"{self.units} at {steps_named(self.first, self.last)}"


class Refusal(NamedTuple):
    """Why a charge did not fit.

    Attributes
    ----------
    step, asked
        The first step that was refused, and its units.
    first
        The first step of the window that ends there.
    limit, spent
        Units that the window may spend, and has spent.
    held
        The charges in it, the largest first. Of an endless window an account knows the sum alone.
    fits
        The first step at which the same charge fits, if nothing else is charged before; None: never.
    horizon
        The last step of the stream, if it has one.
    """

    step: int
    asked: int
    first: int
    limit: int
    spent: int
    held: tuple[Held, ...]
    fits: int | None
    horizon: int | None = None

    def __str__(self) -> str:
        return (
            f"the charge of {self.asked} units at step {self.step} is refused: "
            f"{steps_named(self.first, self.step)} may spend {self.limit} units, and {self.spent} are spent "
            f"({listed(self.held)}); {when(self.fits, self.horizon)}."
        )


def steps_named(first: int, last: int) -> str:
    """Steps in words."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def listed(held: Sequence[Held], most: int = LISTED) -> str:
    """The first few charges, and the sum of the others."""
    named, rest = held[:most], held[most:]
    parts = [str(each) for each in named]
    if rest:
        others = "charge" if len(rest) == 1 else "charges"
        parts.append(f"{sum(each.units for each in rest)} in {len(rest)} other {others}")
    return ", ".join(parts) if parts else "nothing yet"


def when(fits: int | None, horizon: int | None) -> str:
    """When enough budget returns."""
    if fits is None:
        return "this budget does not return; begin another stream"
    if horizon is not None and fits > horizon:
        return f"it would fit at step {fits}, and the stream ends with step {horizon}"
    return f"wait until step {fits}: there it fits, if nothing else is charged before"


class AccountRefused(TidegateError):
    """Charges do not fit into the account. Nothing was charged. All that is said is public.

    Attributes
    ----------
    refusal
        The window, the charges in it and when budget returns; None where the charge was refused for its form.
    query
        The name of the query, where a session has several.
    """

    refusal: Refusal | None = None
    query: str = ""

    @classmethod
    def overspent(cls, refusal: Refusal) -> Self:
        """Some window would spend more than its budget."""
        error = cls(str(refusal))
        error.refusal = refusal
        return error

    def of(self, what: str, query: str = "") -> Self:
        """The same refusal, which also says of what it is."""
        error = type(self)(f"{what}: {self}")
        error.refusal, error.query = self.refusal, query or self.query
        return error

    @classmethod
    def horizon(cls, step: int, horizon: int) -> Self:
        """The stream was declared to end before."""
        return cls(f"step {step} is refused: the horizon of the stream is step {horizon}; open a new stream.")

    @classmethod
    def order(cls, first: int, last: int) -> Self:
        """Steps only move forwards."""
        return cls(f"step {first} is refused: step {last} was released already; push the steps after it.")


class SessionClosed(TidegateError):
    """The session does not push any more; the message says why, and what to do."""


class Fenced(SessionClosed):
    """Another writer has moved the head of the log, or owns this session's process."""


class Halted(SessionClosed):
    """A mechanism failed after it had drawn noise: the steps are charged, and nothing of them is released."""


class LogDamaged(TidegateError):
    """A log was edited or truncated; the message names the first bad commit."""


class LogMismatch(TidegateError):
    """A log belongs to another configuration, or to another version."""
