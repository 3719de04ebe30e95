from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from distributions import compare_counts
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import BinaryTree
from tidegate.policy import Event
from tidegate.queries.averages import RunningAverage, WindowAverage

STREAMS = st.lists(st.integers(-100, 100), min_size=1, max_size=60)


@given(STREAMS, st.integers(1, 70))
def test_averages_of_exact_sums_are_averages(stream, length):
    """Against numpy's mean, and the weights give the same answer."""
    sums = np.cumsum(stream).astype(float)
    for query, window in ((RunningAverage(), len(stream)), (WindowAverage(length), length)):
        answers = query.apply(sums)
        for step in range(1, len(stream) + 1):
            expected = np.mean(stream[max(0, step - window) : step])
            assert answers[step - 1] == pytest.approx(expected, abs=1e-9)
            assert np.dot(query.weights(step), sums[:step]) == pytest.approx(expected, abs=1e-9)


def test_columns_are_averaged_each():
    """T × d in, T × d out."""
    sums = np.cumsum(np.ones((5, 3)), axis=0)
    assert np.array_equal(RunningAverage().apply(sums), np.ones((5, 3)))
    assert np.array_equal(WindowAverage(2).apply(sums), np.ones((5, 3)))


def test_the_error_of_a_window_average_is_known():
    """Coverage of ±1.5 standard deviations by 20,000 Gaussian streams, level ALPHA; a deviation 10 % off is caught."""
    mechanism = BinaryTree(Event(rho="1/2", max_change=50), columns=20_000, horizon=64)
    values = tg.open(mechanism).push_batch(np.zeros((64, 20_000), dtype=np.int64)).values
    query = WindowAverage(11)
    deviation = mechanism.deviation_of(query.weights(50))
    answers = query.apply(values)[49]
    probability = 0.8663855974622838
    inside = int(np.count_nonzero(np.abs(answers) <= 1.5 * deviation))
    assert compare_counts({"inside": (inside, probability)}, 20_000).ok
    wrong = int(np.count_nonzero(np.abs(answers) <= 1.35 * deviation))
    assert not compare_counts({"inside": (wrong, probability)}, 20_000).ok


def test_bad_lengths_are_refused():
    """One sentence."""
    with pytest.raises(InvalidParameter, match="length"):
        WindowAverage(0)
