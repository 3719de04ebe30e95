"""The cube on groups of steps: bit for bit, goodness of fit, and its loss by exact enumeration.

Level: ALPHA = 1e-9 a test (distributions); every statistical test refuses a wrong version.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.noise.drawing import check_drawn_ahead

from distributions import compare_counts, compare_integers
from tidegate.errors import InvalidParameter, SnapshotError
from tidegate.noise import Source, current, laplace
from tidegate.noise.kernels import REJECTED, UNDECIDED
from tidegate.noise.scale import prepare
from tidegate.noise.shared import kernels, reference
from tidegate.noise.shared.choice import group_lengths
from tidegate.noise.shared.cube import Cube, _radius_of
from tidegate.noise.shared.lattice import numerators, points
from tidegate.testing.entropy import FixedEntropy, zero_noise

Integers = npt.NDArray[np.int64]
SOURCE = FixedEntropy("cube")
LAWS = [
    Cube(24.0, (8, 7)),
    Cube(2.0**30 + 0.5, (3, 2), copies=2),
    Cube(0.7, (3, 2), columns=2),
    Cube(3.3, (4,), columns=3, copies=2),
    Cube(2.5, (70,)),
    Cube(7.0, (33, 5), columns=2),
    Cube(2.0**40, (3,), columns=2),
    Cube(300.0, (2,), columns=70),
    Cube(Fraction(1, 3), (1,)),
]


def words(stream: str, step: int, draw: int, source: Source = SOURCE) -> Iterator[int]:
    """The words of one element."""
    return (source.word(stream, step, draw, index) for index in itertools.count())


def by_reference(law: Cube, steps: int) -> Integers:
    """The noise of a law by its definition."""
    rows: list[list[int]] = []
    d, draws = law.columns, law.columns * max(law.lengths) + 2
    for length in itertools.cycle(law.lengths):
        opened = len(rows)
        radii = [
            reference.radius(
                d,
                length,
                prepare(law.scale).exact,
                [words("test/radius", opened, copy * draws + v) for v in range(d * length + 2)],
            )
            for copy in range(law.copies)
        ]
        for step in range(opened, opened + length):
            row: list[int] = []
            for copy, radius in enumerate(radii):
                if d == 1:
                    row.append(reference.in_interval(radius, words("test", step, copy)))
                else:
                    row += reference.in_ball(radius, [words("test", step, copy * d + c) for c in range(d)])
            rows.append(row)
        if len(rows) >= steps:
            return np.array(rows[:steps])
    raise AssertionError


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_batches_single_steps_and_restores_agree_with_the_reference(law: Cube) -> None:
    """One batch, single steps, uneven batches with a snapshot between them: the same noise as by definition."""
    steps = 97
    wanted = by_reference(law, steps)
    assert np.array_equal(law.draw(SOURCE, "test", 0, law.start(), steps)[0], wanted)
    for sizes in (itertools.repeat(1), itertools.cycle([5, 1, 9, 2])):
        state, at = law.start(), 0
        while at < steps:
            size = min(next(sizes), steps - at)
            _, lengths = law.opened(state, size)
            values, after = law.draw(SOURCE, "test", at, state, size)
            assert np.array_equal(values, wanted[at : at + size])
            assert state.remaining + lengths.sum() - size == after.remaining
            state, at = law.restore(json.loads(json.dumps(after.numbers()))), at + size


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_noise_that_was_drawn_ahead_can_be_left(law: Cube) -> None:
    """What is not used leaves no trace."""
    check_drawn_ahead(law, SOURCE)


@given(
    scale=st.floats(0.05, 2.0**45),
    columns=st.integers(1, 3),
    length=st.integers(1, 6),
    seed=st.integers(0, 10**9),
)
@settings(max_examples=40, deadline=None)
def test_radii_agree_with_the_reference(scale: float, columns: int, length: int, seed: int) -> None:
    """Any scale and size: the kernel's radius is that of the reference."""
    law, source = Cube(scale, (length,), columns), FixedEntropy(seed)
    _, state = law.draw(source, "test", 0, law.start(), length - 1 or 1)
    if length > 1:
        variables = [words("test/radius", 0, v, source) for v in range(columns * length + 2)]
        assert state.radii == (reference.radius(columns, length, Fraction(scale), variables),)


