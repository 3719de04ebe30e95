"""The numbers of a stream as people read them: released, adjusted where they contradict each other, withheld by rule."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.config.relations import relations, signs
from tidegate.queries.relations import Relation, adjusted
from tidegate.releases import Status
from tidegate.report.accuracy import half_widths
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import check_earlier, replacing
from tidegate.sinks.layout import plain
from tidegate.sinks.rounding import rounded

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
HEADER = ("time", "step", "query", "column", "value", "low", "high", "adjusted", "shown")
SHOWN, WITHHELD, SILENT = "yes", "withheld", "silent"


@dataclass(frozen=True)
class Numbers:
    """The newest release of every step of one query.

    Parameters
    ----------
    config, newest
        The query, and what was released.
    answers, low, high
        Its numbers and the ends of their intervals; what sums, windows and intervals are made from.
    adjusted
        The nearest numbers that keep all relations that the configuration implies.
    relations
        What this query's numbers were compared with, in words.
    withheld
        Which numbers are too uncertain to be shown.
    """

    config: Config
    newest: Chunk
    answers: Values
    low: Values
    high: Values
    adjusted: Values
    relations: tuple[str, ...]
    withheld: Mask

    @property
    def changed(self) -> Mask:
        """Which numbers were adjusted."""
        found: Mask = np.isfinite(self.answers) & (self.adjusted != self._written[0])
        return found

    @property
    def drawn(self) -> Values:
        """What is drawn: adjusted where something contradicted, and nothing where a number is withheld."""
        found = np.where(self.changed, self.adjusted, self.answers)
        return np.where(self.withheld, np.nan, found)

    @property
    def _written(self) -> tuple[Values, Values, Values]:
        """Numbers and the ends of their intervals without meaningless digits, as files have them."""
        return rounded(self.answers, self.low, self.high, self.newest.scale)

    def rows(self) -> Iterator[list[str]]:
        """Lines of the table of all queries."""
        config, labels = self.config, self.config.query.answer_labels
        zone = ZoneInfo(config.steps.zone)
        written = [plain(part) for part in (*self._written, self.adjusted)]
        for row, step in enumerate(self.newest.step.tolist()):
            begin = config.steps.begin(step).astimezone(zone).isoformat(timespec="seconds")
            silent = self.newest.status[row] == Status.SILENT
            for column, label in enumerate(labels):
                if self.newest.categories is not None and np.isnan(self.answers[row, column]):
                    continue  # a category that is not open
                said = ["" if part[row][column] is None else str(part[row][column]) for part in written]
                shown = SILENT if silent else WITHHELD if self.withheld[row, column] else SHOWN
                yield [begin, str(step), config.name, label, *said, shown]


def numbers_of(parts: Sequence[tuple[Config, Chunk]]) -> list[Numbers]:
    """The numbers of all queries of a stream, adjusted together."""
    configs = [config for config, _ in parts]
    found: list[tuple[Values, Values, Values, Values, Values]] = []
    for config, newest in parts:
        answers = np.asarray(config.query.answers(newest.values), dtype=np.float64)
        low, high = config.query.intervals(newest.values, newest.radius)
        halves = half_widths(config, newest)
        halves = halves if halves.shape == answers.shape else (high - low) / 2
        found.append((answers, low, high, halves, rounded(answers, low, high, newest.scale)[0]))
    known = relations(configs)
    together = _adjusted(parts, found, known)
    numbers, at = [], 0
    for (config, newest), (answers, low, high, halves, _), after in zip(parts, found, together, strict=True):
        own = range(at, at + answers.shape[1])
        at += answers.shape[1]
        about = {
            relation.words
            for relation in known
            if relation.upper in own or any(lower in own for lower in relation.lower)
        }
        rule = config.withhold
        withheld = np.zeros(answers.shape, dtype=bool) if rule is None else rule.of(answers, halves)
        numbers.append(Numbers(config, newest, answers, low, high, after, tuple(sorted(about)), withheld))
    return numbers


def _adjusted(
    parts: Sequence[tuple[Config, Chunk]],
    found: Sequence[tuple[Values, Values, Values, Values, Values]],
    known: Sequence[Relation],
) -> list[Values]:
    """The adjusted numbers of each query; one that is compared with no other, by itself."""
    if not known:
        return [
            adjusted(written, (), signs(config), halves)
            for (config, _), (_, _, _, halves, written) in zip(parts, found, strict=True)
        ]
    steps = np.unique(np.concatenate([newest.step for _, newest in parts]))
    places = [np.searchsorted(steps, newest.step) for _, newest in parts]
    widths = [answers.shape[1] for answers, *_ in found]
    ends = np.cumsum(widths)
    values, sure = (np.full((len(steps), int(ends[-1])), np.nan) for _ in range(2))
    for place, end, width, (_, _, _, halves, written) in zip(places, ends, widths, found, strict=True):
        values[place, end - width : end] = written
        sure[place, end - width : end] = halves
    nonnegative = [sign for config, _ in parts for sign in signs(config)]
    together = adjusted(values, known, nonnegative, sure)
    return [
        together[place, end - width : end] for place, end, width in zip(places, ends, widths, strict=True)
    ]


def check_table(path: Path) -> None:
    """Refuse to replace a file that is no table."""
    check_earlier("table", path, "table", ",".join(HEADER).encode())


def write_table(path: Path, numbers: Sequence[Numbers]) -> None:
    """Write the numbers of all queries as one CSV, a line for each step, query and column; an earlier one is replaced."""
    check_table(path)
    try:
        with replacing(path) as file:
            file.write(",".join(HEADER).encode() + b"\n")
            for each in numbers:
                text = io.StringIO()
                csv.writer(text, lineterminator="\n").writerows(each.rows())
                file.write(text.getvalue().encode())
    except OSError as error:
        raise SinkError(
            f"the table {path} cannot be written ({error.strerror}); name another file."
        ) from None
