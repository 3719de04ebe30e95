"""The attack on discovery: random cases of records at its public thresholds, by enumeration.

What is enumerated is the shipped code, except that noise is taken to be what the configuration says (its tests draw it).
A pair of streams has four columns: of how many other units there is a record in each of two categories, and the records
of the one unit that neighbours differ in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from tests.mechanisms.discovery_enumeration import Stream, exact_delta

from tidegate.audit.auditor import finding
from tidegate.audit.neighbours import Counts, Pair, chooser
from tidegate.audit.subjects import Callee, Stopwatch
from tidegate.audit.verdicts import CLEAN, VIOLATES, Finding
from tidegate.mechanisms.discovery.discover import Discover

NAMES = "ab"
SURELY = 1 + 1e-7
MOST = 64  # units of a category


def records(stream: Counts) -> Stream:
    """The records that a stream stands for."""
    shown = []
    for row in stream.tolist():
        counted = zip(NAMES, row[: len(NAMES)], strict=True)
        others = [(f"{name} {unit}", name) for name, many in counted for unit in range(many)]
        own = [name for name, many in zip(NAMES, row[len(NAMES) :], strict=True) if many]
        shown.append(others + [("the unit", name) for name in own])
    return shown


def pairs(mechanism: Discover) -> Iterator[Pair]:
    """Neighbours on which categories open, stay and close with and without the unit."""
    epoch, policy, choose = mechanism.steps_per_epoch, mechanism.policy, chooser("discovery")
    limit, staying = mechanism.selection.threshold, mechanism.staying
    steps, each = min(3 * epoch, policy.horizon or 3 * epoch), len(NAMES)
    levels = [min(level, MOST) for level in (0, 0, 1, staying - 1, staying, limit - 1, limit, limit + 8)]
    while True:
        first = np.zeros((steps, 2 * each), dtype=np.int64)
        for at in range(0, steps, epoch):
            first[at, :each] = [levels[choose(len(levels))] for _ in NAMES]
        if choose(2):  # open for certain, then next to nobody
            first[0, :each], first[epoch:, :each] = levels[-1], 0
        second, window = first.copy(), min(policy.window or steps, steps)
        begin = choose(steps - window + 1)
        for at in range(begin, begin + window):
            if choose(3):
                second[at, each + choose(each)] = 1
                if policy.adjacency == "replace" and choose(2):
                    first[at, each + choose(each)] = 1
        if policy.distance(first, second) == 1:
            yield Pair(first, second, "records of one unit")


def attack(mechanism: Discover, *, seconds: float, name: str) -> Finding:
    """Enumerate as many cases as there is time for, in both directions, with counts and without them."""
    watch, made = Stopwatch(), pairs(mechanism)
    looked = Callee(records, mechanism.policy, columns=2 * len(NAMES), name=name)
    allowed = float(mechanism.policy.delta)
    while watch.seconds() < seconds:
        pair = next(made)
        one, other = records(pair.first), records(pair.second)
        lost = max(exact_delta(mechanism, *each, counts=True) for each in ((one, other), (other, one)))
        if lost > allowed * SURELY:
            words = f"chances differ by {lost:.4g} beyond e^ε, where δ is {allowed:.4g}"
            return finding(
                looked, VIOLATES, math.inf, "exact", 0.0, pair=pair, words=words, angle="records, enumerated"
            )
    return finding(looked, CLEAN, 0.0, "none", 0.0, angle="records, enumerated")
