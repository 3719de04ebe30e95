"""The three ways to write a budget: ε, (ε, δ) and ρ. Frozen facts; accountants interpret them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tidegate.composition import group_delta
from tidegate.exact import show

# Every number that is computed from a budget and a change within these bounds is a float: noise that is too large is
# refused with the mechanism, and no draw fails for its scale.
LARGEST_BUDGET = 10**7  # ε or ρ; far above it nothing is protected
LARGEST_CHANGE = 2**56  # as the largest scale of noise


@dataclass(frozen=True)
class Pure:
    """ε-differential privacy.

    Attributes
    ----------
    epsilon
        Exact, above 0.

    Examples
    --------
    >>> from tidegate.policy import Event
    >>> Event(epsilon="0.1").budget
    Pure(epsilon=Fraction(1, 10))
    """

    epsilon: Fraction

    def __str__(self) -> str:
        return f"{show(self.epsilon)}-differentially private"

    def of(self, total: Fraction) -> Pure:
        """The same kind of budget with another ε."""
        return Pure(total)

    def times(self, factor: int) -> Pure:
        """The budget of a chain of `factor` neighbours (group privacy)."""
        return Pure(self.epsilon * factor)

    def within(self, other: Budget) -> bool:
        """Whether this budget is at least as strong as the other."""
        if isinstance(other, ZeroConcentrated):
            return self.epsilon * self.epsilon / 2 <= other.rho  # Bun and Steinke 2016, Proposition 1.4
        return self.epsilon <= other.epsilon

    @property
    def total(self) -> Fraction:
        """The number that composes additively: ε."""
        return self.epsilon


@dataclass(frozen=True)
class Approximate:
    """(ε, δ)-differential privacy.

    Attributes
    ----------
    epsilon, delta
        Exact, with 0 < δ < 1.

    Examples
    --------
    >>> from tidegate.policy import Event
    >>> Event(epsilon="1", delta="1e-9").budget.delta
    Fraction(1, 1000000000)
    """

    epsilon: Fraction
    delta: Fraction

    def __str__(self) -> str:
        return f"({show(self.epsilon)}, {float(self.delta):.3g})-differentially private"

    def of(self, total: Fraction) -> Approximate:
        """The same kind of budget with another ε and the same δ."""
        return Approximate(total, self.delta)

    def times(self, factor: int) -> Approximate:
        """The budget of a chain of `factor` neighbours; δ grows by (e^(kε) − 1)/(e^ε − 1), rounded up."""
        return Approximate(self.epsilon * factor, group_delta(self.epsilon, self.delta, factor))

    def within(self, other: Budget) -> bool:
        """Whether this budget is at least as strong as the other."""
        return isinstance(other, Approximate) and self.epsilon <= other.epsilon and self.delta <= other.delta

    @property
    def total(self) -> Fraction:
        """The ε that the optimal composition of the steps must not exceed."""
        return self.epsilon


@dataclass(frozen=True)
class ZeroConcentrated:
    """ρ-zero-concentrated differential privacy (zCDP).

    Attributes
    ----------
    rho
        Exact, above 0.

    Examples
    --------
    >>> from tidegate.policy import Event
    >>> Event(rho="1/2").budget
    ZeroConcentrated(rho=Fraction(1, 2))
    """

    rho: Fraction

    def __str__(self) -> str:
        return f"{show(self.rho)}-zCDP"

    def of(self, total: Fraction) -> ZeroConcentrated:
        """The same kind of budget with another ρ."""
        return ZeroConcentrated(total)

    def times(self, factor: int) -> ZeroConcentrated:
        """The budget of a chain of `factor` neighbours: ρ grows by the square of its length."""
        return ZeroConcentrated(self.rho * factor * factor)

    def within(self, other: Budget) -> bool:
        """Whether this budget is at least as strong as the other."""
        return isinstance(other, ZeroConcentrated) and self.rho <= other.rho

    @property
    def total(self) -> Fraction:
        """The number that composes additively: ρ."""
        return self.rho


Budget = Pure | Approximate | ZeroConcentrated
