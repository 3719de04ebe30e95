"""Discovery by enumeration: (ε, δ) and not more, for every case of its proof; wrong versions lose more and are found."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.mechanisms.discovery_enumeration import Side, Stream, exact_delta, multiplied, opened

import tidegate as tg
from tidegate.audit.auditor import audit
from tidegate.audit.subjects import Callee
from tidegate.audit.verdicts import CLEAN
from tidegate.composition.gaussian import gaussian_delta, tail
from tidegate.mechanisms.discovery import discover
from tidegate.mechanisms.discovery.calibration import Selection, calibrate
from tidegate.mechanisms.discovery.discover import Candidates, Discover
from tidegate.mechanisms.discovery.occurrences import CATEGORY, UNIT, Step
from tidegate.mechanisms.discovery.weighted import WeightedTests
from tidegate.policy import Event, User, WEvent
from tidegate.structures.clipped_values import ClippedValues

U = "the unit"
SURE = 1 + 1e-7


def w_event(epsilon: str, delta: str, **named: Any) -> WEvent:
    """A window of two steps, whose records may be replaced: what counts lose is doubled, what tests lose is the same."""
    return WEvent(epsilon=epsilon, delta=delta, **{"window": 2, "adjacency": "replace", **named})


def others(count: int, *categories: str) -> list[tuple[Any, str]]:
    """Records of other units, so many in each category."""
    return [(f"{category} {number}", category) for category in categories for number in range(count)]


def cases(mechanism: Discover) -> dict[str, tuple[Stream, Stream]]:
    """Neighbours by what is particular of them, for epochs of two steps and windows of two that meet two of them."""
    limit = mechanism.selection.threshold
    many = others(limit + 8, "a", "b")
    few, some = others(limit - 1, "x", "y"), others(mechanism.staying - 1, "x", "y")

    def streams(
        one: str, other: str, base: list[Any] | None = None, epochs: int = 2
    ) -> tuple[Stream, Stream]:
        """The unit's category at each step, '.' for none; other units are there at the first step of each epoch."""
        made = []
        for own in (one, other):
            steps = []
            for at in range(2 * epochs):
                given = [] if at % 2 else (base if base is not None else many)
                steps.append([*given, *([(U, own[at])] if own[at] != "." else [])])
            made.append(steps)
        return made[0], made[1]

    opened = (
        [*many, *others(limit + 8, "x")],
        [(U, "x")],
        [],
        [],
        [*many, *others(limit - 1, "x")],
        [],
    )
    without = (opened[0], [], *opened[2:])
    gone = ([*many, *others(limit + 8, "x")], [], [], [(U, "x")], [], [])
    reopened = ([*others(limit, "x")], [], [], [], [*others(limit - 1, "x"), (U, "x")], [])
    return {
        "alone in a category": streams(".x..", "...."),
        "alone in two epochs": streams(".xy.", "...."),
        "tips it over": streams(".x..", "....", few),
        "tips it over twice": streams(".xx.", "....", few),
        "visible everywhere": streams(".aa.", ".bb."),
        "moves over the border": streams(".x..", "..x.", few),
        "moves behind the window": streams("..xx", "...x"),
        "let in by bounding": streams("..ab", "...b"),
        "let in alone": streams("..xy", "...y"),
        "one visible, one alone": streams(".ax.", ".b.."),
        "alone, then others": streams(".xa.", "..b."),
        "keeps it open": (opened, without),
        "closes without it": (gone, (*gone[:3], [], [], [])),
        "reopens with it": (reopened, (*reopened[:4], reopened[4][:-1], [])),
        "stays or closes": streams(".x.x", "...x", some),
    }


CONFIGURATIONS = {
    "w-event": Discover(w_event("6", "1/10"), columns=8),
    "w-event, small delta": Discover(w_event("8", "1/100"), columns=8, stay=1),
    "w-event, two categories": Discover(w_event("6", "1/10"), columns=8, categories=2),
    "w-event, small epsilon": Discover(w_event("3/2", "1/10"), columns=8, stay="1/3"),
    "event": Discover(Event(epsilon="16", delta="1/100"), columns=8, epoch=2),
    "user": Discover(User(epsilon="6", delta="1/10", horizon=6), columns=8, epoch=2),
}


