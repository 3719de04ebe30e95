"""Sinks: layouts, files that were cut short, Parquet, standard output."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.helpers import open_one, release, settings

from tidegate.config.keys import THE_END
from tidegate.core.errors import LogMismatch
from tidegate.errors import InvalidParameter
from tidegate.releases import Release, Status
from tidegate.sinks import open_sink
from tidegate.sinks.chunks import Chunk, joined
from tidegate.sinks.errors import SinkError
from tidegate.sinks.layout import Layout, plain
from tidegate.sinks.parquet import PART, ParquetFolderSink
from tidegate.sinks.rounding import rounded
from tidegate.sinks.text import TextFileSink


def layout(form: str = "wide", labels: tuple[str, ...] = ("a", "b"), revised: bool = False) -> Layout:
    """Two columns, hours from 1970 on."""
    return Layout(labels, lambda step: (step - 1) * 3_600_000_000, "UTC", Fraction(1, 3), "s", form, revised)


def chunk(count: int, first: int = 1, seed: int = 1) -> Chunk:
    """Some releases."""
    values = np.random.default_rng(seed).integers(-50, 50, size=(first + count, 2))[first:] / 4
    return Chunk.of(
        first,
        [Release(first + k, values[k], Status.FRESH, first + k, 2.5, 2, Fraction(1)) for k in range(count)],
    )


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


def test_chunks_are_cut_and_joined() -> None:
    """Numbers go with the releases."""
    whole = chunk(10, first=5)
    assert (whole.after(4).first, len(whole.after(4))) == (5, 10)
    assert (whole.after(7).first, len(whole.after(7))) == (8, 7)
    assert len(whole.after(14)) == 0
    again = joined([whole[:3], whole[3:]], 2)
    assert (again.first, again.last) == (5, 14)
    assert joined([], 2).values.shape == (0, 2)


@given(st.lists(finite | st.integers(-(2**60), 2**60).map(float), min_size=1, max_size=100))
def test_numbers_read_the_same_one_by_one_and_together(numbers: list[float]) -> None:
    """A number's text does not depend on the numbers around it, and reads back as the same float."""
    together = plain(np.array([numbers]))[0]
    alone = [plain(np.array([[number]]))[0][0] for number in numbers]
    assert list(map(repr, together)) == list(map(repr, alone))
    assert [float(value) for value in together] == numbers


