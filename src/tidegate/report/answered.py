"""What standing questions say, for the report: the newest answers, or the alarms that were raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.config.answer import Answer
from tidegate.pipeline.query_releases import Released
from tidegate.queries.standing import Row
from tidegate.report.pictures import meant
from tidegate.sinks.answer_file import Beside, asked

MOST_ROWS = 10  # of an answer that a report shows


@dataclass(frozen=True)
class Answered:
    """The answers of one question.

    Parameters
    ----------
    names
        What is particular to the question, by the names of its columns.
    steps
        After how many steps it was answered.
    newest
        The rows of the last answer.
    alarms
        All rows that raise an alarm; None of a question that raises none.
    """

    names: tuple[str, ...]
    steps: int
    newest: tuple[Row, ...]
    alarms: tuple[Row, ...] | None

    @property
    def shown(self) -> tuple[str, tuple[Row, ...]]:
        """What there is to say, and the rows to show."""
        if self.alarms is not None:
            certain = sum(bool(row.more[self.names.index("certain")]) for row in self.alarms)
            if not self.alarms:
                return f"No alarm in {self.steps:,} steps.", ()
            rows = self.alarms[-MOST_ROWS:]
            more = f" The last {len(rows)} are below." if len(rows) < len(self.alarms) else ""
            return (
                f"{len(self.alarms):,} alarms in {self.steps:,} steps, {certain:,} of them beyond what noise explains."
                + more,
                rows,
            )
        if not self.newest:
            return "No answer yet.", ()
        rows = self.newest[:MOST_ROWS]
        more = f", {len(rows)} of {len(self.newest):,} rows" if len(rows) < len(self.newest) else ""
        return f"After the last step{more}.", rows

    def extras(self, row: Row) -> str:
        """What is particular to the question, in words."""
        if self.alarms is not None:
            certain = row.more[self.names.index("certain")]
            how = "certain" if certain else "noise may explain it"
            if "direction" not in self.names:
                return how
            found = dict(zip(self.names, row.more, strict=True))
            between = " to ".join(meant(found[each]) for each in ("expected_low", "expected_high"))
            return f"{found['direction']} the expected {between}; {how}"
        return ", ".join(f"{name} {value}" for name, value in zip(self.names, row.more, strict=True))


def answered(released: Released, answer: Answer, beside: Mapping[str, Released]) -> Answered:
    """Ask a question of all releases of a query, as it is now.

    Parameters
    ----------
    released
        What the query has released.
    answer
        The question.
    beside
        All queries, for questions about two of them.
    """
    operator, other = answer.ask(), None
    if answer.beside is not None:
        found = beside[answer.beside]
        since = max(released.scope.first, found.scope.first) - 1
        other = Beside(found.chunks, since=since)
        other.begin()
    steps = 0
    newest: tuple[Row, ...] = ()
    alarming = "alarm" in operator.extras
    alarms: list[Row] = []
    for chunk in released.chunks():
        for _, rows in asked(operator, chunk, other):
            if not rows:
                continue
            steps, newest = steps + 1, tuple(rows)
            if alarming:
                place = operator.extras.index("alarm")
                alarms += [row for row in rows if row.more[place]]
    return Answered(operator.extras, steps, newest, tuple(alarms) if alarming else None)
