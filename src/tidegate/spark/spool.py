"""Condensed rows of open steps on a file system that driver and executors share: what was read, batch by batch.

A batch is kept as ``batch-N``. What is still open after step S and batch N is kept as ``open-N-S``, which stands for all
batches up to N: as soon as it has its name, everything before is replaced and removed. Rows are written under a name
of nobody's, and given their own by the driver that holds the ledger, in one rename: so a process that dies at any
instruction, or continues after it was taken for dead, leaves every batch in the spool once.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate import process
from tidegate.spark.errors import SparkFailed

MANY = 32  # pieces, before they become one
_PIECE = re.compile(r"(batch)-([0-9]{12})|(open)-([0-9]{12})-([0-9]{12})")


class Spool:
    """The pieces of one streaming query.

    Parameters
    ----------
    session
        Of Spark.
    folder
        Where, as a path or an address that Spark understands. Only its owner may look into it.
    """

    def __init__(self, session: SparkSession, folder: str) -> None:
        self._session, self._folder = session, folder
        self._files = Files(session, folder)
        self._files.make_private()

    def _pieces(self) -> tuple[list[str], list[str]]:
        """The names of the pieces that count, and of all others."""
        names = self._files.names()
        opened = max(
            (name for name in names if name.startswith("open-") and _PIECE.fullmatch(name)), default=""
        )
        since = int(opened.split("-")[1]) if opened else -1
        counts = [
            name
            for name in names
            if name == opened
            or (name.startswith("batch-") and _PIECE.fullmatch(name) and int(name.split("-")[1]) > since)
        ]
        return counts, [name for name in names if name not in counts]

    @property
    def reached(self) -> int:
        """The last batch that is in the spool; −1 for none."""
        return max((int(name.split("-")[1]) for name in self._pieces()[0]), default=-1)

    @property
    def crowded(self) -> bool:
        """Whether there are so many pieces that they should become one."""
        return len(self._pieces()[0]) >= MANY

    def put(self, batch: int, rows: DataFrame) -> None:
        """Keep the rows of a batch."""
        self._write(f"batch-{batch:012}", rows)

    def supersede(self, batch: int, step: int, rows: DataFrame) -> None:
        """Let rows of the steps after one stand for everything up to a batch, and remove that."""
        name = f"open-{batch:012}-{step:012}"
        if name not in self._pieces()[0]:
            self._write(name, rows)
        self.tidy()

    def _write(self, name: str, rows: DataFrame) -> None:
        attempt = f"writing-{process.secret(8).hex()}"
        rows.write.parquet(f"{self._folder}/{attempt}")
        self._files.rename(attempt, name)

    def rows(self, columns: str) -> DataFrame:
        """All rows in it; its columns as Spark writes them."""
        names = self._pieces()[0]
        if not names:
            return self._session.createDataFrame([], columns)
        return self._session.read.schema(columns).parquet(*(f"{self._folder}/{name}" for name in names))

    def tidy(self) -> None:
        """Remove what was cut off or is replaced."""
        for name in self._pieces()[1]:
            self._files.remove(name)

    def remove(self) -> None:
        """Remove all of it."""
        self._files.remove()


class Files:
    """A folder of whatever file system Spark uses.

    Parameters
    ----------
    session
        Of Spark.
    folder
        The folder.
    """

    def __init__(self, session: SparkSession, folder: str) -> None:
        self._hadoop: Any = session._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        self._folder = self._hadoop.Path(folder)
        self._system = self._folder.getFileSystem(session._jsc.hadoopConfiguration())  # type: ignore[attr-defined]

    def _at(self, name: str) -> Any:
        return self._hadoop.Path(self._folder, name) if name else self._folder

    def make_private(self) -> None:
        """Make the folder, for its owner only."""
        self._system.mkdirs(self._folder)
        self._system.setPermission(self._folder, self._hadoop.permission.FsPermission("700"))

    def names(self) -> list[str]:
        """What is in it."""
        return sorted(each.getPath().getName() for each in self._system.listStatus(self._folder))

    def exists(self, name: str) -> bool:
        """Whether something is in it."""
        return bool(self._system.exists(self._at(name)))

    def rename(self, name: str, other: str) -> None:
        """Give something in it another name, which nothing has, at once."""
        if not self._system.rename(self._at(name), self._at(other)):
            raise SparkFailed(
                f"a folder of the spool cannot be renamed to {other}; use a file system on which that is one act."
            )

    def remove(self, name: str = "") -> None:
        """Remove something in it, or all of it."""
        self._system.delete(self._at(name), True)
