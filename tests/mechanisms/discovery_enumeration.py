"""Exact losses of discovery on small streams: every release that can be, with its chance under two neighbours.

What is enumerated is the shipped code: its bounding, its tests, its thresholds, its counts and its opening of columns are
called with every outcome of their noise. Only the chances of noise are computed here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tidegate.mechanisms.discovery.discover import Discover, State
from tidegate.mechanisms.discovery.discovered import as_names
from tidegate.mechanisms.discovery.occurrences import Step

Pairs = Sequence[tuple[Any, ...]]
Stream = Sequence[Pairs]
Open = tuple[str, ...]
NEGLIGIBLE = 1e-13  # chances of single outcomes below it count for the accused
REACH = 12  # deviations to which outcomes are enumerated


class Side:
    """What one stream is to a mechanism, computed by the mechanism's own methods."""

    def __init__(self, mechanism: Discover, stream: Stream) -> None:
        self.mechanism = mechanism
        collector = mechanism.collector()
        self.steps: list[Step] = [collector.step(pairs) for pairs in stream]
        self._pairs = {}
        for number, step in enumerate(self.steps, 1):
            if number % mechanism.steps_per_epoch == 0:
                self._pairs[number] = mechanism.pairs(step, number - mechanism.steps_per_epoch + 1, number)
        self._tested: dict[tuple[int, Open], dict[str, tuple[int, int]]] = {}
        self._counts: dict[tuple[int, Open], tuple[int, ...]] = {}

    def tested(self, number: int, open_: Open) -> dict[str, tuple[int, int]]:
        """Units and the least passing noisy number of each tested category; by asking whether it passes."""
        if (number, open_) not in self._tested:
            found = self.mechanism.tested(self._pairs[number], list(open_))
            least = np.full(len(found.units), -10_000)
            for noisy in range(-60, 400):
                passes = self.mechanism.passes(found, np.full(len(found.units), noisy))
                least = np.where(passes & (least == -10_000), noisy, least)
            least = np.where(least == -10_000, 10_000, least)  # never
            self._tested[number, open_] = {
                name: (units, bound)
                for name, units, bound in zip(
                    found.names.to_list(), found.units.tolist(), least.tolist(), strict=True
                )
            }
        return self._tested[number, open_]

    def counts(self, number: int, open_: Open) -> tuple[int, ...]:
        """The counts of a step where these categories are open, by category and then of the rest; or sums, and counts."""
        if (number, open_) not in self._counts:
            state = opened(self.mechanism, open_)
            found = self.mechanism._counted(state, self.steps[number - 1])
            places = {name: at for at, name in enumerate(as_names(state.names)) if name}
            self._counts[number, open_] = tuple(
                int(part[at])
                for part in found.reshape(-1, self.mechanism.columns + 1)
                for at in (*(places[name] for name in open_), -1)
            )
        return self._counts[number, open_]


def opened(mechanism: Discover, names: Iterable[str]) -> State:
    """A state in which these categories are open."""
    state: State = mechanism.begin(1)
    mechanism._open(state, dict.fromkeys(names, 0), 1)
    return state


@cache
def gaussian_masses(sigma: float) -> dict[int, float]:
    """Chances of the discrete Gaussian, as far as they matter."""
    reach = math.ceil(REACH * sigma)
    weights = {z: math.exp(-z * z / (2 * sigma * sigma)) for z in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


Outcomes = dict[Any, tuple[float, float]]


def tested_outcomes(sigma: float, one: tuple[int, int] | None, other: tuple[int, int] | None) -> Outcomes:
    """What a category may show, with its chances: a noisy number that passed, or None."""
    found: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for side, tested in enumerate((one, other)):
        if tested is None:
            found[None][side] += 1.0
            continue
        units, least = tested
        for z, chance in gaussian_masses(sigma).items():
            found[units + z if units + z >= least else None][side] += chance
    return {shown: (chances[0], chances[1]) for shown, chances in found.items()}


@cache
def count_outcomes(scale: float, one: int, other: int) -> list[tuple[float, float]]:
    """Chances of what two different counts may show with Laplace noise, those with one ratio together."""
    q = math.exp(-1 / scale)
    low, high = min(one, other), max(one, other)
    between = [
        ((1 - q) / (1 + q) * q ** abs(value - one), (1 - q) / (1 + q) * q ** abs(value - other))
        for value in range(low + 1, high)
    ]
    ends = [(q ** abs(end - one) / (1 + q), q ** abs(end - other) / (1 + q)) for end in (low, high)]
    return between + ends


def exact_delta(
    mechanism: Discover, one: Stream | Side, other: Stream | Side, *, counts: bool = False
) -> float:
    """By how much chances under the first stream exceed e^ε times those under the other, over all releases.

    Without `counts` the releases of tests alone, at the ε of their share.
    """
    policy = mechanism.policy
    epsilon = float(policy.epsilon) * (1.0 if counts else float(mechanism.share))
    sides = [each if isinstance(each, Side) else Side(mechanism, each) for each in (one, other)]
    sigma = mechanism.sigma
    lost = 0.0  # what the other stream cannot release
    standing: dict[tuple[Open, float], float] = {
        ((), 0.0): 1.0
    }  # open categories, log-ratio: chance under the first
    for number in range(1, len(sides[0].steps) + 1):
        moved: dict[tuple[Open, float], float] = defaultdict(float)
        if number % mechanism.steps_per_epoch == 0:
            for (open_, ratio), chance in standing.items():
                tested = [side.tested(number, open_) for side in sides]
                branches: dict[tuple[Open, float], float] = {((), ratio): chance}
                for name in sorted({*tested[0], *tested[1]}):
                    outcomes = tested_outcomes(sigma, tested[0].get(name), tested[1].get(name))
                    branches, gone = multiplied(branches, outcomes, name)
                    lost += gone
                for key, mass in branches.items():
                    moved[key] += mass
            standing = moved
        if counts:
            further: dict[tuple[Open, float], float] = defaultdict(float)
            for (open_, ratio), chance in standing.items():
                branches = {(open_, ratio): chance}
                found = [side.counts(number, open_) for side in sides]
                for left, right in zip(*found, strict=True):
                    if left != right:
                        each = count_outcomes(mechanism.counts.scale, left, right)
                        branches, _ = multiplied(branches, dict(enumerate(each)), None)
                for key, mass in branches.items():
                    further[key] += mass
            standing = further
    for (_, ratio), chance in standing.items():
        lost += chance * max(0.0, 1.0 - math.exp(epsilon - ratio))
    return lost


def multiplied(
    branches: dict[tuple[Open, float], float], outcomes: Outcomes, name: str | None
) -> tuple[dict[tuple[Open, float], float], float]:
    """Branches with one more independent outcome, and the chance of what the other stream cannot release."""
    merged: dict[tuple[bool, float], float] = defaultdict(float)
    impossible = 0.0
    for shown, (first, second) in outcomes.items():
        if first < NEGLIGIBLE:
            continue
        if second == 0.0:
            impossible += first
        else:
            merged[name is not None and shown is not None, round(math.log(first / second), 9)] += first
    found: dict[tuple[Open, float], float] = defaultdict(float)
    lost = 0.0
    for (open_, ratio), chance in branches.items():
        lost += chance * impossible
        for (opens, step), mass in merged.items():
            key = ((*open_, name) if opens and name is not None else open_, round(ratio + step, 9))
            found[key] += chance * mass
    return {key: mass for key, mass in found.items() if mass > 1e-16}, lost
