from __future__ import annotations

import numpy as np
import pytest

from tidegate.audit import neighbours
from tidegate.policy import Event, Policy, User, WEvent

POLICIES = [
    (Event(epsilon="1"), 1, 4),
    (Event(epsilon="1", adjacency="replace"), 3, 3),
    (WEvent(epsilon="1", w=3), 2, 7),
    (WEvent(epsilon="1", w=3, mobility="fixed"), 2, 7),
    (WEvent(epsilon="1", w=2, max_change=4, adjacency="replace"), 2, 5),
    (User(epsilon="1", horizon=5), 1, 5),
]


@pytest.mark.parametrize(("policy", "columns", "steps"), POLICIES)
def test_every_pair_is_a_pair_of_neighbours(policy: Policy, columns: int, steps: int) -> None:
    """Patterns, random pairs and variations, by the policy's own distance; counts are never negative."""
    choose = neighbours.chooser(1)
    pairs = neighbours.library(policy, columns, steps)
    assert len(pairs) > 10
    made = [neighbours.random_pair(policy, columns, steps, choose) for _ in range(30)]
    pairs += [pair for pair in made if pair is not None]
    near = [neighbours.varied(policy, pairs[choose(len(pairs))], choose) for _ in range(60)]
    pairs += [pair for pair in near if pair is not None]
    for pair in pairs:
        assert policy.distance(pair.first, pair.second) == 1
        assert min(pair.first.min(), pair.second.min()) >= 0
    assert len({pair.key for pair in pairs}) > 30


def test_the_library_straddles_moves_and_replaces() -> None:
    """Windows begin at several places, moving units change columns, replaced rows change two."""
    pairs = neighbours.library(WEvent(epsilon="1", w=3, adjacency="replace"), 3, 7)
    changes = [pair.second - pair.first for pair in pairs]
    firsts = {int(np.flatnonzero(change.any(axis=1))[0]) for change in changes}
    assert len(firsts) >= 3
    assert any(len(np.flatnonzero(change.any(axis=0))) > 1 for change in changes)
    assert any(np.all(change.sum(axis=1) == 0) for change in changes)


def test_pairs_survive_a_file() -> None:
    """What `describe` writes, `read` reads."""
    pair = neighbours.library(Event(epsilon="1"), 1, 2)[0]
    again = neighbours.Pair.read(pair.describe())
    assert again.key == pair.key
    assert again.origin == pair.origin
