import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import tidegate as tg
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.queries import Consistent, Hierarchy
from tidegate.queries.consistency import reconcile


@st.composite
def forests(draw):
    """Any forest of up to 12 nodes."""
    size = draw(st.integers(1, 12))
    parents = {
        f"n{node}": draw(st.sampled_from([None, *(f"n{p}" for p in range(node))])) for node in range(size)
    }
    return Hierarchy.from_parents(parents)


@given(forests())
def test_a_hierarchy_is_in_order(forest):
    """Parents come first, levels count from the roots, sums are those of the leaves below."""
    assert all(parent < node for node, parent in enumerate(forest.parents))
    inner = {parent for parent in forest.parents if parent >= 0}
    assert set(forest.leaves) == set(range(len(forest.names))) - inner
    membership = forest.sum(np.eye(len(forest.leaves)))
    for column, leaf in enumerate(forest.leaves):
        assert set(np.flatnonzero(membership[column])) == set(forest.path(leaf))
        assert len(forest.path(leaf)) == forest.levels[leaf]


def test_names_and_links_say_the_same():
    """building/room and the links from room to building are one hierarchy; columns keep their order."""
    named = Hierarchy.from_names(["b/2", "a/1", "a/3"])
    linked = Hierarchy.from_parents({"b": None, "a": None, "b/2": "b", "a/1": "a", "a/3": "a"})
    assert named == linked
    assert [named.names[leaf] for leaf in named.leaves] == ["b/2", "a/1", "a/3"]
    assert Hierarchy.balanced(128).height == 8
    assert len(Hierarchy.balanced(128).names) == 255
    assert Hierarchy.balanced(1).names == ("0.0",)


@pytest.mark.parametrize(
    ("links", "word"),
    [
        ({"a": "b", "b": "c", "c": "a"}, "above itself"),
        ({"a": "a"}, "above itself"),
        ({"a": "nowhere"}, "parents that are nodes"),
        ([("all", None), ("x", None), ("leaf", "all"), ("leaf", "x")], "one parent"),
        ({}, "at least one node"),
    ],
)
def test_bad_links_are_refused(links, word):
    """A cycle, an unknown parent, a leaf under two parents, nothing at all."""
    with pytest.raises(InvalidParameter, match=word) as caught:
        Hierarchy.from_parents(links)
    assert len(str(caught.value).splitlines()) == 1


def test_bad_names_are_refused():
    """A name twice, a column above another, a node that is not there."""
    with pytest.raises(InvalidParameter, match="differ"):
        Hierarchy.from_names(["a/1", "a/1"])
    with pytest.raises(InvalidParameter, match="leaves"):
        Hierarchy.from_names(["a/1", "a/1/x"])
    with pytest.raises(InvalidParameter, match="node of the hierarchy"):
        Hierarchy.from_names(["a/1"]).position("b")


@given(forests(), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_consistent_values_are_the_non_negative_least_squares(forest, seed):
    """The exact kernel agrees with scipy's solver, for any weights."""
    random = np.random.default_rng(seed)
    nodes = len(forest.names)
    values, weights = random.normal(0, 5, nodes), random.uniform(0.01, 3, nodes)
    design = forest.sum(np.eye(len(forest.leaves))).T * np.sqrt(weights)[:, np.newaxis]
    expected, _ = nnls(design, values * np.sqrt(weights))
    found = reconcile(forest, values[np.newaxis], weights[np.newaxis])
    assert found[0, list(forest.leaves)] == pytest.approx(expected, abs=1e-9)
    assert found == pytest.approx(forest.sum(found[:, list(forest.leaves)]))


@pytest.mark.parametrize("pruning", ["none", "counts", "privtree"])
def test_releases_of_a_hierarchy_are_made_consistent(pruning):
    """Parents equal the sum of their children, nothing is negative, single pushes agree with batches."""
    tree = Hierarchy.balanced(8)
    mechanism = tg.mechanisms.HierarchicalPeGaSus(tg.Event(epsilon="4"), hierarchy=tree, pruning=pruning)
    counts = np.arange(30)[:, np.newaxis] * np.arange(8)
    releases = tg.open(mechanism).push_batch(counts)
    batch = Consistent(tree).push_batch(releases)
    one_by_one = Consistent(tree)
    assert np.array([one_by_one.push(release) for release in releases]) == pytest.approx(batch)
    assert (batch >= 0).all()
    assert batch == pytest.approx(tree.sum(batch[:, list(tree.leaves)]), abs=1e-6)
    plain = tg.open(tg.mechanisms.Uniform(tg.Event(epsilon="1"), columns=15)).push_batch(tree.sum(counts))
    assert Consistent(tree).push_batch(plain).shape == (30, 15)
    with pytest.raises(InvalidInput, match="nodes"):
        reconcile(tree, np.zeros((2, 3)))
