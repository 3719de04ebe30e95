"""What would help where the noise is larger than the numbers: other settings, each with its predicted error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tidegate.errors import TidegateError
from tidegate.exact import show
from tidegate.mechanisms import Mechanism
from tidegate.noise import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.plan.description import Description
from tidegate.plan.predict import CURVE_CELLS, predict, size_of
from tidegate.policy import Policy, WEvent

LONGER = (4, 24)  # steps that become one
MORE = 4  # times the budget
Build = Callable[[Policy, int, Fraction], Mechanism]


@dataclass(frozen=True)
class Remedy:
    """A setting and what it would do.

    Parameters
    ----------
    words
        What is changed; empty for the present setting.
    absolute, relative
        The expected error of a value, and as a part of the mean value.
    """

    words: str
    absolute: float
    relative: float

    def __str__(self) -> str:
        return f"{self.words}: off by {_percent(self.relative)} of a value on average"


def remedies(policy: Policy, described: Description, seconds: Fraction, build: Build) -> list[Remedy]:
    """The present setting, and after it other settings that are predicted to be better, the best first.

    Parameters
    ----------
    policy
        What is protected now.
    described
        The stream in public numbers, for example from its releases.
    seconds
        The length of a step.
    build
        Makes the mechanism of a policy, a number of columns and a length of a step.

    Examples
    --------
    >>> from tidegate.mechanisms import Uniform
    >>> build = lambda policy, columns, seconds: Uniform(policy, columns=columns)
    >>> now, *others = remedies(WEvent(epsilon="1", window=24), Description(level=3), Fraction(3600), build)
    >>> now.relative > 1 > others[0].relative
    True
    """
    with install(FixedEntropy("plan")):  # the same question gets the same answer
        now = _tried("", policy, described, seconds, build)
        if now is None:
            return []
        found = [
            remedy
            for words, other, stream, length in _settings(policy, described, seconds)
            if (remedy := _tried(words, other, stream, length, build)) is not None
        ]
    better = [remedy for remedy in found if remedy.relative < 0.9 * now.relative]
    return [now, *sorted(better, key=lambda remedy: remedy.relative)]


def _settings(
    policy: Policy, described: Description, seconds: Fraction
) -> list[tuple[str, Policy, Description, Fraction]]:
    """Longer steps with as long a protection, fewer columns, a larger ε, a shorter window."""
    found: list[tuple[str, Policy, Description, Fraction]] = []
    replace = dataclasses.replace
    for times in LONGER:
        other = policy
        if isinstance(policy, WEvent):
            other = replace(policy, window=max(1, -(-policy.window // times)))
        season = None if described.season is None else described.season // times
        longer = replace(
            described, level=described.level * times, season=season if season and season >= 2 else None
        )
        found.append((f"steps {times} times as long", other, longer, seconds * times))
    if described.columns > 1:
        one = replace(described, columns=1, level=described.level * described.columns)
        found.append((f"one column for all {described.columns:,}", policy, one, seconds))
    if policy.epsilon is not None:
        larger = MORE * Fraction(policy.epsilon)
        found.append((f"ε = {show(larger)}", replace(policy, epsilon=larger), described, seconds))
    if isinstance(policy, WEvent) and policy.window >= MORE:
        fewer = policy.window // MORE
        found.append(
            (
                f"a window of {fewer:,} step{'' if fewer == 1 else 's'}",
                replace(policy, window=fewer),
                described,
                seconds,
            )
        )
    return found


def _tried(
    words: str, policy: Policy, described: Description, seconds: Fraction, build: Build
) -> Remedy | None:
    steps, columns = size_of(policy, described, CURVE_CELLS)
    try:
        mechanism = build(policy, columns, seconds)
        found = predict(mechanism, [described.sample(steps, 0)[:, :columns]])
    except TidegateError:
        return None
    at_once = [prediction for prediction in found if not prediction.delay]
    return Remedy(words, at_once[0].absolute, at_once[0].relative) if at_once else None


def _percent(part: float) -> str:
    return f"{part:.0%}" if part >= 0.095 else f"{part:.1%}"