def largest(mechanism: Discover, counts: bool) -> dict[str, float]:
    """The loss of every case in both directions, as a part of what is allowed."""
    allowed = float(mechanism.policy.delta) * (1 if counts else float(mechanism.share))
    return {
        name: max(exact_delta(mechanism, *pair, counts=counts) for pair in ((one, other), (other, one)))
        / allowed
        for name, (one, other) in cases(mechanism).items()
        if mechanism.policy.window != 1 or name in EVENTS
    }


# where neighbours differ in one step
EVENTS = {
    "alone in a category", "tips it over", "moves behind the window", "let in by bounding", "let in alone",
    "keeps it open", "closes without it", "reopens with it", "stays or closes",
}  # fmt: skip


@pytest.mark.parametrize("name", ["w-event", "event", "user"])
def test_tests_lose_what_they_may(name: str) -> None:
    """No case is beyond δ, and the worst one is near it."""
    found = largest(CONFIGURATIONS[name], counts=False)
    assert max(found.values()) <= SURE, found
    assert max(found.values()) > 0.1, found


class Coarse(Discover):
    """Weights in halves and quarters, so that sums of them can be enumerated."""

    places = 2


WEIGHTED = {
    "w-event": Coarse(w_event("6", "1/10"), columns=8, categories=2, weighted=True),
    "event": Coarse(Event(epsilon="8", delta="1/100"), columns=8, categories=3, epoch=2, weighted=True),
}


def changed_weights(mechanism: Discover) -> dict[str, tuple[Stream, Stream]]:
    """Neighbours of epochs of two steps, where a unit has categories outside of the window as well."""
    limit = mechanism.selection.threshold
    many, few = others(limit + 4, "a", "b"), others(limit - 1, "x", "y")

    def streams(one: str, other: str, base: list[Any]) -> tuple[Stream, Stream]:
        made = [
            [[*([] if at else base), *([] if own == "." else [(U, own)])] for at, own in enumerate(each)]
            for each in (one, other)
        ]
        return made[0], made[1]

    return {
        "its weight elsewhere changes": streams("ab", "a.", many),
        "it is elsewhere instead": streams(".a", ".b", many),
        "it tips over what it has elsewhere": streams("xa", "x.", few),
        "alone beside another": streams("xp", "x.", many),
        "alone twice": streams("pq", "p.", many),
        "let in": streams(".p", "..", many),
    }


@pytest.mark.parametrize("name", WEIGHTED)
def test_weighted_tests_lose_what_they_may(name: str) -> None:
    """Weights change outside of the window: that is part of what is allowed."""
    mechanism = WEIGHTED[name]
    allowed = float(mechanism.policy.delta) * float(mechanism.share)
    found = {
        case: max(exact_delta(mechanism, *each) for each in (pair, pair[::-1])) / allowed
        for case, pair in changed_weights(mechanism).items()
    }
    assert 0.001 < max(found.values()) <= SURE, found


class WeightsOfTheWindowAlone(Coarse):
    """As if what a unit has outside of the window kept its weight, and nothing were let in."""

    @cached_property
    def weighted_tests(self) -> WeightedTests:
        """A wrong one."""
        right = super().weighted_tests
        return right._replace(sigma=right.sigma / 2**0.5)


def test_weights_that_stay_outside_of_the_window_are_found() -> None:
    """It loses more than it claims."""
    mechanism = WeightsOfTheWindowAlone(
        Event(epsilon="8", delta="1/100"), columns=8, categories=3, epoch=2, weighted=True
    )
    worst = max(exact_delta(mechanism, *pair) for pair in changed_weights(mechanism).values())
    assert worst > 0.005 * 1.001, worst


