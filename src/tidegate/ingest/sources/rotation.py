"""Files that have had a name which another one has now, and which of them were read."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from pathlib import Path

from tidegate.ingest.sources.file_positions import SHOWN, known_again, place
from tidegate.ingest.sources.source import Position

PACKERS = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4")  # what they leave of a file cannot be followed
REMEMBERED = 20  # files that a position knows one by one; older ones are known by their time
_ROTATED = re.compile(r"[.\-_][^/]*\d.*")
Found = tuple[os.stat_result, Path]


class Rotation:
    """The files that rotation has made of a followed one, and those of them that need not be read.

    Rotation adds something with a digit to the name (``.1``, ``-20260301``); who left a file later wrote to it later. A
    file that was read, or was there before the first start, is known again by its first records, whatever it is called
    now and also if it is a copy; while it has none, by its inode and size. A packed one is known by its time, which
    packers keep.

    Parameters
    ----------
    path
        The followed file.
    position
        The position to resume from; by default everything that is there now is older than the stream.
    header
        Whether the first line of a file is no record.
    """

    def __init__(self, path: Path, position: Position | None, *, header: bool) -> None:
        self.path, self._header = path, header
        known = position or {}
        self.finished: list[Position] = known.get("finished", [])
        self.until: int = known.get("until", 0)  # a packed file that was changed later was not read
        self._before: int = known.get("before", 0)  # any file that was not changed later was
        self._looked: tuple[object, list[Found]] = (None, [])  # at what, and what was found

    def place(self, file: io.BufferedReader, offset: int, begin: int) -> Position:
        """The position of an offset in a file whose records begin at another."""
        status = os.fstat(file.fileno())
        # of a file that continues beyond the offset it is not known when that was written
        whole = status.st_mtime_ns if status.st_size == offset else 0
        return {
            **place(file, offset),
            "begin": begin,
            "head": _head(file, begin, offset),
            "until": max(self.until, whole),
            "before": self._before,
            "finished": self.finished,
        }

    def finish(self, file: io.BufferedReader, position: Position) -> None:
        """Remember that a file was left, read up to a position."""
        changed = os.fstat(file.fileno()).st_mtime_ns
        names = ("device", "inode", "begin", "offset", "head")
        self._add([{**{name: position[name] for name in names}, "changed": changed}])

    def skip(self, present: io.BufferedReader | None, *, until: int | None = None) -> None:
        """Remember that all files are older than the stream, or all that were not changed after a moment."""
        entries = []
        for status, path in self._files(present):
            if until is None or status.st_mtime_ns <= until:
                self.until = max(self.until, status.st_mtime_ns)
                entries.append(self._entry(status, path))
        self._add(entries)

    def unread(self, present: io.BufferedReader | None) -> list[Found]:
        """The files that were not read, those that were left first first; not the one that is open."""
        files = self._files(present)
        shapes = [(path, *_shape(status)) for status, path in files]
        seen = (shapes, self.finished, self._before)
        if self._looked[0] == seen:
            return self._looked[1]
        found, copies = [], []
        for status, path in files:
            known = self._known(status, path)
            if known is None:
                found.append((status, path))
            elif known:
                copies.append(self._entry(status, path))
        self._add(copies)
        self._looked = ((shapes, self.finished, self._before), found)
        return found

    def copy_of(self, position: Position) -> Path | None:
        """The copy of a file that was emptied after it had been copied."""
        for status, path in self._files(None):
            if path.suffix.lower() in PACKERS or self._known(status, path) is not None:
                continue
            try:
                with path.open("rb") as file:
                    if known_again(file, position):
                        return path
            except OSError:
                continue
        return None

    def packed(self, position: Position) -> bool:
        """Whether the file of a position is there, packed, and was read to its end before."""
        seconds = position.get("until", 0) // 10**9  # which is all that some packers keep
        return any(
            path.suffix.lower() in PACKERS and status.st_mtime_ns // 10**9 == seconds
            for status, path in self._files(None)
        )

    def _files(self, present: io.BufferedReader | None) -> list[Found]:
        """All files that are named like rotated ones, in the order of their last changes."""
        name = self.path.name
        try:
            with os.scandir(self.path.parent) as entries:
                named = [one for one in entries if one.name.startswith(name)]
            files = [
                (one.stat(), Path(one.path))
                for one in named
                if _ROTATED.fullmatch(one.name.removeprefix(name))
            ]
        except OSError:
            return []
        open_one = None if present is None else os.fstat(present.fileno())
        return sorted(
            (
                (status, path)
                for status, path in files
                if stat.S_ISREG(status.st_mode)
                and not (open_one is not None and os.path.samestat(status, open_one))
            ),
            key=lambda found: (found[0].st_mtime_ns, found[1]),
        )

    def _known(self, status: os.stat_result, path: Path) -> bool | None:
        """Whether a file was read: None if not, and True if it has no entry of its own yet."""
        if path.suffix.lower() in PACKERS:
            return False if status.st_mtime_ns <= self.until else None
        try:
            with path.open("rb") as file:
                found = [one for one in self.finished if _same(file, status, one)]
        except OSError:  # whoever opens it for reading hears why it cannot be read
            found = [one for one in self.finished if _twins(status, one)]
        if found:
            return not any(_twins(status, one) for one in found)
        return False if status.st_mtime_ns <= self._before else None

    def _entry(self, status: os.stat_result, path: Path) -> Position:
        """What is remembered of a file that need not be read."""
        begin, head = 0, ""
        if path.suffix.lower() not in PACKERS:
            try:
                with path.open("rb") as file:
                    begin = len(file.readline()) if self._header else 0
                    head = _head(file, begin, status.st_size)
            except OSError:
                pass
        return {
            "device": status.st_dev,
            "inode": status.st_ino,
            "begin": begin,
            "offset": status.st_size,
            "head": head,
            "changed": status.st_mtime_ns,
        }

    def _add(self, entries: list[Position]) -> None:
        """Remember more files; positions that were delivered keep what they have."""
        if not entries:
            return
        every = sorted([*self.finished, *entries], key=lambda one: int(one["changed"]))
        for one in every[:-REMEMBERED]:
            self._before = max(self._before, one["changed"])
        self.finished = every[-REMEMBERED:]
        self.until = max(self.until, *(one["changed"] for one in entries))


def _same(file: io.BufferedReader, status: os.stat_result, one: Position) -> bool:
    """Whether a file is one that is remembered, or a copy of it."""
    twins, as_long = _twins(status, one), status.st_size == one["offset"]
    if not one["head"]:
        return twins and as_long
    if _head(file, one["begin"], one["offset"]) != one["head"]:
        return False
    # a few records may also begin another file
    return twins or as_long or one["offset"] - one["begin"] >= SHOWN


def _shape(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, or becomes another."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _twins(status: os.stat_result, one: Position) -> bool:
    return (status.st_dev, status.st_ino) == (one["device"], one["inode"])


def _head(file: io.BufferedReader, begin: int, offset: int) -> str:
    """A digest of the first records before an offset; empty where there are none."""
    shown = os.pread(file.fileno(), max(0, min(SHOWN, offset - begin)), begin)
    return hashlib.sha256(shown).hexdigest()[:32] if shown else ""
