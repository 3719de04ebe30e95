"""Places in files: an offset, and what shows whether a file is the one that it belongs to."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from pathlib import Path

from tidegate.ingest.sources.source import Position

_ROTATED = re.compile(r"[.\-_][^/]*\d.*")
_SHOWN = 1024  # bytes at the beginning, and as many before the offset, by which a file is known again


def place(file: io.BufferedReader, offset: int) -> Position:
    """The position of an offset in an open file."""
    status = os.fstat(file.fileno())
    return {
        "offset": offset,
        "device": status.st_dev,
        "inode": status.st_ino,
        "digest": _digest(file, offset),
    }


def known_again(file: io.BufferedReader, position: Position) -> bool:
    """Whether a file begins as that of a position did, as far as it was read."""
    offset = position["offset"]
    if os.fstat(file.fileno()).st_size < offset:
        return False
    return "digest" not in position or _digest(file, offset) == position["digest"]


def same_file(path: Path, file: io.BufferedReader) -> bool:
    """Whether a path still names an open file, or nothing yet that could be read in its place."""
    try:
        found = path.stat()
    except OSError:
        return True
    return found.st_size == 0 or os.path.samestat(found, os.fstat(file.fileno()))


def moved(path: Path, position: Position) -> Path | None:
    """Where a file is now that was renamed within its folder, as rotation does."""
    try:
        with os.scandir(path.parent) as found:
            entries = [Path(entry.path) for entry in found if entry.inode() == position["inode"]]
        return next((one for one in entries if one.stat().st_dev == position["device"]), None)
    except (OSError, KeyError):
        return None


def rotated_since(path: Path, file: io.BufferedReader) -> list[Path]:
    """The files that had a path's name after an open one and have another now, those that were left first first.

    Rotation adds something with a digit to the name (``.1``, ``-20260301``), and who left a file later wrote to it
    later. A packed file, which cannot be read, is among them.
    """
    left = os.fstat(file.fileno())
    try:
        now = path.stat()
        if os.path.samestat(now, left):
            return []  # emptied in place
        with os.scandir(path.parent) as found:
            named = [entry for entry in found if _ROTATED.fullmatch(entry.name.removeprefix(path.name))]
            files = [(entry.stat(), Path(entry.path)) for entry in named if entry.name.startswith(path.name)]
    except OSError:
        return []
    since = [
        (status.st_mtime_ns, other)
        for status, other in files
        if stat.S_ISREG(status.st_mode)
        and status.st_mtime_ns > left.st_mtime_ns
        and not os.path.samestat(status, left)
        and not os.path.samestat(status, now)
    ]
    return [other for _, other in sorted(since)]


def _digest(file: io.BufferedReader, offset: int) -> str:
    """Of the first bytes and of the last ones before an offset."""
    size = min(_SHOWN, offset)
    shown = os.pread(file.fileno(), size, 0) + os.pread(file.fileno(), size, offset - size)
    return hashlib.sha256(shown).hexdigest()[:32]
