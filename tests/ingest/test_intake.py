from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidParameter
from tidegate.ingest import Columns, Intake, Query, Schema, Source, StepBlock, Steps, open_source
from tidegate.ingest import blocks as blocks_module
from tidegate.ingest.errors import MissingReading, RepeatedReading, TimeGoesBackwards
from tidegate.ingest.sources import DirectorySource, ParquetSource, PipeSource, TextSource
from tidegate.ingest.sources.source import EventBatch, Patience, Position, no_patience
from tidegate.policy import WEvent
from tiers import combined

SCHEMA = Schema(time="time", unit="unit", column="place")
QUERY = Query(aggregate="distinct", columns=Columns(("a", "b")))
STEPS = Steps(start="1970-01-01", length=10, count=12)
NEEDED = QUERY.needed(SCHEMA)


def sample(rows: int = 300, seed: int = 1) -> pl.DataFrame:
    """Events in order of time, some outside of the clock, with an empty step 5 and gaps at both ends."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(-5, 108, rows))
    times = times[(times < 40) | (times >= 50)]
    return pl.DataFrame(
        {
            "time": times,
            "unit": [f"unit {number}" for number in random.integers(0, 40, len(times))],
            "place": random.choice(["a", "b", "nowhere"], len(times)),
        }
    )


def expected(frame: pl.DataFrame) -> list[list[int]]:
    """The same in plain polars."""
    kept = (
        frame.filter(pl.col("time").is_between(0, 119), pl.col("place").is_in(["a", "b"]))
        .with_columns(step=pl.col("time") // 10)
        .sort("time", "place")
        .unique(["step", "unit"], keep="first", maintain_order=True)
    )
    counts = np.zeros((12, 2), dtype=int)
    for step, place in kept.select("step", "place").iter_rows():
        counts[step, "ab".index(place)] += 1
    return counts.tolist()


def write(frame: pl.DataFrame, folder: Path, kind: str) -> Path:
    """The frame as a file."""
    path = folder / f"events.{kind}"
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[kind](path)
    return path


def small(path: Path) -> Source:
    """A source with tiny batches."""
    if path.suffix == ".parquet":
        return ParquetSource(path, NEEDED, rows=17)
    return TextSource(path, NEEDED, format=path.suffix[1:], piece=401)


def gather(blocks: Iterator[StepBlock] | Intake) -> list[list[int]]:
    """All steps, checked to be without gaps."""
    rows: list[list[int]] = []
    first = None
    for block in blocks:
        first = first or block.first_step
        assert block.first_step == first + len(rows)
        assert json.loads(json.dumps(block.position)) == block.position
        rows += block.values.tolist()
    return rows


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_files_agree_with_plain_polars(tmp_path: Path, kind: str, shuffled: bool) -> None:
    """In order or out of it, in one batch or many, empty steps included."""
    frame = sample()
    path = write(frame.sample(fraction=1, shuffle=True, seed=3) if shuffled else frame, tmp_path, kind)
    assert gather(Intake(open_source(path, NEEDED), SCHEMA, STEPS, QUERY)) == expected(frame)
    assert gather(Intake(small(path), SCHEMA, STEPS, QUERY, folder=tmp_path)) == expected(frame)
    assert [child.name for child in tmp_path.iterdir()] == [path.name], "temporary files are removed"
    if shuffled:
        with pytest.raises(TimeGoesBackwards, match='order="any"'):
            gather(Intake(small(path), SCHEMA, STEPS, QUERY, order="time"))


@pytest.mark.parametrize(("shuffled", "kind"), combined(5, [False, True], ["csv", "jsonl", "parquet"]))
def test_every_position_resumes(
    tmp_path: Path, kind: str, shuffled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new intake from any committed position gives the rest of the steps, also between blocks of one group."""
    monkeypatch.setattr(blocks_module, "MOST_CELLS", 4)
    frame = sample()
    path = write(frame.reverse() if shuffled else frame, tmp_path, kind)
    blocks = list(Intake(small(path), SCHEMA, STEPS, QUERY))
    assert len(blocks) >= 6
    for block in blocks:
        position = json.loads(json.dumps(block.position))
        rest = gather(Intake(small(path), SCHEMA, STEPS, QUERY, position=position))
        assert rest == expected(frame)[block.last_step :]


def test_steps_do_not_depend_on_where_batches_are_cut(tmp_path: Path) -> None:
    """Every size of batch gives the same."""
    path = write(sample(80), tmp_path, "parquet")
    for rows in (1, 2, 3, 5, 79, 80, 81):
        assert gather(Intake(ParquetSource(path, NEEDED, rows=rows), SCHEMA, STEPS, QUERY)) == expected(
            sample(80)
        )


