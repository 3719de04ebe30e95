"""OptStream's samples share noise: which law, and the gain. What windows have of it stands in test_opt_stream.py."""

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import HierarchicalOptStream, OptStream
from tidegate.mechanisms.optstream.feature_trees import whole_period
from tidegate.queries import Hierarchy
from tidegate.testing.entropy import fixed_entropy

POLICY = tg.WEvent(epsilon="1", window=12)
PUBLIC = [
    OptStream(POLICY, samples=4),
    OptStream(POLICY, samples=8, noise="cube"),
    OptStream(POLICY, samples=4, features=(whole_period(12),)),
    OptStream(POLICY, times=(1, 2, 3, 11, 12), noise="cube", features=(whole_period(12),)),
    OptStream(POLICY, columns=2, samples=6),
]
ADAPTIVE = OptStream(POLICY, samples=6, adaptive=True)


def zeros(mechanism, steps):
    """A stream of nothing: releases are noise."""
    return np.zeros((steps, mechanism.columns), dtype=np.int64)


# which law -----------------------------------------------------------------------------------------------------


def test_laplace_noise_is_noise_of_its_own():
    """Units without groups, and no secret."""
    plain, shared = OptStream(POLICY, samples=4, noise="laplace"), OptStream(POLICY, samples=4)
    assert (plain.units, plain.shares_noise, shared.shares_noise) == (4, False, True)
    assert OptStream(POLICY, samples=4, adaptive=True, noise="laplace").units == 14


def test_which_configurations_share():
    """The best sound law by public parameters: none in hierarchies, or where nothing is gained."""
    assert PUBLIC[0].sharing.describe() == ["semiorder", 1, [[4, 1]], 1]
    assert OptStream(tg.WEvent(epsilon="1", window=240), samples=120).sharing.choice.law == "cube"
    assert ADAPTIVE.sharing.describe() == ["cube", 2, [[6, 1]], 1]
    assert OptStream(POLICY, samples=1).sharing is None
    assert OptStream(POLICY, samples=2, adaptive=True).sharing is None
    assert OptStream(POLICY, samples=4, columns=100).sharing is None
    assert HierarchicalOptStream(POLICY, hierarchy=Hierarchy.balanced(2), samples=4).sharing is None
    fixed = OptStream(tg.WEvent(epsilon="1", window=12, mobility="fixed"), samples=4, columns=100)
    assert fixed.sharing.copies == 100
    with pytest.raises(InvalidParameter):
        OptStream(POLICY, samples=4, adaptive=True, noise="semiorder")


@pytest.mark.parametrize("mechanism", [*PUBLIC, ADAPTIVE], ids=range(len(PUBLIC) + 1))
def test_the_state_is_declared_secret(mechanism):
    """The guarantee says what it takes for granted; the budget is divided without rest."""
    assert "secret" in str(mechanism.guarantee)
    sharing, (tests, _, step) = mechanism.sharing, mechanism.shares
    met = 2 if mechanism.adaptive else 1
    assert met * tests + sharing.group_part * sharing.units + mechanism.window * step == 1
    assert (sharing.group_part * mechanism.units).denominator == 1


# adaptive times ------------------------------------------------------------------------------------------------


def test_a_period_with_adaptive_times_is_one_group():
    """All samples of a period lie within one radius, which the next period does not have."""
    ratios, log = [], MemoryLog()
    with fixed_entropy(5):
        session = Session(ADAPTIVE, log)
        for _ in range(300):
            releases = session.push_batch(zeros(ADAPTIVE, 12))
            assert releases.fresh.sum() == 6
            ratios.append(np.abs(releases.values[releases.fresh]).max())
    assert len(set(ratios)) > 50
    assert verify(log.rows()).ok


# how much it gains ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "most"),
    [({"samples": 8}, 0.70), ({"samples": 16}, 0.64), ({"samples": 8, "adaptive": True}, 0.65)],
    ids=["public, 8", "public, 16", "adaptive, 8"],
)
def test_mean_absolute_noise_against_laplace(options, most):
    """n = 16,000 samples and more: standard errors of 1 %, and α below 1e-6 at five of them."""
    policy = tg.WEvent(epsilon="1", window=48)
    shared, plain = OptStream(policy, **options), OptStream(policy, **options, noise="laplace")
    releases = Session(shared).push_batch(zeros(shared, 48 * 2000))
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
    releases = Session(mechanism).push_batch(rows)
    for shown in (releases, releases.revised):
        low, high = shown.interval(0.9)
        covered = (low <= 700) & (high >= 700)
        assert covered[1000:].mean() > 0.88