def test_words_on_a_boundary_are_left_to_the_reference() -> None:
    """A word on or one above a boundary of the remainder is undecided, its neighbours are not."""
    ladder = reference.remainder_ladder(1, 3, Fraction(5))(64)
    boundaries = np.array(ladder[:-1], dtype=np.uint64)
    for index, low in enumerate(ladder[:-1]):
        chosen = [low - 1, low, low + 1, low + 2]
        planted = np.full((1, 5, 4), (1 << 64) - 2, dtype=np.uint64)
        planted[0, 0] = np.array(chosen, dtype=np.uint64)
        out = np.empty(4, dtype=np.int64)
        assert kernels.fill_radii(planted, boundaries, 5.0, 0, np.empty_like(out), out) == 2
        assert out.tolist() == [index, UNDECIDED, UNDECIDED, index + 1]
        for extension, word in itertools.product((0, (1 << 64) - 1), chosen[1:3]):
            variable = itertools.chain([word], itertools.repeat(extension))
            assert reference.choose(reference.remainder_ladder(1, 3, Fraction(5)), variable) in (
                index,
                index + 1,
            )


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**63 - 1))
def test_uniform_integers_agree_with_the_reference(word: int, count: int) -> None:
    """The product of halves is the product."""
    found = kernels.below_count(np.uint64(word), np.uint64(count))
    wanted = reference.below_count(word, count)
    assert found == (REJECTED if wanted is None else wanted)


