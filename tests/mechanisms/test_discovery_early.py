"""Early tests of discovery: exact losses by enumeration, wrong versions that are found, and what a session does."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mechanisms.discovery_enumeration import Stream
from tests.mechanisms.early_enumeration import NOTHING, early_delta, shown, units_of

import tidegate as tg
from tidegate.composition.gaussian import gaussian_delta, normal_delta, normal_tail
from tidegate.core.errors import Halted
from tidegate.core.log import MemoryLog
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.discovery import early
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.discovery.early import EarlyTests, calibrate_early, divided, loss_early
from tidegate.mechanisms.discovery.occurrences import Collector
from tidegate.noise import gaussian
from tidegate.noise.keyed import Keyed
from tidegate.policy import Event, User, WEvent
from tidegate.testing.entropy import fixed_entropy

U = "the unit"
SMALL = Discover(WEvent(epsilon="8", delta="1e-4", window=4), columns=3, early=True)


class Coarse(Discover):
    """The same on a lattice on which every noise can be listed."""

    places = 1


def people(count: int, *categories: str) -> list[tuple[Any, str]]:
    """Records of other units, so many in each category."""
    return [(f"{category} {number}", category) for category in categories for number in range(count)]


def neighbours(
    mechanism: Discover,
    one: str,
    other: str,
    first: dict[str, int] | None = None,
    later: dict[str, int] | None = None,
) -> tuple[Stream, Stream]:
    """The unit's category at each step, '.' for none; others are there at the first or at a later step of each epoch."""
    plenty = mechanism.tests.thresholds[-1] + 6
    first = {"a": plenty, "b": plenty} if first is None else first
    made = []
    for own in (one, other):
        steps = []
        for at, name in enumerate(own):
            here = (first, later or {}, {})[min(at % mechanism.steps_per_epoch, 2)]
            base = [pair for category, many in here.items() for pair in people(many, category)]
            steps.append([*base, *([(U, each) for each in name if each != "."])])
        made.append(steps)
    return made[0], made[1]


def cases(mechanism: Discover) -> dict[str, tuple[Stream, Stream]]:
    """Neighbours by what is particular of them, for epochs of two steps and windows of two that meet two of them."""
    limit = mechanism.tests.thresholds[-1]
    near, some = {"x": limit - 1, "y": limit - 1}, {"x": mechanism.staying - 1, "y": mechanism.staying - 1}

    def pair(one: str, other: str, **base: Any) -> tuple[Stream, Stream]:
        return neighbours(mechanism, one, other, **base)

    reopened = ([*people(limit + 4, "x")], [], [], [(U, "x")], [*people(limit - 1, "x"), (U, "x")], [])
    return {
        "alone in a category": pair(".x..", "...."),
        "alone in two epochs": pair(".xy.", "...."),
        "alone, first": pair("..x.", "...."),
        "tips it over": pair(".x..", "....", first=near),
        "tips it over twice": pair(".xx.", "....", first=near),
        "tips it over at once": pair("..x.", "....", first=near),
        "visible everywhere": pair(".aa.", ".bb."),
        "visible, and moves": pair(".aab", ".b.b"),
        "moves behind the window": pair("..xx", "...x"),
        "moves where others are": pair("..xx", "...x", first=near),
        "touched before others": pair("..x.", "....", first={}, later=near),
        "touched, moves, then others": pair("..xx", "...x", first={}, later=near),
        "let in by bounding": pair("..ab", "...b"),
        "let in alone": pair("..xy", "...y"),
        "moves over the border": pair(".x..", "..x.", first=near),
        "keeps it open": pair(".xx.", "....", first=some),
        "reopens with it": (reopened, (*reopened[:3], [], reopened[4][:-1], [])),
    }


