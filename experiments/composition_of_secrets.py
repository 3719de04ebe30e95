"""What several releases of one stream, or a stream that is split in time, promise to each secret.

Queries of one session need none of this: its account adds up what each placement has lost, whoever spent it.
These are the levels that remain where every release had a log of its own (the paper's Theorems 5 and 6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tidegate.exact import show, whole
from tidegate.policy.secrets import Secret
from tidegate.policy.swellfish import Swellfish


@dataclass(frozen=True)
class Level:
    """The level that one hiding interval of one secret is left with."""

    specification: str
    secret: str
    interval: tuple[int, int]
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __str__(self) -> str:
        delta = f", δ = {float(self.delta):.3g}" if self.delta else ""
        return (
            f"{self.specification}: {self.secret} in steps {self.interval} at ε = {show(self.epsilon)}{delta}"
        )


def after_releases(policy: Swellfish, releases: int) -> Swellfish:
    """The policy that holds after so many independent releases, each under `policy`: every ε times their number.

    Examples
    --------
    >>> from tidegate.policy import Specification
    >>> home = Secret(1, 2, "always", "0.5", "somebody is at home")
    >>> after_releases(Swellfish(specifications=[Specification((home,), "house 1")]), 2).epsilon
    Fraction(1, 1)
    """
    times = whole("releases", releases)
    houses = tuple(
        replace(
            each,
            secrets=tuple(
                replace(secret, epsilon=Fraction(secret.epsilon) * times) for secret in each.secrets
            ),
        )
        for each in policy.specifications
    )
    epsilon, delta = Fraction(policy.epsilon or 1) * times, Fraction(policy.delta) * times
    return replace(policy, specifications=houses, epsilon=epsilon, delta=delta)


def after_split(policy: Swellfish, step: int) -> list[Level]:
    """The hiding intervals that reach across a split after `step`, each left with twice its ε (and twice the policy's δ).

    All others lie in one part of the stream and keep their level.

    Examples
    --------
    >>> from tidegate.policy import Specification
    >>> oven = Secret(3, 2, [(1, 4), (9, 12)], 1, "oven")
    >>> policy = Swellfish(specifications=[Specification((oven,), "house 1")])
    >>> [str(level) for level in after_split(policy, 2)]
    ['house 1: oven in steps (1, 4) at ε = 2']
    >>> after_split(policy, 6)
    []
    """
    step = whole("step", step)
    delta = 2 * Fraction(policy.delta)
    levels = []
    for each in policy.specifications:
        rows, owners = each.occurrences(policy.clock, step, step + 1)
        for (first, last), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            if first <= step < last:
                secret: Secret = each.secrets[owner]
                epsilon = 2 * Fraction(secret.epsilon)
                levels.append(Level(each.label, secret.label, (first, last), epsilon, delta))
    return levels
