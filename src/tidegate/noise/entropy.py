"""The one door for randomness: nothing else in Tidegate may touch a random number generator.

Random words come from AES-256 in counter mode, keyed by the operating system. Every refill replaces the key
by its own output before any word is served (fast key erasure), so whoever reads the memory later cannot
reconstruct words that were served before. Every refill also mixes fresh entropy of the operating system into the
key, so that two copies of one running machine part ways with the first refill after the copy; the words that
waited at that moment (at most 1024 for single draws and 4096 for small arrays) are common to both, and `UNBUFFERED`
is for those who copy running machines. State is per thread, a forked child starts from a new seed, and
code that interrupts a draw (a signal handler, say) never shares words with it.

A *source* serves words by address, so that tests can install one whose noise depends on nothing but the
address (`tidegate.testing.fixed_entropy`). The production source ignores the address and never repeats.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tidegate import process

Words = npt.NDArray[np.uint64]
Elements = range | npt.NDArray[np.int64]

KEY_BYTES = 32
# One refill for a large request: making a cipher (8 µs) is cheap beside it, and it fits into the L2 cache.
CHUNK_WORDS = 1 << 15
# One refill for small requests: of arrays, and of single words.
POOL_WORDS = 1 << 12
SINGLE_WORDS = 1 << 10
# What counter mode encrypts, and where it begins to count: every key is used once.
ZEROS = memoryview(bytes(8 * CHUNK_WORDS))
COUNTER = modes.CTR(bytes(16))

# The library makes its table of ciphers at the first use, behind a lock: a signal handler that drew noise in the middle
# of that waited for itself for ever. So the first use is here, before anybody can draw.
Cipher(algorithms.AES(bytes(KEY_BYTES)), COUNTER).encryptor()


@runtime_checkable
class Source(Protocol):
    """Where noise takes its random words from.

    An element is one draw of noise; it owns an endless sequence of words. Element e of a request stands for
    draw e % draws of step ``step + e // draws`` of the named stream.

    Examples
    --------
    >>> from tidegate.noise import current
    >>> isinstance(current(), Source)
    True
    """

    @property
    def name(self) -> str:
        """What a ledger calls this source."""
        ...

    @property
    def marked(self) -> bool:
        """Whether a run that uses this source must be marked as not private."""
        ...

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Words first, …, first + count − 1 of each element, as an array of shape (count, len(elements))."""
        ...

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word of one element."""
        ...


class Keystream:
    """AES-256-CTR with fast key erasure. Whoever takes words from it must hold it alone: see `System`.

    Words wait in a pool that is wiped as they are taken; requests of a pool's size or more bypass it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._epoch = process.epoch
        self._key = bytearray(os.urandom(KEY_BYTES))
        self._key_words = np.frombuffer(self._key, dtype=np.uint64)
        self._pool = np.zeros(POOL_WORDS, dtype=np.uint64)
        self._taken = POOL_WORDS
        self._single: list[int] = []

    def _generate(self, out: Words) -> None:
        """Fill a contiguous array; the key is renewed by the system before and replaced before any word is served."""
        self._key_words ^= np.frombuffer(os.urandom(KEY_BYTES), dtype=np.uint64)
        encryptor = Cipher(algorithms.AES(self._key), COUNTER).encryptor()
        encryptor.update_into(bytes(KEY_BYTES), self._key)
        encryptor.update_into(ZEROS[: out.nbytes], out.data.cast("B"))

    def take(self, count: int) -> Words:
        """The next words, in an array that belongs to the caller."""
        start = self._taken
        end = start + count
        if end <= POOL_WORDS:
            self._taken = end  # first of all: whatever happens next, these words are gone
            fresh = self._pool[start:end]
            taken = fresh.copy()
            fresh.fill(0)
            return taken
        if count < POOL_WORDS // 4:
            self._taken = POOL_WORDS  # nothing is left while the pool is being filled
            self._generate(self._pool)
            self._taken = 0
            return self.take(count)
        taken = np.empty(count, dtype=np.uint64)
        for chunk in range(0, count, CHUNK_WORDS):
            self._generate(taken[chunk : chunk + CHUNK_WORDS])
        return taken

    def take_one(self) -> int:
        """The next word as a Python integer."""
        if not self._single:
            batch = np.empty(SINGLE_WORDS, dtype=np.uint64)
            self._generate(batch)
            self._single = batch.tolist()
            batch.fill(0)
        return self._single.pop()


class Idle(threading.local):
    """The keystreams of each thread that nobody is using: one, and those that interrupting code has made."""

    def __init__(self) -> None:
        self.keystreams: list[Keystream] = []


class System:
    """The production source: fresh words from this thread's keystream, whatever the address.

    A thread can be interrupted in the middle of a draw by code that draws as well: a signal handler, a finalizer, a
    fork. So a keystream is taken out of the thread's idle ones (which no interruption can split), used, and put
    back. Code that interrupts finds none and makes its own; what an exception leaves behind is never used again; and
    words are served only by the process that made their keystream, which is asked after they were taken.
    """

    name = "system"
    marked = False

    def __init__(self) -> None:
        self._idle = Idle()

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Fresh words of shape (count, len(elements))."""
        size = len(elements)
        idle = self._idle.keystreams
        while True:
            try:
                keystream = idle.pop()
            except IndexError:
                keystream = Keystream()
            taken = keystream.take(count * size)
            if keystream._epoch is process.epoch and keystream._process == os.getpid():
                idle.append(keystream)
                return taken.reshape(count, size)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One fresh word."""
        idle = self._idle.keystreams
        while True:
            try:
                keystream = idle.pop()
            except IndexError:
                keystream = Keystream()
            taken = keystream._single.pop() if keystream._single else keystream.take_one()
            if keystream._epoch is process.epoch and keystream._process == os.getpid():
                idle.append(keystream)
                return taken


class Unbuffered:
    """The operating system's own words, one request at a time: no key and no word to come is in memory.

    Slower than `System`; for runs whose memory an intruder may see.
    """

    name = "system"
    marked = False

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Fresh words of shape (count, len(elements))."""
        fresh = np.frombuffer(bytearray(os.urandom(8 * count * len(elements))), dtype=np.uint64)
        return fresh.reshape(count, len(elements))

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One fresh word."""
        return int.from_bytes(os.urandom(8))


def fresh_bytes(size: int) -> bytes:
    """Bytes that nobody has seen before, for salts."""
    return os.urandom(size)


def fresh_name() -> str:
    """Thirty-two hexadecimal digits that nobody has seen before, to tell things of the same kind apart."""
    return os.urandom(16).hex()


SYSTEM = System()
UNBUFFERED = Unbuffered()
_installed: ContextVar[Source] = ContextVar("tidegate_entropy", default=SYSTEM)


def current() -> Source:
    """The source that is installed here: production, unless a test has installed another.

    Examples
    --------
    >>> current() is current()
    True
    """
    return _installed.get()


@contextmanager
def install(source: Source) -> Iterator[Source]:
    """Install a source for the duration of a with-block (of this thread or task only).

    Parameters
    ----------
    source
        Where noise takes its words from within the block.

    Examples
    --------
    >>> from tidegate.noise.fixed import FixedEntropy
    >>> with install(FixedEntropy("example")) as source:
    ...     current() is source
    True
    """
    token = _installed.set(source)
    try:
        yield source
    finally:
        _installed.reset(token)
