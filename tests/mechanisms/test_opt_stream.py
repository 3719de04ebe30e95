"""OptStream: what windows lose, by enumeration; revised values; choice of samples; bad input; accuracy."""

from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from experiments.printed.optstream import PrintedOptStream
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import OptStream, Uniform
from tidegate.mechanisms.optstream.choose_samples import Prediction
from tidegate.mechanisms.optstream.feature_trees import equal_parts, parts_of_day, whole_period
from tidegate.releases import Status
from tidegate.testing.entropy import zero_noise

DAY = (parts_of_day(48), whole_period(48))
POLICY = tg.WEvent(epsilon="1", window=12)
ODD_AND_EVEN = ((1, 3, 5), (2, 4, 6))


def wave(steps, w=12, columns=1, level=500):
    """A smooth periodic stream."""
    time = np.arange(steps)[:, None] + 3 * np.arange(columns)
    return np.rint(level * (1 + 0.4 * np.sin(2 * np.pi * time / w))).astype(np.int64)


# privacy -------------------------------------------------------------------------------------------------------


def size_of(changes: tuple[int, ...], mechanism: OptStream) -> int:
    """What noise of scale 1 loses when samples move by this: their norm, of groups wherever they may begin."""
    sharing = mechanism.sharing
    if sharing is None:
        return sum(changes)
    count, choice = len(changes), sharing.choice
    if choice.law == "cube":
        pattern = [
            number for number, length in enumerate(choice.lengths * (count + 2)) for _ in range(length)
        ]
        groups = [pattern[begin : begin + count] for begin in range(sum(choice.lengths))]
        sizes = (
            [max((c for c, at in zip(changes, each, strict=True) if at == g), default=0) for g in set(each)]
            for each in groups
        )
        return max(map(sum, sizes))
    assert choice.share == 1
    best = [0] * (
        count + choice.width
    )  # the most that those up to here, any two of them so far apart, add up to
    for index, change in enumerate(changes):
        best[index + choice.width] = max(best[index + choice.width - 1], best[index] + change)
    return best[-1]


def worst_loss(mechanism: OptStream, times: tuple[int, ...]) -> Fraction:
    """The largest loss of any window, aligned or straddling, for any change of its steps: exact.

    Noise has a density that falls with a norm, so measurements that move lose the norm of that over the scale for some
    output. For Laplace noise it is the sum; samples and sums are independent of each other, so their losses add.
    """
    w, labels = mechanism.window, mechanism.tree.labels
    sample, total = 1 / Fraction(mechanism.sample_scale), Fraction(0)
    size = lru_cache(maxsize=None)(lambda changes: size_of(changes, mechanism))
    part = 1 / Fraction(mechanism.sum_scale) if mechanism.features else Fraction(0)
    for first in range(w):
        for change in product((-1, 0, 1), repeat=w):
            periods = np.zeros((2, w), dtype=np.int64)
            periods.ravel()[first : first + w] = change
            found = sample * size(tuple(np.abs(periods[:, np.array(times) - 1]).ravel().tolist()))
            for period in periods:
                for level in labels:
                    found += part * int(np.abs(np.bincount(level, weights=period)).sum())
            total = max(total, found)
    return total


@pytest.mark.parametrize(
    "mechanism",
    [
        OptStream(tg.WEvent(epsilon="1", window=5), samples=2, noise="laplace"),
        OptStream(
            tg.WEvent(epsilon="2", window=5),
            times=(1, 2, 5),
            features=(equal_parts(5, 2), whole_period(5)),
            noise="laplace",
        ),
        OptStream(
            tg.WEvent(epsilon="1/3", window=6),
            samples=6,
            features=(whole_period(6),),
            split=(1, 1, 3),
            noise="laplace",
        ),
        OptStream(
            tg.WEvent(epsilon="1", window=6),
            samples=2,
            features=(equal_parts(6, 2), ODD_AND_EVEN),
            noise="laplace",
        ),
        OptStream(tg.WEvent(epsilon="1", window=5), samples=2),
        OptStream(tg.WEvent(epsilon="1", window=6), times=(1, 2, 3, 6), features=(whole_period(6),)),
        OptStream(tg.WEvent(epsilon="1", window=6), samples=4, noise="cube"),
        OptStream(
            tg.WEvent(epsilon="1", window=6), times=(1, 2, 4, 5, 6), noise="cube", features=(whole_period(6),)
        ),
    ],
    ids=[
        *("samples", "features", "all steps", "features that cross"),
        *("shared", "shared, features", "groups", "groups, features"),
    ],
)
def test_no_window_loses_more_than_epsilon(mechanism):
    """Every window and every change, aligned or straddling; and the loss is all used."""
    lost = worst_loss(mechanism, mechanism.sample_times)
    budget = mechanism.policy.budget.total
    assert lost <= budget
    assert lost > budget * Fraction(999, 1000)


