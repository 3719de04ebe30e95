"""EndlessSum: its public integers, its variance at every step, and what a neighbour moves."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributions import compare_counts
from tidegate.composition import zcdp_delta
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import EndlessSum, HybridTree
from tidegate.mechanisms.counters import endless_design as design
from tidegate.mechanisms.counters import factorization as loop
from tidegate.mechanisms.counters.endless_sum import GUARD, LIMIT
from tidegate.policy import Event, User, WEvent
from tidegate.testing.entropy import fixed_entropy, zero_noise


def measured(mechanism, rows):
    """The measurements of a mechanism without noise, in lattice units, as it computes them; and each step's σ."""
    state = mechanism.begin(1)
    found, sigmas = np.empty(rows.shape), np.empty(len(rows))
    for phase in design.phases():
        part = slice(phase.first - 1, phase.first - 1 + phase.size)
        given = loop.clamp(rows[part], LIMIT) << GUARD
        noise, output = np.zeros(given.shape, dtype=np.int64), np.array(phase.output)
        decay = np.array(design.DECAY)
        loop.measure_blt(given, decay, output, mechanism.places, state.whole, state.part, noise, found[part])
        sigmas[part] = mechanism.sigma_of(phase)
    return found * 2.0**mechanism.places, sigmas


# the public integers ---------------------------------------------------------------------------------------------


def test_phases_follow_each_other_up_to_the_last_step():
    """No step is in two phases, none in none, and weights are what sums of 64 bits allow."""
    step = 1
    for phase in design.phases():
        assert phase.first == step
        assert phase.size > 0
        assert design.phase_of(step) is phase is design.phase_of(step + phase.size - 1)
        assert min(phase.output) >= 0
        assert sum(phase.output) < 1 << 31
        step += phase.size
    assert step == design.LONGEST + 1


def test_every_machine_has_the_same_integers():
    """They are in a log's description."""
    assert design.digest() == "f09306427587bd79"
    assert EndlessSum(Event(rho="1")).describe()["strategy"] == design.digest()


@pytest.fixture
def shorter(monkeypatch):
    """The design for a shorter stream: what it computes once is computed again, here and afterwards."""
    caches = (design.phases, design._reach, design.norm, design.digest)

    def change(**settings):
        for name, value in settings.items():
            monkeypatch.setattr(design, name, value)
        for each in caches:
            each.cache_clear()

    yield change
    for each in caches:
        each.cache_clear()


@pytest.mark.parametrize("longest", [1, 2, 3, 5, 64, 500])
@pytest.mark.parametrize("window", [1, 2, 7, 40])
def test_the_norm_is_that_of_the_largest_columns(longest, window, shorter):
    """All windows of shorter streams, every column by itself: none is above the bound, and one is nearly there."""
    shorter(LONGEST=longest)
    phases = design.phases()
    steps, powers, power = sum(phase.size for phase in phases), [], [Fraction(1)] * len(design.DECAY)
    for _ in range(steps):
        powers.append([float(each) for each in power])
        power = [
            Fraction(round(each * (1 - Fraction(decay, 1 << 31)) * 2**80), 2**80)
            for each, decay in zip(power, design.DECAY, strict=True)
        ]
    past = np.array(powers)
    matrix = np.zeros((steps, steps))
    for phase in phases:
        for row in range(phase.first - 1, phase.first - 1 + phase.size):
            matrix[row, :row] = (past[:row] @ phase.omega)[::-1]
            matrix[row, row] = 1.0
            matrix[row] /= math.sqrt(phase.noise)
    sums = np.cumsum(np.pad(matrix, ((0, 0), (1, 0))), axis=1)
    sums = sums[:, min(window, steps) :] - sums[:, : max(1, steps + 1 - window)]
    largest = float(np.sqrt((sums**2).sum(axis=0)).max())
    assert largest <= design.norm(window)
    if steps >= 2 * window:
        assert design.norm(window) <= 1.03 * largest


@pytest.mark.parametrize("window", [1, 24, 10**6])
def test_the_bound_of_the_norm_is_tight(window, shorter):
    """Coarser pieces change it little, and never make it smaller."""
    found = design.norm(window)
    shorter(PIECES=4)
    assert found <= design.norm(window) < 1.05 * found


