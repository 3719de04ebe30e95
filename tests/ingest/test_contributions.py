from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ingest import Contributions

Events = list[tuple[int, int, int]]

# Few units, columns and times, so that collisions and events outside the clock are common.
events = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 4), st.integers(-5, 45)), max_size=40)


def clock(most: int = 1) -> Contributions:
    """Four steps of ten, four columns."""
    return Contributions(start=0, length=10, steps=4, columns=4, most=most)


def count(contributions: Contributions, rows: Events) -> npt.NDArray[np.int64]:
    """Count rows of (unit, column, time)."""
    units, columns, times = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return contributions.count(units, columns, times)


def count_plainly(rows: Events, most: int) -> npt.NDArray[np.int64]:
    """The same rule, one event after the other."""
    kept: dict[tuple[int, int], list[int]] = defaultdict(list)
    for unit, column, time in sorted(rows, key=lambda row: (row[2], row[1])):
        if 0 <= time < 40 and 0 <= column < 4:
            mine = kept[unit, time // 10]
            if column not in mine and len(mine) < most:
                mine.append(column)
    counts = np.zeros((4, 4), dtype=np.int64)
    for (_, step), columns in kept.items():
        counts[step, columns] += 1
    return counts


@given(events, st.integers(1, 5))
def test_agrees_with_the_plain_rule(rows: Events, most: int) -> None:
    """The vectorised count is the rule of the docstring."""
    np.testing.assert_array_equal(count(clock(most), rows), count_plainly(rows, most))


@given(events, st.integers(1, 5), st.integers(0, 4))
def test_one_unit_changes_a_step_by_at_most_max_change(rows: Events, most: int, unit: int) -> None:
    """Removing all events of a unit changes each step by at most Δ in L1, and only downwards."""
    without = count(clock(most), [row for row in rows if row[0] != unit])
    change = count(clock(most), rows) - without
    assert change.min() >= 0
    assert change.sum(axis=1).max() <= clock(most).max_change


@given(events, st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(rows: Events, most: int, random: object) -> None:
    """A shuffled input gives the same counts."""
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(count(clock(most), rows), count(clock(most), shuffled))


def test_strings_name_units() -> None:
    """Units may be names."""
    counts = clock().count(np.array(["a", "b", "a"]), [1, 1, 2], [0, 0, 5])
    assert counts[0].tolist() == [0, 2, 0, 0]


def test_extreme_times_do_not_wrap_into_the_clock() -> None:
    """Times at the ends of 64 bits, signed and unsigned, are outside and nothing else."""
    ends = np.iinfo(np.int64)
    assert clock().count([1, 2], [0, 0], [ends.min, ends.max]).sum() == 0
    assert clock().count([1], [0], np.array([2**64 - 1], dtype=np.uint64)).sum() == 0


def test_no_events_count_nothing() -> None:
    """An empty stream has the full shape."""
    assert clock(2).count([], [], []).tolist() == [[0] * 4] * 4


@pytest.mark.parametrize(
    ("columns", "times", "word"),
    [
        ([1.0], [1], "columns"),
        ([1], [float("nan")], "times"),
        ([1, 2], [1], "one length"),
        ([[1]], [[1]], "one length"),
    ],
)
def test_wrong_events_are_refused_without_their_contents(columns: object, times: object, word: str) -> None:
    """A wrong type or shape is one sentence."""
    with pytest.raises(InvalidInput, match=word):
        clock().count([1], columns, times)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"length": 0}, {"most": 0}, {"columns": 0}, {"steps": -1}, {"steps": 2**62}, {"most": True}]
)
def test_wrong_parameters_are_refused(wrong: dict[str, int]) -> None:
    """The constructor validates."""
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        Contributions(**{"start": 0, "length": 10, "steps": 4, "columns": 4, **wrong})


def test_crafted_units_are_counted_like_any_others() -> None:
    """Ids that a fixed multiplier sends to one place; with one, a hundred thousand of them took a minute."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    crafted = np.array([k * inverse % 2**64 for k in range(100_000)], dtype=np.uint64).view(np.int64)
    contributions = Contributions(start=0, length=10, steps=1, columns=1, most=1)
    zeros = np.zeros(len(crafted), dtype=np.int64)
    assert contributions.count(crafted, zeros, zeros).tolist() == [[100_000]]


def test_a_large_bound_takes_no_memory() -> None:
    """What is needed grows with the events, and not with how many a unit might have."""
    count = 100_000
    contributions = Contributions(start=0, length=count, steps=1, columns=4, most=10_000)
    found = contributions.count(np.arange(count), np.zeros(count, dtype=np.int64), np.arange(count)[::-1])
    assert found.sum() == count  # with room for `most` contributions of each unit this took 60 GB
