"""The door for randomness: nobody else uses one, no word is served twice, none can be found again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from distributions import compare_counts
from tidegate.noise import Source, current, entropy, gaussian, laplace, laplace_one
from tidegate.noise.entropy import CHUNK_WORDS, POOL_WORDS, SINGLE_WORDS, Elements, Keystream, System, Words
from tidegate.testing.entropy import CountingEntropy, FixedEntropy, fixed_entropy, zero_noise


def keystream(key: bytes, skip: int, words: int) -> np.ndarray:
    """AES-256-CTR from a zero counter, by a plain call."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(skip + 8 * words))[skip:], dtype=np.uint64)


def test_words_are_aes_and_every_refill_replaces_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refill by refill: the system's bytes enter the key, the first 32 bytes of output are the next and never served."""
    given = [bytes(range(first, first + 32)) for first in range(0, 160, 32)]
    fresh = iter(given)
    monkeypatch.setattr(os, "urandom", lambda count: next(fresh)[:count])
    stream = Keystream()
    served = [stream.take(3), stream.take(2 * CHUNK_WORDS), np.array([stream.take_one()], dtype=np.uint64)]
    expected, key = [], given[0]
    for words, mixed in zip((POOL_WORDS, CHUNK_WORDS, CHUNK_WORDS, SINGLE_WORDS), given[1:], strict=True):
        key = bytes(a ^ b for a, b in zip(key, mixed, strict=True))
        expected.append(keystream(key, 32, words))
        key = keystream(key, 0, 4).tobytes()
    assert np.array_equal(served[0], expected[0][:3])
    assert np.array_equal(served[1], np.concatenate(expected[1:3]))
    assert served[2][0] == expected[3][-1]
    assert bytes(stream._key) == key


def test_copies_of_a_machine_part_with_the_next_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of one memory serve different words from the first refill on; a system without entropy shows it."""

    def served_by_copies() -> list[set[int]]:
        one, other = Keystream(), Keystream()
        other._key[:] = one._key
        return [
            {*each.take(10).tolist(), each.take_one(), *each.take(9000).tolist()} for each in (one, other)
        ]

    one, other = served_by_copies()
    assert len(one) == len(other) == 9011
    assert not one & other
    monkeypatch.setattr(os, "urandom", bytes)  # as many zeros
    one, other = served_by_copies()
    assert one == other


def test_memory_holds_nothing_that_was_served() -> None:
    """The state after serving contains neither served words nor a key that gives them."""
    stream = Keystream()
    served = {*stream.take(10).tolist(), *(stream.take_one() for _ in range(10)), *stream.take(5000).tolist()}
    held = {*stream._pool.tolist(), *stream._single, *np.frombuffer(stream._key, dtype=np.uint64).tolist()}
    held |= set(keystream(bytes(stream._key), 0, 10_000).tolist())
    assert not served & held
    assert not stream._pool[:10].any()


def test_requests_of_any_size_never_overlap() -> None:
    """Words of requests of mixed sizes are all different."""
    stream = System()
    taken: list[int] = []
    for size in (0, 1, 7, 255, 700, 1023, 1024, 1025, 4095, 4096, 4097, CHUNK_WORDS - 1, CHUNK_WORDS + 1, 5):
        words = stream.words("", 0, 1, range(size), 0, 1)
        assert words.shape == (1, size)
        taken += words[0].tolist()
        taken.append(stream.word("", 0, 0, 0))
    assert len(set(taken)) == len(taken)


def test_bits_are_fair() -> None:
    """Each of the 64 bits is set in half of 2^18 words (α = 1e-9); a bit set in 49 % is refused."""
    words = System().words("", 0, 1, range(1 << 18), 0, 1)[0]
    counts = {
        f"bit {b}": (int(np.count_nonzero(words >> np.uint64(b) & np.uint64(1))), 0.5) for b in range(64)
    }
    assert compare_counts(counts, words.size).ok
    assert not compare_counts(counts | {"bit 0": (round(0.49 * words.size), 0.5)}, words.size).ok


class Careless(System):
    """The wrong version: one keystream for whoever asks, advanced after the words were copied."""

    def __init__(self) -> None:
        self._stream = Keystream()

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Words that an interruption may serve again, or as zeros."""
        pool, size = self._stream, count * len(elements)
        if size > POOL_WORDS - pool._taken:
            pool._generate(pool._pool)
            pool._taken = 0
        fresh = pool._pool[pool._taken : pool._taken + size]
        taken = fresh.copy()
        fresh.fill(0)
        pool._taken += size
        return taken[np.newaxis]


