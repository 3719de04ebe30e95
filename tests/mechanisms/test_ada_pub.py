"""AdaPub: a plain reference, columns that are measured together, and what fresh noise for each test loses."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import AdaPub
from tidegate.mechanisms.pegasus.deviation import whole_deviation
from tidegate.noise import current, laplace
from tidegate.policy import Event, WEvent
from tidegate.testing.entropy import fixed_entropy, zero_noise


def reference(mechanism: AdaPub, rows: Any) -> Any:
    """In plain Python, with noise from the same addresses."""
    steps, columns = rows.shape
    noise = laplace(current(), "perturber", 1, mechanism.scale, rows.shape)
    tests = laplace(current(), "test", 1, mechanism.grouping.question_scale, rows.shape)
    thresholds = laplace(current(), "threshold", 1, mechanism.grouping.threshold_scale, rows.shape)
    width, unit = max(mechanism.scale / 4, 1.0), mechanism.rule.unit
    raw: list[list[int]] = [[] for _ in range(columns)]
    noisy: list[list[int]] = [[] for _ in range(columns)]
    errors: list[list[float]] = [[] for _ in range(columns)]
    limits, last, values = [0] * columns, [0.0] * columns, []
    for at in range(steps):
        together: dict[Any, list[int]] = {}
        for column in range(columns):
            settled = mechanism.partition and len(raw[column]) >= 8
            cell = ("cell", math.floor(last[column] / width)) if settled else ("alone", column)
            together.setdefault(cell, []).append(column)
        measured = {}
        for members in together.values():
            total = sum(int(rows[at, column]) for column in members) + int(noise[at, members[0]])
            measured |= dict.fromkeys(members, math.floor(Fraction(total, len(members)) + Fraction(1, 2)))
        for column in range(columns):
            error = abs(last[column] - measured[column]) / mechanism.scale
            raw[column].append(int(rows[at, column]))
            if len(raw[column]) == 1:
                limits[column], error = int(thresholds[at, column]), 0.0
                errors[column] = []
            else:
                felt = 0.9 * error + 0.1 * sum(errors[column]) / len(errors[column])
                limit = int(max(unit / max(felt * felt, 1.0), 1.0)) + limits[column]
                if whole_deviation(raw[column]) + int(tests[at, column]) >= limit:
                    raw[column], noisy[column], last[column] = [], [], float(measured[column])
                    continue
            errors[column].append(error)
            noisy[column].append(measured[column])
            last[column] = statistics.median(noisy[column])
            if len(raw[column]) == mechanism.longest_group:
                raw[column], noisy[column] = [], []
        values.append(list(last))
    return np.array(values) * float(Fraction(mechanism.grid))


@pytest.mark.parametrize("mechanism", AdaPub.examples(), ids=range(len(AdaPub.examples())))
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_as_the_reference(mechanism: AdaPub, batch: int) -> None:
    """However the stream is cut."""
    choose = np.random.default_rng(3)
    rows = np.repeat(choose.integers(0, 60, (3, mechanism.columns)), 20, axis=0)
    pushed, log = rows * float(Fraction(mechanism.grid)), MemoryLog()
    with fixed_entropy("ada"):
        session = Session(mechanism, log)
        parts = [session.push_batch(pushed[at : at + batch]).values for at in range(0, 60, batch)]
        expected = reference(mechanism, rows)
    assert np.allclose(np.concatenate(parts), expected, rtol=1e-12)
    assert verify(log.rows()).ok


def test_columns_alike_share_their_noise_and_part_again() -> None:
    """From the eighth step of their clusters on; a column that jumps is measured by itself."""
    mechanism = AdaPub(WEvent(epsilon="1", window=2), columns=3)
    rows = np.array([[5, 5, 900]] * 40 + [[5, 800, 900]] * 10)
    with zero_noise():
        values = Session(mechanism).push_batch(rows).values
    assert values[40].tolist() == [5, 403, 900]  # the step of the jump is measured together
    assert np.array_equal(np.delete(values, 40, axis=0), np.delete(rows, 40, axis=0))
    together = AdaPub(WEvent(epsilon="1", window=24), columns=50)
    found = {}
    with fixed_entropy("together"):
        for partition in (True, False):
            other = AdaPub(together.policy, columns=50, partition=partition)
            found[partition] = np.abs(Session(other).push_batch(np.full((400, 50), 5)).values - 5)[50:].mean()
    assert found[True] < found[False] / 2


def test_fresh_noise_for_each_test_loses_with_every_step() -> None:
    """The paper's scale for one step: a count of the first step is in all tests of its cluster."""
    epsilon, steps = 1.0, 12
    counts, other = [0] * steps, [100] + [0] * (steps - 1)
    scale = 2 * 100 / epsilon
    lost = sum(
        (whole_deviation(other[:last]) - whole_deviation(counts[:last])) / scale
        for last in range(2, steps + 1)
    )
    assert lost > 8 * epsilon  # of the transcript that has one cluster


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"perturber_share": 1}, "perturber_share"),
        ({"threshold_factor": 0}, "threshold_factor"),
        ({"longest_group": 0}, "longest_group"),
    ],
)
def test_bad_parameters(options: dict[str, Any], words: str) -> None:
    """One sentence that names the parameter."""
    with pytest.raises(InvalidParameter, match=words):
        AdaPub(Event(epsilon="1"), **options)
    with pytest.raises(InvalidParameter, match="epsilon"):
        AdaPub(Event(epsilon="1e-16"))