def test_weights_of_units() -> None:
    """1/√j of a unit with j categories, among the first k."""
    mechanism = Discover(w_event("6", "1/10"), columns=8, categories=4, weighted=True, epoch=1)
    rows = [("one", "a"), *(("four", name) for name in "abcde")]
    step = mechanism.collector().step(rows)
    found = mechanism.tested(mechanism.pairs(step, 1, 1), ["z"])
    assert found.names.to_list() == [*"abcd", "z"]
    assert (found.units / 2**20).tolist() == [1.5, 0.5, 0.5, 0.5, 0.0]
    plain = Discover(w_event("6", "1/10"), columns=8, categories=4)
    assert mechanism.units_needed() < plain.units_needed()


def of_values(**named: Any) -> dict[str, Any]:
    """Sums or means at event level, where one epoch meets the window: what values add is soon enumerated."""
    policy = {"epsilon": "6", "delta": "1/10", "max_change": 3} | named.pop("policy", {})
    return {"policy": Event(**policy), "columns": 3, "epoch": 1, **named}


SUMS: dict[str, dict[str, Any]] = {
    "sums": of_values(aggregate="sum", clip=(-1, 3)),
    "sums, replaced": of_values(
        aggregate="sum", clip=(-1, 2), policy={"adjacency": "replace"}
    ),
    "sums, two records": of_values(aggregate="sum", clip=(0, 3), policy={"max_change": 6}),
    "means": of_values(aggregate="mean", clip=(0, 4), policy={"max_change": 4}),
    "means, replaced": of_values(
        aggregate="mean", clip=(0, 4), sum_share="2/3", policy={"max_change": 5, "adjacency": "replace"}
    ),
}  # fmt: skip


def of_one_unit(mechanism: Discover) -> dict[str, tuple[Any, Any]]:
    """Records of the unit in two streams, as far beyond the clip as can be: alone, beside others, moved and changed."""
    none: list[Any] = []
    found = {
        "high": ([(U, "a", 99)] * 2, none),
        "low": ([(U, "a", -99)] * 2, none),
        "alone": ([(U, "x", 99)] * 2, none),
        "tips it over": ([(U, "y", -99)] * 2, none),
        "in other": ([(U, "y", 99), (U, "z", 99)], none),
    }
    if mechanism.policy.adjacency == "replace":
        found |= {
            "another value": ([(U, "a", 99)] * 2, [(U, "a", -99)] * 2),
            "another category": ([(U, "a", 99)] * 2, [(U, "y", -99)] * 2),
        }
    return found


def loss_of_values(mechanism: Discover, pair: tuple[Any, Any]) -> float:
    """What tests and sums lose together in either direction, as a part of δ; `a` is open, and `y` nearly is."""
    limit = mechanism.selection.threshold
    rest = [(*each, 1) for each in [*others(limit + 8, "a"), *others(limit - 1, "y")]]
    sides = [Side(mechanism, [[*rest, *own]]) for own in pair]
    found = max(exact_delta(mechanism, *each, counts=True) for each in (sides, sides[::-1]))
    return found / float(mechanism.policy.delta)


@pytest.mark.parametrize("name", SUMS)
def test_sums_and_means_lose_what_they_may(name: str) -> None:
    """Of one record and of two, where one stream has none and where they are replaced."""
    mechanism = Discover(**SUMS[name])
    found = {case: loss_of_values(mechanism, pair) for case, pair in of_one_unit(mechanism).items()}
    assert 0.01 < max(found.values()) <= SURE, found


class ClippedByTheCollectorAlone(Discover):
    """What is pushed is added up as it is."""

    @property
    def _change(self) -> int:
        """That of the clip which is claimed."""
        return 3

    @cached_property
    def values(self) -> ClippedValues | None:
        """A wrong one."""
        return ClippedValues(-99, 99, 1)


