"""Which streams each configuration is run on, and in which pieces: whole numbers alone, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tests.transcripts.driver import ENDS_AT, Configuration

Integers = npt.NDArray[np.int64]

SHORTEST, LONGEST, LONG = 64, 190, 420  # steps: of most streams, and of one that meets every period twice
FEW = 6  # steps of wide rows
ODD = (7, 1, 48)  # sizes of batches, in turn
MODES = (
    "single",
    "batch",
    "odd",
    "reopened",
)  # pushes, one batch, batches of odd sizes, a session per batch of these
QUICK = ("-0/rough", "-0/jumps")  # which cases are checked in the quick tier, by the end of their names


@dataclass(frozen=True)
class Case:
    """A configuration on a stream."""

    configuration: Configuration
    stream: str
    steps: int

    @property
    def name(self) -> str:
        """What it is called in the files."""
        return f"{self.configuration.name}/{self.stream}"

    @property
    def quick(self) -> bool:
        """Whether it belongs to the quick tier."""
        return self.name.endswith(QUICK)

    @property
    def rows(self) -> Integers:
        """The steps, in grid units."""
        about = self.configuration
        return rows(self.stream, self.steps, about.columns, about.per_one, about.most)


def cases(configuration: Configuration) -> Iterator[Case]:
    """The streams of a configuration."""
    steps = max(
        [SHORTEST, *(3 * length + 5 for length in configuration.lengths if 3 * length + 5 <= LONGEST)]
    )
    if configuration.kind == "example":
        for stream in STREAMS:
            yield Case(configuration, stream, LONG if stream == "season" else steps)
        return
    steps = {"ending": ENDS_AT, "wide": FEW}.get(configuration.kind, steps)
    yield Case(configuration, "rough", steps)
    if configuration.kind in ("noise", "budget"):
        yield Case(configuration, "jumps", steps)


def pieces(mode: str, steps: int) -> list[int] | None:
    """The sizes of the batches of a mode; None for single pushes."""
    if mode == "single":
        return None
    if mode == "batch":
        return [steps]
    sizes: list[int] = []
    while (left := steps - sum(sizes)) > 0:
        sizes.append(min(left, ODD[len(sizes) % len(ODD)]))
    return sizes


# streams -----------------------------------------------------------------------------------------------------------


def rows(stream: str, steps: int, columns: int, per_one: int, most: int) -> Integers:
    """A stream as steps × columns grid units."""
    time = np.arange(steps, dtype=np.int64)[:, np.newaxis]
    column = np.arange(columns, dtype=np.int64)[np.newaxis, :]
    return np.ascontiguousarray(STREAMS[stream](time, column, per_one, most) + 0 * (time + column))


def _constant(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """Each column stands still."""
    return (25 + 3 * column) * per_one + 0 * time


def _sparse(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """Nothing, but for one column now and then."""
    hit = (time % 17 == 5) & (column == (time // 17) % column.shape[1])
    return np.where(hit, 90 * per_one, 0)


def _jumps(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """Levels that hold for 13 steps, and single steps far above them."""
    level = 40 * ((time // 13 + column) % 4 + 1) ** 2
    return np.where(time % 37 == 20, 4000, level) * per_one


def _season(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """A triangular day of 24 steps on a slope, not the same in all columns."""
    hour = (time + 5 * column) % 24
    return (20 + 6 * np.minimum(hour, 24 - hour)) * per_one + (time * per_one) // 5


def _large(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """Small, but for numbers near the limits of both signs."""
    here = column == time % column.shape[1]
    high, low = here & (time % 11 == 3), here & (time % 11 == 7)
    return np.where(high, most - time, np.where(low, time - most, 7 * column * per_one))


def _ties(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """Two values, the same in all columns, one of them below zero."""
    return np.where(time // 2 % 2 == 0, 10, -10) * per_one


def _rough(time: Integers, column: Integers, per_one: int, most: int) -> Integers:
    """Bytes of a hash, on the finest grid there is; after 30 steps about ten times as large."""
    columns = column.shape[1]
    data = hashlib.shake_256(b"rough").digest(len(time) * columns)
    values = np.frombuffer(data, dtype=np.uint8).astype(np.int64).reshape(len(time), columns)
    return np.where(time >= 30, 10 * values * per_one // 4 + values % per_one, values * per_one // 4)


STREAMS = {
    "constant": _constant,
    "sparse": _sparse,
    "jumps": _jumps,
    "season": _season,
    "large": _large,
    "ties": _ties,
    "rough": _rough,
}
