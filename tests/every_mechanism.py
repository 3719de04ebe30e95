"""Every mechanism of the core, found by what it has, and small configurations of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np

import tidegate.mechanisms
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.policy import Event, User, WEvent
from tidegate.structures.value_bins import ValueBins
from tidegate.testing.trials import Subject

ASKED = ("begin", "public", "advance", "describe")  # what makes a class a mechanism of the core
BOUND = 500


def mechanisms() -> Iterator[type[Any]]:
    """All classes of the package that are mechanisms, in the order of their files."""
    for module in walk_packages(tidegate.mechanisms.__path__, tidegate.mechanisms.__name__ + "."):
        for found in vars(import_module(module.name)).values():
            own = inspect.isclass(found) and found.__module__ == module.name
            if own and all(hasattr(found, name) for name in ASKED) and not inspect.isabstract(found):
                yield found


@cache
def subjects() -> tuple[Subject, ...]:
    """Every example of every mechanism, with what is pushed to it."""
    found = []
    for kind in mechanisms():
        made = OWN[kind]() if kind in OWN else [Subject(each) for each in kind.examples()]
        for number, subject in enumerate(made):
            found.append(Subject(subject.mechanism, subject.stream, f"{kind.__name__}-{number}"))
    return tuple(found)


def _thresholds() -> list[Subject]:
    policies = Event(epsilon="1", max_change=BOUND), WEvent(epsilon="3", window=3, max_change=BOUND)
    return [Subject(Threshold(policy, sample=150, above=5)) for policy in policies]


def _records() -> list[Subject]:
    bins, learn = ValueBins(BOUND), 20
    policy = WEvent(epsilon="3", window=3, max_change=BOUND)
    built: list[Callable[[Any], Any]] = [
        lambda policy: BinaryTree(policy, horizon=4000),
        lambda policy: Uniform(policy, noise="cube"),
        lambda policy: SlidingWindowTree(policy, window=6),
        BudgetAbsorption,
    ]

    def receipts(steps: int) -> Any:
        """Steps of records; every fourth is empty."""
        records = [
            [] if step % 4 == 2 else [(11 * step + 7 * at) % 43 for at in range(30)] for step in range(steps)
        ]
        return np.asarray(bins.of_steps(records))

    return [Subject(ClippedRecords(policy, build=build, bins=bins, learn=learn), receipts) for build in built]


def _blocks() -> list[Subject]:
    half = User(epsilon="1/2", horizon=5)
    inside: list[Any] = [
        Uniform(half, columns=2),
        Uniform(half, columns=2, noise="laplace"),
        Uniform(User(rho="1/2", horizon=1)),
        Sample(User(epsilon="1", horizon=12, adjacency="replace"), columns=3, grid="0.5", every=5),
        Fast(User(epsilon="1/2", horizon=20), samples=12, noise="cube"),
        BinaryTree(User(epsilon="1", horizon=8), columns=2, horizon=8),
    ]
    return [Subject(Blocks(each)) for each in inside]


def _discover() -> list[Subject]:
    return [Subject(each, partial(visits, each)) for each in Discover.examples()]


def visits(mechanism: Discover, steps: int) -> Any:
    """Steps of units and categories: some categories that many units have, and some that hardly any has."""
    collector, found = mechanism.collector(), np.empty(steps, dtype=object)
    for at in range(steps):
        many = 0 if at % 7 == 5 else 60 if at // 20 % 2 else 25
        pairs = [(unit, "abc"[unit % 2 if at < 30 else 2]) for unit in range(many)]
        rows: list[Any] = [*pairs, (at % 5, f"lone {at % 11}"), (90 + at % 3, "é")]
        if mechanism.adds_values:
            rows = [(*pair, number % 13 - 2) for number, pair in enumerate(rows)]
        found[at] = collector.step(rows)
    return found


# examples of those that have none, or none of this core
OWN: dict[type[Any], Callable[[], list[Subject]]] = {
    Threshold: _thresholds,
    ClippedRecords: _records,
    Blocks: _blocks,
    Discover: _discover,
}
