"""The structural filter against plain references: statsmodels, numpy, and quadrature."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.queries.state_space import StateSpace
from tidegate.releases import Releases, Status
from tidegate.structures.kernels import hearing
from tidegate.structures.kernels import state_space as k
from tidegate.structures.kernels.replaying import likelihood, phases_of
from tidegate.structures.kernels.searching import SEARCHED
from tidegate.structures.kernels.smoothing import smooth as smooth_steps
from tidegate.structures.state_space_model import Prior, Size, Structure, estimate, parameters_of
from tidegate.structures.state_space_tracker import Tracker

STRUCTURE = Structure((12, 30), (2, 1))
SEARCH = np.array([0.1, 1.0, 0.3, 1.5, 1.2, 0.5, -2.0])
PARAMETERS = parameters_of(SEARCH, Prior(3.0, 50.0))


def matrices(structure, parameters):
    """Transition, noise, prior and observation of the model, written down plainly."""
    n, harmonics = structure.states, len(structure.frequency)
    F, Q, P = np.eye(n), np.zeros((n, n)), np.zeros((n, n))
    F[1, 1], F[2, 2], F[3, 3] = parameters[[k.ROUGH_MEMORY, k.RISING_MEMORY, k.FALLING_MEMORY]]
    Q[0, 0], Q[1, 1] = parameters[k.LEVEL_NOISE], parameters[k.ROUGH_NOISE]
    Q[2:4, 2:4] = parameters[k.SMOOTH_NOISE]
    for i, angle in enumerate(structure.frequency):
        c, s = 4 + i, 4 + harmonics + i
        F[c, c], F[c, s], F[s, c], F[s, s] = (
            math.cos(angle),
            math.sin(angle),
            -math.sin(angle),
            math.cos(angle),
        )
        Q[c, c] = Q[s, s] = parameters[k.SEASON_NOISE] * structure.weight[i]
        P[c, c] = P[s, s] = parameters[k.SEASON_PRIOR] * structure.weight[i]
    P[0, 0] = parameters[k.LEVEL_PRIOR]
    P[1, 1] = Q[1, 1] / (1 - F[1, 1] ** 2)
    for i in (2, 3):
        for j in (2, 3):
            P[i, j] = parameters[k.SMOOTH_NOISE] / (1 - F[i, i] * F[j, j])
    h = np.r_[1.0, 1.0, 1.0, -1.0, np.ones(harmonics), np.zeros(harmonics)]
    return F, Q, P, h


def measured_stream(steps=200, seed=3, often=0.6):
    """Measurements of a wave at some steps, with Gaussian noise of variance 4."""
    generator = np.random.default_rng(seed)
    truth = (
        10 + 4 * np.sin(np.arange(steps) * 2 * np.pi / 12) + generator.normal(0, 0.5, steps).cumsum() * 0.3
    )
    fresh = generator.random(steps) < often
    fresh[0] = True
    return truth, truth + generator.normal(0, 2.0, steps), fresh


def releases_of(values, fresh, scale, first=1):
    """Releases with one column and one scale."""
    steps = len(values)
    status = np.where(fresh, Status.FRESH, Status.APPROXIMATED).astype(np.int8)
    return Releases(
        first, values.reshape(steps, -1), status, None, np.full(steps, scale), np.ones(steps, np.int64), 1
    )


def plain_filter(noisy, fresh, noise, structure, parameters):
    """Textbook Kalman filter and Rauch–Tung–Striebel smoother, step by step with full matrices."""
    F, Q, P, h = matrices(structure, parameters)
    x = np.zeros(len(h))
    x[0] = parameters[k.LEVEL_MEAN]
    filtered, covariances, predicted, before = [], [], [], []
    likelihood = 0.0
    for step, (y, measured) in enumerate(zip(noisy, fresh, strict=True)):
        if step:
            x, P = F @ x, F @ P @ F.T + Q
        predicted.append(x)
        before.append(P)
        if measured:
            total = h @ P @ h + noise
            if step:
                likelihood -= 0.5 * (math.log(2 * math.pi * total) + (y - h @ x) ** 2 / total)
            gain = P @ h / total
            x, P = x + gain * (y - h @ x), P - np.outer(gain, h @ P)
        filtered.append(x)
        covariances.append(P)
    smooth, smooth_covariance = [filtered[-1]], [covariances[-1]]
    for step in range(len(noisy) - 2, -1, -1):
        back = covariances[step] @ F.T @ np.linalg.pinv(before[step + 1], rcond=1e-13)
        smooth.insert(0, filtered[step] + back @ (smooth[0] - predicted[step + 1]))
        inner = smooth_covariance[0] - before[step + 1]
        smooth_covariance.insert(0, covariances[step] + back @ inner @ back.T)
    variances = [h @ P @ h for P in covariances], [h @ P @ h for P in smooth_covariance]
    return np.array(filtered) @ h, np.array(smooth) @ h, *map(np.array, variances), likelihood


def fixed_tracker(monkeypatch, keep=0):
    """A tracker that never estimates: the parameters are given."""
    tracker = Tracker(STRUCTURE, 1, keep, laplace=False)
    tracker.memory["parameters"][:] = PARAMETERS
    k.begin(PARAMETERS, STRUCTURE.weight, tracker.memory["covariance"][0])
    tracker.memory["state"][:, 0] = PARAMETERS[k.LEVEL_MEAN]
    tracker.memory["clock"][[3, 7]] = 10**9  # neither the next estimate nor one before it
    tracker.memory["health"][2] = np.inf  # they are known, so that nobody doubts them
    return tracker


@pytest.mark.parametrize("often", [0.6, 0.02])  # a matrix in smoothing, or a few vectors
def test_filter_and_smoother_equal_the_textbook(monkeypatch, often):
    """Values and variances of the compiled filter and of fixed-interval smoothing agree with full matrices."""
    _, noisy, fresh = measured_stream(often=often)
    model = StateSpace(1, STRUCTURE.periods, STRUCTURE.harmonics, delay=400, noise="gaussian")
    model._tracker = fixed_tracker(monkeypatch, keep=200)
    model._block = 100
    monkeypatch.setattr(
        model, "_claimed", lambda variances: variances
    )  # what the model says, and nobody's doubt
    found = model.push_batch(releases_of(noisy, fresh, 2.0))
    filtered, smooth, variance, smooth_variance, _ = plain_filter(noisy, fresh, 4.0, STRUCTURE, PARAMETERS)
    np.testing.assert_allclose(found.values[:, 0], filtered, rtol=1e-8)
    factor = found.deviation[0, 0] / math.sqrt(variance[0])
    assert factor == pytest.approx(1.0)
    np.testing.assert_allclose(model.smoothed.values[:, 0], smooth[:100], rtol=1e-6)
    ratio = model.smoothed.deviation[:, 0] / np.sqrt(smooth_variance[:100])
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


def test_likelihood_and_replay_equal_the_textbook():
    """The likelihood of measurements with gaps is that of the full model, and replaying ends in the filter's state."""
    _, noisy, fresh = measured_stream()
    steps = np.flatnonzero(fresh) + 1
    values = np.ascontiguousarray(noisy[fresh][:, np.newaxis])
    noise = np.full(len(steps), 4.0)
    phases, weight = phases_of(steps, STRUCTURE.once), STRUCTURE.weight
    found = likelihood(steps, phases, values, noise, False, PARAMETERS, weight, 1)
    last = int(steps[-1])
    filtered, _, variance, _, theirs = plain_filter(noisy[:last], fresh[:last], 4.0, STRUCTURE, PARAMETERS)
    assert found == pytest.approx(theirs, rel=1e-9)
    tracker = Tracker(STRUCTURE, 1, 20, laplace=False)
    tracker.memory["parameters"][:] = PARAMETERS
    tracker._replay(steps, values, noise)
    h = np.r_[1.0, 1.0, 1.0, -1.0, phases[-1]]
    assert tracker.memory["state"][0] @ h == pytest.approx(filtered[-1], rel=1e-8)
    assert h @ tracker.memory["covariance"][0] @ h == pytest.approx(variance[-1], rel=1e-8)


