"""Guarantees: sentences, longer sequences, heavier users, comparison."""

from fractions import Fraction

import pytest

import tidegate as tg
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.policy import Approximate, Guarantee, Pure, ZeroConcentrated
from tidegate.structures.value_bins import ValueBins


def promise(policy, **more):
    """A guarantee of some mechanism."""
    return Guarantee("Uniform", policy, **more)


def test_it_reads_as_a_sentence():
    """Mechanism, budget, unit, policy and assumptions, in one line."""
    text = str(promise(tg.WEvent(epsilon="0.5", window=24), assumptions=("the clock is public",)))
    assert text == (
        "Uniform is 0.5-differentially private for everything within any 24 consecutive steps: a change of at most 1 "
        "in each of them (w-event privacy). It assumes that the clock is public."
    )


def test_longer_sequences_and_heavier_users():
    """k steps take ⌈k/w⌉ windows; n tuples n times the budget; both say that correlated records may lose more."""
    weekly = promise(tg.WEvent(epsilon="1", window=24))
    assert weekly.over(steps=24).budget == Pure(Fraction(1))
    assert weekly.over(steps=25).budget == Pure(Fraction(2))
    assert weekly.over(steps=168).budget == Pure(Fraction(7))
    assert weekly.for_tuples(3).budget == Pure(Fraction(3))
    assert "correlated" in str(weekly.over(steps=30))
    assert "correlated" in str(weekly.for_tuples(2))
    assert promise(tg.Event(epsilon="1")).over(steps=5).budget == Pure(Fraction(5))
    assert promise(tg.User(epsilon="1", horizon=9)).over(steps=5).budget == Pure(Fraction(1))
    assert promise(tg.Event(rho="1/2")).for_tuples(3).budget == ZeroConcentrated(Fraction(9, 2))


def test_delta_grows_with_the_group_rounded_up():
    """δ·(e^(nε) − 1)/(e^ε − 1), never rounded down."""
    budget = promise(tg.Event(epsilon="1", delta="1e-6")).for_tuples(2).budget
    assert isinstance(budget, Approximate)
    exactly = 1e-6 * (1 + 2.718281828459045)
    assert exactly <= float(budget.delta) <= exactly * (1 + 1e-9)


def test_printed_variants_say_what_they_lose():
    """A printed calibration never claims to be private."""
    text = str(promise(tg.WEvent(epsilon=1, window=3), calibration="paper", loss=Fraction(3, 2)))
    assert "does NOT keep its promise" in text
    assert "1.5 times" in text


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        (tg.WEvent(epsilon=1, window=24), tg.WEvent(epsilon=1, window=12)),
        (tg.WEvent(epsilon=1, window=24), tg.Event(epsilon=2)),
        (tg.User(epsilon=1, horizon=100), tg.User(epsilon=1, horizon=50)),
        (tg.WEvent(epsilon=1, window=24), tg.WEvent(epsilon=1, delta="1e-6", window=24)),
        (tg.Event(epsilon=1, max_change=2), tg.Event(epsilon=1)),
        (tg.Event(epsilon=1), tg.Event(epsilon=1, mobility="fixed")),
        (tg.Event(epsilon=1), tg.Event(rho="1/2")),
        (tg.WEvent(epsilon=1, window=3), tg.WEvent(epsilon=1, window=3, touches=2)),
        (tg.WEvent(epsilon=1, window=3, touches=2), tg.WEvent(epsilon=1, window=3, touches=1)),
    ],
)
def test_comparison(stronger, weaker):
    """A guarantee implies the weaker one and not the other way round."""
    assert promise(stronger).implies(promise(weaker))
    assert promise(stronger).implies(promise(stronger))
    assert not promise(weaker).implies(promise(stronger))
    assert not promise(stronger, calibration="paper").implies(promise(weaker))


def test_several_units_are_compared_with_their_like():
    """A window's guarantee says nothing of two windows or two units, even with the budget that they have together."""
    one, two = (promise(tg.WEvent(epsilon=epsilon, window=24)) for epsilon in (1, 2))
    assert one.over(steps=48).implies(two.over(steps=48))
    assert one.for_tuples(2).implies(two.for_tuples(2))
    for several in (one.over(steps=48), one.for_tuples(2)):
        assert not two.implies(several)
        assert not several.implies(two)
        assert several.implies(several)


def test_frozen_and_comparable():
    """Equal facts are equal and cannot be changed."""
    assert promise(tg.Event(epsilon=1)) == promise(tg.Event(epsilon="1"))
    with pytest.raises(AttributeError):
        promise(tg.Event(epsilon=1)).mechanism = "other"


@pytest.mark.parametrize("policy", [tg.Event(epsilon=1, max_change=100, mobility="fixed", touches=2)])
def test_what_a_policy_declares_stands_in_every_sentence(policy):
    """Whoever makes the guarantee: noise was scaled by it, and nothing checks it."""
    made = [
        promise(policy),
        promise(policy).for_tuples(2),
        tg.mechanisms.Threshold(policy, sample=20, above=2).guarantee,
        tg.mechanisms.Uniform(policy, columns=3).guarantee,
        tg.mechanisms.Fourier(
            tg.WEvent(epsilon="1", window=6, mobility="fixed", touches=2), columns=2
        ).guarantee,
    ]
    for guarantee in made:
        assert str(guarantee).count("that a unit stays in one column within any window") == 1
        assert str(guarantee).count("that a unit touches at most 2 columns in one step") == 1


def test_units_do_not_stay_in_the_bins_of_their_values():
    """Values that are in bins, from Python too."""
    policy = tg.WEvent(epsilon="1", window=3, max_change=10, mobility="fixed")
    bins = ValueBins(10)
    with pytest.raises(tg.errors.InvalidParameter, match="mobility"):
        ClippedRecords(policy, build=tg.mechanisms.Uniform, bins=bins, learn=5)
