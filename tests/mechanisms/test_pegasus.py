import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from distributions import compare_integers
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import PeGaSus
from tidegate.mechanisms.pegasus import grouper
from tidegate.mechanisms.pegasus.deviation import whole_deviation
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import current, laplace_one
from tidegate.testing.entropy import fixed_entropy, zero_noise


def spent(session):
    """What the last window has spent, as a part of the budget."""
    return Fraction(sum(session.spent.values()), session._queries[0].mechanism.units)


def reference(mechanism: PeGaSus, counts: list[int]):
    """PeGaSus on one column as the paper writes it, on whole numbers; also returns the sparse-vector runs."""
    source, grouping = current(), mechanism.grouping
    group: list[int] = []  # positions in the open group
    opened = False
    threshold = 0
    noisy, answers, groups, runs = [], [], [], []
    for at, count in enumerate(counts):
        step = at + 1
        noisy.append(count + laplace_one(source, "perturber", step, 0, mechanism.scale))
        if not opened:
            group, opened = [at], True
            threshold = mechanism.limit + laplace_one(source, "threshold", step, 0, grouping.threshold_scale)
            runs.append([at])
        else:
            runs[-1].append(at)
            score = whole_deviation([counts[i] for i in (*group, at)])
            if score + laplace_one(source, "test", step, 0, grouping.question_scale) < threshold:
                group.append(at)
            else:
                group, opened = [at], False
        if opened and len(group) == mechanism.longest_group:
            opened = False
        answers.append(float(np.median([noisy[i] for i in group])))
        groups.append(group[0] + 1)
    return answers, groups, runs


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.integers(0, 9999),
    st.sampled_from([3, 2**16]),
    st.sampled_from(["1", "9"]),
)
@settings(max_examples=60)
def test_each_count_enters_one_sparse_vector_run_and_the_kernel_follows(counts, seed, longest, epsilon):
    """The compiled loop gives the reference's answers and groups, and runs are a partition of the steps."""
    mechanism = PeGaSus(tg.Event(epsilon=epsilon), longest_group=longest)
    with fixed_entropy(seed):
        answers, groups, runs = reference(mechanism, counts)
        releases = Session(mechanism).push_batch(np.array(counts))
    assert [at for run in runs for at in run] == list(range(len(counts)))
    assert releases.groups.ravel().tolist() == groups
    assert releases.values.ravel().tolist() == answers


def test_example_3_2_of_the_paper():
    """5, 5, 6, 9, 10 with θ = 2 and no noise: groups {1, 2, 3}, {4}, {5}."""
    with zero_noise():
        releases = Session(PeGaSus(tg.Event(epsilon="1"), threshold=2)).push_batch([5, 5, 6, 9, 10])
    assert releases.groups.ravel().tolist() == [1, 1, 1, 4, 5]


