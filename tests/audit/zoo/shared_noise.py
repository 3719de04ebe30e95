"""Mutants of noise that steps share: groups, radii, windows and signs that are not what was paid for.

The laws are the shipped ones, asked for other numbers than the policy allows, or gone on with once too often.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from tests.audit import models
from tests.audit.zoo.animal import EXACT, Animal, Floats

from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee
from tidegate.noise import current, laplace
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder
from tidegate.policy import Policy, User, WEvent

Integers = npt.NDArray[np.int64]


class Grouped(Callee):
    """The cube on groups, each of which has paid for `paid` steps, in a form that can be sampled and enumerated."""

    def __init__(
        self, policy: Policy, scale: float, lengths: tuple[int, ...], paid: int | None = None
    ) -> None:
        super().__init__(self._release, policy, 1, "the cube on groups", many=True)
        self.law = Cube(scale, lengths)
        self.program = models.grouped(scale, lengths, paid=paid)

    def _release(self, stream: Counts, count: int) -> Floats:
        law = Cube(self.law.scale, self.law.lengths, copies=count)
        noise = law.draw(current(), "zoo", 0, law.start(), len(stream))[0]
        return (stream + noise).T


def sliding(
    policy: Policy, scale: float, width: int, alter: Callable[[Integers], Integers] = lambda noise: noise
) -> Callee:
    """The semiorder of a width, whose noise (steps × transcripts) is altered before it is added."""

    def release(stream: Counts, count: int) -> Floats:
        law = Semiorder(scale, width, copies=count)
        noise = law.draw(current(), "zoo", 0, law.start(), len(stream))[0]
        return (stream + alter(noise)).T

    return Callee(release, policy, 1, "the semiorder", many=True)


def rising(policy: Policy, scales: tuple[float, ...], width: int, goes_on: bool) -> Callee:
    """A semiorder whose budget grows, as Tide's does: each step has its scale, of the same arrivals or of new ones."""

    def release(stream: Counts, count: int) -> Floats:
        drawn, state, before = [], None, None
        for step, scale in enumerate(scales[: len(stream)]):
            law = Semiorder(scale, width, copies=count)
            if state is None or (scale != before and not goes_on):
                state = law.start()
            noise, state = law.draw(current(), f"zoo {step}", 0, state)
            drawn.append(noise[0])
            before = scale
        return (stream + np.array(drawn)).T

    return Callee(release, policy, 1, "a semiorder whose budget grows", many=True)


def all_at_once(policy: Policy, own: float, scale: float, width: int) -> Callee:
    """A measurement with noise of its own, and at once after it a semiorder with the budget of the whole window."""

    def release(stream: Counts, count: int) -> Floats:
        law = Semiorder(scale, width, copies=count)
        sliding, _ = law.draw(current(), "zoo", 1, law.start(), len(stream) - 1)
        first = laplace(current(), "zoo first", 0, own, (1, count))
        return (stream + np.concatenate([first, sliding])).T

    return Callee(release, policy, 1, "a semiorder that did not wait", many=True)


def gone_on_with_twice(policy: Policy, scale: float, length: int) -> Callee:
    """A group that two runs go on with from one snapshot: everybody sees what both of them release."""

    def release(stream: Counts, count: int) -> Floats:
        law = Cube(scale, (length,), copies=count)
        first, state = law.draw(current(), "zoo", 0, law.start(), 1)
        both = [law.draw(current(), f"zoo {run}", 1, state, len(stream) - 1)[0] for run in range(2)]
        rest = np.concatenate([stream[1:] + noise for noise in both])
        return np.concatenate([stream[:1] + first, rest]).T

    return Callee(release, policy, 1, "the cube, restored twice", many=True)


def one_sign(noise: Integers) -> Integers:
    """The sign of the first step for all of them."""
    return np.abs(noise) * np.where(noise[:1] < 0, -1, 1)


def animals() -> list[Animal]:
    """All of them; ε = 3 over a window of two or three steps."""
    pairs, triples = WEvent(epsilon="3", window=2), WEvent(epsilon="3", window=3)
    everything = User(epsilon="3", horizon=2)
    all_of_it, a_half = (
        float(Fraction(1, 3)),
        float(Fraction(2, 3)),
    )  # Δ/ε, and Δ over the share of two groups
    return [
        Animal("a group that was not counted", "a window meets two groups, each has all of ε",
               lambda: Grouped(pairs, all_of_it, (2,)), 2.0, EXACT, steps=3),
        Animal("a group of one step more", "two values of a radius that was drawn for one",
               lambda: Grouped(pairs, a_half, (2,), paid=1), math.inf, EXACT, steps=3),
        Animal("a group that is gone on with twice", "one snapshot, two runs: a radius has more values than it paid for",
               lambda: gone_on_with_twice(everything, all_of_it, 2), math.inf, steps=2),
        Animal("one radius for ever", "all steps lie within the radius of two",
               lambda: Grouped(pairs, a_half, (6,), paid=2), math.inf, EXACT, steps=5),
        Animal("a window one step too long", "three steps share noise for windows of two",
               lambda: sliding(triples, all_of_it, 2), 2.0, steps=3),
        Animal("one sign for all steps", "a change that goes up and down shows",
               lambda: sliding(pairs, all_of_it, 2, one_sign), math.inf, steps=2),
        Animal("arrivals drawn anew when the budget grows", "two semiorders in a window, of which one was charged",
               lambda: rising(pairs, (a_half, all_of_it, all_of_it), 2, goes_on=False), 1.5, steps=3),
        Animal("a semiorder that did not wait for its budget", "the window of the measurement before it loses ε/2 more",
               lambda: all_at_once(pairs, a_half, all_of_it, 2), 1.5, steps=3),
    ]  # fmt: skip
