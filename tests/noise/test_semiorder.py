"""The semiorder: bit for bit, certified orders, goodness of fit, and attacks with the norm of the law.

Level: ALPHA = 1e-9 a test (distributions); every statistical test refuses wrong versions.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.noise.drawing import check_drawn_ahead

from distributions import ALPHA, compare_counts, compare_integers
from tidegate.audit.bounds import at_least, at_most
from tidegate.errors import InvalidParameter, SnapshotError
from tidegate.noise import Source, current
from tidegate.noise.entropy import Elements, Words
from tidegate.noise.kernels import UNDECIDED
from tidegate.noise.reference import UniformReal
from tidegate.noise.shared import kernels, reference
from tidegate.noise.shared.choice import SEMIORDER_MOMENTS, best_choice, laplace_choice
from tidegate.noise.shared.orders import Order, order, widest
from tidegate.noise.shared.semiorder import Semiorder, _rounded
from tidegate.noise.shared.shares import largest_shares, shares
from tidegate.testing.entropy import FixedEntropy, zero_noise

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SOURCE = FixedEntropy("semiorder")
TOP = (1 << 64) - 1
LAWS = [
    Semiorder(5.0, 1),
    Semiorder(7.3, 2),
    Semiorder(100.0, 4),
    Semiorder(3.0, 4, columns=2),
    Semiorder(2.0**34, 3),
    Semiorder(2.0**28, 5, columns=2, copies=2, classes=3),
    Semiorder(0.4, 5, copies=3),
    Semiorder(50.0, 7, classes=2),
    Semiorder(Fraction(10, 3), 3, columns=4),
]


def words(source: Source, stream: str, step: int, draw: int, index: int = 0) -> Iterator[int]:
    """The words of one element from an index on."""
    return (source.word(stream, step, draw, i) for i in itertools.count(index))


def by_reference(law: Semiorder, source: Source, steps: int) -> Integers:
    """The noise of a law by its definition: place, add up, subtract the last arrival before, round."""
    out = np.zeros((steps, law.copies * law.columns), dtype=np.int64)
    width, d = law.width, law.columns
    radix = [1] + [d * (d + 1) ** i for i in range(width - 1)]
    for number, copy in itertools.product(range(law.classes), range(law.copies)):
        stream = f"test/{number}"
        rows = range(number, steps, law.classes)
        arrival: dict[tuple[int, int], int] = {}
        counts = [0] * (len(rows) + width)
        gaps, signs, oldest = [], [], 0
        while oldest < len(rows):
            placement = len(gaps)
            state = sum(r * c for r, c in zip(radix, counts[oldest:], strict=False))
            step = oldest + law.order.choose(state, words(source, stream, placement, 2 * copy))
            word = source.word(stream, placement, 2 * copy + 1, 0)
            gaps.append(UniformReal(word >> 1, 63, words(source, stream, placement, 2 * copy + 1, 1)))
            signs.append(-1 if word & 1 else 1)
            arrival[step, counts[step]] = len(gaps)
            counts[step] += 1
            while counts[oldest] == d:
                oldest += 1
        for step, row in enumerate(rows):
            start = max((arrival[s, d - 1] for s in range(step - width + 1)), default=0)
            for column in range(d):
                stop = arrival[step, column]
                value = reference.rounded_sum(gaps[start:stop], law.prepared.exact)
                out[row, copy * d + column] = signs[stop - 1] * value
                start = stop
    return out


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_batches_single_steps_and_restores_agree_with_the_reference(law: Semiorder) -> None:
    """One batch, single steps, uneven batches with a snapshot between them: the same noise as by definition."""
    steps = 60
    wanted = by_reference(law, SOURCE, steps)
    assert np.array_equal(law.draw(SOURCE, "test", 0, law.start(), steps)[0], wanted)
    for sizes in (itertools.repeat(1), itertools.cycle([5, 1, 9, 2])):
        state, at = law.start(), 0
        while at < steps:
            size = min(next(sizes), steps - at)
            values, after = law.draw(SOURCE, "test", at, state, size)
            assert np.array_equal(values, wanted[at : at + size])
            state, at = law.restore(json.loads(json.dumps(after.numbers()))), at + size


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_noise_that_was_drawn_ahead_can_be_left(law: Semiorder) -> None:
    """What is not used leaves no trace."""
    check_drawn_ahead(law, SOURCE)


class Doubtful:
    """Gaps whose leading bits say next to nothing, and further words that never come twice the same."""

    name = "doubtful"
    marked = True

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Hashed choices, planted gaps."""
        found = SOURCE.words(stream, step, draws, elements, first, count)
        found[0, np.asarray(elements) % 2 == 1] = 10  # u is between 5 and 6 times 2^-63
        return found

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A new further word at every call."""
        if index == 0:
            return 10 if draw % 2 else SOURCE.word(stream, step, draw, 0)
        self.asked.append((step, index))
        return SOURCE.word("further", len(self.asked), 0, 0)


@pytest.mark.parametrize("size", [40, 1, 3])
def test_bits_that_were_learned_are_kept(size: int) -> None:
    """No further word of a gap is asked for twice, also after a snapshot: a number has its bits for good.

    Wrong version: a snapshot that forgets them.
    """
    law = Semiorder(1000.0, 3)
    for forgetful in (False, True):
        source, state = Doubtful(), law.start()
        for at in range(0, 40, size):
            _, state = law.draw(source, "test", at, state, min(size, 40 - at))
            numbers = json.loads(json.dumps(state.numbers()))
            if forgetful:
                numbers["tracks"][0]["more"] = []
            state = law.restore(numbers)
        assert len(source.asked) > 20
        twice = len(set(source.asked)) < len(source.asked)
        assert twice == (forgetful and size < 40)


def test_a_part_that_is_drawn_once_more_asks_for_nothing_new() -> None:
    """The state after some of the values that were drawn ahead has the further words by which these were decided."""
    law, source = Semiorder(1000.0, 3), Doubtful()
    _, after = law.draw_ahead(source, "test", 0, law.start(), 40)
    asked = list(source.asked)
    assert len(asked) > 20
    states = [after(used) for used in (40, 11, 12, 11)]
    assert source.asked == asked
    assert states[1].numbers() == states[3].numbers()


class Planted:
    """Choices on or beside a boundary of the first state, then hashed words."""

    name = "planted"
    marked = True

    def __init__(self, first: int, extension: int) -> None:
        self._first, self._extension = first, extension

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Planted words where there are some."""
        found = [
            [self.word(stream, step + int(e) // draws, int(e) % draws, first + i) for e in elements]
            for i in range(count)
        ]
        return np.array(found, dtype=np.uint64)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """The first choice is planted."""
        if step == 0 and draw == 0:
            return self._first if index == 0 else self._extension
        return SOURCE.word(stream, step, draw, index)


@pytest.mark.parametrize(("width", "columns"), [(2, 1), (4, 1), (3, 2)])
def test_choices_on_a_boundary_are_decided_by_more_bits(width: int, columns: int) -> None:
    """On each boundary, and beside it, with low and high further words: as the reference decides."""
    law = Semiorder(30.0, width, columns)
    for low in law.order.boundaries[0].tolist()[:-1]:
        for first, extension in itertools.product((low - 1, low, low + 1, low + 2), (0, TOP, 12345)):
            source = Planted(first % (1 << 64), extension)
            wanted = by_reference(law, source, 12)
            assert np.array_equal(law.draw(source, "test", 0, law.start(), 12)[0], wanted)
            if columns == 1:  # the quick way
                state, single = law.start(), []
                for step in range(12):
                    value, state = law.draw_one(source, "test", step, state)
                    single.append(value)
                assert single == wanted.reshape(-1).tolist()


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=31), st.floats(0.01, 2.0**40))
@settings(max_examples=150, deadline=None)
def test_roundings_that_the_kernel_decides_are_those_of_the_reference(
    leading: list[int], scale: float
) -> None:
    """Any gaps and any scale: a decided rounding needs no further word and is the same."""
    units, errors = np.zeros(32, dtype=np.uint64), np.zeros(32, dtype=np.int64)
    kernels.add_depths(2 * np.array(leading, dtype=np.uint64), units, errors)
    n = len(leading)
    found = kernels.rounded(units[n] - units[0], errors[n] - errors[0], scale)
    if found != UNDECIDED:
        gaps = [UniformReal(m, 63, iter(())) for m in leading]
        assert reference.rounded_sum(gaps, Fraction(scale)) == found


