"""Followed files that are rotated: nothing that was written is left out, nothing is read twice."""

from __future__ import annotations

import os
import random
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
    [(by_renaming, [2, 3, 7, 8, 9]), (by_copying, [2, 3, 7, 8, 9]), (by_replacing, [7, 8, 9])],
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


def numbered(path: Path, keep: int) -> None:
    """Rename a file and those that were renamed before; the last one is deleted."""
    path.with_name(f"{path.name}.{keep}").unlink(missing_ok=True)
    for old in range(keep - 1, 0, -1):
        if path.with_name(f"{path.name}.{old}").exists():
            path.with_name(f"{path.name}.{old}").rename(path.with_name(f"{path.name}.{old + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def test_files_that_were_not_read_are_found_without_the_one_before_them(tmp_path: Path) -> None:
    """All of the old file was read; it was deleted, as two rotations do that keep one, and somebody hears of it."""
    path = tmp_path / "events.csv"
    begin(path, *range(10))
    position = until_idle(follow(path))[1]
    numbered(path, 1)
    begin(path, *range(10, 20))
    numbered(path, 1)
    begin(path, 20, 21)
    told: list[str] = []
    source = TextSource(path, NEEDED, follow=True)
    source.tell = told.append
    assert until_idle(source.batches(position))[0] == list(range(10, 22))
    assert [sentence.partition(";")[0] for sentence in told] == [
        "the file that was read last as 'events.csv' is gone or was emptied"
    ]


@pytest.mark.parametrize("read", [(), (1,)])
def test_a_file_that_was_emptied_and_then_renamed_is_read_anew(read: tuple[int, ...], tmp_path: Path) -> None:
    """While nobody reads: it is the old one by its inode only."""
    path = tmp_path / "events.csv"
    begin(path, *read)
    position = until_idle(follow(path))[1]
    begin(path, 2, 3)
    numbered(path, 3)
    begin(path, 4)
    assert until_idle(follow(path, position))[0] == [2, 3, 4]


@pytest.mark.parametrize("content", ["", HEADER, "time,un"])
def test_a_file_without_records_has_a_position(content: str, tmp_path: Path) -> None:
    """What is written to it later, before it is rotated, is read at the next start; what was older is not."""
    path = tmp_path / "events.csv"
    begin(tmp_path / "events.csv.1", 1)
    path.write_text(content)
    position = until_idle(follow(path))[1]
    with path.open("a") as file:
        file.write(HEADER.removeprefix(content))
    write(path, 2)
    numbered(path, 3)
    begin(path, 3)
    assert until_idle(follow(path, position))[0] == [2, 3]


def test_files_from_before_the_first_start_are_not_read(tmp_path: Path) -> None:
    """Whatever their times say, packed or not, and also when they are renamed or copied later."""
    path = tmp_path / "events.csv"
    begin(tmp_path / "events.csv.1", *range(100, 400))
    (tmp_path / "events.csv.2.gz").write_bytes(b"packed")
    begin(path, 1)
    os.utime(path, (1000, 1000))
    batches = follow(path)
    found, position = until_idle(batches)
    assert found == [1]
    numbered(path, 5)
    shutil.copy(tmp_path / "events.csv.2", tmp_path / "events.csv.2.bak7")
    begin(path, 2)
    assert until_idle(batches)[0] == [2]
    assert until_idle(follow(path, position))[0] == [2]


def test_a_file_that_was_read_and_then_packed_is_not_missed(tmp_path: Path) -> None:
    """Its time tells that it was read to its end; with a later one it was not."""
    path = tmp_path / "events.csv"
    begin(path, 1)
    position = until_idle(follow(path))[1]
    time = path.stat().st_mtime_ns
    path.unlink()
    packed = tmp_path / "events.csv.1.gz"
    packed.write_bytes(b"packed")
    os.utime(packed, ns=(time, time))
    begin(path, 2)
    assert until_idle(follow(path, position))[0] == [2]
    os.utime(packed, ns=(time + 10**9, time + 10**9))
    with pytest.raises(SourceUnavailable, match=r"'events\.csv\.1\.gz' was packed"):
        until_idle(follow(path, position))


def test_a_file_before_an_empty_one_does_not_hide_those_between_them(tmp_path: Path) -> None:
    """The new file has no line yet: what was rotated after the position is read all the same."""
    path = tmp_path / "events.csv"
    begin(path, 1)
    position = until_idle(follow(path))[1]
    write(path, 2)
    os.utime(path, (1000, 1000))
    numbered(path, 3)
    begin(path, 3)
    numbered(path, 3)
    path.touch()
    assert until_idle(follow(path, position))[0] == [2, 3]


def test_a_position_of_an_earlier_version_is_gone_on_from(tmp_path: Path) -> None:
    """It does not tell which files were read: those that were changed later than its own were not."""
    path = tmp_path / "events.csv"
    begin(tmp_path / "events.csv.1", 0)
    os.utime(tmp_path / "events.csv.1", (100, 100))
    begin(path, 1)
    position = until_idle(follow(path))[1]
    position = {name: position[name] for name in ("offset", "device", "inode", "digest")}
    write(path, 2)
    os.utime(path, (1000, 1000))
    numbered(path, 5)
    begin(path, 3)
    numbered(path, 5)
    begin(path, 4)
    assert until_idle(follow(path, position))[0] == [2, 3, 4]


@pytest.mark.parametrize("seed", range(12))
def test_every_record_is_read_once_whatever_happens(seed: int, tmp_path: Path) -> None:
    """Renamed, copied and emptied, deleted once it was read, with restarts from any position in between."""
    chance, path = random.Random(seed), tmp_path / "events.csv"
    begin(tmp_path / "events.csv.1", -1)
    begin(path)
    batches, written = follow(path), 0
    read: list[int] = []
    position, safe = next(batches).before, 0  # the position that was committed, and how much was read there
    committed: list[tuple[Position, int]] = [(position, safe)]
    old: list[tuple[int, Path]] = []  # the last record of each file that was rotated, and its name
    for turn in range(40):
        act = chance.random()
        if act < 0.5:
            more = chance.choice([1, 3, 100])
            write(path, *range(written, written + more))
            written += more
        elif act < 0.7:
            place = path.with_name(f"events.csv-{turn:03d}")
            if chance.random() < 0.7:
                path.rename(place)
                old.append((written, place))
                if chance.random() < 0.7:
                    begin(path)
                else:
                    path.touch()
                    with path.open("a") as file:
                        file.write(HEADER)
            else:
                shutil.copy(path, place)
                old.append((written, place))
                path.write_text(HEADER)
        elif act < 0.85:
            found, after = until_idle(batches)
            read += found
            committed.append((after, len(read)))
            if chance.random() < 0.5:
                position, safe = committed[-1]
            for end, place in old:
                if end <= safe and chance.random() < 0.5:
                    place.unlink(missing_ok=True)
        else:
            batches.close()  # type: ignore[attr-defined]
            read, batches = read[:safe], follow(path, position)
    read += until_idle(batches)[0]
    # a file that was copied and emptied between two looks, before anything of it was read, comes later
    assert sorted(read) == list(range(written))
