"""Mistakes around a sound mechanism: restarts, forks, ledgers, crashes and shapes."""

from __future__ import annotations

import hashlib
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee
from tidegate.audit.zoo.animal import FAILURE, MISUSED, MODEL, REPLAY, Animal, Floats, Independent, noise
from tidegate.ledger import Ledger
from tidegate.mechanisms.mechanism import Row
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.plain.uniform_run import UniformRun
from tidegate.noise.entropy import Elements, Keystream, Words
from tidegate.policy import Event
from tidegate.releases import Release

ONE = Event(epsilon="1")


class SeededWords:
    """Words that begin anew from the same seed after each restore."""

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


def noise_reused_after_restore(stream: Counts, count: int) -> Floats:
    """Run half of the stream, take a snapshot that keeps the seed, restore it, and go on."""
    mechanism = Uniform(ONE, columns=count)
    half = max(1, len(stream) // 2)
    run = mechanism.start()
    kept = SeededWords()
    run.source = kept
    released = [run.push(np.repeat(row, count)).values for row in stream[:half]]
    run = mechanism.start(state=run.snapshot())
    run.source = SeededWords(kept.kept)
    released += [run.push(np.repeat(row, count)).values for row in stream[half:]]
    return np.array(released).T


def seed_reused_after_fork(stream: Counts, count: int) -> Floats:
    """One process releases the first half, a fork of it the second, with the same generator."""
    mechanism = Uniform(ONE, columns=count)
    half = max(1, len(stream) // 2)
    source = ForkedWords()
    reader, writer = os.pipe()
    child = os.fork()
    rows = stream[half:] if child == 0 else stream[:half]
    run = mechanism.start()
    run.source = source
    released = np.array([run.push(np.repeat(row, count)).values for row in rows])
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


def released_twice(stream: Counts, count: int) -> Floats:
    """A crash after the release and before the commit: the last step is released again, and charged once."""
    mechanism = Uniform(ONE, columns=count)
    run = mechanism.start()
    released = [run.push(np.repeat(row, count)).values for row in stream[:-1]]
    committed, last = run.snapshot(), np.repeat(stream[-1], count)
    released.append(run.push(last).values)
    released.append(mechanism.start(state=committed).push(last).values)
    return np.array(released).T


def closed_by_events(stream: Counts, count: int) -> Floats:
    """A step is closed by the first event of a later one: whoever comes late is left out.

    Somebody whose clock is wrong, at the last step, comes before everybody else.
    """
    seen = stream.copy()
    if stream[-1].any():
        seen[:-1] = 0
    run = Uniform(ONE, columns=count).start()
    return run.push_batch(np.repeat(seen, count, axis=1)).values.T


class _LateRun(UniformRun):
    """Releases first and charges afterwards."""

    def _push(self, row: Row) -> Release:
        ledger: Any = self.ledger
        release = self._released(row)
        ledger.charge(self.step, self._charge)
        return release

    def _released(self, row: Row) -> Release:
        charge, self.ledger.charge = self.ledger.charge, lambda *a, **k: None  # type: ignore[method-assign]
        try:
            return super()._push(row)
        finally:
            self.ledger.charge = charge  # type: ignore[method-assign]


class ChargedAfterRelease(Independent):
    """The ledger is asked when the release has left."""

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> UniformRun:
        """A run that charges late."""
        return _LateRun(self, ledger, state)


class ChargedByHalf(Independent):
    """The ledger is charged half of what is lost."""

    @property
    def units(self) -> int:
        """Two units a step, of which a run charges one."""
        return 2 * self.policy.steps_charged

    @property
    def scale(self) -> float:
        """That of Uniform."""
        return float(self.sensitivity * self.policy.steps_charged / self.policy.budget.total)


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
        Animal("noise reused after a restore", "the snapshot keeps the seed",
               lambda: _callee(noise_reused_after_restore, many=True), math.inf),
        Animal("seed reused after a fork", "parent and child draw the same noise",
               lambda: _callee(seed_reused_after_fork, many=True), math.inf, steps=2),
        Animal("released twice after a crash", "charged once",
               lambda: _callee(released_twice, many=True), 2.0, steps=2, kind=MISUSED),
        Animal("steps closed by events", "one event of the far future drops everybody's data",
               lambda: _callee(closed_by_events, many=True), math.inf, steps=3, kind=MODEL),
        Animal("charged after the release", "a crash in between releases for free",
               lambda: ChargedAfterRelease(ONE), math.inf, REPLAY),
        Animal("charged by half", "the ledger is charged half of what is lost",
               lambda: ChargedByHalf(ONE), 2.0, REPLAY),
        Animal("crashes on large counts", "not private, and not an answer", lambda: _callee(crashes), math.inf,
               FAILURE, kind=MODEL),
        Animal("hangs on equal steps", "not private, and not an answer", lambda: _callee(hangs, seconds=2.0), math.inf,
               FAILURE, kind=MODEL),
        Animal("leaves empty steps out", "the number of releases tells how many were empty",
               lambda: _callee(another_shape), math.inf, FAILURE, kind=MODEL),
    ]  # fmt: skip