@pytest.mark.parametrize("scale", [1.0, 100.0, 2.0**20, 2.0**30])
def test_roundings_next_to_boundaries(scale: float) -> None:
    """Beside (v + ½)/scale the kernel is silent or right."""
    decided = 0
    for value, offset in itertools.product((0, 1, 7, int(scale), int(3 * scale)), range(-40, 41, 5)):
        boundary = int(math.exp(-(value + 0.5) / scale) * 2.0**63) if scale > 1 else 1 << 60
        leading = min(max(boundary + (offset << 10) * abs(offset), 1 << 40), (1 << 63) - 1)
        units, errors = np.zeros(2, dtype=np.uint64), np.zeros(2, dtype=np.int64)
        kernels.add_depths(np.array([2 * leading], dtype=np.uint64), units, errors)
        found = kernels.rounded(units[1], errors[1], scale)
        wanted = {
            reference.rounded_sum([UniformReal(leading, 63, itertools.repeat(more))], Fraction(scale))
            for more in (0, TOP)
        }
        assert found == UNDECIDED or {found} == wanted
        decided += found != UNDECIDED
    assert decided


def extensions(width: int, columns: int, steps: int) -> dict[tuple[int, ...], int]:
    """All linear orders of a few steps, each as the steps in the order of their placement; counted one by one."""
    found: dict[tuple[int, ...], int] = {(): 1}
    for _ in range(steps * columns):
        longer: dict[tuple[int, ...], int] = {}
        for path in found:
            done = [path.count(step) == columns for step in range(steps)]
            for step in range(steps):
                if not done[step] and all(done[: max(0, step - width + 1)]):
                    longer[(*path, step)] = 1
        found = longer
    return found