def test_products_of_columns_fall_with_their_distance():
    """On this the bound of a part of a window rests."""
    found = [design.common(distance) for distance in [*range(40), 100, 1000, 10**6, design.LONGEST - 1]]
    assert all(before >= after > 0 for before, after in pairwise(found))
    assert design.common(design.LONGEST) == 0


# the error -------------------------------------------------------------------------------------------------------


def optimum(steps):
    """The variance at step t of the square root for exactly t steps, by t, for σ² = ‖C‖²: (Σ_{k<t} c_k²)²."""
    odd = np.arange(1, steps, dtype=np.float64)
    root = np.concatenate([[1.0], np.cumprod((2 * odd - 1) / (2 * odd))])
    return np.cumsum(root * root) ** 2


@pytest.mark.parametrize("most", [1 << 17, pytest.param(1 << 24, marks=pytest.mark.slow)])
def test_the_variance_is_within_one_and_a_half_times_the_best_for_each_length(most):
    """At every power of 2, three halves of it, and the step before each."""
    mechanism, best = EndlessSum(Event(rho="1/2")), optimum(most)
    for power in range(most.bit_length()):
        for step in {1 << power, (1 << power) - 1, 3 << power >> 1, (3 << power >> 1) - 1}:
            if 1 <= step <= most:
                assert mechanism.standard_deviation(step) ** 2 <= 1.5 * best[step - 1]


def test_the_variance_stays_within_one_and_a_half_times_up_to_the_last_step():
    """Beyond 2^17 steps the best is (ln t + γ + 4·ln 2)²/π², which is above it by less than 1/t there."""
    mechanism, best = EndlessSum(Event(rho="1/2")), optimum(1 << 17)
    for power in range(17, 28):
        for step in (1 << power, (3 << power >> 1) - 1, 3 << power >> 1, (2 << power) - 1):
            limit = (math.log(step) + np.euler_gamma + 4 * math.log(2)) / math.pi
            assert mechanism.standard_deviation(step) ** 2 <= 1.5 * limit**2 * (1 - 1 / step)
    exact = (math.log(1 << 17) + np.euler_gamma + 4 * math.log(2)) / math.pi
    assert math.sqrt(best[-1]) == pytest.approx(exact, rel=1e-5)


def test_the_error_is_smooth():
    """From one step to the next it changes by less than 3 % after step 16: no jumps, as a tree has."""
    scale = Session(EndlessSum(Event(rho="1/2"))).push_batch([0] * 5000).scale
    assert np.abs(np.diff(np.log(scale[15:]))).max() < 0.03
    tree = Session(HybridTree(Event(rho="1/2"))).push_batch([0] * 5000).scale
    assert np.abs(np.diff(np.log(tree[15:]))).max() > 0.3
    assert np.all(scale[7:] < tree[7:])


def test_the_scale_of_releases_is_the_closed_form():
    """The recursion of the loop, doubling, and the weights from the last step back: three ways to one number."""
    mechanism = EndlessSum(WEvent(rho="2", window=3), grid="0.5")
    scale = Session(mechanism).push_batch([0] * 3000).scale
    for step in (1, 2, 3, 4, 5, 6, 7, 48, 1000, 3000):
        assert scale[step - 1] == pytest.approx(mechanism.standard_deviation(step), rel=1e-9)
        last = np.zeros(step)
        last[-1] = 1.0
        assert mechanism.deviation_of(last) == pytest.approx(mechanism.standard_deviation(step), rel=1e-9)


def test_intervals_cover_as_often_as_they_say():
    """2,000 streams side by side at four steps, exact binomial tails, level ALPHA; intervals 5 % short are caught."""
    mechanism = EndlessSum(Event(rho="1/2", max_change=40), columns=2000)
    releases = Session(mechanism).push_batch(np.zeros((120, 2000), dtype=np.int64))
    counts = {}
    for step in (1, 10, 60, 120):
        radius = mechanism.radius(step, 0.8)
        counts[f"step {step}"] = (int(np.count_nonzero(np.abs(releases.values[step - 1]) <= radius)), 0.8)
    assert compare_counts(counts, 2000).ok
    short = int(np.count_nonzero(np.abs(releases.values[-1]) <= 0.8 * mechanism.radius(120, 0.8)))
    assert not compare_counts({"short": (short, 0.8)}, 2000).ok