def test_wide_and_long_rows() -> None:
    """One row a step, or one for each column; names with commas are quoted."""
    odd = layout(labels=("a, b", 'quo"te'))
    rows = list(csv.reader(io.StringIO((odd.csv_header() + odd.csv(chunk(2))).decode())))
    ends = ["a, b low", "a, b high", 'quo"te low', 'quo"te high']
    assert rows[0] == ["time", "step", "a, b", 'quo"te', *ends, "status", "scale", "spent"]
    assert rows[1][:2] == ["1970-01-01T00:00:00+00:00", "1"]
    assert rows[1][4:] == ["", "", "", "", "fresh", "2.5", "2/3"]
    long = layout("long", revised=True)
    rows = list(csv.reader(io.StringIO((long.csv_header() + long.csv(chunk(2))).decode())))
    assert rows[0] == [
        "time",
        "step",
        "revision",
        "column",
        "value",
        "low",
        "high",
        "status",
        "scale",
        "spent",
    ]
    assert [(row[1], row[3]) for row in rows[1:]] == [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")]


def test_json_lines_carry_ids() -> None:
    """Wide: an object a release; long: an object a value; the id names stream, step and revision."""
    wide = [json.loads(line) for line in layout().json_lines(chunk(2)).splitlines()]
    assert [found["id"] for found in wide] == ["s-1.0", "s-2.0"]
    assert set(wide[0]["values"]) == {"a", "b"}
    long = [json.loads(line) for line in layout("long").json_lines(chunk(2)).splitlines()]
    assert [(found["id"], found["column"]) for found in long] == [
        ("s-1.0", "a"), ("s-1.0", "b"), ("s-2.0", "a"), ("s-2.0", "b"),
    ]  # fmt: skip


def test_a_column_named_like_a_field_needs_the_long_layout() -> None:
    """The sentence says what to write."""
    with pytest.raises(InvalidParameter, match='layout = "long"'):
        layout(labels=("step", "b"))
    layout("long", labels=("step", "b"))


@given(cut=st.integers(0, 400), zeros=st.integers(0, 50))
def test_a_file_that_was_cut_short_is_completed(
    cut: int, zeros: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever the end is missing, or zeros stand in its place, the same bytes come about."""
    path = tmp_path_factory.mktemp("cut") / "out.csv"
    made = layout()
    whole = made.csv_header() + made.csv(chunk(8))
    path.write_bytes(whole[:cut] + b"\0" * zeros)
    sink = TextFileSink(path, made.csv_header(), made.csv)
    sink.resume(0, None)
    for part in (chunk(8)[:5], chunk(8)[5:]):
        sink.write(part)
    sink.settled()
    assert sink.sync() == {"offset": len(whole)}
    sink.close()
    assert path.read_bytes() == whole


def test_a_file_that_says_something_else_is_refused(tmp_path: Path) -> None:
    """An edited byte, or lines that were never released."""
    made, path = layout(), tmp_path / "out.csv"
    whole = made.csv_header() + made.csv(chunk(8))
    for content in (whole.replace(b"fresh", b"stale", 1), whole + b"one more line\n"):
        path.write_bytes(content)
        sink = TextFileSink(path, made.csv_header(), made.csv)
        with pytest.raises(SinkError, match="something else"):  # noqa: PT012  whichever of them notices
            sink.resume(0, None)
            sink.write(chunk(8))
            sink.settled()
        sink.close()
        assert path.read_bytes() == content


def test_a_file_that_is_gone_is_written_anew(tmp_path: Path) -> None:
    """The store has everything, so a deleted or emptied output comes back."""
    config = settings(tmp_path)
    release(config)
    whole = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "out.csv").unlink()
    release(config)
    assert (tmp_path / "out.csv").read_bytes() == whole
    (tmp_path / "out.csv").write_bytes(whole[:50])
    release(config)
    assert (tmp_path / "out.csv").read_bytes() == whole


def test_parquet_file(tmp_path: Path) -> None:
    """All rows with types, and the same file again at the next start."""
    config = settings(tmp_path, ("out.csv", "out.parquet"))
    release(config)
    frame = pl.read_parquet(tmp_path / "out.parquet")
    ends = ["north low", "north high", "south low", "south high"]
    assert frame.columns == ["time", "step", "north", "south", *ends, "status", "scale", "spent"]
    assert frame["time"].dtype == pl.Datetime("us", "Europe/Berlin")
    assert frame["step"].to_list() == list(range(1, 13))
    before = (tmp_path / "out.parquet").read_bytes()
    release(config)
    assert (tmp_path / "out.parquet").read_bytes() == before


def test_parquet_folder(tmp_path: Path) -> None:
    """Files of a thousand releases; the last one grows; a restart continues with it."""
    folder = tmp_path / "parts"
    sink = ParquetFolderSink(folder, layout())
    assert sink.resume(0, None) == 0
    whole = chunk(PART + 700)
    sink.write(whole[:300])
    sink.write(whole[300 : PART + 200])
    again = ParquetFolderSink(folder, layout())
    number = again.resume(PART + 200, {})
    assert number == PART
    again.write(whole.after(number))
    assert [path.name for path in sorted(folder.glob("*"))] == [
        "part-00000000.parquet",
        "part-00000001.parquet",
    ]
    frame = pl.read_parquet(folder / "*.parquet")
    assert frame["step"].to_list() == list(range(1, PART + 701))
    np.testing.assert_array_equal(frame.select("a", "b").to_numpy(), whole.values)


def test_standard_output(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Header and lines; a second start has nothing more to say than the header."""
    config = settings(tmp_path, (f"{tmp_path}/out.csv", "-"))
    release(config)
    assert len(capsysbinary.readouterr().out.splitlines()) == 13
    release(config)
    assert len(capsysbinary.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("location", "more", "words"),
    [
        ("out.xyz", {}, "format"),
        ("-", {"format": "parquet"}, "standard output"),
        ("out.parquet", {"follow": True}, "a folder when Parquet is followed"),
        ("mqtt://host", {}, "a broker and a topic"),
        ("mqtt://user:secret@host/topic/#", {}, "without # and +"),
        ("folder/", {"format": "csv"}, "a file for csv"),
    ],
)
def test_bad_locations_are_one_sentence(location: str, more: dict[str, object], words: str) -> None:
    """Name, value, constraint, remedy; never a password."""
    with pytest.raises(InvalidParameter) as refusal:
        open_sink(location, layout(), **more)  # type: ignore[arg-type]
    assert words in str(refusal.value)
    assert "secret" not in str(refusal.value)


TIDE = ('name = "Uniform"', 'name = "Tide"\ndelay = 4')


def steps_of(file: Path) -> list[str]:
    """The step of every row."""
    return [row["step"] for row in csv.DictReader(io.StringIO(file.read_text()))]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_a_finished_file_has_one_row_a_step(tmp_path: Path, name: str) -> None:
    """The newest release of each, once; the log keeps all; started again, nothing changes. The end is the end."""
    for count in (8, 8):
        config = settings(tmp_path, TIDE, ("out.csv", name), ("count = 12", f"count = {count}"))
        stream = release(config)
        assert stream.releases > stream.step == count
        file = tmp_path / name
        if name == "out.csv":
            found = steps_of(file)
            assert "revision" not in file.read_text()
        elif name == "out.jsonl":
            found = [str(json.loads(line)["step"]) for line in file.read_text().splitlines()]
        else:
            found = [str(step) for step in pl.read_parquet(file)["step"]]
        assert found == [str(step) for step in range(1, count + 1)]
    with pytest.raises(LogMismatch, match="finished at step 8") as caught:
        release(settings(tmp_path, TIDE, ("out.csv", name)))
    assert THE_END in str(caught.value)


def test_a_stream_without_last_words_may_become_longer(tmp_path: Path) -> None:
    """Tide without a delay revises nothing, so that its end is none."""
    for count in (8, 12):
        release(
            settings(
                tmp_path, ('name = "Uniform"', 'name = "Tide"\ndelay = 0'), ("count = 12", f"count = {count}")
            )
        )
        assert steps_of(tmp_path / "out.csv") == [str(step) for step in range(1, count + 1)]


def test_a_file_of_the_newest_releases_replaces_its_own_only(tmp_path: Path) -> None:
    """A changed file is refused and stays; one that is gone, or was written just before a crash, is no trouble."""
    config = settings(tmp_path, TIDE)
    release(config)
    file = tmp_path / "out.csv"
    whole = file.read_bytes()
    file.unlink()
    release(config)
    assert file.read_bytes() == whole
    with open_one(config) as pipeline:  # as if killed before it was noted
        known = pipeline.side_tables.sinks()
        pipeline.side_tables.checkpoint({key: (0, position) for key, (_, position) in known.items()}, None)
    release(config)
    assert file.read_bytes() == whole
    file.write_bytes(whole + b"mine\n")
    with pytest.raises(SinkError, match="something else"):
        release(config)
    assert file.read_bytes() == whole + b"mine\n"


def test_all_revisions_on_request(tmp_path: Path) -> None:
    """Then the file only ever grows, with a column that counts the releases of a step."""
    release(settings(tmp_path, TIDE, ("[sink]", '[sink]\nrevisions = "all"')))
    found = steps_of(tmp_path / "out.csv")
    assert len(found) > 12
    assert set(found) == {str(step) for step in range(1, 13)}
    with pytest.raises(InvalidParameter, match="revisions"):
        open_one(
            settings(tmp_path, TIDE, ("[sink]", '[sink]\nrevisions = "newest"')), follow=True, backfill=True
        )


def test_a_file_that_was_begun_with_all_revisions_goes_on_so(tmp_path: Path) -> None:
    """Rows of one file stay alike when the default changes: also those with every digit."""
    config = settings(tmp_path, TIDE, ("[sink]", '[sink]\nrevisions = "all"'))
    with open_one(config) as pipeline:
        intake = config.open(pipeline.position)
        pipeline.process(pipeline.editions[0], [next(iter(intake))[slice(0, 6)]])
        pipeline.checkpoint()
        intake.close()
    before = (tmp_path / "out.csv").read_bytes()
    release(settings(tmp_path, TIDE))
    assert (tmp_path / "out.csv").read_bytes().startswith(before)


def test_digits_that_noise_made_meaningless_are_left_out() -> None:
    """As many decimals as a twentieth of the interval; ends outwards; one release reads as it does among many."""
    values = np.array([[12.3456789, 1234.56], [0.123456, -5.5]])
    many = Chunk.of(1, [Release(1 + k, values[k], Status.FRESH, 1, 1.0, 1, Fraction(1)) for k in range(2)])
    many = replace(many, radius=np.array([[3.0, 55.0], [0.05, 2.0]]))
    form = replace(layout(), rounds=True)
    text = form.csv(many).decode()
    assert text.splitlines()[0].split(",")[2:8] == ["12.3", "1235", "9.3", "15.4", "1179", "1290"]
    assert text.splitlines()[1].split(",")[2:8] == ["0.123", "-5.5", "0.073", "0.174", "-7.5", "-3.5"]
    assert b"".join(form.csv(many[k : k + 1]) for k in range(2)) == text.encode()


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e9))
def test_rounding_costs_little_and_intervals_still_hold(value: float, half: float) -> None:
    """A fortieth of the half width at most, and no end moves inwards."""
    low, high = np.array([[value - half]]), np.array([[value + half]])
    shown, least, most = rounded(np.array([[value]]), low, high, np.ones(1))
    slack = 1e-15 * abs(value)
    assert abs(shown[0, 0] - value) <= max(half / 40, 0.5 * (half >= 20) * 1.0, 1e-12) + slack + 1e-12
    assert least[0, 0] <= low[0, 0] + slack
    assert most[0, 0] >= high[0, 0] - slack