def test_level_alone_equals_statsmodels():
    """Without residual and harmonics the filter is statsmodels' local level model."""
    models = pytest.importorskip("statsmodels.tsa.statespace.structural")
    _, noisy, _ = measured_stream(120)
    search = np.full(SEARCHED, -60.0)
    search[[2, 4]] = 0.0
    search[0] = math.log(0.3)
    parameters = parameters_of(search, Prior(0.0, 1e6))
    filtered, *_ = plain_filter(noisy, np.ones(120, bool), 4.0, Structure(), parameters)
    model = models.UnobservedComponents(noisy, "local level")
    model.ssm.initialize_known(np.zeros(1), np.array([[1e6]]))
    theirs = model.filter([4.0, 0.3]).filtered_state[0]
    np.testing.assert_allclose(filtered, theirs, rtol=1e-8)
    steps, columns = np.arange(1, 121), np.ascontiguousarray(noisy[:, np.newaxis])
    tracker = Tracker(Structure(), 1, 0, laplace=False)
    tracker.memory["parameters"][:] = parameters
    tracker._replay(steps, columns, np.full(120, 4.0))
    assert tracker.memory["state"][0, 0] == pytest.approx(theirs[-1], rel=1e-8)


def test_columns_of_a_class_are_smoothed_as_each_by_itself():
    """Bit for bit, for more columns than go together, and for classes of one column or none."""
    generator = np.random.default_rng(4)
    keep, length, columns, states = 8, 4, 300, 14
    kind = generator.choice([0, 1, 3], columns).astype(np.int64)
    kind[7] = 4
    total = np.where(generator.random(keep) < 0.6, 2.0, 0.0)
    rings = (
        generator.normal(size=(keep, 5, states)), np.ones((keep, 5)), np.repeat(total[:, np.newaxis], 5, 1),
        generator.normal(size=(keep, columns)), generator.normal(size=(keep, columns)),
    )  # fmt: skip
    parameters, once = generator.random((5, 11)), generator.random((3, 5))
    together, each, variances = np.empty((length, columns)), np.empty((length, 1)), np.empty((length, 5))
    nothing = np.zeros((0, 5))
    smooth_steps(37, length, parameters, kind, once, rings, nothing, together, variances)
    for column in range(columns):
        c = kind[column]
        own = [part[:, [c]] for part in rings[:3]] + [part[:, [column]] for part in rings[3:]]
        own = tuple(np.ascontiguousarray(part) for part in own)
        one = np.empty((length, 1))
        smooth_steps(37, length, parameters[[c]], kind[:1] * 0, once, own, nothing[:, :1], each, one)
        assert np.array_equal(each[:, 0], together[:, column])
        assert np.array_equal(one[:, 0], variances[:, c])