def test_linear_answers_have_their_deviation():
    """A difference of sums in different phases, against 20,000 streams, within 3 per cent."""
    mechanism = EndlessSum(Event(rho="1/2", max_change=20), columns=20_000)
    values = Session(mechanism).push_batch(np.zeros((60, 20_000), dtype=np.int64)).values
    weights = np.zeros(50)
    weights[49], weights[39], weights[6] = 1, -1, 0.5
    answer = values[49] - values[39] + 0.5 * values[6]
    assert mechanism.deviation_of(weights) == pytest.approx(answer.std(), rel=0.03)
    assert mechanism.radius_of(weights) > 1.9 * mechanism.deviation_of(weights)


# what a neighbour moves ------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    w=st.integers(1, 7),
    first=st.integers(0, 80),
    signs=st.lists(st.sampled_from([-1, 0, 1]), min_size=7, max_size=7),
    columns=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_neighbours_move_measurements_by_no_more_than_the_noise_allows(w, first, signs, columns, seed):
    """Brute force over windows: Σ_t ‖v_t − v'_t‖²/σ_t² ≤ 2ρ, and a part of a window has its part of that."""
    mechanism = EndlessSum(WEvent(rho="1/2", window=w, max_change=3), columns=columns)
    rows = np.array([[(seed * 7919 + 31 * t * t + c) % 1000 for c in range(columns)] for t in range(90)])
    other = rows.copy()
    for at, sign in enumerate(signs[: min(w, 90 - first)]):
        other[first + at, at % columns] += 3 * sign
    touched = int(np.count_nonzero(np.any(other != rows, axis=1)))
    (found, sigma), (moved, _) = measured(mechanism, rows), measured(mechanism, other)
    assert float((((found - moved) / sigma[:, None]) ** 2).sum()) <= touched / w * (1 + 1e-12)


def test_the_extreme_neighbour_uses_most_of_the_noise():
    """The negative control: the noise is not just large. The first value needs 94 % of it within 5,000 steps."""
    mechanism = EndlessSum(Event(rho="1/2", max_change=5))
    rows = np.zeros((5000, 1), dtype=np.int64)
    other = rows.copy()
    other[0] = 5
    (found, sigma), (moved, _) = measured(mechanism, rows), measured(mechanism, other)
    used = math.sqrt(float((((found - moved) / sigma[:, None]) ** 2).sum()))
    assert 0.94 < used < 1


def test_rounding_down_stays_within_its_bound():
    """The measurements in integers against themselves in exact fractions: errors spread by no more than is stated."""
    mechanism = EndlessSum(Event(rho="1/2"))
    rows = (np.arange(150)[:, np.newaxis] * 37) % 1009 - 300
    computed, _ = measured(mechanism, rows)
    states, errors = [Fraction(0)] * len(design.DECAY), []
    gaps = [Fraction(decay, 1 << 31) for decay in design.DECAY]
    for step, value in enumerate((rows[:, 0] << GUARD).tolist(), 1):
        output = design.phase_of(step).output
        true = value + sum(Fraction(w, 1 << 31) * s for w, s in zip(output, states, strict=True))
        errors.append(float(Fraction(computed[step - 1, 0]) - true * (1 << mechanism.places)))
        states = [
            Fraction(math.floor(((1 - g) * s + value) * (1 << 200)), 1 << 200)
            for g, s in zip(gaps, states, strict=True)
        ]
    omega = design.phase_of(150).omega
    width = 1 + (len(gaps) + float(np.sum(omega / design.GAP))) * 2.0 ** (mechanism.places - 31)
    assert 0.3 < max(errors) - min(errors) <= width


