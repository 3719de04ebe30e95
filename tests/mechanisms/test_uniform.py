"""Uniform: scales by hand, distributions, budgets with δ and ρ, the grid, bounded memory, bad input."""

import math
from fractions import Fraction

import numpy as np
import pytest

import tidegate as tg
from distributions import compare_integers
from tidegate.composition import delta_of, largest_step
from tidegate.core.errors import AccountRefused
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import BackwardSmoothing, Fast, Sample, SlidingWindowTree, Uniform
from tidegate.testing.entropy import fixed_entropy, zero_noise


def spent(session):
    """What the last window has spent, as a part of the budget."""
    return Fraction(sum(session.spent.values()), session._queries[0].mechanism.units)


@pytest.mark.parametrize(
    ("policy", "columns", "scale"),
    [
        (tg.WEvent(epsilon="1", window=24), 1, 24),
        (tg.WEvent(epsilon="1/2", window=24, max_change=3), 5, 144),
        (tg.WEvent(epsilon="1", window=24, adjacency="replace"), 1, 24),
        (tg.WEvent(epsilon="1", window=24, adjacency="replace"), 2, 48),
        (tg.Event(epsilon="1/10"), 4, 10),
        (tg.User(epsilon="2", horizon=100), 1, 50),
        (tg.WEvent(rho="1/2", window=9), 3, 3),
    ],
)
def test_scales_by_hand(policy, columns, scale):
    """wΔ/ε, doubled where a row may change its column; with ρ the square root of wΔ²/(2ρ)."""
    assert Uniform(policy, columns=columns, noise="laplace" if policy.rho is None else "auto").scale == scale


def test_scales_round_up():
    """A scale that no float holds is rounded up, so the loss of a step is at most its share."""
    mechanism = Uniform(tg.WEvent(epsilon="3", window=1))
    assert Fraction(mechanism.scale) >= Fraction(1, 3)
    assert Fraction(math.nextafter(mechanism.scale, 0)) < Fraction(1, 3)


def test_delta_uses_the_optimal_composition():
    """The scale with δ is that of the exact composition; w such steps stay within (ε, δ)."""
    policy = tg.WEvent(epsilon="0.1", delta="8.5e-9", window=672)
    mechanism = Uniform(policy)
    assert 1195 < mechanism.scale < 1197  # SOUNDNESS: 1196; the printed bound gives 2092
    assert mechanism.scale < Uniform(tg.WEvent(epsilon="0.1", window=672), noise="laplace").scale
    loss = 1 / Fraction(mechanism.scale)
    assert delta_of({1: 672}, loss, Fraction(1, 10)) <= Fraction("8.5e-9")
    small = Uniform(tg.WEvent(epsilon="1", delta="1e-12", window=2))
    assert small.scale <= Uniform(tg.WEvent(epsilon="1", window=2), noise="laplace").scale
    assert Uniform(tg.User(epsilon="0.1", delta="8.5e-9", horizon=672)).scale == mechanism.scale
    assert largest_step(672, Fraction(1, 10), Fraction("8.5e-9")) >= loss


@pytest.mark.parametrize("wrong", [None, 1.05])
def test_released_noise_is_the_stated_noise(wrong):
    """α = ALPHA, n = 200,000: released minus true follows the discrete Laplace law; 5 % more scale is noticed."""
    mechanism = Uniform(tg.WEvent(epsilon="1", window=8), noise="laplace")
    steps = 200_000
    truth = np.arange(steps, dtype=np.int64)[:, None] % 1000
    noise = (Session(mechanism).push_batch(truth).values - truth).astype(np.int64).ravel()
    scale = mechanism.scale * (wrong or 1)
    q = math.exp(-1 / scale)
    edges = np.arange(-30, 31, 3)
    at_most = np.where(edges < 0, q ** np.abs(edges) / (1 + q), 1 - q ** (np.abs(edges) + 1.0) / (1 + q))
    assert compare_integers(noise, edges, at_most).ok == (wrong is None)


def test_values_stay_on_the_grid():
    """With a grid of a hundredth, releases are multiples of it and the sensitivity counts hundredths."""
    mechanism = Uniform(tg.Event(epsilon="1", max_change="2.5"), columns=2, grid="0.01")
    assert mechanism.sensitivity == 250
    values = Session(mechanism).push([1.07, 2]).values
    assert np.allclose(values * 100, np.round(values * 100))
    with zero_noise():
        assert Session(mechanism).push([1.07, 2]).values.tolist() == [1.07, 2.0]


