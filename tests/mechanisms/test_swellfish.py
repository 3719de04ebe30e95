"""The Swellfish mechanism: every promise, every schedule, gaps."""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.composition import delta_of, largest_step
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.datasets import households
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.swellfish import optimal_schedule
from tidegate.policy import Clock, Secret, Specification
from tidegate.testing import fixed_entropy

Mechanism = tg.mechanisms.Swellfish
HOME = Secret(1, 2, "always", 1, "home")
OVEN = Secret(3, 2, [(3, 9)], "1/2", "oven")
HOUSE = Specification((HOME, OVEN), "house")
STEPS = 24


@st.composite
def specifications(draw, number=0):
    """A household with a baseline and a few secrets."""
    secrets = [
        Secret(draw(st.integers(1, 4)), draw(st.integers(1, 4)), "always", draw(st.integers(1, 3)), "home")
    ]
    for at in range(draw(st.integers(0, 4))):
        duration = draw(st.integers(1, 6))
        first, more = draw(st.integers(1, STEPS)), draw(st.integers(0, 9))
        epsilon = Fraction(draw(st.integers(1, 20)), draw(st.integers(1, 20)))
        interval = (first, first + duration + more - 1)
        secrets.append(Secret(draw(st.integers(1, 9)), duration, [interval], epsilon, f"secret {at}"))
    return Specification(tuple(secrets), f"house {number}")


@st.composite
def policies(draw, **more):
    """One to three households."""
    houses = [draw(specifications(number)) for number in range(draw(st.integers(1, 3)))]
    return tg.Swellfish(specifications=houses, horizon=STEPS, **more)


def placements(policy):
    """Every placement of every secret: its specification, steps, and level."""
    for number, house in enumerate(policy.specifications):
        rows, owners = house.occurrences(policy.clock, 1, STEPS)
        for (a, b), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            secret = house.secrets[owner]
            end = min(b, STEPS)
            for first in range(a, end + 1):
                yield number, range(first, min(first + secret.duration - 1, end) + 1), secret


def exact_scales(mechanism):
    """The scales that noise is drawn with, as the exact numbers that they are."""
    return [Fraction(scale) for scale in mechanism.plan.scales(mechanism.plan.units(1, STEPS)).tolist()]


def promises_hold(policy, scales):
    """Σ Δ_t/λ_t ≤ ε_s for each secret and each placement, in exact arithmetic."""
    delta = policy.temporal_sensitivity(1, STEPS)
    return all(
        sum(delta[number][t - 1] / scales[t - 1] for t in steps) <= Fraction(secret.epsilon)
        for number, steps, secret in placements(policy)
    )


def test_example_1_and_the_scale_of_theorem_8():
    """The oven alone, hidden in steps 1 to 4: λ = 3·2/1 there, and the baseline's scale elsewhere."""
    oven = Secret(3, 2, [(1, 4)], 1, "oven")
    policy = tg.Swellfish(
        specifications=[Specification((oven, Secret(1, 1, [(5, 9)], 1, "home")), "h")], horizon=9
    )
    mechanism = Mechanism(policy)
    assert mechanism.scales(1, 9) == pytest.approx([6, 6, 6, 6, 1, 1, 1, 1, 1], rel=1e-5)


@settings(max_examples=120)
@given(policies())
def test_every_promise_is_held_and_the_printed_form_is_never_smaller(policy):
    """Windowed and printed schedules against the definition; printed scales are at least the windowed ones."""
    windowed, printed = Mechanism(policy), Mechanism(policy, schedule="printed")
    scales, larger = exact_scales(windowed), exact_scales(printed)
    assert promises_hold(policy, scales)
    assert promises_hold(policy, larger)
    assert all(one <= other for one, other in zip(scales, larger, strict=True))
    formula = [
        max(
            Fraction(house.secrets and sums[t - 1]) * max(secret.ratio for secret in house.relevant(t, None))
            for house, sums in zip(policy.specifications, policy.temporal_sensitivity(1, STEPS), strict=True)
        )
        for t in range(1, STEPS + 1)
    ]
    assert all(f <= s <= f * (1 + Fraction(1, 2**14)) for f, s in zip(formula, scales, strict=True))


