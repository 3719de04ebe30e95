"""Small habits with files: a name that nobody has planted, a file that is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tidegate.errors import InvalidParameter
from tidegate.noise.entropy import fresh_name

HTML = b"<!doctype html>"


def unused_name(path: Path) -> Path:
    """A name beside a file for its next version; nobody can have put a file or a link there before."""
    return path.with_name(f".{path.name[:100]}.{fresh_name()[:12]}.tmp")


@contextmanager
def replacing(path: Path, mode: int = 0o644, *, safe: bool = True) -> Iterator[BinaryIO]:
    """Write a file that has its name only when it is complete (and on disk, if `safe`); what fails leaves nothing."""
    fresh = unused_name(path)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if safe:
                os.fsync(descriptor)
        fresh.replace(path)
        if safe:
            sync_path(path.parent)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def earlier_name(path: Path) -> Path:
    """The first free name for a file or folder that has to make room."""
    number = 1
    while (found := path.with_name(f"{path.stem}.earlier-{number}{path.suffix}")).exists():
        number += 1
    return found


def check_earlier(name: str, path: Path, kind: str, begin: bytes) -> None:
    """Refuse to replace a file that is no earlier one of its kind: a slip of the pen would cost a ledger or the data.

    Parameters
    ----------
    name, path
        The option or key, and the file that it names.
    kind
        What is written there, in words.
    begin
        What every file of this kind begins with.
    """
    try:
        if path.exists() and not path.is_file():
            raise InvalidParameter(name, str(path), "a file, and no folder or device", "name another")
        with path.open("rb") as file:
            found = file.read(len(begin))
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidParameter(
            name, str(path), f"a file that can be written ({error.strerror})", "name another"
        ) from None
    if found.lower() not in (b"", begin.lower()):
        raise InvalidParameter(
            name,
            str(path),
            f"a new file or an earlier {kind}, and this one holds something else",
            "name another",
        )


def check_report(path: Path) -> None:
    """Refuse to replace a file that is no report."""
    check_earlier("report", path, "report", HTML)


def sync_path(path: Path) -> None:
    """Make sure that a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
