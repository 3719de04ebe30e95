import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributions import compare_integers, laplace_at_most
from tidegate.core.session import Session
from tidegate.mechanisms import RescueDP
from tidegate.mechanisms.sampled import rescue_dp as loop
from tidegate.mechanisms.sampled.grouping import Grouping, form_groups
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.noise import current, laplace
from tidegate.policy import User, WEvent
from tidegate.testing.entropy import fixed_entropy, zero_noise


def plain_groups(history, small, alike, difference):
    """Dynamic grouping in plain Python: the pivot of each column."""
    predicted = (history / len(history)).sum(axis=0)
    pivot_of = list(range(history.shape[1]))
    left = sorted((c for c in pivot_of if predicted[c] < small), key=lambda c: predicted[c])
    while left:
        pivot, *others = left
        weight, left, full = max(predicted[pivot], 0), [], False
        for column in others:
            full = full or weight >= small or predicted[column] - predicted[pivot] >= difference
            one, other = history[:, pivot] - predicted[pivot], history[:, column] - predicted[column]
            spread = math.sqrt((one**2).sum() * (other**2).sum())
            still = float(not one.any() and not other.any())
            if not full and ((one * other).sum() / spread if spread else still) >= alike:
                pivot_of[column] = pivot
                weight += max(predicted[column], 0)
            else:
                left.append(column)
    return pivot_of


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 30), recent=st.integers(2, 5))
def test_groups_are_those_of_the_plain_reference(seed, columns, recent):
    """The compiled grouping partitions the columns as a plain transcription of the rule does."""
    random = np.random.default_rng(seed)
    history = random.normal(10, 12, (recent, columns))
    pivot_of = np.zeros(columns, dtype=np.int64)
    counts = np.array([recent])
    form_groups(np.array([True]), history, counts, 25.0, 0.3, 8.0, pivot_of)
    assert pivot_of.tolist() == plain_groups(history, 25.0, 0.3, 8.0)
    assert all(pivot_of[pivot] == pivot for pivot in pivot_of)


def test_columns_that_stand_still_are_alike():
    """Constant columns have no correlation; they are grouped with each other and not with moving ones."""
    history = np.array([[1.0, 1.0, 0.5, 1.5], [1.0, 1.0, 1.5, 1.5]])
    pivot_of = np.zeros(4, dtype=np.int64)
    form_groups(np.array([True]), history, np.array([2]), 100.0, 0.5, 100.0, pivot_of)
    assert pivot_of.tolist() == [0, 0, 2, 0]


@settings(max_examples=200)
@given(
    remaining=st.integers(0, 2**40),
    interval=st.floats(1, 1e6),
    portion=st.floats(0.01, 1.0),
    most_portion=st.floats(0.01, 1.0),
)
def test_allocation_is_the_portion_rounded_down(remaining, interval, portion, most_portion):
    """A measurement spends min(φ·ln(I + 1), p_max) of what remains, in whole units, and never more than there is."""
    nothing = loop.Constants(0, 0, 0, 0, 0, False, *[0.0] * 9)
    constants = nothing._replace(
        most=2**38, least=2**10, portion=portion, most_portion=most_portion, pace=2.0**30
    )
    amount = loop.allocate(remaining, interval, constants)
    wanted = min(portion * math.log(interval + 1), most_portion) * remaining
    wanted = min(wanted, 2**38, 2**30 * interval)
    assert 0 <= amount <= remaining
    assert amount == 0 or wanted * (1 - 1e-12) - 1 <= amount <= wanted * (1 + 1e-12)
    assert amount > 0 or wanted < 2**10 * (1 + 1e-9)