CONFIGURATIONS = {
    "w-event": Coarse(
        WEvent(epsilon="6", delta="1/10", window=2, adjacency="replace"), columns=8, early=True
    ),
    "w-event, small epsilon": Coarse(
        WEvent(epsilon="2", delta="1/5", window=2, adjacency="replace"), columns=8, early=True, stay="1/3"
    ),
    "w-event, two categories": Coarse(
        WEvent(epsilon="8", delta="1/10", window=2, adjacency="replace"), columns=8, categories=2, early=True
    ),
    "user": Coarse(User(epsilon="6", delta="1/10", horizon=6), columns=8, epoch=2, early=True),
}


QUICK = {
    "alone in two epochs",
    "visible, and moves",
    "moves where others are",
    "touched before others",
    "let in alone",
}


def largest(mechanism: Discover, only: set[str] | None = None) -> dict[str, float]:
    """The loss of every case in both directions, as a part of what is allowed."""
    allowed = float(mechanism.policy.delta) * float(mechanism.share)
    found = {}
    for name, (one, other) in cases(mechanism).items():
        if only is not None and name not in only:
            continue
        # at user level one of the two has no records of the unit
        if mechanism.policy.window is not None or all(unit != U for step in other for unit, _ in step):
            losses = [early_delta(mechanism, *pair) for pair in ((one, other), (other, one))]
            found[name] = max(losses) / allowed
    return found


def test_early_tests_lose_what_they_may() -> None:
    """No case is beyond δ, and the worst one is not far from it."""
    found = largest(CONFIGURATIONS["w-event"], QUICK)
    assert max(found.values()) <= 1, found
    assert max(found.values()) > 0.1, found


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_all_configurations_lose_what_they_may(name: str) -> None:
    """Also at user level, and where a unit counts twice."""
    found = largest(CONFIGURATIONS[name])
    assert max(found.values()) <= 1, found


@pytest.mark.slow
def test_random_neighbours() -> None:
    """Epochs of two and three steps, windows that are shorter and longer."""
    for epoch, window in ((2, 1), (2, 2), (2, 3), (3, 2)):
        policy = WEvent(epsilon="4", delta="1/5", window=window, adjacency="replace")
        mechanism, choose = Coarse(policy, columns=8, epoch=epoch, early=True), np.random.default_rng(window)
        limit = mechanism.tests.thresholds[-1]
        for _ in range(6):
            own = choose.choice(list(".axy"), 2 * epoch).tolist()
            one, other = list(own), list(own)
            first = int(choose.integers(0, 2 * epoch - window + 1))
            for at in range(first, first + window):
                one[at], other[at] = choose.choice(list(".axy"), 2).tolist()
            base = {name: int(choose.choice([0, 1, limit - 2, limit + 2])) for name in "axy"}
            pair = neighbours(mechanism, "".join(one), "".join(other), first=base)
            for each in (pair, pair[::-1]):
                assert early_delta(mechanism, *each) <= 0.1, (epoch, window, one, other, base)


# wrong versions ------------------------------------------------------------------------------------------------------


class Sharp(Coarse):
    """A right version whose thresholds have nearly all of δ."""

    @cached_property
    def tests(self) -> EarlyTests:
        """With noise that loses a twentieth of δ."""
        found, delta = super().tests, float(self.policy.delta) * float(self.share)
        epsilon, changes = float(self.policy.epsilon) * float(self.share), self.categories * self.epochs_met
        made = divided(found.coefficients, found.places, epsilon, delta, delta / 20, changes)
        assert made is not None
        return made


def passing(tests: EarlyTests, limit: int, at: int) -> float:
    """The chance of a category of one unit at a step."""
    return normal_tail((limit - 1.5) / float(tests.deviations[at]))


class BetaPerStep(Sharp):
    """At each step the chance that is meant for all steps of the epoch."""

    @cached_property
    def tests(self) -> EarlyTests:
        """Wrong ones."""
        right = super().tests
        lone = sum(passing(right, limit, at) for at, limit in enumerate(right.thresholds))
        limits = [
            next(limit for limit in range(2, 1000) if passing(right, limit, at) <= lone)
            for at in range(len(right.thresholds))
        ]
        return right._replace(thresholds=tuple(limits))


