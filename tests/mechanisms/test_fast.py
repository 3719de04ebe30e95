import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from distributions import compare_integers, laplace_at_most
from tidegate.core.session import Session
from tidegate.mechanisms import Fast as Shared
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.noise import current, laplace, laws
from tidegate.policy import User, WEvent
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy, zero_noise

Fast = partial(Shared, noise="laplace")  # as in the papers


def spent(session):
    """What the last window has spent, as a part of the budget."""
    return Fraction(sum(session.spent.values()), session._queries[0].mechanism.units)


def reference(mechanism, rows, source):
    """FAST in plain Python: (values, measured steps)."""
    steps, columns = rows.shape
    window = mechanism.policy.window or steps
    pid, filter_ = mechanism.adaptive, mechanism.filter
    shortest, longest = mechanism.bounds
    shortest = pid.shortest or shortest if pid else shortest
    longest = max(pid.longest or longest, shortest) if pid else longest
    noise_variance = (filter_ and filter_.measurement_noise) or mechanism.noise_variance
    law = mechanism.sharing and mechanism.sharing.law
    state = law and law.start()
    x, variance, squares, gaps = np.zeros(columns), None, np.zeros(columns), np.zeros(columns)
    due, interval, measured, errors, values, before = 1, float(shortest), [], [], [], None
    for step in range(1, steps + 1):
        inside = [other for other in measured if other > step - window]
        if step >= due and len(inside) < mechanism.measurements:
            if law:
                noise, state = law.draw(source, "fast", len(measured), state)
                z = rows[step - 1] + noise[0]
            else:
                z = rows[step - 1] + laplace(source, "fast", step, mechanism.scale, (columns,))
            gap = step - measured[-1] if measured else step
            prior = x
            if not measured or not filter_:
                x, variance = z.astype(float), np.full(columns, noise_variance)
            else:
                walk = filter_.process_noise
                if walk is None:
                    squares = filter_.fading * squares + (z - before) ** 2 - 2 * noise_variance
                    gaps = filter_.fading * gaps + gap
                    walk = np.maximum(squares, 0) / gaps
                prior_variance = variance + gap * walk
                gain = prior_variance / (prior_variance + noise_variance)
                x = prior + gain * (z - prior)
                variance = (1 - gain) * prior_variance
            before = z
            error = np.abs(x - prior).sum() / max(np.maximum(x, 0).sum(), mechanism.sanity)
            errors.append(error if measured else 0.0)
            if not pid:
                interval = -(-window // mechanism.measurements)
            elif measured:
                recent = errors[-pid.recent :]
                signal = pid.proportional * errors[-1] + pid.integral * sum(recent) / len(recent)
                signal += pid.derivative * (errors[-1] - errors[-2]) / gap
                strain = min((signal - pid.set_point) / pid.set_point, 50.0)
                interval = min(max(interval + pid.reach * (1 - math.exp(strain)), shortest), longest)
            measured.append(step)
            due = step + int(interval)
        values.append(x)
    return np.array(values), measured


CONFIGURATIONS = [
    Fast(WEvent(epsilon="2", window=20), columns=3, samples=5),
    Fast(WEvent(epsilon="2", window=20), columns=20, samples=5),
    Fast(
        WEvent(epsilon="1", window=30),
        filter=Kalman(25.0, 400.0),
        adaptive=Pid(derivative=0.3, recent=2, shortest=1),
    ),
    Fast(WEvent(epsilon="5", window=9), columns=2, filter=False, adaptive=Pid(longest=9, set_point=0.3)),
    Fast(User(epsilon="3", horizon=300), columns=2),
    Fast(WEvent(epsilon="1", window=12), columns=2, adaptive=False),
    Shared(WEvent(epsilon="2", window=20), columns=3, samples=9),
    Shared(WEvent(epsilon="2", window=40), samples=30, noise="cube"),
    Shared(WEvent(epsilon="2", window=60, mobility="fixed"), columns=2, samples=40, noise="semiorder"),
    Shared(WEvent(epsilon="1", window=10), samples=10, adaptive=Pid(shortest=4, longest=37), noise="cube"),
    Shared(User(epsilon="3", horizon=300), columns=2),
]


def moving(columns):
    """300 steps of a level that wanders and jumps."""
    level = np.cumsum(np.random.default_rng(4).integers(-4, 5, (300, columns)), axis=0) + 90
    return np.maximum(level + 200 * (np.arange(300)[:, None] // 70 % 2), 0)


@pytest.mark.parametrize("mechanism", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_agrees_with_the_plain_reference(mechanism):
    """The compiled loop releases what a plain transcription of the algorithm releases."""
    rows = moving(mechanism.columns)
    with fixed_entropy(8):
        releases = Session(mechanism).push_batch(rows)
        values, measured = reference(mechanism, rows, current())
    assert (np.flatnonzero(releases.fresh) + 1).tolist() == measured
    np.testing.assert_allclose(releases.values, values, rtol=1e-9, atol=1e-9)


def test_statuses_and_sources():
    """Measured steps are fresh and cost ε/M, the others are approximated from the last measured step at no cost."""
    with zero_noise():
        run = Session(Fast(WEvent(epsilon="1", window=12), samples=3, adaptive=False, filter=False))
        releases = run.push_batch(np.arange(1, 11)[:, None])
    assert releases.source.tolist() == [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]
    assert releases.values[:, 0].tolist() == [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]
    assert releases[4].status is Status.FRESH
    assert releases[4].spent == Fraction(1, 3)
    assert releases[5].status is Status.APPROXIMATED
    assert releases[5].spent == 0


def test_quiet_streams_are_measured_less_often():
    """The controller lengthens the interval where nothing moves and shortens it where much does."""
    mechanism = Fast(WEvent(epsilon="100", window=200), samples=100, adaptive=Pid(shortest=1, longest=40))
    still = np.full((200, 1), 1000)
    moving = still + 900 * (np.arange(200)[:, None] % 2)
    with fixed_entropy(1):
        assert Session(mechanism).push_batch(still).fresh.sum() < 20
        assert Session(mechanism).push_batch(moving).fresh.sum() == 100


def test_the_filter_helps_and_each_switch_does_something():
    """On a random walk the filter lowers the error; every switch changes what is released."""
    random = np.random.default_rng(7)
    rows = np.cumsum(random.integers(-2, 3, (2000, 4)), axis=0) + 500
    policy = WEvent(epsilon="1", window=40)
    variants = {
        "full": Fast(policy, columns=4),
        "no filter": Fast(policy, columns=4, filter=False),
        "no control": Fast(policy, columns=4, adaptive=False),
        "blocks": Fast(policy, columns=4, blocks=True),
    }
    with fixed_entropy(6):
        values = {name: Session(variant).push_batch(rows).values for name, variant in variants.items()}
    errors = {name: np.abs(value - rows).mean() for name, value in values.items()}
    assert errors["full"] < 0.9 * errors["no filter"]
    assert errors["full"] < errors["blocks"]
    assert len({value.tobytes() for value in values.values()}) == len(values)


def test_measurements_have_laplace_noise_of_the_stated_scale():
    """α = 1e-9, n = 40,000: unfiltered releases of zeros fit the scale MΔ/ε, and a scale off by a tenth is refused."""
    mechanism = Fast(WEvent(epsilon="1", window=8), columns=2, samples=8, filter=False)
    assert mechanism.scale == 8.0
    sample = (
        Session(mechanism).push_batch(np.zeros((20_000, 2), dtype=np.int64)).values.astype(np.int64).ravel()
    )
    edges = np.arange(-40, 41, 4)
    assert compare_integers(sample, edges, laplace_at_most(edges, 8.0)).ok
    assert not compare_integers(sample, edges, laplace_at_most(edges, 8.8)).ok
    assert not compare_integers(sample, edges, laplace_at_most(edges, 7.2)).ok


# noise that measurements share ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [
        Shared(WEvent(epsilon="1", window=12), samples=5, adaptive=Pid(shortest=1, longest=40)),
        Shared(WEvent(epsilon="1", window=40), samples=25, noise="cube", adaptive=Pid(shortest=1, longest=90)),
        Shared(WEvent(epsilon="1", window=12), columns=2, samples=6),
    ],
    ids=["semiorder", "cube", "columns"],
)  # fmt: skip
def test_no_window_has_more_measurements_than_its_noise_protects(mechanism):
    """M of any w steps at most, whatever the data and however far apart; and the ledger has what a window meets."""
    random = np.random.default_rng(4)
    rows = random.poisson(30, (600, mechanism.columns)) * random.integers(0, 3, (600, 1))
    run = Session(mechanism)
    parts = [run.push_batch(rows[:7]).fresh, [run.push(rows[7]).fresh], run.push_batch(rows[8:]).fresh]
    fresh = np.concatenate(parts)
    assert max(np.convolve(fresh, np.ones(mechanism.policy.window))) <= mechanism.measurements
    assert fresh.sum() > 20
    assert spent(run) == 1


@pytest.mark.parametrize(
    "mechanism",
    [
        Shared(WEvent(epsilon="1/10", window=16), samples=16, filter=False, adaptive=False),
        Shared(WEvent(epsilon="1/10", window=120), samples=120, filter=False, adaptive=False),
        Shared(User(epsilon="1/10", horizon=1200), samples=1200, filter=False, adaptive=False),
        Shared(WEvent(rho="1/100", window=16), samples=16, filter=False, adaptive=False),
    ],
    ids=["semiorder", "cube", "user", "rho"],
)
def test_the_error_of_measurements_is_that_of_the_law(mechanism):
    """α = 1e-6: measurements are off by `noise_error`, which Laplace noise would not be."""
    errors = [np.abs(Session(mechanism).push_batch(np.zeros(1200)).values).mean() for _ in range(40)]
    deviation = np.std(errors) / np.sqrt(40)
    assert abs(np.mean(errors) - mechanism.noise_error) < 6 * deviation
    assert abs(np.mean(errors) - 10 * mechanism.measurements) > 6 * deviation
    assert 2 * mechanism.shown_scale**2 == pytest.approx(
        mechanism.noise_variance * (2 if mechanism.policy.rho else 1), rel=0.02
    )


def test_a_gap_longer_than_a_window_is_paid_again():
    """Measurements that no window joins are charged for themselves, and share noise all the same."""
    mechanism = Shared(WEvent(epsilon="1", window=10), samples=10, adaptive=Pid(shortest=37, longest=37))
    run = Session(mechanism)
    releases = run.push_batch(np.zeros(371))
    assert np.diff(np.flatnonzero(releases.fresh)).min() == 37
    assert spent(run) == 1


@pytest.mark.parametrize("mechanism", [m for m in CONFIGURATIONS if m.shares_noise], ids=str)
@pytest.mark.parametrize("ahead", [1, 3, 4096])
def test_noise_drawn_ahead_is_paid_for_as_it_is_used(mechanism, ahead, monkeypatch):
    """However much is drawn at once, and in whatever batches: values, charges, groups and the state of single pushes."""
    monkeypatch.setattr(laws, "AT_ONCE", ahead)
    rows, rest = moving(mechanism.columns), [1, 2, 90, 7, 200]
    with fixed_entropy(3):
        single, several = Session(mechanism), Session(mechanism)
        one = [single.push(row) for row in rows]
        many = [
            release for part in np.split(rows, np.cumsum(rest)[:-1]) for release in several.push_batch(part)
        ]
    assert [(r.values.tolist(), r.status, r.units) for r in one] == [
        (r.values.tolist(), r.status, r.units) for r in many
    ]
    assert sum(release.fresh for release in one) > 20
    assert single.spent == several.spent