def test_uniform_integers_reject_as_many_words_for_each_result() -> None:
    """With words of 6 bits instead of 64 every result has the same number of words."""
    for count in range(1, 64):
        kept = Counter((w * count) >> 6 for w in range(64) if (w * count) % 64 >= 64 % count)
        assert set(kept.values()) == {64 // count}
        assert len(kept) == count


def test_points_and_numerators() -> None:
    """Counted one by one; the numerators are not negative, and for one column obey the recurrence of type B."""
    for d, radius in itertools.product(range(1, 4), range(5)):
        cube = itertools.product(range(-radius, radius + 1), repeat=d)
        assert points(d, radius) == sum(sum(map(abs, z)) <= radius for z in cube)
    for n in range(2, 20):
        before, row = numerators(1, n - 1), numerators(1, n)
        assert row == tuple(
            (2 * i + 1) * (before[i] if i < n else 0) + (2 * n - 2 * i + 1) * (before[i - 1] if i else 0)
            for i in range(n + 1)
        )
    for d, length in [(1, 64), (2, 32), (3, 21), (8, 8), (64, 1)]:
        weights = numerators(d, length)
        assert min(weights) > 0
        assert sum(weights) * math.factorial(d) ** length == 2 ** (d * length) * math.factorial(d * length)


def radius_law(columns: int, length: int, scale: float, most: int) -> list[float]:
    """P(radius = 0), …, P(radius = most) of the draw as it is made: remainder and geometric variables."""
    q, n = math.exp(-1 / scale), columns * length
    weights = [b * q**i for i, b in enumerate(numerators(columns, length))]
    law = [weight / sum(weights) for weight in weights] + [0.0] * most
    for _ in range(n + 1):
        law[0] *= 1 - q
        for j in range(1, len(law)):
            law[j] = law[j] * (1 - q) + q * law[j - 1]
    return law[: most + 1]


@pytest.mark.parametrize(("columns", "length"), [(1, 1), (1, 3), (2, 2), (3, 1)])
def test_the_radius_has_the_law_that_it_should(columns: int, length: int) -> None:
    """The sum of the variables is points^length · q^j up to a constant, to 12 digits."""
    scale = 1.7
    law = radius_law(columns, length, scale, 120)
    weights = [points(columns, j) ** length * math.exp(-j / scale) for j in range(400)]
    assert np.allclose(law, np.array(weights[:121]) / sum(weights), rtol=1e-11)


def cell_probabilities(law: Cube, steps: int, most: int) -> dict[tuple[int, ...], float]:
    """P(z) of the first steps of a group for all z with entries up to `most`, from the law of the radius."""
    radii = radius_law(law.columns, law.lengths[0], prepare(law.scale).value, 400)
    tails = [
        sum(p / points(law.columns, j) ** steps for j, p in enumerate(radii) if j >= norm)
        for norm in range(law.columns * most + 1)
    ]
    found = {}
    for z in itertools.product(range(-most, most + 1), repeat=steps * law.columns):
        sums = [sum(map(abs, z[i : i + law.columns])) for i in range(0, len(z), law.columns)]
        found[z] = tails[max(sums)]
    return found


def fits(sample: Integers, law: Cube, steps: int, most: int = 2) -> bool:
    """Whether groups (one a row) have the joint law of their first steps, cell by cell."""
    seen = Counter(map(tuple, sample[:, : steps * law.columns].tolist()))
    cells = cell_probabilities(law, steps, most)
    counts = {str(z): (seen[z], p) for z, p in cells.items()}
    return compare_counts(counts, len(sample)).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [Cube(0.8, (2,)), Cube(1.3, (3,)), Cube(0.7, (2,), columns=2), Cube(0.5, (1,), columns=3)],
    ids=repr,
)
def test_joint_distribution_of_a_group(law: Cube) -> None:
    """Every small vector of a group happens as often as it should (n = 2^18 groups).

    Wrong versions: independent Laplace noise of the same variance, a radius without its remainder, a radius with
    one geometric variable too few.
    """
    n, length = 1 << 18, law.lengths[0]
    steps = min(length, 2)
    values, _ = law.draw(current(), "test", 0, law.start(), n * length)
    assert fits(values.reshape(n, -1), law, steps)
    spread = math.sqrt(law.variance() / 2)
    assert not fits(laplace(current(), "test", 0, spread, (n, length * law.columns)), law, steps)
    for wrong in (numerators(law.columns, length)[:1], None):
        assert not fits(wrong_groups(law, n, wrong), law, steps)


def wrong_groups(law: Cube, n: int, weights: tuple[int, ...] | None) -> Integers:
    """Groups with another remainder, or with one geometric variable too few."""
    rng = np.random.default_rng(5)
    length, d, q = law.lengths[0], law.columns, math.exp(-1 / prepare(law.scale).value)
    variables = d * length + (1 if weights else 0)
    used = np.array(weights or numerators(d, length)) * q ** np.arange(len(weights or numerators(d, length)))
    radii = rng.choice(used.size, n, p=used / used.sum()) + (rng.geometric(1 - q, (n, variables)) - 1).sum(1)
    out = np.empty((n, length * d), dtype=np.int64)
    balls = {
        int(j): np.array(
            [z for z in itertools.product(range(-j, j + 1), repeat=d) if sum(map(abs, z)) <= j]
        ).reshape(-1, d)
        for j in np.unique(radii)
        if d == 1 or j <= 12
    }
    for j, ball in balls.items():
        rows = np.flatnonzero(radii == j)
        out[rows] = ball[rng.integers(0, len(ball), (rows.size, length))].reshape(rows.size, -1)
    out[~np.isin(radii, list(balls))] = 99
    return out


