"""Clocks of devices are ahead: their records wait for their step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ingest.test_records_apart import FOLLOWED, NEEDED, QUERY, SCHEMA, Maker

from tidegate.clock.steps import AHEAD
from tidegate.ingest import Intake, Source, Steps, open_source

STEPS = Steps(start="1970-01-01", length=10, count=30)


def released(source: Source, now: float) -> list[int]:
    """How many records each step has, where all are read at one moment and every step closes after it."""
    done = False
    intake = Intake(source, SCHEMA, STEPS, QUERY, follow=True, clock=lambda: 1e6 if done else now)
    intake._patience = lambda: 0.0  # type: ignore[method-assign]
    batches = source.batches

    def until_all_came(*arguments: Any, **more: Any) -> Any:
        nonlocal done
        for batch in batches(*arguments, **more):
            yield batch
            done = done or "last" in batch.frame["unit"].to_list()

    source.batches = until_all_came  # type: ignore[method-assign]
    with source:
        found: list[int] = np.concatenate([block.units for block in intake])[:, 0].tolist()
    return found


@pytest.mark.parametrize("maker", FOLLOWED)
@pytest.mark.parametrize("now", [24.98, 19.98, 25.0 - AHEAD])
def test_records_ahead_of_the_clock_wait_for_their_step(maker: Maker, now: float, tmp_path: Path) -> None:
    """By 20 ms within a step and over its end, and by a minute: at the default lateness all of them were lost."""
    lines = [b"20.0,a,a,1", b"25.0,b,a,1", b"25.0,last,a,1"]
    found = released(maker(tmp_path, "csv", lines, True), now)
    assert [(step, count) for step, count in enumerate(found, 1) if count] == [(3, 3)]


def test_membership_is_decided_by_step(tmp_path: Path) -> None:
    """The whole of a step is taken if it begins within the tolerance, and nothing of one that begins later."""
    lines = [b"69.9,a,a,1", b"70.0,b,a,1", b"1e9,c,a,1", b"0,last,a,1"]
    path = tmp_path / "events.csv"
    for now, expected in (
        (60 - AHEAD, {1: 1, 7: 1}),
        (69.99 - AHEAD, {1: 1, 7: 1}),
        (70 - AHEAD, {1: 1, 7: 1, 8: 1}),
    ):
        path.write_bytes(b"time,unit,place,value\n" + b"\n".join(lines) + b"\n")
        found = released(open_source(path, NEEDED, follow=True), now)
        assert {step: count for step, count in enumerate(found, 1) if count} == expected


@pytest.mark.parametrize("length", [10, "calendar day", "calendar month"])
@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("lateness", [0, 90])
def test_the_furthest_step_is_the_one_of_the_clock_and_the_tolerance(
    length: int | str, count: int | None, lateness: int
) -> None:
    """None before the first one, and no more than there are; at the edges of steps, too."""
    steps = Steps(start="2026-03-01", length=length, count=count, lateness=lateness)
    tolerance = max(AHEAD, lateness)
    for step in (1, 2, 3):
        begin = steps.boundary(step) / 1e6 - tolerance
        assert (steps.furthest(begin - 0.01), steps.furthest(begin)) == (step - 1, step)
        assert steps.closed_by(steps.boundary(step + 1) / 1e6 + lateness) == step
    end = steps.boundary(4) / 1e6
    assert steps.furthest(end) >= 3
    assert steps.closed_by(end + lateness - 0.01) == 2