def interrupted(draw: Callable[[], list[int]], at: int, action: Callable[[], None]) -> tuple[list[int], bool]:
    """What a draw returns if `action` comes before the at-th instruction of its Python code, and whether it came."""
    left, came, before = at, False, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal left, came
        if frame.f_code.co_filename not in (entropy.__file__, __file__):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                came = True
                action()
        return trace

    sys.settrace(trace)
    try:
        drawn = draw()
    except KeyboardInterrupt:
        drawn = []
    finally:
        sys.settrace(before)
    return drawn, came


def interruptions(source: Source, size: int, *, stop: bool) -> list[int]:
    """All words served while draws of a size are interrupted before each of their instructions in turn."""
    served: list[int] = []

    def draw() -> list[int]:
        if size == 0:
            return [source.word("", 0, 0, 0)]
        return source.words("", 0, 1, range(size), 0, 1)[0].tolist()

    def action() -> None:
        served.extend(draw())
        if stop:
            raise KeyboardInterrupt

    at, came = 1, True
    while came:
        words, came = interrupted(draw, at, action)
        served += words + draw()
        at += 1
    assert at > 10, "nothing was interrupted"
    return served


@pytest.mark.parametrize("stop", [False, True], ids=["draws", "draws and stops"])
@pytest.mark.parametrize("size", [0, 1, 200, 900, 1100])
def test_a_draw_may_be_interrupted_before_any_instruction(size: int, stop: bool) -> None:
    """Code that interrupts a draw, and what is drawn after a KeyboardInterrupt, never shares a word with it."""
    served = interruptions(System(), size, stop=stop)
    assert len(set(served)) == len(served)
    assert 0 not in served


@pytest.mark.parametrize("stop", [False, True], ids=["draws", "draws and stops"])
def test_a_careless_source_is_found_out(stop: bool) -> None:
    """The same interruptions of a source that copies before it advances bring words twice, or zeros."""
    served = interruptions(Careless(), 200, stop=stop)
    assert len(set(served)) < len(served)


STORM = """
import random, signal, sys
from tidegate.noise import current
source, served = current(), []
def draw():
    size = random.choice((0, 1, 5, 100, 900, 1100))
    taken = source.words("", 0, 1, range(size), 0, 1)[0].tolist() if size else [source.word("", 0, 0, 0)]
    served.append(taken)  # one instruction: it happens or it does not
def handler(number, frame):
    draw()
    if sys.argv[1] == "stop":
        raise KeyboardInterrupt
    arm()
def arm():
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
signal.signal(signal.SIGALRM, handler)
drawn, interrupts = 0, 0
while drawn < 6_000:
    try:
        arm()
        while drawn < 6_000:
            draw()
            drawn += 1
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    except KeyboardInterrupt:
        interrupts += 1
words = [word for taken in served for word in taken]
print(len(served), interrupts, len(words) - len(set(words)), words.count(0))
"""


