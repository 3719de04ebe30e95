import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import HierarchicalPeGaSus, PeGaSus
from tidegate.mechanisms.pegasus import hierarchical_pegasus as loop
from tidegate.queries import Hierarchy, Jump, Monitor, WindowSum
from tidegate.structures.kernels.hierarchy import sum_up
from tidegate.testing.entropy import fixed_entropy, zero_noise

RAGGED = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b", "c/3/z/deep", "c/3/z/deeper"])


@st.composite
def forests(draw):
    """Any forest of up to 12 nodes, as ragged as it likes."""
    size = draw(st.integers(1, 12))
    parents = {
        f"n{node}": draw(st.sampled_from([None, *(f"n{p}" for p in range(node))])) for node in range(size)
    }
    return Hierarchy.from_parents(parents)


@given(
    forests(),
    st.sampled_from(["counts", "privtree", "none"]),
    st.fractions("1/9", "8/9"),
    st.fractions("1/9", "8/9"),
    st.integers(1, 5),
)
def test_every_path_spends_exactly_the_budget(forest, pruning, pruning_share, perturber_share, w):
    """Wherever a path from a root ends, by pruning or at its leaf, it has spent ε of the step."""
    policy = tg.WEvent(epsilon="7/5", window=w)
    shares = {"pruning_share": pruning_share, "perturber_share": perturber_share}
    mechanism = HierarchicalPeGaSus(policy, hierarchy=forest, pruning=pruning, **shares)
    for leaf in forest.leaves:
        path = forest.path(leaf)
        ends = range(1, len(path) + 1) if mechanism.prunes else [len(path)]
        for length in ends:
            spent = sum(sum(mechanism.spends(node, ends=False)) for node in path[: length - 1])
            spent += sum(mechanism.spends(path[length - 1], ends=True))
            if mechanism.prunes and pruning == "privtree":  # its tests cost ε_pr on a path, however many
                spent += mechanism.budgets_of_step[0]
            assert spent == Fraction(7, 5) / w
    for node in range(len(forest.names)):
        for part, ends in ((loop.PASSES, False), (loop.ENDS, True)):
            assert Fraction(mechanism.scales[part, node]) * mechanism.spends(node, ends)[1] >= 1


def pruned_reference(mechanism, counts, noise):
    """Which nodes of one step are pruned, and where paths end, as the class says."""
    forest, part = mechanism.forest, {}
    for node, parent in enumerate(forest.parents):
        if parent >= 0 and part[parent] != loop.PASSES:
            part[node] = loop.PRUNED
        elif forest.is_leaf[node]:
            part[node] = loop.ENDS
        elif mechanism.pruning == "privtree":
            delta, beta = mechanism.prune_decay, mechanism.prune_limit
            score = max(counts[node] - (forest.levels[node] - 1) * delta, beta - delta)
            part[node] = loop.PASSES if score + noise[node] > beta else loop.ENDS
        else:
            part[node] = loop.PASSES if counts[node] + noise[node] >= mechanism.prune_limit else loop.ENDS
    return [part[node] for node in range(len(forest.names))]


