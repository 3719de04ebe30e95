from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta as beta_law
from scipy.stats import norm

from distributions import ALPHA, compare_counts
from experiments.printed.clipping import PrintedThreshold, printed_constants
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Threshold
from tidegate.mechanisms.clipping import smooth_sensitivity
from tidegate.mechanisms.clipping.smooth_sensitivity import smooth_quantile
from tidegate.mechanisms.clipping.threshold import ReleasedThreshold
from tidegate.noise import current
from tidegate.policy import Event, User, WEvent

DELTA = Fraction(1, 2**20)


def released(threshold, values):
    """What a session releases of a sample."""
    return threshold.read(Session(threshold).push_batch(values))


def laplace_masses(scale, reach):
    """The discrete Laplace distribution on −reach … reach."""
    k = np.arange(-reach, reach + 1)
    return np.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)


def quantile_law(values, threshold):
    """The exact law of the quantile's walk: P(stop at candidate j), by summing over the rank's noise."""
    start_scale, test_scale = threshold.scales
    reach = int(60 * start_scale)
    start = np.arange(-reach, reach + 1)
    counts = np.searchsorted(np.sort(values), threshold.candidates, side="right")
    q = math.exp(-1 / test_scale)
    law = np.zeros(len(counts))
    alive = laplace_masses(start_scale, reach)
    for j, count in enumerate(counts):
        need = threshold.rank + start - count  # the test passes where its noise is at least this
        above = np.where(
            need > 0, q ** np.maximum(need, 0) / (1 + q), 1 - q ** np.maximum(1 - need, 0) / (1 + q)
        )
        passing = above if j + 1 < len(counts) else np.ones_like(above)
        law[j] = float(np.sum(alive * passing))
        alive = alive * (1 - passing)
    return law


@settings(max_examples=80)
@given(
    values=st.lists(st.integers(0, 8), min_size=4, max_size=12),
    place=st.integers(0, 11),
    other=st.integers(0, 8),
    above=st.integers(0, 3),
)
def test_the_walk_is_private_by_enumeration(values, place, other, above):
    """Exact probabilities: no stop is more than e^ε times as likely on a neighbour, ties and all."""
    threshold = Threshold(Event(epsilon="1", max_change=8), sample=len(values), above=above, per_doubling=2)
    changed = list(values)
    changed[place % len(values)] = other
    one, two = quantile_law(values, threshold), quantile_law(changed, threshold)
    assert one.sum() == pytest.approx(1.0)
    assert np.max(np.abs(np.log(one / two))) <= 1.0 + 1e-9


@settings(max_examples=60)
@given(
    values=st.lists(st.integers(0, 8), min_size=4, max_size=10),
    place=st.integers(0, 8),
    others=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_the_walk_is_private_for_windows(values, place, others):
    """Two consecutive observations changed, in opposite directions or not."""
    threshold = Threshold(
        WEvent(epsilon="1", max_change=8, window=2), sample=len(values), above=1, per_doubling=2
    )
    changed = list(values)
    changed[place % (len(values) - 1)], changed[place % (len(values) - 1) + 1] = others
    assert (
        np.max(np.abs(np.log(quantile_law(values, threshold) / quantile_law(changed, threshold))))
        <= 1.0 + 1e-9
    )


def test_the_enumeration_catches_noise_that_is_too_small():
    """The planted mistake: the same walk with four times the budget exceeds e^ε."""
    values, changed = [1] * 6 + [8] * 2, [1] * 5 + [8] * 3
    weak = Threshold(Event(epsilon="4", max_change=8), sample=8, above=2, per_doubling=2)
    assert np.max(np.abs(np.log(quantile_law(values, weak) / quantile_law(changed, weak)))) > 1.0


def test_the_walk_has_the_enumerated_law():
    """8,000 releases against the exact probabilities, level ALPHA."""
    values = np.array([1, 2, 2, 3, 5, 8, 8, 8])
    threshold = Threshold(Event(epsilon="1", max_change=8), sample=8, above=1, per_doubling=2)
    law = quantile_law(values, threshold)
    drawn = [threshold.draw(values, current(), 8).grid_units for _ in range(8000)]
    counts = {str(c): (drawn.count(c), float(law[j])) for j, c in enumerate(threshold.candidates.tolist())}
    assert compare_counts(counts, len(drawn)).ok


def smooth_divergence(values, changed, constants, rank, bound, epsilon, masses):
    """The exact hockey-stick divergence at ε of the smooth releases of two samples."""
    laws = []
    for sample in (values, changed):
        ordered = np.sort(np.array(sample, dtype=np.int64))
        scale = constants.scale(ordered, rank, bound)
        centre = int(ordered[rank - 1]) + math.floor(scale * constants.offset + 0.5)
        laws.append((centre, scale))
    reach = int(max(60 * scale for _, scale in laws)) + max(centre for centre, _ in laws)
    outputs = np.arange(-reach, reach + 1)
    one, two = (masses(outputs - centre, scale) for centre, scale in laws)
    return float(np.sum(np.maximum(one - math.exp(epsilon) * two, 0.0)))


def laplace_law(k, scale):
    """Masses of the discrete Laplace distribution."""
    return np.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)