class OneCategoryForAll(Sharp):
    """The chance of one category, where a unit may be alone in k of them, in each epoch."""

    @cached_property
    def tests(self) -> EarlyTests:
        """Wrong ones."""
        right, times = super().tests, self.categories * self.epochs_met
        limits = [
            next(
                limit
                for limit in range(2, 1000)
                if passing(right, limit, at) <= times * passing(right, was, at)
            )
            for at, was in enumerate(right.thresholds)
        ]
        return right._replace(thresholds=tuple(limits))


class MovesNotCounted(Coarse):
    """As if what one unit leaves out took its first occurrences with it, and moved none."""

    @cached_property
    def tests(self) -> EarlyTests:
        """Wrong ones."""
        budget: Any = self._part(Fraction(self.share)).budget
        changes = self.categories * self.epochs_met
        return calibrate_early(budget.epsilon, budget.delta, changes, self.steps_per_epoch, self.places)


class OneEpochAWindow(Coarse):
    """As if a window never met two epochs."""

    @property
    def epochs_met(self) -> int:
        """A wrong number."""
        return 1


MUTANTS: dict[str, tuple[type[Discover], type[Discover], dict[str, Any], tuple[str, str]]] = {
    "beta per step": (
        Sharp, BetaPerStep, {"policy": User(epsilon="1/2", delta="1/5", horizon=2), "epoch": 2}, ("x.", ".."),
    ),
    "one category for all": (
        Sharp, OneCategoryForAll, {"policy": User(epsilon="1", delta="1/5", horizon=4), "epoch": 2}, ("x.y.", "...."),
    ),
    "moves not counted": (
        Coarse, MovesNotCounted, {"policy": Event(epsilon="4", delta="1/5000"), "epoch": 2}, ("ab", ".b"),
    ),
    "one epoch a window": (
        Coarse, OneEpochAWindow,
        {"policy": WEvent(epsilon="4", delta="1/5000", window=2, adjacency="replace")}, (".aa.", ".bb."),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_versions_are_found(name: str) -> None:
    """Each loses more than it claims on a case that the right version survives."""
    right, kind, named, strings = MUTANTS[name]
    for version, caught in ((right, False), (kind, True)):
        mechanism = version(columns=8, early=True, **named)
        pair = neighbours(mechanism, *strings)
        allowed = float(mechanism.policy.delta) * float(mechanism.share)
        found = max(early_delta(mechanism, *each, up=not caught) for each in (pair, pair[::-1]))
        assert (found > allowed * 1.001) == caught, (found, allowed, mechanism.tests)


# sessions ------------------------------------------------------------------------------------------------------------


def pushed(mechanism: Discover, stream: Stream, log: Any = None) -> Any:
    """Releases of a stream of pairs."""
    collector = mechanism.collector()
    return tg.open(mechanism, log).push_batch([collector.step(pairs) for pairs in stream])


def test_a_category_opens_at_any_step_and_closes_at_the_end_of_an_epoch() -> None:
    """As soon as enough units have it in the epoch so far."""
    fresh = [[(f"{step} {unit}", "park") for unit in range(12)] for step in range(4)]
    stream = [*fresh, *[people(3, "pond")] * 4, [], people(90, "park", "pond"), [], []]
    releases = pushed(SMALL, stream)
    names = [set(releases.categories(at)) - {""} for at in range(12)]
    assert names[2:7] == [{"park"}] * 5
    assert names[7:9] == [set()] * 2
    assert names[9:] == [{"park", "pond"}] * 3
    assert releases.opened[11].max() == 10
    shown = {name for step in range(12) for name in releases.categories(step)}
    assert shown == {"", "park", "pond"}


def test_the_largest_open_where_more_pass() -> None:
    """Open ones keep their columns until the end of the epoch; there the largest numbers win."""
    mechanism = Discover(SMALL.policy, columns=2, categories=3, early=True)
    releases = pushed(mechanism, [people(60, "a"), people(250, "b", "c"), [], people(400, "d")])
    names = [set(releases.categories(at)) - {""} for at in range(4)]
    assert names[0] == {"a"}
    assert len(names[1]) == 2
    assert "a" in names[2]
    assert names[3] == {"d", *names[3] & {"b", "c"}}


def test_what_is_released_is_what_is_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With known noise a session shows what the audit computes for each category by itself."""

    def known(source: Any, stream: str, step: int, sigma: float, shape: tuple[int, ...]) -> Any:
        return (np.arange(shape[0], dtype=np.int64) * 7 + step * 5) % 11 - 5

    monkeypatch.setattr(early, "gaussian", known)
    choose = np.random.default_rng(5)
    policy = WEvent(epsilon="9", delta="1/10", window=2)
    mechanism = Coarse(policy, columns=9, epoch=3, categories=2, early=True)
    stream = [
        [(int(unit), f"c{int(unit) % int(choose.integers(1, 9))}") for unit in choose.integers(0, 40, 25)]
        for _ in range(30)
    ]
    releases, open_ = pushed(mechanism, stream), ()
    for at, units in enumerate(units_of(mechanism, stream)):
        names = [*open_, *(name for name in units if name not in open_)]
        for place, name in enumerate(names):
            noise = np.array([[known(None, "", step, 0.0, (len(names),))[place]] for step in range(3)])
            found = shown(mechanism, units.get(name, (0, 0, 0)), noise, is_open=name in open_)[:, 0]
            said = [
                dict(zip(releases.categories(step), releases.units_counted[step], strict=True)).get(name)
                for step in range(3 * at, 3 * at + 3)
            ]
            opened = next((step for step in range(3) if found[step] != NOTHING), 3)
            for step in range(2):
                if name not in open_:
                    assert said[step] == (found[opened] if step >= opened else None)
            assert said[2] == (None if found[2] == NOTHING else found[2])
        open_ = tuple(name for name in releases.categories(3 * at + 2) if name)


def test_what_counts_does_not_depend_on_later_steps() -> None:
    """First occurrences at a step are those that the end of the epoch has of it."""
    mechanism, choose = Discover(SMALL.policy, epoch=5, categories=2, early=True), np.random.default_rng(2)
    stream = [
        [(int(unit), str(choose.integers(0, 6))) for unit in choose.integers(0, 9, 12)] for _ in range(5)
    ]
    collector = mechanism.collector()
    rows = [mechanism.pairs(collector.step(pairs), 1, number) for number, pairs in enumerate(stream, 1)]
    for number, found in enumerate(rows, 1):
        assert found.rows() == rows[-1].filter(rows[-1]["step"] <= number).rows()


def test_blocks_of_categories_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise and estimates are those of each category."""
    pairs = [(f"{unit} {name}", f"c{name}") for unit in range(5) for name in range(40)]
    rows = SMALL.pairs(SMALL.collector().step(pairs), 1, 1)
    given = SMALL.tests, np.arange(4, dtype=np.uint64), rows, 1, 3, ["c7", "open"]
    whole = early.noisy_units(*given)
    assert whole[0][:3] == ["c7", "open", "c0"]
    assert len(whole[1]) == 41
    monkeypatch.setattr(early, "CELLS", 21)
    np.testing.assert_array_equal(early.noisy_units(*given)[1], whole[1])


def test_a_restart_draws_the_same_noise(tmp_path: Path) -> None:
    """From the key in the log: the same releases as without it, and nothing of the records."""
    stream = [[(f"{at} {unit}", "park" if at % 2 else "pond") for unit in range(9)] for at in range(10)]
    with fixed_entropy("restart"):
        whole, parts = pushed(SMALL, stream), []
        for pairs in stream:
            with tg.open(SMALL, tmp_path / "log") as session:
                collector = SMALL.collector(after=session.step)
                for again in range(collector.needed_from, session.step + 1):
                    collector.add(again, stream[again - 1])
                parts.append(session.push(collector.step(pairs)))
            assert b"1 7" not in (tmp_path / "log").read_bytes()
    assert [part.categories for part in parts] == [whole.categories(at) for at in range(10)]
    np.testing.assert_array_equal(np.array([part.units_counted for part in parts]), whole.units_counted)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("again", [(), (2,), (1,)])
def test_without_its_steps_an_epoch_has_no_more_tests(
    tmp_path: Path, again: tuple[int, ...], *, batch: bool
) -> None:
    """Whatever the records are: a neighbour without any has none either, also where later steps have all again."""
    crowd, shown = people(90, "park"), []
    for name, given in (("one", [(U, "a secret")]), ("none", [])):
        with tg.open(SMALL, tmp_path / name) as session:
            collector = SMALL.collector()
            for pairs in (given, []):
                session.push(collector.step(pairs))
        with tg.open(SMALL, tmp_path / name) as session:
            collector = SMALL.collector(after=2)
            for step in again:
                collector.add(step, given if step == 1 else [])
            steps = [collector.step(crowd)]
            for step in (1, 2):
                collector.add(step, given if step == 1 else [])
            steps += [collector.step(crowd) for _ in range(2)]
            found = list(session.push_batch(steps)) if batch else [session.push(step) for step in steps]
        shown.append([set(each.categories) - {""} for each in found])
    assert shown == [[set(), set(), {"park"}]] * 2


def test_a_step_of_another_number_has_no_test(tmp_path: Path) -> None:
    """A collector that was not told where the session is would take steps of two epochs for one."""
    with tg.open(SMALL, tmp_path / "log") as session:
        session.push(SMALL.collector().step([]))
    with tg.open(SMALL, tmp_path / "log") as session:
        collector = SMALL.collector()
        found = [session.push(collector.step(people(90, "park"))) for _ in range(5)]
    assert all(set(each.categories) == {""} for each in found)


@pytest.mark.parametrize("batch", [False, True])
def test_other_records_than_before_halt_a_session(tmp_path: Path, *, batch: bool) -> None:
    """Their noise was used with the first ones. The next start is silent, and then has tests again."""
    with tg.open(SMALL, tmp_path / "log") as session:
        session.push(SMALL.collector().step(people(2, "park")))
    with tg.open(SMALL, tmp_path / "log") as session:
        collector = SMALL.collector(after=1)
        collector.add(1, people(1, "park"))
        step = collector.step(people(90, "park"))
        with pytest.raises(Halted):
            _ = session.push_batch([step]) if batch else session.push(step)
    with tg.open(SMALL, tmp_path / "log") as session:
        collector = SMALL.collector(after=session.step)
        found = [session.push(collector.step(people(90, "park"))) for _ in range(6)]
    assert not set(found[0].categories) - {""}
    assert "park" in found[-1].categories


def test_a_collector_says_from_which_step_on_it_has_all() -> None:
    """By the steps that it was given, with or without records."""
    collector = Collector(5, after=8, early=True)
    assert collector.step([]).since == 9
    for step, since in ((7, 9), (8, 7), (6, 6)):
        collector.add(step, [])
        assert collector._since == since
    assert [collector.step([])[2:] for _ in range(2)] == [(10, 6), (11, 11)]


def test_sizes_do_not_depend_on_data() -> None:
    """Of every byte of the log."""
    sizes = []
    for stream in ([[]] * 6, [[(unit, f"{unit % 97} {at}") for unit in range(900)] for at in range(6)]):
        log = MemoryLog()
        pushed(SMALL, stream, log)
        sizes.append(
            (len(log.load().secret), [(len(row.charges), len(row.releases or b"")) for row in log.rows()])
        )
    assert sizes[0] == sizes[1]


# noise and thresholds ------------------------------------------------------------------------------------------------


def test_a_key_decides_noise_by_its_address() -> None:
    """However many draws are asked for; other keys and steps have other noise."""
    key = np.arange(4, dtype=np.uint64)
    many = gaussian(Keyed(key), "x", 3, 1e6, (40_000,))
    for count in (1, 2, 7, 16_385):
        np.testing.assert_array_equal(gaussian(Keyed(key), "x", 3, 1e6, (count,)), many[:count])
    for first in (1, 16_384):
        later = gaussian(Keyed(key, first), "x", 3, 1e6, (9,))
        np.testing.assert_array_equal(later, many[first : first + 9])
    assert (gaussian(Keyed(key), "x", 4, 1e6, (40_000,)) != many).mean() > 0.99
    assert (gaussian(Keyed(key + np.uint64(1)), "x", 3, 1e6, (40_000,)) != many).mean() > 0.99
    assert abs(many.std() / 1e6 - 1) < 0.02
    words = Keyed(key).words("x", 3, 9, np.array([8, 3]), 1, 2)
    assert [int(word) for word in words[:, 1]] == [Keyed(key).word("x", 3, 3, index) for index in (1, 2)]


def test_half_of_those_with_as_many_units_as_are_needed_open() -> None:
    """At most 160 units at ε = 1, δ = 1e-6 and a window of 168 steps are promised."""
    mechanism = Discover(WEvent(epsilon="2", delta="2e-6", window=168), early=True)
    assert mechanism.units_needed() == mechanism.tests.thresholds[-1] == 126
    assert max(mechanism.tests.thresholds) <= 148
    noise = gaussian(Keyed(np.ones(4, dtype=np.uint64)), "x", 0, mechanism.tests.sigma, (168, 900))
    units = np.zeros((168, 900), dtype=np.int64)
    units[::4] = 3  # 126 at the end
    passed = mechanism.tests.noisy(units, noise) >= 126
    assert abs(passed.mean() - 0.5) < 5 * 0.5 / 30


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-6"), ("4", "1e-9"), ("12", "1/100")])
@pytest.mark.parametrize(("changes", "steps"), [(1, 1), (4, 24), (64, 168)])
def test_calibration_keeps_its_condition(epsilon: str, delta: str, changes: int, steps: int) -> None:
    """The condition of the proof holds for what is chosen."""
    tests = calibrate_early(Fraction(epsilon), Fraction(delta), changes, steps)
    lost = loss_early(tests.sigma, tests.coefficients, float(Fraction(epsilon)), changes)
    total = lost + changes * tests.lone
    assert 0.01 * float(Fraction(delta)) < total <= float(Fraction(delta))


def test_noise_of_a_counter_is_what_thresholds_are_made_for() -> None:
    """Its deviation at each step, within five of its own."""
    tests = calibrate_early(Fraction(1), Fraction("1e-6"), 4, 12)
    noise = gaussian(Keyed(np.ones(4, dtype=np.uint64)), "x", 0, tests.sigma, (12, 20_000))
    for steps in (1, 5, 12):
        found = tests.noisy(np.full((steps, 20_000), 3), noise[:steps])
        assert abs(found.mean() - 3 * steps) < 5 * tests.deviations[steps - 1] / np.sqrt(20_000)
        assert abs(found.std() / tests.deviations[steps - 1] - 1) < 5 / np.sqrt(40_000)


def test_normal_chances_are_rounded_up() -> None:
    """Against sums of discrete noise that is nearly normal."""
    assert normal_tail(5.0) == pytest.approx(2.866515719e-7, rel=1e-6)
    for epsilon in (0.5, 2.0):
        discrete = gaussian_delta(400, 40.0, epsilon)
        assert normal_delta(0.5, epsilon) == pytest.approx(discrete, rel=1e-3)


def test_what_has_no_proof_is_refused() -> None:
    """Long epochs, and what is no yes or no."""
    with pytest.raises(InvalidParameter, match="early"):
        Discover(SMALL.policy, early=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="epoch"):
        Discover(SMALL.policy, epoch=5000, early=True)


def test_the_guarantee_says_what_neighbours_are_at_user_level() -> None:
    """One of them has no records of the unit."""
    assert "has no records of the unit" in str(CONFIGURATIONS["user"].guarantee)
    assert "has no records of the unit" not in str(SMALL.guarantee)