def test_order_within_a_step_is_free(tmp_path: Path) -> None:
    """Times may go backwards inside of a step, and outside of the clock, without any sorting."""
    frame = pl.DataFrame(
        {"time": [9, 3, 10**6, 12, -5, 11, 25], "unit": list("uuxvyww"), "place": list("abaabba")}
    )
    path = write(frame, tmp_path, "csv")
    intake = Intake(small(path), SCHEMA, STEPS, QUERY, order="time")
    assert gather(intake)[:3] == [[0, 1], [1, 1], [1, 0]]


def test_a_far_future_event_moves_nothing(tmp_path: Path) -> None:
    """An event beyond the clock neither ends the stream early nor makes it longer."""
    frame = sample()
    late = pl.DataFrame({"time": [10**12], "unit": ["z"], "place": ["a"]})
    path = write(pl.concat([late, frame]), tmp_path, "csv")
    assert gather(Intake(small(path), SCHEMA, STEPS, QUERY)) == expected(frame)


def test_numbers_name_units_like_text_does(tmp_path: Path) -> None:
    """Whole numbers as units, negative and unsigned ones too."""
    frame = sample().with_columns(unit=pl.col("unit").str.extract(r"(\d+)").cast(pl.Int64))
    for kind, dtype in (("signed", pl.Int64), ("unsigned", pl.UInt64), ("short", pl.UInt8)):
        path = tmp_path / f"{kind}.parquet"
        frame.with_columns(unit=pl.col("unit").cast(dtype)).write_parquet(path)
        assert gather(Intake(small(path), SCHEMA, STEPS, QUERY)) == expected(frame)


def test_records_without_time_or_unit_are_left_out(tmp_path: Path) -> None:
    """They cannot be bounded; nobody is told how many they were."""
    frame = pl.DataFrame(
        {"time": [1, None, 2], "unit": ["u", "v", None], "place": ["a", "a", "a"]},
        schema_overrides={"time": pl.Int64},
    )
    for kind in ("csv", "jsonl", "parquet"):
        intake = Intake(small(write(frame, tmp_path, kind)), SCHEMA, STEPS, QUERY)
        blocks = list(intake)
        assert np.concatenate([block.values for block in blocks])[0].tolist() == [1, 0]
        assert intake.dropped == 2
        told = {key for block in blocks for key in block.position["source"] or ()}
        assert told <= {"offset", "device", "inode", "digest", "row"}


def test_a_finite_input_needs_a_public_end() -> None:
    """The last event must not decide how many steps there are."""
    with pytest.raises(InvalidParameter, match="count"):
        Intake(TextSource("x.csv", NEEDED), SCHEMA, Steps(start="1970-01-01", length=10), QUERY)


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """Other columns, however broken, do not matter."""
    path = tmp_path / "events.csv"
    path.write_text('note,time,place,unit\n"quoted, and broken",5,a,u\n"""x""",15,b,u\r\n,25,a,"u"\n')
    source = TextSource(path, NEEDED, piece=20)
    assert gather(Intake(source, SCHEMA, STEPS, QUERY))[:3] == [[1, 0], [0, 1], [1, 0]]


# pre-aggregated input ------------------------------------------------------------------------------------------


def given_query(**more: Any) -> Query:
    """Two series on a grid of a half."""
    return Query(aggregate="given", columns=Columns(("a", "b")), grid="0.5", **more)


def given_intake(folder: Path, query: Query, frame: pl.DataFrame, **more: Any) -> Intake:
    """Three steps of pre-aggregated input."""
    schema = Schema(time="time", column="place", value="value")
    path = write(frame, folder, "csv")
    steps = Steps(start="1970-01-01", length=10, count=3)
    return Intake(TextSource(path, query.needed(schema)), schema, steps, query, **more)


READINGS = pl.DataFrame(
    {"time": [0, 0, 10, 20], "place": ["a", "b", "b", "a"], "value": [1.5, 2.0, 3.0, -4.5]}
)


