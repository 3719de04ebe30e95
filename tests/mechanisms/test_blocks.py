from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Blocks, Fast, Sample, Uniform
from tidegate.mechanisms.plain.blocks import blocks_met
from tidegate.policy import User, WEvent
from tidegate.testing.entropy import fixed_entropy, zero_noise


def spent(session):
    """What the last window has spent, as a part of the budget."""
    return Fraction(sum(session.spent.values()), session._queries[0].mechanism.units)


@settings(max_examples=40)
@given(
    w=st.integers(1, 12),
    every=st.integers(1, 12),
    steps=st.integers(1, 60),
    cut=st.integers(0, 60),
    kind=st.sampled_from(["uniform", "sample", "fast"]),
)
def test_no_window_spends_more_than_two_blocks(w, every, steps, cut, kind):
    """Whatever runs on the blocks, the account of the whole accepts it; windows stay within 2ε, for w = 1 within ε."""
    policy = User(epsilon="1/2", horizon=w)
    inner = {
        "uniform": lambda: Uniform(policy, columns=2),
        "sample": lambda: Sample(policy, columns=2, every=min(every, w)),
        "fast": lambda: Fast(policy, columns=2, samples=min(every, w)),
    }[kind]()
    mechanism = Blocks(inner)
    total = Fraction(1, 2) if w == 1 else 1
    assert mechanism.policy == WEvent(epsilon=total, window=w)
    run = Session(mechanism)
    rows = np.arange(2 * steps).reshape(steps, 2) % 17
    cut = min(cut, steps)
    releases = [*run.push_batch(rows[:cut]), *(run.push(row) for row in rows[cut:])]
    spent = [release.spent for release in releases]
    for last in range(steps):
        assert sum(spent[max(0, last - w + 1) : last + 1], Fraction(0)) <= total
    for first in range(0, steps, w):
        assert sum(spent[first : first + w], Fraction(0)) <= Fraction(1, 2)


def test_every_block_starts_afresh():
    """Each block is measured anew at its first step, and says so with the step of the whole stream."""
    with zero_noise():
        run = Session(Blocks(Sample(User(epsilon="1", horizon=5))))
        releases = run.push_batch(np.arange(12)[:, None])
    assert releases.values[:, 0].tolist() == [0] * 5 + [5] * 5 + [10] * 2
    assert releases.source.tolist() == [1] * 5 + [6] * 5 + [11] * 2
    assert np.flatnonzero(releases.fresh).tolist() == [0, 5, 10]


def test_blocks_have_noise_of_their_own():
    """Under test entropy, too, two blocks of equal data are released differently."""
    with fixed_entropy(3):
        values = Session(Blocks(Uniform(User(epsilon="1", horizon=50)))).push_batch(np.zeros((100, 1))).values
    assert not np.array_equal(values[:50], values[50:])


def test_fast_on_blocks_is_blocks_of_fast():
    """`Fast(blocks=True)` releases what `Blocks` releases with FAST at half the budget."""
    policy = WEvent(epsilon="1", window=20)
    whole = Fast(policy, columns=3, blocks=True, samples=4, noise="laplace")
    rows = np.random.default_rng(1).poisson(30, (90, 3))
    with fixed_entropy(5):
        one = Session(whole).push_batch(rows)
        inner = Fast(User(epsilon="1/2", horizon=20), columns=3, samples=4, noise="laplace")
        other = Session(Blocks(inner)).push_batch(rows)
    for name in ("values", "status", "source", "scale"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert whole.scale == whole.inner.scale == 8.0


def test_zcdp_blocks():
    """Blocks of a zCDP mechanism double ρ, those of one step do not."""
    assert Blocks(Uniform(User(rho="1/2", horizon=7))).policy == WEvent(rho="1", window=7)
    assert Blocks(Uniform(User(rho="1/2", horizon=1))).policy == WEvent(rho="1/2", window=1)


@pytest.mark.parametrize("w", [1, 2, 5])
def test_the_budget_is_that_of_the_blocks_a_window_meets(w):
    """By enumeration: a window of w steps meets min(2, w) blocks of w steps, and a full ledger says what they spend."""
    met = max(len({(first + step) // w for step in range(w)}) for first in range(3 * w))
    assert met == blocks_met(w)
    policy = User(epsilon="1", horizon=w)
    for inner in (Uniform(policy, noise="laplace"), Uniform(policy, noise="auto"), Fast(policy, samples=w)):
        mechanism = Blocks(inner)
        assert mechanism.policy.budget.total == met
        assert mechanism.units == met * inner.units
        run = Session(mechanism)
        most = Fraction(0)
        for _ in range(3 * w + 1):
            run.push([0])
            most = max(most, spent(run) * met)
        assert most <= met
        # with Laplace noise Uniform pays step by step and a window has w of them; else two blocks pay for all of it.
        # `spent` leaves out spans that no later window meets, so that a window of two steps never shows both
        if isinstance(inner, Uniform) and w != 2:
            assert most == (met if inner.shares_noise else 1)


def test_fast_on_blocks_of_one_step_has_the_whole_budget():
    """`Fast(blocks=True)` with w = 1 measures every step with ε, as Uniform does."""
    mechanism = Fast(WEvent(epsilon="1/2", window=1), blocks=True)
    assert mechanism.scale == mechanism.inner.scale == Uniform(WEvent(epsilon="1/2", window=1)).scale == 2.0
    assert Blocks(mechanism.inner).policy == mechanism.policy


@pytest.mark.parametrize(
    "inner",
    [
        Uniform(WEvent(epsilon="1", window=4)),
        "Uniform",
        Uniform(User(epsilon="1", delta="1e-6", horizon=4)),
    ],
    ids=["w-event", "text", "delta"],
)
def test_what_cannot_run_on_blocks_is_refused(inner):
    """Only mechanisms with a user-level policy and a pure or zCDP budget run on blocks."""
    with pytest.raises(InvalidParameter) as error:
        Blocks(inner)
    assert len(str(error.value).splitlines()) == 1