@settings(max_examples=40)
@given(policies())
def test_the_optimal_schedule_is_feasible_and_never_worse(policy):
    """Exactly feasible after rounding, and its squared error is at most the windowed one."""
    windowed, optimal = exact_scales(Mechanism(policy)), exact_scales(Mechanism(policy, schedule="optimal"))
    assert promises_hold(policy, optimal)
    assert sum(scale**2 for scale in optimal) <= sum(scale**2 for scale in windowed)


def test_the_optimum_is_that_of_another_solver():
    """A small program, also solved by scipy's SLSQP from the windowed schedule."""
    home, oven = Secret(1, 3, "always", 1, "home"), Secret(4, 4, [(5, 12)], "1/2", "oven")
    secrets = (home, oven, Secret(2, 2, [(10, 20)], 1, "x"))
    policy = tg.Swellfish(specifications=[Specification(secrets, "h")], horizon=STEPS)
    delta = np.array(policy.temporal_sensitivity(1, STEPS)[0], dtype=float)
    rows, bounds = [], []
    for _, steps, secret in placements(policy):
        row = np.zeros(STEPS)
        row[[t - 1 for t in steps]] = 1
        rows.append(row)
        bounds.append(float(Fraction(secret.epsilon)))
    matrix, bounds = np.array(rows), np.array(bounds)
    start = delta / Mechanism(policy).scales(1, STEPS)
    found = scipy.optimize.minimize(
        lambda x: np.sum((delta / x) ** 2) / 1e4,
        start,
        jac=lambda x: -2 * delta**2 / x**3 / 1e4,
        constraints={"type": "ineq", "fun": lambda x: bounds - matrix @ x, "jac": lambda x: -matrix},
        bounds=[(1e-4, None)] * STEPS,
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    ours = np.sum(Mechanism(policy, schedule="optimal").scales(1, STEPS) ** 2)
    theirs = np.sum((delta / found.x) ** 2)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert ours < 0.99 * np.sum(Mechanism(policy).scales(1, STEPS) ** 2)


def test_blocks_of_the_optimal_schedule_fit_together(monkeypatch):
    """Solved in small blocks it is still feasible and nearly as good as solved at once."""
    secrets = (Secret(1, 3, "always", 1, "home"), Secret(4, 4, [(5, 12), (40, 60)], "1/2", "oven"))
    policy = tg.Swellfish(specifications=[Specification(secrets, "h")], horizon=80)
    at_once = Mechanism(policy, schedule="optimal").scales(1, 80)
    monkeypatch.setattr(optimal_schedule, "BLOCK", 11)
    blocks = Mechanism(policy, schedule="optimal")
    assert optimal_schedule.feasible(blocks.plan.promises, 1, blocks.plan.units(1, 80))
    assert np.sum(at_once**2) * (1 - 1e-4) <= np.sum(blocks.scales(1, 80) ** 2) < 1.02 * np.sum(at_once**2)


def test_a_solver_that_lies_is_not_believed(monkeypatch):
    """The planted wrong version: an infeasible answer is repaired, a failing solver gives the windowed schedule."""
    policy = tg.Swellfish(specifications=[HOUSE], horizon=STEPS)
    monkeypatch.setattr(
        optimal_schedule, "_program", lambda rows, chosen, around, fixed: np.full(rows.size, 1.7)
    )
    assert promises_hold(policy, exact_scales(Mechanism(policy, schedule="optimal")))
    monkeypatch.setattr(optimal_schedule, "_rounded", lambda rows, real, fixed, start: start + start // 2)
    lied = Mechanism(policy, schedule="optimal")
    assert (lied.scales(1, STEPS) == Mechanism(policy).scales(1, STEPS)).all()


def test_the_check_of_promises_sees_a_broken_one():
    """The negative control of the tests above: scales that are 1 % too small fail."""
    policy = tg.Swellfish(specifications=[HOUSE], horizon=STEPS)
    scales = exact_scales(Mechanism(policy))
    assert not promises_hold(policy, [scale * Fraction(99, 100) for scale in scales])


@settings(max_examples=40)
@given(policies())
def test_the_joint_promise_holds_for_every_combination_of_placements(policy):
    """One occurrence of every event at once: what a hiding interval shows stays within its ε."""
    joint = tg.Swellfish(specifications=policy.specifications, horizon=STEPS, promise="joint")
    scales = exact_scales(Mechanism(joint))
    assert promises_hold(joint, scales)
    for house in joint.specifications:
        rows, owners = house.occurrences(None, 1, STEPS)
        for (a, b), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            inside = range(a, min(b, STEPS) + 1)
            worst = Fraction(0)
            for (c, d), other in zip(rows.tolist(), owners.tolist(), strict=True):
                secret = house.secrets[other]
                common = [t for t in range(c, min(d, STEPS) + 1) if t in inside]
                length = min(secret.duration, len(common))
                sums = [
                    sum(Fraction(secret.height) / scales[t - 1] for t in common[at : at + length])
                    for at in range(len(common) - length + 1)
                ]
                worst += max(sums, default=Fraction(0))
            assert worst <= Fraction(house.secrets[owner].epsilon)


def test_approximate_scales_are_the_optimal_composition_and_never_above_pure_ones():
    """The numbers of SOUNDNESS.md: 1196 at ε = 0.1, δ = 8.5e-9, T = 672; short events are no worse than pure."""
    week = Secret(1, 672, "always", "0.1", "holiday")
    short = Secret(1, 3, "always", "0.1", "kettle")
    for secret, expected in ((week, 1196), (short, 30)):
        pure = tg.Swellfish(specifications=[Specification((secret,), "h")])
        loose = tg.Swellfish(specifications=[Specification((secret,), "h")], delta="8.5e-9")
        scale = Mechanism(loose).scales(1, 1)[0]
        assert scale == pytest.approx(expected, abs=0.5)
        assert scale <= Mechanism(pure).scales(1, 1)[0] * (1 + 1e-5)
        printed = Mechanism(loose, schedule="printed").scales(1, 1)[0]
        assert printed >= scale
    loose = tg.Swellfish(specifications=[Specification((week,), "h")], delta="8.5e-9")
    assert Mechanism(loose, schedule="printed").scales(1, 1)[0] == pytest.approx(2092, abs=1)


@settings(max_examples=30)
@given(policies(delta="1e-5"))
def test_with_delta_every_placement_composes(policy):
    """The exact composition of the losses in each placement is (ε_s, δ)."""
    scales = exact_scales(Mechanism(policy))
    delta = policy.temporal_sensitivity(1, STEPS)
    for number, steps, secret in placements(policy):
        worst = max(delta[number][t - 1] / scales[t - 1] for t in steps)
        assert worst <= largest_step(secret.duration, Fraction(secret.epsilon), Fraction("1e-5"))
        assert delta_of({1: len(steps)}, worst, Fraction(secret.epsilon)) <= Fraction("1e-5")


def test_many_specifications_take_the_largest_scale():
    """Theorem 9."""
    one, two = (
        Specification((HOME, OVEN), "one"),
        Specification((HOME, Secret(2, 5, [(6, 14)], "1/4", "x")), "two"),
    )
    both = Mechanism(tg.Swellfish(specifications=[one, two])).scales(1, 20)
    apart = [Mechanism(tg.Swellfish(specifications=[each])).scales(1, 20) for each in (one, two)]
    assert both == pytest.approx(np.maximum(*apart), rel=1e-4)


def test_theorem_7_any_w_event_mechanism_serves_the_specifications():
    """Uniform under `as_w_event` spends no more than every promise allows: checked placement by placement."""
    policy = tg.Swellfish(specifications=[HOUSE], horizon=STEPS)
    scale = Fraction(tg.mechanisms.Uniform(policy.as_w_event(), noise="laplace").scale)
    assert promises_hold(policy, [scale] * STEPS)
    assert scale >= max(exact_scales(Mechanism(policy))) * Fraction(9999, 10000)


def test_missing_readings():
    """Filled from releases or a public number; silent where gaps are public, with noise where they are hidden."""
    policy = tg.Swellfish(specifications=[HOUSE])
    with pytest.raises(InvalidInput, match="fill gaps"):
        Session(Mechanism(policy)).push(np.nan)
    stream = np.array([50.0, np.nan, np.nan, 52.0, 53.0])
    with fixed_entropy(5):
        mechanism = Mechanism(policy, fill="released")
        releases = Session(mechanism).push_batch(stream)
        single = Session(mechanism)
        pushed = [single.push(value) for value in stream]
    assert releases.values[1, 0] == releases.values[2, 0] == releases.values[0, 0]
    assert [r.status.label for r in releases] == ["fresh", "approximated", "approximated", "fresh", "fresh"]
    assert releases.units[1] == 0
    assert list(releases.source) == [1, 1, 1, 4, 5]
    assert [p.values[0] for p in pushed] == list(releases.values[:, 0])
    assert "which readings are missing is not protected" in str(mechanism.guarantee)
    public = Session(Mechanism(policy, fill="40")).push_batch(stream)
    assert public.values[1, 0] == 40
    hidden = Mechanism(policy, fill="40", gap_change=1)
    assert "hidden like it" in str(hidden.guarantee)
    assert Session(hidden).push_batch(stream).fresh.all()
    assert hidden.hides_gaps
    with pytest.raises(InvalidParameter, match="raise the baseline"):
        Mechanism(policy, columns=50, fill="40", gap_change=1)  # a step may miss the readings of all columns
    with fixed_entropy(6):
        two = Mechanism(policy, columns=2, fill="released")
        rows = np.array([[5.0, 6.0], [np.nan, 7.0], [np.nan, np.nan], [8.0, 9.0]])
        batch = Session(two).push_batch(rows)
        log = MemoryLog()
        found = [Session(two, log).push(row).values for row in rows]
    assert np.array_equal(found, batch.values)


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_a_gap_is_one_in_every_type_of_column(gap):
    """With a bound, gaps are filled whatever numbers stand beside them; a whole number after one is no gap."""
    two = Mechanism(tg.Swellfish(specifications=[HOUSE]), columns=2, fill="40", clamp=100)
    assert Session(two).push_batch([[5, 6], [gap, gap], [3, 2]]).values[1].tolist() == [40, 40]
    session = Session(Mechanism(tg.Swellfish(specifications=[HOUSE]), fill="40", clamp=100))
    assert [session.push(value).status.label for value in (gap, 5)] == ["approximated", "fresh"]


def test_a_whole_number_after_a_gap_is_released():
    """The quick way of single numbers has no gaps of the step before."""
    session = Session(Mechanism(tg.Swellfish(specifications=[HOUSE]), fill="40"))
    assert [session.push(value).status.label for value in (np.nan, 5)] == ["approximated", "fresh"]


def test_the_optimal_schedule_does_not_know_the_joint_promise():
    """Refused by the constructor, not by the first push."""
    policy = tg.Swellfish(specifications=[HOUSE], horizon=STEPS, promise="joint")
    with pytest.raises(InvalidParameter, match="under the joint promise"):
        Mechanism(policy, schedule="optimal")
    assert Session(Mechanism(policy, schedule="printed")).push(1).scale > 0
    with pytest.raises(InvalidParameter, match="hidden for ever"):
        Mechanism(tg.Swellfish(specifications=[HOUSE], promise="joint"))


@pytest.mark.parametrize(
    ("policy", "options", "words"),
    [
        ({"specifications": [Specification((OVEN,), "h")]}, {}, "nothing is hidden at step 1"),
        (
            {"specifications": [Specification((Secret(1, 1, [(1, 9)], 1),), "h")], "horizon": 10},
            {},
            "at step 10",
        ),
        ({"specifications": [HOUSE], "derived": True}, {}, "derived from recorded use"),
        ({"specifications": [HOUSE]}, {"schedule": "best"}, "'windowed'"),
        ({"specifications": [HOUSE]}, {"schedule": "optimal"}, "give the policy a horizon"),
        ({"specifications": [HOUSE]}, {"share": 2}, "above 0 and at most 1"),
        ({"specifications": [HOUSE]}, {"gap_change": 1}, "say what fills gaps"),
        ({"specifications": [HOUSE]}, {"gap_change": 9, "fill": 0}, "raise the baseline"),
        ({"specifications": [HOUSE]}, {"gap_change": 1, "fill": "released"}, "fill with a public number"),
        ({"specifications": [HOUSE]}, {"rounding": "nearest"}, 'write allowance="1"'),
        ({"specifications": [HOUSE], "delta": "0.1", "promise": "joint"}, {}, "drop delta"),
        ({"specifications": [Specification((Secret("0.5", 1, "always", 1),), "h")]}, {}, 'write height="1"'),
    ],
)
def test_bad_configurations(policy, options, words):
    """Each is refused in one sentence with a remedy."""
    with pytest.raises(InvalidParameter, match=words.replace("(", r"\(")) as caught:
        Mechanism(tg.Swellfish(**policy), **options)
    assert len(str(caught.value).splitlines()) == 1


def test_rounding_needs_an_allowance_that_enters_the_sensitivity():
    """With pre-aggregated values each step may move by one more grid unit."""
    plain = tg.Swellfish(specifications=[HOUSE])
    rounded = tg.Swellfish(specifications=[HOUSE], allowance=1)
    scales = Mechanism(rounded, rounding="nearest").scales(1, 4)
    assert scales == pytest.approx(
        Mechanism(plain).scales(1, 4) * np.array([2 / 1, 2 / 1, 5 / 4, 5 / 4]), rel=1e-5
    )


def test_replacing_doubles_only_with_several_columns():
    """An event that is replaced by another in another column changes the step twice."""
    policy = tg.Swellfish(specifications=[HOUSE], adjacency="replace")
    assert Mechanism(policy, columns=2).scales(1, 3) == pytest.approx(
        2 * Mechanism(policy).scales(1, 3), rel=1e-12
    )


def test_derived_specifications_are_for_experiments_only():
    """The guarantee of an experiment says so."""
    houses = households.recorded(households=2, days=7)
    policy = tg.Swellfish(specifications=houses, derived=True, horizon=7 * 96)
    mechanism = Mechanism(policy, grid="0.01", experiment=True)
    assert "nobody lives in the households" in str(mechanism.guarantee)
    log = MemoryLog()
    Session(mechanism, log).push_batch(np.zeros(7 * 96))
    assert verify(log.rows()).ok


def test_the_guarantee_names_the_largest_and_the_smallest_level():
    """The blanket claim is the largest ε, which is true of every secret."""
    text = str(Mechanism(tg.Swellfish(specifications=[HOUSE])).guarantee)
    assert text.startswith("Swellfish is 1-differentially private for one occurrence of any specified event")
    assert "the strictest at 0.5" in text
    assert "specifications are public" in text


def test_noise_has_the_scheduled_scale():
    """Mean |noise| over 20,000 draws at three scales: within 5 standard errors (α < 1e-6 each); half of it fails."""
    sizes = {}
    with fixed_entropy(3):
        mechanism = Mechanism(tg.Swellfish(specifications=[Specification((HOME,), "h")]))
        noise = np.abs(Session(mechanism).push_batch(np.zeros(20_000)).values)
        expected = mechanism.expected_error()
        error = 5 * expected / np.sqrt(noise.size)
        sizes["home"] = noise.mean()
    assert abs(sizes["home"] - expected) < error
    assert abs(sizes["home"] - expected / 2) > error
    assert Session(Mechanism(tg.Swellfish(specifications=[HOUSE], horizon=9))).push(0).scale > 0


def test_neighbours_are_one_placement_of_one_event():
    """The policy builds neighbours for audits; two placements of one event are none."""
    policy = tg.Swellfish(specifications=[HOUSE])
    stream = np.full((12, 1), 20, dtype=np.int64)
    for seed in range(20):
        numbers = itertools.cycle([seed % 3, seed % 5, seed, 1, 0])
        other = policy.extreme_neighbour(stream, lambda n, numbers=numbers: next(numbers) % n)
        assert policy.distance(stream, other) <= 1
    far = stream.copy()
    far[2] += 4
    far[8] += 4
    with pytest.raises(InvalidInput, match="more than one event"):
        policy.distance(stream, far)


def test_recurring_secrets_follow_the_clock_through_a_change():
    """On the night that has 25 hours the hours that occur twice are hidden twice as long."""
    clock = Clock("2026-10-24T00:00", "1 h", "Europe/Berlin")
    night = Secret(4, 1, [], 1, "night", recurring="every day 02:00-03:00")
    policy = tg.Swellfish(specifications=[Specification((HOME, night), "h")], clock=clock)
    scales = Mechanism(policy).scales(1, 48)
    assert np.flatnonzero(scales > 3).tolist() == [2, 26, 27]


def test_the_picture_of_a_specification(tmp_path):
    """A PNG of moderate size, also with many secrets."""
    from tidegate.mechanisms.swellfish.picture import draw

    policy = tg.Swellfish(specifications=households.recorded(2, 14), horizon=14 * 96, derived=True)
    draw(Mechanism(policy, grid="0.01", experiment=True), tmp_path / "house.png", 1, 192, house=1)
    assert (tmp_path / "house.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "house.png").stat().st_size < 200_000


def test_experiment_2_a_dominant_secret_has_only_a_local_effect():
    """A holiday in the first week raises the noise of that week alone; the w-event policy pays for it for ever."""
    houses = households.recorded(12, 21)
    policy = tg.Swellfish(specifications=houses, horizon=21 * 96, derived=True)
    holiday = households.dominant(height=str(float(policy.max_change)))
    first = Specification((*houses[0].secrets, holiday), houses[0].label)
    dominated = tg.Swellfish(specifications=(first, *houses[1:]), horizon=21 * 96, derived=True)
    options = {"grid": "0.01", "experiment": True}
    before, after = (Mechanism(each, **options).scales(1, 21 * 96) for each in (policy, dominated))
    assert (after[:672] > 5 * before[:672]).all()
    assert after[672:] == pytest.approx(before[672:], rel=1e-3)
    assert dominated.as_w_event().window == 672


def test_experiment_1_in_small(shared_data):
    """Four weeks of 20 real zones, 60 households: on average over zones at least ten times below Uniform."""
    import polars as pl

    table = pl.read_parquet(shared_data("gefcom2012_load_hourly.parquet")).filter(pl.col("zone_id") <= 20)
    table = table.sort("zone_id", "date", "hour_ending").drop_nulls("load_kw")
    loads = [part["load_kw"].to_numpy()[: 28 * 24 + 1] for part in table.partition_by("zone_id")]
    quarters = np.arange(28 * 96) / 4
    loads = np.column_stack([np.interp(quarters, np.arange(len(load)), load) for load in loads]).round(2)
    policy = tg.Swellfish(specifications=households.recorded(60, 28), horizon=28 * 96, derived=True)
    errors = {}
    for mechanism in (
        Mechanism(policy, columns=20, grid="0.01", experiment=True),
        tg.mechanisms.Uniform(policy.as_w_event(), columns=20, grid="0.01"),
    ):
        released = np.maximum(Session(mechanism).push_batch(loads).values, 0)
        errors[type(mechanism).__name__] = (np.abs(released - loads) / np.maximum(loads, 1)).mean(axis=0)
    assert np.mean(errors["Uniform"] / errors["Swellfish"]) >= 10
