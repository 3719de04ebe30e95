"""Exact losses of early tests on small streams: every noise on a coarse lattice, with its chance under two neighbours.

What is enumerated is the shipped bounding, calibration and estimate; only the chances of noise, and what a number shows,
are computed here. Ratios are rounded up, so that a loss is never too small, or down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.mechanisms.discovery_enumeration import Stream, gaussian_masses

from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.discovery.occurrences import CATEGORY, STEP

GRID = 256  # ratios are multiples of one over it
REACH = 7  # deviations to which noise is enumerated
WIDEST = 24.0  # larger ratios are as good as this one
NOTHING = -10_000

Open = frozenset[str]


class Ratios:
    """The law of a log-ratio on a grid, and the chance that it is infinite."""

    def __init__(self, mass: np.ndarray, infinite: float) -> None:
        self.mass, self.infinite = mass, infinite

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, *, up: bool) -> Ratios:
        """Of outcomes with these chances under either stream."""
        zero = round(WIDEST * GRID)
        mass = np.zeros(2 * zero + 1)
        both = (first > 0) & (second > 0)
        ratio = np.log(first[both] / second[both]) * GRID
        at = (np.ceil(ratio - 1e-6) if up else np.floor(ratio + 1e-6)).astype(int)
        np.add.at(mass, np.clip(at + zero, 0, 2 * zero), first[both])
        return cls(mass, float(first[second == 0].sum()))

    def and_then(self, other: Ratios) -> Ratios:
        """Of two independent outcomes; the total of the first may be below one."""
        zero = round(WIDEST * GRID)
        size = 1 << (4 * zero + 1).bit_length()
        product = np.fft.irfft(np.fft.rfft(self.mass, size) * np.fft.rfft(other.mass, size), size)
        full = np.maximum(product[: 4 * zero + 1], 0.0)
        mass = full[zero : 3 * zero + 1].copy()
        mass[0] += full[:zero].sum()
        mass[-1] += full[3 * zero + 1 :].sum()
        total, weight = self.mass.sum() + self.infinite, other.mass.sum() + other.infinite
        return Ratios(mass, float(total * weight - self.mass.sum() * other.mass.sum()))

    def __add__(self, other: Ratios) -> Ratios:
        return Ratios(self.mass + other.mass, self.infinite + other.infinite)


def units_of(mechanism: Discover, stream: Stream) -> list[dict[str, tuple[int, ...]]]:
    """For each epoch, of each category how many units have it first at which step."""
    epoch, collector, found = mechanism.steps_per_epoch, mechanism.collector(), []
    for number, pairs in enumerate(stream, 1):
        step = collector.step(pairs)
        if number % epoch:
            continue
        begin = number - epoch + 1
        units: dict[str, list[int]] = defaultdict(lambda: [0] * epoch)
        for row in mechanism.pairs(step, begin, number).iter_rows(named=True):
            units[row[CATEGORY]][row[STEP] - begin] += 1
        found.append({name: tuple(each) for name, each in units.items()})
    return found


def noises(sigma: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Every noise of the steps of an epoch, and its chance."""
    masses = {z: p for z, p in gaussian_masses(sigma).items() if abs(z) <= REACH * sigma}
    values, chances = np.array(list(masses)), np.array(list(masses.values()))
    each = np.meshgrid(*[values] * steps, indexing="ij")
    together = np.ones(1)
    for _ in range(steps):
        together = np.multiply.outer(together, chances).ravel()
    return np.array([grid.ravel() for grid in each]), together


def shown(mechanism: Discover, units: Sequence[int], noise: np.ndarray, *, is_open: bool) -> np.ndarray:
    """What a category shows in an epoch, for each noise: its number where it opens, and at the end where it is open."""
    steps, tests = len(units), mechanism.tests
    found = np.full((steps, noise.shape[1]), NOTHING)
    open_ = np.full(noise.shape[1], is_open)
    for at in range(steps):
        given = np.repeat(np.array(units[: at + 1], dtype=np.int64)[:, None], noise.shape[1], axis=1)
        number = tests.noisy(given, noise[: at + 1])
        here = sum(units[: at + 1]) > 0
        passes = ~open_ & here & (number >= tests.thresholds[at])
        if at == steps - 1:
            stays = open_ & (number >= mechanism.staying)
            passes, open_ = passes | stays, passes | stays
        else:
            open_ = open_ | passes
        found[at] = np.where(passes, number, NOTHING)
    return found


def outcomes(
    mechanism: Discover, one: Sequence[int], other: Sequence[int], *, is_open: bool, up: bool
) -> dict[bool, Ratios]:
    """The law of the ratio, with the category open at the end of the epoch, and without."""
    noise, chances = noises(mechanism.tests.sigma, len(one))
    sides = [shown(mechanism, each, noise, is_open=is_open) for each in (one, other)]
    every = np.concatenate(sides, axis=1) - NOTHING
    codes = np.zeros(every.shape[1], dtype=np.int64)
    for each in every:
        codes = codes * (-2 * NOTHING) + each
    _, example, place = np.unique(codes, return_index=True, return_inverse=True)
    size = len(example)
    first, second = (
        np.bincount(part, chances, size) for part in (place[: len(chances)], place[len(chances) :])
    )
    stays = every[-1][example] != 0
    return {
        end: Ratios.of(first[stays == end], second[stays == end], up=up)
        for end in (True, False)
        if (stays == end).any()
    }


def early_delta(mechanism: Discover, one: Stream, other: Stream, *, up: bool = True) -> float:
    """By how much chances under the first stream exceed e^ε times those under the other, for early tests alone."""
    epsilon = float(mechanism.policy.epsilon) * float(mechanism.share)
    zero = round(WIDEST * GRID)
    begun = np.zeros(2 * zero + 1)
    begun[zero] = 1.0
    standing: dict[Open, Ratios] = {frozenset(): Ratios(begun, 0.0)}
    nobody = (0,) * mechanism.steps_per_epoch
    known: dict[Any, dict[bool, Ratios]] = {}
    for left, right in zip(units_of(mechanism, one), units_of(mechanism, other), strict=True):
        for name in sorted({*left, *right, *(each for open_ in standing for each in open_)}):
            moved: dict[Open, Ratios] = {}
            for open_, law in standing.items():
                key = (left.get(name, nobody), right.get(name, nobody), name in open_)
                if key not in known:
                    known[key] = outcomes(mechanism, key[0], key[1], is_open=key[2], up=up)
                for end, further in known[key].items():
                    if further.mass.sum() + further.infinite < 1e-13:
                        continue
                    now = open_ | {name} if end else open_ - {name}
                    made = law.and_then(further)
                    moved[now] = moved[now] + made if now in moved else made
            standing = moved
    ratio = (np.arange(2 * zero + 1) - zero) / GRID
    beyond = np.maximum(0.0, -np.expm1(np.minimum(epsilon - ratio, 50.0)))
    return sum(float((law.mass * beyond).sum()) + law.infinite for law in standing.values())
