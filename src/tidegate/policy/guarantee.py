"""What is promised, as a frozen fact that reads as a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from tidegate.errors import InvalidParameter
from tidegate.exact import show, whole
from tidegate.policy.budget import Budget
from tidegate.policy.units import Policy, User, WEvent

CORRELATED = (
    "records of one person or of several that influence one another are separate units here; "
    "an attacker who knows how they are correlated may learn more than one unit's bound (PeGaSus, section 2.4)"
)
FIXED = "a unit stays in one column within any window"


@dataclass(frozen=True)
class Guarantee:
    """What a mechanism proves, for which unit, under which assumptions.

    Parameters
    ----------
    mechanism
        The name of the mechanism.
    policy
        What is protected.
    assumptions
        What must hold outside of the mechanism, one clause each. What the policy declares of its units, and noise is
        therefore scaled by, is added here, whoever makes the guarantee.
    calibration
        "sound", or "paper" for a printed variant that does not keep its promise.
    loss
        For printed variants: how many times the stated budget they have been shown to lose.
    unit
        The protected unit in words; by default the policy's.
    budget
        By default the policy's.
    gradually
        Where less is lost at first (gradual privacy expiration): pairs (d, loss) with growing d. Outputs less than the
        next pair's d steps after an event lose at most so much about it. The last loss is the whole budget.
    stricter
        Where units have requirements of their own: ε, and the steps of a window, of each.

    Examples
    --------
    >>> print(Guarantee("Uniform", WEvent(epsilon="1", window=24)).over(steps=48).budget)
    2-differentially private
    """

    mechanism: str
    policy: Policy
    assumptions: tuple[str, ...] = ()
    calibration: str = "sound"
    loss: Fraction | None = None
    unit: str = ""
    budget: Budget = field(default=None)  # type: ignore[assignment]  # filled in below, never None
    gradually: tuple[tuple[int, Fraction], ...] = ()
    stricter: tuple[tuple[Fraction, int], ...] = ()

    def __post_init__(self) -> None:
        if self.budget is None:
            object.__setattr__(self, "budget", self.policy.budget)
        if not self.unit:
            object.__setattr__(self, "unit", self.policy.unit())
        missing = tuple(clause for clause in declared(self.policy) if clause not in self.assumptions)
        object.__setattr__(self, "assumptions", (*self.assumptions, *missing))

    def __repr__(self) -> str:
        return f"<Guarantee: {self}>"

    def __str__(self) -> str:
        if self.calibration != "sound":
            shown = f"at least {show(self.loss)} times that" if self.loss is not None else "more than that"
            return (
                f"{self.mechanism} in the printed calibration does NOT keep its promise: it claims to be {self.budget} "
                f"for {self.unit}, and has been shown to lose {shown}. Not for people's data."
            )
        sentence = f"{self.mechanism} is {self.budget} for {self.unit} ({self.policy.name})."
        if len(self.gradually) > 1:
            sentence += self._growing()
        for number, (epsilon, window) in enumerate(self.stricter, 1):
            sentence += f" Units of requirement {number} lose at most {show(epsilon)} in any {window} consecutive steps."
        if self.assumptions:
            sentence += " It assumes that " + "; that ".join(self.assumptions) + "."
        return sentence

    def _growing(self) -> str:
        """How the loss about an event grows, up to the whole budget."""
        shown = ", ".join(
            show(loss) if before == 1 else f"those up to {before - 1} steps later {show(loss)}"
            for (_, loss), (before, _) in list(pairwise(self.gradually))[:4]
        )
        more = ", and so on" if len(self.gradually) > 5 else ""
        late, whole_budget = self.gradually[-1]
        return (
            " It is weaker for older events: about an event, the output of its own step loses at most "
            f"ε = {shown}{more}; the whole {show(whole_budget)} is reached {late} step{'s' * (late > 1)} later."
        )

    def over(self, *, steps: int) -> Guarantee:
        """What a sequence of `steps` consecutive steps gets: the number of windows it takes to cover it."""
        count = whole("steps", steps)
        if type(self.policy).__name__ == "Swellfish":
            raise InvalidParameter(
                "steps", count, "absent for Swellfish, which hides specified events only", "use for_tuples"
            )
        window = self.policy.window
        factor = 1 if window is None else -(-count // window)
        return replace(
            self,
            unit=f"everything within any {count} consecutive steps",
            budget=self.budget.times(factor),
            gradually=(),
            stricter=(),
            assumptions=(*self.assumptions, CORRELATED),
        )

    def for_tuples(self, count: int) -> Guarantee:
        """What a heavier user gets, whose data are `count` units (group privacy)."""
        number = whole("count", count)
        return replace(
            self,
            unit=f"{number} such units at once, each being {self.unit}",
            budget=self.budget.times(number),
            gradually=(),
            stricter=(),
            assumptions=(*self.assumptions, CORRELATED),
        )

    def implies(self, other: Guarantee) -> bool:
        """Whether whoever has this guarantee also has the other (same change per step, no weaker anywhere)."""
        mine, theirs = self.policy, other.policy
        if self.calibration != "sound" or not self.budget.within(other.budget):
            return False
        if other.stricter and (mine, self.stricter) != (theirs, other.stricter):
            return False
        if self.unit != other.unit and (self.unit, other.unit) != (mine.unit(), theirs.unit()):
            return False  # what covers several units is compared with its like only
        same_change = (
            mine.adjacency == theirs.adjacency
            and Fraction(mine.max_change) >= Fraction(theirs.max_change)
            and (mine.mobility == "moving" or theirs.mobility == "fixed")
            and (mine.signed or not theirs.signed)
            and (mine.touches is None or (theirs.touches is not None and mine.touches >= theirs.touches))
        )
        if not same_change or "Swellfish" in (type(mine).__name__, type(theirs).__name__):
            return same_change and mine == theirs
        if isinstance(mine, User):
            return theirs.horizon is not None and theirs.horizon <= mine.steps_charged
        if isinstance(theirs, User):
            return isinstance(mine, WEvent) and mine.window >= theirs.steps_charged
        return mine.steps_charged >= theirs.steps_charged


def declared(policy: Policy) -> tuple[str, ...]:
    """What a policy declares of its units, which noise is scaled by and nothing checks.

    Examples
    --------
    >>> declared(WEvent(epsilon="1", window=24, mobility="fixed"))
    ('a unit stays in one column within any window',)
    """
    touched = "" if policy.touches is None else f"a unit touches at most {policy.touches} columns in one step"
    return tuple(clause for clause in (FIXED if policy.mobility == "fixed" else "", touched) if clause)