def gaussian_law(k, scale):
    """Masses of the discrete Gaussian distribution."""
    weights = np.exp(-0.5 * (k / scale) ** 2)
    return weights / weights.sum()


@settings(max_examples=40)
@given(
    values=st.lists(st.integers(0, 30), min_size=5, max_size=15),
    place=st.integers(0, 14),
    other=st.integers(0, 30),
    epsilon=st.sampled_from([0.5, 1.0, 2.0]),
    kind=st.sampled_from(["laplace", "gaussian"]),
)
def test_smooth_noise_is_private_by_enumeration(values, place, other, epsilon, kind):
    """Exact divergences of discrete noise whose scale depends on the data, in both directions: at most δ."""
    delta, bound = 0.02, 30
    make = (
        smooth_sensitivity.laplace_constants if kind == "laplace" else smooth_sensitivity.gaussian_constants
    )
    constants = make(epsilon, delta, 0.45)
    rank = max(1, math.ceil(0.7 * len(values)))
    changed = list(values)
    changed[place % len(values)] = other
    law = laplace_law if kind == "laplace" else gaussian_law
    for one, two in ((values, changed), (changed, values)):
        assert smooth_divergence(one, two, constants, rank, bound, epsilon, law) <= delta + 1e-12


def test_the_printed_gaussian_constants_fail_the_same_enumeration():
    """The planted mistake is the paper's: a = ε/√(ln 1/δ) exceeds δ by far."""
    delta = 1e-8
    values, changed = [0] * 10 + [1000] * 10, [0] * 9 + [1000] * 11  # the quantile jumps by all of B
    printed = printed_constants(1.0, delta, 0.45, gaussian=True)
    assert smooth_divergence(changed, values, printed, 10, 1000, 1.0, gaussian_law) > 10 * delta
    sound = smooth_sensitivity.gaussian_constants(1.0, delta, 0.45)
    assert smooth_divergence(changed, values, sound, 10, 1000, 1.0, gaussian_law) <= delta


@given(
    values=st.lists(st.integers(0, 20), min_size=1, max_size=7),
    rank=st.integers(1, 7),
    b=st.floats(0.05, 1.0),
)
def test_the_smooth_bound_is_smooth_and_bounds_the_local_sensitivity(values, rank, b):
    """Brute force over all neighbours in [0, 20]: S ≥ local sensitivity + 1 and S ≤ e^b·S' for every neighbour."""
    rank = min(rank, len(values))
    ordered = np.sort(np.array(values, dtype=np.int64))
    bound = smooth_quantile(ordered, rank, 20, b)
    for place in range(len(values)):
        for other in (0, 1, 7, 13, 20):
            changed = np.array(values, dtype=np.int64)
            changed[place] = other
            changed.sort()
            assert abs(int(changed[rank - 1]) - int(ordered[rank - 1])) + 1 <= bound + 1e-9
            assert smooth_quantile(changed, rank, 20, b) <= math.exp(b) * bound * (1 + 1e-12)


