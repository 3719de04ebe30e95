"""Units that count over several steps: what is counted, after restarts as well, and by how much one unit changes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidParameter
from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source
from tidegate.ingest.combined_query import CombinedQuery
from tidegate.policy import WEvent

SCHEMA = Schema(time="time", unit="unit", column="place")
STEPS = Steps(start="1970-01-01", length=10, count=12)
PLACES = ("a", "b", "c")
Records = list[tuple[int, str, str]]


def query(over: int, most: int = 3, places: tuple[str, ...] = PLACES) -> Query:
    """Units seen in the last steps at each place."""
    return Query(aggregate="distinct", columns=Columns(places), most=most, over=over)


def active(records: Records, over: int, most: int, count: int = 12) -> np.ndarray:
    """The same by hand: of each unit the first columns by time, at each step those of the last steps."""
    found = np.zeros((count, len(PLACES)), dtype=np.int64)
    for step in range(1, count + 1):
        columns: dict[str, list[str]] = {}
        for time, unit, place in sorted(records, key=lambda record: (record[0], record[2])):
            at = time // 10 + 1
            if at >= 1 and step - over < at <= step and place in PLACES:
                known = columns.setdefault(unit, [])
                if place not in known and len(known) < most:
                    known.append(place)
        for known in columns.values():
            for place in known:
                found[step - 1, PLACES.index(place)] += 1
    return found


def made(seed: int, rows: int = 200) -> Records:
    """Records in no order, some before the start and after the end."""
    random = np.random.default_rng(seed)
    return [
        (int(time), f"u{unit}", str(place))
        for time, unit, place in zip(
            random.integers(-25, 130, rows),
            random.integers(0, 15, rows),
            random.choice([*PLACES, "nowhere"], rows),
            strict=True,
        )
    ]


def write(records: Records, folder: Path) -> Path:
    """As a file."""
    path = folder / "events.csv"
    lines = [f"{time},{unit},{place}" for time, unit, place in records]
    path.write_text("\n".join(["time,unit,place", *lines]) + "\n")
    return path


def counted(path: Path, asked: Query | CombinedQuery, **more: object) -> np.ndarray:
    """What an intake delivers."""
    blocks = list(Intake(open_source(path, asked.needed(SCHEMA)), SCHEMA, STEPS, asked, **more))  # type: ignore[arg-type]
    return np.concatenate([block.units for block in blocks])


@pytest.mark.parametrize("over", [1, 2, 5, 12, 30])
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("order", ["any", "time"])
def test_units_count_at_every_step_that_sees_them(tmp_path: Path, over: int, most: int, order: str) -> None:
    """Sorted or not, bounded or not; what came before the first step counts nowhere."""
    records = made(over)
    given_ = sorted(records) if order == "time" else records
    found = counted(write(given_, tmp_path), query(over, most), order=order)
    np.testing.assert_array_equal(found, active(records, over, most))


def test_a_live_stream_counts_the_same_after_every_restart(tmp_path: Path) -> None:
    """From the position of any block on: what still counts is read again, and what does not is not."""
    records = sorted(made(7))
    path, expected = write(records, tmp_path), active(records, 4, 3)
    now = STEPS.boundary(13) / 1e6 + 1
    for start in range(12):
        position, found = None, []
        while len(found) < 12:
            source = open_source(path, query(4).needed(SCHEMA))
            intake = Intake(
                source, SCHEMA, STEPS, query(4), position=position, follow=True, clock=lambda: now
            )
            for number, block in enumerate(intake, 1):
                found += block.units.tolist()
                position = block.position
                if number > start:
                    break
            intake.close()
        np.testing.assert_array_equal(found, expected)


def test_several_queries_have_steps_of_their_own(tmp_path: Path) -> None:
    """Daily, weekly and monthly active users over one pass, beside records."""
    records = made(3)
    parts = (query(1), query(3), Query(aggregate="count", columns=Columns(PLACES), most=9), query(12))
    found = counted(write(records, tmp_path), CombinedQuery(tuple((SCHEMA, part) for part in parts)))
    for at, over in ((0, 1), (3, 3), (9, 12)):
        np.testing.assert_array_equal(found[:, at : at + 3], active(records, over, 3))
    alone = counted(tmp_path / "events.csv", parts[2])
    np.testing.assert_array_equal(found[:, 6:9], alone)


@settings(max_examples=200, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.integers(0, 119), st.sampled_from(["u0", "u1"]), st.sampled_from(PLACES)), max_size=25
    ),
    over=st.integers(1, 5),
    most=st.integers(1, 3),
    window=st.integers(1, 4),
    first=st.integers(1, 12),
)
def test_one_unit_changes_no_more_than_is_said(
    records: Records, over: int, most: int, window: int, first: int
) -> None:
    """Without what it did in a window, w + over − 1 steps are others, each by at most Δ."""
    inside = [
        record for record in records if record[1] == "u0" and first <= record[0] // 10 + 1 < first + window
    ]
    change = np.abs(
        active(records, over, most) - active([each for each in records if each not in inside], over, most)
    ).sum(axis=1)
    assert change.max(initial=0) <= query(over, most).max_change()
    changed = np.flatnonzero(change) + 1
    assert not len(changed) or (changed.min() >= first and changed.max() <= first + window + over - 2)


def test_the_bound_is_reached_and_no_larger_than_needed() -> None:
    """Where bounding leaves columns out, others come in their place: twice as many."""
    records = [(0, "u0", "a"), (10, "u0", "b")]
    change = np.abs(active(records, 2, 1) - active(records[1:], 2, 1)).sum(axis=1)
    assert change.max() == query(2, 1).max_change() == 2
    assert query(2, 3).max_change() == 3
    assert query(2, 2).max_change() == 3  # of three columns no more than three can change
    assert query(1, 1).max_change() == 1
    assert query(7, 1, ("a",)).max_change() == 1


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"adjacency": "replace"}, "adjacency"),
        ({"mobility": "fixed"}, "mobility"),
        ({"touches": 1}, "touches"),
    ],
)
def test_promises_that_do_not_hold_over_several_steps_are_refused(more: dict[str, object], name: str) -> None:
    """One sentence each."""
    policy = WEvent(epsilon="1", window=9, max_change="9", **more)  # type: ignore[arg-type]
    query(1).max_change()
    with pytest.raises(InvalidParameter, match=name):
        query(3).check(policy)


@pytest.mark.parametrize(
    "wrong", [{"aggregate": "count"}, {"over": 0}, {"over": 1001}, {"weighting": "share", "most": 2}]
)
def test_what_has_no_meaning_is_refused(wrong: dict[str, object]) -> None:
    """Records are added up at their own step."""
    with pytest.raises(InvalidParameter):
        Query(**{"aggregate": "distinct", "over": 3, **wrong})  # type: ignore[arg-type]


def test_a_stream_without_it_is_described_as_before() -> None:
    """So that its log continues."""
    assert "over" not in Query(aggregate="distinct").describe()
    assert Query(aggregate="distinct", over=3).describe()["over"] == 3
