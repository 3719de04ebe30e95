"""The shipped mechanisms as they are attacked: small configurations on which a mistake would show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.audit.attack import attack

from tidegate.audit.auditor import audit
from tidegate.audit.verdicts import Finding
from tidegate.mechanisms.clipping.clipped_average import ClippedAverage
from tidegate.mechanisms.clipping.clipped_decay import ClippedDecay
from tidegate.mechanisms.clipping.clipped_histogram import ClippedHistogram
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.clipping.tops import ToPS
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.endless_sum import EndlessSum
from tidegate.mechanisms.counters.factorization import Factorization
from tidegate.mechanisms.counters.gradual_tree import GradualTree
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.optstream.feature_trees import whole_period
from tidegate.mechanisms.optstream.fourier import Fourier
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.pegasus.ada_pub import AdaPub
from tidegate.mechanisms.pegasus.backward_smoothing import BackwardSmoothing
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.dsat import DSAT
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sampled.rescue_dp import RescueDP
from tidegate.mechanisms.swellfish.swellfish import Swellfish
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.mechanisms.w_event.personal import Requirement
from tidegate.mechanisms.w_event.personal_absorption import PersonalAbsorption
from tidegate.mechanisms.w_event.personal_distribution import PersonalDistribution
from tidegate.policy import Event, Secret, Specification, User, WEvent
from tidegate.policy import Swellfish as SwellfishPolicy
from tidegate.structures.hierarchy import Hierarchy


@dataclass(frozen=True)
class Shipped:
    """One configuration of a shipped mechanism.

    Attributes
    ----------
    name
        The mechanism and what is particular.
    mechanism
        The configuration.
    steps
        The usual length of the streams, where the default does not suit; others are tried as well.
    seconds
        How long the auditor may search, from all angles together.
    """

    name: str
    mechanism: Any
    steps: int | None = None
    seconds: float = 9.0

    def attack(self, error: float = 1e-6, seconds: float | None = None) -> Finding:
        """Try to refute its claim from every angle."""
        limit = seconds or self.seconds
        return attack(self.mechanism, error=error, seconds=limit, name=self.name, steps=self.steps)

    def audit(self, error: float = 1e-6, seconds: float = 8.0) -> Finding:
        """Try to refute its claim by one audit, of the usual length."""
        return audit(self.mechanism, steps=self.steps, seconds=seconds, error=error, name=self.name, seed=7)


def shipped() -> list[Shipped]:
    """At least one configuration of every mechanism of the catalogue."""
    one, window = Event(epsilon="1"), WEvent(epsilon="2", window=2)
    pairs = WEvent(epsilon="2", window=2, adjacency="replace")
    groups, personal = ((0,), (1,)), (Requirement("1/2", epsilon="1"),)
    watched = BudgetAbsorption(WEvent(epsilon="4", window=2), pan_private="single")
    watched_halves = BudgetDistribution(WEvent(epsilon="4", window=2), pan_private="single")
    lavish: dict[str, Any] = {
        "filter": False,
        "portion": 1.0,
        "most_portion": 1.0,
        "most": 1,
        "pace": None,
        "samples": 1,
    }
    grouped: dict[str, Any] = {"horizon": 5, "lag": 3, "above": 1, "group": 2}
    clipped: dict[str, Any] = {
        "horizon": 4,
        "lag": 3,
        "above": 1,
        "multiplier": 1,
        "share": "1/2",
        "estimator": "plain",
    }
    oven = Secret(3, 2, [(1, 4)], 1, "oven")
    house = Specification((oven, Secret(1, 2, "always", 1, "somebody is at home")), "house")
    chosen = [
        Shipped("Uniform, one event", Uniform(one), 1),
        Shipped("Uniform, w = 3", Uniform(WEvent(epsilon="1", window=3), noise="laplace"), 4),
        Shipped("Uniform, groups of steps", Uniform(WEvent(epsilon="1", window=4), noise="cube"), 6),
        Shipped("Uniform, noise that slides", Uniform(WEvent(epsilon="1", window=3), noise="auto"), 5),
        Shipped("Uniform, one user", Uniform(User(epsilon="1", horizon=3), noise="auto"), 3),
        Shipped("Uniform, replaced rows", Uniform(Event(epsilon="1", adjacency="replace"), columns=2), 2),
        Shipped("Uniform, (ε, δ)", Uniform(WEvent(epsilon="1", delta="1e-3", window=4)), 4),
        Shipped("Uniform, zCDP", Uniform(Event(rho="1/2")), 2),
        Shipped("Sample", Sample(WEvent(epsilon="1", window=3)), 5),
        Shipped("Sample, every second step", Sample(WEvent(epsilon="1", window=3), every=2), 5),
        Shipped(
            "Sample, groups of measurements", Sample(WEvent(epsilon="1", window=6), every=2, noise="cube"), 9
        ),
        Shipped("BudgetAbsorption", BudgetAbsorption(window, noise="laplace"), 5),
        Shipped(
            "BudgetAbsorption, w = 3", BudgetAbsorption(WEvent(epsilon="3", window=3), noise="laplace"), 5
        ),
        Shipped("BudgetAbsorption, tests that slide", BudgetAbsorption(WEvent(epsilon="3", window=3)), 5),
        Shipped("BudgetAbsorption, replaced rows", BudgetAbsorption(pairs, columns=2), 3),
        Shipped("BudgetAbsorption, groups that share", BudgetAbsorption(window, columns=2, groups=groups), 4),
        Shipped("BudgetAbsorption, shifted", BudgetAbsorption(window, columns=5, shift=True), 3),
        Shipped("BudgetAbsorption, pan-private, seen once", watched, 3, 12.0),
        Shipped("BudgetDistribution, pan-private, seen once", watched_halves, 3, 12.0),
        Shipped("BudgetDistribution", BudgetDistribution(window, noise="laplace"), 4),
        Shipped(
            "BudgetDistribution, w = 3", BudgetDistribution(WEvent(epsilon="3", window=3), noise="laplace"), 4
        ),
        Shipped("BudgetDistribution, tests that slide", BudgetDistribution(WEvent(epsilon="3", window=3)), 4),
        Shipped("PersonalDistribution", PersonalDistribution(window, columns=2, requirements=personal), 4),
        Shipped("PersonalAbsorption", PersonalAbsorption(window, columns=2, requirements=personal), 4),
        Shipped(
            "Fast",
            Fast(WEvent(epsilon="2", window=4), columns=2, samples=2, filter=False, noise="laplace"),
            5,
        ),
        Shipped("Fast, noise that slides", Fast(WEvent(epsilon="2", window=4), samples=3, filter=False), 7),
        Shipped("Fast, zCDP", Fast(WEvent(rho="1/2", window=4), samples=2, filter=False), 5),
        Shipped("DSAT", DSAT(window, publications=1, test_share="1/2"), 5),
        Shipped("DSAT, w = 4", DSAT(WEvent(epsilon="2", window=4), publications=2, test_share="9/10"), 7),
        Shipped("RescueDP", RescueDP(window, **lavish), 3),
        Shipped("Blocks", Blocks(Uniform(User(epsilon="1", horizon=2))), 4),
        Shipped("PeGaSus", PeGaSus(one), 4),
        Shipped(
            "PeGaSus, half for groups", PeGaSus(Event(epsilon="2"), perturber_share="1/2", threshold=2), 4
        ),
        Shipped("PeGaSus, noise that slides", PeGaSus(WEvent(epsilon="2", window=3), threshold=2), 5),
        Shipped("AdaPub", AdaPub(Event(epsilon="2"), columns=2, threshold_factor=5), 4),
        Shipped("AdaPub, w = 2", AdaPub(window, perturber_share="1/2"), 5),
        Shipped(
            "HierarchicalPeGaSus", HierarchicalPeGaSus(Event(epsilon="2"), hierarchy=Hierarchy.balanced(4)), 1
        ),
        Shipped("BackwardSmoothing", BackwardSmoothing(one, back=2), 4),
        Shipped("BinaryTree", BinaryTree(one, horizon=7, estimator="plain"), 6),
        Shipped("BinaryTree, w = 3, Honaker", BinaryTree(WEvent(epsilon="2", window=3), horizon=7), 5),
        Shipped("GradualTree", GradualTree(one, horizon=6), 4),
        Shipped("HybridTree", HybridTree(one, estimator="plain"), 4),
        Shipped("SlidingWindowTree", SlidingWindowTree(one, window=3, estimator="plain"), 4),
        Shipped("Factorization", Factorization(Event(rho="1/2"), horizon=4, method="square-root"), 4),
        Shipped("Factorization, BLT", Factorization(Event(rho="1/2"), horizon=4), 3),
        Shipped("EndlessSum", EndlessSum(Event(rho="1/2")), 4),
        Shipped("EndlessSum, w = 3", EndlessSum(WEvent(rho="1/2", window=3)), 5),
        Shipped(
            "OptStream",
            OptStream(WEvent(epsilon="2", window=4), samples=2, features=(whole_period(4),), noise="laplace"),
            8,
        ),
        Shipped("OptStream, noise that slides", OptStream(WEvent(epsilon="2", window=4), samples=3), 8),
        Shipped(
            "OptStream, groups of samples",
            OptStream(WEvent(epsilon="2", window=4), samples=3, noise="cube"),
            8,
        ),
        Shipped(
            "OptStream, adaptive", OptStream(WEvent(epsilon="6", window=4), samples=2, adaptive=True), 8, 12.0
        ),
        Shipped(
            "OptStream, adaptive samples that share",
            OptStream(
                WEvent(epsilon="2", window=4), samples=3, adaptive=True, split=("1/50", 1, 0), noise="cube"
            ),
            8,
            12.0,
        ),
        Shipped(
            "HierarchicalOptStream",
            HierarchicalOptStream(window, hierarchy=Hierarchy.balanced(2), samples=1),
            4,
        ),
        Shipped(
            "HierarchicalOptStream, samples per leaf",
            PerLeafOptStream(
                WEvent(epsilon="6", window=4, mobility="fixed"),
                hierarchy=Hierarchy.from_parents({"north": None, "south": None}),
                samples=2,
            ),
            8,
        ),
        Shipped("Swellfish", Swellfish(SwellfishPolicy(specifications=(house,))), 6),
        Shipped("Tide", Tide(one), 1),
        Shipped("Tide, w = 2", Tide(window, delay=0, noise="laplace"), 3),
        Shipped(
            "Tide, groups of measurements", Tide(WEvent(epsilon="2", window=4), delay=0, noise="cube"), 7
        ),
        Shipped("Tide, noise that slides", Tide(window, delay=0), 8),
        Shipped("Tide, zCDP", Tide(WEvent(rho="2", window=2), delay=0), 3),
        Shipped("Fourier", Fourier(WEvent(epsilon="1", window=4), coefficients=2), 4),
        Shipped("ClippedSum", ClippedSum(Event(epsilon="2", max_change=4), **clipped), 4),
        Shipped("ToPS", ToPS(Event(epsilon="2", max_change=4), **grouped), 5),
        Shipped("ToPS, balance", ToPS(Event(epsilon="2", max_change=4), threshold="balance", **grouped), 5),
    ]
    rest = (ClippedAverage, ClippedDecay, ClippedHistogram)
    return chosen + [Shipped(kind.__name__, (kind.examples()[0])) for kind in rest]