@pytest.mark.parametrize("noise", ["cube", "semiorder"])
def test_the_enumeration_catches_noise_for_too_few_samples(noise):
    """The planted wrong version: the law of two samples fewer than a window has."""
    mechanism = OptStream(tg.WEvent(epsilon="1", window=6), samples=5, noise=noise)
    fewer = OptStream(tg.WEvent(epsilon="1", window=6), samples=3, noise=noise)
    vars(mechanism).update(sharing=fewer.sharing, sample_scale=fewer.sample_scale)
    assert worst_loss(mechanism, mechanism.sample_times) > 1


def test_the_enumeration_catches_the_printed_features():
    """The planted wrong version: printed noise of features, which loses w times what it is charged."""
    mechanism = PrintedOptStream(
        tg.WEvent(epsilon="1", window=5),
        samples=2,
        features=(equal_parts(5, 2), whole_period(5)),
        noise="laplace",
    )
    assert worst_loss(mechanism, mechanism.sample_times) > 2


@settings(max_examples=40)
@given(st.integers(2, 14), st.data())
def test_adaptive_charges_never_overfill_a_window(w, data):
    """Whatever is chosen, the account accepts every charge, and what is charged covers what is measured."""
    k = data.draw(st.integers(2, w))
    features = data.draw(st.sampled_from([(), (whole_period(w),)]))
    mechanism = OptStream(
        tg.WEvent(epsilon="40", window=w), samples=k, adaptive=True, features=features, threshold=20
    )
    rows, log = np.array(data.draw(st.lists(st.integers(0, 60), min_size=4 * w, max_size=4 * w))), MemoryLog()
    releases = Session(mechanism, log).push_batch(rows)
    assert releases.fresh.reshape(4, w).sum(axis=1).tolist() == [k] * 4
    assert verify(log.rows()).ok
    tests, sample, step = mechanism.shares
    most = max(releases.fresh[first : first + w].sum() for first in range(3 * w))
    assert 2 * tests + most * sample + w * step <= 1
    assert 2 * tests + min(2 * k - 2, w) * sample + w * step == 1


def test_scales_are_those_of_the_review():
    """b_P = kΔ/ε_P, b_F = w(p − 1)Δ/ε_O; adaptive: the straddling window pays twice for the tests."""
    policy = tg.WEvent(epsilon="1", window=48, max_change=10)
    plain = OptStream(policy, samples=10, noise="laplace")
    assert plain.sample_scale == 100.0
    featured = OptStream(policy, samples=10, features=DAY, noise="laplace")
    assert (featured.sample_scale, featured.sum_scale) == (200.0, 48 * 2 * 10 * 2.0)
    adaptive = OptStream(policy, samples=10, adaptive=True)
    tests, sample, _ = adaptive.shares
    assert 2 * tests + 18 * sample == 1
    rule = adaptive.sampling.sparse_vector
    assert rule.sensitivity == 2 * 10 * 37
    assert rule.hits == 8


def test_moving_units_pay_for_all_columns_together():
    """Two columns do not double the noise; a contribution that may change its column does."""
    replaced = tg.WEvent(epsilon="1", window=12, adjacency="replace")
    assert OptStream(POLICY, columns=5, samples=3, noise="laplace").sample_scale == 3.0
    assert OptStream(replaced, columns=5, samples=3, noise="laplace").sample_scale == 6.0
    assert OptStream(POLICY, columns=5, samples=3, noise="semiorder").sample_scale == 1.0
    assert OptStream(replaced, columns=5, samples=3, noise="semiorder").sample_scale == 2.0


# two answers ---------------------------------------------------------------------------------------------------


