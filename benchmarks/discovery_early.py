"""Early tests of discovery on the data of DP-SQLP: how many keys are published in one epoch, and how long it takes.

    python benchmarks/discovery_early.py units
    python benchmarks/discovery_early.py keys [--steps 100] [--bounds 32 10] [--full] [--small]

`units` says with how many units a category opens with probability one half, at ε = 1 and δ = 1e-6 for tests.

`keys` has 10^7 users, 10^6 keys, ε = 6 and δ = 1e-9 at user level, half of both for tests. A user has up to 32 records,
as many as a Zipf-Mandelbrot law says (N = 10^5, q = 26, s = 6.738), of keys that another one says (q = 1000, s = 1.4), at
steps that are all equally likely. Each (user, key) counts at its first occurrence, and a user in the first k keys. Noise
and thresholds are the library's; its estimates are computed by convolutions, for blocks of keys.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

import numpy as np
from scipy import fft
from sizes import scaled

from tidegate.mechanisms import Discover
from tidegate.noise import current, gaussian
from tidegate.policy import User, WEvent

USERS, KEYS, MOST = 10**7, 10**6, 32
BLOCK = 1 << 22  # cells of keys and steps that are in memory at once


def zipf_mandelbrot(
    generator: np.random.Generator, many: int, shift: float, power: float, count: int
) -> np.ndarray:
    """Ranks from 0, of which rank r has a weight of (r + 1 + shift)^−power."""
    weights = (np.arange(1, many + 1) + shift) ** -power
    borders = np.cumsum(weights / weights.sum())
    return np.minimum(np.searchsorted(borders, generator.random(count)), many - 1)


def records(users: int, keys: int, steps: int) -> np.ndarray:
    """Each record as one number: 24 bits of the user, 10 of the step, 20 of the key."""
    generator, parts = np.random.default_rng(1), []
    for first in range(0, users, 10**6):
        here = min(10**6, users - first)
        each = np.minimum(zipf_mandelbrot(generator, 10**5, 26, 6.738, here) + 1, MOST)
        user = np.repeat(np.arange(first, first + here), each)
        key = zipf_mandelbrot(generator, keys, 1000, 1.4, len(user))
        parts.append(user << 30 | generator.integers(0, steps, len(user)) << 20 | key)
    return np.concatenate(parts)


def first_occurrences(rows: np.ndarray, most: int, steps: int) -> np.ndarray:
    """Key and step of what counts, as key·steps + step, in this order."""
    step, key = rows >> 20 & 1023, rows & (1 << 20) - 1
    rows = np.sort((rows >> 30) << 30 | key << 10 | step)  # by user and key
    rows = rows[np.concatenate([[True], rows[1:] >> 10 != rows[:-1] >> 10])]  # the first one of each
    step, key = rows & 1023, rows >> 10 & (1 << 20) - 1
    rows = np.sort((rows >> 30) << 30 | step << 20 | key)  # by user and time
    user = rows >> 30
    begins = np.flatnonzero(np.concatenate([[True], user[1:] != user[:-1]]))
    number = np.arange(len(rows)) - np.repeat(begins, np.diff(np.append(begins, len(rows))))
    rows = rows[number < most]
    return np.sort((rows & (1 << 20) - 1) * steps + (rows >> 20 & 1023))


def published(cells: np.ndarray, keys: int, steps: int, mechanism: Discover) -> tuple[np.ndarray, np.ndarray]:
    """At which step each key opens, −1 for never; and how many users it has."""
    tests = mechanism.tests
    size = fft.next_fast_len(2 * steps - 1, real=True)
    strategy = fft.rfft(np.array(tests.coefficients, dtype=np.float64), size)
    response = fft.rfft(tests.response * 2.0**-tests.places, size)
    thresholds = np.array(tests.thresholds)
    opened, users = np.full(keys, -1), np.zeros(keys, dtype=np.int64)
    width = max(1, BLOCK // steps)
    for first in range(0, keys, width):
        here = min(width, keys - first)
        part = cells[np.searchsorted(cells, first * steps) : np.searchsorted(cells, (first + here) * steps)]
        new = np.bincount(part - first * steps, minlength=here * steps).reshape(here, steps)
        counts = np.cumsum(new, axis=1)
        touched = np.flatnonzero(counts[:, -1])
        new, counts = new[touched], counts[touched]
        exact = np.rint(fft.irfft(fft.rfft(new, size) * strategy, size)[:, :steps]).astype(np.int64)
        exact += gaussian(current(), "early", first, tests.sigma, (len(touched), steps))
        noisy = np.rint(fft.irfft(fft.rfft(exact, size) * response, size)[:, :steps])
        passes = (noisy >= thresholds) & (counts > 0)
        opened[first + touched] = np.where(passes.any(axis=1), passes.argmax(axis=1), -1)
        users[first + touched] = counts[:, -1]
    return opened, users


def units() -> None:
    print("| window | epoch | k | at the end only | early | with a Laplace threshold at each step |")
    for window, epoch, most in ((24, 24, 1), (168, 168, 1), (168, 24, 1), (168, 168, 4), (168, 168, 16)):
        policy = WEvent(epsilon="2", delta="2e-6", window=window)
        end, early = (
            Discover(policy, epoch=epoch, categories=most, early=each).units_needed()
            for each in (False, True)
        )
        laplace = 1 + most * window * math.log(most * window / 2e-6)  # each step has 1/w of the budget
        print(f"| {window} | {epoch} | {most} | {end} | {early} | {math.ceil(laplace):,} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["units", "keys"], nargs="?", default="units")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--bounds", type=int, nargs="+", default=[32, 10])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    if given.what == "units":
        units()
        return
    users, keys, steps = scaled(USERS, 10_000, USERS // 10), scaled(KEYS, 1_000, KEYS // 10), given.steps
    rows = records(users, keys, steps)
    print(f"{users:,} users, {len(rows):,} records, {steps} steps")
    print(
        "| k | deviation at the end | threshold there | published | with at most 1 % of it | seconds | of a processor |"
    )
    for most in given.bounds:
        begun, worked = time.perf_counter(), time.process_time()
        policy = User(epsilon="6", delta="1e-9", horizon=steps)
        mechanism = Discover(policy, epoch=steps, categories=most, early=True)
        cells = first_occurrences(rows, most, steps)
        opened, counts = published(cells, keys, steps, mechanism)
        seconds, work, found = time.perf_counter() - begun, time.process_time() - worked, opened >= 0
        few = np.mean(counts[found] <= mechanism.selection.threshold / 100) if found.any() else 0.0
        print(
            f"| {most} | {mechanism.selection.sigma:.1f} | {mechanism.selection.threshold} | {found.sum():,} | {few:.2%} "
            f"| {seconds:.0f} | {work:.0f} |",
            flush=True,
        )
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB at most")


if __name__ == "__main__":
    main()