@given(st.floats(-60, 60), st.floats(1e-3, 1e3), st.floats(0.1, 10))
def test_laplace_update_equals_quadrature(innovation, variance, scale):
    """Posterior mean and density of a normal value behind Laplace noise agree with numerical integration."""
    deviation = math.sqrt(variance)
    mean, density = hearing.heard_with_density(innovation, variance, 2 * scale * scale)
    assert hearing.heard(innovation, variance, 2 * scale * scale) == mean
    if variance > hearing.NEARLY_GAUSSIAN * scale * scale:
        return
    far = 14 * deviation + variance / scale  # the noise draws the posterior by up to variance / scale
    edges = [-far, max(-far, min(innovation, far)), far]
    total, first = 0.0, 0.0
    for low, high in pairwise(edges):
        x = np.linspace(low, high, 200_001)
        mass = np.exp(-0.5 * x * x / variance - np.abs(innovation - x) / scale)
        total += np.trapezoid(mass, x)
        first += np.trapezoid(mass * x, x)
    if total < 1e-250:
        return
    assert mean == pytest.approx(first / total, rel=1e-4, abs=1e-5 * deviation)
    assert density == pytest.approx(
        math.log(total) - math.log(2 * scale) - 0.5 * math.log(2 * math.pi * variance), abs=1e-4
    )