def test_missing_readings_are_filled_by_declaration_only(tmp_path: Path) -> None:
    """Nothing declared is an error; zero and constants are put in; what stays missing is left to the runtime."""
    with pytest.raises(MissingReading, match="missing"):
        next(iter(given_intake(tmp_path, given_query(), READINGS)))
    assert gather(given_intake(tmp_path, given_query(fill="zero"), READINGS)) == [
        [1.5, 2.0],
        [0, 3.0],
        [-4.5, 0],
    ]
    assert gather(given_intake(tmp_path, given_query(fill="7.5"), READINGS))[1:] == [[7.5, 3.0], [-4.5, 7.5]]
    blocks = list(given_intake(tmp_path, given_query(fill="missing"), READINGS))
    rows = [(block, index) for block in blocks for index in range(len(block))]
    block, index = rows[1]
    assert block.filled(slice(index, index + 1), [8.0, 9.0]).tolist() == [[8.0, 3.0]]
    with pytest.raises(InvalidParameter, match="stands for missing readings"):
        _ = block.values
    with pytest.raises(InvalidParameter, match="noise would be added to noise"):
        given_query(fill="previous release")


def test_wide_and_long_input_agree(tmp_path: Path) -> None:
    """A row a step, or a row for each step and column."""
    wide = pl.DataFrame({"time": [0, 10, 20], "a": [1.5, None, -4.5], "b": [2.0, 3.0, None]})
    query = given_query(fill="zero", layout="wide")
    assert gather(given_intake(tmp_path, query, wide)) == [[1.5, 2.0], [0, 3.0], [-4.5, 0]]


def test_a_second_reading_of_a_cell_is_refused_in_a_file(tmp_path: Path) -> None:
    """A file with two readings is not aggregated."""
    with pytest.raises(RepeatedReading, match="aggregate the input first"):
        gather(given_intake(tmp_path, given_query(fill="zero"), pl.concat([READINGS, READINGS])))


# live input ----------------------------------------------------------------------------------------------------


class Script(Source):
    """A live source that follows a script of (clock, events, caught up)."""

    def __init__(self, script: Sequence[tuple[float, list[tuple[int, str, str]], bool]]) -> None:
        super().__init__("a script", NEEDED)
        self.script = script
        self.now = 0.0
        self.committed: list[Position] = []

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Play the script."""
        first = (position or {}).get("batch", 0)
        for number, (now, events, caught_up) in list(enumerate(self.script))[first:]:
            self.now = now
            frame = (
                pl.DataFrame(events, schema=["time", "unit", "place"], orient="row")
                if events
                else self.nothing()
            )
            yield EventBatch(frame, {"batch": number}, {"batch": number + 1}, caught_up)

    def commit(self, position: Position) -> None:
        """Remember."""
        self.committed.append(position)


def live(
    script: Sequence[tuple[float, list[tuple[int, str, str]], bool]], **more: Any
) -> tuple[Script, Intake]:
    """An intake that follows a script, with steps of 10 s and 3 s of lateness."""
    source = Script(script)
    steps = Steps(start="1970-01-01", length=10, lateness=3, count=more.pop("count", 3))
    return source, Intake(source, SCHEMA, steps, QUERY, follow=True, clock=lambda: source.now, **more)


def test_steps_close_by_the_clock_and_never_by_an_event() -> None:
    """Late and far-future events are dropped, in-between ones wait for their step."""
    script = [
        (5.0, [(1, "u", "a"), (14, "n", "a"), (9_999_999, "v", "b"), (7, "w", "b")], True),  # 14 waits
        (9.0, [(12, "v", "a")], True),  # 3 s ahead: within the tolerance
        (12.0, [(8, "x", "a")], True),  # late, but within the lateness
        (13.5, [], True),  # step 1 closes on the next look
        (14.0, [(9, "y", "a")], True),  # read before it closes
        (14.5, [(9, "z", "a"), (15, "y", "b")], True),  # too late
        (23.5, [], True),
        (24.0, [], True),
        (40.0, [], True),
        (40.0, [], True),
    ]
    _, intake = live(script)
    assert gather(intake) == [[3, 1], [2, 1], [0, 0]]
    assert intake.dropped == 2


def test_no_step_closes_before_the_backlog_is_read() -> None:
    """After an outage the clock is far ahead, and yet nothing that had arrived is lost."""
    script = [
        (100.0, [(1, "u", "a")], False),
        (100.0, [(11, "u", "a")], False),
        (100.0, [(21, "u", "a")], False),
        (100.0, [], True),
    ]
    assert gather(live(script)[1]) == [[1, 0], [1, 0], [1, 0]]


def test_a_live_position_covers_only_what_was_released() -> None:
    """The position stays before the first batch with an event of an open step; reading again counts nothing twice."""
    script = [
        (9.5, [(1, "u", "a"), (12, "u", "a")], True),
        (9.5, [(2, "v", "a")], True),
        (14.0, [], True),
        (14.0, [(13, "w", "b")], True),
        (24.0, [], True),
        (24.0, [], True),
        (40.0, [], True),
        (40.0, [], True),
    ]
    source, intake = live(script)
    blocks = list(intake)
    assert [block.position for block in blocks] == [
        {"step": 1, "source": {"batch": 0}},
        {"step": 2, "source": {"batch": 6}},
        {"step": 3, "source": {"batch": 8}},
    ]
    intake.commit(blocks[0].position)
    assert source.committed == [{"batch": 0}]
    again = live(script, position=blocks[0].position)[1]
    assert gather(again) == [[1, 1], [0, 0]]


def test_an_input_that_ends_live_closes_its_step_by_the_clock() -> None:
    """When a pipe's writer leaves, the step of that moment is still waited for and is the last."""
    _, intake = live([(5.0, [(1, "u", "a")], True)], count=100)
    ticking = iter([5.0, 5.0, 5.0, 5.0, 12.9, 12.9, 13.0, 13.0, 13.0, 13.0])
    intake.clock = lambda: next(ticking)
    assert gather(intake) == [[1, 0]]