@pytest.mark.parametrize("kind", ["draw", "stop"])
def test_signals_that_draw_share_no_word_with_the_program(kind: str) -> None:
    """A real timer whose handler draws noise, thousands of times, and then also stops what it interrupted."""
    command = [sys.executable, "-c", STORM, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    draws, interrupts, repeated, zeros = map(int, done.stdout.split())
    assert draws > 6_000 if kind == "draw" else interrupts > 30
    assert (repeated, zeros) == (0, 0)


def test_threads_have_keystreams_of_their_own() -> None:
    """Eight threads on one source never get the same word."""
    source = System()

    def draw(_: int) -> list[int]:
        few = [source.word("", 0, 0, 0) for _ in range(500)]
        return (
            few
            + source.words("", 0, 1, range(3000), 0, 1)[0].tolist()
            + source.words("", 0, 1, range(9), 0, 1)[0].tolist()
        )

    with ThreadPoolExecutor(8) as pool:
        taken = [word for words in pool.map(draw, range(24)) for word in words]
    assert len(set(taken)) == len(taken) == 24 * 3509


FORK = """
import os
from tidegate.noise import current, laplace, laplace_one
def draw():
    source = current()
    words = [source.word("", 0, 0, 0) for _ in range(20)]
    words += source.words("", 0, 1, range(20), 0, 1)[0].tolist()
    noise = laplace(source, "", 0, 2.0**50, (20,)).tolist() + [laplace_one(source, "", 0, 0, 2.0**50)]
    return [hex(number) for number in words + noise]
print("\\n".join(draw()), flush=True)
for _ in range(3):
    child = os.fork()
    if child == 0:
        print("\\n".join(draw()), flush=True)
        grandchild = os.fork()
        if grandchild == 0:
            print("\\n".join(draw()), flush=True)
        else:
            os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(child, 0)
print("\\n".join(draw()), flush=True)
"""


def test_forks_start_from_a_new_seed() -> None:
    """A process, its children and grandchildren share no word and no draw."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    numbers = done.stdout.split()
    assert len(numbers) == len(set(numbers)) == 8 * 61


def test_a_copied_process_is_noticed_without_fork_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no hook ran, another process id is enough to start from a new seed."""
    source = System()

    def used() -> Keystream:
        source.word("", 0, 0, 0)
        source.words("", 0, 1, range(3), 0, 1)
        (keystream,) = source._idle.keystreams
        return keystream

    before = used()
    assert used() is before
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert used() is not before


def test_fixed_entropy_depends_on_the_address_only() -> None:
    """Any way of asking for a word gives the same word, and different addresses give different words."""
    source = FixedEntropy(3)
    block = source.words("a", 5, 4, range(40), 0, 3)
    assert block.shape == (3, 40)
    for element in (0, 7, 39):
        for index in range(3):
            assert source.word("a", 5 + element // 4, element % 4, index) == block[index, element]
    chosen = np.array([39, 2, 17])
    assert np.array_equal(source.words("a", 5, 4, chosen, 1, 2), block[1:, chosen])
    assert np.array_equal(source.words("a", 7, 4, range(4), 0, 3), block[:, 8:12])
    others = [FixedEntropy(4).words("a", 5, 4, range(40), 0, 3), source.words("b", 5, 4, range(40), 0, 3)]
    everything = np.concatenate([block, *others]).ravel().tolist()
    assert len(set(everything)) == len(everything)


def test_fixed_entropy_gives_batch_and_single_the_same_noise() -> None:
    """Matrices, rows, scalars and a run that starts in the middle draw identical noise."""
    with fixed_entropy("seed") as source:
        for scale in (3.25, 2.0**33):
            for draw in (laplace, gaussian):
                matrix = draw(source, "noise", 10, scale, (50, 3))
                rows = [draw(source, "noise", 10 + t, scale, (3,)) for t in range(50)]
                assert np.array_equal(matrix, rows)
                assert np.array_equal(matrix[20:], draw(source, "noise", 30, scale, (30, 3)))
                assert np.array_equal(matrix, draw(source, "noise", 10, np.full((50, 3), scale), (50, 3)))
            column = laplace(source, "noise", 10, scale, (50, 1))[:, 0]
            assert [laplace_one(source, "noise", 10 + t, 0, scale) for t in range(50)] == column.tolist()
            assert not np.array_equal(matrix, laplace(source, "other", 10, scale, (50, 3)))


@pytest.mark.parametrize("scale", [1e-9, 0.7, 1.0, 30.0, 2.0**20, 2.0**20 + 1, 2.0**41, 2.0**56])
def test_zero_noise_is_zero(scale: float) -> None:
    """Under zero_noise every draw of every kind is 0."""
    with zero_noise() as source:
        for draw in (laplace, gaussian):
            assert not draw(source, "", 3, scale, (40, 50)).any()
            assert not draw(source, "", 3, np.full(50, scale), (40, 50)).any()
            assert draw(source, "", 3, scale) == 0


def test_test_sources_are_marked_and_leave_with_the_block() -> None:
    """Production is the default, test sources are marked, and a thread does not inherit them."""
    assert current().name == "system"
    assert not current().marked
    for block in (fixed_entropy(1), zero_noise()):
        with block as source:
            assert current() is source
            assert source.marked
            assert isinstance(source, Source)
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(current).result().name == "system"
        assert current().name == "system"


def test_counting_entropy_counts() -> None:
    """The counting source sees every word of a draw."""
    counting = CountingEntropy()
    laplace(counting, "", 0, 2.0, (7,))
    assert counting.words_drawn >= 7
    laplace_one(counting, "", 0, 0, 2.0)
    assert counting.words_drawn >= 8
    assert counting.marked


def test_importing_the_room_is_light() -> None:
    """The package can be imported without the compiler."""
    code = "import sys, tidegate.noise; sys.exit('numba' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
