from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributions import compare_counts
from tidegate.composition import zcdp_delta
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import BinaryTree, Factorization
from tidegate.mechanisms.counters import blt, blt_design, toeplitz
from tidegate.mechanisms.counters import factorization as loop
from tidegate.policy import Event, User, WEvent
from tidegate.queries.decayed import Exponential, Polynomial, Window
from tidegate.testing.entropy import zero_noise

KINDS = [
    {"method": "blt"},
    {"method": "blt", "buffers": 2},
    {"method": "square-root"},
    {"method": "banded", "bands": 9},
    {"method": "square-root", "decay": Exponential("0.9")},
    {"method": "square-root", "decay": Polynomial("0.5")},
    {"method": "banded", "bands": 20, "decay": Window(6)},
]


def exactly(mechanism, rows):
    """The measurement C·x of a mechanism without noise, in lattice units, as the mechanism computes it."""
    noise = np.zeros(rows.shape, dtype=np.int64)
    measured = np.empty(rows.shape)
    if mechanism.method == "blt":
        half = len(mechanism.coefficients) // 2
        shape = (rows.shape[1], half)
        whole, part = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        decay, output = mechanism.coefficients[:half].copy(), mechanism.coefficients[half:].copy()
        loop.measure_blt(rows, decay, output, mechanism.places, whole, part, noise, measured)
    else:
        loop.measure_toeplitz(
            rows, len(rows), mechanism.coefficients, noise, 2.0**-mechanism.places, measured
        )
    return measured * 2.0**mechanism.places


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_the_answers_are_exact(kind):
    """B·C = A holds for the C that is used: what remains is the rounding of the lattice."""
    rows = np.arange(200) ** 2 % 31
    mechanism = Factorization(Event(rho="1/2"), horizon=200, **kind)
    with zero_noise():
        values = Session(mechanism).push_batch(rows).values[:, 0]
    sums = np.cumsum(rows).astype(float)
    expected = sums if mechanism.decay is None else mechanism.decay.apply(sums)
    assert np.allclose(values, expected, atol=0.05 if mechanism.method == "blt" else 1e-6)


@settings(max_examples=60)
@given(
    kind=st.sampled_from([KINDS[0], KINDS[1], KINDS[2], KINDS[3]]),
    w=st.integers(1, 7),
    first=st.integers(0, 80),
    signs=st.lists(st.sampled_from([-1, 0, 1]), min_size=7, max_size=7),
    seed=st.integers(0, 99),
)
def test_neighbours_move_the_measurement_by_no_more_than_sigma_allows(kind, w, first, signs, seed):
    """Brute force over windows: ‖C·x − C·x'‖² ≤ 2ρσ², and a part of a window has its part of that."""
    mechanism = Factorization(WEvent(rho="1/2", window=w, max_change=3), horizon=90, **kind)
    rows = np.array([(seed * 7919 + 31 * t * t) % 1000 for t in range(90)])[:, np.newaxis]
    other = rows.copy()
    inside = other[first : first + w]
    inside[:, 0] += 3 * np.array(signs[: len(inside)])
    touched = int(np.count_nonzero(other != rows))
    square = float(np.sum((exactly(mechanism, rows) - exactly(mechanism, other)) ** 2))
    assert square <= mechanism.sigma**2 * touched / w * (1 + 1e-12)


def test_the_extreme_neighbour_uses_most_of_the_noise():
    """The negative control: σ is not just large; the first step moved by Δ needs 99 per cent of it."""
    for kind in KINDS:
        mechanism = Factorization(Event(rho="1/2", max_change=5), horizon=300, **kind)
        rows = np.zeros((300, 1), dtype=np.int64)
        other = rows.copy()
        other[0] = 5
        assert np.linalg.norm(exactly(mechanism, other)) > 0.99 * mechanism.sigma


def test_rounding_down_stays_within_its_bound():
    """The BLT in integers against itself in exact fractions: never off by more than the stated width."""
    mechanism = Factorization(Event(rho="1/2"), horizon=400, buffers=3)
    half = len(mechanism.coefficients) // 2
    gaps = [Fraction(int(c), 1 << 31) for c in mechanism.coefficients[:half]]
    omegas = [Fraction(int(c), 1 << 31) for c in mechanism.coefficients[half:]]
    rows = (np.arange(150)[:, np.newaxis] * 37) % 1009 - 300
    computed = exactly(mechanism, rows)[:, 0]
    states = [Fraction(0)] * half
    errors = []
    for value, found in zip(rows[:, 0].tolist(), computed, strict=True):
        true = value + sum(o * s for o, s in zip(omegas, states, strict=True))
        errors.append(float(Fraction(found) - true * (1 << mechanism.places)))
        states = [round_states((1 - g) * s + value) for g, s in zip(gaps, states, strict=True)]
    width = 1.0 + mechanism.buffered.rounding_error * 2.0 ** (mechanism.places - 31)
    assert max(errors) - min(errors) <= width