@pytest.mark.parametrize(("width", "columns", "steps"), [(2, 1, 9), (3, 1, 9), (2, 2, 6)])
def test_choices_are_those_of_a_uniform_order_of_a_long_run(width: int, columns: int, steps: int) -> None:
    """The first two choices happen as often as in a uniform linear order of some steps, up to what the end does.

    Wrong version: choices with equal chances.
    """
    semiorder = order(width, columns)
    orders = list(extensions(width, columns, steps))
    values = semiorder.eigenvector(64).values
    for beginning in {path[:2] for path in orders}:
        share = sum(path[:2] == beginning for path in orders) / len(orders)
        first = int(semiorder.successors[0, beginning[0]])
        oldest = int(columns == 1 and beginning[0] == 0)
        second = int(semiorder.successors[first, beginning[1] - oldest])
        eigenvalue = sum(int(values[s]) for s in semiorder.successors[0] if s >= 0) / int(values[0])
        chance = int(values[second]) / int(values[0]) / eigenvalue**2
        assert abs(share - chance) < 0.012
        choices = [sum(s >= 0 for s in semiorder.successors[state]) for state in (0, first)]
        assert abs(1 / math.prod(choices) - chance) > 0.001


@pytest.mark.parametrize(("width", "columns"), [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3)])
def test_eigenvectors_are_enclosed(width: int, columns: int) -> None:
    """The components of few bits are within their error of those of many, as is A·h = λ·h."""
    semiorder = order(width, columns)
    coarse, fine = semiorder.eigenvector(30), semiorder.eigenvector(300)
    assert coarse.error <= Fraction(1, 1 << 30)
    factors = [Fraction(int(c), int(f)) for c, f in zip(coarse.values, fine.values, strict=True)]
    assert max(factors) / min(factors) - 1 <= 2 * (coarse.error + fine.error) / (1 - coarse.error) ** 2
    ratios = [
        Fraction(sum(int(fine.values[s]) for s in row if s >= 0), int(value))
        for row, value in zip(semiorder.successors.tolist(), fine.values, strict=True)
    ]
    assert max(ratios) / min(ratios) - 1 < Fraction(1, 1 << 290)


