"""Pairs of neighbouring streams to attack with: patterns that broke printed algorithms, and a search around them.

Every pair is built from the policy alone and checked by its own distance, so that a verdict never rests on
streams that are not neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import TidegateError
from tidegate.policy import Policy, Swellfish

Counts = npt.NDArray[np.int64]  # a stream, T × d
Choose = Callable[[int], int]

MOST_PLACES = 9  # of a window in a stream
AFTER_FIRST = "after the first step"  # of streams whose first step is compared with all that follow
BIG = 4096  # far above the noise of any configuration worth an audit
MOST_BIG = 1 << 24  # no mechanism cuts what is smaller

# What to look at first: what broke printed algorithms, and what shows most of sound ones.
KNOWN = (
    ("columns climb in turn", "a unit joins, moving through the columns"),
    ("silence", "a unit joins every step"),
    ("odd level", "joins and leaves in turn"),
    ("jumps at every step", "a unit joins every step"),
    ("silence", "joins and leaves in turn"),
    ("quiet, then jumps", "a unit joins every step"),
    ("level", "replaced: one column for another"),
    ("silence", "a unit joins, moving through the columns"),
    ("one column jumps", "a unit joins, moving through the columns"),
    ("quiet, a jump at the end", "a unit joins every step"),
    ("jumps at every step", "replaced: one column for another"),
    ("below zero", "a unit leaves every step"),
    ("two columns that tie, then another jumps", "joins one step"),
)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring streams.

    Attributes
    ----------
    first, second
        Steps × columns whole numbers.
    origin
        Which pattern they come from.

    Examples
    --------
    >>> import numpy as np
    >>> Pair(np.array([[0], [0]]), np.array([[0], [1]]), "one step").origin
    'one step'
    """

    first: Counts
    second: Counts
    origin: str

    @property
    def key(self) -> bytes:
        """The same for the same streams."""
        return self.first.tobytes() + b"|" + self.second.tobytes()

    @property
    def begins(self) -> bool:
        """Whether the first step is one of those in which the streams differ."""
        return bool(np.any(self.first[0] != self.second[0]))

    @property
    def below_zero(self) -> bool:
        """Whether it has negative values, which a function of counts need not take."""
        return bool(min(self.first.min(), self.second.min()) < 0)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {"first": self.first.tolist(), "second": self.second.tolist(), "origin": self.origin}

    @classmethod
    def read(cls, described: dict[str, Any]) -> Pair:
        """What `describe` wrote."""
        first, second = (np.array(described[name], dtype=np.int64) for name in ("first", "second"))
        return cls(first, second, str(described["origin"]))


