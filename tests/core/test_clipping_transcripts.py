"""Clipped statistics on the new core have the recorded transcripts: releases and charges, however steps are pushed."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.transcripts import driver, record
from tests.transcripts.cases import Case, cases, pieces, rows

from tidegate import mechanisms as before
from tidegate._mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.values import ValueReader
from tidegate.core.verify import verify
from tidegate.mechanisms import clipped_records as records
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping import threshold as thresholds
from tidegate.mechanisms.clipping.clipped_average import ClippedAverage
from tidegate.mechanisms.clipping.clipped_decay import ClippedDecay
from tidegate.mechanisms.clipping.clipped_histogram import ClippedHistogram
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.releases import Status

MOVED: dict[Any, Any] = {
    before.ClippedSum: ClippedSum,
    before.ClippedAverage: ClippedAverage,
    before.ClippedDecay: ClippedDecay,
    before.ClippedHistogram: ClippedHistogram,
    before.BinaryTree: BinaryTree,
    before.Uniform: Uniform,
    before.BudgetDistribution: BudgetDistribution,
    thresholds.Threshold: Threshold,
}
COMPARED = ("values", "status", "source", "scale", "spent", "charges")
REOPENED = "reopened"  # every step is pushed by a session of its own


def moved(old: Any) -> Any:
    """The same configuration on the new core."""
    named = {each.name: getattr(old, each.name) for each in fields(old) if each.init}
    if isinstance(old, records.ClippedRecords):
        return ClippedRecords(**{**named, "build": lambda policy: moved(old.build(policy))})
    return MOVED[type(old)](**named)


def transcript(case: Case, mode: str, steps: int) -> dict[str, str]:
    """The digests of so many steps of a case on the new core."""
    about, log = case.configuration, MemoryLog()
    mechanism, units_ = moved(about.mechanism), case.rows[:steps]
    given = units_ if about.per_one == 1 else units_ / about.per_one
    sizes = [1] * steps if mode in ("single", REOPENED) else pieces(mode, steps) or []
    found, at, first = [], 0, about.first
    with install(FixedEntropy(driver.SEED)):
        session = opened(mechanism, log)
        for size in sizes:
            found.append(session.push_batch(given[at : at + size], step=first + at))
            at += size
            session = opened(mechanism, log) if mode == REOPENED else session
    assert verify(log.rows()).ok
    fields_ = {name: np.concatenate([getattr(each, name) for each in found]) for name in COMPARED[:4]}
    fields_["status"] = fields_["status"].astype(np.int64)
    if isinstance(mechanism, ClippedRecords):  # silent steps had their own number as their source, and have 0
        silent = np.flatnonzero(fields_["status"] == int(Status.SILENT))
        assert not fields_["source"][silent].any()
        fields_["source"][silent] = silent + first
    spent = np.concatenate([each.units for each in found]).tolist()
    charged: list[int] = []
    spans: dict[tuple[int, int], list[int]] = {}
    for row in log.rows():
        if row.last >= row.first:
            ((_, charges),) = charges_of(row)
            charged += charges.units.tolist()
            spans |= {(law, number): rest for law, number, *rest in charges.spans.tolist() if rest[2]}
    part = driver.Transcript(
        fields_,
        [Fraction(units, mechanism.units) for units in spent],
        [
            (
                [Fraction(units, mechanism.units) for units in charged],
                sorted(
                    (begin, last, Fraction(units, mechanism.units)) for begin, last, units in spans.values()
                ),
            )
        ],
    )
    return record.digests(part)


def opened(mechanism: Any, log: MemoryLog) -> Session:
    """A session; one that is pushed records takes any numbers, as it did, and not only those of records."""
    session = Session(mechanism, log)
    if isinstance(mechanism, ClippedRecords):
        session._queries[0].reader = ValueReader(mechanism.columns, Fraction(mechanism.grid))
    return session


def all_cases(family: str) -> list[Case]:
    """Those that are stored; a clamp of counts and sums in bins is refused now."""
    found = [each for each in driver.configurations() if each.family == family]
    return [
        case
        for about in found
        for case in cases(about)
        if not (family == "records" and about.kind == "clamp")
    ]


def check(case: Case, stored: dict[str, Any], modes: tuple[str, ...]) -> None:
    """Digests are those that were recorded."""
    line = stored[case.name]
    refused = line.get("refused")
    steps = int(refused.split(":")[0]) - 1 if refused else case.steps
    for mode in (REOPENED, "single") if refused else modes:  # a batch was refused as a whole
        found = transcript(case, mode, steps)
        names = {*COMPARED, "spans"}
        names -= {"charges"} if refused else set()  # were counted to the end of the rows
        # what a step said that it spent had its part of a span, and has its own units
        names -= {"spent"} if "spans" in line else set()
        wrong = [name for name in names if found.get(name) != line["digests"].get(name)]
        assert not wrong, (case.name, mode, wrong)


@pytest.mark.parametrize("kind", [*list(MOVED)[:4], records.ClippedRecords], ids=lambda kind: kind.__name__)
def test_quick_part(kind: Any) -> None:
    """The first example of each mechanism, on two streams."""
    family = "records" if kind is records.ClippedRecords else "clipping"
    stored = record.stored(family)[1]
    about = driver._configuration(family, f"{kind.__name__}-0", kind.examples()[0])
    chosen = [case for case in cases(about) if case.quick]
    assert len(chosen) == 2
    for case in chosen:
        check(case, stored, ("odd", REOPENED))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["clipping", "records"])
def test_all(family: str) -> None:
    """Every example and variant on every stream: batches, odd batches, single pushes, a session per step."""
    stored, seen = record.stored(family)[1], set()
    for case in all_cases(family):
        check(case, stored, ("batch", "odd", "single", REOPENED))
        seen.add(case.name)
    assert {name for name in stored if name not in seen} == (
        {"ClippedRecords-0 clamp 50/rough"} if family == "records" else set()
    )


def test_single_thresholds() -> None:
    """Thresholds that are released alone: their values and charges, for every method and in every mode."""
    stored, kinds = record.stored("thresholds")[1], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_threshold", lambda threshold, rows: threshold)
        kinds = {name: release(None) for name, release in driver.thresholds()}
    assert len(kinds) * 4 == len(stored)
    for name, line in stored.items():
        about, stream = name.split("/")
        threshold, given = moved(kinds[about]), rows(stream, 60, 1, 1, 2**53)
        for sizes in ([60], pieces("odd", 60) or [], [1] * 60):
            log, at = MemoryLog(), 0
            with install(FixedEntropy(driver.SEED)):
                for size in sizes:
                    releases = Session(threshold, log).push_batch(given[at : at + size])
                    at += size
            found = threshold.read(releases)
            charged = [
                Fraction(unit, threshold.units)
                for row in log.rows()
                if row.last >= row.first
                for unit in charges_of(row)[0][1].units.tolist()
            ]
            assert record.digest([found.value]) == line["digests"]["values"], name
            assert record.digest(charged) == line["digests"]["charges"], name
            assert verify(log.rows()).ok
