"""The exact tester: every transcript of a small case, with its exact chance under both neighbours.

An algorithm is written as a program that asks for its noise (`models` has those of the papers). The
enumerator answers every question in every possible way and multiplies chances: discrete Laplace noise has closed
forms for single values and for tails. Hidden noise, such as a noisy threshold that enters several tests, is
summed over all of its values but a tail whose mass is bounded, and the bound goes against the accuser.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import neighbours
from tidegate.audit.neighbours import Counts, Pair
from tidegate.errors import TidegateError
from tidegate.policy import Policy

Floats = npt.NDArray[np.float64]

TAIL = 1e-13  # mass of hidden noise that is left out, each time
MOST_TRANSCRIPTS = 200_000


class _Open(Exception):
    """The program asked a question that is not answered yet."""

    def __init__(self, kind: str, centre: int) -> None:
        self.kind, self.centre = kind, centre


class Draw:
    """Answers a program's questions as scripted, and multiplies their chances."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self._script, self._at = script, 0
        self._weights: Floats = np.ones(())
        self.left_out = 0.0

    def _answer(self, kind: str, centre: int) -> int:
        if self._at == len(self._script):
            raise _Open(kind, centre)
        self._at += 1
        return self._script[self._at - 1]

    def hidden(self, scale: float) -> npt.NDArray[np.int64]:
        """Noise that stays hidden: all of its values at once, to be calculated with."""
        reach = math.ceil(scale * math.log(2 / TAIL)) + 1
        values = np.arange(-reach, reach + 1)
        self._weights = self._weights[..., np.newaxis] * mass(values, scale)
        self.left_out += TAIL
        return values

    def test(self, margin: Any, scale: float) -> bool:
        """Whether margin + noise ≥ 0, which everybody sees."""
        said = self._answer("test", 0)
        chance = tail(-np.asarray(margin), scale)
        self._weights = self._weights * (chance if said else 1.0 - chance)
        return bool(said)

    def tell(self, value: Any) -> bool:
        """A test without noise: its outcome is certain, unless it depends on hidden noise."""
        said = self._answer("test", 0)
        true = np.asarray(value, dtype=bool)
        self._weights = self._weights * np.where(true if said else ~true, 1.0, 0.0)
        return bool(said)

    def radius(self, scale: float, length: int) -> npt.NDArray[np.int64]:
        """The hidden radius j of noise that is uniform on {−j, …, j} at each of so many steps: P(j) ∝ (2j + 1)^L·q^j."""
        reach = math.ceil(scale * (3 * length + 2 * math.log(1 / TAIL))) + 1  # the rest is far below TAIL
        values = np.arange(reach + 1)
        weights = np.exp(length * np.log(2.0 * values + 1.0) - values / scale)
        self._weights = self._weights[..., np.newaxis] * (weights / weights.sum())
        self.left_out += TAIL
        return values

    def value_within(self, centre: int, radii: npt.NDArray[np.int64]) -> int:
        """centre + noise that is uniform within a hidden radius, which everybody sees."""
        seen = self._answer("value", int(centre))
        inside = np.where(radii >= abs(seen - int(centre)), 1.0 / (2.0 * radii + 1.0), 0.0)
        self._weights = self._weights * inside
        return seen

    def value(self, centre: int, scale: float) -> int:
        """centre + noise, which everybody sees."""
        seen = self._answer("value", int(centre))
        self._weights = self._weights * mass(np.asarray(seen - int(centre)), scale)
        return seen

    def value_of_hidden(self, centre: int, hidden: Any) -> int:
        """centre + hidden noise, shown after all."""
        seen = self._answer("value", int(centre))
        self._weights = self._weights * np.where(np.asarray(hidden) == seen - int(centre), 1.0, 0.0)
        return seen

    def forget(self) -> None:
        """Hidden noise so far is not used any more: sum over it."""
        self._weights = np.asarray(self._weights.sum())

    def forget_last(self) -> None:
        """The hidden noise that was drawn last is not used any more."""
        self._weights = self._weights.sum(axis=-1)

    @property
    def chance(self) -> float:
        """The chance of the transcript, up to `left_out`."""
        return float(self._weights.sum())


Program = Callable[[Counts, Draw], Any]


@dataclass(frozen=True)
class ExactLoss:
    """The largest log-ratio over the transcripts of one pair.

    Attributes
    ----------
    loss
        A lower bound of it that is rigorous but for rounding; infinite where one side is impossible.
    transcript
        The answers that attain it.
    chances
        The chances of that transcript under the two streams.
    covered
        The mass of the transcripts that were enumerated, under the first stream.
    delta
        The mass by which the first stream's transcripts exceed e^ε times the second's, at the claimed ε.
    """

    loss: float
    transcript: tuple[int, ...]
    chances: tuple[float, float]
    covered: float
    delta: float
    pair: Pair | None = None


