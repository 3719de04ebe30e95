"""Tables that take seconds to compute, kept beside the machine code of the kernels for the next process."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.compiled import cache_folder

Table = npt.NDArray[Any]
SOURCES = ("orders.py", "shares.py", "tables.py")  # besides the kernels, what the tables depend on


@cache
def folder() -> Path | None:
    """Where tables of the present sources are kept; None where nothing is."""
    kernels = cache_folder()
    if kernels is None:
        return None
    here = Path(__file__).parent
    digest = hashlib.sha256(np.__version__.encode())
    for name in SOURCES:
        digest.update((here / name).read_bytes() + b"\0")
    beside = Path(kernels)
    return beside.parent.parent / "tables" / f"{beside.name}-{digest.hexdigest()[:20]}"


def kept(name: str, compute: Callable[[], Table]) -> Table:
    """A table by its name, computed if it is not on disk.

    A file counts only if it belongs to this user and has the digest that was written with it; a disk that cannot be read
    or written costs time and nothing else.
    """
    place = folder()
    if place is None:
        return compute()
    path = place / name
    found = _read(path)
    if found is None:
        found = compute()
        _write(path, found)
    return found


def _read(path: Path) -> Table | None:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            digest, content = file.read(32), file.read()
        if hashlib.sha256(content).digest() != digest:
            return None
        table: Table = np.load(io.BytesIO(content), allow_pickle=False)
        return table
    except (OSError, ValueError, EOFError, AttributeError):  # the last where files have no owners
        return None


def _write(path: Path, table: Table) -> None:
    """All of the file or nothing, whoever else writes it."""
    memory = io.BytesIO()
    np.save(memory, table, allow_pickle=False)
    content = memory.getvalue()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
