"""Places in files: an offset, and what shows whether a file is the one that it belongs to."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

from tidegate.ingest.sources.source import Position

SHOWN = 1024  # bytes at the beginning, and as many before the offset, by which a file is known again


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
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def moved(path: Path, position: Position) -> Path | None:
    """Where a file is now that was renamed within its folder, as rotation does."""
    try:
        with os.scandir(path.parent) as found:
            entries = [Path(entry.path) for entry in found if entry.inode() == position["inode"]]
        return next((one for one in entries if one.stat().st_dev == position["device"]), None)
    except (OSError, KeyError):
        return None


def _digest(file: io.BufferedReader, offset: int) -> str:
    """Of the first bytes and of the last ones before an offset."""
    size = min(SHOWN, offset)
    shown = os.pread(file.fileno(), size, 0) + os.pread(file.fileno(), size, offset - size)
    return hashlib.sha256(shown).hexdigest()[:32]