def mass(values: npt.NDArray[Any], scale: float) -> Floats:
    """P(X = k) of the discrete Laplace distribution."""
    q = math.exp(-1.0 / scale)
    return np.asarray((1.0 - q) / (1.0 + q) * np.exp(-np.abs(values) / scale))


def tail(least: npt.NDArray[Any], scale: float) -> Floats:
    """P(X ≥ m) of the discrete Laplace distribution."""
    q = math.exp(-1.0 / scale)
    m = np.asarray(least, dtype=np.float64)
    upper = np.exp(-np.maximum(m, 1.0) / scale) / (1.0 + q)
    lower = 1.0 - np.exp(-(1.0 - np.minimum(m, 0.0)) / scale) / (1.0 + q)
    return np.where(m > 0, upper, lower)


def largest_loss(program: Program, pair: Pair, epsilon: float, radius: int = 2) -> ExactLoss:
    """Enumerate the transcripts of a pair; visible values reach `radius` beyond both streams' true ones.

    Examples
    --------
    >>> pair = Pair(np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=np.int64), "one step")
    >>> round(largest_loss(lambda stream, draw: draw.value(stream[0, 0], 2.0), pair, 1.0).loss, 12)
    0.5
    """
    best = ExactLoss(0.0, (), (0.0, 0.0), 0.0, 0.0, pair)
    covered = delta = 0.0
    stack: list[tuple[int, ...]] = [()]
    seen = 0
    while stack:
        script = stack.pop()
        sides = [_run(program, stream, script) for stream in (pair.first, pair.second)]
        asked = [side for side in sides if isinstance(side, _Open)]
        if asked:
            stack += [(*script, option) for option in _options(asked, radius)]
            continue
        one, other = (side for side in sides if isinstance(side, Draw))
        seen += 1
        covered += one.chance
        delta += max(0.0, one.chance - math.exp(epsilon) * (other.chance + other.left_out))
        for sure, doubtful in ((one, other), (other, one)):
            # what was left out goes against the accuser
            over = doubtful.chance + doubtful.left_out
            if sure.chance <= 1e-290:
                continue
            loss = math.log(sure.chance / over) if over > 0 else math.inf
            if loss > best.loss:
                best = ExactLoss(loss, script, (one.chance, other.chance), 0.0, 0.0, pair)
        if seen >= MOST_TRANSCRIPTS:
            break
    return ExactLoss(best.loss, best.transcript, best.chances, covered, delta, pair)


def search(
    program: Program,
    policy: Policy,
    columns: int,
    steps: int,
    epsilon: float,
    seconds: float,
    seed: int | str = 0,
) -> ExactLoss:
    """Climb over pairs of streams with small values, where noise decides, to the one that loses most.

    Only pairs that the policy calls neighbours are tried.
    """
    choose = neighbours.chooser(f"exact {seed}")
    until = time.monotonic() + seconds
    best = ExactLoss(0.0, (), (0.0, 0.0), 0.0, 0.0)
    tried: set[bytes] = set()
    stale = 0
    while time.monotonic() < until and stale < 400:
        base = best.pair if best.pair is not None and choose(4) else None
        pair = _small_pair(policy, columns, steps, choose, base)
        stale += 1
        if pair is None or pair.key in tried:
            continue
        tried.add(pair.key)
        found = largest_loss(program, pair, epsilon, radius=1)
        if found.loss > best.loss:
            best, stale = found, 0
    return best


def _small_pair(
    policy: Policy, columns: int, steps: int, choose: neighbours.Choose, near: Pair | None
) -> Pair | None:
    """A pair of small values, or one that differs from another in one value of the base or of the change."""
    if near is None:
        base = np.array([choose(4) for _ in range(steps * columns)], dtype=np.int64).reshape(steps, columns)
        try:
            return Pair(base, policy.extreme_neighbour(base, choose), "small values")
        except TidegateError:
            return None
    first, change = near.first.copy(), near.second - near.first
    step = choose(steps)
    if choose(3):
        first[step, choose(columns)] += 1 - 2 * choose(2)
    else:
        change[step] = change[choose(steps)] * (1 - 2 * choose(2))
    if policy.distance(first, first + change) != 1:
        return None
    return Pair(first, first + change, near.origin)


def _run(program: Program, stream: Counts, script: tuple[int, ...]) -> Draw | _Open:
    draw = Draw(script)
    try:
        program(stream, draw)
    except _Open as question:
        return question
    return draw


def _options(asked: list[_Open], radius: int) -> list[int]:
    if asked[0].kind == "test":
        return [0, 1]
    centres = [question.centre for question in asked]
    return list(range(min(centres) - radius, max(centres) + radius + 1))
