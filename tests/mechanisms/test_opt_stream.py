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
from tidegate.errors import BudgetExceeded, InvalidInput, InvalidParameter, LedgerMismatch
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import OptStream, Uniform
from tidegate.mechanisms.optstream.choose_samples import Prediction
from tidegate.mechanisms.optstream.feature_trees import equal_parts, parts_of_day, whole_period
from tidegate.releases import Status
from tidegate.testing.entropy import CountingEntropy, fixed_entropy, install, zero_noise

DAY = (parts_of_day(48), whole_period(48))
POLICY = tg.WEvent(epsilon="1", w=12)
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
        OptStream(tg.WEvent(epsilon="1", w=5), samples=2, noise="laplace"),
        OptStream(
            tg.WEvent(epsilon="2", w=5),
            times=(1, 2, 5),
            features=(equal_parts(5, 2), whole_period(5)),
            noise="laplace",
        ),
        OptStream(
            tg.WEvent(epsilon="1/3", w=6),
            samples=6,
            features=(whole_period(6),),
            split=(1, 1, 3),
            noise="laplace",
        ),
        OptStream(
            tg.WEvent(epsilon="1", w=6),
            samples=2,
            features=(equal_parts(6, 2), ODD_AND_EVEN),
            noise="laplace",
        ),
        OptStream(tg.WEvent(epsilon="1", w=5), samples=2),
        OptStream(tg.WEvent(epsilon="1", w=6), times=(1, 2, 3, 6), features=(whole_period(6),)),
        OptStream(tg.WEvent(epsilon="1", w=6), samples=4, noise="cube"),
        OptStream(
            tg.WEvent(epsilon="1", w=6), times=(1, 2, 4, 5, 6), noise="cube", features=(whole_period(6),)
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
    mechanism = OptStream(tg.WEvent(epsilon="1", w=6), samples=5, noise=noise)
    fewer = OptStream(tg.WEvent(epsilon="1", w=6), samples=3, noise=noise)
    vars(mechanism).update(sharing=fewer.sharing, sample_scale=fewer.sample_scale)
    assert worst_loss(mechanism, mechanism.sample_times) > 1


def test_the_enumeration_catches_the_printed_features():
    """The planted wrong version: printed noise of features loses what its guarantee says."""
    mechanism = OptStream(
        tg.WEvent(epsilon="1", w=5),
        samples=2,
        features=(equal_parts(5, 2), whole_period(5)),
        calibration="paper",
    )
    lost = worst_loss(mechanism, mechanism.sample_times)
    assert float(lost) == pytest.approx(float(mechanism.guarantee.loss))
    assert lost > 2


def test_the_printed_loss_at_the_papers_parameters():
    """16.7 ε at w = 48 with three features, as the review of the proofs found; the ledger says so, too."""
    mechanism = OptStream(
        tg.WEvent(epsilon="1", w=48),
        samples=10,
        adaptive=False,
        features=DAY,
        split=(1, 1, 2),
        calibration="paper",
    )
    thirds = OptStream(
        tg.WEvent(epsilon="1", w=48), samples=10, adaptive=True, features=DAY, calibration="paper"
    )
    assert float(thirds.guarantee.loss) == pytest.approx(16.6, abs=0.1)
    assert "does NOT keep its promise" in str(mechanism.guarantee)
    run = mechanism.start()
    run.push_batch(wave(96, 48))
    assert not run.ledger.verify().ok
    with pytest.raises(LedgerMismatch):
        mechanism.start(ledger=MemoryLedger(mechanism.policy, mechanism.units))


@settings(max_examples=40)
@given(st.integers(2, 14), st.data())
def test_adaptive_charges_never_overfill_a_window(w, data):
    """Whatever is chosen, the ledger accepts every charge, and what is charged covers what is measured."""
    k = data.draw(st.integers(2, w))
    features = data.draw(st.sampled_from([(), (whole_period(w),)]))
    mechanism = OptStream(
        tg.WEvent(epsilon="40", w=w), samples=k, adaptive=True, features=features, threshold=20
    )
    run = mechanism.start()
    rows = np.array(data.draw(st.lists(st.integers(0, 60), min_size=4 * w, max_size=4 * w)))
    releases = run.push_batch(rows)
    assert releases.fresh.reshape(4, w).sum(axis=1).tolist() == [k] * 4
    assert run.ledger.verify().ok
    tests, sample, step = mechanism.shares
    most = max(releases.fresh[first : first + w].sum() for first in range(3 * w))
    assert 2 * tests + most * sample + w * step <= 1
    assert 2 * tests + min(2 * k - 2, w) * sample + w * step == 1


def test_scales_are_those_of_the_review():
    """b_P = kΔ/ε_P, b_F = w(p − 1)Δ/ε_O; adaptive: the straddling window pays twice for the tests."""
    policy = tg.WEvent(epsilon="1", w=48, max_change=10)
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
    replaced = tg.WEvent(epsilon="1", w=12, adjacency="replace")
    assert OptStream(POLICY, columns=5, samples=3, noise="laplace").sample_scale == 3.0
    assert OptStream(replaced, columns=5, samples=3, noise="laplace").sample_scale == 6.0
    assert OptStream(POLICY, columns=5, samples=3, noise="semiorder").sample_scale == 1.0
    assert OptStream(replaced, columns=5, samples=3, noise="semiorder").sample_scale == 2.0


# two answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", OptStream.examples(), ids=range(len(OptStream.examples())))
def test_revised_values_do_not_depend_on_how_steps_are_pushed(mechanism):
    """One batch, single pushes and restored runs revise the same steps with the same values."""
    w = mechanism.window
    rows = wave(5 * w + w // 2, w, mechanism.columns, 50)
    with fixed_entropy(3):
        whole = mechanism.start().push_batch(rows).revised
        run, revised = mechanism.start(), []
        for number, row in enumerate(rows):
            if number == 2 * w + 1:
                run = mechanism.start(ledger=run.ledger, state=run.snapshot())
            release = run.push(row)
            assert (release.revised is not None) == ((number + 1) % w == 0)
            revised += [] if release.revised is None else list(release.revised)
        run = mechanism.start()
        pieces = [piece for cut in (rows[: w + 1], rows[w + 1 : 3 * w], rows[3 * w :])
                  if (piece := run.push_batch(cut).revised) is not None]  # fmt: skip
    assert whole.first_step == 1
    assert len(whole) == 5 * w == len(revised) == sum(map(len, pieces))
    assert np.array_equal(whole.values, np.array([release.values for release in revised]))
    assert np.array_equal(whole.values, np.concatenate([piece.values for piece in pieces]))
    assert [release.delay for release in revised] == [w - 1 - step % w for step in range(5 * w)]
    assert [release.delay for release in whole] == [release.delay for release in revised]
    for name in ("status", "source", "units"):
        assert getattr(whole, name).tolist() == [int(getattr(release, name)) for release in revised]


def test_revisions_can_be_taken_by_a_loop():
    """Whoever asks for them once gets the revised values of all pushes since; runs of others keep none."""
    run, silent = OptStream(POLICY, samples=4).start(), OptStream(POLICY, samples=4).start()
    assert callable(run.take_revisions)
    assert run._untaken is None  # looking at the method keeps nothing
    assert run.take_revisions() == []
    for row in wave(30):
        run.push(row)
        silent.push(row)
    taken = run.take_revisions()
    assert [release.step for release in taken] == list(range(1, 25))
    assert [release.delay for release in taken[:2]] == [11, 10]
    assert run.take_revisions() == []
    assert silent._untaken is None


def test_revised_values_are_lines_through_the_samples():
    """Without noise the final curve passes through the samples and is straight in between."""
    rows = np.array([0, 9, 9, 4, 9, 9, 9, 8])
    with zero_noise():
        releases = OptStream(tg.WEvent(epsilon="1", w=8), samples=2).start().push_batch(rows)
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
        run = OptStream(tg.WEvent(epsilon="1", w=6), times=(1, 3, 6), causal=causal).start()
        shown = run.push_batch([4, 0, 8, 0, 0, 12]).values[:, 0]
        assert shown.tolist() == expected
        if causal == "last period":
            moved = run.push_batch([14, 0, 18, 0, 0, 22]).values[:, 0]
            assert moved == pytest.approx([14, 16, 18, 18 + 4 / 3, 18 + 8 / 3, 22])


def test_features_pull_the_curve_towards_their_sums():
    """Where lines miss a peak, measured sums restore the total."""
    rows = np.zeros(12, dtype=np.int64)
    rows[4:7] = 120
    with zero_noise():
        plain = OptStream(POLICY, times=(3, 12)).start().push_batch(rows).final.values.sum()
        mechanism = OptStream(POLICY, times=(3, 12), features=(whole_period(12),), split=(1, 1, 10**6))
        pulled = mechanism.start().push_batch(rows).final.values
    assert plain == 0
    assert pulled.sum() == pytest.approx(360, rel=0.01)
    assert pulled.min() >= 0


def test_printed_weights_are_one_over_the_size_of_a_feature():
    """Algorithm 4's weights: each feature weighs one over its number of parts."""
    run = OptStream(
        POLICY, samples=3, features=(equal_parts(12, 3), whole_period(12)), weights="size"
    ).start()
    _, variances, precisions = run._reconstruction((4, 8, 12), 12)
    assert variances.tolist() == [12.0] * 12
    assert precisions.tolist() == [1 / 3] * 3 + [1.0]


# ends and beginnings -------------------------------------------------------------------------------------------


def test_an_incomplete_period_is_kept_until_it_is_complete_or_flushed():
    """Flushing costs nothing, releases what is there, and ends the run."""
    run = OptStream(POLICY, samples=4, features=(equal_parts(12, 3), whole_period(12))).start()
    releases = run.push_batch(wave(17))
    spent = run.ledger.spent()
    assert len(releases.revised) == 12
    flushed = run.flush()
    assert (flushed.first_step, len(flushed), flushed[0].delay) == (13, 5, 4)
    assert run.ledger.spent() <= spent
    assert run.flush() is None
    with pytest.raises(InvalidInput, match="flushed"):
        run.push(5)


def test_an_earlier_snapshot_cannot_go_on_after_a_flush(tmp_path):
    """The same sums would be released twice: the ledger on disk has moved on."""
    mechanism, path = OptStream(POLICY, samples=4, features=(whole_period(12),)), tmp_path / "ledger"
    run = mechanism.start(ledger=path)
    run.push_batch(wave(5))
    state = run.snapshot()
    run.flush()
    with pytest.raises(LedgerMismatch):
        mechanism.start(ledger=run.ledger, state=state)
    run.ledger.close()
    again = mechanism.start(ledger=path)
    assert again.step == 12
    assert len(again.push_batch(wave(12)).revised) == 12


def test_a_flush_without_any_sample_shows_the_sample_before():
    """Nothing measured yet in this period: the last sample holds; in the first period there is nothing."""
    mechanism = OptStream(tg.WEvent(epsilon="1", w=6), samples=1)
    with zero_noise():
        run = mechanism.start()
        run.push_batch([0, 0, 0, 0, 0, 7, 1, 2])
        assert run.flush().values[:, 0].tolist() == [7, 7]
        fresh = mechanism.start()
        fresh.push_batch([5, 5])
        assert fresh.flush().values[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_run_that_begins_within_a_period_revises_from_the_next_one_on(adaptive, tmp_path):
    """A ledger without the run's snapshot: samples go on, sums and revised values wait for a whole period."""
    mechanism = OptStream(POLICY, samples=4, adaptive=adaptive, features=(whole_period(12),))
    run = mechanism.start(ledger=tmp_path / "ledger")
    run.push_batch(wave(17))
    run.ledger.close()
    again = mechanism.start(ledger=tmp_path / "ledger")
    assert again.step == 17
    assert again.push_batch(wave(7)).revised is None
    revised = again.push_batch(wave(24)).revised
    assert (revised.first_step, len(revised)) == (25, 24)
    assert again.ledger.verify().ok


def test_a_torn_period_keeps_no_raw_sum(tmp_path):
    """Sums without noise would be raw: a run that begins within a period does not sum."""
    mechanism = OptStream(POLICY, samples=4, features=(whole_period(12),))
    run = mechanism.start(ledger=tmp_path / "ledger")
    run.push(5)
    run.ledger.close()
    again = mechanism.start(ledger=tmp_path / "ledger")
    again.push_batch(wave(4))
    assert not again._memory["sums"].any()


@settings(max_examples=40)
@given(st.integers(2, 12), st.data())
def test_times_may_change_between_periods(w, data):
    """The ledger accepts every change of public times, and pushes and batches agree about it."""
    k = data.draw(st.integers(1, w))

    def times():
        return (*sorted(data.draw(st.permutations(range(1, w)))[: k - 1]), w)

    mechanism, new, at = (
        OptStream(tg.WEvent(epsilon="1", w=w), times=times()),
        times(),
        data.draw(st.integers(0, 2 * w)),
    )
    rows = wave(5 * w, w)
    with fixed_entropy(1):
        one, two = mechanism.start(), mechanism.start()
        one.push_batch(rows[:at])
        one.change_times(new)
        batch = one.push_batch(rows[at:])
        for row in rows[:at]:
            two.push(row)
        two.change_times(new)
        single = [two.push(row) for row in rows[at:]]
    assert np.array_equal(batch.values, np.array([release.values for release in single]))
    assert batch.units.tolist() == [release.units for release in single]
    assert np.flatnonzero(batch.fresh[-w:]).tolist() == [time - 1 for time in new]
    assert one.ledger.verify().ok


def test_a_refused_batch_leaves_the_run_as_it_was():
    """A ledger that cannot pay refuses before noise is drawn; the run goes on afterwards."""
    mechanism = OptStream(POLICY, samples=4)
    ledger = MemoryLedger(POLICY, mechanism.units)
    run = mechanism.start(ledger=ledger)
    run.push_batch(wave(2))
    ledger.charge(3, 1)
    before = run.snapshot()
    with pytest.raises(BudgetExceeded):
        run.push_batch(wave(30))
    assert run.snapshot() == before


def refusals(mechanism, rows, stranger, *, whole=False):
    """At which step a run is refused when somebody else empties its ledger after a step; and the ledger then."""
    ledger = MemoryLedger(mechanism.policy, mechanism.units)
    run = mechanism.start(ledger=ledger)
    pieces = [rows[:stranger], rows[stranger:]] if whole else rows[:, None]
    for piece in pieces:
        try:
            run.push_batch(piece)
        except BudgetExceeded as error:
            return error.step, ledger.snapshot()
        if run.step == stranger:
            ledger.charge(stranger, int(ledger.remaining(stranger) / ledger.unit))
    return None, ledger.snapshot()


@settings(max_examples=30)
@given(st.integers(3, 12), st.data())
def test_refusals_do_not_depend_on_data(w, data):
    """Adaptive samples on a ledger that others empty: charges and refusals are the same for any two streams."""
    k = data.draw(st.integers(2, w))
    features = data.draw(st.sampled_from([(), (whole_period(w),)]))
    mechanism = OptStream(
        tg.WEvent(epsilon="90", w=w), samples=k, adaptive=True, features=features, threshold=20
    )
    steps, stranger = 3 * w, data.draw(st.integers(1, 3 * w))
    streams = [
        np.array(data.draw(st.lists(st.integers(0, 99), min_size=steps, max_size=steps))),
        np.zeros(steps, dtype=np.int64),
    ]
    for whole in (False, True):
        (one, first), (two, second) = (refusals(mechanism, rows, stranger, whole=whole) for rows in streams)
        assert one == two
        assert all(np.array_equal(first[name], second[name]) for name in first if name != "identity")


def test_a_period_is_paid_before_its_data_are_looked_at():
    """A ledger that cannot pay for the adaptive samples of a period refuses its first step and draws nothing."""
    mechanism = OptStream(POLICY, samples=4, adaptive=True)
    ledger = MemoryLedger(POLICY, mechanism.units)
    counting = CountingEntropy()
    with install(counting):
        run = mechanism.start(ledger=ledger)
    ledger.charge(1, mechanism.units - mechanism.charges(())[0] + 1)  # a unit too few is left
    with pytest.raises(BudgetExceeded):
        run.push(5)
    with pytest.raises(BudgetExceeded):
        run.push_batch(wave(12))
    assert (counting.words_drawn, run.step) == (0, 0)


# choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [(), (equal_parts(12, 3), whole_period(12))])
def test_the_predicted_error_is_the_measured_one(features):
    """On a stream like its profile the mean absolute error is predicted within 10 % (n = 60,000 steps)."""
    mechanism = OptStream(tg.WEvent(epsilon="0.2", w=12), samples=4, features=features, nonnegative=False)
    rows = wave(60_000)
    measured = np.abs(mechanism.start().push_batch(rows).final.values - rows).mean()
    assert measured == pytest.approx(mechanism.predicted_error(wave(12)), rel=0.1)


def test_more_budget_means_more_samples():
    """The choice weighs noise against interpolation, from a profile and from a slope."""
    profile = wave(48, 48, level=5000)
    policies = [tg.WEvent(epsilon=epsilon, w=48) for epsilon in ("0.001", "0.1", "10")]
    for choose in (lambda p: OptStream.from_profile(p, profile), lambda p: OptStream.from_slope(p, 300)):
        numbers = [choose(policy).samples for policy in policies]
        assert numbers == sorted(numbers)
        assert numbers[0] < 4
        assert numbers[-1] > 20


def test_features_are_chosen_only_where_they_pay():
    """A spike that samples miss is worth a sum; a smooth day is not."""
    spiky = np.zeros(12)
    spiky[[1, 3, 5, 7, 9]] = 10_000
    policy = tg.WEvent(epsilon="0.02", w=12)
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
        {"causal": "guess"}, {"calibration": "loose"}, {"threshold": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_parameters_are_one_sentence(options):
    """Everything outside its range is refused by the constructor."""
    with pytest.raises(InvalidParameter) as refused:
        OptStream(POLICY, **options)
    assert len(str(refused.value).splitlines()) == 1


def test_gaps_are_refused_and_nothing_is_charged():
    """A null inside a period is never taken for a zero: it is refused, and the run waits for a value."""
    run = OptStream(POLICY, samples=4).start()
    run.push_batch(wave(5))
    with pytest.raises(InvalidInput, match="gaps"):
        run.push_batch([[3.0], [float("nan")]])
    assert run.step == 5
    assert run.push(3).step == 6


def test_times_cannot_be_changed_to_something_else():
    """As many times as before, public ones."""
    run = OptStream(POLICY, samples=4).start()
    for times in ((6, 12), (3, 6, 9, 11)):
        with pytest.raises(InvalidParameter):
            run.change_times(times)
    with pytest.raises(InvalidParameter):
        OptStream(POLICY, samples=4, adaptive=True).start().change_times((3, 6, 9, 12))


def test_noise_beyond_the_grid_is_refused():
    """A budget so small that noise leaves 64 bits is refused with a remedy."""
    with pytest.raises(InvalidParameter, match="coarser grid"):
        OptStream(tg.WEvent(epsilon="1e-16", w=12), samples=4)


# accuracy ------------------------------------------------------------------------------------------------------


def test_half_of_the_laplace_error_on_every_region(shared_data):
    """ε = 0.1, w = 48, Δ = 1: samples chosen on January, error over February to December at most half of Laplace's."""
    table = pl.read_parquet(shared_data("rte_load_2016_30min.parquet"))
    january, rest = (
        table.filter(pl.col("ts_local").dt.month() == 1),
        table.filter(pl.col("ts_local").dt.month() > 1),
    )
    policy = tg.WEvent(epsilon="0.1", w=48)
    for region in table.columns[1:5]:
        public = january[region].to_numpy()[: 31 * 48]
        stream = rest[region].to_numpy().astype(np.int64)[: 330 * 48, None]
        mechanism = OptStream.from_profile(policy, public)
        error = np.abs(mechanism.start().push_batch(stream).final.values - stream).mean()
        laplace = np.abs(np.maximum(Uniform(policy).start().push_batch(stream).values, 0) - stream).mean()
        assert error <= laplace / 2
