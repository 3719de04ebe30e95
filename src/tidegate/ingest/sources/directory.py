"""A folder that files arrive in, read in the order of their names once they are complete."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import EmptyInput, SourceUnavailable
from tidegate.ingest.sources.parquet import ParquetSource
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ingest.sources.text import TextSource, _pause

RULES = ("rename", "done", "stable")
FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_UNFINISHED = (".tmp", ".part", ".partial", ".done")


def format_of(path: str | Path) -> str | None:
    """The format that a file's name tells."""
    return FORMATS.get(Path(path).suffix.lower())


class DirectorySource(EventSource):
    """Files of one folder.

    Parameters
    ----------
    path
        The folder.
    columns
        The needed columns.
    pattern
        Which names are read.
    completed
        When a file is complete: "rename" (it gets its final name when it is; names that begin with a dot or
        end in .tmp or .part are not final), "done" (a file of the same name plus .done exists), or "stable"
        (its size and time of change have been the same for `settle` seconds).
    follow
        Whether to wait for more files.

    A file whose name sorts before one that was already read is not read any more: names must grow, as dates
    do. Positions are the name of a file and the position in it.
    """

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str],
        *,
        pattern: str = "*",
        completed: str = "rename",
        settle: float = 10.0,
        follow: bool = False,
        separator: str = ",",
        format: str = "auto",
    ) -> None:
        self.path = Path(path)
        super().__init__(repr(self.path.name), columns)
        if completed not in RULES:
            raise InvalidParameter(
                "completed", completed, "one of " + ", ".join(RULES), 'write completed="rename"'
            )
        self.pattern = pattern
        self.completed = completed
        self.settle = settle
        self.follow = self.lenient = follow
        self.separator = separator
        self.format = format
        self._listed: list[str] | None = None
        self._opened: dict[str, EventSource] = {}
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def files(self) -> list[str]:
        """The names of the completed files, in order."""
        try:
            names = sorted(entry.name for entry in self.path.iterdir() if entry.is_file())
        except OSError as error:
            reason = error.strerror or type(error).__name__
        else:
            known = set(names)
            return [name for name in names if self._wanted(name) and self._complete(name, known)]
        raise SourceUnavailable(f"the folder {self.name} cannot be read: {reason}.")

    def _wanted(self, name: str) -> bool:
        if name.startswith(".") or name.endswith(_UNFINISHED) or not fnmatch.fnmatch(name, self.pattern):
            return False
        return self.format != "auto" or format_of(name) is not None

    def _complete(self, name: str, known: set[str]) -> bool:
        if self.completed == "done":
            return f"{name}.done" in known
        if self.completed == "stable":
            try:
                status = (self.path / name).stat()
            except OSError:
                return False
            shape = (status.st_size, status.st_mtime_ns)
            if self._seen.get(name, (None,))[0] != shape:
                # without waiting for more files the time of change must do
                since = (
                    time.monotonic() if self.follow else time.monotonic() - (time.time() - status.st_mtime)
                )
                self._seen[name] = (shape, since)
            return time.monotonic() - self._seen[name][1] >= self.settle
        return True

    def open(self, name: str) -> EventSource:
        """One of the files; without `follow` the same object each time, since it remembers where its file ended."""
        if name in self._opened:
            return self._opened[name]
        opened = self._open(name)
        if not self.follow:
            self._opened[name] = opened
        return opened

    def _open(self, name: str) -> EventSource:
        kind = (format_of(name) or "csv") if self.format == "auto" else self.format
        if kind == "parquet":
            return ParquetSource(self.path / name, self.columns)
        return TextSource(
            self.path / name,
            self.columns,
            format=kind,
            separator=self.separator,
            lenient=self.follow,
        )

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Read file after file."""
        place = dict(position or {})
        while True:
            if self.follow or self._listed is None:
                self._listed = self.files()  # a finite input is what was there at first
            ahead = [name for name in self._listed if name >= place.get("file", "")]
            if ahead and ahead[0] == place.get("file") and place.get("read"):
                ahead.pop(0)
            for number, name in enumerate(ahead):
                inner = place.get("inner") if name == place.get("file") else None
                more = number + 1 < len(ahead)
                for batch in self.open(name).batches(inner, columns=columns):
                    before = {"file": name, "inner": batch.before}
                    place = {"file": name, "inner": batch.after}
                    yield EventBatch(batch.frame, before, place, caught_up=False)
                place = {"file": name, "read": True}
                if not more:
                    yield EventBatch(self.nothing(), place, place)
            if not self.follow:
                if not place:
                    raise EmptyInput(
                        f"the folder {self.name} has no completed file of this kind; check pattern and "
                        "completed."
                    )
                return
            if not ahead:
                yield EventBatch(self.nothing(), place, place)
                _pause(patience())