def test_an_endless_intake_can_be_stopped() -> None:
    """Open steps stay open."""
    _, intake = live([(5.0, [], True), (50.0, [], True), (50.0, [], True), (50.0, [], True)], count=None)
    seen = []
    for block in intake:
        seen.append(block.last_step)
        intake.stop()
    assert seen == [1]


# folders and pipes ---------------------------------------------------------------------------------------------


def parts(folder: Path, frame: pl.DataFrame, kinds: Sequence[str] = ("csv", "jsonl", "parquet")) -> None:
    """The frame cut into files of different formats, named in order."""
    folder.mkdir()
    size = -(-len(frame) // len(kinds))
    for number, kind in enumerate(kinds):
        write(frame[number * size : (number + 1) * size], folder, kind).rename(
            folder / f"part-{number}.{kind}"
        )


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    """As one input, with unfinished files left alone; every position resumes."""
    frame = sample().with_columns(time=pl.col("time").cast(pl.Int64))
    folder = tmp_path / "in"
    parts(folder, frame, ("csv", "csv", "jsonl"))
    (folder / ".hidden.csv").write_text("broken")
    (folder / "part-9.csv.tmp").write_text("broken")
    (folder / "notes.md").write_text("broken")
    blocks = list(Intake(open_source(folder, NEEDED), SCHEMA, STEPS, QUERY))
    assert gather(iter(blocks)) == expected(frame)
    for block in blocks:
        rest = Intake(open_source(folder, NEEDED), SCHEMA, STEPS, QUERY, position=block.position)
        assert gather(rest) == expected(frame)[block.last_step :]


def test_completed_files_only(tmp_path: Path) -> None:
    """A public rule says when a file is complete."""
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "b.csv").write_text("x")
    (tmp_path / "b.csv.done").write_text("")
    assert DirectorySource(tmp_path, NEEDED, completed="rename").files() == ["a.csv", "b.csv"]
    assert DirectorySource(tmp_path, NEEDED, completed="done").files() == ["b.csv"]
    assert DirectorySource(tmp_path, NEEDED, completed="stable", settle=60).files() == []
    old = time.time() - 100
    os.utime(tmp_path / "a.csv", (old, old))
    assert DirectorySource(tmp_path, NEEDED, completed="stable", settle=60).files() == ["a.csv"]
    assert DirectorySource(tmp_path, NEEDED, pattern="b*").files() == ["b.csv"]
    with pytest.raises(InvalidParameter, match="completed"):
        DirectorySource(tmp_path, NEEDED, completed="maybe")


def test_a_followed_folder_sees_new_files(tmp_path: Path) -> None:
    """Files that arrive later are read once; the source says when it has caught up."""
    source = DirectorySource(tmp_path, NEEDED, follow=True)
    batches = source.batches()
    assert next(batches).caught_up
    (tmp_path / "1.csv").write_text("time,unit,place\n1,u,a\n")
    found = next(batches)
    assert (len(found.frame), found.caught_up) == (1, False)
    assert next(batches).caught_up
    (tmp_path / "0.csv").write_text("time,unit,place\n1,u,a\n")
    (tmp_path / "2.csv").write_text("time,unit,place\n2,u,a\n3,u,a\n")
    assert len(next(batches).frame) == 2
    after = next(batches)
    assert after.after == {"file": "2.csv", "read": True}
    assert len(next(batches).frame) == 0


