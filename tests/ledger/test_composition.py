"""Composition against exact enumeration with bracketed exponentials, and against known numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.composition import (
    delta_of,
    group_delta,
    largest_step,
    optimal,
    simple_step,
    slots_of,
    zcdp_delta,
    zcdp_rho,
)
from tidegate.errors import InvalidParameter


def exp_bounds(value):
    """e^value between two fractions, by its series with 60 terms after halving the argument."""
    halvings = max(0, math.ceil(abs(value)).bit_length())
    small = value / 2**halvings
    term = total = Fraction(1)
    for n in range(1, 60):
        term = term * small / n
        total += term
    low, high = total - abs(term), total + abs(term)
    for _ in range(halvings):
        low, high = low * low, high * high
        low, high = (Fraction(math.floor(low * 10**80), 10**80), Fraction(math.ceil(high * 10**80), 10**80))
    return low, high


def brute(sizes, unit, epsilon):
    """The hockey-stick divergence over all outcomes of the randomised responses, between two fractions."""
    low = high = Fraction(0)
    for signs in itertools.product((1, -1), repeat=len(sizes)):
        loss = sum(sign * size for sign, size in zip(signs, sizes, strict=True)) * unit
        if loss <= epsilon:
            continue
        weight_low = weight_high = Fraction(1)
        for sign, size in zip(signs, sizes, strict=True):
            down, up = exp_bounds(-sign * size * unit)
            weight_low, weight_high = weight_low / (1 + up), weight_high / (1 + down)
        down, up = exp_bounds(epsilon - loss)
        low, high = low + weight_low * (1 - up), high + weight_high * (1 - down)
    return low, high


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    unit=st.fractions(Fraction(1, 50), Fraction(1), max_denominator=60),
    share=st.fractions(0, Fraction(11, 10), max_denominator=40),
)
def test_delta_of_is_the_tight_upper_bound(sizes, unit, share):
    """Homogeneous and mixed compositions agree with the sum over all outcomes."""
    epsilon = sum(sizes) * unit * share
    low, high = brute(sizes, unit, epsilon)
    found = delta_of({size: sizes.count(size) for size in sizes}, unit, epsilon)
    assert low <= found <= high * (1 + Fraction(1, 10**30)) + Fraction(1, 10**60)


def test_known_numbers():
    """ε = 0.1, δ = 8.5e-9 over 672 steps: scale 1196 exactly composed, 1583 by the closed bound."""
    epsilon, delta = Fraction("0.1"), Fraction("8.5e-9")
    step = largest_step(672, epsilon, delta)
    assert round(1 / float(step)) == 1196
    assert math.ceil(1 / simple_step(672, epsilon, delta)) == 1583
    assert (
        delta_of({1: 672}, step, epsilon)
        <= delta
        < delta_of({1: 672}, step * (1 + Fraction(1, 2**50)), epsilon)
    )


@settings(max_examples=25)
@given(
    count=st.integers(1, 3000),
    epsilon=st.fractions(Fraction(1, 100), 8, max_denominator=100),
    exponent=st.integers(1, 20),
)
def test_largest_step_is_allowed_and_never_below_plain_addition(count, epsilon, exponent):
    """The step found keeps (ε, δ), and plain addition or the closed bound never allow more."""
    delta = Fraction(1, 10**exponent)
    step = largest_step(count, epsilon, delta)
    assert delta_of({1: count}, step, epsilon) <= delta
    assert step >= epsilon / count
    assert step >= simple_step(count, epsilon, delta)


def test_pure_steps_need_no_delta():
    """Plain addition costs δ = 0 exactly."""
    assert delta_of({1: 3, 2: 4}, Fraction(1, 11), Fraction(1)) == 0
    assert delta_of({}, Fraction(1), Fraction(0)) == 0


def test_coarser_lattices_and_long_compositions_only_round_up(monkeypatch):
    """Where the exact sum would be too large, the bound is larger, never smaller."""
    sizes, unit, epsilon = {7: 12, 10: 9, 13: 5}, Fraction(1, 300), Fraction(1, 4)
    exact_bound = delta_of(sizes, unit, epsilon)
    optimal._delta_of.cache_clear()
    monkeypatch.setattr(optimal, "LONGEST_LATTICE", 60)
    coarse = delta_of(sizes, unit, epsilon)
    optimal._delta_of.cache_clear()
    monkeypatch.setattr(optimal, "LONGEST_LATTICE", 10)
    hoeffding = delta_of(sizes, unit, epsilon)
    optimal._delta_of.cache_clear()
    assert exact_bound <= coarse <= 1
    assert exact_bound <= hoeffding <= 1
    assert largest_step(10**6, Fraction(1), Fraction("1e-9")) == simple_step(
        10**6, Fraction(1), Fraction("1e-9")
    )


def test_slots_dominate():
    """As many unit steps as `slots_of` says have at least the δ of the one large step, at every ε."""
    unit = Fraction(1, 20)
    for size in (2, 3, 5):
        slots = slots_of(size, unit, 1000)
        for epsilon in (Fraction(n, 200) for n in range(0, 10 * size + 5)):
            assert delta_of({size: 1}, unit, epsilon) <= delta_of({1: slots}, unit, epsilon)
        assert slots == size or delta_of({size: 1}, unit, Fraction(0)) > delta_of(
            {1: slots - 2}, unit, Fraction(0)
        )
    assert slots_of(50, unit, 100) is None
    assert slots_of(1, unit, 1) == 1


def test_group_privacy_and_concentrated_conversion():
    """δ of a group as in the closed form; the zCDP conversion is consistent and beats the textbook bound."""
    expected = 1e-9 * (math.exp(1.5) - 1) / (math.exp(0.5) - 1)
    assert float(group_delta(Fraction(1, 2), Fraction("1e-9"), 3)) == pytest.approx(expected, rel=1e-12)
    assert group_delta(Fraction(1), Fraction("1e-9"), 10**6) == 1
    for rho in (Fraction(1, 1000), Fraction(1, 2), Fraction(20)):
        textbook = Fraction(float(rho) + 2 * math.sqrt(float(rho) * math.log(1e6)))
        delta = zcdp_delta(rho, textbook)
        assert delta < 1e-6
        assert float(zcdp_rho(textbook, delta)) == pytest.approx(float(rho), rel=1e-6)


def test_bad_input_is_refused():
    """Counts, units and δ outside their range have a sentence each."""
    with pytest.raises(InvalidParameter):
        largest_step(0, Fraction(1), Fraction("1e-9"))
    with pytest.raises(InvalidParameter):
        largest_step(1, Fraction(1), Fraction(0))
    with pytest.raises(InvalidParameter):
        delta_of({1: 1}, Fraction(0), Fraction(1))
    with pytest.raises(InvalidParameter):
        delta_of({-1: 1}, Fraction(1), Fraction(1))