def test_pre_aggregated_values_need_a_declaration():
    """A value off the grid is refused, or rounded half up with a larger sensitivity."""
    policy = tg.Event(epsilon="1", touches=1)
    strict = Uniform(policy, columns=3)
    with pytest.raises(InvalidInput, match='rounding="nearest"'):
        Session(strict).push([0.5, 1, 2])
    loose = Uniform(policy, columns=3, rounding="nearest")
    assert (strict.sensitivity, loose.sensitivity) == (1, 2)
    with zero_noise():
        assert Session(loose).push([0.5, 1.5, -0.5]).values.tolist() == [1, 2, 0]  # never half to even


def test_expected_error_is_what_happens():
    """The mean absolute error of 400,000 values is within five standard errors of the closed form."""
    for policy in (tg.WEvent(epsilon="1", window=8), tg.WEvent(rho="1/8", window=8)):
        mechanism = Uniform(policy)
        errors = np.abs(Session(mechanism).push_batch(np.zeros((400_000, 1), dtype=np.int64)).values)
        assert abs(errors.mean() - mechanism.expected_error()) < 5 * errors.std() / math.sqrt(errors.size)


def test_a_horizon_is_kept():
    """A user-level stream refuses a step beyond its horizon before anything is charged."""
    run = Session(Uniform(tg.User(epsilon="1", horizon=3), noise="laplace"))
    run.push_batch([[1], [2]])
    with pytest.raises(AccountRefused):
        run.push_batch([[1], [2]])
    assert spent(run) == Fraction(2, 3)
    run.push(5)
    with pytest.raises(AccountRefused):
        run.push(5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": 0}, "at least 1"),
        ({"columns": 2.5}, "a whole number"),
        ({"grid": "0.3"}, "one over a whole number"),
        ({"grid": 0.1}, 'write grid="0.1"'),
        ({"rounding": "even"}, "'refuse' or 'nearest'"),
    ],
)
def test_bad_configurations(options, words):
    """Each refusal names the parameter and the remedy."""
    with pytest.raises(InvalidParameter, match=words):
        Uniform(tg.Event(epsilon="1"), **options)


def test_swellfish_policies_are_for_their_own_mechanism():
    """Uniform refuses a policy that it has no proof for."""
    from tidegate.policy import Secret, Specification

    policy = tg.Swellfish(specifications=(Specification((Secret(1, 2, ((1, 9),), 1),)),))
    with pytest.raises(InvalidParameter, match="Event or WEvent or User"):
        Uniform(policy)


def test_sample_measures_every_so_often():
    """Sample: the whole budget at steps 1, w + 1, …; with a shorter period a share of it."""
    sample = Sample(tg.WEvent(epsilon="1/2", window=6), columns=2)
    assert (sample.scale, sample.units) == (2, 1)
    shorter = Sample(tg.WEvent(epsilon="1/2", window=6), every=4, noise="laplace")
    assert (shorter.scale, shorter.units) == (4, 2)
    shared = Sample(tg.WEvent(epsilon="1/2", window=6), every=4)
    assert shared.noise_error < 0.87 * shorter.noise_error
    with zero_noise():
        releases = Session(shorter).push_batch(np.arange(1, 11)[:, None])
    assert releases.values.ravel().tolist() == [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]
    assert releases.source.tolist() == [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]
    assert np.flatnonzero(releases.units).tolist() == [0, 4, 8]


@pytest.mark.parametrize(("w", "every"), [(5, 5), (6, 4), (7, 3), (1, 1)])
def test_sample_never_overspends_a_window(w, every):
    """However the windows fall, they contain at most ⌈w/every⌉ measurements."""
    run = Session(Sample(tg.WEvent(epsilon="1", window=w), every=every))
    with fixed_entropy(1):
        run.push_batch(np.zeros((200, 1), dtype=np.int64))
    assert spent(run) == 1


@pytest.mark.parametrize(
    "policy",
    [
        tg.WEvent(epsilon="1e-9", window=2**39),
        tg.WEvent(epsilon="1e-9", window=2**39, delta="1e-9"),
        tg.WEvent(rho="1e-40", window=4),
        tg.Event(epsilon="1e-30"),
        tg.WEvent(epsilon="1e-400", window=4),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [Uniform, Sample, Fast, SlidingWindowTree, BackwardSmoothing])
def test_budgets_below_the_numbers_are_refused_before_anything_is_charged(kind, policy):
    """A window so long, or an ε so small, that its noise cannot be drawn is refused by the constructor."""
    options = {"window": 4} if kind is SlidingWindowTree else {}
    if kind is Sample and policy.steps_charged > 4:
        options["every"] = 1  # else Sample has all of ε for one step, which can be drawn
    with pytest.raises(InvalidParameter) as error:
        kind(policy, **options)
    assert len(str(error.value).splitlines()) == 1
