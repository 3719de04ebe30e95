"""Metrics on cases computed by hand."""

import numpy as np
import pytest

from experiments import metrics
from tidegate.bench.metrics import cut_errors, interval_of_mean


def test_absolute_and_scaled():
    """|1−2|, |5−3|, |0−4| and |4−4|: mean 7/4, total 7 over 13."""
    released, truth = [[1, 5], [0, 4]], [[2, 3], [4, 4]]
    assert metrics.mean_absolute_error(released, truth) == 7 / 4
    assert metrics.scaled_l1_error(released, truth) == 7 / 13


def test_relative_with_a_floor():
    """Small counts are divided by a floor of 0.1 % of a step's total, at least 1."""
    assert cut_errors(np.array([[3.0, 12.0]]), np.array([[0, 10]]))[1] == pytest.approx((3 + 2 / 10) / 2)
    large = np.array([[0, 5000]])
    assert cut_errors(np.array([[5.0, 5000.0]]), large)[1] == pytest.approx((5 / 5) / 2)


def test_roc_with_ties():
    """Equal scores move together; the area of a constant score is one half."""
    false, true = metrics.roc([2, 2, 1, 1], [True, False, True, False])
    assert false.tolist() == [0, 0.5, 1]
    assert true.tolist() == [0, 0.5, 1]
    assert metrics.area_under((false, true)) == 0.5
    assert metrics.area_under(metrics.roc([1, 2, 3], [False, False, True])) == 1


def test_interval_of_a_mean():
    """Student's 95 % interval of four runs: mean 2.5, half width 3.182 · 1.291/2."""
    low, high = interval_of_mean([1, 2, 3, 4])
    assert (low + high) / 2 == 2.5
    assert (high - low) / 2 == pytest.approx(3.1824 * np.sqrt(5 / 3) / 2, rel=1e-3)
    assert interval_of_mean([7]) == (7, 7)


def test_interval_of_a_share():
    """None of ten runs: up to 1 − 0.025^(1/10); all of them: from 0.025^(1/10) on."""
    assert metrics.interval_of_share(0, 10) == (0.0, pytest.approx(1 - 0.025**0.1))
    assert metrics.interval_of_share(10, 10) == (pytest.approx(0.025**0.1), 1.0)


def test_values_cut_at_zero():
    """−3 and 5 for 0 and 4 are wrong by 0 and 1, the latter a quarter of 4; two columns, floor 1."""
    assert cut_errors(np.array([[-3.0, 5.0]]), np.array([[0, 4]])) == (0.5, 0.125)