class CountOfAMeanIsFree(Discover):
    """As if a record changed the sum behind a mean alone."""

    @property
    def _change(self) -> int:
        """A wrong one."""
        return 2


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (ClippedByTheCollectorAlone, of_values(aggregate="sum", clip=(-1, 3))),
        (CountOfAMeanIsFree, of_values(aggregate="mean", clip=(0, 4), policy={"max_change": 2})),
    ],
)
def test_wrong_sums_and_means_are_found(kind: type[Discover], named: dict[str, Any]) -> None:
    """Each loses more than it claims."""
    mechanism = kind(**named)
    assert max(loss_of_values(mechanism, pair) for pair in of_one_unit(mechanism).values()) > 1.001


def test_values_that_are_pushed_unclipped_are_clipped() -> None:
    """Whoever makes steps may be wrong: the mechanism cuts what it adds up."""
    mechanism = Discover(**SUMS["sums"])
    step = mechanism.collector().step([(U, "a", 2), ("other", "b", 1)])
    assert mechanism._counted(opened(mechanism, ["a"]), step).tolist()[::3] == [2, 1]
    far = step._replace(now=step.now.with_columns(pl.col("value") * 1000))
    assert mechanism._counted(opened(mechanism, ["a"]), far).tolist()[::3] == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_everything_together_loses_what_it_may(name: str) -> None:
    """The same of tests and counts in one transcript, at the whole ε and δ."""
    for counts in (False, True):
        found = largest(CONFIGURATIONS[name], counts=counts)
        assert max(found.values()) <= SURE, found


def test_the_proof_is_tight_where_all_is_visible() -> None:
    """Categories that many units have show all of their noise: the loss is that of four counts, to many digits."""
    mechanism = CONFIGURATIONS["w-event"]
    found = exact_delta(mechanism, *cases(mechanism)["visible everywhere"])
    bound = gaussian_delta(4, mechanism.selection.sigma, 3.0)
    assert 0.9999 * bound < found <= bound


def random_pair(mechanism: Discover, choose: random.Random) -> tuple[Stream, Stream]:
    """Neighbours of three epochs with small numbers of units around all thresholds."""
    epoch, window, limit = mechanism.steps_per_epoch, mechanism.policy.window, mechanism.selection.threshold
    # with a test at every step the releases that can be are many
    steps, names = (max(4, window), "ab") if epoch == 1 else (3 * epoch, "abcd")
    base: list[list[Any]] = [[] for _ in range(steps)]
    for at in range(0, steps, epoch):
        for name in names:
            base[at] += others(choose.choice([0, 0, 1, mechanism.staying, limit - 1, limit + 2]), name)
    own = [choose.choice([None, *names]) for _ in range(steps)]
    one, other = list(own), list(own)
    first = choose.randrange(steps - window + 1)
    for at in range(first, first + window):
        one[at], other[at] = choose.choice([None, *names]), choose.choice([None, *names])

    def stream(mine: list[Any]) -> Stream:
        return [[*base[at], *([] if mine[at] is None else [(U, mine[at])])] for at in range(steps)]

    return stream(one), stream(other)


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_random_neighbours(epoch: int, window: int) -> None:
    """Windows that are shorter and longer than epochs."""
    policy = w_event("4", "1/10", window=window)
    mechanism, choose = Discover(policy, columns=8, epoch=epoch), random.Random(f"{epoch} {window}")
    for _ in range(8):
        one, other = random_pair(mechanism, choose)
        for pair in ((one, other), (other, one)):
            assert exact_delta(mechanism, *pair) <= 0.05 * SURE


# from outside --------------------------------------------------------------------------------------------------------


def attacked(mechanism: Discover) -> Callee:
    """A session per transcript: of each column so many units, and their category opens, or is in other."""

    def released(stream: np.ndarray) -> np.ndarray:
        collector, shown = mechanism.collector(), []
        for row in np.maximum(stream, 0).tolist():
            pairs = [(f"{at} {unit}", "ab"[at]) for at, many in enumerate(row) for unit in range(many)]
            shown.append(collector.step(pairs))
        found = tg.open(mechanism).push_batch(shown)
        said = [
            [release.counts.get(name, -99) for name in ("a", "b", "other")]
            + [
                dict(zip(release.categories, release.units_counted, strict=True)).get(name, -99)
                for name in "ab"
            ]
            for release in found
        ]
        return np.array(said)

    return Callee(released, mechanism.policy, columns=2, name=type(mechanism).__name__)


