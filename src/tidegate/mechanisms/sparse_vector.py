"""The sparse vector technique: noise scales for a run of tests that ends after a fixed number of hits.

A run compares questions with a noisy threshold, one after the other, and pays only for the hits.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, positive, whole


@dataclass(frozen=True)
class SparseVector:
    """One run of tests ``question + ν ≥ threshold + ρ`` that is over after `hits` tests came out true.

    Half of ε pays for the noisy threshold, half for the hits. Questions and thresholds are whole numbers.

    Parameters
    ----------
    epsilon
        The budget of the run.
    sensitivity
        The most that any question's answer can differ between neighbours: a whole number.
    hits
        After how many hits the run is over.
    monotone
        Whether all answers move in the same direction from one neighbour to the other.

    Privacy
    -------
    ρ ~ Lap(2S/ε), once for the run; ν ~ Lap(4·hits·S/ε) for each test, or Lap(2·hits·S/ε) for monotone
    questions (Lyu, Su and Li 2017, with integer noise; docs/proofs/sparse_vector.md). Only the answers
    "below" and "hit" may be released, never a noisy answer. Data that entered one run must not enter another
    with the same budget.

    Examples
    --------
    >>> run = SparseVector(Fraction(1, 5), sensitivity=2)
    >>> run.threshold_scale, run.question_scale
    (20.0, 40.0)

    References
    ----------
    Dwork, Roth: The algorithmic foundations of differential privacy, section 3.6. 2014.
    Lyu, Su, Li: Understanding the sparse vector technique for differential privacy. PVLDB 2017.
    """

    epsilon: ExactLike
    sensitivity: int
    hits: int = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "epsilon", positive("epsilon", self.epsilon))
        put(self, "sensitivity", whole("sensitivity", self.sensitivity))
        put(self, "hits", whole("hits", self.hits))
        if not isinstance(self.monotone, bool):
            raise InvalidParameter("monotone", self.monotone, "True or False", "leave it out if in doubt")

    @cached_property
    def threshold_scale(self) -> float:
        """The scale of ρ, rounded up."""
        return float_up(2 * self.sensitivity / Fraction(self.epsilon))

    @cached_property
    def question_scale(self) -> float:
        """The scale of ν, rounded up."""
        factor = 2 if self.monotone else 4
        return float_up(factor * self.hits * self.sensitivity / Fraction(self.epsilon))
