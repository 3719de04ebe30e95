"""Small habits with files: a name that nobody has planted, a folder that is on disk."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.noise.entropy import fresh_name


def unused_name(path: Path) -> Path:
    """A name beside a file for its next version; nobody can have put a file or a link there before."""
    return path.with_name(f".{path.name[:100]}.{fresh_name()[:12]}.tmp")


def sync_folder(path: Path) -> None:
    """Make sure that the name of a file is on disk."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def earlier_name(path: Path) -> Path:
    """The first free name for a file or folder that has to make room."""
    number = 1
    while (found := path.with_name(f"{path.stem}.earlier-{number}{path.suffix}")).exists():
        number += 1
    return found
