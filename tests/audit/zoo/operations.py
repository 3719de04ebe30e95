"""Mistakes around a sound mechanism: words that are drawn twice, steps that are released twice, crashes and shapes."""

from __future__ import annotations

import hashlib
import math
import os
import time
from fractions import Fraction
from typing import Any

import numpy as np
from tests.audit.zoo.animal import FAILURE, MISUSED, MODEL, REPLAY, Animal, Floats, Independent, noise

from tidegate.audit import direct
from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import install
from tidegate.noise.entropy import Elements, Keystream, Words
from tidegate.policy import Event

ONE = Event(epsilon="1")


class SeededWords:
    """Words that begin anew from the same seed when a stream is resumed."""

    name = "seeded"
    marked = False

    def __init__(self, kept: list[Words] | None = None) -> None:
        self.kept: list[Words] = [] if kept is None else kept
        self._at = 0
        self._stream = Keystream()

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The next words of the seed."""
        if self._at == len(self.kept):
            self.kept.append(self._stream.take(count * len(elements)).reshape(count, len(elements)))
        self._at += 1
        return self.kept[self._at - 1].copy()

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A fresh word."""
        return self._stream.take_one()


class ForkedWords:
    """A generator that does not notice that its process was forked."""

    name = "forked"
    marked = False

    def __init__(self) -> None:
        self._seed = Keystream().take(4).tobytes()
        self._draws = 0

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The next words, the same in both processes."""
        self._draws += 1
        expanded = hashlib.shake_256(self._seed + self._draws.to_bytes(8, "little"))
        taken = np.frombuffer(expanded.digest(8 * count * len(elements)), dtype=np.uint64)
        return taken.reshape(count, len(elements)).copy()

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """The next word."""
        return int(self.words(stream, step, 1, range(1), 0, 1)[0, 0])


def noise_reused(stream: Counts, count: int) -> Floats:
    """Half of the stream, and the other half with words that begin anew."""
    half, kept = max(1, len(stream) // 2), SeededWords()
    released = [_half(stream[:half], count, kept), _half(stream[half:], count, SeededWords(kept.kept))]
    return np.concatenate(released).T


def seed_reused_after_fork(stream: Counts, count: int) -> Floats:
    """One process releases the first half, a fork of it the second, with the same generator."""
    half, source = max(1, len(stream) // 2), ForkedWords()
    reader, writer = os.pipe()
    child = os.fork()
    released = _half(stream[half:] if child == 0 else stream[:half], count, source)
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(released.tobytes())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        theirs = np.frombuffer(pipe.read()).reshape(-1, count)
    os.waitpid(child, 0)
    return np.concatenate([released, theirs]).T


def _half(rows: Counts, count: int, source: Any) -> Floats:
    """Steps of so many streams that are alike, one after the other, with words of a source."""
    if not len(rows):
        return np.zeros((0, count))
    with install(source):
        found = direct.recorded(Uniform(ONE, columns=count), np.repeat(rows, count, axis=1), singly=True)
    return np.concatenate([each.values for each in found.releases])


def released_twice(stream: Counts, count: int) -> Floats:
    """A crash after the release and before the commit: the last step is released again, and charged once."""
    wide = np.repeat(stream, count, axis=1)
    first, again = (direct.released(Uniform(ONE, columns=count), rows).values for rows in (wide, wide[-1:]))
    return np.concatenate([first, again]).T


def closed_by_events(stream: Counts, count: int) -> Floats:
    """A step is closed by the first event of a later one: whoever comes late is left out.

    Somebody whose clock is wrong, at the last step, comes before everybody else.
    """
    seen = stream.copy()
    if stream[-1].any():
        seen[:-1] = 0
    values: Floats = direct.released(Uniform(ONE, columns=count), np.repeat(seen, count, axis=1)).values.T
    return values


class ChargedNothing(Independent):
    """Steps are released and cost nothing."""

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Nothing."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Charge nothing."""
        return super().advance(state, rows, first, noise)._replace(units=np.zeros(len(rows), dtype=np.int64))


class ChargedByHalf(Independent):
    """Half of what is lost is charged."""

    @property
    def units(self) -> int:
        """Two units for each step, of which one is charged."""
        return 2 * self.policy.steps_charged

    @property
    def scale(self) -> float:
        """That of Uniform."""
        return float(Fraction(self.sensitivity * self.policy.steps_charged) / self.policy.budget.total)


def crashes(stream: Counts) -> Floats:
    """Raises when a count is large."""
    if stream.max() > 1000:
        raise ValueError("too large")
    return stream.reshape(-1) + noise(1.0, (1, stream.size))[0].astype(float)


def hangs(stream: Counts) -> Floats:
    """Never returns when two steps are equal."""
    while len(np.unique(stream)) < len(stream):
        time.sleep(0.01)
    return stream.reshape(-1) + noise(1.0, (1, stream.size))[0].astype(float)


def another_shape(stream: Counts) -> Floats:
    """Releases only the steps at which there was somebody."""
    flat = stream.reshape(-1)
    return flat[flat > 0] + noise(1.0, (1, int((flat > 0).sum()) or 1))[0][: int((flat > 0).sum())].astype(
        float
    )


def _callee(call: Any, **more: Any) -> Callee:
    return Callee(call, ONE, 1, call.__name__, **more)


def animals() -> list[Animal]:
    """All of them."""
    return [
        Animal("noise reused after a restart", "words begin anew",
               lambda: _callee(noise_reused, many=True), math.inf),
        Animal("seed reused after a fork", "parent and child draw the same noise",
               lambda: _callee(seed_reused_after_fork, many=True), math.inf, steps=2),
        Animal("released twice after a crash", "charged once",
               lambda: _callee(released_twice, many=True), 2.0, steps=2, kind=MISUSED),
        Animal("steps closed by events", "one event of the far future drops everybody's data",
               lambda: _callee(closed_by_events, many=True), math.inf, steps=3, kind=MODEL),
        Animal("charged nothing", "releases cost nothing", lambda: ChargedNothing(ONE), math.inf, REPLAY),
        Animal("charged by half", "half of what is lost is charged", lambda: ChargedByHalf(ONE), 2.0, REPLAY),
        Animal("crashes on large counts", "not private, and not an answer", lambda: _callee(crashes), math.inf,
               FAILURE, kind=MODEL),
        Animal("hangs on equal steps", "not private, and not an answer", lambda: _callee(hangs, seconds=2.0), math.inf,
               FAILURE, kind=MODEL),
        Animal("leaves empty steps out", "the number of releases tells how many were empty",
               lambda: _callee(another_shape), math.inf, FAILURE, kind=MODEL),
    ]  # fmt: skip
