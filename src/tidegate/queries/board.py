"""Any number of questions to one stream of releases, at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.queries.query import Answers, Question
from tidegate.releases import Release, Releases


class Board:
    """Passes every release to all questions; one that fails is reported once and does not stop the others.

    Parameters
    ----------
    queries
        Questions by name.

    Attributes
    ----------
    failures
        Why a question stopped answering, by name. Its answers are None (or no alarm) from then on.

    Examples
    --------
    >>> import numpy as np, tidegate as tg
    >>> from tidegate.queries import Board, Jump, WindowSum
    >>> board = Board({"hour": WindowSum(1, 12), "day": WindowSum(1, 288), "jump": Jump(1, 6, threshold=40)})
    >>> run = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="1")))
    >>> answers = board.push(run.push(7))
    >>> sorted(answers), board.failures
    (['day', 'hour', 'jump'], {})
    """

    def __init__(self, queries: Mapping[str, Question]) -> None:
        self.queries = dict(queries)
        self.failures: dict[str, str] = {}
        self._unreported: dict[str, str] = {}

    def push(self, release: Release) -> dict[str, Answers | None]:
        """The answers after the next step, by name."""
        return self._all("push", release)

    def push_batch(self, releases: Releases) -> dict[str, Answers | None]:
        """The answers after each of the next steps, by name."""
        return self._all("push_batch", releases)

    def report(self) -> dict[str, str]:
        """Failures that were not reported yet: each appears once."""
        fresh, self._unreported = self._unreported, {}
        return fresh

    def _all(self, how: str, released: Any) -> dict[str, Answers | None]:
        answers: dict[str, Answers | None] = {}
        for name, query in self.queries.items():
            if name in self.failures and not query.goes_on:
                answers[name] = None
                continue
            try:
                answers[name] = getattr(query, how)(released)
            except Exception as error:  # the other questions and the stream continue
                answers[name] = None
                self._note(name, f"{type(error).__name__}: {error}")
            if query.failure:
                self._note(name, query.failure)
        return answers

    def _note(self, name: str, reason: str) -> None:
        if name not in self.failures:
            self.failures[name] = self._unreported[name] = reason
