"""Truncation and the moving average where noise is high."""

import numpy as np
import pytest

import tidegate as tg
from experiments.truncation import SmoothWhereNoisy, truncate
from tidegate.errors import InvalidParameter


def test_truncation():
    """Bounds are kept, everything between stays."""
    assert truncate([[-1.0, 5.0]]).tolist() == [[0.0, 5.0]]
    assert truncate([3.0, 9.0], least=4, most=8).tolist() == [4.0, 8.0]


def releases():
    """Releases of a Swellfish run whose noise is high in the middle."""
    home = tg.policy.Secret(1, 1, "always", 1, "home")
    oven = tg.policy.Secret(40, 4, [(21, 50)], 1, "oven")
    house = tg.policy.Specification((home, oven), "h")
    run = tg.open(tg.mechanisms.Swellfish(tg.Swellfish(specifications=[house]), columns=2))
    return run.push_batch(np.full((80, 2), 300))


def test_only_noisy_steps_are_smoothed_and_batches_equal_pushes():
    """Quiet steps pass; noisy ones are the average of the last releases; state is one window."""
    given = releases()
    batch = SmoothWhereNoisy(columns=2, window=7, threshold=10).push_batch(given)
    bounded = truncate(given.values)
    quiet = given.scale <= 10
    assert np.array_equal(batch[quiet], bounded[quiet])
    assert batch[40] == pytest.approx(bounded[34:41].mean(axis=0))
    single = SmoothWhereNoisy(columns=2, window=7, threshold=10)
    assert np.array([single.push(release) for release in given]) == pytest.approx(batch)
    assert len(single._last) == 6
    cut = SmoothWhereNoisy(columns=2, window=7, threshold=10)
    pieces = [cut.push(given[at]) for at in range(30)]
    assert np.array(pieces) == pytest.approx(batch[:30])


def test_smoothing_lowers_the_error_of_a_flat_stream():
    """Mean absolute error over 30 noisy steps: less than half; without a threshold the same steps stay as they are."""
    given = releases()
    noisy = given.scale > 10
    before = np.abs(given.values[noisy] - 300).mean()
    after = np.abs(SmoothWhereNoisy(columns=2, window=30, least=None).push_batch(given)[noisy] - 300).mean()
    untouched = SmoothWhereNoisy(columns=2, window=30, threshold=1e9, least=None).push_batch(given)
    assert after < before / 2
    assert np.array_equal(untouched, given.values)


def test_bad_parameters():
    """Refused in one sentence."""
    with pytest.raises(InvalidParameter, match="smooth always"):
        SmoothWhereNoisy(threshold=-1)
    with pytest.raises(InvalidParameter, match="at least 1"):
        SmoothWhereNoisy(window=0)


def test_a_filter_may_have_a_threshold_for_each_column():
    """Each column is averaged where the noise is above its own threshold; another number of thresholds is refused."""
    run = tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24), columns=2, noise="laplace"))
    releases = run.push_batch(np.full((50, 2), 500))
    found = SmoothWhereNoisy(columns=2, window=24, threshold=[1000.0, 10.0]).push_batch(releases)
    alone = SmoothWhereNoisy(columns=2, window=24, threshold=10.0).push_batch(releases)
    assert (found[:, 0] == np.maximum(releases.values[:, 0], 0)).all()
    assert (found[:, 1] == alone[:, 1]).all()
    with pytest.raises(InvalidParameter, match="one number or 2"):
        SmoothWhereNoisy(columns=2, threshold=[1.0, 2.0, 3.0])