def test_rounding_costs_little():
    """One per cent of the variance with one column and Δ = 1, where it costs most; less with larger ones."""
    worst = EndlessSum(Event(rho="1/2")).standard_deviation(1) ** 2
    assert design.norm(1) ** 2 < worst < 1.011 * design.norm(1) ** 2
    large = EndlessSum(Event(rho="1/2", max_change=1000), columns=50).standard_deviation(1) / 1000
    assert large**2 < 1.011 * design.norm(1) ** 2


# streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 4])
def test_without_noise_the_running_sum_is_exact(columns):
    """The weights that recover are those that measure, in every phase: what remains is the rounding of the lattice."""
    rows = (np.arange(800 * columns).reshape(800, columns) ** 2) % 31
    with zero_noise():
        values = Session(EndlessSum(Event(rho="1/2"), columns=columns)).push_batch(rows).values
    assert np.allclose(values, np.cumsum(rows, axis=0), atol=0.01)


def test_values_of_any_size_are_cut_not_wrapped():
    """Values at the limit of what a run accepts neither overflow nor fail; below it sums are exact."""
    mechanism = EndlessSum(Event(rho="1/2"))
    with zero_noise():
        for value in (2**53, -(2**53), LIMIT):
            values = Session(mechanism).push_batch(np.full(600, value)).values[:, 0]
            cut = max(-LIMIT, min(LIMIT, value))
            assert np.allclose(values, cut * np.arange(1, 601), rtol=1e-9)


def test_the_largest_values_stay_within_64_bits_up_to_the_last_step():
    """A state holds at most limit·2^GUARD·min(steps, 1/(1 − θ)), below 2^60 as the products need it."""
    most = LIMIT << GUARD
    assert all(most * min(design.LONGEST, 2**31 // decay) <= 1 << 60 for decay in design.DECAY)


def test_single_pushes_equal_batches_across_phases(tmp_path):
    """One by one, at once, in odd pieces and after a restart: the same releases and scales."""
    mechanism, rows = EndlessSum(Event(rho="1/2"), columns=2), np.arange(140).reshape(70, 2) % 11

    def run(pieces, path=None):
        with fixed_entropy(5):
            session, found, at = Session(mechanism, path), [], 0
            for size in pieces:
                if path is not None:
                    session.close()
                    session = Session(mechanism, path)
                found.append(session.push_batch(rows[at : at + size]))
                at += size
            session.close()
        return np.concatenate([np.column_stack([each.values, each.scale]) for each in found])

    whole = run([70])
    assert np.array_equal(run([1] * 70), whole)
    assert np.array_equal(run([3, 1, 2, 20, 7, 30, 7]), whole)
    assert np.array_equal(run([3, 1, 2, 20, 7, 30, 7], str(tmp_path / "sums.db")), whole)


def test_the_last_step_is_refused_in_public():
    """Nothing is charged and no noise drawn."""
    mechanism = EndlessSum(Event(rho="1/2"))
    state = mechanism.begin(1)
    state.measured[0] = design.LONGEST - 1
    assert mechanism.public(state, 1, 1).units.tolist() == [1]
    with pytest.raises(InvalidInput, match=r"built for 268435455 steps.*HybridTree"):
        mechanism.public(state, 1, 2)


def test_refusals_name_the_remedy():
    """Impossible or unproved configurations, each in one sentence."""
    with pytest.raises(InvalidParameter, match="kind ZeroConcentrated or Approximate"):
        EndlessSum(Event(epsilon="1"))
    with pytest.raises(InvalidParameter, match="Event or WEvent for EndlessSum"):
        EndlessSum(User(rho="1", horizon=100))
    with pytest.raises(InvalidParameter, match="cannot be split"):
        EndlessSum(WEvent(epsilon="1", delta="1e-6", window=3))
    with pytest.raises(InvalidParameter, match="coarser grid"):
        EndlessSum(Event(rho="1/1000000", max_change=2**50))


def test_the_rho_of_an_epsilon_and_delta():
    """The conversion keeps δ, and is nearly used up."""
    mechanism = EndlessSum(Event(epsilon="1", delta="1e-6"))
    budget = mechanism.policy.budget
    assert zcdp_delta(mechanism.rho, budget.epsilon) <= budget.delta
    assert zcdp_delta(mechanism.rho * 11 / 10, budget.epsilon) > budget.delta
