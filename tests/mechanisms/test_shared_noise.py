"""Noise shared by steps at work: the error it has, what it costs, and what becomes of its secret state.

Each of the conditions under which the state is private (docs/proofs/shared_noise.md) has a test here, and a run that
violates it, which the same test must notice.
"""

from functools import partial

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Uniform as Plain
from tidegate.noise import expected_absolute_laplace
from tidegate.testing.entropy import FixedEntropy

Uniform = partial(Plain, noise="auto")
GROUPS = Uniform(tg.WEvent(epsilon="1", window=12), noise="cube")
SLIDING = Uniform(tg.WEvent(epsilon="1", window=5))
LENGTHS = GROUPS.sharing.choice.lengths
FINGERPRINT = "9ac0e1388e41e28ceda8a5f12068b2ba"  # of Uniform(WEvent(epsilon="1", window=24)) in version 0.1
ZEROS = np.zeros((100, 1), dtype=np.int64)


# the choice ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "columns", "law", "most"),
    [
        (8, 1, "semiorder", 0.70),
        (16, 1, "semiorder", 0.64),
        (48, 1, "semiorder", 0.64),
        (120, 1, "cube", 0.60),
        (240, 1, "cube", 0.57),
        (16, 2, "semiorder", 0.83),
        (16, 3, "semiorder", 0.89),
    ],
)
def test_the_error_is_a_part_of_laplace(w, columns, law, most):
    """α = 5 standard errors of many windows: the mean absolute error over wΔ/ε is what is promised, and as expected."""
    mechanism = Uniform(tg.WEvent(epsilon="1/10", window=w), columns=columns)
    assert mechanism.sharing.choice.law == law
    steps = 400 * w
    errors = np.abs(Session(mechanism).push_batch(np.zeros((steps, columns), dtype=np.int64)).values)
    runs = errors[: 400 * w].reshape(400, -1).mean(axis=1)
    laplace, deviation = 10 * w, runs.std() / 20
    assert runs.mean() < most * laplace + 5 * deviation
    assert mechanism.expected_error() < most * laplace
    assert abs(runs.mean() - mechanism.expected_error()) < 6 * deviation
    assert (
        not abs(expected_absolute_laplace(laplace) - runs.mean()) < 6 * deviation
    )  # Laplace noise is noticed


def test_units_that_stay_in_their_column_leave_the_others_alone():
    """Fixed units: each column has noise of its own at the full budget; not so where a row may be replaced."""
    apart = Uniform(tg.WEvent(epsilon="1", window=120, mobility="fixed"), columns=3)
    alone = Uniform(tg.WEvent(epsilon="1", window=120))
    assert apart.expected_error() == alone.expected_error()
    assert apart.sharing.copies == 3
    values = Session(apart).push_batch(np.zeros((3000, 3), dtype=np.int64)).values
    assert abs(np.corrcoef(np.abs(values.T))[0, 1]) < 0.2
    both = Uniform(tg.WEvent(epsilon="1", window=120, mobility="fixed", adjacency="replace"), columns=3)
    assert both.sharing.copies == 1


@pytest.mark.parametrize(
    "mechanism",
    [
        Uniform(tg.Event(epsilon="1")),
        Uniform(tg.WEvent(epsilon="1", window=1), columns=4),
        Uniform(tg.WEvent(epsilon="1", window=24), columns=60),
        Uniform(tg.WEvent(epsilon="1", delta="1e-6", window=24)),
        Uniform(tg.WEvent(rho="1", window=24)),
        Uniform(tg.WEvent(epsilon="1", window=2**24)),
        Uniform(tg.User(epsilon="1000", horizon=2), columns=50),
    ],
    ids=str,
)
def test_where_sharing_gains_nothing_noise_is_as_before(mechanism):
    """One step, many columns, a δ, numbers beyond the draws: no shared noise, no secret, the old description."""
    assert mechanism.sharing is None
    assert not any("secret" in clause for clause in mechanism.guarantee.assumptions)
    assert "noise" not in mechanism.describe()
    assert Session(mechanism).push(np.zeros(mechanism.columns, dtype=np.int64)).fresh


@pytest.mark.parametrize(
    ("policy", "noise", "words"),
    [
        (tg.WEvent(epsilon="1", window=4), "gumbel", "'auto' or 'laplace'"),
        (tg.WEvent(rho="1", window=4), "cube", "'auto' where delta or rho"),
        (tg.User(epsilon="1", horizon=4), "semiorder", "a law that exists"),
    ],
)
def test_noise_that_does_not_exist_is_refused(policy, noise, words):
    """Each refusal names the parameter and the remedy."""
    with pytest.raises(InvalidParameter, match=words):
        Uniform(policy, noise=noise)


def test_the_guarantee_says_that_the_state_is_secret():
    """Whoever shares noise is told to keep snapshots and the database as secret as the data."""
    assert any("as secret as the data" in clause for clause in GROUPS.guarantee.assumptions)


@pytest.mark.parametrize("mechanism", [GROUPS, SLIDING], ids=["groups", "sliding"])
def test_intervals_know_the_law(mechanism):
    """90 % of 40,000 values are within the law's radius, and its interval, which holds at every step, has no fewer.

    The scale is that of Laplace noise with the same variance.
    """
    releases = Session(mechanism).push_batch(np.zeros((40_000, 1), dtype=np.int64))
    low, high = releases.interval(0.9)
    assert 0.88 < (np.abs(releases.values) <= mechanism.sharing.law.radius(0.9)).mean() < 0.94
    assert 0.88 < ((low <= 0) & (high >= 0)).mean() < 0.98
    assert 2 * releases.scale[0] ** 2 == pytest.approx(releases.values.var(), rel=0.1)
    single = Session(mechanism).push(0)
    assert single.scale == releases.scale[0]
    assert single.radius(0.9) == releases.radius(0.9)[0]


# the seven conditions ----------------------------------------------------------------------------------------------


def test_a_sign_is_drawn_once():
    """6: steps that are placed ahead have arrival and sign; drawn anew, a sign would tell the raw value of a step."""
    law = Uniform(tg.WEvent(epsilon="1/1000", window=5)).sharing.law
    redrawn = 0
    for seed in range(30):
        _, state = law.draw(FixedEntropy(seed), "first", 0, law.start(), 7)
        numbers = state.numbers()
        if not numbers["tracks"][0]["ahead"][0]:
            continue  # the next step is not placed yet
        found = {
            law.draw(FixedEntropy(other), "again", 7, law.restore(numbers))[0].item() for other in range(8)
        }
        assert len(found) == 1
        for gap, word in enumerate(numbers["tracks"][0]["gaps"][0]):
            numbers["tracks"][0]["gaps"][0][gap] = word ^ 1  # violated: the same arrival with another sign
        other = law.draw(FixedEntropy(0), "again", 7, law.restore(numbers))[0].item()
        assert found == {-other}
        redrawn += 1
    assert redrawn > 5


# what it costs -------------------------------------------------------------------------------------------------