def reference(mechanism, rows, source):
    """RescueDP in plain Python, without the printed variant: (values, units of each step)."""
    steps, columns = rows.shape
    window, units = mechanism.policy.window or steps, mechanism.units
    pid, groups, filter_ = mechanism.adaptive, mechanism.grouping, mechanism.filter
    whole = mechanism.unit_scale(units)
    x, variance, noise_before, z_before = np.zeros(columns), None, None, None
    squares, gaps = np.zeros(columns), np.zeros(columns)
    history, errors, spent, last, count, due = [], [], [0] * (steps + 1), 0, 0, 1
    interval, values = float(-(-window // mechanism.samples)), []

    def allocated(remaining):
        if not mechanism.allocation or mechanism.portion * math.log(2) < 1 / window:
            fixed = units // (window if mechanism.allocation else mechanism.samples)
            return fixed if fixed <= remaining else 0
        portion = min(mechanism.portion * math.log(interval + 1), mechanism.most_portion)
        pace = math.inf if mechanism.pace is None else int(mechanism.pace * units / window * interval)
        amount = min(int(portion * remaining), int(mechanism.most * units), pace)
        return amount if amount >= units // window else 0

    def scale_of(amount):
        nearest = whole / amount
        exact = Fraction(nearest) * amount == Fraction(whole)
        return nearest if exact else math.nextafter(nearest, math.inf)

    for step in range(1, steps + 1):
        first = max(1, step - window + 1)
        amount = allocated(units - sum(spent[first:step])) if step >= due else 0
        if amount:
            spent[step] = amount
            scale, pivots = scale_of(amount), list(range(columns))
            if groups and columns > 1 and count >= groups.recent:
                small = groups.small or scale
                pivots = plain_groups(
                    np.array(history[-groups.recent :]), small, groups.similarity, groups.difference or small
                )
            noise = laplace(source, "rescue", step, scale, (columns,))
            prior, gap = x.copy(), step - last
            change = {}
            for pivot in set(pivots):
                members = [c for c in range(columns) if pivots[c] == pivot]
                size = len(members)
                share = (int(rows[step - 1, members].sum()) + int(noise[pivot])) / size
                spread = ((prior[members] - prior[members].mean()) ** 2).mean() if size > 1 else 0.0
                known = (filter_ and filter_.measurement_noise) or 2 * scale**2
                r = known / size**2 + spread
                for c in members:
                    if count == 0:
                        variance = np.zeros(columns) if variance is None else variance
                        noise_before = np.zeros(columns) if noise_before is None else noise_before
                        z_before = np.zeros(columns) if z_before is None else z_before
                    if count == 0 or not filter_:
                        x[c], variance[c] = share, r
                    else:
                        walk = filter_.process_noise
                        if walk is None:
                            both = r + noise_before[c]
                            excess = (share - z_before[c]) ** 2 - both
                            weight = 1 / max(both, 1e-6) ** 2
                            squares[c] = filter_.fading * squares[c] + weight * excess
                            gaps[c] = filter_.fading * gaps[c] + weight * gap
                            walk = max(squares[c], 0) / gaps[c]
                        p = variance[c] + gap * walk
                        x[c] = prior[c] + p / (p + r) * (share - prior[c])
                        variance[c] = p - p / (p + r) * p
                    z_before[c], noise_before[c] = share, r
                change[pivot] = abs(sum(x[c] - prior[c] for c in members))
            history.append(x.copy())
            count += 1
            if not pid:
                interval = float(-(-window // mechanism.samples))
            elif count > 1:
                errors.append(sum(change.values()) / len(change))
                recent = errors[-pid.recent :]
                signal = pid.proportional * errors[-1] + pid.integral * sum(recent) / len(recent)
                if len(errors) > 1:
                    signal += pid.derivative * (errors[-1] - errors[-2]) / gap
                first = max(1, step + 1 - window + 1)
                following = max(allocated(units - sum(spent[first : step + 1])), units // window)
                interval += pid.reach * (1 - (signal / scale_of(following)) ** 2)
                interval = min(max(interval, pid.shortest or 1), pid.longest or window)
            last, due = step, step + int(interval)
        values.append(x.copy())
    return np.array(values), spent[1:]


CONFIGURATIONS = [
    RescueDP(WEvent(epsilon="4", window=20), columns=6),
    RescueDP(WEvent(epsilon="4", window=20), columns=25, grouping=Grouping(similarity=-0.5)),
    RescueDP(
        WEvent(epsilon="1", window=30), columns=5, filter=Kalman(9.0, 400.0), adaptive=Pid(derivative=0.2)
    ),
    RescueDP(WEvent(epsilon="2", window=15), columns=20, grouping=Grouping(60.0, 0.2, 40.0, 2), pace=None),
    RescueDP(User(epsilon="9", horizon=200), columns=3, filter=False),
    RescueDP(WEvent(epsilon="2", window=3), columns=2),
    RescueDP(WEvent(epsilon="2", window=7), columns=2),
    RescueDP(WEvent(epsilon="3", window=12), columns=4, allocation=False, adaptive=False, grouping=False),
]


@pytest.mark.parametrize("mechanism", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_agrees_with_the_plain_reference(mechanism):
    """The compiled loop releases, and spends, what a plain transcription of the algorithm does."""
    random = np.random.default_rng(9)
    levels = 10.0 ** random.uniform(0, 2.5, mechanism.columns)
    rows = random.poisson(levels * (1 + np.arange(200)[:, None] // 80), (200, mechanism.columns))
    with fixed_entropy(21):
        releases = Session(mechanism).push_batch(rows)
        values, spent = reference(mechanism, rows, current())
    assert releases.units.tolist() == spent
    np.testing.assert_allclose(releases.values, values, rtol=1e-7, atol=1e-7)


def test_a_group_shares_one_measurement():
    """Once grouped, small columns are released with the mean of their noisy sum: noise of a fifth in each."""
    grouping = Grouping(small=1e6, similarity=-1.0, difference=1e6, recent=2)
    options = {"columns": 5, "adaptive": False, "allocation": False, "filter": False, "samples": 4}
    mechanism = RescueDP(WEvent(epsilon="1", window=4), grouping=grouping, **options)
    with zero_noise():
        values = Session(mechanism).push_batch(np.tile([0, 1, 2, 3, 9], (4, 1))).values
    assert values[:2].tolist() == [[0, 1, 2, 3, 9]] * 2
    assert values[2:].tolist() == [[3] * 5] * 2


def test_group_sums_have_laplace_noise_of_the_stated_scale():
    """α = 1e-9, n = 20,000: five times the shared value fits the scale of one measurement, and not half of it."""
    grouping = Grouping(small=1e6, similarity=-1.0, difference=1e6, recent=2)
    options = {"columns": 5, "adaptive": False, "allocation": False, "filter": False, "samples": 4}
    releases = Session(RescueDP(WEvent(epsilon="1", window=4), grouping=grouping, **options)).push_batch(
        np.zeros((20_002, 5), dtype=np.int64)
    )
    grouped = releases.values[2:]
    assert (grouped == grouped[:, :1]).all()
    sample = np.rint(5 * grouped[:, 0]).astype(np.int64)
    edges = np.arange(-20, 21, 2)
    assert compare_integers(sample, edges, laplace_at_most(edges, 4.0)).ok
    assert not compare_integers(sample, edges, laplace_at_most(edges, 3.5)).ok
    assert not compare_integers(sample, edges, laplace_at_most(edges, 2.0)).ok


def test_every_component_helps_somewhere():
    """Grouping and filter lower the error on many small columns; each switch changes what is released."""
    rows = np.random.default_rng(3).poisson(2, (400, 60))
    policy = WEvent(epsilon="1", window=24)
    switches = ["", "adaptive", "allocation", "grouping", "filter"]
    with fixed_entropy(4):
        values = {
            name: Session(RescueDP(policy, columns=60, **({name: False} if name else {})))
            .push_batch(rows)
            .values
            for name in switches
        }
    errors = {name: np.abs(np.maximum(value, 0) - rows).mean() for name, value in values.items()}
    assert errors[""] < 0.9 * errors["grouping"]
    assert errors[""] < errors["filter"]
    assert len({value.tobytes() for value in values.values()}) == len(switches)


def test_the_pace_saves_long_windows():
    """Without the pace a few dear measurements starve a long window; with it the error stays near Uniform's."""
    time = np.arange(3000)
    rows = (20_000 + 8000 * np.sin(time / 40)).astype(np.int64)[:, None]
    policy = WEvent(epsilon="1", window=500)
    with fixed_entropy(4):
        paced = Session(RescueDP(policy)).push_batch(rows).values
        printed = Session(RescueDP(policy, pace=None)).push_batch(rows).values
    assert np.abs(paced - rows).mean() < 0.3 * np.abs(printed - rows).mean()


def test_a_slow_wave_is_followed_where_measurements_differ_in_noise():
    """What weak measurements say of movement counts little: taken alike, the filter stood still (error 25, 68 % held)."""
    wave = np.rint(300 + 100 * np.sin(np.arange(200) / 40)).astype(np.int64)
    rows = np.repeat(wave[:, np.newaxis], 4, axis=1)
    held, errors = [], []
    for number in range(8):
        with fixed_entropy(f"wave {number}"):
            releases = Session(RescueDP(WEvent(epsilon="1", window=24), columns=4)).push_batch(rows)
        off = np.abs(releases.values - rows)
        errors.append(off.mean())
        held.append((off <= releases.radius(0.9)).mean())
    assert np.mean(held) >= 0.85
    assert np.mean(errors) <= 18
