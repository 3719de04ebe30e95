import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidParameter
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import Fast
from tidegate.mechanisms.kalman import Kalman
from tidegate.mechanisms.pid import Pid
from tidegate.noise import current, laplace, variance_laplace
from tidegate.policy import User, WEvent
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy, zero_noise
from tidegate.testing.statistics import compare_integers


def reference(mechanism, rows, source):
    """FAST in plain Python: (values, measured steps)."""
    steps, columns = rows.shape
    window = mechanism.policy.window or steps
    pid, filter_ = mechanism.adaptive, mechanism.filter
    shortest, longest = mechanism.bounds
    shortest = pid.shortest or shortest if pid else shortest
    longest = max(pid.longest or longest, shortest) if pid else longest
    noise_variance = (filter_ and filter_.measurement_noise) or variance_laplace(mechanism.scale)
    x, variance, squares, gaps = np.zeros(columns), None, np.zeros(columns), np.zeros(columns)
    due, interval, measured, errors, values, before = 1, float(shortest), [], [], [], None
    for step in range(1, steps + 1):
        inside = [other for other in measured if other > step - window]
        if step >= due and len(inside) < mechanism.measurements:
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
    Fast(WEvent(epsilon="2", w=20), columns=3, samples=5),
    Fast(WEvent(epsilon="2", w=20), columns=20, samples=5),
    Fast(
        WEvent(epsilon="1", w=30),
        filter=Kalman(25.0, 400.0),
        adaptive=Pid(derivative=0.3, recent=2, shortest=1),
    ),
    Fast(WEvent(epsilon="5", w=9), columns=2, filter=False, adaptive=Pid(longest=9, set_point=0.3)),
    Fast(User(epsilon="3", horizon=300), columns=2),
    Fast(WEvent(epsilon="1", w=12), columns=2, adaptive=False),
]