# The counterexample with ties: half the sample is 9, half is 10, and B is far away.
TIED = np.repeat([9, 10], 2000)
NEIGHBOUR = np.sort(np.concatenate([TIED[1:], [10]]))


def shown_loss(threshold, draws=800):
    """Whether releases on the two tied samples show a loss above (ε, δ), at level ALPHA over all half-lines."""
    one = np.array([threshold.draw(TIED, current(), 1).grid_units for _ in range(draws)])
    two = np.array([threshold.draw(NEIGHBOUR, current(), 1).grid_units for _ in range(draws)])
    epsilon, delta = float(threshold.policy.epsilon), float(threshold.policy.delta)
    edges = [1, 5, 9, 10, 11, 20, 100, 10**4, 10**5, 5 * 10**5, 10**6]
    level = ALPHA / (8 * len(edges))
    for left, right in ((one, two), (two, one)):
        for edge in edges:
            for side in (np.greater_equal, np.less):
                likely, rare = int(side(left, edge).sum()), int(side(right, edge).sum())
                low = beta_law.ppf(level, likely, draws - likely + 1) if likely else 0.0
                high = beta_law.ppf(1 - level, rare + 1, draws - rare) if rare < draws else 1.0
                if low > math.exp(epsilon) * high + delta:
                    return True
    return False


@pytest.mark.parametrize(
    ("method", "policy"),
    [
        ("quantile", Event(epsilon="1", max_change=10**6)),
        ("smooth", Event(epsilon="1", delta=DELTA, max_change=10**6)),
        ("smooth-gaussian", Event(epsilon="1", delta=DELTA, max_change=10**6)),
    ],
)
def test_ties_do_not_show_in_the_default(method, policy):
    """800 releases on each of two neighbours with ties: no half-line shows more than (ε, δ), level ALPHA."""
    assert not shown_loss(Threshold(policy, sample=4000, exceeding="1/2", method=method, too_low=0.1))


@pytest.mark.parametrize("method", ["smooth", "smooth-gaussian"])
def test_ties_catch_the_printed_quantile(method):
    """The same test refuses the printed quantile."""
    policy = Event(epsilon="1", delta=DELTA, max_change=10**6)
    assert shown_loss(PrintedThreshold(policy, sample=4000, exceeding="1/2", method=method, too_low=0.1))


def test_it_finds_the_quantile():
    """With a large ε the threshold is the rank's value up to one step of the grid; smooth lies above it."""
    values = np.arange(1, 10_001)
    found = released(Threshold(Event(epsilon="50", max_change=10**6), sample=10_000, above=100), values).value
    assert 9900 * 0.98 <= found <= 9900 * 1.05
    policy = Event(epsilon="5", delta="1e-6", max_change=10**6)
    smooth = Threshold(policy, sample=10_000, above=100, method="smooth")
    drawn = [released(smooth, values).value for _ in range(50)]
    assert 9900 <= np.median([float(value) for value in drawn]) <= 12_000


def test_an_unknown_bound_costs_little():
    """The walk over a grid up to 2^44 ends where the data are."""
    threshold = Threshold(Event(epsilon="1"), sample=5000, above=60, bound="unknown")
    found = released(threshold, np.arange(5000)).value
    assert 3000 < found < 20_000


def test_a_histogram_is_cut_at_the_threshold():
    """Bins above the threshold become one; a threshold above all bins changes nothing."""
    merged = ReleasedThreshold(Fraction(30), 30, 10).merge_above([1, 2, 3, 4], [0, 10, 20, 30])
    assert merged.tolist() == [1, 2, 3, 4]
    assert ReleasedThreshold(Fraction(5), 5, 10).merge_above([1, 2, 3, 4], [0, 10, 20, 30]).tolist() == [1, 9]