def test_the_golden_ratio() -> None:
    """Width 2: h(nothing placed)/h(next one placed) is the golden ratio, to 90 digits."""
    values = order(2).eigenvector(300).values
    golden = (Fraction(math.isqrt(5 * 10**200), 10**100) + 1) / 2
    assert abs(Fraction(int(values[0]), int(values[1])) - golden) < Fraction(1, 10**89)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_boundaries_of_choices_are_as_exact_as_their_bits(width: int) -> None:
    """Within one unit of the last bit of what a much finer eigenvector gives; ten bits fewer are not."""
    semiorder = order(width)
    fine = semiorder.eigenvector(400).values
    for state in range(semiorder.states):
        weights = [int(fine[each]) if each >= 0 else 0 for each in semiorder.successors[state].tolist()]
        shares = [Fraction(sum(weights[: i + 1]), sum(weights)) for i in range(width)]
        for bits in (20, 64, 88, 133):  # where a few bits fewer would show
            found = semiorder.ladder(state)(bits)
            pairs = zip(found, shares, strict=False)
            assert all(abs(boundary - share * 2**bits) <= 1 for boundary, share in pairs)
        row = semiorder.row(state)
        assert all(abs(boundary - share * 2**64) <= 1 for boundary, share in zip(row, shares, strict=True))


def test_an_eigenvector_far_from_its_start_is_refused() -> None:
    """The certificate notices values that its mixing constant was not computed for."""
    semiorder = Order(3)
    semiorder.__dict__["_approximate"] = semiorder._approximate * np.array([1.0, 1.1, 1.0, 1.0])
    with pytest.raises(ArithmeticError, match="start"):
        semiorder.eigenvector(64)


def test_how_often_the_kernel_is_unsure() -> None:
    """At scale 1000 fewer than one value in 2^14 is left to the reference (n = 2^17)."""
    law, n = Semiorder(1000.0, 8), 1 << 17
    asked: list[int] = []
    rounded_sum = reference.rounded_sum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "rounded_sum", lambda *a: asked.append(1) or rounded_sum(*a))
        law.draw(current(), "test", 0, law.start(), n)
    assert compare_counts({"undecided": (min(len(asked), n >> 14), 2.0**-14)}, n).ok
    assert len(asked) < n >> 11


@pytest.mark.parametrize("columns", range(1, 9))
def test_the_table_of_moments(columns: int) -> None:
    """Mean absolute values and variances of the choice are those of the law; all widths of up to 9000 states."""
    table = SEMIORDER_MOMENTS[columns - 1]
    assert len(table) == widest(columns)
    for width, (absolute, variance) in enumerate(table, 1):
        if columns * (columns + 1) ** (width - 1) <= 9000:
            numbers = np.arange(1, (2 * width - 1) * columns + 1)
            share = np.array(shares(width, columns))
            assert math.isclose((share * numbers).sum(), absolute, abs_tol=1e-6)
            assert math.isclose((share * numbers * (numbers + 1)).sum(), variance, abs_tol=1e-5)


