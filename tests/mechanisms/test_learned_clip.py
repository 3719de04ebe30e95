"""Averages, decayed sums and histograms with a learnt threshold: exact without noise, scaled to the clip."""

import re

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import ClippedAverage, ClippedDecay, ClippedHistogram
from tidegate.testing.entropy import zero_noise

TRIPS = np.random.default_rng(1).gamma(2.2, 13.5, 3000).round().astype(np.int64)
POLICY = tg.Event(epsilon="1", max_change=1440)


def clipped(releases, lag=500):
    """The observations after the lag, cut off at the released clip."""
    return np.minimum(TRIPS[lag:], releases.clip[-1])


@pytest.mark.parametrize("window", [1, 7, 900])
def test_averages_without_noise(window):
    """The mean of the last n clipped observations, of fewer at the beginning; nothing is said during the lag."""
    with zero_noise():
        releases = Session(ClippedAverage(POLICY, lag=500, window=window)).push_batch(TRIPS)
    assert not releases.fresh[:500].any()
    assert releases.values[:500].any() == 0
    values = clipped(releases)
    for at in (0, 5, 6, 899, 900, 2000):
        expected = values[max(0, at + 1 - window) : at + 1].mean()
        assert releases.values[500 + at, 0] == pytest.approx(expected)


def test_decayed_sums_without_noise():
    """Each sum is γ times the one before and the new observation."""
    with zero_noise():
        releases = Session(ClippedDecay(POLICY, lag=500, factor="0.9")).push_batch(TRIPS)
    expected = 0.0
    for value, released in zip(clipped(releases), releases.values[500:, 0], strict=True):
        expected = 0.9 * expected + value
        assert released == pytest.approx(expected)


@pytest.mark.parametrize("window", [None, 300])
def test_histograms_without_noise(window):
    """Counts of equal bins up to the threshold, and of what lies above, over all observations or the last ones."""
    mechanism = ClippedHistogram(POLICY, lag=500, bins=6, window=window)
    with zero_noise():
        releases = Session(mechanism).push_batch(TRIPS)
    clip = int(releases.clip[-1])
    edges = mechanism.edges(clip)
    assert (edges[0], edges[-1]) == (0, clip)
    seen = TRIPS[-(window or 2500) :]
    expected = np.histogram(seen, np.append(edges, np.inf))[0]
    assert releases.values[-1] == pytest.approx(expected)


def test_noise_is_scaled_to_the_clip_and_not_to_the_bound():
    """The deviation of each release is the clip's share of what the bound would need: a tenth and less."""
    for kind, factor in ((ClippedAverage, (2 / 24) ** 0.5), (ClippedDecay, (2 / (1 - 0.99**2)) ** 0.5)):
        mechanism = kind(POLICY, lag=1000)
        releases = Session(mechanism).push_batch(TRIPS)
        assert releases.clip[-1] < 144
        assert releases.scale[-1] == pytest.approx(factor * releases.clip[-1], rel=0.01)
        errors = releases.values[1500:, 0] - mechanism.ideal(TRIPS[:, None].astype(float))[1500:, 0]
        assert np.abs(errors).mean() < 4 * releases.scale[-1]


@pytest.mark.parametrize("kind", [ClippedAverage, ClippedDecay, ClippedHistogram])
def test_deviations_and_reach_are_in_the_values_unit(kind):
    """The same observations in quarters: every deviation, and what one observation changes, is a quarter."""
    coarse = kind(POLICY, lag=500)
    fine = kind(tg.Event(epsilon="1", max_change=360), lag=500, grid="1/4")
    with zero_noise():
        expected, found = Session(coarse).push_batch(TRIPS), Session(fine).push_batch(TRIPS / 4)
    counts = kind is ClippedHistogram  # a count has no unit
    assert found.scale[500:] == pytest.approx(expected.scale[500:] / (1 if counts else 4))
    clip = int(expected.clip[-1])
    assert fine.reach(clip, 200) == pytest.approx(coarse.reach(clip, 200) / (1 if counts else 4))


def test_reach_counts_the_steps_after_the_lag():
    """Of the n-th observation after the lag, an average of n has the n-th part."""
    mechanism = ClippedAverage(POLICY, lag=500, window=900)
    for after in (1, 2, 900, 1000):
        assert mechanism.reach(70, after) == pytest.approx(70 / min(after, 900))


@pytest.mark.parametrize("kind", [ClippedAverage, ClippedDecay, ClippedHistogram])
def test_every_step_has_one_source(kind):
    """As many sources as rows, each the step itself after the lag."""
    with zero_noise():
        session = Session(kind(POLICY, lag=500))
        releases = [session.push_batch(TRIPS[:600]), session.push_batch(TRIPS[600:700])]
    assert [len(each.source) for each in releases] == [600, 100]
    assert releases[0].source.tolist() == [0] * 500 + list(range(501, 601))
    assert releases[1].source.tolist() == list(range(601, 701))


def test_the_shortest_lag():
    """As many steps as leave half of them below the number that may exceed the threshold."""
    with pytest.raises(InvalidParameter, match="at least") as refused:
        ClippedAverage(POLICY, lag=1)
    least = int(re.search(r"at least (\d+)", str(refused.value))[1])
    mechanism = ClippedAverage(POLICY, lag=least)
    assert mechanism.above == least // 2
    with pytest.raises(InvalidParameter, match=f"at least {least}"):
        ClippedAverage(POLICY, lag=least - 1)


def test_long_windows_have_a_tree_and_short_ones_have_not():
    """Whichever has less noise is used, whatever the clip is."""
    assert ClippedAverage(POLICY, window=24).adds_values
    assert not ClippedAverage(POLICY, window=5000).adds_values
    short, long = (ClippedAverage(POLICY, window=n).counter(100) for n in (24, 5000))
    assert short.window == 1
    assert long.window == 5000
    assert long.deviations.mean() < short.deviations[0] * 5000**0.5


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize("window", [None, 12])
def test_an_observation_is_in_two_bins_of_a_histogram(adjacency, window):
    """Absent or not, a changed observation leaves one bin and comes into another; Δ = 1 would lose twice ε."""
    policy = tg.Event(epsilon="1", max_change=1440, adjacency=adjacency)
    mechanism = ClippedHistogram(policy, bins=4, window=window)
    one, other = (mechanism.entered(np.array([[value]]), 100) for value in (0, 99))
    assert np.abs(one - other).sum() == mechanism.counter(100).sensitivity == 2


def test_the_last_bin_has_what_lies_above():
    """Values at the clip or beyond it are in the last bin, all others below."""
    mechanism = ClippedHistogram(POLICY, bins=4)
    found = mechanism.entered(np.array([[0], [24], [25], [99], [100]]), 100).argmax(axis=1)
    assert found.tolist() == [0, 0, 1, 3, 4]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ClippedAverage, {"lag": 3}),
        (ClippedAverage, {"window": 0}),
        (ClippedAverage, {"multiplier": "0.5"}),
        (ClippedAverage, {"columns": 2}),
        (ClippedDecay, {"factor": 1}),
        (ClippedDecay, {"factor": 0}),
        (ClippedHistogram, {"bins": 0}),
        (ClippedHistogram, {"window": 0}),
    ],
    ids=str,
)
def test_wrong_parameters_are_one_sentence(kind, options):
    """Everything outside its range is refused by the constructor."""
    with pytest.raises(InvalidParameter) as refused:
        kind(POLICY, **options)
    assert len(str(refused.value).splitlines()) == 1