@given(forests(), st.sampled_from(["counts", "privtree"]), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_the_pruning_kernel_follows_the_reference(forest, pruning, seed):
    """Same nodes pruned, same ends of paths."""
    random = np.random.default_rng(seed)
    options = {"hierarchy": forest, "pruning": pruning, "prune_below": 15}
    mechanism = HierarchicalPeGaSus(tg.Event(epsilon="9"), **options)
    rows = random.integers(0, 20, (5, len(forest.leaves)))
    counts = np.empty((5, len(forest.names)), dtype=np.int64)
    parents, levels = np.array(forest.parents), np.array(forest.levels)
    sum_up(rows, np.array(forest.leaves), parents, counts)
    assert (counts == forest.sum(rows)).all()
    noise = random.integers(-9, 9, counts.shape)
    part = np.empty(counts.shape, dtype=np.int8)
    method = loop.PRIVTREE if pruning == "privtree" else loop.COUNTS
    limit, decay = mechanism.prune_limit, mechanism.prune_decay
    loop.prune(counts, noise, parents, levels, forest.is_leaf, method, limit, decay, part)
    assert part.tolist() == [pruned_reference(mechanism, *pair) for pair in zip(counts, noise, strict=True)]


def log_above(scale: float, least: int) -> float:
    """log P(X ≥ least) for discrete Laplace noise."""
    q = math.exp(-1 / scale)
    if least <= 0:
        return math.log1p(-(q ** (1 - least)) / (1 + q))
    return least / -scale - math.log1p(q)


def path_loss(mechanism, counts, decay: int | None = None) -> float:
    """The largest log ratio of any outcome of the tests on one path whose counts all grow by one."""
    beta, scale = mechanism.prune_limit, mechanism.prune_scale
    delta = mechanism.prune_decay if decay is None else decay

    def least(level: int, count: int) -> int:  # the noise from which on the path goes on
        if mechanism.pruning == "privtree":
            return beta + 1 - max(count - level * delta, beta - delta)
        return beta - count

    worst = together = 0.0
    for level, count in enumerate(counts):
        one, two = least(level, count), least(level, count + 1)
        stop_one, stop_two = log_above(scale, 1 - one), log_above(scale, 1 - two)  # by symmetry
        worst = max(worst, abs(together + stop_one - stop_two))
        together += log_above(scale, one) - log_above(scale, two)
        worst = max(worst, abs(together))
    return worst


@pytest.mark.parametrize("pruning", ["counts", "privtree"])
def test_pruning_loses_no_more_than_its_budget(pruning):
    """Exact losses on paths of 7 tests, for many counts; without PrivTree's decay it would lose more."""
    tree = Hierarchy.balanced(128)
    mechanism = HierarchicalPeGaSus(
        tg.Event(epsilon="1"), hierarchy=tree, pruning=pruning, pruning_share="1/2"
    )
    budget = float(mechanism.budgets_of_step[0])
    beta, delta = mechanism.prune_limit, mechanism.prune_decay
    paths = [[count] * 7 for count in range(0, 3 * beta)]
    paths += [
        [max(0, beta + (6 - i) * step - shift) for i in range(7)]
        for step in (1, delta, 2 * delta)
        for shift in (0, 1, delta)
    ]
    paths += [[beta + 6 * delta - i * delta for i in range(7)]]
    assert max(path_loss(mechanism, path) for path in paths) <= budget + 1e-12
    if pruning == "privtree":
        assert max(path_loss(mechanism, path, decay=0) for path in paths) > 1.5 * budget


def test_pruned_nodes_are_zero_and_groups_skip_them():
    """Without noise: children of a small node are 0 and in no group; an open group goes on after the gap."""
    tree = Hierarchy.from_parents({"all": None, "a": "all", "b": "all"})
    mechanism = HierarchicalPeGaSus(tg.Event(epsilon="1"), hierarchy=tree, prune_below=10, threshold=50)
    rows = [[8, 9], [1, 2], [8, 9], [8, 10]]
    with zero_noise():
        releases = Session(mechanism).push_batch(rows)
    assert releases.groups[:, 1].tolist() == [1, 0, 1, 1]
    assert releases.values[1].tolist()[1:] == [0.0, 0.0]
    assert releases.noisy[1].tolist() == [3.0, 0.0, 0.0]
    assert [release.status.label for release in releases] == ["fresh", "pruned", "fresh", "fresh"]
    # the root spent more at the pruned step, so its measurement there weighs more
    assert releases.weights[1, 0] > releases.weights[0, 0]


def test_links_and_names_are_read():
    """The three ways to write a hierarchy are one configuration."""
    links = {"a": None, "b": None, "a/1": "a", "a/2": "a", "b/3": "b"}
    policy = tg.Event(epsilon="1")
    named = HierarchicalPeGaSus(policy, hierarchy=["a/1", "a/2", "b/3"])
    assert named == HierarchicalPeGaSus(policy, hierarchy=links)
    assert named == HierarchicalPeGaSus(policy, hierarchy=Hierarchy.from_parents(links))
    assert (named.columns, named.outputs) == (3, 5)


def test_one_leaf_is_plain_pegasus():
    """A hierarchy of one node has nothing to prune and releases what PeGaSus releases."""
    counts = np.repeat([3, 90, 3], 20)
    one = Hierarchy.from_parents({"one": None})
    with fixed_entropy(5):
        plain = Session(PeGaSus(tg.Event(epsilon="1"))).push_batch(counts)
        forest = Session(HierarchicalPeGaSus(tg.Event(epsilon="1"), hierarchy=one)).push_batch(counts)
    assert (plain.values == forest.values).all()
    assert (plain.groups == forest.groups).all()


@pytest.mark.parametrize("pruning", ["none", "counts", "privtree"])
def test_every_question_works_on_every_node(pruning):
    """Windows, monitors and aggregations over the nodes of a pruned hierarchy."""
    mechanism = HierarchicalPeGaSus(tg.Event(epsilon="2"), hierarchy=RAGGED, pruning=pruning)
    releases = Session(mechanism).push_batch(np.random.default_rng(1).poisson(20, (60, 6)))
    nodes = len(RAGGED.names)
    assert releases.values.shape == (60, nodes)
    assert WindowSum(nodes, 12).push_batch(releases).shape == (60, nodes)
    assert Jump(nodes, 4, threshold=30).push_batch(releases).shape == (60, nodes)
    assert Monitor(nodes, 4, np.max, lambda top: top > 50).push_batch(releases).shape == (60, nodes)
    room, building = RAGGED.position("a/1"), RAGGED.position("b")
    sums = WindowSum(nodes, 12, aggregate=[(room, building)]).push_batch(releases)
    assert sums.shape == (60, 1)


def test_pruning_pays_on_sparse_streams():
    """On a sparse forest the error is far below that of measuring every node."""
    tree = Hierarchy.balanced(32)
    counts = np.random.default_rng(2).poisson(0.2, (2000, 32))
    policy, truth = tg.Event(epsilon="0.5"), tree.sum(counts)

    def error(**options) -> float:
        mechanism = HierarchicalPeGaSus(policy, hierarchy=tree, **options)
        return float(np.abs(Session(mechanism).push_batch(counts).values - truth).mean())

    whole = error(pruning="none")
    assert error() < 0.3 * whole
    assert error(pruning="privtree") < 0.3 * whole


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hierarchy": None}, "hierarchy"),
        ({"hierarchy": {"a": "b", "b": "a"}}, "cycles"),
        ({"hierarchy": {"a": "b"}}, "hierarchy"),
        ({"hierarchy": ["a/1", "a/1"]}, "hierarchy"),
        ({"columns": 5}, "columns"),
        ({"pruning": "sometimes"}, "pruning"),
        ({"pruning_share": "0"}, "pruning_share"),
        ({"perturber_share": "1"}, "perturber_share"),
        ({"smoother": "mode"}, "smoother"),
        ({"longest_group": 0}, "longest_group"),
    ],
)
def test_bad_parameters_are_refused(options, word):
    """One sentence each."""
    with pytest.raises(InvalidParameter, match=word) as caught:
        HierarchicalPeGaSus(tg.Event(epsilon="1"), **{"hierarchy": RAGGED, **options})
    assert len(str(caught.value).splitlines()) == 1
