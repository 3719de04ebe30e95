"""PeGaSus, OptStream and their kin on the core against the recorded transcripts of releases and charges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.transcripts import driver, record
from tests.transcripts.cases import Case, cases, pieces

from tidegate import mechanisms as before
from tidegate._mechanisms.pegasus.backward_smoothing import BackwardSmoothing
from tidegate._mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate._mechanisms.pegasus.pegasus import PeGaSus
from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import unit_of
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import TidegateError
from tidegate.mechanisms.optstream.fourier import Fourier
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.optstream.periods import Revised, revision
from tidegate.testing.entropy import fixed_entropy

MOVED: dict[type[Any], type[Any]] = {
    before.PeGaSus: PeGaSus,
    before.HierarchicalPeGaSus: HierarchicalPeGaSus,
    before.BackwardSmoothing: BackwardSmoothing,
    before.OptStream: OptStream,
    before.HierarchicalOptStream: HierarchicalOptStream,
    before.PerLeafOptStream: PerLeafOptStream,
    before.Fourier: Fourier,
}
FAMILIES = ("pegasus", "optstream")
# intervals are a fold over releases, and not of the mechanism; `spent` was the ledger's word for a step and the spans
# that began with it, and a release of the core has the units of the step alone
ELSEWHERE = ("radius", "revised radius", "last radius", "spent")


def moved(old: Any) -> Any:
    """The same configuration on the core."""
    kind = MOVED[type(old)]
    return kind(**{each.name: getattr(old, each.name) for each in fields(old)})


def run(case: Case, mode: str) -> driver.Transcript:
    """What a session, or with "reopened" a session per step, releases and charges."""
    about, new, log = case.configuration, moved(case.configuration.mechanism), MemoryLog()
    found, last = driver.Transcript(), None
    got: list[Any] = []
    rows, at = driver._values(case.rows, about), 0
    with fixed_entropy(driver.SEED):
        session = Session(new, log)
        try:
            if about.first > 1:  # a batch begins after the last step
                session.push(rows[0], step=about.first)
                got += session.releases(about.first)
                at = 1
            for size in pieces(mode, case.steps - at) or [1] * (case.steps - at):
                if mode == "reopened":
                    session = Session(new, log)
                got.append(session.push_batch(rows[at : at + size]))
                at += size
            query = session._queries[0]
            output = new.finish(query.state, session.step, query.draws) if hasattr(new, "finish") else None
            if output is not None:
                last = revision(Revised(*output.revised), unit_of(new))
        except TidegateError as error:
            found.refused = f"{at + 1}: {type(error).__name__}"
    found.fields = driver._fields(got, about.first, new.outputs, last)
    found.charges = [charged(log, about.first, case.steps, new.units)]
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
    """The cases of both families."""
    for configuration in driver.configurations(variants=not quick):
        if configuration.family in FAMILIES:
            yield from (case for case in cases(configuration) if case.quick or not quick)


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