@pytest.mark.parametrize("ratio", [1e-4, 1e-2, 0.3, 1.0, 10.0, 1000.0])
def test_effective_noise_is_the_fisher_information(ratio):
    """1/(s + effective noise) is the information that a Laplace measurement has about the location."""
    deviation = math.sqrt(ratio)
    reach = 12 * deviation + 40
    near = min(reach, 8 * deviation + 2)
    e = np.concatenate([np.linspace(0, near, 20_001), np.linspace(near, reach, 20_001)[1:]])
    pairs = np.array([hearing.heard_with_density(float(x), ratio, 2.0) for x in e])
    information = 2 * np.trapezoid(np.exp(pairs[:, 1]) * (pairs[:, 0] / ratio) ** 2, e)
    assert 1 / information == pytest.approx(ratio + hearing.effective_noise(ratio, 2.0), rel=4e-3)


def test_effective_noise_lies_between_half_and_all():
    """Laplace noise tells as much as Gaussian noise of between half its variance and all of it."""
    ratios = np.geomspace(1e-12, 1e9, 200)
    effective = np.array([hearing.effective_noise(r, 2.0) for r in ratios])
    assert effective.min() >= 1.0
    assert effective.max() <= 2.0


def test_noise_shrinks_and_intervals_cover():
    """On a stream of the model's kind errors fall well below the noise, and 90 % intervals cover at least 85 %."""
    generator = np.random.default_rng(8)
    steps = np.arange(3000)
    truth = 500 + 100 * np.sin(steps * 2 * np.pi / 24) + generator.normal(0, 1, 3000).cumsum()
    noisy = truth + generator.laplace(0, 60, 3000)
    model = StateSpace(periods=(24,), harmonics=2, delay=48)
    found = model.push_batch(releases_of(noisy, np.ones(3000, bool), 60.0))
    error = np.abs(found.values[:, 0] - truth)[200:]
    assert error.mean() < 15
    smooth = model.smoothed
    later = np.abs(smooth.values[:, 0] - truth[smooth.first_step - 1 :][: len(smooth)])[200:]
    assert later.mean() < error.mean()
    low, high = found.interval(0.9)
    inside = ((low[:, 0] <= truth) & (truth <= high[:, 0]))[200:].mean()
    assert inside > 0.85


def test_every_mechanism_gets_better():
    """Releases of Uniform and of BudgetAbsorption are nearer to the truth after the filter."""
    import tidegate as tg
    from tidegate.mechanisms import BudgetAbsorption, Uniform

    steps = np.arange(2000)
    truth = np.rint(300 + 100 * np.sin(steps * 2 * np.pi / 48)).astype(np.int64)[:, np.newaxis]
    for kind in (Uniform, BudgetAbsorption):
        releases = tg.open(kind(tg.WEvent(epsilon="1", window=48))).push_batch(truth)
        found = StateSpace(periods=(48,)).push_batch(releases)
        assert np.abs(found.values - truth).mean() < 0.6 * np.abs(releases.values - truth).mean()


