import math
from bisect import insort

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.mechanisms.pegasus.deviation import clip, deviation, whole_deviation
from tidegate.structures.kernels import ordered as tree
from tidegate.structures.ordered import OrderedSets

numbers = st.integers(-(2**40), 2**40) | st.integers(-3, 3)


def build(values: list[int]) -> tuple[OrderedSets, int]:
    """A set of the values, each once."""
    sets = OrderedSets()
    return sets, sets.build(np.array(values, dtype=np.int64), np.ones(len(values), dtype=np.int64))


@given(st.lists(numbers, min_size=1, max_size=200), numbers)
def test_sums_ranks_and_median_are_those_of_a_sorted_list(values, limit):
    """Insertion in any order gives what a sorted list gives."""
    sets, root = build(values)
    ordered = sorted(values)
    below = [value for value in values if value <= limit]
    assert tree.up_to(sets.nodes, root, limit) == (len(below), sum(below))
    assert [tree.pick(sets.nodes, root, rank + 1) for rank in range(len(values))] == ordered
    assert tree.median(sets.nodes, root) == np.median(ordered)
    assert sets.nodes[root, tree.HEIGHT] <= 1.45 * math.log2(len(values) + 1) + 1


@given(st.lists(numbers, min_size=1, max_size=120))
def test_the_compiled_deviation_is_the_exact_one(values):
    """⌊Σ|c − mean|⌋ in integers, after every insertion."""
    sets = OrderedSets()
    sets.make_room(len(values))
    root, total, seen = 0, 0, []
    for value in values:
        root = tree.insert(sets.nodes, sets.pool, sets.path, root, value, 1)
        total += value
        insort(seen, value)
        found = tree.deviation(sets.nodes, root, len(seen), total)
        assert found == whole_deviation(seen) == math.floor(deviation(seen))


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(0, 29), st.integers(-5, 5))
def test_one_count_moves_the_deviation_by_less_than_twice_its_change(values, at, change):
    """The sensitivity of the deviation, rounded down or not, is 2Δ."""
    moved = list(values)
    moved[at % len(values)] += change
    assert abs(deviation(moved) - deviation(values)) <= 2 * abs(change)
    assert abs(whole_deviation(moved) - whole_deviation(values)) <= 2 * abs(change)
    assert abs(clip(moved[0], 9) - clip(values[0], 9)) <= abs(moved[0] - values[0])


@given(st.lists(st.lists(numbers, max_size=40), max_size=6))
def test_sets_share_a_pool_and_give_it_back_wiped(several):
    """Sets do not disturb each other, and clearing leaves no key behind."""
    sets = OrderedSets()
    roots = [sets.build(np.array(v, dtype=np.int64), np.ones(len(v), dtype=np.int64)) for v in several]
    for values, root in zip(several, roots, strict=True):
        keys, counts = sets.listing(root)
        assert keys.base is counts.base is None  # they do not keep room for all sets
        assert np.repeat(keys, counts).tolist() == sorted(values)
    for root in roots:
        tree.clear(sets.nodes, sets.pool, sets.path, root)
    assert sets.pool[tree.USED] == 0
    assert not sets.nodes[:, [tree.KEY, tree.COUNT, tree.TOTAL]].any()


def test_ascending_insertion_stays_flat():
    """The worst order for an unbalanced tree."""
    sets, root = build(list(range(20_000)))
    assert sets.nodes[root, tree.HEIGHT] <= 1.45 * math.log2(20_001)