def test_example_3_5_of_the_paper():
    """With the noisy counts 5.6, 4.4, 6.7, 9.5, 10.2 the median Smoother releases 5.6, 5, 5.6, 9.5, 10.2."""
    rule = grouper.Rule(20, 99, 2**60 // 99, grouper.MEDIAN, 0.1)
    counts = np.array([[50], [50], [60], [90], [100]])
    noisy = np.array([[56], [44], [67], [95], [102]])
    nothing, ones = np.zeros((5, 1), dtype=np.int64), np.ones((5, 1), dtype=np.int64)
    values, groups = np.empty((5, 1)), np.empty((5, 1), dtype=np.int64)
    opened = grouper.OpenGroups(1)
    opened.reserve(5)
    sets = (opened.sets.nodes, opened.sets.pool, opened.sets.path)
    taken = (counts, noisy, ones, nothing, nothing)
    grouper.group_and_smooth(1, rule[:], taken, opened.memory, opened.moments, sets, values, groups)
    assert values.ravel() == pytest.approx([5.6, 5.0, 5.6, 9.5, 10.2], abs=1e-12)
    assert groups.ravel().tolist() == [1, 1, 1, 4, 5]


def test_the_other_smoothers():
    """Average, and James–Stein: (c̃ − avg)/n + avg."""
    for smoother, expected in (("average", [4, 5, 6]), ("james-stein", [4, 5.5, 2 / 3 + 6])):
        with zero_noise():
            mechanism = PeGaSus(tg.Event(epsilon="1"), threshold=99, smoother=smoother)
            assert Session(mechanism).push_batch([4, 6, 8]).values.ravel() == pytest.approx(expected)


def partition_log_probabilities(counts, threshold, run: SparseVector):
    """log P of every sequence of test answers of the Grouper on a short stream, summed over all noise."""
    wide = int(40 * run.question_scale)
    noise = np.arange(-wide, wide + 1)

    def law(scale):
        weights = np.exp(-np.abs(noise) / scale)
        return weights / weights.sum()

    rho, below = law(run.threshold_scale), np.cumsum(law(run.question_scale))

    def passes(score):  # P(score + ν < threshold + ρ) for every ρ
        at = threshold + noise - score - 1 + wide
        return np.where(at < 0, 0.0, below[np.clip(at, 0, 2 * wide)])

    found: dict[tuple[bool, ...], float] = {}

    def go(at, members, weights, done, answers):
        if at == len(counts):
            found[answers] = done * (1.0 if weights is None else float(weights.sum()))
            return
        if weights is None:
            go(at + 1, [counts[at]], rho, done, answers)
            return
        chance = passes(whole_deviation([*members, counts[at]]))
        go(at + 1, [*members, counts[at]], weights * chance, done, (*answers, True))
        closed = done * float((weights * (1 - chance)).sum())
        go(at + 1, [], None, closed, (*answers, False))

    go(0, [], None, 1.0, ())
    return {answers: math.log(chance) for answers, chance in found.items()}


def worst_loss(run: SparseVector) -> float:
    """The largest log ratio over streams of six counts that differ in one of them by one."""
    worst = 0.0
    base = [0, 0, 6, 0, 6, 6]
    for at in range(6):
        for change in (1, -1):
            other = list(base)
            other[at] += change
            one = partition_log_probabilities(base, 4, run)
            two = partition_log_probabilities(other, 4, run)
            worst = max(worst, max(abs(one[answers] - two[answers]) for answers in one))
    return worst


def test_no_partition_loses_more_than_the_groupers_budget():
    """Exact enumeration of all partitions of a short stream; noise a third as large is caught."""
    epsilon = Fraction(2)
    assert worst_loss(SparseVector(epsilon, 2)) <= float(epsilon)
    assert worst_loss(SparseVector(3 * epsilon, 2)) > float(epsilon)


def test_the_noisy_counts_have_the_stated_noise():
    """n = 200,000 draws against the exact law at level 1e-9; a scale 5 % off is refused."""
    mechanism = PeGaSus(tg.Event(epsilon="0.1"))
    assert mechanism.scale == 12.5
    releases = Session(mechanism).push_batch(np.full(200_000, 50))
    sample = releases.noisy.ravel().astype(np.int64) - 50
    edges = np.arange(-60, 61, 5)

    def below(scale):
        q = math.exp(-1 / scale)
        return np.where(edges < 0, q ** (-edges.astype(float)) / (1 + q), 1 - q ** (edges + 1.0) / (1 + q))

    assert compare_integers(sample, edges, below(12.5)).ok
    assert not compare_integers(sample, edges, below(12.5 * 1.05)).ok


def test_budgets_and_scales():
    """Event: Δ/ε_p, 4Δ/ε_g, 8Δ/ε_g, θ = 5Δ/ε_g; w-event: all of them times w; Δ multiplies."""
    event = PeGaSus(tg.Event(epsilon="0.5"))
    assert (event.scale, event.grouping.threshold_scale, event.grouping.question_scale, event.limit) == (
        2.5,
        40.0,
        80.0,
        50,
    )
    window = PeGaSus(tg.WEvent(epsilon="0.5", window=10), columns=3, noise="laplace")
    assert (window.scale, window.grouping.question_scale, window.limit) == (25.0, 800.0, 500)
    assert PeGaSus(tg.Event(epsilon="0.5", max_change=3)).scale == 7.5
    assert PeGaSus(tg.Event(epsilon="0.5", adjacency="replace"), columns=2).scale == 5.0
    assert PeGaSus(tg.Event(epsilon="0.5", max_change="0.5"), grid="0.5", threshold=10).limit == 20
    run = Session(window)
    run.push_batch(np.zeros((40, 3)))
    assert spent(run) == 1


@pytest.mark.parametrize(
    ("policy", "law"),
    [
        (tg.WEvent(epsilon="1", window=12), "semiorder"),
        (tg.WEvent(epsilon="1", window=130), "cube"),
        (tg.User(epsilon="1", horizon=600), "cube"),
    ],
)
def test_the_perturber_shares_noise(policy, law):
    """Its share of ε, and no more, pays for all measurements of a window; the error is that of the law, α = 1e-6."""
    mechanism = PeGaSus(policy, longest_group=1)
    assert mechanism.sharing.choice.law == law
    run = Session(mechanism)
    releases = run.push_batch(np.zeros(600))
    assert spent(run) == 1
    grouping = mechanism.grouping_part * min(600, policy.steps_charged)
    assert mechanism.sharing.group_part * mechanism.sharing.units + grouping == 1
    errors = [np.abs(Session(mechanism).push_batch(np.zeros(600)).values).mean() for _ in range(60)]
    expected, deviation = mechanism.noise_error, np.std(errors) / np.sqrt(60)
    assert abs(np.mean(errors) - expected) < 6 * deviation
    assert abs(np.mean(errors) - PeGaSus(policy, noise="laplace").noise_error) > 6 * deviation
    assert 2 * releases.scale[0] ** 2 == pytest.approx(2 * mechanism.laplace_scale**2)
    assert mechanism.step_losses(releases) is None


@pytest.mark.parametrize("smoother", ["average", "median"])
def test_the_error_of_long_groups(smoother):
    """Equal counts in groups of 40: the last of each is off by what `error_of_group` says, within a seventh."""
    mechanism = PeGaSus(
        tg.WEvent(epsilon="1", window=16), smoother=smoother, longest_group=40, threshold=10**12
    )
    values = Session(mechanism).push_batch(np.zeros(40 * 4000)).values[39::40]
    assert np.abs(values).mean() == pytest.approx(mechanism.error_of_group(40), rel=0.15)


def test_long_groups_are_closed_and_memory_is_bounded():
    """A cap of ten steps: groups begin at 1, 11, 21, and nothing is kept of a closed one."""
    with zero_noise():
        run = Session(PeGaSus(tg.Event(epsilon="1"), threshold=10**6, longest_group=10))
        releases = run.push_batch(np.arange(35))
        assert np.unique(releases.groups).tolist() == [1, 11, 21, 31]
        run.push_batch(np.arange(5))
        assert run._queries[0].state.groups.memory[:, grouper.SIZE].tolist() == [0]


def test_huge_counts_are_grouped_without_overflow():
    """Counts at the edge of the range, up and down, for longer than 64-bit sums would last."""
    counts = np.where(np.arange(5000) % 2, 2**53, -(2**53))
    mechanism = PeGaSus(tg.Event(epsilon="1"), threshold=2**49, longest_group=2**12)
    with zero_noise():
        assert Session(mechanism).push_batch(counts).groups.ravel()[:3].tolist() == [1, 2, 3]
        same = Session(mechanism).push_batch(np.full(5000, 2**53))
    assert np.unique(same.groups).tolist() == [1, 4097]


def test_smoothing_helps_where_counts_stand_still():
    """On a constant stream the error is below Uniform's with the same budget, and a patient threshold is better."""
    policy = tg.Event(epsilon="0.1")
    counts = np.full(30_000, 20)

    def error(mechanism) -> float:
        return float(np.abs(Session(mechanism).push_batch(counts).values - 20).mean())

    plain, default = error(tg.mechanisms.Uniform(policy)), error(PeGaSus(policy))
    assert error(PeGaSus(policy, threshold_factor=40)) < 0.5 * default
    assert default < 0.85 * plain
    mechanism = PeGaSus(policy, threshold=10**6)
    assert mechanism.error_of_group(100) == pytest.approx(math.sqrt(2 / math.pi / 100) * 12.5)
    assert mechanism.noise_error == pytest.approx(12.5, rel=0.01)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"perturber_share": "1"}, "perturber_share"),
        ({"perturber_share": 0.8}, "exact"),
        ({"threshold": "0"}, "threshold"),
        ({"threshold_factor": "-1"}, "threshold_factor"),
        ({"smoother": "mode"}, "smoother"),
        ({"longest_group": 0}, "longest_group"),
        ({"longest_group": 2**20 + 1}, "longest_group"),
        ({"grid": "1e-15"}, "2\\^50"),
    ],
)
def test_bad_parameters_are_refused(options, word):
    """One sentence each: name, value, constraint, remedy."""
    with pytest.raises(InvalidParameter, match=word) as caught:
        PeGaSus(tg.Event(epsilon="0.01"), **options)
    assert len(str(caught.value).splitlines()) == 1


def test_what_a_step_loses_is_its_budget():
    """Noise of the value, of the threshold and of the questions together: ε, and less only by rounding."""
    mechanism = PeGaSus(tg.Event(epsilon="1/10", mobility="fixed"), columns=2, noise="laplace")
    losses = mechanism.step_losses(Session(mechanism).push_batch(np.zeros((20, 2), dtype=np.int64)))
    assert losses.max() <= 0.1 * (1 + 1e-12)
    assert losses.min() > 0.0999


def test_the_deviation_that_pays_is_that_of_theorem_3_6():
    """√(2(n − ln n − 1)) / (1 + ln(n − 1)) of the noise's scale: worked out by hand for groups of 2 and of 100."""
    mechanism = PeGaSus(tg.Event(epsilon="0.1"))
    two = math.sqrt(2 * (2 - math.log(2) - 1)) * mechanism.laplace_scale
    hundred = math.sqrt(2 * (99 - math.log(100))) / (1 + math.log(99)) * mechanism.laplace_scale
    assert mechanism.deviation_that_pays(2) == pytest.approx(two)
    assert mechanism.deviation_that_pays(100) == pytest.approx(hundred)
