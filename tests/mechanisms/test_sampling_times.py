"""Public sample times: equal spacing, the best times of a profile, and a change of times."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.optstream.l1_sampling import line_score
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.mechanisms.optstream.sampling_times import BestTimes, equally_spaced, read_times


@given(st.integers(1, 300), st.data())
def test_equal_spacing_has_k_times_and_ends_with_the_period(w, data):
    """Exactly k positions, the last one w, gaps that differ by at most one."""
    k = data.draw(st.integers(1, w))
    times = equally_spaced(w, k)
    gaps = [b - a for a, b in pairwise((0, *times))]
    assert len(times) == k
    assert times[-1] == w
    assert max(gaps) - min(gaps) <= 1


@settings(max_examples=40)
@given(st.lists(st.integers(0, 40), min_size=14, max_size=14), st.integers(1, 7))
def test_best_times_minimise_equation_4(profile, k):
    """Dynamic programming finds the least sum of distances from the lines, over all sets of k times."""
    w = 7

    def cost(times):
        total = Fraction(0)
        for period in range(2):
            before = profile[period * w - 1] if period else profile[w - 1]
            values = [before, *profile[period * w : (period + 1) * w]]
            total += sum(line_score(values[a : b + 1]) for a, b in pairwise((0, *times)))
        return float(total)

    least = min(cost((*chosen, w)) for chosen in combinations(range(1, w), k - 1))
    assert cost(BestTimes(profile, w).of(k)) <= least + 1e-6


@given(st.integers(1, 30), st.data())
def test_lines_and_curves_pass_through_their_points(w, data):
    """Both reconstructions keep the samples, and straight lines stay straight."""
    k = data.draw(st.integers(1, w))
    times = np.array([*sorted(data.draw(st.permutations(range(1, w)))[: k - 1]), w])
    points = np.array(data.draw(st.lists(st.floats(-100, 100), min_size=k + 1, max_size=k + 1)))
    knots = np.concatenate([[0], times])
    for kind in ("line", "curve"):
        curve = Reconstruction.through(times, w, kind)
        assert np.allclose(curve.apply(points)[times - 1], points[1:])
        assert np.allclose(curve.apply(3.0 + 2.0 * knots), 3.0 + 2.0 * np.arange(1, w + 1))
        assert np.isclose(curve.spread.sum(), (curve.matrix.sum(axis=0) ** 2).sum()) or kind == "curve"
    assert np.allclose(
        Reconstruction.through(times, w).apply(points), np.interp(np.arange(1, w + 1), knots, points)
    )


def test_steps_after_the_last_sample_hold_it():
    """A period that was cut short ends with its last sample, or with that of the period before."""
    curve = Reconstruction.through(np.array([2, 4]), 6)
    assert np.allclose(curve.apply(np.array([0.0, 2.0, 8.0])), [1, 2, 5, 8, 8, 8])
    assert np.allclose(Reconstruction.through(np.array([], dtype=int), 2).apply(np.array([5.0])), [5, 5])


@pytest.mark.parametrize("times", [(), (3, 2, 6), (2, 2, 6), (0, 6), (2, 5), (2, 7), (2.5, 6)])
def test_wrong_times_are_refused(times):
    """Times ascend, lie in the period and end with it."""
    with pytest.raises(InvalidParameter):
        read_times(times, 6)


@pytest.mark.parametrize("profile", [[], [1, 2, 3], [1, 2, 3, float("nan")], np.zeros((4, 2, 2))])
def test_wrong_profiles_are_refused(profile):
    """A profile has whole periods and no gaps."""
    with pytest.raises(InvalidInput):
        BestTimes(profile, 4)