@pytest.mark.parametrize(
    "law", [Cube(24.0, (8,)), Cube(5.0, (100,)), Cube(2.0**33, (5,)), Cube(20.0, (4,), columns=3)], ids=repr
)
def test_margins_and_moments(law: Cube) -> None:
    """One value of each group has the tails, the variance and the mean absolute value that are claimed (n = 2^16).

    Wrong version: the margin of a group that is one step longer.
    """
    n, length = 1 << 16 if law.lengths[0] < 60 else 1 << 10, law.lengths[0]
    values = law.draw(current(), "test", 0, law.start(), n * length)[0][::length, 0]
    moments = law.moments(length)
    edges = np.array([moments.radius(p) for p in (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.99)])
    at_most = np.array([1 - moments.beyond(int(edge)) for edge in edges])
    assert compare_integers(np.abs(values), edges, at_most).ok
    if length < 60:
        longer = Cube(law.scale, (length + 3,), law.columns)
        wrong = longer.draw(current(), "test", 0, longer.start(), n * (length + 3))[0][:: length + 3, 0]
        assert not compare_integers(np.abs(wrong), edges, at_most).ok
    error = 8 / math.sqrt(n)
    assert abs(np.mean(np.abs(values).astype(float)) / moments.expected_absolute() - 1) < error
    assert abs(np.mean(values.astype(float) ** 2) / moments.variance() - 1) < 3 * error


def test_summed_and_integrated_moments_meet() -> None:
    """Just below and above the scale where sums become integrals the functions are the same."""
    for columns, length in [(1, 8), (1, 200), (2, 5), (3, 4)]:
        below, above = (Cube(s, (length,), columns).moments(length) for s in (2.0**10, 2.0**10 + 1e-6))
        assert math.isclose(below.variance(), above.variance(), rel_tol=1e-5)
        assert math.isclose(below.expected_absolute(), above.expected_absolute(), rel_tol=1e-5)
        for p in (0.1, 0.5, 0.9, 0.999):
            assert abs(below.radius(p) - above.radius(p)) <= 1


def largest_loss(lengths: tuple[int, ...], measurements: int, scale: float) -> float:
    """The largest |ln P(z)/P(z′)| by enumeration: all small z, all changes of one window of ±1 at a step.

    The stream is one period of the pattern and a window; P is that of the draws as they are made.
    """
    total = 0
    groups = []
    for length in itertools.cycle(lengths):
        groups.append(range(total, total + length))
        total += length
        if total >= max(lengths) + measurements - 1:
            break
    laws = {length: radius_law(1, length, scale, 300) for length in set(lengths)}
    tails = {
        length: [
            math.log(sum(p / (2 * j + 1) ** length for j, p in enumerate(law) if j >= norm))
            for norm in range(8)
        ]
        for length, law in laws.items()
    }

    def log_probability(z: tuple[int, ...]) -> float:
        return sum(tails[len(group)][max(abs(z[t]) for t in group)] for group in groups)

    worst = 0.0
    for first in range(total - measurements + 1):
        for window in itertools.product((-1, 0, 1), repeat=measurements):
            change = (0,) * first + window + (0,) * (total - first - measurements)
            for z in itertools.product((0, 1, 2), repeat=total):
                moved = tuple(a + b for a, b in zip(z, change, strict=True))
                worst = max(worst, abs(log_probability(z) - log_probability(moved)))
    return worst


@pytest.mark.parametrize("measurements", [1, 2, 3])
def test_exact_loss_of_windows_that_straddle_groups(measurements: int) -> None:
    """For up to 3 measurements a window the loss is ε to 9 digits; a window one too long loses more."""
    epsilon = 0.7
    for groups in range(min(2, measurements), measurements + 1):
        lengths = group_lengths(measurements, groups)
        scale = groups / epsilon
        loss = largest_loss(lengths, measurements, scale)
        assert loss <= epsilon * (1 + 1e-9)
        assert loss >= 0.9 * epsilon
        if measurements < 3:
            assert largest_loss(lengths, measurements + 1, scale) > 1.2 * epsilon