def simulate(
    width: int,
    steps: int,
    scale: float,
    copies: int,
    *,
    geometric: bool = False,
    forget: bool = False,
    share_signs: bool = False,
) -> Integers:
    """The law in floating point, or a wrong version of it, for one column: another implementation, (copies, steps)."""
    rng = np.random.default_rng(11)
    semiorder = order(width)
    values = np.append(semiorder._approximate, 0.0)
    after = semiorder.successors
    cumulated = np.cumsum(values[after], axis=1)
    cumulated /= cumulated[:, -1:]
    node, oldest = np.zeros(copies, dtype=np.int64), np.zeros(copies, dtype=np.int64)
    now = np.zeros(copies)
    arrival = np.full((copies, steps + 3 * width), np.inf)
    rows = np.arange(copies)
    for _ in range(steps + width - 1):
        now += (
            rng.geometric(-math.expm1(-1 / scale), copies) - 1
            if geometric
            else rng.exponential(scale, copies)
        )
        choice = (rng.random(copies)[:, None] >= cumulated[node]).sum(axis=1)
        arrival[rows, np.minimum(oldest + choice, arrival.shape[1] - 1)] = now
        node = after[node, choice].astype(np.int64)
        while (
            done := np.isfinite(arrival[rows, np.minimum(oldest, arrival.shape[1] - 1)]) & (oldest < steps)
        ).any():
            oldest += done
    before = np.zeros((copies, steps))
    for t in range(width, steps):
        before[:, t] = (
            arrival[:, t - width] if forget else np.maximum(before[:, t - 1], arrival[:, t - width])
        )
    sign = rng.choice([-1, 1], (copies, 1 if share_signs else steps))
    return (sign * np.floor(arrival[:, :steps] - before + 0.5)).astype(np.int64)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_margins(width: int) -> None:
    """Values long after the start have the tails that are claimed (n = 2^14 runs), and the moments.

    Wrong versions: the margin of a width one larger; a forgotten maximum; geometric arrivals on a coarse grid.
    """
    n, steps = 1 << 14, 6 * width + 4
    for scale in (0.8, 50.0):
        law = Semiorder(scale, width, copies=n)
        moments = law.moments
        edges = np.unique([moments.radius(p) for p in (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.99)])
        at_most_edges = np.array([1 - moments.beyond(int(edge)) for edge in edges])

        def fits(values: Integers, edges: Any = edges, tails: Any = at_most_edges) -> bool:
            return compare_integers(np.abs(values), edges, tails).ok

        last = law.draw(current(), "test", 0, law.start(), steps)[0][-1]
        assert fits(last)
        error = 8 / math.sqrt(n)
        assert abs(np.mean(np.abs(last)) / law.expected_absolute() - 1) < error
        assert abs(np.mean(last.astype(float) ** 2) / law.variance() - 1) < 3 * error
        assert fits(simulate(width, steps, scale, n)[:, -1])
        if width < 8:
            assert not fits(simulate(width + 1, steps, scale, n)[:, -1])
        if width > 1:
            assert not fits(simulate(width, steps, scale, n, forget=True)[:, -1])
        if scale < 1:
            assert not fits(simulate(width, steps, scale, n, geometric=True)[:, -1])


def survival(width: int, columns: int) -> tuple[Any, Any]:
    """P(K > 1), P(K > 2), …: at the last step of the first window, and the most from any state a step can enter in."""
    order = Order(width, columns)
    value = order.eigenvector(64).values.astype(float)
    counts = [tuple(int(count) for count in state) for state in order.counts.T]
    entries = {(at, 0) for at in range(width)}
    passed = []
    for state, placed in enumerate(counts):
        full = [columns if at == 0 and count == columns - 1 else count for at, count in enumerate(placed)]
        passed.append(next((at for at, count in enumerate(full) if count < columns), width))
        entries |= {(at, int(order.successors[state, 0])) for at in range(width - passed[-1], width)}
    left = np.ones((width, order.states))
    first, most = [], []
    for _ in range((2 * width - 1) * columns):
        before, left = left, np.zeros((width, order.states))
        for state, at in itertools.product(range(order.states), range(width)):
            nexts = [
                (choice, int(after)) for choice, after in enumerate(order.successors[state]) if after >= 0
            ]
            total = sum(value[after] for _, after in nexts)
            for choice, after in nexts:
                moved = at - passed[state] if choice == 0 else at
                if choice != at and moved >= 0:
                    left[at, state] += value[after] / total * before[moved, after]
        first.append(left[width - 1, 0])
        most.append(max(left[entry] for entry in entries))
    return np.array(first), np.array(most)


@pytest.mark.parametrize(("width", "columns"), [(2, 1), (3, 1), (5, 1), (2, 2), (3, 2), (2, 4)])
def test_values_are_largest_at_the_end_of_the_first_window(width: int, columns: int) -> None:
    """By computation over all states: a step is placed at no time later than there, and its shares are those."""
    first, most = survival(width, columns)
    assert (most <= first + 1e-12).all()
    assert np.allclose(1 - np.cumsum(largest_shares(width, columns)), first, atol=1e-9)


@pytest.mark.parametrize(("width", "columns"), [(2, 1), (4, 1), (8, 1), (3, 2)])
def test_intervals_hold_at_every_step(width: int, columns: int) -> None:
    """From the start on (n = 2^14 runs, α = 1e-9 a step and level); those of values long after the start do not."""
    n = (1 << 14) // columns
    law = Semiorder(50.0, width, columns, copies=n)
    values = np.abs(
        law.draw(current(), "test", 0, law.start(), 3 * width)[0].reshape(3 * width, n, columns)[:, :, 0]
    )
    for level in (0.5, 0.9, 0.99):
        least = binom.ppf(1e-9, n, level)
        assert ((values <= law.largest_radius(level)).sum(axis=1) >= least).all()
        if width > 3 and level < 0.99:  # so far out the two are nearly alike
            assert (values[width - 1] <= law.radius(level)).sum() < least


