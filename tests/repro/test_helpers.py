"""What several experiments compute with, on cases that can be checked otherwise."""

import numpy as np
import polars as pl
import pytest

from experiments.comparison import compared, ratio_with_interval
from experiments.pegasus import counted
from experiments.perrier import (
    ClippedLosses,
    Plan,
    complete,
    last_sums,
    tail_of,
    tree_errors,
    upper_quantile,
)
from tidegate.mechanisms import BinaryTree, ClippedSum
from tidegate.policy import Event
from tidegate.testing import fixed_entropy


def test_ratio_of_means_with_its_interval():
    """Means 2 and 4: the ratio is a half; the interval is t·√(s₁²/n/m₁² + s₂²/n/m₂²) wide on each side."""
    one, other = [1.0, 2.0, 3.0], [3.0, 4.0, 5.0]
    ratio, low, high = ratio_with_interval(one, other)
    half = 0.5 * 4.3027 * np.sqrt(1 / 3 / 4 + 1 / 3 / 16)
    assert ratio == 0.5
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-3)
    assert ratio_with_interval([1.0], [2.0]) == (0.5, 0.5, 0.5)


def test_who_is_ahead():
    """Yes and no need an interval that excludes 1."""
    rows = [
        {"stream": "a", "mechanism": name, "error": error}
        for name, errors in {"A": (1.0, 1.1), "B": (5.0, 5.1), "C": (0.9, 1.2)}.items()
        for error in errors
    ]
    table = compared(pl.DataFrame(rows), ["A"], ["B", "C", "absent"], ["stream"])
    assert table["ahead"].to_list() == ["yes", "open"]
    assert "A/B below 1 in 1 of 1 settings" in counted(table)


def test_quantiles_and_tails():
    """At most a share p exceeds x_p; an exponential sample is not heavy, a Pareto one is."""
    ordered = np.arange(1, 1001)
    assert upper_quantile(ordered, 0.005) == 995
    shares = (np.arange(100_000) + 0.5) / 100_000
    exponential, pareto = (-1000 * np.log(shares)).astype(np.int64), (10 / shares).astype(np.int64)
    assert not tail_of(exponential).heavy
    assert tail_of(pareto).heavy
    assert 0.9 < tail_of(exponential).worst < 1.1


def test_what_clipping_loses():
    """The table of losses against the sum itself, for all values and for those after the first."""
    stream = ClippedLosses("supermarket", 3000)
    for clip in (0, 1, 40, 200, 2999, 3000):
        assert stream.lost(clip) == np.maximum(stream.values - clip, 0).sum()
        assert stream.lost(clip, 1000) == np.maximum(stream.values[1000:] - clip, 0).sum()


def test_noise_of_the_last_sum_alone():
    """Its deviation is the tree's; the printed scale, one level short, is told apart (fixed entropy, 20,000 draws)."""
    tree = BinaryTree(Event(epsilon=1, max_change=10), horizon=1031, estimator="plain")
    with fixed_entropy(7):
        right = tree_errors(tree, 20_000).std() / tree.standard_deviation(1031)
        wrong = tree_errors(tree, 20_000, printed=True).std() / tree.standard_deviation(1031)
    assert right == pytest.approx(1, abs=0.03)
    assert wrong == pytest.approx(np.log2(1031) / 11, abs=0.03)


def test_last_sums_agree_with_complete_runs():
    """Mean absolute errors of 150 seeds each way: within 40 % where one standard error of the ratio is 12 %."""
    stream = ClippedLosses("supermarket", 6000)
    mechanism = ClippedSum(Event(epsilon=1, max_change=3000), horizon=6000, branching=2, estimator="plain")
    plan = Plan(mechanism, p=0.01, multiplier=1.0, missed=0.01)
    short, whole = [], []
    for seed in range(150):
        with fixed_entropy(seed):
            short.append(abs(last_sums(plan, stream, 1).errors[0]))
            whole.append(abs(complete(mechanism, stream, 1)[0]))
    assert np.mean(short) == pytest.approx(np.mean(whole), rel=0.4)
