"""Mechanisms whose measurements may share noise, and how its law is chosen.

The laws stand in `tidegate.noise.shared`, their state and what they cost in `tidegate.noise.laws`;
docs/proofs/shared_noise.md says why it is private.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tidegate.errors import InvalidParameter
from tidegate.exact import one_of
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import law as laws_of_values
from tidegate.noise.law import AnyLaw, Law
from tidegate.policy import Policy, Pure

if TYPE_CHECKING:
    from tidegate.noise.laws import SharedLaw
    from tidegate.noise.shared.choice import Choice
    from tidegate.noise.shared.cube import Cube
    from tidegate.noise.shared.semiorder import Semiorder

Laws = Callable[[int], "Iterable[Choice]"]

NOISES = ("auto", "laplace", "cube", "semiorder")
WORTH_IT = 0.9  # of Laplace's variance: noise that gains less is not worth a secret state


@dataclass(frozen=True)
class SharingMechanism(Mechanism):
    """A mechanism that adds noise to measured steps, which may share it.

    Parameters
    ----------
    noise
        "auto": the law with the least variance for the policy, the columns and the measurements in a window.
        "laplace": noise of its own for each value, as in the papers. "cube", "semiorder": this law.
    """

    noise: str = field(default="auto", kw_only=True)

    @classmethod
    def as_published(cls, policy: Policy, **options: Any) -> Self:
        """As its paper has it, in the sound calibration: every default, and noise of its own at each step."""
        return super().as_published(policy, **{"noise": "laplace"} | options)

    @property
    def distance(self) -> int:
        """Steps from one measurement to the next; 0 where their times are not known in advance."""
        return 1

    def measured_in(self, steps: int) -> int:
        """The most measurements that so many consecutive steps can contain."""
        return -(-steps // self.distance)

    @property
    def measuring_part(self) -> Fraction:
        """The part of the budget that pays for measurements; what else a mechanism spends has the rest."""
        return Fraction(1)

    @property
    def measured_columns(self) -> int:
        """Into how many numbers a measurement is made."""
        return self.columns

    @property
    def measured_change(self) -> int:
        """By how many grid units one unit can change a measurement, in L1."""
        return self.sensitivity

    @property
    def may_share(self) -> bool:
        """Whether measurements may share noise, as far as this configuration is concerned."""
        return True

    @cached_property
    def sharing(self) -> Sharing | None:
        """The law that measurements share; None where each has noise of its own."""
        if not self.may_share and self.noise in ("auto", "laplace"):
            return None
        if not self.may_share and self.noise in NOISES:
            raise InvalidParameter(
                "noise", self.noise, "'auto' or 'laplace' in this configuration", "drop it"
            )
        return chosen(
            self.noise,
            self.policy,
            self.measured_columns,
            self.measured_change,
            self.measured_in,
            self.measuring_part,
            self.laws,
        )

    @property
    def laws(self) -> Laws | None:
        """For so many columns, the laws that may be chosen from where these are not those of the policy; else None."""
        return None

    @property
    def shares_noise(self) -> bool:
        """Whether the state is secret."""
        return self.sharing is not None

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def sharing_units(self) -> int:
        """Into how many units the budget is divided of which `Sharing.part` is a part."""
        return self.units

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law that the measurements of a window share, with its spans; None where each has noise of its own."""
        if self.sharing is None:
            return None
        from tidegate.noise.laws import SharedLaw, exact_units  # loads the compiler

        cost = exact_units(self.sharing.group_part, self.sharing_units)
        return SharedLaw(self.sharing.law, cost, self.policy.window, self.distance, self.policy.horizon)

    def begin_shared(self) -> Any:
        """The state of the law, SECRET; empty where measurements have noise of their own."""
        return () if self.shared is None else self.shared.start()

    @property
    def most_spans(self) -> int:
        """The most spans of the law that meet a window."""
        if self.shared is None:
            return 0
        from tidegate.noise.laws import most_live  # loads the compiler

        return most_live(self.shared.law, self.shared.window, self.shared.distance)

    @property
    def noise_in_state(self) -> bool:
        """Only what measurements share."""
        return self.sharing is not None

    # what is known of the noise ----------------------------------------------------------------------------------

    @property
    def columns_apart(self) -> bool:
        """Whether columns have nothing in common but their noise."""
        return True

    @property
    def columns_independent(self) -> bool:
        """Whether copies of the columns beside each other are independent runs: not where they share a radius."""
        return self.columns_apart and self.sharing is None

    @cached_property
    def law(self) -> AnyLaw | None:
        """How the noise of a fresh value is distributed, where it is nothing but the truth and noise."""
        if self.sharing is None or not self.plain:
            return super().law
        return laws_of_values.SharedLaw(self.sharing.law, float(Fraction(self.grid)), self.rounded_by)

    @property
    def measured_law(self) -> AnyLaw:
        """How the noise of a measurement is distributed."""
        grid = float(Fraction(self.grid))
        if self.sharing is None:
            return Law(self.noise_kind, grid)
        return laws_of_values.SharedLaw(self.sharing.law, grid)

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly; without shared noise as it was described before there was any."""
        described = super().describe()
        del described["noise"]
        return described if self.sharing is None else {**described, "noise": self.sharing.describe()}


@dataclass(frozen=True)
class Sharing:
    """A law of noise for all measurements of a run.

    Attributes
    ----------
    choice
        The law in units of Δ/ε.
    sensitivity, epsilon
        Δ in grid units, and what all measurements of a window may lose.
    copies
        Columns with noise of their own, because a unit stays in one of them.
    part
        Which part of the policy's budget that is.
    """

    choice: Choice
    sensitivity: int
    epsilon: Fraction
    copies: int = 1
    part: Fraction = Fraction(1)

    @property
    def units(self) -> int:
        """Into how many units the budget of a window's measurements is divided: groups that it can meet."""
        return self.choice.share if self.choice.law == "cube" else 1

    @property
    def group_part(self) -> Fraction:
        """Which part of the policy's budget a group costs."""
        return self.part / self.units

    @cached_property
    def law(self) -> Cube | Semiorder:
        """What is drawn from."""
        make = self.choice.cube if self.choice.law == "cube" else self.choice.semiorder
        return make(Fraction(self.sensitivity), self.epsilon, self.copies)

    @property
    def scale(self) -> float:
        """The scale of the law in grid units: a group, or a window of the semiorder's class, loses Δ over it."""
        return self.law.prepared.value

    @property
    def laplace_scale(self) -> float:
        """The scale of Laplace noise that has the same variance, in grid units, to six digits; that of releases."""
        return float(f"{math.sqrt(self.choice.variance / 2) * self.sensitivity / float(self.epsilon):.6g}")

    @property
    def variance(self) -> float:
        """The variance of a value in grid units, of a fine grid."""
        return self.choice.variance * (self.sensitivity / float(self.epsilon)) ** 2

    def describe(self) -> list[Any]:
        """The law and its shape, exactly."""
        shape = self.choice.lengths if self.choice.law == "cube" else (self.choice.width,)
        counts = [[length, len(list(run))] for length, run in itertools.groupby(shape)]
        return [self.choice.law, self.choice.share, counts, self.copies]


