"""The scales of every mechanism, for all policies that it accepts, against losses worked out by hand from the policy.

For each mechanism there is a formula below that says what the worst protected unit loses through the noise scales
that the mechanism uses. It is written from the policy and from the proofs, not from the mechanism's own numbers: how
far a unit moves a step, how often it is measured, how many levels, tests or features it enters. The loss must not exceed
the budget (privacy) nor fall far below it (accuracy). A mechanism without a formula fails.
"""

import ast
import dataclasses
import itertools
import math
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import (
    BackwardSmoothing,
    BinaryTree,
    BudgetAbsorption,
    PeGaSus,
    Sample,
    Uniform,
    catalogue,
)
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.counters.endless_design import phase_of, phases
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.policy import Clock, Event, Secret, Specification, Swellfish, User, WEvent
from tidegate.structures.hierarchy import Hierarchy
from tidegate.structures.value_bins import ValueBins
from tidegate.testing.entropy import fixed_entropy, zero_noise

ALL = {**catalogue(), "ClippedRecords": ClippedRecords}  # which stands beside the catalogue
W = 4  # of windows
END = 6  # of finite streams
DELTA = Fraction(1, 1000)
TREE = Hierarchy.from_parents({"all": None, "a": "all", "b": "all", "c": "all", "a1": "a", "a2": "a"})


# what a unit can do, by hand -----------------------------------------------------------------------------------


def moved(m, columns=None):
    """By how many grid units one unit moves one step, in L1."""
    policy, columns, grid = m.policy, columns or m.columns, Fraction(m.grid)
    change = Fraction(policy.max_change)
    if policy.adjacency == "replace" and (columns > 1 or policy.signed):
        change *= 2  # one contribution goes, another comes
    units = math.ceil(change / grid)
    if m.rounding == "nearest":
        touched = columns if policy.touches is None else min(columns, policy.touches)
        if policy.adjacency == "replace" and columns > 1:
            touched = min(columns, 2 * touched)
        units += touched  # each may round the other way
    return units


def steps(policy):
    """How many consecutive steps one unit can move."""
    return {Event: 1, WEvent: W, User: END}[type(policy)]


def once(change, scale, policy):
    """What one measurement loses: ε of Laplace, ρ of Gaussian noise."""
    share = Fraction(change) / Fraction(float(scale))
    return share**2 / 2 if policy.rho is not None else share


def composed(count, each, epsilon):
    """The δ that so many pure steps lose beyond ε, if they are composed optimally (Kairouz, Oh and Viswanath 2015)."""
    total = 0.0
    for hits in range(count + 1):
        gap = math.exp(hits * each) - math.exp(epsilon + (count - hits) * each)
        total += math.comb(count, hits) * max(0.0, gap)
    return total / (1 + math.exp(each)) ** count


def largest(count, epsilon, delta):
    """The largest ε of each of so many steps that together lose (ε, δ); by bisection."""
    low, high = 0.0, 2 * float(epsilon) + 5
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if composed(count, middle, float(epsilon)) <= float(delta) else (low, middle)
        )
    return low


def sparse(change, hits, vector):
    """What a sparse vector with questions of a sensitivity loses: the threshold once, each hit on both sides."""
    return Fraction(change) / Fraction(vector.threshold_scale) + Fraction(2 * hits * change) / Fraction(
        vector.question_scale
    )


# what the worst unit loses, mechanism by mechanism -------------------------------------------------------------------


def met(lengths, count):
    """How many groups of a pattern a window of so many measurements can meet, by sliding it along."""
    groups = [number for number, length in enumerate(lengths * (2 * count)) for _ in range(length)]
    windows = (groups[first : first + count] for first in range(2 * sum(lengths)))
    return max(len(set(window)) for window in windows)


def of_shared(m, count, columns=None, change=None):
    """Noise that so many measurements share: of every group a window meets, of every class of the semiorder."""
    choice = m.sharing.choice
    shared = 1 if m.sharing.copies > 1 else columns or m.columns
    assert choice.columns == shared
    if choice.law == "cube":
        times = 1 if m.policy.window is None else met(choice.lengths, count)
        assert m.policy.window or choice.lengths == (count,)
    else:
        times = choice.share
        assert choice.width * times >= count
    return times * once(change or moved(m), m.sharing.scale, m.policy)


def of_uniform(m):
    """Every step is measured."""
    count, policy = steps(m.policy), m.policy
    if m.sharing is not None:
        return of_shared(m, count)
    if policy.delta:
        most = largest(count, policy.epsilon, policy.delta) * (1 + 1e-9)  # of a bisection in floats
        return policy.epsilon * Fraction(moved(m) / m.scale / most)
    return count * once(moved(m), m.scale, policy)


