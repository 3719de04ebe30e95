from __future__ import annotations

import json

import numpy as np
import pytest

from tidegate.audit import events
from tidegate.audit.events import Distinguisher, learn
from tidegate.audit.search import Effort, Search
from tidegate.audit.subjects import Configured
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.policy import Event, Pure

CLAIM = Pure(epsilon=1)
ERROR = 1e-9


def _turned(side: int, count: int) -> np.ndarray:
    """A coin and thirty numbers: after heads all are a little larger under the first stream, after tails smaller."""
    random = np.random.default_rng(side)
    coin = random.integers(0, 2, count) * 2 - 1
    moved = 0.15 * coin * (1 - 2 * side)
    return np.column_stack([coin, moved[:, None] + random.normal(0, 1, (count, 30))])


def _learnt() -> events.Learnt:
    return learn(_turned(0, 4000), _turned(1, 4000), 31, CLAIM, 20_000, ERROR)


def test_what_many_numbers_tell_only_together_with_another_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of single features say nothing; a few pairs of them say less than trees that ask for the coin first."""
    together = _learnt().promise
    monkeypatch.setattr(events, "LEAST_FOR_TREES", 10**9)
    assert together > 1.5 * _learnt().promise


def test_an_event_with_trees_is_read_as_it_was_written() -> None:
    """Whoever repeats a proof counts the same event."""
    event = _learnt().event
    assert event.trees is not None
    again = Distinguisher.read(json.loads(json.dumps(event.describe())), 31)
    drawn = _turned(0, 500)
    assert np.array_equal(again.scores(drawn), event.scores(drawn))


def test_a_pair_that_one_search_found_is_put_to_the_test_by_a_later_one() -> None:
    """The first one tests nothing of a sound mechanism; the second tests that pair alone."""
    subject = Configured(Uniform(Event(epsilon="1")))
    first = Search(
        subject, CLAIM, ERROR, Effort(0.2, scan=500, pairs=6, fewest=200, later=0.2), steps=1
    ).run()
    assert first.trials == 0
    assert first.promising
    assert first.promising == sorted(first.promising, key=lambda each: -each[0])
    pair = first.promising[0][1]
    effort = Effort(0.2, trials=20_000, fewest=200, pairs=1, settled=True)
    last = Search(subject, CLAIM, ERROR, effort, steps=1, pairs=[pair]).run()
    assert last.trials > 0
    assert last.pair is not None
    assert {last.pair.first.tobytes(), last.pair.second.tobytes()} == {
        pair.first.tobytes(),
        pair.second.tobytes(),
    }
    assert 0.5 < last.loss < 1  # of the claim; accused with a chance of 10⁻⁹
