"""``name = "auto"``: Tide on the public clock's days and weeks, unless a plan predicts something clearly better."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidegate.clock.steps import DAY as CALENDAR_DAY
from tidegate.errors import TidegateError
from tidegate.mechanisms import Mechanism, find
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.tide.tide import Tide
from tidegate.plan import Description, make_plan
from tidegate.plan.requirements import PERSONAL, requirements_of
from tidegate.policy import Policy

if TYPE_CHECKING:
    from tidegate.ingest import Query, Steps

DAY = 86_400
LONGEST_PERIOD = 50_000  # steps: a year of hours is no period that a stream could teach


def seconds_of_a_step(steps: Steps) -> Fraction:
    """The length of a step; a day is a day, also the one on which summer time begins."""
    if steps.length == CALENDAR_DAY:
        return Fraction(DAY)
    return Fraction(steps.boundary(2) - steps.boundary(1), 10**6)


def steps_of_a_day(seconds: Fraction) -> int | None:
    """How many steps of so many seconds a day has; None where it has not several of them.

    Examples
    --------
    >>> steps_of_a_day(Fraction(3600)), steps_of_a_day(Fraction(7000)), steps_of_a_day(Fraction(86_400))
    (24, None, None)
    """
    day = DAY / seconds
    return int(day) if day.denominator == 1 and day >= 2 else None


def seasons_in(seconds: Fraction) -> tuple[int, ...]:
    """How many steps of so many seconds a day and a week have, as far as steps divide them.

    Examples
    --------
    >>> seasons_in(Fraction(3600)), seasons_in(Fraction(86_400)), seasons_in(Fraction(604_800))
    ((24, 168), (7,), ())
    """
    day = steps_of_a_day(seconds)
    # days have a week, too: measured once a week they would all look like the same weekday
    week = 7 if seconds == DAY else None if day is None else 7 * day
    return tuple(p for p in (day, week) if p is not None and 2 <= p <= LONGEST_PERIOD)


def seasons_of(steps: Steps) -> tuple[int, ...]:
    """The same of a clock."""
    return seasons_in(seconds_of_a_step(steps))


def choose_for(policy: Policy, query: Query, steps: Steps, level: object, *, nonnegative: bool) -> Mechanism:
    """`choose` for a query on steps of a clock."""
    if query.requirements is not None:
        return _for_requirements(policy, query, steps, level, nonnegative=nonnegative)
    return choose(
        policy,
        query.width,
        Fraction(query.grid),
        query.rounding,
        seconds_of_a_step(steps),
        None if level is None else float(str(level)),
        nonnegative=nonnegative,
    )


def _for_requirements(
    policy: Policy, query: Query, steps: Steps, level: object, *, nonnegative: bool
) -> Mechanism:
    """What follows requirements of units; by default the one that is better on most streams."""
    assert query.requirements is not None
    kinds = {name: each for name in PERSONAL if (each := find(name)) is not None}
    asked, kind = requirements_of(query.requirements), kinds[PERSONAL[0]]
    if level is not None and nonnegative:
        season = steps_of_a_day(seconds_of_a_step(steps))
        stream = Description(level=float(str(level)), columns=query.outputs, season=season)
        plan = make_plan(policy, stream, runs=1, kinds=kinds, requirements=asked)
        kind = type(plan.best().mechanism)
    shape: dict[str, Any] = {"columns": query.width, "grid": query.grid, "rounding": query.rounding}
    return kind(policy, requirements=asked, **shape)  # type: ignore[call-arg]


def choose(
    policy: Policy,
    columns: int,
    grid: Fraction,
    rounding: str,
    seconds: Fraction,
    level: float | None,
    *,
    nonnegative: bool,
) -> Mechanism:
    """The mechanism for a stream of which only public things are known.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every mechanism.
    seconds
        The length of a step.
    level
        The order of magnitude of a value, if the curator knows it; without it no plan is made.
    nonnegative
        Whether no value can be negative. A plan is made on counts, so without this there is none.

    The choice is a function of these arguments, so that a stream that restarts gets the same mechanism.
    """
    shape: dict[str, Any] = {"columns": columns, "grid": grid, "rounding": rounding}
    season, periods = steps_of_a_day(seconds), seasons_in(seconds)
    if not isinstance(policy, Tide.supports) or type(policy.budget).__name__ not in Tide.budgets:
        return Uniform(policy, **shape)
    tide = Tide(policy, periods=periods, nonnegative=nonnegative, **shape)
    if level is None or not nonnegative:
        return tide
    description = Description(level=level, columns=columns, season=season)
    plan = make_plan(policy, description, runs=1)
    best = plan.best()
    if best.name == "Tide" or not any(p.name == "Tide" and not p.delay for p in plan.predictions):
        return tide
    try:
        return replace(best.mechanism, **shape)
    except TidegateError:  # the plan's stream had fewer columns
        return tide
