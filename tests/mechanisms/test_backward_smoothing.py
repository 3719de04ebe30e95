import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import BackwardSmoothing, Uniform
from tidegate.noise import variance_laplace
from tidegate.queries import WindowSum


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.integers(0, 8), st.integers(0, 40))
def test_the_average_of_the_last_noisy_values(counts, back, cut):
    """Also over the seam of two batches, and fewer at the beginning."""
    run = Session(BackwardSmoothing(tg.Event(epsilon="1"), back=back))
    parts = [run.push_batch(counts[:cut]), run.push_batch(counts[cut:])]
    noisy = np.concatenate([part.noisy[:, 0] for part in parts])
    found = np.concatenate([part.values[:, 0] for part in parts])
    assert found == pytest.approx([noisy[max(0, at - back) : at + 1].mean() for at in range(len(counts))])


def test_its_noise_is_that_of_uniform():
    """Same scale, and averages of ten have a tenth of its variance."""
    policy = tg.WEvent(epsilon="1", window=4)
    mechanism = BackwardSmoothing(policy, back=9)
    assert mechanism.scale == Uniform(policy, noise="laplace").scale
    releases = Session(mechanism).push_batch(np.full(40_000, 30))
    normal = np.sqrt(2 / np.pi * variance_laplace(mechanism.scale) / 10)
    assert np.abs(releases.values - 30).mean() == pytest.approx(normal, rel=0.1)


def test_questions_use_the_measurements_behind_it():
    """A window sum over the releases adds up the noisy values, not averages of averages."""
    releases = Session(BackwardSmoothing(tg.Event(epsilon="1"))).push_batch(np.ones(30))
    assert WindowSum(1, 5).push_batch(releases)[9, 0] == pytest.approx(releases.noisy[5:10].sum())


def test_bad_parameters_are_refused():
    """One sentence each."""
    for back in (-1, 512, 1.5):
        with pytest.raises(InvalidParameter):
            BackwardSmoothing(tg.Event(epsilon="1"), back=back)
