"""GradualTree: what outputs lose about an event as they get further from it, and the errors it states."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config import parse_config, parse_queries
from tidegate.config.document import EXAMPLE, SEVERAL
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import BinaryTree, GradualTree
from tidegate.mechanisms.counters import gradual_tree
from tidegate.mechanisms.counters.gradual_tree import STREAM, levels_of, measured
from tidegate.noise.entropy import current
from tidegate.noise.kinds import KINDS
from tidegate.policy import Event, Guarantee, User, WEvent
from tidegate.testing.entropy import fixed_entropy, zero_noise

HORIZON = 14  # four levels would begin at 15


class Chosen:
    """Noise of nodes that a test has chosen, by level and number of the node: one row of columns each."""

    def __init__(self, nodes):
        self.nodes = nodes

    def draw(self, source, stream, first, scale, shape):
        """As kinds of noise draw."""
        level = int(stream.removeprefix(STREAM))
        rows = [self.nodes.get((level, first + at), 0) for at in range(shape[0])]
        return np.stack([np.broadcast_to(np.asarray(row, dtype=np.int64), shape[1:]) for row in rows])


def with_noise(nodes, steps, **options):
    """What is released of steps (T × columns) when nodes have this noise."""

    class Fixed(GradualTree):
        own_noise = property(lambda self: KINDS["laplace"]._replace(draw=Chosen(nodes).draw))

    rows = np.asarray(steps, dtype=np.int64)
    mechanism = Fixed(Event(epsilon="3"), columns=rows.shape[1], **{"horizon": HORIZON} | options)
    return mechanism.advance(mechanism.begin(1), rows, 1, Draws(current())).values


@given(steps=st.integers(1, 300), growth=st.integers(0, 2), data=st.data())
def test_without_noise_the_running_sum_is_exact(steps, growth, data):
    """Nodes add up to every prefix."""
    rows = np.array(data.draw(st.lists(st.integers(-50, 50), min_size=steps, max_size=steps)))
    with zero_noise():
        released = Session(GradualTree(Event(epsilon="1"), horizon=steps, growth=growth)).push_batch(rows)
    assert np.allclose(released.values[:, 0], np.cumsum(rows), atol=1e-9)


def test_every_level_has_one_or_two_nodes():
    """A number of steps is written with the digits 1 and 2."""
    mechanism = GradualTree(Event(epsilon="1"), horizon=1022)
    for step in range(1, 1023):
        held = mechanism.held(step)
        used = levels_of(step)
        assert set(held[:used]) <= {1, 2}
        assert not any(held[used:])
        assert sum(count << level for level, count in enumerate(held)) == step


# what is lost within d steps -------------------------------------------------------------------------------------


def coupled(step, before):
    """Whether outputs up to `before` steps after `step` are the same of two neighbours, at the cost that is stated.

    The second stream has one unit more at `step`. Its nodes that contain this step, and whose levels are paid for, have
    noise smaller by one; all others have the same noise. This maps noise to noise one to one, so the loss is at most
    the sum of 1/scale over these nodes: that of the levels which `loss_within` adds up.
    """
    mechanism = GradualTree(Event(epsilon="3"), horizon=HORIZON)
    paid = {
        level
        for level in range(mechanism.levels)
        if sum(mechanism.losses[: level + 1]) <= mechanism.loss_within(before)
    }
    random = np.random.default_rng(step)
    nodes = {
        (level, at): random.integers(-9, 10, 3) for level in range(mechanism.levels) for at in range(HORIZON)
    }
    moved = {
        (level, at): noise - (level in paid and at == (step - 1) >> level)
        for (level, at), noise in nodes.items()
    }
    rows = random.integers(0, 5, (HORIZON, 3))
    more = rows + (np.arange(1, HORIZON + 1) == step)[:, np.newaxis]
    one, other = with_noise(nodes, rows), with_noise(moved, more)
    return np.array_equal(one[: step + before], other[: step + before])


EVENTS = [(step, before) for step in range(1, HORIZON + 1) for before in range(HORIZON - step + 1)]


def test_outputs_lose_no_more_than_is_stated():
    """Every event and every distance of a small horizon."""
    assert all(itertools.starmap(coupled, EVENTS))


def test_a_node_that_is_used_too_early_is_found(monkeypatch):
    """With a sum that is released when its last step arrives, recent outputs lose what is stated for later ones."""
    real = gradual_tree.count_gradually

    def early(rows, shape, noise, offsets, state, values, deviations):
        for at in range(len(rows)):
            part = slice(at, at + 1)
            real(rows[part], shape, noise, offsets, state, values[part], deviations[part])
            if state[1][0] == 2:
                values[at] = state[2][0].sum(axis=0) + noise[offsets[1] % len(noise)] + state[4][1]

    monkeypatch.setattr(gradual_tree, "count_gradually", early)
    found = [pair for pair in EVENTS if not coupled(*pair)]
    assert (2, 0) in found  # the second step is in a pair at once


def losses_by_enumeration(step, epsilon):
    """The largest log-ratio of the probabilities of all outputs up to t, for t = 1, 2, 3, of 0 and 1 at `step`.

    All noise of four nodes within ±REACH, a column each.
    """
    reach, horizon = 7, 3
    mechanism = GradualTree(Event(epsilon=epsilon), horizon=horizon)
    drawn = np.array(list(itertools.product(range(-reach, reach + 1), repeat=4))).T
    names = [(0, 0), (0, 1), (0, 2), (1, 0)]
    scales = [mechanism.scales[level] for level, _ in names]
    chance = np.exp(-sum(np.abs(noise) / scale for noise, scale in zip(drawn, scales, strict=True)))
    laws = []
    for extra in (0, 1):
        rows = np.zeros((horizon, drawn.shape[1]), dtype=np.int64)
        rows[step - 1] += extra
        values = with_noise(dict(zip(names, drawn, strict=True)), rows, horizon=horizon).round(6)
        law = [defaultdict(float) for _ in range(horizon)]
        for column, weight in zip(values.T.tolist(), chance.tolist(), strict=True):
            for last in range(horizon):
                law[last][tuple(column[: last + 1])] += weight
        laws.append(law)
    inside = reach - 3  # outputs that no noise beyond the reach would change much
    return [
        max(
            abs(np.log(weight / laws[1][last][outputs]))
            for outputs, weight in laws[0][last].items()
            if max(map(abs, outputs)) < inside and outputs in laws[1][last]
        )
        for last in range(horizon)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_loss_by_enumeration(step):
    """Nothing before the event; within d steps at most what is stated, and at d = 0 that much."""
    mechanism = GradualTree(Event(epsilon="4"), horizon=3)
    found = losses_by_enumeration(step, "4")
    for last, loss in enumerate(found, 1):
        stated = float(mechanism.loss_within(last - step)) if last >= step else 0.0
        assert loss <= stated + 0.01
    assert found[step - 1] >= 0.99 * float(mechanism.loss_within(0))


@given(horizon=st.integers(1, 10**6), growth=st.integers(0, 2), epsilon=st.fractions("1/100", 5))
def test_the_levels_share_the_budget(horizon, growth, epsilon):
    """Scales round up, the levels' losses add up to ε exactly, and the loss grows to it."""
    mechanism = GradualTree(Event(epsilon=epsilon), horizon=horizon, growth=growth)
    assert sum(mechanism.losses) == mechanism.loss_within(horizon - 1) == epsilon
    assert all(Fraction(s) >= 1 / loss for s, loss in zip(mechanism.scales, mechanism.losses, strict=True))
    assert measured(mechanism.levels - 1, horizon) >= 1
    assert measured(mechanism.levels, horizon) == 0
    shown = dict(mechanism.guarantee.gradually)
    assert all(mechanism.loss_within(distance) == loss for distance, loss in shown.items())
    assert all(mechanism.loss_within(d - 1) < loss for d, loss in shown.items() if d)