@pytest.mark.slow
def test_an_audit_from_outside_finds_nothing_but_what_is_wrong() -> None:
    """Sessions alone, by an auditor that knows streams and releases; a claim of an eighth of the ε is refuted."""
    honest = Discover(Event(epsilon="1", delta="1/100"), columns=2, epoch=1)
    verdict = audit(attacked(honest), seconds=20, steps=1, error=1e-6, seed=3)
    assert verdict.outcome == CLEAN, verdict
    boasting = attacked(Discover(Event(epsilon="8", delta="1/100"), columns=2, epoch=1))
    boasting.policy = Event(epsilon="1", delta="1/100")
    assert audit(boasting, seconds=20, steps=1, error=1e-6, seed=3).outcome != CLEAN


# wrong versions ------------------------------------------------------------------------------------------------------


class ThresholdTooLow(Discover):
    """One less than it has to be."""

    @cached_property
    def selection(self) -> Selection:
        """A wrong one."""
        right = super().selection
        return right._replace(threshold=right.threshold - 1)


class DeltaForgotten(Discover):
    """Noise that takes all of δ, and a threshold that takes as much for every category that a unit may be alone in."""

    @cached_property
    def selection(self) -> Selection:
        """A wrong one."""
        delta, epsilon = float(self.policy.delta) / 2, float(self.policy.epsilon) / 2
        sigma = least_sigma(2 * self.categories * self.epochs_met, epsilon, delta)
        return Selection(sigma, next(limit for limit in range(2, 1000) if tail(sigma, limit - 1) <= delta))


class OneEpochAWindow(Discover):
    """As if a window never met two epochs."""

    @cached_property
    def selection(self) -> Selection:
        """A wrong one."""
        return calibrate(self.policy.epsilon / 2, self.policy.delta / 2, self.categories, 1)


class NothingLetIn(Discover):
    """As if a unit that is left out only took its categories with it."""

    @cached_property
    def selection(self) -> Selection:
        """A wrong one."""
        epsilon, delta = float(self.policy.epsilon) / 2, float(self.policy.delta) / 2
        sigma = least_sigma(self.categories * self.epochs_met, epsilon, delta / 2)
        limits = range(2, 1000)
        most = delta / 2 / self.categories / self.epochs_met
        return Selection(sigma, next(limit for limit in limits if tail(sigma, limit - 1) <= most))


class ClosedByRawCounts(Discover):
    """A category that nobody has is closed at once."""

    def passes(self, tested: Candidates, noisy: Any) -> Any:
        """A wrong one."""
        return super().passes(tested, noisy) & (tested.units > 0)


class UntouchedSkipped(Discover):
    """Only categories that somebody has are tested."""

    def tested(self, pairs: pl.DataFrame, open_names: list[str]) -> Candidates:
        """A wrong one."""
        found = super().tested(pairs, open_names)
        touched = found.units > 0
        return Candidates(found.names.filter(pl.Series(touched)), found.units[touched], found.open[touched])


class BoundedByRarity(Discover):
    """A unit counts in its rarest categories."""

    def pairs(self, step: Step, first: int, number: int) -> pl.DataFrame:
        """A wrong one."""
        rows = pl.concat([step.earlier.select(UNIT, CATEGORY), step.now]).unique(maintain_order=True)
        units = rows.group_by(CATEGORY).len()
        order = rows.join(units, on=CATEGORY).sort("len", CATEGORY).select(UNIT, CATEGORY)
        return discover.first_of_each(order, self.categories)