def round_states(state):
    """Keep the fractions short: 200 binary places are as good as exact here."""
    return Fraction(math.floor(state * (1 << 200)), 1 << 200)


def test_values_of_any_size_are_cut_not_wrapped():
    """Values at the limit of what a run accepts neither overflow nor fail."""
    for kind in KINDS:
        mechanism = Factorization(Event(rho="1/2"), horizon=300, **kind)
        with zero_noise():
            values = Session(mechanism).push_batch(np.full(300, 2**53)).values
        assert np.all(values > 0)


def test_mean_absolute_error_is_the_closed_form():
    """T = 10⁴, ρ = ½, 3,000 runs: one run's mean has a standard deviation of 17 %, so 2 % is six of the mean's."""
    mechanism = Factorization(Event(rho="1/2"), horizon=10_000, columns=250)
    total = 0.0
    for _ in range(12):
        session = Session(mechanism)
        for _ in range(20):
            total += float(np.abs(session.push_batch(np.zeros((500, 250), dtype=np.int64)).values).sum())
    measured = total / (3000 * 10_000)
    spread = np.sqrt(np.cumsum(mechanism.response(10_000) ** 2)) * mechanism.noise_deviation
    expected = math.sqrt(2 / math.pi) * float(spread.mean())
    assert measured == pytest.approx(expected, rel=0.02)
    assert expected < 3.1


def test_closed_forms_at_ten_thousand_steps():
    """The numbers of the docstring: BLT and square root below 3.1, the binary tree 7.5, with Honaker 5.6."""
    policy, steps = Event(rho="1/2"), range(1, 10_001)
    root = Factorization(policy, horizon=10_000, method="square-root")
    spread = np.sqrt(np.cumsum(root.response(10_000) ** 2)) * root.noise_deviation
    assert 3.0 < math.sqrt(2 / math.pi) * spread.mean() < 3.1
    for estimator, low, high in (("plain", 7.4, 7.9), ("honaker", 5.5, 5.7)):
        tree = BinaryTree(policy, horizon=10_000, estimator=estimator)
        assert low < np.mean([tree.expected_error(step) for step in steps]) < high


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_as_often_as_they_say(kind):
    """2,000 streams side by side at four steps, exact binomial tails, level ALPHA; intervals 5 % short are caught."""
    mechanism = Factorization(Event(rho="1/2", max_change=40), horizon=120, columns=2000, **kind)
    releases = Session(mechanism).push_batch(np.zeros((120, 2000), dtype=np.int64))
    counts = {}
    for step in (1, 10, 60, 120):
        radius = mechanism.radius(step, 0.8)
        counts[f"step {step}"] = (int(np.count_nonzero(np.abs(releases.values[step - 1]) <= radius)), 0.8)
        assert releases[step - 1].scale == pytest.approx(mechanism.standard_deviation(step), rel=1e-6)
    assert compare_counts(counts, 2000).ok
    short = {
        "short": (int(np.count_nonzero(np.abs(releases.values[-1]) <= 0.8 * mechanism.radius(120, 0.8))), 0.8)
    }
    assert not compare_counts(short, 2000).ok


def test_linear_answers_have_their_deviation():
    """A window average on top of a BLT, against 20,000 streams, within 3 per cent."""
    mechanism = Factorization(Event(rho="1/2", max_change=20), horizon=60, columns=20_000)
    values = Session(mechanism).push_batch(np.zeros((60, 20_000), dtype=np.int64)).values
    weights = Window(10).weights(50)
    assert mechanism.deviation_of(weights) == pytest.approx((values[49] - values[39]).std(), rel=0.03)


def test_a_decay_of_its_own_beats_the_same_answer_from_sums():
    """Releasing a window's sums directly has less noise than differences of running sums."""
    policy = Event(rho="1/2")
    sums = Factorization(policy, horizon=1000)
    for decay in (Window(20), Exponential("0.9"), Polynomial("1")):
        direct = Factorization(policy, horizon=1000, method="square-root", decay=decay)
        assert direct.standard_deviation(900) < sums.deviation_of(decay.weights(900))


