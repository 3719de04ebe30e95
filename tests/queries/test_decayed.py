from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidParameter
from tidegate.queries.decayed import Exponential, Polynomial, Window

DECAYS = [
    Exponential("0.5"),
    Exponential("0.99"),
    Polynomial("1"),
    Polynomial("0.5"),
    Window(1),
    Window(4),
    Window(100),
]


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
@given(stream=st.lists(st.integers(-100, 100), min_size=1, max_size=40))
def test_decayed_sums_of_exact_sums_are_exact(decay, stream):
    """Against the definition, step by step, and by the weights."""
    sums = np.cumsum(stream).astype(float)
    answers = decay.apply(sums)
    for step in range(1, len(stream) + 1):
        expected = np.dot(decay.by_age(step)[::-1], stream[:step])
        assert answers[step - 1] == pytest.approx(expected, abs=1e-6)
        assert np.dot(decay.weights(step), sums[:step]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
def test_columns_decay_each(decay):
    """T × d in, T × d out."""
    sums = np.cumsum(np.arange(12.0).reshape(6, 2), axis=0)
    assert np.allclose(decay.apply(sums)[:, 1], decay.apply(sums[:, 1]))


def test_bad_decays_are_refused():
    """One sentence each."""
    with pytest.raises(InvalidParameter, match="factor"):
        Exponential("1")
    with pytest.raises(InvalidParameter, match="power"):
        Polynomial("0")
    with pytest.raises(InvalidParameter, match="length"):
        Window(0)
    with pytest.raises(InvalidParameter, match="float"):
        Exponential(0.5)