def groups_met(lengths: tuple[int, ...], measurements: int) -> int:
    """The largest number of groups that consecutive measurements meet, over all positions."""
    numbers = [
        i for i, length in enumerate(lengths * (2 + 2 * measurements // sum(lengths))) for _ in range(length)
    ]
    return max(
        numbers[first + measurements - 1] - numbers[first] + 1
        for first in range(len(numbers) - measurements + 1)
    )


def test_no_window_meets_more_groups_than_it_pays_for() -> None:
    """For every k up to 60 and every number of groups; the alternation 7, 8 at k = 48 would meet an eighth."""
    for measurements in range(2, 61):
        for groups in range(2, measurements + 1):
            assert groups_met(group_lengths(measurements, groups), measurements) <= groups
    assert groups_met((8, 8, 8, 8, 8, 7), 48) == 7
    assert groups_met((7, 8), 48) == 8
    assert groups_met(group_lengths(48, 7), 49) == 8


def test_zero_noise() -> None:
    """The source of zeros gives zeros, also for groups beyond the sum of geometric variables."""
    with zero_noise() as source:
        for law in (Cube(24.0, (8, 7)), Cube(2.0**30, (4,), columns=3), Cube(3.0, (100,), columns=2)):
            values, _ = law.draw(source, "test", 0, law.start(), 40)
            assert not values.any()


def test_log_bounds_enclose() -> None:
    """Enclosures of the logarithm are tight and right."""
    for value in (
        Fraction(1, 10**9),
        Fraction(2, 3),
        Fraction(10**9 + 1, 10**9),
        Fraction(1),
        Fraction(7),
        Fraction(3**50),
    ):
        low, high = reference.log_bounds(value, 80)
        assert low <= high <= low + Fraction(200, 1 << 80)
        near_one = abs(value - 1) < Fraction(1, 2)
        wanted = math.log1p(value - 1) if near_one else math.log(value)
        assert math.isclose(low, wanted, rel_tol=1e-14, abs_tol=1e-23)


def test_refused() -> None:
    """What a law cannot be, and snapshots of another one."""
    with pytest.raises(InvalidParameter, match="lengths"):
        Cube(1.0, ())
    with pytest.raises(InvalidParameter, match="lengths"):
        Cube(1.0, (3, 0))
    with pytest.raises(InvalidParameter, match="scale"):
        Cube(2.0**55, (8,))
    with pytest.raises(InvalidParameter, match="groups"):
        group_lengths(5, 1)
    for numbers in ([0, 9, 5], [2, 1, 5], [0, 1, 5, 5], [0, 1, -5]):
        with pytest.raises(SnapshotError):
            Cube(1.0, (8, 7)).restore(numbers)


def test_a_state_does_not_print_its_secret() -> None:
    """Neither does one that has ended keep it."""
    law = Cube(1000.0, (8,))
    _, state = law.draw(current(), "test", 0, law.start(), 4)
    assert str(state.radii[0]) not in repr(state)
    assert law.draw(current(), "test", 4, state, 4)[1].radii == (0,)


@pytest.mark.parametrize(("place", "beside"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_single_radius_is_left_open_next_to_a_boundary(place: int, beside: int) -> None:
    """A word on a boundary, or one above it, does not say on which side the number lies."""
    boundaries, scale = [1 << 40, 1 << 41], prepare(3.0)
    assert _radius_of([[boundaries[place] + beside]], boundaries, scale) == -1
    assert _radius_of([[boundaries[place] + 2]], boundaries, scale) == place + 1


@pytest.mark.parametrize("distance", [1, 2, 3, 10, 40])
def test_the_chance_that_a_radius_is_kept_is_enclosed(distance: int) -> None:
    """2^stair times the ratio of two chances lies between both bounds, near the mode and far from it."""
    columns, length, scale = 1, 3, Fraction(20)
    peak, _ = reference.mode(columns, length, scale)
    for far in (peak + distance, peak - distance):
        low, high = reference._acceptance(columns, length, scale, far, peak, 0)(40)
        enclosed = reference._log_ratio(columns, length, scale, far, peak, 80)
        assert low <= math.exp(float(enclosed[1])) * 2**40 * (1 + 1e-9)
        assert high >= math.exp(float(enclosed[0])) * 2**40 * (1 - 1e-9)
        assert low < high < low + 2**20