def test_batches_may_be_cut_and_restored_anywhere():
    """One batch, single pushes and a restored query give identical estimates and smoothed values."""
    _, noisy, fresh = measured_stream(150)
    whole = StateSpace(1, (12,), 2, delay=10)
    expected = whole.push_batch(releases_of(noisy, fresh, 1.4))
    pieces, smooth = [], []
    model = StateSpace(1, (12,), 2, delay=10)
    for index in range(150):
        if index == 70:
            other = StateSpace(1, (12,), 2, delay=10)
            other.restore(model.state())
            model = other
        found = model.push(releases_of(noisy[index : index + 1], fresh[index : index + 1], 1.4, index + 1)[0])
        pieces.append(found.values[0])
        if model.smoothed is not None:
            smooth.append(model.smoothed.values)
    assert np.array_equal(np.array(pieces), expected.values)
    assert np.array_equal(np.concatenate(smooth), whole.smoothed.values)


def test_the_number_of_the_first_step_does_not_matter():
    """Phases are those of absolute steps, and what comes out is the same wherever the count begins."""
    _, noisy, fresh = measured_stream(300)
    found = []
    for first in (1, 10**6 + 1, 10**9 + 1):  # all at the beginning of a block that is smoothed together
        model = StateSpace(1, (12, 84), 3, delay=20)
        estimates = model.push_batch(releases_of(noisy, fresh, 1.4, first))
        assert estimates.first_step == first
        found.append((estimates.values, model.smoothed.values[-200:]))
    for values, smooth in found[1:]:
        np.testing.assert_allclose(values, found[0][0], rtol=1e-4)
        np.testing.assert_allclose(smooth, found[0][1], rtol=1e-4)


def test_a_phase_does_not_wander():
    """Turned from step to step, a phase is that of the step, after many steps too."""
    once, phase, exact = Structure((24, 168.5), 4).once, np.zeros(16), np.zeros(16)
    k.phase_at(once, 10**8, phase)
    for step in range(10**8 + 1, 10**8 + 5000):
        k.turn_to(once, step, phase)
        k.phase_at(once, step, exact)
        np.testing.assert_allclose(phase, exact, atol=1e-6)


@pytest.mark.parametrize("columns", [5, 40])
def test_columns_share_gains(columns):
    """Columns of one size are followed as well together as alone."""
    generator = np.random.default_rng(4)
    truth = 200 + 20 * np.sin(np.arange(400)[:, np.newaxis] / 20 + np.arange(columns))
    noisy = truth + generator.laplace(0, 30, truth.shape)
    found = StateSpace(columns).push_batch(releases_of(noisy, np.ones(400, bool), 30.0))
    assert np.abs(found.values - truth)[50:].mean() < 13


def test_estimates_find_a_quiet_stream():
    """A constant stream behind noise is recognised: hardly any process noise."""
    generator = np.random.default_rng(5)
    steps, noise = np.arange(1, 401), np.full(400, 2.0 * 50**2)
    values = 1000 + generator.laplace(0, 50, (400, 1))
    found = estimate(Structure(), steps, values, noise, True, Prior(1000.0, 1e8), Size(1e6), None, 8)
    moving = math.exp(found[0]) * 400 + math.exp(found[1]) + math.exp(found[3])
    assert moving < 50**2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"periods": (1,)}, "periods"),
        ({"periods": (24, 168), "harmonics": (1,)}, "harmonics"),
        ({"harmonics": 0, "periods": (24,)}, "harmonics"),
        ({"noise": "cauchy"}, "noise"),
        ({"columns": 0}, "columns"),
        ({"delay": -1}, "delay"),
    ],
)
def test_bad_parameters_are_one_sentence(arguments, word):
    """Parameters outside their range are refused by name."""
    with pytest.raises(InvalidParameter, match=word) as caught:
        StateSpace(**arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_bad_releases_are_refused():
    """Wrong columns and steps out of order are refused."""
    model = StateSpace(2)
    with pytest.raises(InvalidInput, match="columns"):
        model.push_batch(releases_of(np.zeros(3), np.ones(3, bool), 1.0))
    model = StateSpace(1)
    model.push_batch(releases_of(np.zeros(3), np.ones(3, bool), 1.0))
    with pytest.raises(InvalidInput, match="out of order"):
        model.push_batch(releases_of(np.zeros(3), np.ones(3, bool), 1.0, 7))