def test_impossible_parameters_name_what_to_change():
    """One sentence each."""
    event, approximate = Event(epsilon="1", max_change=9), Event(epsilon="1", delta=DELTA, max_change=9)
    with pytest.raises(InvalidParameter, match="one user could own"):
        Threshold(User(epsilon="1", horizon=10), sample=10, above=1)
    with pytest.raises(InvalidParameter, match=r"1/exceeding = 100.*wait longer"):
        Threshold(event, sample=99, exceeding="0.01")
    assert Threshold(event, sample=100, exceeding="0.01").sample == 100  # one of them may exceed it
    with pytest.raises(InvalidParameter, match="raise too_low"):
        Threshold(approximate, sample=1000, above=5, method="smooth", too_low=1e-9)
    with pytest.raises(InvalidParameter, match="method"):
        Threshold(event, sample=10, above=1, method="smooth")
    with pytest.raises(InvalidParameter, match="above"):
        Threshold(event, sample=10, above=10)
    with pytest.raises(InvalidParameter, match="bound"):
        Threshold(approximate, sample=1000, above=5, method="smooth", bound="unknown", too_low=0.1)


def test_the_gaussian_constants_solve_their_equation():
    """a²/2 + a·tail = ε/2 and the tails are those of the normal distribution."""
    constants = smooth_sensitivity.gaussian_constants(1.0, 1e-6, 0.1)
    tail = math.sqrt(2 * (math.log(2e6) + 0.5))
    assert constants.a**2 / 2 + constants.a * tail == pytest.approx(0.5)
    assert constants.offset == pytest.approx(norm.ppf(0.9))


@pytest.mark.parametrize("denominator", range(1, 12))
def test_scales_of_the_rank_and_of_tests_are_rounded_up(denominator):
    """Each by itself, so that none takes what the other leaves: 2/ε, and for several changes 2w/ε and 4w/ε."""
    epsilon = Fraction(7, denominator)
    for policy, changes, test in ((Event(epsilon=epsilon), 1, 2), (WEvent(epsilon=epsilon, window=3), 3, 12)):
        rank, tests = (Fraction(scale) for scale in Threshold(policy, sample=9, above=3).scales)
        for scale, least in ((rank, 2 * changes / epsilon), (tests, test / epsilon)):
            assert least <= scale < least * (1 + Fraction(1, 2**50))


def test_smooth_constants_keep_to_what_was_proved():
    """A δ above 2/e (b would exceed ε/2) and a b below 1e-8 (errors would outgrow it) are refused by name."""
    with pytest.raises(InvalidParameter, match="delta"):
        smooth_sensitivity.laplace_constants(1.0, 0.75, 0.1)
    with pytest.raises(InvalidParameter, match="delta"):
        Threshold(Event(epsilon="1", delta="0.75"), sample=1000, above=100, method="smooth", too_low=0.4)
    assert smooth_sensitivity.laplace_constants(1.0, 0.7, 0.45).b <= 0.5
    for method in ("smooth", "smooth-gaussian"):
        with pytest.raises(InvalidParameter, match="epsilon"):
            Threshold(
                Event(epsilon="1e-8", delta="1e-3"), sample=1000, above=100, method=method, too_low=0.45
            )


@pytest.mark.parametrize("method", ["smooth", "smooth-gaussian"])
def test_smooth_thresholds_have_the_noise_of_their_scale(method):
    """Around the value of the rank and its offset, with the law's spread (α < 1e-9); half of it is not."""
    policy = Event(epsilon="8", delta="1e-2", max_change=10**6)
    threshold = Threshold(policy, sample=1000, exceeding="1/2", method=method, too_low=0.4)
    values = np.arange(1000) * 1000
    scale = threshold._constants.scale(values, threshold.rank, threshold.largest)
    centre = values[threshold.rank - 1] + math.floor(scale * threshold._constants.offset + 0.5)
    noise = np.array([threshold.draw(values, current(), 1).grid_units for _ in range(1500)]) - centre
    assert scale > 100
    assert np.abs(noise).max() < threshold.largest / 4  # nothing is cut
    usual = scale * (1.0 if method == "smooth" else math.sqrt(2 / math.pi))
    assert 0.8 < np.abs(noise).mean() / usual < 1.2
    assert abs(noise.mean()) < 0.25 * usual