def of_sample(m):
    """A window of n steps meets ⌈n/every⌉ measured ones."""
    count = -(-steps(m.policy) // m.every)
    return count * once(moved(m), m.scale, m.policy) if m.sharing is None else of_shared(m, count)


def of_backward_smoothing(m):
    """Every step is measured; the rest works on releases."""
    return steps(m.policy) * once(moved(m), m.scale, m.policy)


def of_pegasus(m):
    """Each step: the Perturber, and one group's tests of deviations, which move by 2Δ."""
    count, tests = steps(m.policy), sparse(2 * moved(m), 1, m.grouping)
    if m.sharing is not None:
        return of_shared(m, count) + count * tests
    return count * (once(moved(m), m.scale, m.policy) + tests)


def of_hierarchical_pegasus(m):
    """The path that costs most: tests and measurements of all nodes from a root to where it ends, at any node."""
    change, forest, losses = moved(m), m.forest, []
    group = sparse(2 * change, 1, m.grouping)
    for end in range(len(forest.names)):
        path = [end]
        while forest.parents[path[-1]] >= 0:
            path.append(forest.parents[path[-1]])
        loss = sum(once(change, m.scales[1, node], m.policy) + group for node in path[1:])
        loss += once(change, m.scales[2, end], m.policy) + group
        tests = sum(not forest.is_leaf[node] for node in path)
        if m.pruning == "counts" and forest.height > 1:
            loss += tests * once(change, m.prune_scale, m.policy)
        elif m.pruning == "privtree" and forest.height > 1:
            loss += 3 * once(change, m.prune_scale, m.policy)
        if m.pruning != "none" or forest.is_leaf[end]:
            losses.append(loss)
    return steps(m.policy) * max(losses)


def of_levels(m, scale, base, levels):
    """A step is in one node of each level; nodes of b^l steps that w steps move add up to b^l (or w) of them in one."""
    count = steps(m.policy)
    if m.policy.rho is None:
        return count * levels * once(moved(m), scale, m.policy)
    together = sum(min(base**level, count) for level in range(levels))
    return count * together * once(moved(m), scale, m.policy)


def of_binary_tree(m):
    """⌊log_b n⌋ + 1 levels."""
    levels = 1
    while m.branching**levels <= m.horizon:
        levels += 1
    return of_levels(m, m.scale, m.branching, levels)


def of_gradual_tree(m):
    """A step is in a node of each level that one is measured on, with the level's own noise."""
    levels = 1
    while 2 ** (levels + 1) - 1 <= m.horizon:
        levels += 1
    return sum(once(moved(m), m.scales[level], m.policy) for level in range(levels))


def of_hybrid_tree(m):
    """Block j has j + 1 levels; the blocks are disjoint, so the worst one counts."""
    first, losses = 1, []
    for number in range(4):
        assert m.block(first).levels == number + 1
        losses.append(of_levels(m, m.scale_of(m.block(first).levels), m.branching, number + 1))
        first += m.branching**number
    assert max(losses) - min(losses) < max(losses) / 1000
    return max(losses)


def of_sliding_window_tree(m):
    """⌈log₂ n⌉ levels, one for windows of a single step."""
    return of_levels(m, m.scale, 2, max(1, math.ceil(math.log2(m.window))))


def of_fast(m):
    """At most M measurements in a window; with blocks, of every block that a window meets."""
    met = 2 if m.blocks and steps(m.policy) > 1 else 1
    used = m.inner if m.blocks else m
    assert used.scale == m.scale
    if used.sharing is not None:
        return met * of_shared(used, m.samples)
    return met * m.samples * once(moved(m), used.scale, m.policy)


def of_blocks(m):
    """What one block loses, for both blocks that a window of several steps can meet."""
    inner = m.mechanism
    length = inner.policy.horizon
    loss = FORMULAS[type(inner).__name__](inner)
    assert loss <= inner.policy.budget.total
    return (2 if length > 1 else 1) * loss


def of_publishing(m, part=None):
    """w tests, and the publications of a window, which have what the tests (and unnoticed intruders) leave."""
    used, change, count = part or m, moved(m), steps(m.policy)
    tests = count * m.measure.sensitivity * once(change, used.score_scale, m.policy)
    if used.sharing is not None:
        tests = of_shared(used, count, m.group_count, m.measure.sensitivity * change)
    pool, kept = Fraction(1, 2), Fraction(0)
    if m.shift:
        pool = 1 - Fraction(count, m.columns)
    if m.pan_private == "single":
        absorbs = type(m).__name__ == "BudgetAbsorption"
        pool, kept = (Fraction(1, 4), Fraction(1, 4)) if absorbs else (Fraction(1, 3), Fraction(1, 6))
    published = pool * used.units * once(change, used.unit_scale, m.policy)
    return tests + published + kept * m.policy.epsilon


def of_clipped_sum(m):
    """A value of the sample: the threshold and the first sum; a later one: the tree. Values lie in [0, clip]."""
    count, epsilon, clip = steps(m.policy), Fraction(m.policy.epsilon), m.largest
    levels = 1
    while m.branching**levels <= m.horizon - m.lag:
        levels += 1
    later = count * levels * Fraction(clip) / Fraction(m.tree(clip).scale)
    if not m.lag:
        return later
    if m.threshold == "quantile":
        rank, test = (Fraction(scale) for scale in m.finder.scales)
        first = (
            count / rank + (1 if count == 1 else 2) * count / test
        )  # one value moves all counts the same way
    else:
        first = 2 * Fraction(m.finder._constants.a)
        share = float(first) / (2 * math.log(2 / float(m.policy.delta)))
        assert m.finder._constants.b <= math.log1p(share)
    first += count * Fraction(clip) / Fraction(m.first_scale(clip))
    assert later <= epsilon
    assert first >= epsilon * Fraction(99, 100)
    return max(first, later)


def of_learned_clip(m):
    """A value of the sample: the threshold alone; a later one: the counter, of values in [0, clip] or of two bins."""
    count, clip = steps(m.policy), m.largest
    rank, test = (Fraction(scale) for scale in m.finder.scales)
    first = count / rank + (1 if count == 1 else 2) * count / test
    counter = m.counter(clip)
    change = 2 if type(m).__name__ == "ClippedHistogram" else clip
    if type(counter).__name__ == "HybridTree":
        later = max(count * level * change / Fraction(counter.scale_of(level)) for level in range(1, 20))
    else:
        levels = max(1, math.ceil(math.log2(counter.window)))
        later = count * levels * change / Fraction(counter.scale)
    assert min(first, later) >= m.policy.budget.total * Fraction(99, 100)
    return max(first, later)


def of_tops(m):
    """A value of the sample: the threshold alone; a later one: a node of each level, of values in [0, clip]."""
    rank, test = (Fraction(scale) for scale in m.finder.scales)
    first = 1 / Fraction(m.score_scale) if m.threshold == "balance" else 1 / rank + 1 / test
    counter, leaves, levels = m.counter(m.largest), -(-(m.horizon - m.lag) // m.group), 1
    while m.branching**levels <= leaves:
        levels += 1
    later = levels * Fraction(m.largest) / Fraction(counter.scale)
    assert min(first, later) >= m.policy.budget.total * Fraction(99, 100)
    return max(first, later)


def of_clipped_records(m):
    """Records of the sample: their number, the threshold, and their sums where needed; a later step: the mechanism."""
    count, records = steps(m.policy), steps(m.policy) * m.most
    number, start, test = (Fraction(scale) for scale in m.scales)
    first = records / number + records / start + (1 if records == 1 else 2) * records / test
    losses = []
    for clip in (int(m.bins.ends[0]), m.bins.bound):
        later = m.at(clip)
        assert Fraction(later.policy.max_change) == m.most * clip  # every record of a unit reaches the clip
        sums = Fraction(0)
        if type(later).__name__ == "BinaryTree":  # running sums hold the sample; those of windows do not
            sums = count * moved(later) / Fraction(m.first_scale(clip))
        assert first + sums >= m.policy.budget.total * Fraction(99, 100)
        losses += [first + sums, FORMULAS[type(later).__name__](later)]
    return max(losses)


def of_factorization(m):
    """The longest sum of a window's columns of C, all of one sign since C has no negative entry; zCDP."""
    count, change = steps(m.policy), moved(m)
    if m.method == "blt":
        rates = [1 - number / 2**31 for number in m.strategy[: m.buffers]]
        sizes = [number / 2**31 for number in m.strategy[m.buffers :]]
        column = [1.0] + [
            sum(size * rate**at for size, rate in zip(sizes, rates, strict=True))
            for at in range(m.horizon - 1)
        ]
        lattice = 2.0**m.places
    else:
        column = [number / 2**20 for number in m.strategy]
        by_hand = np.cumprod([1.0] + [(2 * k - 1) / (2 * k) for k in range(1, len(column))])
        assert m.method != "square-root" or np.allclose(column, by_hand, atol=2**-19)
        lattice = 2.0**20
    column = np.append(column, np.zeros(max(0, m.horizon - len(column))))[: m.horizon]
    assert column.min() >= 0
    norms = []
    for first in range(m.horizon):
        total = np.zeros(m.horizon)
        for at in range(first, min(first + count, m.horizon)):
            total[at:] += column[: m.horizon - at]
        norms.append(float(total @ total))
    rho = change**2 * max(norms) * lattice**2 / (2 * m.sigma**2)
    return Fraction(rho) if m.policy.rho is not None else epsilon_of(rho, m)


def of_endless_sum(m):
    """The sum of a window's columns of C, none of which has a negative entry, its rows over their noise; zCDP."""
    rates = 1 - 2.0 ** -(1 + 3.0 * np.arange(10))
    joint, largest = np.outer(rates, rates), 0.0
    for first in (1, 2, 3, 4, 5, 7, 12, 45, 100, 1532, 10**6):
        state, total = np.zeros(10), 0.0
        for at in range(first, first + steps(m.policy)):
            weights = np.array(phase_of(at).output) / 2**31
            total += ((1 + weights @ state) / m.sigma_of(phase_of(at))) ** 2
            state = rates * state + 1
        for phase in phases():
            begin, end = (max(0, age - at - 1) for age in (phase.first, phase.first + phase.size))
            weights = np.array(phase.output) / 2**31 * state
            squares = np.outer(weights, weights) * (joint**begin - joint**end) / (1 - joint)
            total += float(squares.sum()) * m.sigma_of(phase) ** -2.0
        largest = max(largest, total)
    rho = (moved(m) * 2.0 ** (3 + m.places)) ** 2 * largest / 2
    return Fraction(rho) if m.policy.rho is not None else epsilon_of(rho, m)


def epsilon_of(rho, m):
    """The policy's ε where ρ just keeps its δ, 0 where 2 % more would do so too."""
    epsilon, orders = float(m.policy.epsilon), 1 + np.geomspace(1e-3, 1e6, 20_000)
    logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    assert math.exp(logs.min()) <= float(m.policy.delta) * (
        1 + 1e-6
    )  # Canonne, Kamath and Steinke 2020, Corollary 13
    logs = (
        (orders - 1) * (orders * 1.02 * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    )
    return m.policy.epsilon if math.exp(logs.min()) > float(m.policy.delta) else Fraction(0)


def of_fourier(m):
    """K coefficients of an orthonormal transform: by the L2 norm of what a unit moves, or by the L1 norms of the rows."""
    count, number = steps(m.policy), m.coefficients
    time = np.arange(count)
    rows = [np.full(count, 1 / math.sqrt(count))]
    for wave in range(1, count):
        rows += [math.sqrt(2 / count) * f(2 * math.pi * wave * time / count) for f in (np.cos, np.sin)]
    norms = sum(np.abs(row).sum() for row in rows[:number])
    columns = 1 if m.policy.mobility == "fixed" else m.columns
    reach = min(math.sqrt(2 * number * columns * count), norms)
    return Fraction(reach * moved(m) / m.scale)


def of_opt_stream(m):
    """k samples of a period, each feature by what all steps move its parts, and the tests of two periods if adaptive."""
    count, change, k = steps(m.policy), moved(m), m.sample_count
    samples = min(2 * k - 2, count) if m.adaptive and k > 1 else k
    loss = samples * once(change, np.min(m.sample_scales), m.policy)
    if m.sharing is not None and m.adaptive:  # one group a period, of which a window meets two
        assert (m.sharing.choice.law, m.sharing.choice.lengths) == ("cube", (k,))
        loss = 2 * once(change, m.sharing.scale, m.policy)
    elif m.sharing is not None:
        loss = of_shared(m, k)
    if m.features:
        loss += count * len(m.features) * once(change, np.min(m.sum_scales), m.policy)
    if m.adaptive and 2 < k < count:
        loss += 2 * sparse(2 * change * max(1, count - k - 1), k - 2, m.sampling.sparse_vector)
    return loss


def of_hierarchical_opt_stream(m):
    """As `OptStream`, with every node from a root to a leaf; leaves with times of their own meet more samples."""
    count, change, k, losses = steps(m.policy), moved(m), m.sample_count, []
    place = {int(node): at for at, node in enumerate(m.order)}
    more = min(2 * k - 2, count) if m.adaptive and k > 1 else k
    for leaf in m.forest.leaves:
        path = [leaf]
        while m.forest.parents[path[-1]] >= 0:
            path.append(m.forest.parents[path[-1]])
        loss = Fraction(0)
        for node in path:
            samples = k if type(m).__name__ == "PerLeafOptStream" and node != leaf else more
            loss += samples * once(change, m.sample_scales[place[node]], m.policy)
            if m.features:
                scale = np.asarray(m.sum_scales).reshape(m.sum_count, -1)[0, place[node]]
                loss += count * len(m.features) * once(change, scale, m.policy)
        losses.append(loss)
    tests = Fraction(0)
    if m.adaptive and 2 < k < count:
        tests = 2 * sparse(2 * change * max(1, count - k - 1), k - 2, m.sampling.sparse_vector)
    return max(losses) + tests


def of_swellfish(m):
    """The largest share of any promise, over all placements of all events; as if the promise were 1 policy ε."""
    policy, last = m.policy, policy_end(m.policy)
    scales = m.scales(1, last) / float(Fraction(m.grid))
    worst = 0.0
    for house in policy.specifications:
        rows, owners = house.occurrences(policy.clock, 1, last)
        heights = np.zeros(last + 1)
        for (first, end), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            heights[max(first, 1) : min(end, last) + 1] += float(house.secrets[owner].height)
        heights[heights > 0] += float(policy.allowance)
        doubled = 2 if policy.adjacency == "replace" and (m.columns > 1 or policy.signed) else 1
        losses = doubled * heights[1:] / float(Fraction(m.grid)) / scales
        for (first, end), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            secret = house.secrets[owner]
            inside = losses[max(first, 1) - 1 : min(end, last)]
            if policy.delta:
                most = largest(secret.duration, secret.epsilon, policy.delta)
                worst = max(worst, inside.max() / most)
                continue
            for begin in range(len(inside)):
                worst = max(worst, inside[begin : begin + secret.duration].sum() / float(secret.epsilon))
            if policy.promise == "joint":
                reach = 0.0
                for (other, until), whose in zip(rows.tolist(), owners.tolist(), strict=True):
                    shared = min(end, until, last) - max(first, other, 1) + 1
                    event = house.secrets[whose]
                    reach += float(event.height + policy.allowance) * min(event.duration, max(0, shared))
                worst = max(
                    worst,
                    doubled * reach / float(secret.epsilon * Fraction(m.grid)) / scales[max(first, 1) - 1],
                )
    return Fraction(worst / float(m.share)) * policy.epsilon * (1 - Fraction(1, 10**9))


def policy_end(policy):
    """How many steps of a Swellfish stream are looked at."""
    return policy.horizon or 30


def of_run(m):
    """For budgets that follow the releases: the fullest window of what measurements lose by their scales."""
    rows = (np.arange(3 * W * m.columns).reshape(-1, m.columns) * 7) % 40
    end = m.policy.horizon or len(rows)
    releases = Session(m).push_batch(rows[:end])
    grid = Fraction(m.grid)
    each = [
        once(moved(m) * grid, release.scale, m.policy) if release.status is tg.Status.FRESH else Fraction(0)
        for release in releases
    ]
    for release, lost in zip(releases, each, strict=True):
        assert lost <= release.spent, "a release has less noise than it was charged for"
    return max(sum(each[at : at + steps(m.policy)], Fraction(0)) for at in range(len(each)))


def of_tide(m):
    """With noise of its own as any; a group, or a window of a semiorder, loses by its scale what its row charges."""
    tables, total = m.choices, m.policy.budget.total
    for law, (_, _, charge, *_) in zip(tables.laws, tables.shares.tolist(), strict=True):
        if law is not None:
            assert law.choice.columns == (1 if law.copies > 1 else m.columns)
            times = 1 if law.choice.law == "cube" else law.choice.share
            assert times * once(moved(m), law.scale, m.policy) <= total * Fraction(charge, tables.units)
    return of_run(dataclasses.replace(m, noise="laplace"))


def of_discover(m):
    """Tests: sums of noise by convolution, and thresholds as the proof counts them; counts: as Uniform with the rest."""
    if m.early:
        return of_early(m)
    share, met = Fraction(m.share), m.epochs_met
    epsilon, delta = float(m.policy.epsilon * share), float(m.policy.delta * share)
    assert met >= -(-steps(m.policy) // m.epoch)
    law = np.exp(-(np.arange(-400, 401) ** 2) / (2 * m.selection.sigma**2))
    law /= law.sum()
    alone = float(law[400 + m.selection.threshold - 1 :].sum())

    def visible(count):
        total, sums = np.ones(1), np.arange(-400 * count, 400 * count + 1)
        for _ in range(count):
            total = np.convolve(total, law)
        losses = (count + 2 * sums) / (2 * m.selection.sigma**2)
        return float((total * np.maximum(0, -np.expm1(epsilon - losses))).sum())

    k = m.categories
    found = k * (met - 1) * alone + max(a * alone + visible(2 * k * met - a) for a in range(k + 1))
    assert 0 < m.staying <= m.selection.threshold
    return of_uniform(m.counts) + m.policy.epsilon * share * Fraction(found / delta)


def of_early(m):
    """Tests: normal noise by its distribution function, and every step's threshold by itself; counts as above."""
    share, met, tests = (
        Fraction(m.share),
        -(-steps(m.policy) // m.epoch) + (m.policy.window is not None),
        m.tests,
    )
    epsilon, delta = float(m.policy.epsilon * share), float(m.policy.delta * share)
    sides = 1 if m.policy.window is None and m.policy.adjacency == "add-remove" else 2
    changes, law = sides * m.categories * min(met, m.epochs_met), NormalDist()
    assert m.epochs_met <= met
    strategy = np.cumprod([1.0, *((2 * at - 1) / (2 * at) for at in range(1, m.epoch))])
    shift = np.sqrt(changes * (strategy**2).sum()) / (tests.sigma * 2.0**-tests.places)
    both = [law.cdf(side * shift / 2 - epsilon / shift) for side in (1, -1)]
    deviations = np.sqrt(np.cumsum(strategy**2)) * tests.sigma * 2.0**-tests.places
    alone = sum(
        law.cdf((1.5 - limit) / deviation)
        for limit, deviation in zip(tests.thresholds, deviations, strict=True)
    )
    found = both[0] - np.exp(epsilon) * both[1] + changes * alone
    return of_uniform(m.counts) + m.policy.epsilon * share * Fraction(float(found) / delta)


def of_ada_pub(m):
    """Each step: its measurements, and the test of its clusters, of deviations that change by twice as much."""
    tests = 2 * once(moved(m), m.grouping.threshold_scale, m.policy)
    tests += 4 * once(moved(m), m.grouping.question_scale, m.policy)
    return steps(m.policy) * (once(moved(m), m.scale, m.policy) + tests)


def of_personal(m):
    """The requirement that loses most of its own ε, as a part of it: w tests, and publications with half of its units."""
    lost = []
    for (epsilon, window), (units, _), scale in zip(
        m.promises, m.limits, m.constants.test_scales, strict=True
    ):
        tests = window * once(moved(m), scale, m.policy)
        lost.append((tests + Fraction(units, 2) * once(moved(m), m.constants.unit_scale, m.policy)) / epsilon)
    return max(lost) * m.policy.epsilon


def of_dsat(m):
    """C runs: a threshold and one hit, of which a step below costs nothing, and a publication."""
    run = once(moved(m), m.tests.threshold_scale, m.policy) + 2 * once(
        moved(m), m.tests.question_scale, m.policy
    )
    return m.units * (run + once(moved(m), m.scale, m.policy))


FORMULAS = {
    "AdaPub": of_ada_pub,
    "BackwardSmoothing": of_backward_smoothing,
    "BinaryTree": of_binary_tree,
    "Blocks": of_blocks,
    "BudgetAbsorption": of_publishing,
    "BudgetDistribution": of_publishing,
    "ClippedAverage": of_learned_clip,
    "ClippedDecay": of_learned_clip,
    "ClippedHistogram": of_learned_clip,
    "ClippedRecords": of_clipped_records,
    "ClippedSum": of_clipped_sum,
    "DSAT": of_dsat,
    "Discover": of_discover,
    "EndlessSum": of_endless_sum,
    "Factorization": of_factorization,
    "Fast": of_fast,
    "Fourier": of_fourier,
    "HierarchicalOptStream": of_hierarchical_opt_stream,
    "PerLeafOptStream": of_hierarchical_opt_stream,
    "HierarchicalPeGaSus": of_hierarchical_pegasus,
    "GradualTree": of_gradual_tree,
    "HybridTree": of_hybrid_tree,
    "OptStream": of_opt_stream,
    "PeGaSus": of_pegasus,
    "PersonalAbsorption": of_personal,
    "PersonalDistribution": of_personal,
    "RescueDP": of_run,
    "Sample": of_sample,
    "SlidingWindowTree": of_sliding_window_tree,
    "Swellfish": of_swellfish,
    "Tide": of_tide,
    "ToPS": of_tops,
    "Uniform": of_uniform,
}
LOOSE = {"RescueDP", "Tide"}  # spend what the stream is worth, not all that they may
NEARLY = {
    "EndlessSum": 0.97,
    "Factorization": 0.5,
    "HierarchicalPeGaSus": 0.99,
    "Swellfish": 0.3,
    "Fourier": 0.9,
    "Fast": 0.9,
    "Discover": 0.8,
}


# all that a constructor may be given --------------------------------------------------------------------------


def policies():
    """Every kind of unit, budget, adjacency, mobility and sign."""
    budgets = ({"epsilon": "3/2"}, {"rho": "1/3"}, {"epsilon": "3/2", "delta": DELTA})
    kinds = ((Event, {}), (WEvent, {"window": W}), (User, {"horizon": END}))
    units = itertools.product(("add-remove", "replace"), ("moving", "fixed"), (False, True))
    for (kind, more), budget, (adjacency, mobility, signed) in itertools.product(kinds, budgets, [*units]):
        yield kind(**more, **budget, adjacency=adjacency, mobility=mobility, signed=signed)


SHAPES = [
    {"columns": 1},
    {"columns": 3},
    {"columns": 10, "max_change": "5/2", "grid": "1/2"},
    {"columns": 3, "rounding": "nearest", "grid": "1/10", "touches": 1, "max_change": "7/20"},
    {"columns": 1, "rounding": "nearest", "max_change": 2},
]
OPTIONS = {
    "BudgetAbsorption": [
        {},
        {"groups": 3},
        {"groups": 2},
        {"shift": True},
        {"pan_private": "single"},
        {"pan_private": "announced"},
        {"dissimilarity": "largest"},
    ],
    "BinaryTree": [{"horizon": 6}, {"horizon": 6, "branching": 3}],
    "GradualTree": [{"horizon": 6}, {"horizon": 7, "growth": 2}],
    "HybridTree": [{}, {"branching": 3}],
    "SlidingWindowTree": [{"window": 1}, {"window": 2}, {"window": 5}, {"window": 8}],
    "Sample": [{}, {"every": 1}, {"every": 3}],
    "AdaPub": [{}, {"perturber_share": "1/2"}],
    "DSAT": [{}, {"publications": 2, "test_share": "2/3"}],
    "Fast": [{"samples": 2}, {"samples": 1, "blocks": True}],
    "Factorization": [
        {"horizon": 6},
        {"horizon": 6, "method": "square-root"},
        {"horizon": 6, "method": "banded"},
    ],
    "Fourier": [{"coefficients": 1}, {"coefficients": 3}],
    "PeGaSus": [{}, {"perturber_share": "1/2"}],
    "OptStream": [
        {"samples": 2},
        {"samples": 2, "features": [[[1, 2], [3, 4]]]},
        {"samples": 3, "adaptive": True},
        {"samples": 2, "adaptive": True},
    ],
    "HierarchicalPeGaSus": [{"pruning": "none"}, {"pruning": "counts"}, {"pruning": "privtree"}],
    "HierarchicalOptStream": [
        {"samples": 2},
        {"samples": 2, "features": [[[1, 2], [3, 4]]]},
        {"samples": 3, "adaptive": True},
    ],
    "PerLeafOptStream": [{"samples": 3}, {"samples": 3, "features": [[[1, 2], [3, 4]]]}],
    "ClippedSum": [
        {"horizon": 2000, "lag": 60, "above": 20},
        {"horizon": 2000, "lag": 0},
        {"horizon": 2000, "lag": 60, "exceeding": "1/4", "threshold": "smooth", "too_low": 0.3},
    ],
    "ToPS": [
        {"horizon": 2000, "lag": 60, "above": 20, "group": 7},
        {"horizon": 2000, "lag": 60, "above": 20, "threshold": "balance", "branching": 2},
    ],
    "ClippedAverage": [{"lag": 60, "above": 20}, {"lag": 60, "above": 20, "window": 500}],
    "ClippedDecay": [{"lag": 60, "above": 20}],
    "ClippedHistogram": [{"lag": 60, "above": 20}, {"lag": 60, "above": 20, "bins": 1, "window": 5}],
    "Tide": [{}, {"periods": (2,)}],
    "Discover": [
        {"epoch": 4},
        {"epoch": 2, "categories": 2, "share": "2/3"},
        {"epoch": 3, "categories": 2, "early": True},
    ],
}
OPTIONS["PersonalAbsorption"] = [{}, {"requirements": (("1/3", "2/5", W + 3),)}]
OPTIONS["PersonalDistribution"] = [{}, {"requirements": (("1/3", "2/5"), ("1/5", None, W + 1))}]
OPTIONS["BudgetDistribution"] = OPTIONS["BudgetAbsorption"]


def configurations(name):
    """Every configuration that the constructor accepts."""
    kind = catalogue()[name]
    for policy, shape, options in itertools.product(policies(), SHAPES, OPTIONS.get(name, [{}])):
        of_policy = {key: value for key, value in shape.items() if key in ("touches", "max_change")}
        more = {key: value for key, value in shape.items() if key not in of_policy} | options
        if name.startswith(("Hierarchical", "PerLeaf")):
            more |= {"hierarchy": TREE}
        try:
            yield kind(dataclasses.replace(policy, **of_policy), **more)
        except InvalidParameter:
            continue


def blocks():
    """Blocks of whatever finite mechanism."""
    for name in ("Uniform", "Sample", "BinaryTree", "SlidingWindowTree", "PeGaSus"):
        for inner in configurations(name):
            if isinstance(inner.policy, User):
                try:
                    yield catalogue()["Blocks"](inner)
                except InvalidParameter:
                    continue


def swellfish():
    """Specifications with every promise, schedule, adjacency, sign and budget."""
    home = Secret(1, 2, "always", 1, "home")
    oven = Secret(3, 3, [(2, 9), (12, 20)], "1/2", "oven")
    evening = Secret(2, 4, [], "1/4", "evening", recurring="every day 18:00-23:00")
    daily = Secret(1, 2, [], 1, "home", recurring="every day 00:00-24:00")
    clock = Clock("2026-03-28T00:00", "1 h", "Europe/Berlin")
    houses = [
        (Specification((home, oven), "one"),),
        (Specification((home, oven), "one"), Specification((daily, evening), "two")),
        (Specification((daily, evening), "two"),),
    ]
    choices = itertools.product(
        houses,
        ("add-remove", "replace"),
        (False, True),
        (0, DELTA),
        ("windowed", "joint"),
        (None, 30),
        (0, "1/2"),
    )
    shapes = ((1, "refuse"), (2, "refuse"), (1, "nearest"))
    kind = catalogue()["Swellfish"]
    for house, adjacency, signed, delta, promise, horizon, allowance in choices:
        for (columns, rounding), schedule, share in itertools.product(
            shapes, ("windowed", "printed", "optimal"), (1, "1/2")
        ):
            try:
                policy = Swellfish(
                    specifications=house,
                    clock=clock,
                    adjacency=adjacency,
                    signed=signed,
                    delta=delta,
                    promise=promise,
                    horizon=horizon,
                    allowance=allowance,
                )
                yield kind(
                    policy, columns=columns, grid="1/2", rounding=rounding, schedule=schedule, share=share
                )
            except InvalidParameter:
                continue


def clipped_records():
    """Every kind of mechanism that can release after the sample, with one record of a unit or several."""
    builds = [
        lambda policy: tg.mechanisms.BinaryTree(policy, horizon=6),
        lambda policy: tg.mechanisms.SlidingWindowTree(policy, window=5),
        tg.mechanisms.Uniform,
        lambda policy: tg.mechanisms.Uniform(policy, noise="laplace"),
        tg.mechanisms.BudgetDistribution,
        tg.mechanisms.Sample,
    ]
    for policy, most, build in itertools.product(policies(), (1, 3), builds):
        try:
            bounded = dataclasses.replace(policy, max_change=20 * most)
            yield ClippedRecords(bounded, build=build, bins=ValueBins(20), learn=3, most=most)
        except InvalidParameter:
            continue


def all_of(name):
    """Every configuration of a mechanism that is looked at."""
    special = {"Blocks": blocks, "Swellfish": swellfish, "ClippedRecords": clipped_records}
    return special.get(name, lambda: configurations(name))()


def judged(m):
    """Assert that the mechanism's scales lose its budget and no more."""
    name = type(m).__name__
    loss, total = FORMULAS[name](m), m.policy.budget.total
    assert loss <= total, f"{name} loses {float(loss / total):.4g} of its budget: {m!r}"
    if name not in LOOSE:
        assert loss >= NEARLY.get(name, 0.999) * float(total), f"{name} wastes its budget: {m!r}"


# tests ---------------------------------------------------------------------------------------------------------


def test_every_mechanism_has_a_formula():
    """A new mechanism fails here until somebody has worked out by hand what its scales lose."""
    assert set(FORMULAS) == set(ALL)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_scales_of_all_policies_keep_the_budget(name):
    """Every accepted combination of unit, budget, adjacency, mobility, sign, grid, rounding and grouping."""
    seen = set()
    for m in all_of(name):
        judged(m)
        seen.add((type(m.policy.budget).__name__, m.policy.adjacency, m.columns > 1))
    kinds = {budget for budget, _, _ in seen}
    assert kinds == set(ALL[name].budgets), "a kind of budget that the mechanism offers was never accepted"
    assert {adjacency for _, adjacency, _ in seen} == {"add-remove", "replace"}


@pytest.mark.parametrize("name", ["BudgetAbsorption", "BudgetDistribution"])
def test_groups_with_budgets_of_their_own_count_with_the_whole_step(name):
    """The instances that are at work, not only the configuration: each group's scales, for a unit of the whole step."""
    alone = 0
    for m in configurations(name):
        if not m.independent or m.rounding != "refuse":
            continue
        for _, part in m.parts:
            alone += part.columns == 1
            assert of_publishing(m, part) == of_publishing(m)
            assert of_publishing(m, part) <= m.policy.epsilon
    assert alone, "no group of one column was looked at"


@pytest.mark.parametrize("name", ["BudgetAbsorption", "BudgetDistribution"])
def test_tests_publications_and_intruders_have_all_units_together(name):
    """What w tests, the publications of a window and an intruder may spend is the whole budget, to the last unit."""
    kinds = set()
    for m in configurations(name):
        total, test, pool = m.separate_unit_split
        kept = m.reserve if m.pan_private else 0
        assert steps(m.policy) * (test + kept) + pool == total, repr(m)
        kinds.add((m.shift, m.pan_private))
    assert kinds == {(False, None), (True, None), (False, "single"), (False, "announced")}


CHARGED = [
    "Uniform",
    "Sample",
    "BackwardSmoothing",
    "Fast",
    "BudgetAbsorption",
    "BudgetDistribution",
    "RescueDP",
    "DSAT",
    "AdaPub",
    "Tide",
]


def charged_at(log, m, step):
    """What a step was charged, with the spans that meet it; where budget never comes back, with all before."""
    units, spans = 0, {}
    for row in log.rows():
        if row.last >= row.first:
            _, charges = charges_of(row)[0]
            if row.first <= step <= row.last or (m.policy.window is None and row.last <= step):
                units += int(charges.units[: step - row.first + 1].sum())
            spans |= {(law, ordinal): rest for law, ordinal, *rest in charges.spans.tolist() if rest[2]}
    met = sum(
        cost
        for first, last, cost in spans.values()
        if first <= step and (last >= step or m.policy.window is None)
    )
    return (units + met) * m.policy.budget.total / m.units


@pytest.mark.parametrize("name", CHARGED)
def test_released_scales_are_those_that_were_charged(name):
    """Step by step: what a fresh release loses by the scale it states is no more than what was charged."""
    fresh = 0
    for m in configurations(name):
        if m.policy.epsilon is None or m.policy.delta or m.policy.mobility == "fixed":
            continue  # other budgets do not add up; accounts of fixed units stand side by side
        if m.grid != 1 or getattr(m, "pan_private", None):
            continue
        rows = (np.arange(10 * m.columns).reshape(-1, m.columns) * 13) % 50
        log = MemoryLog()
        session = Session(m, log)
        tests = of_tests(m) if hasattr(m, "score_scale") else Fraction(0)
        for row in rows[: m.policy.horizon or len(rows)]:
            release = session.push(row)
            if release.status is tg.Status.FRESH:
                lost = Fraction(moved(m)) / Fraction(float(release.scale))
                # a group of steps is charged once, and counts for each of them
                paid = charged_at(log, m, release.step) if m.most_spans else release.spent
                assert lost + tests <= paid
                fresh += 1
        assert verify(log.rows()).ok
    assert fresh > 10


def of_tests(m):
    """What one dissimilarity test of BA or BD loses."""
    return m.measure.sensitivity * once(moved(m), m.score_scale, m.policy)


def half(m):
    """The same configuration with half of its noise, as one whose sensitivity was settled after its scales."""
    wrong = dataclasses.replace(m)
    for name, value in list(vars(m).items()):
        if name not in {field.name for field in dataclasses.fields(m)} and "scale" in name:
            wrong.__dict__[name] = value / 2
    return wrong


@pytest.mark.parametrize(
    "name", ["Uniform", "BudgetAbsorption", "PeGaSus", "BackwardSmoothing", "SlidingWindowTree"]
)
def test_half_the_noise_is_found_out(name):
    """The wrong version: scales remembered from half of the sensitivity."""
    for m in itertools.islice(configurations(name), 40):
        judged(m)
        with pytest.raises(AssertionError, match="of its budget"):
            judged(half(m))


def test_a_sample_with_noise_for_one_record_is_found_out():
    """The wrong version: a unit has three records, and the noise of the threshold is for one."""
    found = 0
    for m in clipped_records():
        if m.most == 3:
            wrong = dataclasses.replace(m)
            wrong.__dict__["scales"] = dataclasses.replace(
                m, most=1, reading=None, policy=dataclasses.replace(m.policy, max_change=20)
            ).scales
            with pytest.raises(AssertionError, match="of its budget"):
                judged(wrong)
            found += 1
    assert found > 10


@pytest.mark.parametrize("name", ["Uniform", "BinaryTree", "Fast", "OptStream", "HierarchicalPeGaSus"])
def test_a_sensitivity_that_forgets_replacement_is_found_out(name, monkeypatch):
    """The wrong version: a replaced unit counted like one that is added or removed."""
    monkeypatch.setattr(tg.policy.Policy, "doubles", lambda self, columns: False)
    wrong = [
        m
        for m in configurations(name)
        if m.policy.adjacency == "replace" and m.columns > 1 and m.rounding == "refuse"
    ]
    assert wrong
    for m in wrong:
        with pytest.raises(AssertionError, match="of its budget"):
            judged(m)


CHANGED_IN = {
    "__post_init__",
    "validate",
    "_validate_clip",
    "_validate_groups",
    "_validate_rank",
    "_check_fill",
    "check",
}


def test_nothing_that_enters_a_scale_changes_after_validation():
    """Frozen configurations are written by their constructors only; nobody writes into another's dictionary."""
    root = Path(tg.__file__).parent
    found = []
    for folder in ("mechanisms", "policy", "core"):
        for path in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            for function in ast.walk(tree):
                if not isinstance(function, ast.FunctionDef):
                    continue
                where = (str(path.relative_to(root)), function.name)
                text = ast.unparse(function)
                writes = "__setattr__" in text or "__dict__[" in text
                if writes and function.name not in CHANGED_IN:
                    found.append(where)
    assert not found


def test_the_search_for_late_changes_finds_one():
    """The wrong version: a state that sets the sensitivity of a part after its scales were computed."""
    text = ast.unparse(ast.parse("def _begin(self):\n    one.__dict__['sensitivity'] = 2\n"))
    assert "__dict__[" in text


LISTS = [
    ("OptStream", {"samples": 2, "features": [[[1, 2], [3, 4]]], "split": [1, 1, 1]}),
    ("OptStream", {"times": [2, 4]}),
    ("Tide", {"periods": [2.0], "harmonics": [1]}),
    ("BudgetAbsorption", {"columns": 2, "groups": [[0], [1]]}),
]


def test_configurations_hold_nothing_that_can_be_changed():
    """Lists that a caller gives, and could change afterwards, are copied into what cannot: all fields can be hashed."""
    given = [catalogue()[name](WEvent(epsilon="1", window=W), **options) for name, options in LISTS]
    for m in [*given, *(example for kind in catalogue().values() for example in kind.examples())]:
        hash(tuple(getattr(m, field.name) for field in dataclasses.fields(m)))


@given(st.floats(2.0**-40, 2.0**60), st.integers(1, 2**50))
def test_a_quotient_is_rounded_up(whole, units):
    """No scale of a publication is below the exact one, nor above the next float after the nearest."""
    scale = float(publication_scale(whole, units))
    assert Fraction(scale) >= Fraction(whole) / units
    assert scale in (whole / units, math.nextafter(whole / units, math.inf))


@given(st.integers(1, 2**20), st.integers(1, 2**32), st.integers(-40, 10))
def test_an_exact_quotient_stays_as_it_is(numerator, units, power):
    """A scale that is exactly 2 is 2.0 and not the float after it, whatever it is divided by."""
    scale = numerator * 2.0**power  # its product with the units has at most 52 binary digits
    assert publication_scale(scale * units, units) == scale


def test_scales_that_are_whole_numbers_look_so():
    """Budget Absorption with ε = 1 and w = 4 publishes all shares with scale 2; Swellfish divides its units alike."""
    with zero_noise():
        session = Session(tg.mechanisms.BudgetAbsorption(WEvent(epsilon="1", window=4)))
        assert [session.push([value]).scale for value in (0, 0, 0, 90)] == [0.0, 0.0, 0.0, 2.0]
    home = Specification((Secret(1, 1, "always", 1, "home"),), "h")
    plan = tg.mechanisms.Swellfish(tg.Swellfish(specifications=[home], horizon=9)).plan
    units = np.array([1, 3, 7, 2**20, 2**20 + 1])
    alike = [float(publication_scale(plan._scale_of_one, int(number))) for number in units]
    assert plan.scales(units).tolist() == alike


QUARTERS = {
    "Uniform": lambda policy, grid: Uniform(policy, columns=2, grid=grid),
    "Uniform, Laplace": lambda policy, grid: Uniform(policy, grid=grid, noise="laplace"),
    "Sample": lambda policy, grid: Sample(policy, columns=2, grid=grid),
    "BudgetAbsorption": lambda policy, grid: BudgetAbsorption(policy, columns=3, grid=grid),
    "PeGaSus": lambda policy, grid: PeGaSus(policy, grid=grid),
    "BackwardSmoothing": lambda policy, grid: BackwardSmoothing(policy, columns=2, grid=grid),
    "BinaryTree": lambda policy, grid: BinaryTree(policy, horizon=40, grid=grid),
}


@pytest.mark.parametrize("name", QUARTERS)
def test_scales_are_in_the_unit_of_values(name):
    """Everything in quarters, the change of a unit too: values and scales of releases are quarters of what they were."""
    build = QUARTERS[name]
    policy = (
        WEvent
        if name != "BinaryTree"
        else lambda epsilon, window, max_change: Event(epsilon=epsilon, max_change=max_change)
    )
    rows = np.random.default_rng(4).integers(
        0, 90, (40, build(policy(epsilon="1", window=8, max_change=1), 1).columns)
    )
    with fixed_entropy("quarters"):
        whole = Session(build(policy(epsilon="1", window=8, max_change=1), 1)).push_batch(rows)
    with fixed_entropy("quarters"):
        parts = Session(build(policy(epsilon="1", window=8, max_change="1/4"), "1/4")).push_batch(rows / 4)
    assert parts.values == pytest.approx(whole.values / 4)
    assert parts.scale == pytest.approx(whole.scale / 4)


def test_the_terms_of_an_answer_have_its_deviation():
    """The independent draws in a linear answer of a tree have its variance together, whatever the grid."""
    tree = BinaryTree(Event(epsilon="1/50", max_change="1/4"), horizon=40, grid="1/4")
    weights = np.zeros(40)
    weights[[6, 39]] = -1.0, 1.0
    scales, counts = tree.terms_of(weights)
    assert math.sqrt(np.dot(2 * scales**2, counts)) == pytest.approx(tree.deviation_of(weights), rel=1e-3)


def test_the_variance_of_shared_noise_grows_with_the_square_of_the_change():
    """Three times the change is nine times the variance, half the budget four times."""
    one, three = (
        Uniform(WEvent(epsilon=epsilon, window=8, max_change=change)).sharing
        for epsilon, change in (("1/100", 1), ("1/200", 3))
    )
    assert three.variance == pytest.approx(36 * one.variance)
