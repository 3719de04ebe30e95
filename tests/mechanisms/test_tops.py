"""ToPS: exact at the ends of groups, guessed between them; its threshold is private by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import BinaryTree, ToPS
from tidegate.mechanisms.clipping.tops import PLACES, best_score
from tidegate.releases import Status
from tidegate.testing.entropy import zero_noise

TRIPS = np.random.default_rng(1).gamma(2.2, 13.5, 3000).round().astype(np.int64)
POLICY = tg.Event(epsilon="1", max_change=1440)


def built(**options):
    """Five hundred steps to learn from, and 2,500 in groups of 16."""
    return ToPS(POLICY, **{"horizon": 3000, "lag": 500, "group": 16, **options})


@pytest.mark.parametrize("group", [1, 7, 16, 2500])
def test_ends_of_groups_are_exact_without_noise(group):
    """Measured sums are those of the clipped values; the last group may be short."""
    mechanism = built(group=group)
    with zero_noise():
        releases = Session(mechanism).push_batch(TRIPS)
    sums = np.cumsum(np.minimum(TRIPS[500:], releases.clip[-1]))
    measured = releases.fresh[500:]
    assert np.flatnonzero(measured).tolist() == sorted({*range(group - 1, 2500, group), 2499})
    assert releases.values[500:, 0][measured] == pytest.approx(sums[measured])
    assert not releases.values[:500].any()
    assert not releases.fresh[:500].any()


def test_within_a_group_the_sum_grows_by_the_average_of_sixteen():
    """Before the first group nothing is known; then there are fewer groups; then sixteen."""
    with zero_noise():
        releases = Session(built()).push_batch(TRIPS)
    later = releases.values[500:, 0]
    ends = np.concatenate([[0.0], later[15::16]])
    assert not later[:15].any()
    for group, position in ((1, 1), (3, 15), (20, 7), (150, 2)):
        back = min(group, 16)
        slope = (ends[group] - ends[group - back]) / (16 * back)
        assert later[16 * group + position - 1] == pytest.approx(ends[group] + position * slope)


def test_statuses_sources_and_scales():
    """Between measurements the source, and the scale, are those of the last one."""
    releases = Session(built()).push_batch(TRIPS[:560])
    assert [Status(each).name for each in releases.status[[499, 514, 515, 530]]] == [
        "APPROXIMATED",
        "APPROXIMATED",
        "FRESH",
        "APPROXIMATED",
    ]
    assert releases.source[[499, 514, 515, 530, 531]].tolist() == [0, 0, 516, 516, 532]
    assert releases.scale[514] == 0
    tree = built().counter(int(releases.clip[-1]))
    assert releases.scale[515] == pytest.approx(tree.standard_deviation(1))
    assert releases.scale[530] == releases.scale[515]
    assert releases.scale[531] == pytest.approx(tree.standard_deviation(2))


def test_parts_of_a_stream_are_released_as_a_whole():
    """However steps are pushed, the releases are the same."""
    with zero_noise():
        whole, session = Session(built()).push_batch(TRIPS), Session(built())
        parts = [session.push_batch(part) for part in np.split(TRIPS, [3, 499, 500, 501, 515, 516, 1203])]
    for name in ("values", "status", "source", "scale", "clip"):
        assert np.array_equal(
            np.concatenate([getattr(part, name) for part in parts]),
            getattr(whole, name),
            equal_nan=True,
        )


def test_the_default_group_follows_from_public_numbers():
    """Less budget, or more steps: longer groups; with a large ε none."""
    groups = [ToPS(tg.Event(epsilon=e, max_change=9), horizon=10**6).group for e in ("1/10", "1", "100")]
    assert groups == [4096, 256, 1]
    assert ToPS(POLICY, horizon=10**7).lag == 50_000
    assert ToPS(POLICY, horizon=10_000).lag == 1000


def test_the_error_is_less_than_that_of_a_binary_tree():
    """Ranges of trips, ends of groups or not: at most half of the error of a tree with the same clip."""
    values = np.resize(TRIPS, 40_000)
    mechanism = ToPS(tg.Event(epsilon="1", max_change=1440), horizon=40_000)
    releases = Session(mechanism).push_batch(values)
    clip = int(releases.clip[-1])
    clipped = np.minimum(values[mechanism.lag :], clip)
    tree = BinaryTree(tg.Event(epsilon="1", max_change=clip), horizon=len(clipped))
    sums = np.cumsum(clipped)
    errors = [
        releases.values[mechanism.lag :, 0] - sums,
        Session(tree).push_batch(clipped).values[:, 0] - sums,
    ]
    ours, theirs = (np.sqrt(np.mean((each[999:] - np.roll(each, 999)[999:]) ** 2)) for each in errors)
    assert ours < theirs / 2


# the paper's threshold --------------------------------------------------------------------------------------


def balanced(epsilon="2", per_doubling=1):
    """Values up to 8, four to learn from: candidates 1, 2, 4 and 8."""
    policy = tg.Event(epsilon=epsilon, max_change=8, adjacency="replace")
    return ToPS(
        policy,
        horizon=40,
        lag=4,
        above=1,
        group=4,
        threshold="balance",
        excess=4,
        per_doubling=per_doubling,
    )


def law_of(mechanism, values, scale=None):
    """P(candidate j) exactly, by the law of each noisy count: j wins where all others are below it, ties by position."""
    scale = scale or mechanism.score_scale
    reach = int(80 * scale)
    noise = np.arange(-reach, reach + 1)
    masses = np.tanh(0.5 / scale) * np.exp(-np.abs(noise) / scale)
    tails = np.cumsum(masses)
    grid = mechanism.finder.candidates
    scores = [
        -((int((np.array(values) > v).sum()) + noise) * 2**PLACES) - penalty
        for v, penalty in zip(grid, mechanism.penalties, strict=True)
    ]
    law = []
    for place, own in enumerate(scores):
        chance = masses.copy()
        for other, theirs in enumerate(scores):
            if other != place:  # their score falls with their noise: below ours from some noise on
                side = "left" if other > place else "right"  # a tie goes to the first position
                least = len(noise) - np.searchsorted(
                    theirs[::-1], own, side="right" if side == "left" else "left"
                )
                chance = chance * (1 - np.where(least > 0, tails[np.minimum(least, len(tails)) - 1], 0.0))
        law.append(chance.sum())
    return np.array(law)


def worst_loss(mechanism, scale=None):
    """Over all samples of few values and all neighbours with one value replaced: the largest log ratio."""
    domain = (0, 1, 2, 4, 8)
    laws = {
        sample: law_of(mechanism, sample, scale)
        for sample in itertools.combinations_with_replacement(domain, 4)
    }
    assert all(law.sum() == pytest.approx(1) for law in laws.values())
    return max(
        float(np.max(np.log(law / laws[tuple(sorted((*sample[:place], other, *sample[place + 1 :])))])))
        for sample, law in laws.items()
        for place in range(4)
        for other in domain
    )


def test_the_balance_is_private_by_enumeration():
    """All pairs of neighbouring samples on a small domain: at most ε = 2, and not much less."""
    assert 1.5 < worst_loss(balanced()) <= 2 + 1e-9


def test_half_of_the_noise_is_not_private():
    """The same enumeration finds the violation."""
    mechanism = balanced()
    assert worst_loss(mechanism, mechanism.score_scale / 2) > 2.5


def test_the_enumerated_law_is_that_of_the_choice():
    """Draws of `learn` against the enumeration: a chi-squared distance that 2,000 draws exceed once in 10⁶."""
    mechanism = balanced("1")
    sample, runs = np.array([0, 2, 4, 8]), 2000
    source = tg.noise.current()
    found = [mechanism.learn(sample, source) for _ in range(runs)]
    law = law_of(mechanism, sample)
    counts = np.array([found.count(v) for v in mechanism.finder.candidates])
    assert (((counts - runs * law) ** 2) / (runs * law)).sum() < 31


def test_scores_are_exact_integers():
    """A count beyond what floating point can tell apart; ties go to the first position."""
    large = np.array([2**60, 2**60 + 1])
    assert best_score(large, np.zeros(2, dtype=np.int64), [0, 0]) == 0
    assert best_score(large[::-1], np.zeros(2, dtype=np.int64), [0, 0]) == 1
    assert best_score(np.array([3, 3]), np.zeros(2, dtype=np.int64), [5, 5]) == 0


def test_the_balance_follows_the_noise_and_the_excess():
    """Where a value above the threshold loses more, the threshold is higher."""
    with zero_noise():
        clips = [
            Session(ToPS(POLICY, horizon=30_000, lag=2500, threshold="balance", excess=c))
            .push_batch(TRIPS[:2600])
            .clip[-1]
            for c in (1, 60, 10_000)
        ]
    assert clips[0] < clips[1] < clips[2]


@pytest.mark.parametrize(
    "options",
    [
        {"horizon": None},
        {"horizon": 500},
        {"group": 0},
        {"group": 2501},
        {"branching": 1},
        {"threshold": "smooth"},
        {"excess": 0},
        {"lag": 3},
        {"group": 2000, "bound": "unknown", "horizon": 2**41},
        {"columns": 2},
    ],
    ids=str,
)
def test_wrong_parameters_are_one_sentence(options):
    """Everything outside its range is refused by the constructor."""
    with pytest.raises(InvalidParameter) as refused:
        built(**options)
    assert len(str(refused.value).splitlines()) == 1


def test_other_units_are_refused():
    """The tree is for one value; windows of values have no use for it."""
    with pytest.raises(InvalidParameter):
        ToPS(tg.WEvent(epsilon="1", window=2, max_change=9), horizon=1000)


def test_steps_beyond_the_horizon_are_refused_by_their_number():
    """Nothing is charged for them."""
    session = Session(built())
    session.push_batch(TRIPS)
    with pytest.raises(InvalidInput, match="3000 steps"):
        session.push_batch([1])


def test_skipped_steps_are_no_observations():
    """Groups have so many observations; the source is the step of the clock."""
    with zero_noise():
        session = Session(built())
        session.push_batch(TRIPS[:515])
        releases = session.push_batch(TRIPS[515:520], step=1001)
    assert releases.status[0] == Status.FRESH
    assert releases.source.tolist() == [1001] * 5
    assert math.isfinite(releases.scale[-1])


def test_what_its_horizon_refuses_names_a_mechanism_with_the_same_statistic():
    """Running sums without a horizon, not averages."""
    session = Session(built(horizon=600))
    session.push_batch([30] * 600)
    with pytest.raises(InvalidInput, match="a longer horizon, or use HybridTree"):
        session.push(30)