# the guarantee ---------------------------------------------------------------------------------------------------


def test_the_sentence_says_that_it_is_weaker_for_older_events():
    """And nothing of it is said of what it does not hold for."""
    guarantee = GradualTree(Event(epsilon="1"), horizon=1022).guarantee
    assert (
        "for one event: a change of at most 1 in one step (event-level privacy). It is weaker for older events: about an "
        "event, the output of its own step loses at most ε = 1/9, those up to 2 steps later 2/9, those up to 6 steps "
        "later 1/3, those up to 14 steps later 4/9, and so on; the whole 1 is reached 255 steps later. It assumes"
    ) in str(guarantee)
    assert "weaker" not in str(guarantee.for_tuples(2))
    assert "weaker" not in str(guarantee.over(steps=3))
    assert "weaker" not in str(GradualTree(Event(epsilon="1"), horizon=2).guarantee)
    assert guarantee.implies(Guarantee("BinaryTree", Event(epsilon="1")))
    assert not guarantee.implies(Guarantee("BinaryTree", Event(epsilon="1/9")))


def test_a_file_promises_it_of_one_query():
    """The report and the card say what the mechanism says."""
    text = EXAMPLE.replace("window = 24", "horizon = 200").replace("w-event", "event")
    config = parse_config(text.replace('name = "auto"', 'name = "GradualTree"'))
    assert "It is weaker for older events" in str(config.promise)
    assert config.promise.gradually == config.mechanism.guarantee.gradually


