"""What must hold for FAST and RescueDP alike: windows, decisions, restoring, bad input, each part a switch."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.errors import AccountRefused
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import Fast, RescueDP
from tidegate.mechanisms.sampled.grouping import Grouping
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.policy import User, WEvent
from tidegate.testing.entropy import fixed_entropy

BOTH = pytest.mark.parametrize("kind", [Fast, RescueDP])


@st.composite
def mechanisms(draw):
    """FAST with any switches, or RescueDP with the most generous budgets."""
    w, columns = draw(st.integers(1, 15)), draw(st.sampled_from([1, 2, 5, 17]))
    policy = WEvent(epsilon="1", window=w, adjacency=draw(st.sampled_from(["add-remove", "replace"])))
    control = draw(st.sampled_from([False, True, Pid(shortest=1)]))
    if draw(st.booleans()):
        samples, blocks = draw(st.integers(1, w)), draw(st.booleans())
        return Fast(
            policy, columns=columns, samples=samples, blocks=blocks, adaptive=control, noise="laplace"
        )
    return RescueDP(
        policy,
        columns=columns,
        adaptive=control,
        pace=draw(st.sampled_from([None, 1.0, 2.0])),
        allocation=draw(st.booleans()),
        most="1",
        portion=0.9,
        most_portion=1.0,
    )


@settings(max_examples=120)
@given(mechanism=mechanisms(), seed=st.integers(0, 2**32 - 1))
def test_no_window_spends_more_than_its_budget(mechanism, seed):
    """The largest possible loss between extreme neighbours, Σ ‖difference‖₁/scale over measured steps, is at most ε."""
    policy, random = mechanism.policy, np.random.default_rng(seed)
    level = random.choice([1, 30, 1000])
    rows = random.poisson(level, (60, mechanism.columns)) * random.integers(0, 3, (60, 1))
    run = Session(mechanism)
    releases = run.push_batch(rows)
    other = policy.extreme_neighbour(rows, lambda n: int(random.integers(n)))
    difference = np.abs(rows - other).sum(axis=1)
    loss = sum(
        Fraction(int(difference[at])) / Fraction(float(releases.scale[at]))
        for at in np.flatnonzero(releases.fresh)
    )
    assert loss <= 1
    assert max(np.convolve(releases.units, np.ones(policy.window, dtype=np.int64))) <= mechanism.units
    if isinstance(mechanism, Fast):
        assert max(np.convolve(releases.fresh, np.ones(policy.window))) <= mechanism.units


@pytest.mark.parametrize(
    "mechanism",
    [
        Fast(WEvent(epsilon="1", window=20), columns=3, samples=6),
        Fast(WEvent(epsilon="1", window=20), columns=30),
        RescueDP(WEvent(epsilon="1", window=20), columns=3),
        RescueDP(WEvent(epsilon="1", window=20), columns=30),
    ],
    ids=str,
)
def test_data_of_steps_that_are_not_measured_do_not_matter(mechanism):
    """Decisions come from measurements: other data at the steps in between give the very same transcript."""
    rows = np.random.default_rng(0).poisson(20, (300, mechanism.columns))
    with fixed_entropy(2):
        releases = Session(mechanism).push_batch(rows)
        again = Session(mechanism).push_batch(np.where(releases.fresh[:, None], rows, 10_000))
    assert 0 < releases.fresh.sum() < 300
    for name in ("values", "status", "units", "source", "scale"):
        assert np.array_equal(getattr(releases, name), getattr(again, name))


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"samples": 0},
        {"samples": 25},
        {"samples": 2.0},
        {"adaptive": "yes"},
        {"filter": 3},
        {"policy": WEvent(epsilon="1", delta="1e-6", window=9)},
    ],
    ids=str,
)
def test_bad_parameters_are_refused_in_one_sentence(kind, options):
    """Each bad parameter is refused, with its name and a remedy."""
    with pytest.raises(InvalidParameter) as error:
        kind(**{"policy": WEvent(epsilon="1", window=24), "columns": 2, **options})
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fast(WEvent(epsilon="1", window=24), sanity=0.0),
        lambda: Fast(WEvent(epsilon="1", window=24), sanity=math.nan),
        lambda: Fast(User(epsilon="1", horizon=9), blocks=True),
        lambda: RescueDP(WEvent(epsilon="1", window=24), grouping=None),
        lambda: RescueDP(WEvent(epsilon="1", window=24), allocation="yes"),
        lambda: RescueDP(WEvent(epsilon="1", window=24), portion=0),
        lambda: RescueDP(WEvent(epsilon="1", window=24), most_portion=1.5),
        lambda: RescueDP(WEvent(epsilon="1", window=24), most="2"),
        lambda: RescueDP(WEvent(epsilon="1", window=24), pace=0.5),
        lambda: RescueDP(WEvent(epsilon="1e-9", window=2**39)),
        lambda: Pid(proportional=-1),
        lambda: Pid(set_point=0),
        lambda: Pid(recent=1),
        lambda: Pid(shortest=5, longest=4),
        lambda: Kalman(process_noise=-1),
        lambda: Kalman(measurement_noise=0),
        lambda: Kalman(fading=1.5),
        lambda: Kalman(process_noise="much"),
        lambda: Grouping(small=0),
        lambda: Grouping(similarity=2),
        lambda: Grouping(recent=1),
        lambda: Grouping(difference="far"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(make):
    """Each mechanism checks what only it has; controllers, filters and groupings check their settings."""
    with pytest.raises(InvalidParameter) as error:
        make()
    assert len(str(error.value).splitlines()) == 1


@BOTH
def test_bad_steps_are_refused_and_cost_nothing(kind):
    """Other columns, a step that has passed: one sentence, nothing charged."""
    policy = WEvent(epsilon="1", window=4)
    run = Session(kind(policy, columns=3))
    run.push([1, 2, 3])
    spent = run.spent
    with pytest.raises(InvalidInput, match="has 3 columns"):
        run.push([1, 2])
    with pytest.raises(InvalidInput, match="3 columns"):
        run.push_batch(np.zeros((4, 2), dtype=np.int64))
    with pytest.raises(AccountRefused, match="was released already"):
        run.push([1, 2, 3], step=1)
    assert run.spent == spent