def test_revised_values_are_lines_through_the_samples():
    """Without noise the final curve passes through the samples and is straight in between."""
    rows = np.array([0, 9, 9, 4, 9, 9, 9, 8])
    with zero_noise():
        releases = Session(OptStream(tg.WEvent(epsilon="1", window=8), samples=2)).push_batch(rows)
    assert releases.revised.values[:, 0].tolist() == [4, 4, 4, 4, 5, 6, 7, 8]
    assert releases.values[:, 0].tolist() == [0, 0, 0, 4, 4, 4, 4, 8]
    assert [Status(s) for s in releases.status[3:5]] == [Status.FRESH, Status.APPROXIMATED]
    assert releases.final is releases.revised


@pytest.mark.parametrize(
    ("causal", "expected"),
    [("hold", [4, 4, 8, 8, 8, 12]), ("line", [4, 4, 8, 10, 12, 12]), ("last period", [4, 4, 8, 8, 8, 12])],
)
def test_what_a_step_shows_before_its_period_ends(causal, expected):
    """Hold the last sample, or prolong the line; the curve of the last period needs a last period."""
    with zero_noise():
        session = Session(OptStream(tg.WEvent(epsilon="1", window=6), times=(1, 3, 6), causal=causal))
        shown = session.push_batch([4, 0, 8, 0, 0, 12]).values[:, 0]
        assert shown.tolist() == expected
        if causal == "last period":
            moved = session.push_batch([14, 0, 18, 0, 0, 22]).values[:, 0]
            assert moved == pytest.approx([14, 16, 18, 18 + 4 / 3, 18 + 8 / 3, 22])


def test_features_pull_the_curve_towards_their_sums():
    """Where lines miss a peak, measured sums restore the total."""
    rows = np.zeros(12, dtype=np.int64)
    rows[4:7] = 120
    with zero_noise():
        plain = Session(OptStream(POLICY, times=(3, 12))).push_batch(rows).final.values.sum()
        mechanism = OptStream(POLICY, times=(3, 12), features=(whole_period(12),), split=(1, 1, 10**6))
        pulled = Session(mechanism).push_batch(rows).final.values
    assert plain == 0
    assert pulled.sum() == pytest.approx(360, rel=0.01)
    assert pulled.min() >= 0


def test_printed_weights_are_one_over_the_size_of_a_feature():
    """Algorithm 4's weights: each feature weighs one over its number of parts."""
    mechanism = OptStream(POLICY, samples=3, features=(equal_parts(12, 3), whole_period(12)), weights="size")
    _, variances, precisions = mechanism.weights_at((4, 8, 12), 12)
    assert variances.tolist() == [12.0] * 12
    assert precisions.tolist() == [1 / 3] * 3 + [1.0]


# ends and beginnings -------------------------------------------------------------------------------------------


def test_an_incomplete_period_is_kept_until_it_is_complete_or_ended():
    """The end of the stream costs nothing, and releases what is there."""
    log = MemoryLog()
    session = Session(OptStream(POLICY, samples=4, features=(equal_parts(12, 3), whole_period(12))), log)
    assert len(session.push_batch(wave(17)).revised) == 12
    ended = session.finish().revised
    assert (ended.first_step, len(ended), ended[0].delay) == (13, 5, 4)
    assert verify(log.rows()).ok


def test_an_end_without_any_sample_shows_the_sample_before():
    """Nothing measured yet in this period: the last sample holds; in the first period there is nothing."""
    mechanism = OptStream(tg.WEvent(epsilon="1", window=6), samples=1)
    with zero_noise():
        session = Session(mechanism)
        session.push_batch([0, 0, 0, 0, 0, 7, 1, 2])
        assert session.finish().revised.values[:, 0].tolist() == [7, 7]
        fresh = Session(mechanism)
        fresh.push_batch([5, 5])
        assert fresh.finish().revised.values[:, 0].tolist() == [0, 0]


# choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [(), (equal_parts(12, 3), whole_period(12))])
def test_the_predicted_error_is_the_measured_one(features):
    """On a stream like its profile the mean absolute error is predicted within 10 % (n = 60,000 steps)."""
    mechanism = OptStream(
        tg.WEvent(epsilon="0.2", window=12), samples=4, features=features, nonnegative=False
    )
    rows = wave(60_000)
    measured = np.abs(Session(mechanism).push_batch(rows).final.values - rows).mean()
    assert measured == pytest.approx(mechanism.predicted_error(wave(12)), rel=0.1)


