"""Mechanisms in sessions against the recorded transcripts of releases and charges."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.transcripts import driver, record
from tests.transcripts.cases import Case, cases, pieces

from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import TidegateError
from tidegate.testing.entropy import fixed_entropy

FAMILIES = ("counters", "optstream", "pegasus", "swellfish", "tide")
# intervals are a fold over releases, and not of the mechanism; `spent` was the ledger's word for a step and the spans
# that began with it, and a release of the core has the units of the step alone
ELSEWHERE = ("radius", "revised radius", "last radius", "spent")


def run(case: Case, mode: str) -> driver.Transcript:
    """What a session, or with "reopened" a session per step, releases and charges."""
    about, mechanism, log = case.configuration, case.configuration.mechanism, MemoryLog()
    found, last = driver.Transcript(), None
    got: list[Any] = []
    rows, at = driver._values(case.rows, about), 0
    with fixed_entropy(driver.SEED):
        session = Session(mechanism, log)
        try:
            for size in pieces(mode, case.steps) or [1] * case.steps:
                if mode == "reopened":
                    session = Session(mechanism, log)
                got.append(session.push_batch(rows[at : at + size], step=about.first + at))
                at += size
            ended = session.finish()
            last = None if ended is None else ended.revised
        except TidegateError as error:
            found.refused = f"{at + 1}: {type(error).__name__}"
    found.fields = driver._fields(got, about.first, mechanism.outputs, last)
    found.charges = [charged(log, about.first, case.steps, mechanism.units)]
    assert verify(log.rows()).ok
    return found


def charged(log: MemoryLog, first: int, count: int, units: int) -> Any:
    """What each step was charged, and the spans as they were in the end."""
    steps, spans = np.zeros(first + count, dtype=np.int64), {}
    for row in log.rows():
        if row.last >= row.first:
            charges: Any = charges_of(row)[0]  # of the only query
            *_, own, named = charges[-1] if isinstance(charges[-1], tuple) else charges
            steps[row.first : row.last + 1] = own
            spans.update({(law, ordinal): rest for law, ordinal, *rest in named.tolist() if rest[2]})
    return (
        [Fraction(each, units) for each in steps[first:].tolist()],
        sorted((begin, last, Fraction(cost, units)) for begin, last, cost in spans.values()),
    )


def compared(case: Case, mode: str) -> list[str]:
    """The fields that are not as they were recorded for single pushes."""
    line = record.stored(case.configuration.family)[1][case.name]
    if "refused" in line:
        return []
    got, stored = record.digests(run(case, mode)), line["digests"]
    names = {*got, *stored} - {*ELSEWHERE}
    return sorted(name for name in names if got.get(name) != stored.get(name))


def all_cases(*, quick: bool) -> Iterator[Case]:
    """The cases of these families."""
    for configuration in driver.configurations(variants=not quick):
        if configuration.family in FAMILIES:
            yield from (case for case in cases(configuration) if case.quick or not quick)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_part_is_as_recorded(family: str) -> None:
    """The first example of every mechanism on two streams, in batches of odd sizes and with a session per step."""
    chosen = [case for case in all_cases(quick=True) if case.configuration.family == family]
    assert chosen
    for case in chosen:
        for mode in ("odd", "reopened"):
            assert not (names := compared(case, mode)), f"{case.name}, {mode}: {', '.join(names)}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["single", "batch", "odd", "reopened"])
@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_as_recorded(family: str, mode: str) -> None:
    """Every example and variant on every stream, the end of the stream included."""
    found = [
        f"{case.name}: {', '.join(names)}"
        for case in all_cases(quick=False)
        if case.configuration.family == family and (names := compared(case, mode))
    ]
    assert not found, "\n".join(found)
