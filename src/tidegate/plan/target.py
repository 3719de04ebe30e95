"""Which ε, window or length of a step reaches a stated error: one setting is changed, the others stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tidegate.errors import InvalidParameter
from tidegate.exact import show
from tidegate.mechanisms import Mechanism
from tidegate.noise import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.plan.description import Description, StreamModel
from tidegate.plan.predict import CURVE_CELLS, choices, mean_of, predict, size_of
from tidegate.policy import Policy, WEvent

LONGER = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 168, 336, 720)
EPSILONS = (*(first * Fraction(10) ** power for power in range(-3, 3) for first in (1, 2, 5)), Fraction(1000))


@dataclass(frozen=True)
class Reached:
    """A setting that reaches the target, or the sentence that none does.

    Parameters
    ----------
    setting
        "epsilon", "window" or "steps".
    value
        The exact ε, the window, or how many steps become one; None where none reaches it.
    relative
        The error that is predicted there.
    """

    setting: str
    value: Fraction | None
    relative: float

    def __str__(self) -> str:
        if self.value is None:
            words = {"epsilon": "no ε up to 1,000", "window": "no window", "steps": "no longer step"}
            return f"{words[self.setting]} reaches it (best: {self.relative:.1%})"
        value = show(self.value)
        words = {
            "epsilon": f"ε = {value}",
            "window": f"a window of {value} step{'' if value == '1' else 's'}",
            "steps": "steps as long as now" if value == "1" else f"steps {value} times as long",
        }
        return f"{words[self.setting]}: {self.relative:.1%}"


def read_target(text: str) -> float:
    """A part of the mean value, from "5%" or "0.05".

    Examples
    --------
    >>> read_target("5%"), read_target("0.1")
    (0.05, 0.1)
    """
    try:
        number = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        number = 0.0
    if not 0 < number < 10:
        raise InvalidParameter("target", text, "an error as a part of the mean value", "write for example 5%")
    return number


def reach(policy: Policy, stream: StreamModel, kind: type[Mechanism], target: float) -> list[Reached]:
    """For each setting the mildest change that reaches a relative error.

    Parameters
    ----------
    policy, stream
        The present setting, and what is publicly known.
    kind
        The mechanism.
    target
        The mean absolute error as a part of the mean value.

    Examples
    --------
    >>> from tidegate.mechanisms import Uniform
    >>> found = reach(WEvent(epsilon="1", window=24), Description(level=480), Uniform, 0.02)
    >>> [str(one).partition(":")[0] for one in found]
    ['ε = 5', 'a window of 12 steps', 'steps 2 times as long']
    """

    def error(other: Policy, made: StreamModel) -> float:
        steps, columns = size_of(other, made, CURVE_CELLS)
        truth = [made.sample(steps, 0)[:, :columns]]
        found = [
            prediction.relative
            for mechanism in choices(kind, other, columns, made.season)
            for prediction in predict(mechanism, truth, mean_of(made, truth))
            if not prediction.delay
        ]
        return min(found, default=float("inf"))

    replace, found = dataclasses.replace, []
    with install(FixedEntropy("plan")):  # the same question gets the same answer
        if policy.epsilon is not None:
            by_epsilon = lambda epsilon: error(replace(policy, epsilon=epsilon), stream)  # noqa: E731
            found.append(Reached("epsilon", *_first(EPSILONS, by_epsilon, target)))
        if isinstance(policy, WEvent) and policy.window > 1:
            shorter = sorted(
                {max(1, policy.window // part) for part in (1, 2, 3, 4, 6, 8, 12, 24, policy.window)},
                reverse=True,
            )
            by_window = lambda w: error(replace(policy, window=int(w)), stream)  # noqa: E731
            found.append(Reached("window", *_first([Fraction(w) for w in shorter], by_window, target)))
        if isinstance(stream, Description):
            described = stream
            by_length = lambda times: error(*_longer(policy, described, int(times)))  # noqa: E731
            found.append(Reached("steps", *_first([Fraction(times) for times in LONGER], by_length, target)))
    return found


def _longer(policy: Policy, described: Description, times: int) -> tuple[Policy, Description]:
    """Steps that many times as long, under as long a protection."""
    other = (
        dataclasses.replace(policy, window=max(1, -(-policy.window // times)))
        if isinstance(policy, WEvent)
        else policy
    )
    season = None if described.season is None or described.season % times else described.season // times
    level = described.level * times
    return other, dataclasses.replace(
        described, level=level, season=season if season and season > 1 else None
    )


def _first(
    settings: Sequence[Fraction], error: Callable[[Fraction], float], target: float
) -> tuple[Fraction | None, float]:
    """The first of ever more accurate settings that reaches the target, by bisection, and its error."""
    low, high = 0, len(settings) - 1
    best = error(settings[high])
    if best > target:
        return None, best
    while low < high:
        middle = (low + high) // 2
        there = error(settings[middle])
        if there <= target:
            high, best = middle, there
        else:
            low = middle + 1
    return settings[high], best
