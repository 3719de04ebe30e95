"""Where a mechanism decides: its public thresholds, the levels at which its decisions turn, and what repeats in it.

Streams that stand exactly there show what a mechanism does at its own limits; streams that are longer than two cycles
show what happens when something begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from tidegate.audit.neighbours import BIG, Counts
from tidegate.audit.subjects import Configured, longest

LIMITS = (
    "threshold",
    "limit",
    "bound",
    "prune",
    "below",
    "above",
    "theta",
    "small",
    "clip",
)
NOISE = ("scale", "exceeding", "candidate")  # what noise reaches, beside which a decision may turn as well
NO_LEVEL = ("factor", "share", "multiplier")
CYCLES = (
    "window",
    "every",
    "period",
    "horizon",
    "back",
    "block",
    "lag",
    "samples",
    "branching",
    "recent",
    "length",
)
MOST_LIMITS, MOST_OF_NOISE = 4, 2
MOST_LISTED = 16  # numbers of a list, such as candidates
PROBES = 64  # runs for each level that is tried
LONGEST = 80  # steps
LATE = 20  # steps: what grows as it goes on, such as trees that double, has begun several times by then


def public_levels(mechanism: Any) -> list[int]:
    """Whole numbers at and just beside the public limits of a mechanism, found by their names; scales of noise last."""
    limits: set[int] = set()
    noise: set[int] = set()
    for name, value in _numbers(mechanism):
        if not 0 < value < BIG or any(part in name for part in NO_LEVEL):
            continue
        beside = {math.floor(value), math.ceil(value)}
        if any(part in name for part in NOISE):
            noise |= beside
        elif any(part in name for part in LIMITS):
            limits |= beside
    found = sorted(limits - {0})[:MOST_LIMITS]
    return found + sorted(noise - limits - {0})[:MOST_OF_NOISE]


def cycle(mechanism: Any) -> int:
    """The longest thing that repeats: a window, a period, a block, a tree; at least 1."""
    lengths = [mechanism.policy.window or 1]
    for name, value in _numbers(mechanism):
        if value == int(value) and 1 < value <= 64 and _repeats(name):
            lengths.append(int(value))
    return max(lengths)


def lengths(mechanism: Any, usual: int) -> list[int]:
    """Lengths of streams: one step, as usual, and more than two cycles, as far as the stream may go."""
    end = longest(mechanism)
    long = min(2 * cycle(mechanism) + 2, LONGEST)
    own = getattr(mechanism, "independent_period", 0)  # whole periods are many runs in one
    more = [cycle(mechanism) + 2] if usual < cycle(mechanism) else []
    more += [own, 2 * own] if 0 < 2 * own <= LONGEST else []
    return sorted({min(each, end) for each in (1, 2, usual, long, *more)})


def late(mechanism: Any, usual: int) -> int:
    """A length beyond all of these where they are short and the stream may go on; 0 where it is none."""
    end = min(LATE, longest(mechanism))
    return end if end > lengths(mechanism, usual)[-1] else 0


def moments(mechanism: Any) -> list[int]:
    """Steps after which something public happens: what repeats begins anew, what was waited for is over."""
    found = {mechanism.policy.window or 1}
    for name, value in _numbers(mechanism):
        if value == int(value) and 1 < value <= LONGEST and _repeats(name):
            found.add(int(value))
    return sorted(found)


def decision_levels(subject: Configured, steps: int) -> list[int]:
    """Levels at which a jump is measured about every second time, after quiet steps of several lengths."""
    if not subject.layout(1).shown or subject.way == "columns":
        return []
    window = subject.policy.window or 1
    found: set[int] = set()
    for quiet in sorted({0, window - 1, window}):
        if quiet < steps:
            turn = _turn(subject, quiet)
            found |= {turn} if turn else set()
    return sorted(found)


def _turn(subject: Configured, quiet: int) -> int:
    """The level at which the chance that a jump after some quiet steps is measured passes one half; 0 if it does not."""
    low, high = 0, BIG
    if _share(subject, quiet, low) > 0.5 or _share(subject, quiet, high) < 0.5:
        return 0
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (low, middle) if _share(subject, quiet, middle) > 0.5 else (middle, high)
    return high


def _share(subject: Configured, quiet: int, level: int) -> float:
    stream: Counts = np.zeros((quiet + 1, subject.columns), dtype=np.int64)
    stream[-1] = level
    shown, width, steps = subject.layout(len(stream))
    drawn = subject.sample(stream, PROBES)
    return float(np.mean(drawn[:, (steps * width or drawn.shape[1]) - 1] > 0)) if shown else 0.0


def _repeats(name: str) -> bool:
    """Whether a number is the length of something by its own name; that of the part that has it says nothing."""
    own = name.rpartition(".")[2]
    return any(part in own for part in CYCLES) and "charges" not in own


def _numbers(mechanism: Any, depth: int = 2) -> Iterator[tuple[str, float]]:
    """Public numbers of a mechanism and of its parts, with their names."""
    names = {field.name for field in fields(mechanism)} if is_dataclass(mechanism) else set()
    names |= {name for name in dir(type(mechanism)) if not name.startswith("_")}
    for name in sorted(names):
        try:
            value = getattr(mechanism, name)
        except Exception:  # not every property can be asked of every configuration
            continue
        if isinstance(value, Real | Fraction) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)
        elif isinstance(value, tuple | np.ndarray) and 0 < len(value) <= MOST_LISTED:
            listed = [each for each in value if isinstance(each, Real | Fraction | np.number)]
            yield from ((name, float(each)) for each in listed if math.isfinite(each))
        elif depth and is_dataclass(value) and not isinstance(value, type) and name != "policy":
            yield from ((f"{name}.{inner}", number) for inner, number in _numbers(value, depth - 1))
