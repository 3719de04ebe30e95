"""The files of a stream: what is written is never what is read, and never another file that is written."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tidegate.config.config import Config
from tidegate.config.reader import FileReader
from tidegate.errors import InvalidParameter

_BESIDE_A_LEDGER = ("-wal", "-shm", "-journal", "-last", ".lock")
_READ_BESIDE = (".alarms.toml", ".geojson", ".key")  # beside a configuration, for the service
_WRITTEN_BESIDE = (".tuned.ledger", ".hooks.json", ".spool")


@dataclass(frozen=True)
class Place:
    """A file or folder of a stream.

    Parameters
    ----------
    path, what
        Where it is, and what it is in words.
    section, key
        What says so in the configuration.
    pattern
        Of a folder that is read: which of its files.
    """

    path: Path
    what: str
    section: str = ""
    key: str = ""
    pattern: str | None = None

    @cached_property
    def real(self) -> Path:
        """Where it is, with all links followed."""
        return Path(os.path.realpath(self.path))

    @cached_property
    def inode(self) -> tuple[int, int] | None:
        """The file itself, whatever its names are; none where there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def meets(self, other: Place) -> bool:
        """Whether both are one file, by whatever names, or the other is a file of this folder, which is read."""
        if self.pattern is not None and other.real.parent == self.real and self.path.is_dir():
            return fnmatch.fnmatch(other.real.name, self.pattern)
        return self.real == other.real or (self.inode is not None and self.inode == other.inode)


def check_places(reader: FileReader, parts: Sequence[Config]) -> None:
    """Refuse a configuration that would write over what it reads, or over what it has written."""
    taken = list(_read(parts))
    for place in _written(parts):
        for other in taken:
            if other.meets(place):
                section, key = (place.section, place.key) if place.key else (other.section, other.key)
                raise reader.fail(
                    f"{place.path.name} would be {place.what} and {other.what} at once; give each a file of its own.",
                    section,
                    key,
                )
        taken.append(place)


def check_output(name: str, path: Path, parts: Sequence[Config]) -> None:
    """Refuse a file that a command is asked to write where the stream has something else.

    Parameters
    ----------
    name
        Of the option.
    path
        What it says.
    parts
        The stream's queries.
    """
    for other in (*_read(parts), *_written(parts)):
        if other.meets(Place(path, name)):
            raise InvalidParameter(
                name,
                str(path),
                f"a file of its own, and not {other.what} of this stream",
                "name another",
            )


def _read(parts: Sequence[Config]) -> Iterator[Place]:
    """What a stream reads."""
    first = parts[0]
    if _is_file(first.source.location):
        location = Path(first.locate(first.source.location))
        yield Place(location, "the source", "source", "location", first.source.pattern)
    for part in parts:
        keys = part.query_keys
        for key, value in (("lookup", keys.lookup), ("hierarchy", keys.hierarchy)):
            if isinstance(value, str):
                yield Place(Path(part.locate(value)), f"the table of {key}", "query", key)
    if first.protect.specifications is not None:
        where = Path(first.locate(first.protect.specifications))
        yield Place(where, "the specifications", "protect", "specifications")
    if first.protect.requirements is not None:
        where = Path(first.locate(first.protect.requirements))
        yield Place(where, "the table of requirements", "protect", "requirements")
    for ending in _READ_BESIDE:
        beside = first.path.with_suffix(ending)
        yield Place(beside, f"the service's {beside.name}")


def _written(parts: Sequence[Config]) -> Iterator[Place]:
    """What a stream writes, and its configuration, which `init` and `tune` write."""
    first = parts[0]
    yield Place(first.path, "the configuration")
    ledger = Path(first.ledger)
    if _is_file(first.ledger):
        yield Place(ledger, "the ledger", "protect", "ledger")
        for ending in _BESIDE_A_LEDGER:
            yield Place(ledger.with_name(ledger.name + ending), "a file of the ledger", "protect", "ledger")
    for ending in _WRITTEN_BESIDE:
        beside = first.path.with_suffix(ending)
        yield Place(beside, f"Tidegate's own {beside.name}")
    for part in parts:
        sink = part.sink.location
        if _is_file(sink):
            yield Place(Path(part.locate(sink)), "an output", "sink", "location")
        yield Place(_receipt(part), "a receipt", "sink", "receipt")
    for part in parts:
        for answer in part.answers:
            yield Place(Path(part.locate(answer.location)), "an answer", "answer", "location")
    for key in ("archives", "status"):
        value = getattr(first.run, key)
        if value is not None:
            words = "the folder of archives" if key == "archives" else "the status file"
            yield Place(Path(first.locate(value)), words, "run", key)


def _receipt(part: Config) -> Path:
    """Where the receipt of a query lies when its stream begins."""
    name = "" if part.whole is None else f"-{part.name}"
    if part.sink.receipt is not None:
        return Path(part.locate(part.sink.receipt + name))
    if _is_file(part.sink.location):
        name, beside = "", Path(part.locate(part.sink.location))
    else:
        beside = Path(part.ledger) if _is_file(part.ledger) else part.path
    return beside.with_name(f"{beside.name}{name}.receipt")


def _is_file(location: str) -> bool:
    return location not in ("-", "serve:") and "://" not in location
