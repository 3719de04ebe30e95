from __future__ import annotations

import numpy as np
import pytest
from tests.audit.zoo.swellfish import Literal

from tidegate.audit import neighbours
from tidegate.errors import InvalidInput
from tidegate.policy import Event, Policy, Secret, Specification, Swellfish, User, WEvent

POLICIES = [
    (Event(epsilon="1"), 1, 4),
    (Event(epsilon="1", adjacency="replace"), 3, 3),
    (WEvent(epsilon="1", window=3), 2, 7),
    (WEvent(epsilon="1", window=3, mobility="fixed"), 2, 7),
    (WEvent(epsilon="1", window=2, max_change=4, adjacency="replace"), 2, 5),
    (User(epsilon="1", horizon=5), 1, 5),
]
HOME = Secret(1, 1, "always", 1, "somebody is at home")
HOUSE = Specification((HOME, Secret(2, 2, [(2, 4)], 1, "oven")), "house")


@pytest.mark.parametrize(("policy", "columns", "steps"), POLICIES)
def test_every_pair_is_a_pair_of_neighbours(policy: Policy, columns: int, steps: int) -> None:
    """Patterns, random pairs and variations, by the policy's own distance; counts do not become negative."""
    choose = neighbours.chooser(1)
    pairs = neighbours.library(policy, columns, steps)
    assert len(pairs) > 10
    made = [neighbours.random_pair(policy, columns, steps, choose) for _ in range(30)]
    made += [neighbours.tied_pair(policy, columns, steps, choose, (3, 5), (2,)) for _ in range(60)]
    pairs += [pair for pair in made if pair is not None]
    assert any(pair.below_zero for pair in pairs)
    near = [neighbours.varied(policy, pairs[choose(len(pairs))], choose) for _ in range(60)]
    pairs += [pair for pair in near if pair is not None]
    for pair in pairs:
        assert policy.distance(pair.first, pair.second) == 1
        assert pair.second.min() >= 0 or pair.first.min() < 0
    assert len({pair.key for pair in pairs}) > 30


def test_the_library_straddles_moves_and_replaces() -> None:
    """Windows begin at several places, moving units change columns, replaced rows change two."""
    pairs = neighbours.library(WEvent(epsilon="1", window=3, adjacency="replace"), 3, 7)
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


def test_neighbours_under_swellfish_are_those_of_its_own_distance() -> None:
    """A change that fits its w-event policy, but no placement of an event, is refused; pairs are events."""
    policy = Swellfish(specifications=(HOUSE,))
    stream = np.zeros((5, 1), dtype=np.int64)
    assert np.array_equal(policy.neighbour(stream, 1, np.array([[3], [3]]))[:, 0], [0, 3, 3, 0, 0])
    assert policy.as_w_event().distance(stream, stream + np.array([[0], [0], [0], [3], [3]])) == 1
    for first, change in ((3, [[3], [3]]), (0, [[3]]), (0, [[1], [1]])):
        with pytest.raises(InvalidInput):
            policy.neighbour(stream, first, np.array(change))
    choose = neighbours.chooser(3)
    pairs = neighbours.library(policy, 1, 5)
    pairs += [made for _ in range(20) if (made := neighbours.random_pair(policy, 1, 5, choose)) is not None]
    assert len(pairs) > 20
    assert all(policy.distance(pair.first, pair.second) == 1 for pair in pairs)
    assert any(np.array_equal((pair.second - pair.first)[1:3, 0], [3, 3]) for pair in pairs)


def test_literal_neighbours_under_swellfish_have_every_event_at_once() -> None:
    """One occurrence of each event, and no more."""
    hours = tuple(Secret(1, 1, [(step, step)], 1, f"at {step}") for step in (1, 2, 3))
    policy = Literal(specifications=(Specification((*hours, HOME), "house"),))
    stream = np.full((3, 1), 5)
    assert policy.distance(stream, stream + np.array([[1], [2], [1]])) == 1
    for change in ([[2], [2], [1]], [[3], [0], [0]]):
        with pytest.raises(InvalidInput):
            policy.distance(stream, stream + np.array(change))
    choose = neighbours.chooser(1)
    assert policy.distance(stream, policy.extreme_neighbour(stream, choose)) == 1