def test_columns_are_alike() -> None:
    """With three columns each of them has the same margin (n = 2^14 runs)."""
    n = 1 << 14
    law = Semiorder(20.0, 3, columns=3, copies=n)
    last = law.draw(current(), "test", 0, law.start(), 24)[0][-1].reshape(n, 3)
    edges = np.array([law.radius(p) for p in (0.1, 0.3, 0.5, 0.7, 0.9, 0.98)])
    at_most_edges = np.array([1 - law.moments.beyond(int(edge)) for edge in edges])
    for column in range(3):
        assert compare_integers(np.abs(last[:, column]), edges, at_most_edges).ok


def norm(values: Integers, width: int) -> Integers:
    """The norm of each row: the largest sum of absolute values at steps of which any two are `width` apart."""
    best = np.zeros((len(values), values.shape[1] + width), dtype=np.int64)
    for t in range(values.shape[1]):
        best[:, t + width] = np.maximum(best[:, t + width - 1], np.abs(values[:, t]) + best[:, t])
    return best[:, -1]


Events = dict[str, Callable[[Integers], npt.NDArray[np.bool_]]]


def events(width: int, change: Integers) -> Events:
    """What an attacker looks at: how much nearer the releases are to the other input, and their first steps."""
    size = int(np.abs(change).max())

    def nearer(values: Integers, share: float) -> npt.NDArray[np.bool_]:
        return norm(values, width) - norm(values - change, width) >= share * size

    found: Events = {f"nearer by {s}": lambda y, s=s: nearer(y, s) for s in (0.9, 1.0, 1.5, 1.9)}  # type: ignore[misc]
    for a, b in ((0, 0), (1, 0), (1, 1), (2, 1), (2, 2)):
        found[f"|y| begins {a}, {b}"] = lambda y, a=a, b=b: (np.abs(y[:, 0]) == a) & (np.abs(y[:, 1]) == b)  # type: ignore[misc]
    found["signs differ"] = lambda y: (y[:, 0] > size) & (y[:, 1] < -size // 2)
    if change.size > width + 1:
        found["fourth below the difference of the first two"] = lambda y: (
            np.abs(y[:, width + 1]) < np.abs(y[:, 0]) - np.abs(y[:, 1]) - 2
        )
    return found


def loss(noise: Integers, width: int, change: Integers) -> tuple[float, float]:
    """(the largest loss that is proved, the largest that is seen) by inputs 0 and `change`, in both directions."""
    first, second = noise[: len(noise) // 2], noise[len(noise) // 2 :] + change
    n, proved, seen = len(first), 0.0, 0.0
    chosen = events(width, change)
    error = ALPHA / (4 * len(chosen))
    for event in chosen.values():
        a, b = int(event(first).sum()), int(event(second).sum())
        for likely, rare in ((a, b), (b, a)):
            low, high = float(at_least(likely, n, error)), float(at_most(rare, n, error))
            if low > 0:
                proved = max(proved, math.log(low / high))
            if min(likely, rare) > 200:
                seen = max(seen, math.log(likely / rare))
    return proved, seen


EPSILON = 1.5


def ours(width: int, steps: int, scale: float, copies: int, classes: int = 1) -> Integers:
    """What we ship, (copies, steps)."""
    law = Semiorder(scale, width, copies=copies, classes=classes)
    return law.draw(current(), "test", 0, law.start(), steps)[0].T


@pytest.mark.parametrize(
    ("width", "steps", "changed", "size"),
    [(2, 2, 1, 1), (2, 2, 2, 30), (2, 6, 1, 30), (4, 12, 1, 1), (4, 12, 1, 30), (16, 48, 1, 30)],
)
def test_the_norm_finds_the_loss_and_no_more(width: int, steps: int, changed: int, size: int) -> None:
    """Attacks on a coarse and a fine grid see at least 0.7 ε and prove no more than ε (n = 2^17 runs).

    A change of the first steps, because the later ones are seen without what follows them.
    """
    change = np.zeros(steps, dtype=np.int64)
    change[:changed] = size
    proved, seen = loss(ours(width, steps, size / EPSILON, 1 << 17), width, change)
    assert proved <= EPSILON
    assert seen >= 0.7 * EPSILON


def test_windows_over_classes() -> None:
    """Four steps of two classes of width 2 at ε/2 each lose at least 0.7 ε and no more than ε (n = 2^18 runs)."""
    size, copies = 30, 1 << 18
    noise = ours(2, 4, 2 * size / EPSILON, copies, classes=2)
    change = np.full(4, size)
    first, second = noise[: copies // 2], noise[copies // 2 :] + change
    counts = []
    for values in (first, second):
        near = [norm(values[:, c::2], 2) - norm(values[:, c::2] - size, 2) >= size for c in (0, 1)]
        counts.append(int((near[0] & near[1]).sum()))
    low, high = (
        float(at_least(counts[1], copies // 2, ALPHA / 2)),
        float(at_most(counts[0], copies // 2, ALPHA / 2)),
    )
    assert math.log(low / high) <= EPSILON
    assert math.log(counts[1] / counts[0]) >= 0.7 * EPSILON


@pytest.mark.parametrize(
    ("wrong", "size", "change"),
    [
        ({"geometric": True}, 1, [1, 0]),
        ({"forget": True}, 30, [30, 0, 0, 0]),
        ({"share_signs": True}, 30, [30, -30]),
        ({}, 30, [30, 30, 30]),
    ],
    ids=["geometric arrivals", "a forgotten maximum", "one sign for all", "a window one too long"],
)
def test_wrong_versions_are_caught(wrong: dict[str, bool], size: int, change: list[int]) -> None:
    """Each wrong version is proved to lose more than ε; the same attack on the right one proves nothing."""
    moved = np.array(change)
    noise = simulate(2, moved.size, size / EPSILON, 1 << 18, **wrong)
    assert loss(noise, 2, moved)[0] > EPSILON
    if np.count_nonzero(moved) <= 2:
        assert loss(ours(2, moved.size, size / EPSILON, 1 << 18), 2, moved)[0] <= EPSILON


def test_zero_noise() -> None:
    """The source of zeros gives zeros."""
    with zero_noise() as source:
        for law in (Semiorder(24.0, 8), Semiorder(2.0**30, 4, columns=2, copies=2, classes=2)):
            assert not law.draw(source, "test", 0, law.start(), 40)[0].any()


def test_refused() -> None:
    """Orders that are too wide, and snapshots of another law."""
    with pytest.raises(InvalidParameter, match="width"):
        Semiorder(1.0, 17)
    with pytest.raises(InvalidParameter, match="width"):
        Semiorder(1.0, 2, columns=9)
    with pytest.raises(InvalidParameter, match="scale"):
        Semiorder(0.0, 2)
    law = Semiorder(10.0, 3)
    _, state = law.draw(current(), "test", 0, law.start(), 9)
    numbers = state.numbers()
    for other in (Semiorder(10.0, 4), Semiorder(10.0, 3, copies=2), Semiorder(10.0, 3, classes=2)):
        with pytest.raises(SnapshotError):
            other.restore(numbers)
    for key, value in (("nodes", [99]), ("ahead", [7]), ("marks", [[[99]] * 4]), ("gaps", [[-1]])):
        damaged = json.loads(json.dumps(numbers))
        damaged["tracks"][0][key] = value
        with pytest.raises(SnapshotError):
            law.restore(damaged)
    with pytest.raises(SnapshotError):
        law.restore({})


def test_a_state_does_not_print_its_secret() -> None:
    """Neither the state nor anything in it that an error could print."""
    law = Semiorder(10.0, 3)
    _, state = law.draw(current(), "test", 0, law.start(), 9)
    assert "gaps" not in repr(state)
    assert "gaps" not in repr(state.tracks)


@pytest.mark.parametrize(
    ("measurements", "columns", "bar"),
    [
        (8, 1, 0.70),
        (16, 1, 0.64),
        (48, 1, 0.64),
        (120, 1, 0.60),
        (240, 1, 0.57),
        (16, 2, 0.83),
        (16, 3, 0.89),
    ],
)
def test_mean_absolute_error_of_the_best_choice(measurements: int, columns: int, bar: float) -> None:
    """Measured mean absolute noise over k/ε is below its bar, and is what the choice says (n ≥ 2^20 values, α < 1e-9).

    Wrong version: Laplace noise, whose ratio is 1.
    """
    choice = best_choice(measurements, columns)
    unit, epsilon = Fraction(20), Fraction(1)
    law: Any = choice.cube(unit, epsilon) if choice.law == "cube" else choice.semiorder(unit, epsilon)
    values, _ = law.draw(current(), "test", 0, law.start(), 1 << 20)
    measured = np.abs(values[4 * measurements :]).mean() / 20 / measurements
    assert measured < bar + 0.003
    assert choice.expected_absolute / measurements < bar
    assert math.isclose(measured, choice.expected_absolute / measurements, rel_tol=0.03)
    assert laplace_choice(measurements).expected_absolute / measurements == 1


def test_the_table_of_the_guide() -> None:
    """Variances of the best law, of Laplace noise and of the cube alone, as docs/mechanisms/noise.md prints them."""
    found = {
        k: (laplace_choice(k).variance, best_choice(k, sliding=False).variance, best_choice(k).variance)
        for k in (1, 2, 4, 8, 16, 24, 48, 120, 240)
    }
    assert {k: tuple(round(v, 1) for v in row) for k, row in found.items()} == {
        1: (2.0, 2.0, 2.0),
        2: (8.0, 8.0, 5.2),
        4: (32.0, 26.7, 14.9),
        8: (128.0, 77.1, 45.7),
        16: (512.0, 224.0, 148.6),
        24: (1152.0, 441.3, 362.0),
        48: (4608.0, 1426.2, 1337.5),
        120: (28800.0, 7235.3, 7235.3),
        240: (115200.0, 25837.9, 25837.9),
    }
    assert best_choice(16, 40).law == "laplace"
    assert best_choice(16, 40, fixed=True) == best_choice(16)


@pytest.mark.parametrize("scale", [0.7, 30.0, 1e5])
@pytest.mark.parametrize(("rounded", "is_open"), [(_rounded, -1), (kernels.rounded, UNDECIDED)])
def test_a_value_is_left_open_where_its_error_reaches_a_border(
    rounded: Callable[[int, int, float], int], is_open: int, scale: float
) -> None:
    """Whatever the scale, by which the error grows too; a little further away it is decided."""
    for value in (1, 2, 7):
        border = round((value - 0.5) / scale * kernels.UNITS)
        for error in (kernels.FINE, 50 * kernels.FINE):
            for shift in (1 - error, 0, error - 1):
                assert rounded(border + shift, error, scale) == is_open
            assert rounded(border - 3 * error, error, scale) == value - 1
            assert rounded(border + 3 * error, error, scale) == value


@given(st.integers(-1000, 1000), st.integers(3000, 9000))
def test_enclosures_of_the_logarithm_hold_finer_ones(numerator: int, denominator: int) -> None:
    """What more bits say lies within what fewer bits say, so both ends are on their sides of the truth."""
    ratio = Fraction(numerator, denominator)
    fine = reference._atanh(ratio, 300)
    for bits in (4, 20, 64):
        low, high = reference._atanh(ratio, bits)
        assert low <= fine[0] <= fine[1] <= high
        assert high - low < Fraction(1, 1 << bits)


@pytest.mark.parametrize("wrong", [0.7, 1.3])
def test_a_wrong_first_guess_of_a_rounded_sum_is_mended(
    wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guess is in floating point, and next to a border it may lie on either side."""

    def gaps() -> list[UniformReal]:
        words = iter(range(1 << 40, 1 << 41))
        return [UniformReal(leading << 50, 64, words) for leading in (9, 200, 4001, 12)]

    wanted = reference.rounded_sum(gaps(), Fraction(7, 2))
    assert wanted > 10
    bad = SimpleNamespace(**{**vars(math), "log": lambda number: wrong * math.log(number)})
    monkeypatch.setattr(reference, "math", bad)
    assert reference.rounded_sum(gaps(), Fraction(7, 2)) == wanted