@pytest.mark.parametrize("mechanism", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_agrees_with_the_plain_reference(mechanism):
    """The compiled loop releases what a plain transcription of the algorithm releases."""
    random = np.random.default_rng(4)
    level = np.cumsum(random.integers(-4, 5, (300, mechanism.columns)), axis=0) + 90
    rows = np.maximum(level + 200 * (np.arange(300)[:, None] // 70 % 2), 0)
    with fixed_entropy(8):
        releases = mechanism.start().push_batch(rows)
        values, measured = reference(mechanism, rows, current())
    assert (np.flatnonzero(releases.fresh) + 1).tolist() == measured
    np.testing.assert_allclose(releases.values, values, rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(
    data=st.data(),
    w=st.integers(1, 15),
    columns=st.sampled_from([1, 2, 5, 17]),
    blocks=st.booleans(),
    adaptive=st.booleans(),
    shortest=st.sampled_from([None, 1]),
)
def test_no_window_spends_more_than_its_budget(data, w, columns, blocks, adaptive, shortest):
    """The real loss between extreme neighbours, Σ over measured steps of ‖difference‖₁/scale, is at most ε."""
    samples = data.draw(st.integers(1, w))
    policy = WEvent(epsilon="1", w=w, adjacency=data.draw(st.sampled_from(["add-remove", "replace"])))
    control = Pid(shortest=shortest) if adaptive else False
    mechanism = Fast(policy, columns=columns, samples=samples, blocks=blocks, adaptive=control)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows = random.poisson(random.choice([1, 30, 1000]), (60, columns)) * random.integers(0, 3, (60, 1))
    run = mechanism.start()
    releases = run.push_batch(rows)
    other = policy.extreme_neighbour(rows, lambda n: int(random.integers(n)))
    difference = np.abs(rows - other).sum(axis=1)
    loss = sum(
        Fraction(int(difference[at])) / Fraction(float(releases.scale[at]))
        for at in np.flatnonzero(releases.fresh)
    )
    assert loss <= 1
    assert run.ledger.verify().ok
    assert max(np.convolve(releases.fresh, np.ones(w))) <= mechanism.units


def test_data_of_steps_that_are_not_measured_do_not_matter():
    """Decisions come from measurements: other data at the steps in between give the very same transcript."""
    mechanism = Fast(WEvent(epsilon="1", w=20), columns=3, samples=6)
    rows = np.random.default_rng(0).poisson(50, (200, 3))
    with fixed_entropy(2):
        releases = mechanism.start().push_batch(rows)
        changed = np.where(releases.fresh[:, None], rows, 10_000)
        again = mechanism.start().push_batch(changed)
    assert np.array_equal(releases.values, again.values)
    assert np.array_equal(releases.status, again.status)


def test_statuses_and_sources():
    """Measured steps are fresh and cost ε/M, the others are approximated from the last measured step at no cost."""
    with zero_noise():
        run = Fast(WEvent(epsilon="1", w=12), samples=3, adaptive=False, filter=False).start()
        releases = run.push_batch(np.arange(1, 11)[:, None])
    assert releases.source.tolist() == [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]
    assert releases.values[:, 0].tolist() == [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]
    assert releases[4].status is Status.FRESH
    assert releases[4].spent == Fraction(1, 3)
    assert releases[5].status is Status.APPROXIMATED
    assert releases[5].spent == 0


def test_waits_for_the_ledger():
    """Where somebody else has spent the window, FAST measures at the first step that the ledger allows."""
    mechanism = Fast(WEvent(epsilon="1", w=6), samples=2)
    ledger = MemoryLedger(mechanism.policy, mechanism.units)
    ledger.charge_span(1, 4, 2)
    releases = mechanism.start(ledger).push_batch(np.full((20, 1), 7))
    assert releases.first_step == 2
    assert releases.steps[releases.fresh][0] == 10
    assert releases.values[:8].tolist() == [[0.0]] * 8
    assert releases.scale[:8].tolist() == [0.0] * 8
    assert ledger.verify().ok


def test_quiet_streams_are_measured_less_often():
    """The controller lengthens the interval where nothing moves and shortens it where much does."""
    mechanism = Fast(WEvent(epsilon="100", w=200), samples=100, adaptive=Pid(shortest=1, longest=40))
    still = np.full((200, 1), 1000)
    moving = still + 900 * (np.arange(200)[:, None] % 2)
    with fixed_entropy(1):
        assert mechanism.start().push_batch(still).fresh.sum() < 20
        assert mechanism.start().push_batch(moving).fresh.sum() == 100


def test_the_filter_helps_and_each_switch_does_something():
    """On a random walk the filter lowers the error; every switch changes what is released."""
    random = np.random.default_rng(7)
    rows = np.cumsum(random.integers(-2, 3, (2000, 4)), axis=0) + 500
    policy = WEvent(epsilon="1", w=40)
    variants = {
        "full": Fast(policy, columns=4),
        "no filter": Fast(policy, columns=4, filter=False),
        "no control": Fast(policy, columns=4, adaptive=False),
        "blocks": Fast(policy, columns=4, blocks=True),
    }
    with fixed_entropy(6):
        values = {name: variant.start().push_batch(rows).values for name, variant in variants.items()}
    errors = {name: np.abs(value - rows).mean() for name, value in values.items()}
    assert errors["full"] < 0.9 * errors["no filter"]
    assert errors["full"] < errors["blocks"]
    assert len({value.tobytes() for value in values.values()}) == len(values)


def test_measurements_have_laplace_noise_of_the_stated_scale():
    """α = 1e-9, n = 40,000: unfiltered releases of zeros fit the scale MΔ/ε, and a scale off by a tenth is refused."""
    mechanism = Fast(WEvent(epsilon="1", w=8), columns=2, samples=8, filter=False)
    assert mechanism.scale == 8.0
    sample = (
        mechanism.start().push_batch(np.zeros((20_000, 2), dtype=np.int64)).values.astype(np.int64).ravel()
    )
    edges = np.arange(-40, 41, 4)

    def at_most(scale):
        q = math.exp(-1 / scale)
        return np.where(edges < 0, q ** (-edges) / (1 + q), 1 - q ** (edges + 1.0) / (1 + q))

    assert compare_integers(sample, edges, at_most(8.0)).ok
    assert not compare_integers(sample, edges, at_most(8.8)).ok
    assert not compare_integers(sample, edges, at_most(7.2)).ok


def test_the_printed_calibration_overspends_and_says_so():
    """Per-column sampling times overspend for moving units; the ledger and the guarantee tell."""
    policy = WEvent(epsilon="1", w=24)
    rows = np.random.default_rng(0).poisson(20, (600, 8))
    printed = Fast(policy, columns=8, calibration="paper")
    with fixed_entropy(1):
        run = printed.start()
        releases = run.push_batch(rows)
        again = printed.start()
        pieces = [again.push(row).values for row in rows[:100]]
        rest = printed.start(state=again.snapshot()).push_batch(rows[100:])
        sound = Fast(policy, columns=8).start()
        sound.push_batch(rows)
    assert np.array_equal(releases.values, np.concatenate([pieces, rest.values]))
    verdict = run.ledger.verify()
    assert not verdict.ok
    assert 1 < verdict.spent <= printed.guarantee.loss == 4
    assert "NOT" in str(printed.guarantee)
    assert sound.ledger.verify().ok
    # each column alone keeps its budget: at most M of its values change in any window
    changed = np.diff(releases.values, axis=0, prepend=0) != 0
    assert (
        max(np.convolve(changed[:, column], np.ones(24)).max() for column in range(8)) <= printed.measurements
    )


def test_the_printed_calibration_on_blocks_overspends_too():
    """The printed FAST_w, per-column times on blocks with ε/2, exceeds ε as well."""
    run = Fast(WEvent(epsilon="1", w=60), columns=8, blocks=True, calibration="paper").start()
    levels = np.array([2, 5, 20, 50, 200, 1000, 5000, 20000])
    run.push_batch(np.random.default_rng(0).poisson(levels, (3000, 8)))
    assert run.ledger.verify().spent > 1


def test_one_column_has_nothing_to_print():
    """With one column, or equal distances, the printed variant is the sound one."""
    policy = WEvent(epsilon="1", w=24)
    for mechanism in (
        Fast(policy, calibration="paper"),
        Fast(policy, columns=4, adaptive=False, calibration="paper"),
        Fast(policy, columns=4, samples=24, calibration="paper"),
    ):
        assert mechanism.guarantee.calibration == "sound"
        run = mechanism.start()
        run.push_batch(np.arange(240 * mechanism.columns).reshape(240, -1) % 31)
        assert run.ledger.verify().ok


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 0},
        {"samples": 25},
        {"samples": 2.0},
        {"adaptive": "yes"},
        {"filter": 3},
        {"sanity": 0.0},
        {"sanity": math.nan},
        {"calibration": "printed"},
        {"policy": User(epsilon="1", horizon=9), "blocks": True},
        {"policy": WEvent(rho="1", w=9)},
    ],
    ids=str,
)
def test_bad_parameters_are_refused_in_one_sentence(options):
    """Each bad parameter is refused, with its name and a remedy."""
    with pytest.raises(InvalidParameter) as error:
        Fast(**{"policy": WEvent(epsilon="1", w=24), "columns": 2, **options})
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pid(proportional=-1),
        lambda: Pid(set_point=0),
        lambda: Pid(recent=1),
        lambda: Pid(shortest=5, longest=4),
        lambda: Kalman(process_noise=-1),
        lambda: Kalman(measurement_noise=0),
        lambda: Kalman(fading=1.5),
        lambda: Kalman(process_noise="much"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(make):
    """Controllers and filters check their settings."""
    with pytest.raises(InvalidParameter) as error:
        make()
    assert len(str(error.value).splitlines()) == 1
