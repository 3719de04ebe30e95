"""OptStream's samples share noise: which law, what windows have of it, silence, changes of times, and the gain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import BudgetExceeded, InvalidParameter, LedgerMismatch
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import HierarchicalOptStream, OptStream
from tidegate.mechanisms.optstream.feature_trees import whole_period
from tidegate.queries import Hierarchy
from tidegate.testing.entropy import fixed_entropy

POLICY = tg.WEvent(epsilon="1", w=12)
PUBLIC = [
    OptStream(POLICY, samples=4),
    OptStream(POLICY, samples=8, noise="cube"),
    OptStream(POLICY, samples=4, features=(whole_period(12),)),
    OptStream(POLICY, times=(1, 2, 3, 11, 12), noise="cube", features=(whole_period(12),)),
    OptStream(POLICY, columns=2, samples=6),
]
ADAPTIVE = OptStream(POLICY, samples=6, adaptive=True)
each_public = pytest.mark.parametrize("mechanism", PUBLIC, ids=range(len(PUBLIC)))


def zeros(mechanism, steps):
    """A stream of nothing: releases are noise."""
    return np.zeros((steps, mechanism.columns), dtype=np.int64)


# which law -----------------------------------------------------------------------------------------------------


def test_laplace_noise_is_what_it_was():
    """Fingerprint and units of streams that were begun before; the default goes on with their snapshots."""
    plain, now = OptStream(POLICY, samples=4, noise="laplace"), OptStream(POLICY, samples=4)
    assert (plain.fingerprint, plain.units) == ("f511f9090564a9e86d15f9744c296707", 4)
    adaptive = OptStream(POLICY, samples=4, adaptive=True, noise="laplace")
    assert (adaptive.fingerprint, adaptive.units) == ("efc3f452cad77b7098bf204ca11b9514", 14)
    assert now.shares_noise
    run = plain.start()
    run.push_batch(zeros(plain, 5))
    on = now.start(state=run.snapshot())
    assert on.mechanism == plain
    assert len(on.push_batch(zeros(plain, 19)).revised) == 24


def test_which_configurations_share():
    """The best sound law by public parameters: none as printed, in hierarchies, or where nothing is gained."""
    assert PUBLIC[0].sharing.describe() == ["semiorder", 1, [[4, 1]], 1]
    assert OptStream(tg.WEvent(epsilon="1", w=240), samples=120).sharing.choice.law == "cube"
    assert ADAPTIVE.sharing.describe() == ["cube", 2, [[6, 1]], 1]
    assert OptStream(POLICY, samples=1).sharing is None
    assert OptStream(POLICY, samples=2, adaptive=True).sharing is None
    assert OptStream(POLICY, samples=4, calibration="paper").sharing is None
    assert OptStream(POLICY, samples=4, columns=100).sharing is None
    assert HierarchicalOptStream(POLICY, hierarchy=Hierarchy.balanced(2), samples=4).sharing is None
    fixed = OptStream(tg.WEvent(epsilon="1", w=12, mobility="fixed"), samples=4, columns=100)
    assert fixed.sharing.copies == 100
    for options in ({"adaptive": True, "noise": "semiorder"}, {"calibration": "paper", "noise": "cube"}):
        with pytest.raises(InvalidParameter):
            OptStream(POLICY, samples=4, **options)


@pytest.mark.parametrize("mechanism", [*PUBLIC, ADAPTIVE], ids=range(len(PUBLIC) + 1))
def test_the_state_is_declared_secret(mechanism):
    """The guarantee says what it takes for granted; the budget is divided without rest."""
    assert "secret" in str(mechanism.guarantee)
    sharing, (tests, _, step) = mechanism.sharing, mechanism.shares
    met = 2 if mechanism.adaptive else 1
    assert met * tests + sharing.group_part * sharing.units + mechanism.window * step == 1
    assert (sharing.group_part * mechanism.units).denominator == 1


# what windows have ---------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(2, 12), st.data())
def test_windows_have_at_most_k_samples_and_their_budget(w, data):
    """Times change, runs are broken off and begin again in every way: no window has too many samples or groups."""
    k = data.draw(st.integers(2, w))

    def times():
        return (*sorted(data.draw(st.permutations(range(1, w)))[: k - 1]), w)

    noise = data.draw(st.sampled_from(["semiorder", "cube"] if k > 2 else ["semiorder"]))
    features = data.draw(st.sampled_from([(), (whole_period(w),)]))
    mechanism = OptStream(tg.WEvent(epsilon="1", w=w), times=times(), features=features, noise=noise)
    ledger = MemoryLedger(mechanism.policy, mechanism.units)
    run, fresh = mechanism.start(ledger=ledger), []
    for _ in range(data.draw(st.integers(1, 6))):
        what = data.draw(st.sampled_from(["push", "times", "lost", "restored", "flush"]))
        if what == "times":
            run.change_times(times())
        elif what == "flush":
            run.flush()
            run = mechanism.start(ledger=ledger)
        elif what == "lost":
            run = mechanism.start(ledger=ledger)
        elif what == "restored":
            run = mechanism.start(ledger=ledger, state=run.snapshot())
        steps = data.draw(st.integers(1, 3 * w))
        before = run.step
        if data.draw(st.booleans()):
            fresh += [before + 1 + at for at in np.flatnonzero(run.push_batch(np.zeros(steps)).fresh)]
        else:
            fresh += [r.step for r in (run.push(0) for _ in range(steps)) if r.fresh]
    assert ledger.verify().ok
    assert max((sum(first <= at < first + w for at in fresh) for first in fresh), default=0) <= k


@each_public
def test_a_dropped_state_is_silent_until_its_windows_have_passed(mechanism):
    """A snapshot in memory could be restored twice: no sample for a window, then groups of its own."""
    w = mechanism.window
    run = mechanism.start()
    run.push_batch(zeros(mechanism, w - 4))
    assert run.holds_noise
    last = max(time for time in mechanism.sample_times if time <= w - 4)
    restored = mechanism.start(state=run.snapshot())
    assert not restored.holds_noise
    releases = restored.push_batch(zeros(mechanism, 4 * w))
    steps = releases.first_step + np.flatnonzero(releases.fresh)
    assert last + w <= steps[0] < last + 2 * w
    usual = [at for at in range(int(steps[0]), 5 * w - 3) if (at - 1) % w + 1 in mechanism.sample_times]
    assert steps.tolist() == usual
    assert releases.revised.first_step == 1
    assert len(releases.revised) == 4 * w
    assert restored.ledger.verify().ok


@each_public
def test_begun_again_without_a_snapshot_samples_wait_for_the_budget(mechanism):
    """Sums go on at the next period, samples as soon as the ledger has room; nothing is refused."""
    w = mechanism.window
    run = mechanism.start()
    run.push_batch(zeros(mechanism, w + 5))
    again = mechanism.start(ledger=run.ledger)
    single = [again.push(row) for row in zeros(mechanism, w)]
    steps = [release.step for release in single if release.fresh]
    assert steps
    last = w + max(time for time in mechanism.sample_times if time <= 5)
    assert mechanism.sharing.choice.law == "cube" or min(steps) >= last + w
    later = again.push_batch(zeros(mechanism, 2 * w + 7))
    assert later.revised.first_step == 2 * w + 1
    assert later.fresh[-w:].sum() == mechanism.sample_count
    assert again.ledger.verify().ok


def test_a_planted_run_that_does_not_wait_is_refused():
    """The wrong version: a new group at once would be one too many for a window, and the ledger says so."""
    run = PUBLIC[0].start()
    run.push_batch(zeros(PUBLIC[0], 17))
    again = PUBLIC[0].start(ledger=run.ledger)
    again._noise.patient_until = 0
    with pytest.raises(BudgetExceeded):
        again.push_batch(zeros(PUBLIC[0], 12))


def test_others_on_the_ledger_are_not_overdrawn():
    """Where somebody else takes the budget of a later window, a run is refused and stands where it stood."""
    mechanism = PUBLIC[0]
    ledger = MemoryLedger(POLICY, mechanism.units)
    run = mechanism.start(ledger=ledger)
    run.push_batch(zeros(mechanism, 2))
    ledger.charge(2, int(ledger.remaining(2) / ledger.unit))
    with pytest.raises(BudgetExceeded):
        run.push_batch(zeros(mechanism, 30))
    assert run.step == 2
    assert not run.holds_noise


# adaptive times ------------------------------------------------------------------------------------------------


def test_a_period_with_adaptive_times_is_one_group():
    """All samples of a period lie within one radius, which the next period does not have."""
    ratios = []
    with fixed_entropy(5):
        run = ADAPTIVE.start()
        for _ in range(300):
            releases = run.push_batch(zeros(ADAPTIVE, 12))
            assert releases.fresh.sum() == 6
            assert not run.holds_noise
            ratios.append(np.abs(releases.values[releases.fresh]).max())
    assert len(set(ratios)) > 50
    assert run.ledger.verify().ok


def test_a_dropped_radius_ends_the_measuring_of_its_period():
    """Two runs from one snapshot would have one radius: neither goes on with it, and the period has no final values."""
    run = ADAPTIVE.start()
    run.push_batch(zeros(ADAPTIVE, 15))
    assert run.holds_noise
    state = run.snapshot()
    restored = ADAPTIVE.start(state=state)
    releases = restored.push_batch(zeros(ADAPTIVE, 33))
    assert not releases.fresh[:9].any()
    assert releases.units[:9].sum() == 0
    assert releases.fresh[9:].sum() == 12
    assert (releases.revised.first_step, len(releases.revised)) == (25, 24)
    assert restored.ledger.verify().ok
    on = ADAPTIVE.start(ledger=run.ledger, state=state)
    assert on.holds_noise
    with pytest.raises(LedgerMismatch):
        run.push(0)


# how much it gains ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "most"),
    [({"samples": 8}, 0.70), ({"samples": 16}, 0.64), ({"samples": 8, "adaptive": True}, 0.65)],
    ids=["public, 8", "public, 16", "adaptive, 8"],
)
def test_mean_absolute_noise_against_laplace(options, most):
    """n = 16,000 samples and more: standard errors of 1 %, and α below 1e-6 at five of them."""
    policy = tg.WEvent(epsilon="1", w=48)
    shared, plain = OptStream(policy, **options), OptStream(policy, **options, noise="laplace")
    releases = shared.start().push_batch(zeros(shared, 48 * 2000))
    noise = np.abs(releases.values[releases.fresh])
    assert noise.mean() / plain.sample_scale < most + 0.03
    assert noise.mean() == pytest.approx(shared.sharing.law.expected_absolute(), rel=0.06)
    assert releases.scale[-1] == pytest.approx(np.sqrt((noise**2).mean() / 2), rel=0.1)
    if not shared.adaptive:
        day = zeros(shared, 48)
        assert shared.predicted_error(day) < 0.8 * plain.predicted_error(day)


@pytest.mark.parametrize("mechanism", [PUBLIC[0], PUBLIC[1], ADAPTIVE], ids=["sliding", "groups", "adaptive"])
def test_intervals_hold(mechanism):
    """On a level that stays, 90 % intervals of first and final values hold nine times in ten, or more (n = 24,000)."""
    rows = np.full((24_000, 1), 700)
    releases = mechanism.start().push_batch(rows)
    for shown in (releases, releases.revised):
        low, high = shown.interval(0.9)
        covered = (low <= 700) & (high >= 700)
        assert covered[1000:].mean() > 0.88
