"""Personal budgets: a plain reference, losses by enumeration for each requirement, BD and BA as special cases."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.audit.exact import largest_loss

import tidegate as tg
from tidegate.audit.neighbours import Pair
from tidegate.core.errors import LogMismatch
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, PersonalAbsorption, PersonalDistribution
from tidegate.mechanisms.w_event.personal import WEIGHTS, Requirement
from tidegate.noise import current, laplace
from tidegate.pipeline.charge_export import losses, windows
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.summary import summary
from tidegate.policy import WEvent
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy

KINDS = {PersonalDistribution: BudgetDistribution, PersonalAbsorption: BudgetAbsorption}
EXAMPLES = [each for kind in KINDS for each in kind.examples()]


class Addressed:
    """Noise from the addresses that the mechanism uses."""

    def test(self, margin: int, scale: float, step: int) -> bool:
        """Whether margin + noise ≥ 0."""
        return margin + int(laplace(current(), "dissimilarity", step, scale, (1, 1))[0, 0]) >= 0

    def values(self, centres: list[int], scale: float, step: int) -> list[int]:
        """Centres with noise."""
        noise = laplace(current(), "publication", step, scale, (1, len(centres)))[0]
        return [centre + int(each) for centre, each in zip(centres, noise, strict=True)]


class Enumerated:
    """Noise whose chances are enumerated."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def test(self, margin: int, scale: float, step: int) -> bool:
        """Whether margin + noise ≥ 0."""
        return bool(self.draw.test(margin, scale))

    def values(self, centres: list[int], scale: float, step: int) -> list[int]:
        """Centres with noise."""
        return [self.draw.value(centre, scale) for centre in centres]