def chosen(
    noise: str,
    policy: Policy,
    columns: int,
    sensitivity: int,
    measured_in: Callable[[int], int],
    part: Fraction = Fraction(1),
    laws: Laws | None = None,
) -> Sharing | None:
    """The law for a run, by public parameters only; None for noise of its own at each step.

    Parameters
    ----------
    noise
        As of a :class:`SharingMechanism`.
    policy, columns, sensitivity
        What is protected, and by how many grid units it changes a step.
    measured_in
        The most measurements that so many consecutive steps can contain.
    part
        The part of the budget that pays for them.
    laws
        The laws to choose from for so many columns, where not all are sound.
    """
    one_of("noise", noise, NOISES, 'write noise="auto"')
    budget = policy.budget
    if noise == "laplace" or (noise == "auto" and not isinstance(budget, Pure)):
        return None
    if not isinstance(budget, Pure):
        raise InvalidParameter("noise", noise, "'auto' where delta or rho is given", "drop it")
    most = WORTH_IT * 2.0 * measured_in(policy.steps_charged) ** 2 if noise == "auto" else math.inf
    for choice, copies in _candidates(policy, columns, measured_in, laws):
        sharing = Sharing(choice, sensitivity, budget.epsilon * part, copies, part)
        if noise in ("auto", sharing.choice.law) and sharing.choice.variance <= most and drawable(sharing):
            return sharing
    if noise == "auto":
        return None
    raise InvalidParameter(
        "noise", noise, "a law that exists for this policy and its columns", 'write noise="auto"'
    )


def _candidates(
    policy: Policy,
    columns: int,
    measured_in: Callable[[int], int],
    laws: Laws | None,
) -> list[tuple[Choice, int]]:
    """All laws that share noise, the one with the least variance first, and how many copies there are of each."""
    from tidegate.noise.shared.choice import choices, horizon_choice

    apart = columns_apart(policy, columns)
    together, copies = (1, columns) if apart else (columns, 1)
    horizon = policy.horizon
    if laws is not None:
        found = list(laws(together))
    elif horizon is not None and (policy.window is None or horizon <= policy.window):
        found = [horizon_choice(measured_in(horizon), together)]
    else:
        found = list(choices(measured_in(policy.steps_charged), together))[1:]
    return [(choice, copies) for choice in sorted(found, key=lambda choice: choice.variance)]


def columns_apart(policy: Policy, columns: int) -> bool:
    """Whether columns have noise of their own at the full budget: who stays in one of them changes no other."""
    return columns > 1 and policy.mobility == "fixed" and policy.adjacency == "add-remove"


def drawable(sharing: Sharing) -> bool:
    """Whether the numbers fit, and points of a ball are found in a few attempts (see docs/proofs/noise_cube.md)."""
    choice = sharing.choice
    try:
        scale = sharing.scale
    except InvalidParameter:
        return False
    if choice.law == "semiorder" or choice.columns == 1:
        return True
    # an attempt fails where two of d columns fall together, or a zero is negative: about 1.5·d²/radius times
    return scale * (choice.columns * min(choice.lengths) + 1) >= choice.columns**2