def test_more_budget_means_more_samples():
    """The choice weighs noise against interpolation, from a profile and from a slope."""
    profile = wave(48, 48, level=5000)
    policies = [tg.WEvent(epsilon=epsilon, window=48) for epsilon in ("0.001", "0.1", "10")]
    for choose in (lambda p: OptStream.from_profile(p, profile), lambda p: OptStream.from_slope(p, 300)):
        numbers = [choose(policy).samples for policy in policies]
        assert numbers == sorted(numbers)
        assert numbers[0] < 4
        assert numbers[-1] > 20


def test_features_are_chosen_only_where_they_pay():
    """A spike that samples miss is worth a sum; a smooth day is not."""
    spiky = np.zeros(12)
    spiky[[1, 3, 5, 7, 9]] = 10_000
    policy = tg.WEvent(epsilon="0.02", window=12)
    candidates = [(), (whole_period(12),)]
    assert OptStream.from_profile(policy, wave(24), candidates=candidates).features == ()
    best = Prediction(OptStream.from_profile(policy, spiky, candidates=candidates)).error(spiky)
    assert best <= Prediction(OptStream.from_profile(policy, spiky)).error(spiky)


def test_nothing_is_predicted_where_samples_depend_on_data():
    """Adaptive samples have no predicted error: it is refused and not made up."""
    adaptive = OptStream(POLICY, samples=4, adaptive=True)
    for predict in (
        lambda: adaptive.predicted_error(wave(12)),
        lambda: OptStream.from_slope(POLICY, 3, adaptive=True),
        lambda: OptStream.from_profile(POLICY, wave(12), adaptive=True),
    ):
        with pytest.raises(InvalidParameter):
            predict()


# bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 13}, {"samples": 0}, {"samples": 1, "adaptive": True}, {"samples": 2.5}, {"times": (3, 6)},
        {"times": (12,), "samples": 2}, {"times": (12,), "adaptive": True}, {"features": [[[1, 2]]]},
        {"features": [[[*range(1, 13)]], [[*range(1, 7)], [*range(7, 14)]]]}, {"split": (1, 0, 1)}, {"split": (1, 1)},
        {"split": (1, -1, 1)}, {"features": [[[*range(1, 13)]]], "split": (1, 1, 0)},
        {"samples": 4, "adaptive": True, "split": (0, 1, 1)}, {"reconstruction": "spline"}, {"weights": "equal"},
        {"causal": "guess"}, {"threshold": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_parameters_are_one_sentence(options):
    """Everything outside its range is refused by the constructor."""
    with pytest.raises(InvalidParameter) as refused:
        OptStream(POLICY, **options)
    assert len(str(refused.value).splitlines()) == 1


def test_gaps_are_refused_and_nothing_is_charged():
    """A null inside a period is never taken for a zero: it is refused, and the session waits for a value."""
    session = Session(OptStream(POLICY, samples=4))
    session.push_batch(wave(5))
    with pytest.raises(InvalidInput, match="gaps"):
        session.push_batch([[3.0], [float("nan")]])
    assert session.step == 5
    assert session.push(3).step == 6


def test_noise_beyond_the_grid_is_refused():
    """A budget so small that noise leaves 64 bits is refused with a remedy."""
    with pytest.raises(InvalidParameter, match="coarser grid"):
        OptStream(tg.WEvent(epsilon="1e-16", window=12), samples=4)


# accuracy ------------------------------------------------------------------------------------------------------


def test_half_of_the_laplace_error_on_every_region(shared_data):
    """ε = 0.1, w = 48, Δ = 1: samples chosen on January, error over February to December at most half of Laplace's."""
    table = pl.read_parquet(shared_data("rte_load_2016_30min.parquet"))
    january, rest = (
        table.filter(pl.col("ts_local").dt.month() == 1),
        table.filter(pl.col("ts_local").dt.month() > 1),
    )
    policy = tg.WEvent(epsilon="0.1", window=48)
    for region in table.columns[1:5]:
        public = january[region].to_numpy()[: 31 * 48]
        stream = rest[region].to_numpy().astype(np.int64)[: 330 * 48, None]
        mechanism = OptStream.from_profile(policy, public)
        error = np.abs(Session(mechanism).push_batch(stream).final.values - stream).mean()
        laplace = np.abs(np.maximum(Session(Uniform(policy)).push_batch(stream).values, 0) - stream).mean()
        assert error <= laplace / 2