def weights_of(
    offers: list[int], sizes: list[int], whole: float, spread: float, parts: int
) -> tuple[int, int, list[int], float, float]:
    """Threshold, parts, weights, their mean and relative variance: the threshold with the least variance."""
    count, found = sum(sizes), []
    for most in offers:
        if most:
            cut = [min(offer, most) for offer in offers]
            mean = sum(s * c for s, c in zip(sizes, cut, strict=True)) / count
            square = sum(s * c * c for s, c in zip(sizes, cut, strict=True)) / count
            found.append((2 * (whole / mean) ** 2 + spread * (square / mean**2 - 1), most))
    most = min(found, key=lambda each: each[0])[1]
    parts = parts if any(0 < offer < most for offer in offers) else 1
    weights = [min(offer, most) * parts // most for offer in offers]
    mean = sum(s * w for s, w in zip(sizes, weights, strict=True)) / count
    variance = sum(s / count * (w / mean - 1) ** 2 for s, w in zip(sizes, weights, strict=True))
    return most, parts, weights, mean, variance


def run(
    mechanism: Any, stream: Any, noise: Any, parts: int = WEIGHTS, *, weighted: bool = True
) -> tuple[list[Any], list[Status], list[list[int]]]:
    """In plain Python: values, how each step came about, what each requirement was charged."""
    count, columns = len(mechanism.promises), mechanism.outputs
    sizes, shares = mechanism.sizes.tolist(), mechanism.shares
    windows = [window for _, window in mechanism.promises]
    unit = mechanism.policy.epsilon / mechanism.units
    whole, change = float(mechanism.sensitivity / unit), float(mechanism.sensitivity)
    absorbs, grid = isinstance(mechanism, PersonalAbsorption), float(Fraction(mechanism.grid))
    spent: list[list[int]] = [[] for _ in range(count)]  # by publications, at each step
    last, values, found = [0.0] * columns, [], []
    for step, row in enumerate(np.asarray(stream).tolist(), 1):
        offers = []
        for paid, share, window in zip(spent, shares, windows, strict=True):
            if absorbs:
                latest = max((at for at, units in enumerate(paid, 1) if units), default=0)
                taken = paid[latest - 1] // share if latest else 1
                waited = step - latest
                offers.append(0 if waited < taken else min(waited - taken + 1, window) * share)
            else:
                recent = paid[max(0, step - window) :]
                offers.append((window * share - sum(recent)) // 2)
        paying, status = [0] * count, Status.NULLIFIED
        if max(offers):
            status = Status.APPROXIMATED
            levels = [max(each, 0.0) for each in last]
            spread = (
                sum(each * (change + float(mechanism.deviation) ** 2 * each) for each in levels) / columns
            )
            most, fine, weights, mean, variance = weights_of(offers, sizes, whole, spread, parts)
            test = weights_of(shares, sizes, whole, spread * columns**2, parts)
            if not weighted:
                weights = [fine if weight else 0 for weight in weights]
            score = sum(
                abs(
                    sum(w * row[own * columns + column] for own, w in enumerate(test[2]))
                    - round(last[column] * test[3])
                )
                for column in range(columns)
            )
            error = whole * fine / most / mean + math.sqrt(spread * (variance + test[4]))
            limit = math.floor(columns * error * test[3]) + 1
            if noise.test(score - limit, whole * test[1] / test[0], step):
                status = Status.FRESH
                sums = [
                    sum(w * row[own * columns + column] for own, w in enumerate(weights))
                    for column in range(columns)
                ]
                last = [each / mean for each in noise.values(sums, whole * fine / most, step)]
                paying = [min(offer, most) if w else 0 for offer, w in zip(offers, weights, strict=True)]
                if absorbs:
                    paying = [-(-paid // share) * share for paid, share in zip(paying, shares, strict=True)]
        for paid, units in zip(spent, paying, strict=True):
            paid.append(units)
        values.append([each * grid for each in last])
        found.append(status)
    charged = [[share + units for units in paid] for paid, share in zip(spent, shares, strict=True)]
    return values, found, np.array(charged).T.tolist()


def charged_in(log: MemoryLog, mechanism: Any) -> Any:
    """Units, steps × requirements."""
    count, units = len(mechanism.shares), []
    for row in log.rows():
        if row.last >= row.first:
            charges = charges_of(row)[0][1]
            each = charges.spans[:, 4] if mechanism.requirements else charges.units
            units.append(each.reshape(-1, count))
    return np.concatenate(units)


def stream_of(mechanism: Any, steps: int) -> Any:
    """Stretches that stand still, at several heights."""
    choose = np.random.default_rng(steps)
    return np.repeat(choose.integers(0, 90, (steps // 5, mechanism.columns)), 5, axis=0)


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=range(len(EXAMPLES)))
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_as_the_reference(mechanism: Any, batch: int) -> None:
    """Values, statuses and charges, however the stream is cut, and when the log is opened again."""
    log, rows, parts = MemoryLog(), stream_of(mechanism, 60), []
    with fixed_entropy("personal"):
        for at in range(0, 60, batch):
            if at % 3 == 0:
                session = Session(mechanism, log)
            parts.append(session.push_batch(rows[at : at + batch] * float(Fraction(mechanism.grid))))
        values, status, charged = run(mechanism, rows, Addressed())
    assert np.concatenate([part.values for part in parts]) == pytest.approx(np.array(values), rel=1e-12)
    assert [each for part in parts for each in part.status] == status
    assert charged_in(log, mechanism).tolist() == charged
    assert verify(log.rows()).ok
    assert Status.FRESH in status


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_all_kinds(kind: Any) -> None:
    """Any budgets, windows and shares, on streams of any height and sign: the reference, and no window overspent."""
    choose, tried = np.random.default_rng(8), 0
    while tried < 200:
        window, epsilon = (
            choose.integers(1, 8),
            Fraction(int(choose.integers(1, 40)), int(choose.integers(1, 6))),
        )
        table = tuple(
            Requirement(
                Fraction(1, int(choose.integers(4, 9))),
                epsilon * Fraction(int(choose.integers(1, 6)), 5),
                int(window + choose.integers(0, 9)),
            )
            for _ in range(choose.integers(0, 4))
        )
        columns, high = int(choose.integers(1, 4)), int(choose.choice([3, 60, 1000, 10**6, 10**9]))
        mechanism = kind(
            WEvent(epsilon=epsilon, window=int(window), adjacency=("add-remove", "replace")[tried % 2]),
            columns=columns * (len(table) + 1),
            requirements=table,
            deviation=Fraction(int(choose.integers(3)), 2),
        )
        rows, log = (
            np.repeat(choose.integers(-high // 10, high, (25, mechanism.columns)), 2, axis=0),
            MemoryLog(),
        )
        with fixed_entropy(f"table {tried}"):
            released = Session(mechanism, log).push_batch(rows)
            values, status, charged = run(mechanism, rows, Addressed())
        assert released.values == pytest.approx(np.array(values), rel=1e-9, abs=1e-9)
        assert list(released.status) == status
        units = charged_in(log, mechanism)
        assert units.tolist() == charged
        for own, (limit, length) in enumerate(mechanism.limits):
            assert window_sums(units[:, own], length).max() <= limit
        assert verify(log.rows()).ok
        tried += 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [None, "1/3", "0.1"])
@pytest.mark.parametrize("policy", [WEvent(epsilon="4", window=7), WEvent(epsilon="1/3", window=1)], ids=str)
def test_equal_requirements_are_bd_and_ba(kind: Any, share: str | None, policy: WEvent) -> None:
    """Bit for bit: values, statuses, scales and charges, whatever the division of units among them."""
    choose = np.random.default_rng(5)
    rows = np.maximum(0, np.cumsum(choose.integers(-4, 5, (200, 3)), axis=0) + 60)
    with fixed_entropy("equal"):
        expected = Session(KINDS[kind](policy, columns=3, noise="laplace")).push_batch(rows)
    asked = choose.binomial(rows, 0.3)
    table = () if share is None else (Requirement(share),)
    pushed = rows if share is None else np.concatenate([rows - asked, asked], axis=1)
    with fixed_entropy("equal"):
        found = Session(kind(policy, columns=pushed.shape[1], requirements=table)).push_batch(pushed)
    for name in ("values", "status", "source", "scale", "units"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert expected.fresh.sum() > 20


def window_sums(units: Any, window: int) -> Any:
    """Of every window."""
    return np.array([units[max(0, at - window + 1) : at + 1].sum() for at in range(len(units))])


@pytest.mark.parametrize("kind", KINDS)
def test_every_window_of_every_requirement_keeps_its_budget(kind: Any) -> None:
    """On streams that jump now and then, of several heights: exact units, and full windows among them."""
    table = (Requirement("1/4", "2"), Requirement("1/4", window=9), Requirement("1/4", "1/2", 13))
    mechanism, fullest = kind(WEvent(epsilon="9", window=4), columns=8, requirements=table), np.zeros(4)
    unit = mechanism.policy.epsilon / mechanism.units
    for every, height in ((1, 10**6), (3, 40), (11, 500), (40, 10**4)):
        log, rows = MemoryLog(), np.tile((np.arange(160) // every % 3 * height)[:, np.newaxis], 8)
        with fixed_entropy(f"{every}"):
            Session(mechanism, log).push_batch(rows)
        units = charged_in(log, mechanism)
        for own, (epsilon, window) in enumerate(mechanism.promises):
            fullest[own] = max(fullest[own], float(window_sums(units[:, own], window).max() * unit / epsilon))
        assert verify(log.rows()).ok
    assert fullest.max() <= 1
    assert fullest.min() > 0.9


PAIR = {"policy": WEvent(epsilon="4", window=2), "columns": 2}
TABLES = {
    "smaller": (Requirement("1/2", epsilon="1"),),
    "longer": (Requirement("1/2", window=3),),
    "both": (Requirement("1/2", epsilon="2", window=3),),
}


def worst(mechanism: Any, own: int, promise: Any = None, *, weighted: bool = True) -> float:
    """The most that a unit of a requirement loses on small streams, over its ε; weights are quarters: few outcomes."""
    (epsilon, window), found = promise or mechanism.promises[own], 0.0
    for column, signs in product(([0, 0, 0], [0, 2, 0], [2, 0, 2]), ([1, 1, 1], [-1, -1, -1], [1, -1, 1])):
        first = np.zeros((window, 2), dtype=np.int64)
        first[:, own] = column[:window]
        second = first.copy()
        second[:, own] += signs[:window]

        def program(stream: Any, draw: Any) -> None:
            run(mechanism, stream, Enumerated(draw), 4, weighted=weighted)

        found = max(found, largest_loss(program, Pair(first, second, ""), float(epsilon), radius=1).loss)
    return found / float(epsilon)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "table", ["smaller", *(pytest.param(each, marks=pytest.mark.slow) for each in ("longer", "both"))]
)
def test_a_unit_loses_at_most_what_it_asked_for(kind: Any, table: str) -> None:
    """Exact chances of all transcripts, tests and values together, of small streams; each requirement in its window."""
    mechanism = kind(**PAIR, requirements=TABLES[table])
    for own in (0, 1):
        assert 0.5 < worst(mechanism, own) <= 1 + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_found_out(kind: Any) -> None:
    """A common threshold without weights, and a longer window that is promised and not kept."""
    assert worst(kind(**PAIR, requirements=TABLES["smaller"]), 1, weighted=False) > 1.9
    shorter = kind(**PAIR, requirements=(Requirement("1/2"),))
    assert worst(shorter, 1, (Fraction(4), 3)) > 1.05


@pytest.mark.parametrize("kind", KINDS)
def test_nearer_than_the_strictest_for_everybody(kind: Any) -> None:
    """Half of the units ask for a fifth of ε, a quarter for three windows."""
    choose = np.random.default_rng(2)
    table = (Requirement("1/2", "1/5"), Requirement("1/4", window=60))
    rows = np.repeat(choose.integers(50, 500, (20, 8)), 25, axis=0)
    strict, half = choose.binomial(rows, 0.5), rows
    longer = choose.binomial(half - strict, 0.5)
    pushed = np.concatenate([rows - strict - longer, strict, longer], axis=1)
    with fixed_entropy("nearer"):
        ours = Session(kind(WEvent(epsilon="1", window=20), columns=24, requirements=table)).push_batch(
            pushed
        )
        theirs = Session(KINDS[kind](WEvent(epsilon="1/5", window=60), columns=8)).push_batch(rows)
    error, before = (np.abs(found.values - rows).mean() for found in (ours, theirs))
    assert error < 0.4 * before


def test_large_counts_are_divided_by_the_strictest() -> None:
    """Where noise is small beside how units divide, all have one weight, and nothing is lost by the division."""
    table = (Requirement("1/2", epsilon="10"),)
    mechanism = PersonalDistribution(WEvent(epsilon="1000", window=2), columns=2, requirements=table)
    rows = np.tile([[10**9, 3 * 10**9]], (40, 1)) + np.arange(40)[:, np.newaxis] % 2 * 10**8
    with fixed_entropy("large"):
        released = Session(mechanism).push_batch(rows)
    assert np.abs(released.values[1:] - rows[1:].sum(axis=1, keepdims=True)).max() < 100


def test_columns_of_one_requirement_each() -> None:
    """Releases are off by how columns differ from the table, and with `deviation` by noise of the strictest."""
    rows, table = np.full((300, 4), 5000), (Requirement("1/2", epsilon="1/5"),)
    pushed = np.concatenate([rows * [1, 0, 1, 0], rows * [0, 1, 0, 1]], axis=1)
    errors = []
    for deviation in (0, 1):
        mechanism = PersonalAbsorption(
            WEvent(epsilon="1", window=20), columns=8, requirements=table, deviation=deviation
        )
        with fixed_entropy("apart"):
            errors.append(np.abs(Session(mechanism).push_batch(pushed).values - rows)[20:].mean())
    assert errors[0] > 1000
    assert errors[1] < 200


def test_the_guarantee_names_every_requirement() -> None:
    """And it says what is assumed of requirements; over more steps it is that of the policy."""
    mechanism = PersonalAbsorption(
        WEvent(epsilon="1", window=4), columns=2, requirements=(Requirement("1/2", "1/8", 9),)
    )
    text = str(mechanism.guarantee)
    assert "1-differentially private for everything within any 4 consecutive steps" in text
    assert "Units of requirement 1 lose at most 0.125 in any 9 consecutive steps." in text
    assert "the columns of its own requirement" in text
    assert "requirement 1" not in str(mechanism.guarantee.over(steps=8))
    plain = PersonalAbsorption(WEvent(epsilon="1", window=4)).guarantee
    assert mechanism.guarantee.implies(plain)
    assert not plain.implies(mechanism.guarantee)


def test_it_has_a_log_of_its_own() -> None:
    """Its windows are not those of other queries."""
    one, plain = EXAMPLES[1], PersonalDistribution(EXAMPLES[1].policy)
    with pytest.raises(InvalidParameter, match="log of its own"):
        Session({"a": one, "b": plain}, shares={"a": "1/2", "b": "1/2"})
    assert Session({"a": plain, "b": plain}, shares={"a": "1/2", "b": "1/2"}).spent == {"a": 0, "b": 0}
    log = MemoryLog()
    Session(one, log).push([0] * one.columns)
    with pytest.raises(LogMismatch, match="cannot be amended"):
        Session(plain, log, amend=True)


def test_readers_of_the_log_know_requirements(tmp_path: Path) -> None:
    """The export has a part for each, whose windows keep its ε; the summary shows the window of the policy."""
    mechanism = PersonalDistribution(
        WEvent(epsilon="2", window=3), columns=2, requirements=(Requirement("1/2", "1", 6),)
    )
    with tg.open(mechanism, str(tmp_path / "log.db")) as session:
        session.push_batch([[10**6 * step, 10**5 * step] for step in range(20)])
    with LogReader(str(tmp_path / "log.db")) as log:
        found = losses(log.rows())
        shown = Fraction(summary(log)["spent_in_last_window"])
    for part, (epsilon, window) in enumerate(mechanism.promises):
        own = [loss for loss in found if loss.part == part]
        spent = [sum(loss.epsilon or 0 for loss in held) for _, _, held in windows(own, window)]
        assert epsilon * Fraction(4, 5) < max(spent) <= epsilon
        if part == 0:
            assert shown == spent[-1]


def test_steps_that_are_passed_over_are_silent() -> None:
    """A gap longer than the policy's window, and shorter than a requirement's."""
    for kind in KINDS:
        log = MemoryLog()
        mechanism = kind(
            WEvent(epsilon="4", window=3), columns=2, requirements=(Requirement("1/2", window=9),)
        )
        for step in (1, 2, 7, 11, 12, 40):
            Session(mechanism, log).push([10**6 * step, 5], step=step)
        assert verify(log.rows()).ok


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"requirements": (("1/2", "2"),)}, "larger"),
        ({"requirements": (("1/2", None, 3),)}, "shorter"),
        ({"requirements": (("1/2", "1/2"), ("1/2", "1/3"))}, "below 1"),
        ({"requirements": (("1/2147483647", "1/2"),)}, "denominator"),
        ({"requirements": (("1/2", "1/2"),), "columns": 3}, "multiple"),
        ({"requirements": (("1/2", "0.12345678901234567", 1009),), "columns": 2}, "common"),
        ({"requirements": ((0, "1/2"),)}, "share"),
        ({"requirements": (("1/128", "1/2"),) * 64}, "fewer than 64"),
        ({"deviation": "3/2"}, "deviation"),
        ({"requirements": (("1/2", "1/2", 2.5),)}, "window"),
        ({"policy": WEvent(epsilon="1e-20", window=4)}, "epsilon"),
    ],
)
def test_bad_parameters(options: dict[str, Any], words: str) -> None:
    """One sentence that names the parameter."""
    for kind in KINDS:
        with pytest.raises(TidegateError, match=words):
            kind(**{"policy": WEvent(epsilon="1", window=4)} | options)
