"""Followed files that are rotated: nothing that was written is left out, nothing is read twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.ingest.errors import InputChanged, SourceUnavailable
from tidegate.ingest.sources.source import EventBatch, Position
from tidegate.ingest.sources.text import TextSource

NEEDED = ("time", "unit")
HEADER = "time,unit\n"


def write(path: Path, *times: int, form: str = "{0},u{0}\n") -> None:
    """Append events."""
    with path.open("a") as file:
        file.write("".join(form.format(time) for time in times))


def begin(path: Path, *times: int) -> None:
    """A new file with a header where CSV is written."""
    path.write_text(HEADER)
    write(path, *times)


def follow(path: Path, position: Position | None = None) -> Iterator[EventBatch]:
    """Batches of a followed file."""
    return TextSource(path, NEEDED, follow=True).batches(position)


def until_idle(batches: Iterator[EventBatch], looks: int = 6) -> tuple[list[int], Position]:
    """The times that come until nothing has come for some looks, and the position after them."""
    found: list[int] = []
    idle, after = 0, {}
    while idle < looks:
        batch = next(batches)
        found += [int(time) for time in batch.frame["time"]]
        idle, after = (0 if len(batch.frame) else idle + 1), batch.after
    return found, after


def by_renaming(path: Path) -> None:
    """As a log daemon does."""
    path.rename(path.with_suffix(".csv.1"))


def by_copying(path: Path) -> None:
    """Copied away, and emptied in place."""
    shutil.copy(path, path.with_suffix(".csv.1"))
    path.open("w").close()


def by_replacing(path: Path) -> None:
    """The old one is gone."""
    path.unlink()


@pytest.mark.parametrize("rotate", [by_renaming, by_copying, by_replacing])
@pytest.mark.parametrize("more", [1, 400])
def test_a_running_stream_goes_on_in_the_new_file(
    rotate: Callable[[Path], None], more: int, tmp_path: Path
) -> None:
    """Shorter or longer than the old one: the new file is read from its beginning, each line once."""
    path = tmp_path / "events.csv"
    begin(path, *range(100))
    batches = follow(path)
    assert until_idle(batches)[0] == list(range(100))
    rotate(path)
    assert until_idle(batches)[0] == []
    begin(path, *range(1000, 1000 + more))
    found, after = until_idle(batches)
    assert found == list(range(1000, 1000 + more))
    write(path, 5000)
    assert until_idle(batches)[0] == [5000]
    write(path, 5001)
    assert until_idle(follow(path, after))[0] == [5000, 5001]


def test_what_was_still_written_to_the_old_file_is_read_first(tmp_path: Path) -> None:
    """A writer that keeps its file open after it was renamed loses nothing."""
    path = tmp_path / "events.csv"
    begin(path, 1)
    batches = follow(path)
    until_idle(batches)
    with path.open("a") as still_open:
        by_renaming(path)
        still_open.write("2,u2\n")
        still_open.flush()
        assert until_idle(batches)[0] == [2]
        still_open.write("3,u3\n4,u")
    begin(path, 5)
    assert until_idle(batches)[0] == [3, 4, 5]


@pytest.mark.parametrize(
    ("rotate", "expected"),
    [(by_renaming, [2, 3, 7, 8, 9]), (by_copying, [7, 8, 9]), (by_replacing, [7, 8, 9])],
)
@pytest.mark.parametrize("read", [0, 1, 300])
def test_a_start_does_not_apply_an_old_position_to_a_new_file(
    rotate: Callable[[Path], None], expected: list[int], read: int, tmp_path: Path
) -> None:
    """The rest of the old file, where it still is in the folder, and then all of the new one."""
    path = tmp_path / "events.csv"
    begin(path, *range(100, 100 + read))
    position = until_idle(follow(path))[1]
    write(path, 2, 3)
    rotate(path)
    begin(path, *([7] * read), 8, 9)
    found = until_idle(follow(path, position))[0]
    assert found == [time for time in expected if time != 7][:-2] + [7] * read + [8, 9]


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_files_that_were_rotated_one_after_the_other_are_all_read(
    running: bool, dated: bool, tmp_path: Path
) -> None:
    """By a run that looked away for a while, and at a start; each once, whatever rotation calls them."""
    path = tmp_path / "events.csv"
    begin(tmp_path / "events.csv.9", 1)  # read long ago
    os.utime(tmp_path / "events.csv.9", (100, 100))
    (tmp_path / "events.csv.lock").touch()
    (tmp_path / "events.csv.d1").mkdir()  # no file, whatever its name is
    begin(path, 2)
    batches = follow(path)
    assert until_idle(batches)[0] == [2]
    position = until_idle(batches)[1]
    write(path, 3)
    for number, times in enumerate([(4, 5), (6,), (7, 8)], start=1):
        os.utime(path, (1000 * number, 1000 * number))
        if dated:
            path.rename(path.with_name(f"events.csv-2026030{number}"))
        else:
            for old in range(number - 1, 0, -1):
                path.with_name(f"events.csv.{old}").rename(path.with_name(f"events.csv.{old + 1}"))
            path.rename(path.with_name("events.csv.1"))
        begin(path, *times)
    again = batches if running else follow(path, position)
    assert until_idle(again)[0] == [3, 4, 5, 6, 7, 8]
    write(path, 9)
    assert until_idle(again)[0] == [9]


def test_a_file_that_was_packed_before_it_was_read_is_missed(tmp_path: Path) -> None:
    """Its records are not left out in silence."""
    path = tmp_path / "events.csv"
    begin(path, 1)
    position = until_idle(follow(path))[1]
    os.utime(path, (1000, 1000))
    path.rename(tmp_path / "events.csv.2")
    (tmp_path / "events.csv.1.gz").write_bytes(b"packed")
    begin(path, 3)
    with pytest.raises(SourceUnavailable, match=r"'events\.csv\.1\.gz' was packed"):
        until_idle(follow(path, position))


def test_a_file_that_was_not_rotated_is_gone_on_with(tmp_path: Path) -> None:
    """Also when it was copied to another place with all it had."""
    path = tmp_path / "events.csv"
    begin(path, *range(50))
    position = until_idle(follow(path))[1]
    write(path, 50)
    assert until_idle(follow(path, position))[0] == [50]
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    shutil.copy(path, elsewhere / "events.csv")
    assert until_idle(follow(elsewhere / "events.csv", position))[0] == [50]


def test_a_finite_input_that_was_exchanged_is_refused(tmp_path: Path) -> None:
    """A position belongs to a file, not to a name; an endless line of a followed file is left out."""
    path = tmp_path / "events.csv"
    begin(path, *range(50))
    position = list(TextSource(path, NEEDED, piece=40).batches())[-2].after
    begin(path, *range(500, 700))
    with pytest.raises(InputChanged, match="another file"):
        list(TextSource(path, NEEDED).batches(position))