def test_a_followed_file_grows_by_whole_lines(tmp_path: Path) -> None:
    """Half a line waits for its other half."""
    path = tmp_path / "events.csv"
    path.write_text("time,unit,place\n1,u,a\n2,v")
    batches = TextSource(path, NEEDED, follow=True).batches()
    assert next(batches).frame.rows() == [("1", "u", "a")]
    assert len(next(batches).frame) == 0
    with path.open("a") as file:
        file.write(",b\n")
    grown = next(batches)
    assert grown.frame.rows() == [("2", "v", "b")]
    assert grown.after["offset"] == path.stat().st_size


def test_what_arrives_after_the_check_is_not_read(tmp_path: Path) -> None:
    """A finite input is what was there when it was checked."""
    path = tmp_path / "1.csv"
    path.write_text("time,unit,place\n1,u,a\n")
    for source in (TextSource(path, NEEDED), DirectorySource(tmp_path, NEEDED)):
        assert sum(len(batch.frame) for batch in source.batches()) == 1
        with path.open("a") as file:
            file.write("2,v,a\n")
        (tmp_path / "2.csv").write_text("broken")
        assert sum(len(batch.frame) for batch in source.batches()) == 1
        (tmp_path / "2.csv").unlink()
        path.write_text("time,unit,place\n1,u,a\n")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_standard_input_to_its_end(tmp_path: Path, kind: str) -> None:
    """It is copied to a file without a name, and read twice."""
    frame = sample()
    with write(frame, tmp_path, kind).open("rb") as file:
        source = PipeSource(NEEDED, format=kind, descriptor=file.fileno())
        with source:
            assert gather(Intake(source, SCHEMA, STEPS, QUERY)) == expected(frame)
            assert source._copy is not None
            assert os.fstat(source._copy.fileno()).st_nlink == 0
        assert source._copy is None


def test_standard_input_live() -> None:
    """Lines are taken as they come."""
    out, into = os.pipe()
    source = PipeSource(NEEDED, follow=True, descriptor=out)
    os.write(into, b"time,unit,place\n1,u,a\n2,")
    batches = source.batches(patience=lambda: 0.01)
    assert next(batches).frame.rows() == [("1", "u", "a")]
    threading.Timer(0.05, lambda: (os.write(into, b"v,b\n3,w,a"), os.close(into))).start()  # type: ignore[func-returns-value]
    assert [row for batch in batches for row in batch.frame.rows()] == [("2", "v", "b"), ("3", "w", "a")]
    os.close(out)


@settings(max_examples=25)
@given(st.lists(st.text(st.sampled_from('ab," é'), max_size=6), min_size=1, max_size=12), st.integers(1, 60))
def test_csv_pieces_end_between_records(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], piece: int
) -> None:
    """Quotes and separators inside of fields survive every cut."""
    path = tmp_path_factory.mktemp("csv") / "events.csv"
    frame = pl.DataFrame({"time": range(len(texts)), "unit": [f"x{text}" for text in texts], "place": "a"})
    frame.write_csv(path)
    source = TextSource(path, NEEDED, piece=piece)
    found = [batch.frame for batch in source.batches()]
    assert pl.concat(found)["unit"].to_list() == frame["unit"].to_list()


live_events = st.lists(
    st.tuples(
        st.integers(-20, 60) | st.just(10**15),
        st.sampled_from(["u", "v", "w"]),
        st.sampled_from(["a", "b", "x"]),
    ),
    max_size=6,
)
moments = st.lists(st.tuples(st.floats(0, 12), live_events, st.booleans()), min_size=1, max_size=8)


@settings(max_examples=40)
@given(moments, st.sampled_from(["u", "v", "w"]), st.booleans())
def test_one_unit_never_moves_the_steps_of_others(
    script: list[tuple[float, list[tuple[int, str, str]], bool]], who: str, finite: bool
) -> None:
    """With or without all events of a unit, whatever times they claim, two runs are neighbours."""
    now, timed = 0.0, []
    for wait, events, caught_up in script:
        now += wait
        timed.append((now, events, caught_up))
    timed += [(now + 100, [], True), (now + 100, [], True)]

    def run(
        rows: list[tuple[float, list[tuple[int, str, str]], bool]],
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        source, intake = live(rows, count=4)
        if finite:
            intake = Intake(source, SCHEMA, Steps(start="1970-01-01", length=10, count=4), QUERY)
        return np.concatenate([block.values for block in intake])

    without = [(at, [event for event in events if event[1] != who], up) for at, events, up in timed]
    assert WEvent(epsilon=1, window=4).distance(run(timed), run(without)) <= 1