def chooser(seed: int | str) -> Choose:
    """Numbers that look random and are the same at every start: choose(n) is in range(n)."""
    count = 0

    def choose(options: int) -> int:
        nonlocal count
        count += 1
        digest = blake2b(f"{seed}:{count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % options

    return choose


def default_steps(policy: Policy) -> int:
    """How long transcripts are: two windows and a little more, as far as an event can still see all of it."""
    horizon = policy.horizon or 10**9
    window = policy.window
    if window is None:
        return min(horizon, 6)
    return min(horizon, 4 if window == 1 else max(2 * window + 1, 5), 24)


def bases(steps: int, columns: int, amount: int) -> Iterator[tuple[str, Counts]]:
    """Streams on which data-dependent mechanisms show their different sides."""
    time, big = np.arange(steps), big_of(amount)
    shapes: dict[str, npt.NDArray[np.int64]] = {
        "silence": np.zeros(steps, dtype=np.int64),
        "level": np.full(steps, amount, dtype=np.int64),
        "odd level": np.full(steps, amount + 1, dtype=np.int64),
        "below zero": np.full(steps, -amount, dtype=np.int64),
        "jumps at every step": big * (time + 1),
        "high and low in turn": big * (1 - time % 2),
        "quiet, then jumps": np.where(time < steps // 2, 0, big * (time + 1)),
        "jumps, then quiet": np.where(time < steps // 2, big * (time + 1), 0),
        "quiet, one jump, quiet": np.where(time == steps // 2, big, 0),
        "quiet, a jump at the end": np.where(time == steps - 1, big, 0),
        "rare jumps": np.where(time % 3 == 2, big * (1 + time // 3), big * (time // 3)),
        "stairs": big * (time // 2),
        "quiet, two jumps together": np.where(
            (time == steps // 2) | (time == steps // 2 + 1), big * (time % 2 + 1), 0
        ),
    }
    for name, shape in shapes.items():
        yield name, np.repeat(shape[:, np.newaxis], columns, axis=1)
    if columns > 1:
        yield "columns jump in turn", _in_turn(steps, columns, big)
        climb = np.zeros((steps, columns), dtype=np.int64)
        for step in range(steps):  # each step moves one column and leaves the others
            climb[step:, step % columns] += big
        yield "columns climb in turn", climb
        alone = np.zeros((steps, columns), dtype=np.int64)
        alone[:, 0] = big * (time + 1)
        yield "one column jumps", alone
        yield (
            "one above zero, the next below",
            np.tile(amount * (1 - 2 * (np.arange(columns) % 2)), (steps, 1)),
        )
        tied = big * (time[:, np.newaxis] + 1) + _in_the_middle(
            columns
        )  # whatever is known of them so far is old
        tied[steps // 2 :] = tied[max(0, steps // 2 - 1)]
        tied[steps // 2 :, columns // 2] += big * (time[steps // 2 :] + 1)
        yield "two columns that tie, then another jumps", tied


def changes(policy: Policy, length: int, columns: int, amount: int) -> Iterator[tuple[str, Counts]]:
    """What one unit can do within a window of so many steps."""
    time = np.arange(length)
    zero = np.zeros((length, columns), dtype=np.int64)

    def with_(entries: npt.NDArray[np.int64], at: npt.NDArray[np.int64] | int = 0) -> Counts:
        change = zero.copy()
        change[time, at] = entries
        return change

    yield "a unit joins every step", with_(np.full(length, amount))
    yield "a unit leaves every step", with_(np.full(length, -amount))
    if length > 1:
        yield "joins and leaves in turn", with_(np.where(time % 2 == 0, amount, -amount))
        yield "joins one step", with_(np.where(time == 0, amount, 0))
        yield "joins the last step", with_(np.where(time == length - 1, amount, 0))
    if columns > 1 and policy.mobility == "moving":
        yield "a unit joins, moving through the columns", with_(np.full(length, amount), time % columns)
        yield "a unit leaves, moving through the columns", with_(np.full(length, -amount), time % columns)
        if length > 1:
            yield (
                "moves, joining and leaving",
                with_(np.where(time % 2 == 0, amount, -amount), time % columns),
            )
    if columns > 1 and amount % 2 == 0 and policy.mobility == "moving":
        halves = zero.copy()
        halves[:, :2] = amount // 2
        yield "joins two columns by half", halves
    if columns > 1 and policy.adjacency == "replace":
        swap = zero.copy()
        swap[:, 0], swap[:, 1] = amount, -amount
        yield "replaced: one column for another", swap
        if policy.mobility == "moving":
            turn = zero.copy()
            turn[time, time % columns] += amount
            turn[time, (time + 1) % columns] -= amount
            yield "replaced, in other columns at each step", turn


def _in_the_middle(columns: int) -> npt.NDArray[np.int64]:
    """Sizes of columns of which the first two tie, with as many below as above them."""
    sizes = np.where(np.arange(columns) < columns // 2 + 1, 0, 2)
    sizes[:2] = 1
    return sizes


def big_of(amount: int) -> int:
    """Far above the noise of changes by so much."""
    return max(BIG, min(BIG * amount, MOST_BIG))


def _in_turn(steps: int, columns: int, level: int) -> Counts:
    """One column after the other is high: where one falls, another rises."""
    turns = np.zeros((steps, columns), dtype=np.int64)
    turns[np.arange(steps), np.arange(steps) % columns] = level
    return turns


def placed_bases(steps: int, columns: int, levels: Sequence[int]) -> Iterator[tuple[str, Counts]]:
    """Streams that stand at given levels, and that jump by them."""
    time = np.arange(steps)
    for level in levels:
        shapes = {
            f"level {level}": np.full(steps, level, dtype=np.int64),
            f"quiet, then {level}": np.where(time < steps // 2, 0, level),
            f"{level}, then quiet": np.where(time < max(1, steps // 2), level, 0),
            f"{level} in turn": level * (time % 2),
            f"stairs of {level}": level * (time + 1),
            f"{level} at the end": np.where(time == steps - 1, level, 0),
            f"{level} {AFTER_FIRST}": np.where(time == 0, 0, level),  # tests that all stand there
            f"{-level}, below zero": np.full(steps, -level, dtype=np.int64),
        }
        for name, shape in shapes.items():
            yield name, np.repeat(shape[:, np.newaxis], columns, axis=1)
            if columns > 1:
                yield f"{name}, one column", np.eye(1, columns, dtype=np.int64) * shape[:, np.newaxis]
        if columns > 1:
            yield f"{level} from column to column", _in_turn(steps, columns, level)
            signs = 1 - 2 * (np.arange(columns) % 2)
            yield f"{level} above and below zero", level * np.where(time == 0, 0, 1)[:, np.newaxis] * signs


def placed(policy: Policy, columns: int, steps: int, levels: Sequence[int]) -> list[Pair]:
    """Pairs of streams that stand at given levels: those at which something is decided."""
    return list(_placed(policy, columns, steps, tuple(levels)))


def passes(pair: Pair, policy: Policy, levels: Sequence[int]) -> bool:
    """Whether a column or a whole step of one stream reaches a level, or goes beyond it, and of the other does not."""
    one, other = (np.column_stack([side, side.sum(axis=1)]) for side in (pair.first, pair.second))
    low, high = np.minimum(one, other), np.maximum(one, other)
    most = amount_of(policy)  # smaller levels are passed by every change
    return any(
        bool(np.any((low < beside) & (beside <= high)))
        for level in levels
        if level > most
        for beside in (level, level + 1)
    )


@lru_cache(maxsize=32)  # the same ones are asked for from every angle
def _placed(policy: Policy, columns: int, steps: int, levels: tuple[int, ...]) -> tuple[Pair, ...]:
    length = min(steps, policy.window or steps)
    found: dict[bytes, Pair] = {}
    for what, change in changes(policy, length, columns, amount_of(policy)):
        for name, base in placed_bases(steps, columns, levels):
            for first in _places(steps, length):
                pair = _pair(policy, base, first, change, f"{name}; {what}")
                if pair is not None:
                    found.setdefault(pair.key, pair)
    return tuple(found.values())


def amount_of(policy: Policy) -> int:
    """The largest change of one step, in the units of its streams (`subjects.in_units`)."""
    return max(1, int(Fraction(policy.max_change)))


def library(policy: Policy, columns: int, steps: int) -> list[Pair]:
    """All patterns, with windows at every place of a short stream, and at a few of a long one; known ones first."""
    return list(_library(policy, columns, steps))


@lru_cache(maxsize=32)
def _library(policy: Policy, columns: int, steps: int) -> tuple[Pair, ...]:
    found: dict[bytes, tuple[int, int, Pair]] = {}
    for length, amount in sizes(policy, steps):
        places = _places(steps, length)
        largest = amount == amount_of(policy) or isinstance(policy, Swellfish)
        for what, change in changes(policy, length, columns, amount):
            for name, base in _beside(bases(steps, columns, amount), amount):
                rank = KNOWN.index((name, what)) if (name, what) in KNOWN else len(KNOWN)
                known = rank < len(KNOWN) and largest
                origin = f"{name}; {what}" if largest else f"{name}; {what}, by {amount}"
                turn = 0
                for at in range(
                    len(places)
                ):  # patterns begin at other places, so that the first ones cover all
                    first = places[(at + rank) % len(places)]
                    moved = np.roll(change, first, axis=1) if "moving" in what else change  # with the base
                    pair = _pair(policy, base, first, moved, origin)
                    if pair is not None:
                        found.setdefault(pair.key, (turn if known else MOST_PLACES, rank, pair))
                        turn += 1
    before: Counter[tuple[int, int]] = (
        Counter()
    )  # of several sizes of one pattern, the others have their turn first
    ordered = []
    for turn, rank, pair in found.values():
        # where units are replaced, that is the most that one can do, and comes first
        order = rank - len(KNOWN) if "replaced" in pair.origin else rank
        ordered.append((turn, before[turn, rank] if turn < MOST_PLACES else 0, order, pair))
        before[turn, rank] += 1
    return tuple(entry[-1] for entry in sorted(ordered, key=lambda entry: entry[:3]))


def _beside(found: Iterable[tuple[str, Counts]], amount: int) -> Iterator[tuple[str, Counts]]:
    """Bases, and the same one higher where changes are larger than that: what rounds treats them in another way."""
    for name, base in found:
        yield name, base
        if amount > 1:
            yield name, base + 1


def everywhere(policy: Policy, columns: int, steps: int) -> list[Pair]:
    """A unit in a quiet stream, and in one that is not, wherever its window may begin; by as much as it can, and by 1."""
    return list(_everywhere(policy, columns, steps))


@lru_cache(maxsize=32)
def _everywhere(policy: Policy, columns: int, steps: int) -> tuple[Pair, ...]:
    found: dict[bytes, Pair] = {}
    for length, amount in sizes(policy, steps):
        low = np.full((steps, columns), amount, dtype=np.int64)
        for what, change in changes(policy, length, columns, amount):
            for first in range(steps - length + 1):
                for name, base in (("silence", low * 0), ("level", low)):
                    pair = _pair(policy, base, first, change, f"{name}; {what}, from step {first + 1}")
                    if pair is not None:
                        found.setdefault(pair.key, pair)
    # the longest changes first, and those of all places in turn
    return tuple(sorted(found.values(), key=lambda pair: -int(np.abs(pair.second - pair.first).sum())))


def sizes(policy: Policy, steps: int) -> list[tuple[int, int]]:
    """How many steps change and by how much: the most that a unit can do, and by 1 where that is less.

    Secrets have durations and heights of their own, and which of them are hidden differs from step to step.
    """
    length, amount = min(steps, policy.window or steps), amount_of(policy)
    if not isinstance(policy, Swellfish):
        return [(length, each) for each in dict.fromkeys((amount, 1))]
    sums = {total for row in policy.temporal_sensitivity(1, steps) for total in row if total >= 1}
    amounts = sorted({int(total) for total in sums}) or [1]
    durations = sorted({min(steps, secret.duration) for secret in policy.secrets})
    return [(duration, each) for duration in durations for each in amounts]


def _places(steps: int, length: int) -> list[int]:
    """Where a window may begin: at the beginning, in the middle and at the end, and in between where steps are few."""
    last = steps - length
    few = list(dict.fromkeys((0, last // 2, last, min(last, steps // 2))))
    return few + [at for at in range(last + 1) if at not in few][: MOST_PLACES - len(few)]


def known_pairs(pairs: Sequence[Pair]) -> int:
    """How many pairs of a library, from its beginning, are among those to be looked at first."""
    origins = {"; ".join(entry) for entry in KNOWN}
    return sum(pair.origin in origins for pair in pairs)


def _pair(policy: Policy, base: Counts, first: int, change: Counts, origin: str) -> Pair | None:
    lowest = min(0, int((base[first : first + len(change)] + change).min()))
    raised = base - lowest if base.min() >= 0 else base  # counts are not negative; what is may become more so
    try:
        second = policy.neighbour(raised, first, change)
        return Pair(raised, second, origin) if policy.distance(raised, second) == 1 else None
    except TidegateError:
        return None


def random_pair(policy: Policy, columns: int, steps: int, choose: Choose) -> Pair | None:
    """A stream of quiet stretches and jumps, and an extreme neighbour of it."""
    amount = amount_of(policy)
    big = big_of(amount)
    levels: tuple[int, ...] = (0, 0, amount, 2 * amount + 1, big, 2 * big, 3 * big)
    if choose(2):  # small enough for noise to decide
        levels = (0, 0, 1, amount, 2 * amount, 3 * amount, 4 * amount)
    base = np.zeros((steps, columns), dtype=np.int64)
    for column in range(columns):
        level = 0
        for step in range(steps):
            if choose(2):
                level = levels[choose(len(levels))]
            base[step, column] = level
    base += amount
    try:
        second = policy.extreme_neighbour(base, choose)
        return Pair(base, second, "random") if policy.distance(base, second) == 1 else None
    except TidegateError:
        return None


def tied_pair(
    policy: Policy,
    columns: int,
    steps: int,
    choose: Choose,
    levels: Sequence[int] = (),
    moments: Sequence[int] = (),
) -> Pair | None:
    """A stream of two values only, at or beside a level at which something is decided, and a neighbour of it.

    Values, scores and ranks tie in one of the streams, and a small change of few steps, just before a public moment
    or anywhere, breaks or makes a tie.
    """
    amount = amount_of(policy)
    values = sorted({1, amount, 2 * amount, *(level for level in levels if 0 < level < BIG)})
    high = max(1, values[choose(len(values))] + (0, 0, -1, 1)[choose(4)])
    high = big_of(amount) if choose(6) == 0 else high
    low = (0, 0, 0, 1, -1, -high, max(0, high - 1), high + amount)[choose(8)]
    time, kind = np.arange(steps), choose(6)
    public = sorted({0, steps, *(each for each in moments if 0 < each < steps)})
    shape = np.full(steps, low, dtype=np.int64)
    if kind == 0:
        shape = np.where(time % 2 == choose(2), high, low)
    elif kind == 1:  # few high ones before something happens
        end, count = public[choose(len(public))] or steps, 1 + choose(3)
        shape[max(0, end - count) : end] = high
    elif kind == 2:
        shape[choose(steps)] = high
    elif kind == 3:
        shape[public[choose(len(public))] :] = high
    elif kind == 4:
        shape = np.array([(low, high)[choose(2)] for _ in range(steps)], dtype=np.int64)
    base = np.repeat(shape[:, np.newaxis], columns, axis=1)
    if columns > 1 and choose(2):  # columns take turns: where one rises, another falls
        at = (time + choose(columns)) % columns if choose(2) else (time >= choose(steps)) * 1
        base = np.full((steps, columns), low, dtype=np.int64)
        base[time, at] = high
    length = min(steps, policy.window or steps)
    first, change = _few_steps(policy, base, length, choose, public, (1, amount, high - low, *values))
    return _pair(policy, base, first, change, "values that tie")


def _few_steps(
    policy: Policy, base: Counts, length: int, choose: Choose, public: Sequence[int], sizes: Sequence[int]
) -> tuple[int, Counts]:
    """Where a window begins, and what a unit does in one, two or all of its steps, by any of some amounts."""
    (steps, columns), most = base.shape, amount_of(policy)
    fitting = [size for size in sizes if 0 < abs(size) <= most]
    size = fitting[choose(len(fitting))]
    moment = public[choose(len(public))] + choose(3) - 2 if choose(2) else choose(steps)
    at = min(max(moment, 0), steps - 1)
    first = min(max(0, at - choose(length)), steps - length)
    changed = (slice(at - first, at - first + 1), slice(at - first, at - first + 2), slice(0, length))
    change = np.zeros((length, columns), dtype=np.int64)
    column = choose(columns)
    some = changed[choose(3)]
    lowest = int(base[first : first + length][some, column].min())
    if choose(2) and lowest >= size:  # nobody leaves who was not there: all values would have to be higher
        size = -size
    change[some, column] = size
    if columns > 1 and policy.adjacency == "replace" and choose(4):
        change[some, (column + 1) % columns] = -size
    elif columns > 1 and policy.mobility == "moving" and choose(2):
        later = np.arange(length)[some][1:]
        change[later] = np.roll(change[later], 1, axis=1)
    return first, change


def varied(policy: Policy, pair: Pair, choose: Choose, levels: Sequence[int] = ()) -> Pair | None:
    """A pair near another one: another level somewhere, another direction, or another window."""
    first, change = pair.first.copy(), pair.second - pair.first
    steps, columns = first.shape
    for _ in range(1 + choose(2)):
        kind = choose(6)
        if kind == 0:  # the base moves in one step
            big = big_of(amount_of(policy))
            options = (0, 1, amount_of(policy), -amount_of(policy), big, 2 * big, *levels)
            level = options[choose(len(options))]
            first[choose(steps), choose(columns)] = level
        elif kind >= 4:  # by a little
            first[choose(steps), choose(columns)] += amount_of(policy) * (1 - 2 * choose(2))
        elif kind == 1:  # the base moves from one step on
            first[choose(steps) :, choose(columns)] += big_of(amount_of(policy))
        elif kind == 2:  # one step changes the other way
            change[choose(steps)] *= -1
        else:  # the window moves
            change = np.roll(change, 1 - 2 * choose(2), axis=0)
    if pair.first.min() >= 0:
        first += max(0, -int(np.minimum(first, first + change).min()))
    second = first + change
    try:
        near = policy.distance(first, second) == 1
    except TidegateError:
        return None
    return Pair(first, second, pair.origin.removesuffix(", varied") + ", varied") if near else None