def test_beside_other_queries_the_promise_does_not_grow():
    """Of one query it does. What all of them promise together does not: another query loses its share at once."""
    text = SEVERAL.replace("window = 24", 'policy = "event"\nhorizon = 200')
    text = text.replace('name = "customers"', 'name = "customers"\nmechanism = "GradualTree"')
    part = next(part for part in parse_queries(text).parts if part.name == "customers")
    assert "loses at most ε = 1/28" in str(part.guarantee)
    assert "weaker" not in str(part.promise)
    assert part.promise.budget.epsilon == 1


def test_what_it_has_no_proof_for_is_refused():
    """Windows, users, ρ, a missing horizon, another growth, and one step too many."""
    for policy in (WEvent(epsilon="1", window=2), User(epsilon="1", horizon=9), Event(rho="1")):
        with pytest.raises(InvalidParameter):
            GradualTree(policy, horizon=9)
    with pytest.raises(InvalidParameter, match="HybridTree"):
        GradualTree(Event(epsilon="1"))
    with pytest.raises(InvalidParameter, match="growth"):
        GradualTree(Event(epsilon="1"), horizon=9, growth=3)
    session = Session(GradualTree(Event(epsilon="1"), horizon=3))
    session.push_batch([1, 1, 1])
    with pytest.raises(InvalidInput, match="HybridTree"):
        session.push([1])


# errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", [0, 1, 2])
def test_stated_errors_are_measured(growth):
    """Releases state the closed form, and many columns have this standard deviation and mean error."""
    mechanism = GradualTree(Event(epsilon="2"), columns=8000, horizon=30, growth=growth)
    with fixed_entropy(5):
        released = Session(mechanism).push_batch(np.zeros((30, 8000), dtype=np.int64))
    stated = np.array([mechanism.standard_deviation(step) for step in range(1, 31)])
    assert np.allclose(released.scale, stated)
    assert np.allclose(released.values.std(axis=1), stated, rtol=0.06)
    assert np.isclose(np.abs(released.values).mean(), mechanism.expected_error(), rtol=0.05)
    inside = np.abs(released.values[28]) <= mechanism.radius(29, 0.9)
    assert 0.88 < inside.mean() < 0.95


@pytest.mark.parametrize("steps", [1, 2, 3, 9, HORIZON])
def test_linear_answers_have_the_noise_that_is_stated(steps):
    """One unit of noise in each node moves an answer by the node's coefficient; the last sum is an answer too."""
    mechanism = GradualTree(Event(epsilon="3"), horizon=HORIZON)
    weights = np.random.default_rng(steps).normal(size=steps)
    names = [(level, at) for level in range(mechanism.levels) for at in range(measured(level, steps))]
    units = dict(zip(names, np.eye(len(names), dtype=np.int64), strict=True))
    moved = weights @ with_noise(units, np.zeros((steps, len(names))))
    assert np.allclose(moved, np.concatenate(mechanism._coefficients(weights)))
    variances = [mechanism.own_noise.variance(mechanism.scales[level]) for level, _ in names]
    assert np.isclose(mechanism.deviation_of(weights) ** 2, np.dot(moved**2, variances))
    last = np.eye(steps)[-1]
    assert np.isclose(mechanism.deviation_of(last), mechanism.standard_deviation(steps))
    assert abs(mechanism.radius_of(last) - mechanism.radius(steps)) <= 1.01


def test_recent_outputs_are_as_private_at_a_small_part_of_the_error():
    """With what recent outputs lose as ε, the error is far below that of a tree that never loses more."""
    horizon, policy = 10**6, Event(epsilon="1")
    tree = BinaryTree(policy, horizon=horizon).standard_deviation(horizon - 1)
    found = []
    for growth in (0, 1):
        gradual = GradualTree(policy, horizon=horizon, growth=growth)
        found.append(gradual.standard_deviation(horizon - 1) * float(gradual.loss_within(0)))
    assert found[0] < tree / 10
    assert found[1] < found[0] / 2
