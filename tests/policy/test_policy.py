"""Policies: exact budgets, sensitivities, neighbours and distances."""

import dataclasses
import itertools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.policy import Approximate, Pure, Secret, Specification, ZeroConcentrated
from tidegate.policy.neighbours import windows_needed


@pytest.mark.parametrize("written", ["0.1", "1/10", "1e-1", Fraction(1, 10), Decimal("0.1"), " 0.1 "])
def test_epsilon_is_exact(written):
    """Every exact way to write a tenth gives the fraction 1/10."""
    assert tg.WEvent(epsilon=written, window=3).epsilon == Fraction(1, 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epsilon": 0.1}, 'write epsilon="0.1"'),
        ({"epsilon": float("nan")}, "an exact finite number"),
        ({"epsilon": float("inf")}, "an exact finite number"),
        ({"epsilon": "zero"}, "a decimal number or a fraction"),
        ({"epsilon": "1/0"}, "a decimal number or a fraction"),
        ({"epsilon": 0}, "greater than 0"),
        ({"epsilon": "-1"}, "greater than 0"),
        ({"epsilon": True}, "a number"),
        ({"epsilon": None}, "given, or else rho"),
        ({"epsilon": 1, "rho": 1}, "but not both"),
        ({"rho": "0.5", "delta": "0.1"}, "absent where rho is given"),
        ({"epsilon": 1, "delta": 1}, "in [0, 1)"),
        ({"epsilon": 1, "delta": "-0.1"}, "in [0, 1)"),
        ({"epsilon": 1, "max_change": 0}, "greater than 0"),
        ({"epsilon": 1, "adjacency": "swap"}, "'add-remove' or 'replace'"),
        ({"epsilon": 1, "mobility": "static"}, "'moving' or 'fixed'"),
        ({"epsilon": 1, "touches": 0}, "at least 1"),
        ({"epsilon": 1, "window": 0}, "at least 1"),
        ({"epsilon": 1, "window": 2.0}, "a whole number"),
        ({"epsilon": 1, "window": 2**41}, "at most"),
        ({"epsilon": 1, "horizon": 0}, "at least 1"),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(arguments, words):
    """The message names the parameter, the constraint and a remedy."""
    with pytest.raises(InvalidParameter) as caught:
        tg.WEvent(**{"window": 3, **arguments})
    message = str(caught.value)
    assert words in message
    assert "is refused" in message or " is missing: " in message
    assert len(message.splitlines()) == 1


def test_user_level_needs_a_horizon():
    """An endless stream has no user-level guarantee, and the message says what to do."""
    with pytest.raises(InvalidParameter, match="use WEvent on an endless stream"):
        tg.User(epsilon=1)


def test_the_three_budgets():
    """ε, (ε, δ) and ρ become three kinds of frozen facts."""
    assert tg.Event(epsilon=1).budget == Pure(Fraction(1))
    assert tg.Event(epsilon=1, delta="1e-6").budget == Approximate(Fraction(1), Fraction(1, 10**6))
    assert tg.Event(rho="1/2").budget == ZeroConcentrated(Fraction(1, 2))


def test_replacing_doubles_only_with_several_columns():
    """The one place that derives the sensitivity of a step."""
    for policy in (tg.Event(epsilon=1, max_change=3), tg.WEvent(epsilon=1, window=9, max_change=3)):
        assert policy.step_sensitivity(1) == policy.step_sensitivity(5) == 3
    replaced = tg.Event(epsilon=1, max_change=3, adjacency="replace")
    assert (replaced.step_sensitivity(1), replaced.step_sensitivity(2)) == (3, 6)


def test_sensitivity_on_the_grid_rounds_up():
    """Δ rounds up to the grid, and rounding pre-aggregated values adds one unit for each touched column."""
    policy = tg.Event(epsilon=1, max_change="0.25")
    assert policy.grid_sensitivity(4, Fraction(1, 10), rounded=False) == 3
    assert policy.grid_sensitivity(4, Fraction(1, 10), rounded=True) == 3 + 4
    one = tg.Event(epsilon=1, max_change="0.25", touches=1)
    assert one.grid_sensitivity(4, Fraction(1, 10), rounded=True) == 3 + 1
    swapped = tg.Event(epsilon=1, max_change="0.25", touches=1, adjacency="replace")
    assert swapped.grid_sensitivity(4, Fraction(1, 10), rounded=True) == 5 + 2


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=4),
    st.lists(st.integers(-4, 4), min_size=4, max_size=4),
    st.integers(1, 7),
)
def test_rounding_never_moves_more_than_the_grid_sensitivity(values, change, denominator):
    """floor(x/g + ½) of real values that differ by Δ in L1 differ by at most the grid sensitivity."""
    grid = Fraction(1, denominator)
    base = [Fraction(value, 3) for value in values]
    moved = [x + Fraction(c, 5) for x, c in zip(base, change, strict=False)]
    amount = sum(abs(a - b) for a, b in zip(base, moved, strict=True))
    if amount == 0:
        return
    policy = tg.Event(epsilon=1, max_change=amount)
    rounded = [[int((x / grid + Fraction(1, 2)) // 1) for x in row] for row in (base, moved)]
    distance = sum(abs(a - b) for a, b in zip(*rounded, strict=True))
    assert distance <= policy.grid_sensitivity(len(base), grid, rounded=True)


def test_distance_counts_windows():
    """The distance is the number of neighbours in the shortest chain."""
    base = np.zeros((8, 2), dtype=np.int64)
    policy = tg.WEvent(epsilon=1, window=3)

    def moved(*cells):
        other = base.copy()
        for step, column, amount in cells:
            other[step, column] += amount
        return policy.distance(base, other)

    assert moved() == 0
    assert moved((0, 0, 1), (1, 1, -1), (2, 0, 1)) == 1  # a moving unit inside one window
    assert moved((0, 0, 1), (3, 0, 1)) == 2  # two windows
    assert moved((0, 0, 2)) == 2  # twice the change in one step
    assert (
        moved((0, 0, 1), (0, 1, -1)) == 2
    )  # a row that changes column is two changes when rows are added or removed
    assert (
        tg.WEvent(epsilon=1, window=3, adjacency="replace").distance(
            base, base + [[1, -1]] * 1 * (base[:, :1] == 9)
        )
        == 0
    )


def test_distance_of_fixed_and_replaced_units():
    """A fixed unit stays in one column; a replaced one leaves one column for another."""
    base = np.zeros((4, 3), dtype=np.int64)
    wandering = base.copy()
    wandering[0, 0] = wandering[1, 1] = 1
    assert tg.WEvent(epsilon=1, window=4).distance(base, wandering) == 1
    assert tg.WEvent(epsilon=1, window=4, mobility="fixed").distance(base, wandering) == 2
    swapped = base.copy()
    swapped[:, 0] = 1
    swapped[:, 2] = -1
    assert tg.WEvent(epsilon=1, window=4, adjacency="replace").distance(base, swapped) == 1
    assert tg.WEvent(epsilon=1, window=4, adjacency="replace", mobility="fixed").distance(base, swapped) == 1
    assert tg.WEvent(epsilon=1, window=2, adjacency="replace", mobility="fixed").distance(base, swapped) == 4
    assert tg.User(epsilon=1, horizon=4).distance(base, wandering) == 1
    assert tg.Event(epsilon=1).distance(base, wandering) == 2


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.integers(1, 4))
def test_greedy_cover_is_the_smallest(demand, window):
    """The greedy number of windows equals the smallest one found by trying all placements."""
    greedy = windows_needed(demand, window)
    places = range(-window + 1, len(demand))
    for count in range(greedy):
        for chosen in itertools.combinations_with_replacement(places, count):
            cover = [sum(first <= step < first + window for first in chosen) for step in range(len(demand))]
            assert any(have < need for have, need in zip(cover, demand, strict=True))
        if count >= 3:
            break


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 8),
    st.sampled_from(["add-remove", "replace"]),
    st.sampled_from(["moving", "fixed"]),
    st.booleans(),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_extreme_neighbours_are_neighbours(w, columns, steps, adjacency, mobility, signed, change, random):
    """What a policy builds as a neighbour has distance one, and changes every step of a window by Δ or 2Δ."""
    policy = tg.WEvent(
        epsilon=1, window=w, adjacency=adjacency, mobility=mobility, signed=signed, max_change=change
    )
    stream = np.arange(steps * columns, dtype=np.int64).reshape(steps, columns)
    other = policy.extreme_neighbour(stream, random.randrange)
    assert policy.distance(stream, other) == 1
    changes = np.abs(stream - other).sum(axis=1)
    assert changes.max() <= policy.step_sensitivity(columns)
    assert np.count_nonzero(changes >= change) == min(w, steps)
    if adjacency == "replace" and signed:
        assert changes.max() == policy.step_sensitivity(columns) == 2 * change


def test_a_change_below_one_has_no_extreme_neighbour_in_whole_numbers():
    """Streams that could not differ would make every test that uses them assert nothing: refused."""
    stream = np.zeros((4, 2), dtype=np.int64)
    low = Secret("0.5", 1, "always", 1)
    policies = [
        tg.WEvent(epsilon=1, window=2, max_change="0.5"),
        tg.Swellfish(specifications=[Specification((low,), "h")]),
    ]
    for policy in policies:
        with pytest.raises(InvalidInput, match="units of the grid"):
            policy.extreme_neighbour(stream, lambda n: 0)
    finer = dataclasses.replace(policies[0], max_change=2)  # the same in units of a quarter
    assert np.abs(finer.extreme_neighbour(stream, lambda n: 0)).sum() == 4


def test_signed_contributions_double_within_a_column():
    """A contribution of −Δ replaced by one of Δ changes its column by 2Δ, so that a policy of signed ones doubles."""
    plain = tg.WEvent(epsilon=1, window=2, adjacency="replace", max_change=3)
    signed = dataclasses.replace(plain, signed=True)
    assert (plain.step_sensitivity(1), signed.step_sensitivity(1), signed.step_sensitivity(4)) == (3, 6, 6)
    assert tg.WEvent(epsilon=1, window=2, signed=True).step_sensitivity(1) == 1  # added or removed
    stream, other = np.zeros((3, 1), dtype=np.int64), np.array([[6], [-6], [0]])
    assert (signed.distance(stream, other), plain.distance(stream, other)) == (1, 2)
    fixed = dataclasses.replace(signed, mobility="fixed")
    assert (fixed.distance(stream, other), fixed.distance(stream, 2 * other)) == (1, 4)
    assert "signed" not in plain.describe()
    assert signed.describe()["signed"] is True
    for mechanism in (tg.mechanisms.Uniform(plain), tg.mechanisms.BudgetAbsorption(plain)):
        doubled = dataclasses.replace(mechanism, policy=signed)
        assert doubled.sensitivity == 2 * mechanism.sensitivity
        assert any("not negative" in words for words in mechanism.assumptions)
        assert not any("not negative" in words for words in doubled.assumptions)
    with pytest.raises(InvalidParameter, match="signed"):
        tg.WEvent(epsilon=1, window=2, signed="yes")


def test_a_change_that_is_no_neighbour_is_refused():
    """The neighbour constructor checks its result."""
    policy = tg.WEvent(epsilon=1, window=2)
    stream = np.zeros((5, 1), dtype=np.int64)
    assert policy.neighbour(stream, 1, np.ones((2, 1), dtype=np.int64)).sum() == 2
    with pytest.raises(InvalidInput, match="2 neighbours apart"):
        policy.neighbour(stream, 1, np.ones((3, 1), dtype=np.int64))
    with pytest.raises(InvalidInput, match="inside the stream"):
        policy.neighbour(stream, 4, np.ones((2, 1), dtype=np.int64))
    with pytest.raises(InvalidInput, match="the same shape"):
        policy.distance(stream, stream[:3])


def test_swellfish_is_a_plain_model():
    """Secrets validate themselves, and the implied w-event policy takes the worst of all."""
    kettle = Secret("2.5", 2, ((1, 48),), "0.5", "kettle")
    holiday = Secret("1", 96, ((200, 400),), "1", "holiday")
    policy = tg.Swellfish(specifications=(Specification((kettle, holiday), "house"),))
    assert policy.as_w_event() == tg.WEvent(epsilon="0.5", window=96, max_change="2.5")
    assert policy.describe()["specifications"][0]["secrets"][0]["label"] == "kettle"
    with pytest.raises(InvalidParameter, match="widen the hiding interval"):
        Secret("1", 5, ((1, 4),), "1")
    with pytest.raises(InvalidParameter, match="baseline"):
        Specification(())
    with pytest.raises(InvalidParameter, match="at least one Specification"):
        tg.Swellfish(epsilon=1)


def test_policies_are_frozen_comparable_and_describe_themselves():
    """Equal policies are equal however they were written."""
    assert tg.WEvent(epsilon="0.5", window=3) == tg.WEvent(epsilon=Fraction(1, 2), window=3)
    assert tg.WEvent(epsilon="0.5", window=3) != tg.WEvent(epsilon="0.5", window=4)
    assert tg.WEvent(epsilon="1/3", window=3).describe()["epsilon"] == "1/3"
    with pytest.raises(AttributeError):
        tg.WEvent(epsilon=1, window=3).window = 4