def test_the_rho_of_an_epsilon_and_delta():
    """The conversion keeps δ, and is nearly used up."""
    mechanism = Factorization(Event(epsilon="1", delta="1e-6"), horizon=100)
    assert zcdp_delta(mechanism.rho, mechanism.policy.budget.epsilon) <= mechanism.policy.budget.delta
    assert (
        zcdp_delta(mechanism.rho * 11 / 10, mechanism.policy.budget.epsilon) > mechanism.policy.budget.delta
    )


def test_norms_agree_with_the_matrix():
    """Column norms and window norms against the matrix itself; the BLT's formula against its coefficients."""
    coefficients = toeplitz.rounded(toeplitz.square_root(np.ones(50)))
    matrix = np.array(
        [[coefficients[i - j] if i >= j else 0 for j in range(50)] for i in range(50)], dtype=float
    )
    assert toeplitz.window_norm(coefficients, 1) == np.sum(matrix[:, 0] ** 2)
    assert toeplitz.window_norm(coefficients, 4) >= np.sum(matrix[:, :4].sum(axis=1) ** 2)
    long = np.arange(9000) % 7 + 1  # longer than what is added up at once
    assert toeplitz.window_norm(long, 3) == np.sum(np.convolve(long, np.ones(3, dtype=np.int64)) ** 2)
    gap, omega = np.array(blt_design.design(50, 3)).reshape(2, 3) / blt.ONE
    series = np.array([1.0] + [float(np.sum(omega * (1 - gap) ** (k - 1))) for k in range(1, 50)])
    assert blt.norm_square(gap, omega, 50, 1) == pytest.approx(np.sum(series**2), rel=1e-12)
    windowed = np.convolve(series, np.ones(5))
    assert np.sum(windowed[:50] ** 2) <= blt.norm_square(gap, omega, 50, 5) <= 1.2 * np.sum(windowed**2)


def test_refusals_name_the_remedy():
    """Impossible or unproved configurations, each in one sentence."""
    with pytest.raises(InvalidParameter, match="kind ZeroConcentrated or Approximate"):
        Factorization(Event(epsilon="1"), horizon=10)
    with pytest.raises(InvalidParameter, match="cannot be split"):
        Factorization(WEvent(epsilon="1", delta="1e-6", window=3), horizon=10)
    with pytest.raises(InvalidParameter, match="EndlessSum"):
        Factorization(Event(rho="1"))
    with pytest.raises(InvalidParameter, match="method"):
        Factorization(Event(rho="1"), horizon=10, method="fft")
    with pytest.raises(InvalidParameter, match="decay"):
        Factorization(Event(rho="1"), horizon=10, decay=Window(3))
    with pytest.raises(InvalidParameter, match="not falling"):
        Factorization(User(rho="1", horizon=40), method="square-root", decay=Window(3))
    with pytest.raises(InvalidParameter, match="coarser grid"):
        Factorization(Event(rho="1/1000000", max_change=2**50), horizon=10)
    session = Session(Factorization(Event(rho="1"), horizon=10))
    with pytest.raises(InvalidInput, match="EndlessSum"):
        session.push_batch([1] * 11)
    assert session.step == 0


def test_a_strategy_can_be_handed_on_but_not_bent():
    """The integers of C identify a run; integers that the proof does not cover are refused."""
    mechanism = Factorization(Event(rho="1"), horizon=50)
    assert Factorization(Event(rho="1"), horizon=50, strategy=mechanism.strategy) == mechanism
    for wrong in ((), (1 << 31,) * 10, (0,) * 10, (1 << 30,) * 10):
        with pytest.raises(InvalidParameter, match="strategy"):
            Factorization(Event(rho="1"), horizon=50, strategy=wrong)


def test_the_norm_of_a_window_of_more_than_a_million_steps_leaves_no_step_out():
    """It is summed up in parts of 2^20 ages; noise for a part that is forgotten would be missing."""
    window, gap, omega = 3 << 19, np.array([1e-9]), np.array([1e-3])
    square = blt.norm_square(gap, omega, window, 1)
    ages = np.arange(1, window, dtype=np.float64)
    product = omega[0] + (square - 1.0) * (1.0 - gap[0])
    direct = window * square + 2.0 * float(np.sum((window - ages) * product * (1.0 - gap[0]) ** (ages - 1.0)))
    assert blt.norm_square(gap, omega, window, window) == pytest.approx(direct, rel=1e-6)