class Cascade(Discover):
    """A unit counts once in any w steps since it was counted last, whatever epoch that was."""

    def pairs(self, step: Step, first: int, number: int) -> pl.DataFrame:
        """A wrong one."""
        found = super().pairs(step, first, number)
        if number == 1:
            object.__setattr__(self, "_counted_last", {})
        last: dict[str, int] = self._counted_last  # type: ignore[attr-defined]
        kept = [unit not in last or number - last[unit] >= self.policy.window for unit in found[UNIT]]
        last.update(dict.fromkeys(found[UNIT].filter(pl.Series(kept)), number))
        return found.filter(pl.Series(kept, dtype=pl.Boolean))


def least_sigma(count: int, epsilon: float, delta: float) -> float:
    """The least σ, in 64ths, with which so many changed counts lose δ."""
    return next(
        sigma / 64 for sigma in range(64, 10**6) if gaussian_delta(count, sigma / 64, epsilon) <= delta
    )


def rarity(mechanism: Discover) -> tuple[Stream, Stream]:
    """Units that all have two categories, of which the unit decides which one is rarer."""
    both = [(f"other {number}", name) for number in range(8) for name in "xy"]
    return [[*both, (U, "x")], []], [both, []]


def steady(mechanism: Discover) -> tuple[Stream, Stream]:
    """A unit at every step, in a category that many have; its first step is left out."""
    many = others(mechanism.selection.threshold + 12, "x")
    fresh = [[(f"{step} {unit}", name) for unit, name in many] for step in range(8)]
    return [[*each, (U, "x")] for each in fresh], [
        [*each, *([(U, "x")] if at else [])] for at, each in enumerate(fresh)
    ]


SHARP = Event(epsilon="16", delta="1/100")  # where the threshold alone decides

MUTANTS: dict[str, tuple[type[Discover], dict[str, Any], Any]] = {
    "threshold one too low": (ThresholdTooLow, {"policy": SHARP, "epoch": 2}, "alone in a category"),
    "delta forgotten": (DeltaForgotten, {"policy": w_event("6", "1/10"), "categories": 2}, "alone twice in each epoch"),
    "one epoch a window": (OneEpochAWindow, {"policy": w_event("6", "1/10")}, "visible everywhere"),
    "nothing let in": (NothingLetIn, {"policy": Event(epsilon="2", delta="1/10"), "epoch": 2}, "let in by bounding"),
    "closed by raw counts": (ClosedByRawCounts, {"policy": w_event("6", "1/10")}, "closes without it"),
    "untouched skipped": (UntouchedSkipped, {"policy": w_event("6", "1/10")}, "closes without it"),
    "bounded by rarity": (BoundedByRarity, {"policy": w_event("6", "1/10")}, rarity),
    "the cascade": (Cascade, {"policy": w_event("6", "1/10"), "epoch": 1}, steady),
}  # fmt: skip


def alone_twice(mechanism: Discover) -> tuple[Stream, Stream]:
    """A unit alone in two categories of each epoch."""
    many = others(mechanism.selection.threshold + 8, "a")
    own = [[], [(U, "p"), (U, "q")], [(U, "r"), (U, "s")], []]
    return [[*many, *each] if not at % 2 else each for at, each in enumerate(own)], [many, [], many, []]


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_versions_are_found(name: str) -> None:
    """Each loses more than it claims on a case that the right version survives."""
    kind, named, case = MUTANTS[name]
    named = {"columns": 8, **named}
    for version, caught in ((Discover, False), (kind, True)):
        mechanism = version(**named)
        pair = (
            case(mechanism) if callable(case)
            else alone_twice(mechanism) if case.startswith("alone twice")
            else cases(mechanism)[case]
        )  # fmt: skip
        allowed = float(mechanism.policy.delta) * float(mechanism.share)
        found = max(exact_delta(mechanism, *each) for each in (pair, pair[::-1]))
        assert (found > allowed * 1.001) == caught, (found, allowed)


def test_the_enumeration_knows_chances() -> None:
    """What the other stream cannot release is lost as a whole."""
    branches, lost = multiplied({((), 0.0): 1.0}, {3: (0.25, 0.0), None: (0.75, 1.0)}, "x")
    assert lost == 0.25
    assert branches == {((), round(float(np.log(0.75)), 9)): 0.75}
