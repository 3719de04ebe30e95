"""Budget Distribution and Budget Absorption: the paper's examples, a plain reference, every window, printed variants."""

import itertools
import tracemalloc
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import BudgetAbsorption as Absorption
from tidegate.mechanisms import BudgetDistribution as Distribution
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.w_event.budget_absorption import shares_offered
from tidegate.mechanisms.w_event.budget_distribution import units_offered
from tidegate.mechanisms.w_event.dissimilarity import Dissimilarity
from tidegate.noise import current, laplace
from tidegate.releases import Status
from tidegate.testing.entropy import FixedEntropy, fixed_entropy, zero_noise

# as in the paper: dissimilarities with noise of their own
BudgetAbsorption = partial(Absorption, noise="laplace")
BudgetDistribution = partial(Distribution, noise="laplace")
BOTH = pytest.mark.parametrize("kind", [BudgetAbsorption, BudgetDistribution])


def spent(session):
    """What the last window has spent, as a part of the budget."""
    return Fraction(sum(session.spent.values()), session._queries[0].mechanism.units)


def published(run, values):
    """What each step spent on its publication, in units of ε."""
    mechanism = run._queries[0].mechanism
    total, tests, _ = mechanism.unit_split
    return [Fraction(run.push([value]).units - tests, total) for value in values]


def test_figure_3_of_the_paper():
    """BD, w = 3, publications at 1, 3 and 4: ε/4, 0, ε/8, 3ε/16, and then nothing."""
    with zero_noise():
        run = Session(BudgetDistribution(tg.WEvent(epsilon="1", window=3)))
        budgets = published(run, [100, 100, 200, 300, 300, 300])
    assert budgets == [Fraction(1, 4), 0, Fraction(1, 8), Fraction(3, 16), 0, 0]


def test_figure_5_of_the_paper():
    """BA, w = 3: publishes, skips, absorbs, is nullified, publishes its own share, skips."""
    with zero_noise():
        run = Session(BudgetAbsorption(tg.WEvent(epsilon="1", window=3)))
        releases = [run.push([value]) for value in [100, 100, 200, 300, 300, 300]]
    assert [release.spent for release in releases] == [
        Fraction(1, 6) + share for share in (Fraction(1, 6), 0, Fraction(1, 3), 0, Fraction(1, 6), 0)
    ]
    assert [release.status.label for release in releases] == [
        "fresh", "approximated", "fresh", "nullified", "fresh", "approximated"
    ]  # fmt: skip
    assert [release.source for release in releases] == [1, 1, 3, 3, 5, 5]
    assert [release.values[0] for release in releases] == [100, 100, 200, 200, 300, 300]


def reference(mechanism, rows):
    """SOUNDNESS.md's formulas in fractions, one step after the other, with noise from the same addresses."""
    epsilon, w = mechanism.policy.budget.total, mechanism.window
    delta, (steps, columns) = mechanism.sensitivity, rows.shape
    total, test, pool = mechanism.unit_split
    unit = epsilon / total
    last, spends, latest, taken = np.zeros(columns, dtype=np.int64), [Fraction(0)] * steps, 0, 1
    group_of = mechanism.initial_groups() if mechanism.group_count > 1 else np.zeros(columns)
    groups = [np.flatnonzero(group_of == g) for g in range(mechanism.group_count)]
    result, tested = [], noise_of_tests(mechanism, steps)
    for step in range(1, steps + 1):
        row = rows[step - 1]
        noise, test = next(tested)
        if isinstance(mechanism, Absorption):
            spend = pool // w * unit * shares_offered(step, latest, taken, w)
        else:
            published = [int(spend / unit) for spend in spends[max(0, step - w) : step - 1]]
            spend = units_offered(sum(published), pool) * unit
        fresh = []
        if spend:
            for g, chosen in enumerate(groups):
                score = int(np.abs(row[chosen] - last[chosen]).sum()) + int(noise[g])
                if score > len(chosen) * Fraction(delta) / spend:
                    fresh.extend(chosen)
        if fresh:
            width = publication_scale(mechanism.unit_scale, int(spend / unit))
            cells = laplace(current(), "publication", step, width, (columns,))
            last[fresh] = row[fresh] + cells[fresh]
            spends[step - 1], latest = spend, step
            if isinstance(mechanism, Absorption):
                taken = int(spend / (pool // w * unit))
        own = test * unit if mechanism.sharing is None else 0  # spans pay for tests that share noise
        result.append((last.copy(), spends[step - 1] + own, latest))
    return result


def noise_of_tests(mechanism, steps):
    """The noise of the dissimilarities of each step, one step after the other, and the units that it is charged."""
    (total, test, _), groups, sharing = mechanism.unit_split, mechanism.group_count, mechanism.sharing
    scale = loop_scale(mechanism.sensitivity * total / (max(test, 1) * mechanism.policy.budget.total))
    state = sharing.law.start() if sharing else None
    for step in range(1, steps + 1):
        if sharing is None:
            yield laplace(current(), "dissimilarity", step, scale, (groups,)), test
            continue
        opens = not state.remaining if sharing.choice.law == "cube" else step == 1
        noise, state = sharing.law.draw(current(), "dissimilarity", step, state)
        yield noise[0], int(sharing.group_part * total) * opens


def loop_scale(value):
    """A scale that rounds up."""
    from tidegate.exact import float_up

    return float_up(Fraction(value))


@BOTH
@pytest.mark.parametrize("columns", [1, 3, 16, 17, 40])
@pytest.mark.parametrize("options", [{}, {"shift": True}, {"groups": "halves"}])
def test_the_compiled_loop_is_the_reference(kind, columns, options):
    """The kernel, inline or wide, releases exactly what the plain reference does."""
    w = 3 if options.get("shift") else 7
    if options.get("shift") and columns <= 2 * w:
        return
    options = dict(options)
    if options.get("groups"):
        if columns == 1:
            return
        options["groups"] = (tuple(range(0, columns, 2)), tuple(range(1, columns, 2)))
    mechanism = kind(tg.WEvent(epsilon="2.5", window=w), columns=columns, **options)
    steps = 150
    level = 60 * (np.arange(steps) // 23 % 3)[:, None] + np.arange(columns)[None, :] % 5
    with fixed_entropy(f"{kind.func.__name__}{columns}{options}"):
        expected = reference(mechanism, level)
        releases = Session(mechanism).push_batch(level)
    for release, (values, spent, latest) in zip(releases, expected, strict=True):
        assert release.values.tolist() == values.tolist()
        assert release.spent == spent
        assert release.source == latest
    assert releases.fresh.any() or (releases.status == Status.PARTIAL).any()


@pytest.mark.parametrize("kind", [Absorption, Distribution])
@pytest.mark.parametrize(("noise", "columns"), [("cube", 1), ("cube", 3), ("semiorder", 3)])
@pytest.mark.parametrize("batches", [[150], [1, 2, 60, 1, 86], [1] * 150], ids=["whole", "pieces", "single"])
def test_tests_that_share_noise_are_the_reference(kind, noise, columns, batches):
    """Whatever the batches, of which each holds many groups of tests: releases and charges of the plain reference."""
    groups = None if columns == 1 else ((0, 2), (1,))
    mechanism = kind(tg.WEvent(epsilon="8", window=12), columns=columns, groups=groups, noise=noise)
    level = 60 * (np.arange(150) // 23 % 3)[:, None] + np.arange(columns)
    with fixed_entropy(f"{kind.__name__}{columns}{noise}"):
        expected = reference(mechanism, level)
        run = Session(mechanism)
        ends = np.cumsum(batches)
        parts = [run.push_batch(level[end - size : end]) for size, end in zip(batches, ends, strict=True)]
    releases = [release for part in parts for release in part]
    assert [(release.values.tolist(), release.spent, release.source) for release in releases] == [
        (values.tolist(), spent, latest) for values, spent, latest in expected
    ]
    assert {release.status for release in releases} >= {Status.FRESH, Status.APPROXIMATED}
    last = sum(cost for _, cost, _ in expected[-12:])
    assert last / 8 <= spent(run) <= 1  # a group that began before the window counts as well


@pytest.mark.parametrize("w", [1, 2, 3, 4, 5])
def test_no_sequence_of_decisions_overspends(w):
    """All publish-or-skip sequences of 11 steps: the rule is that of the paper, and no window overspends its pool."""
    for kind in (Absorption, Distribution):
        mechanism = kind(tg.WEvent(epsilon="1", window=w), noise="laplace")
        pool, worst = mechanism.unit_split[2], 0
        for decisions in itertools.product((False, True), repeat=11):
            state, spends, latest, taken = mechanism.begin_one(1), [], 0, 1
            for step, publishes in enumerate(decisions, 1):
                amount = mechanism.offered(state, step)
                if kind is Absorption:
                    assert max(amount, 0) == shares_offered(step, latest, taken, w)
                else:
                    assert amount == units_offered(sum(spends[max(0, step - w) :]), pool)
                spends.append(amount if publishes and amount > 0 else 0)
                mechanism.note(state, step, spends[-1])
                if spends[-1]:
                    latest, taken = step, spends[-1]
            worst = max(worst, *(sum(spends[first : first + w]) for first in range(11)))
        assert worst == pool if kind is Absorption else worst <= pool


@settings(max_examples=60)
@given(
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["1/7", "1", "50"]),
    st.sampled_from(["add-remove", "replace"]),
    st.sampled_from([BudgetAbsorption, BudgetDistribution]),
    st.lists(st.integers(0, 3), min_size=20, max_size=60),
    st.integers(0, 5),
)
def test_no_window_is_over_budget(w, columns, groups, epsilon, adjacency, kind, levels, seed):
    """Data, d, w, groups: in every window the per-step losses Σ_t max_g ε_{t,g} stay within ε."""
    groups = min(groups, columns)
    policy = tg.WEvent(epsilon=epsilon, window=w, adjacency=adjacency)
    mechanism = kind(policy, columns=columns, groups=groups if groups > 1 else None, regroup_every=None)
    rows = 1000 * np.array(levels)[:, None] * (1 + np.arange(columns)) % 2999
    with fixed_entropy(seed):
        run = Session(mechanism)
        releases = run.push_batch(rows)
    spent = [Fraction(int(units)) * releases.unit for units in releases.units]
    for first in range(len(spent)):
        assert sum(spent[first : first + w]) <= policy.budget.total
    # the loss of a publication is Δ/scale, recomputed from the published scale alone
    delta = policy.step_sensitivity(columns)
    tests = mechanism.unit_split[1] * releases.unit
    for release in releases:
        if release.status in (Status.FRESH, Status.PARTIAL):
            assert delta / Fraction(release.scale) + tests <= release.spent


def test_groups_are_formed_from_releases():
    """Quiet and loud columns are told apart by the root mean square of what was released."""
    rows = np.zeros((400, 6), dtype=np.int64)
    rows[:, [1, 3, 5]] = 5000 + 3000 * (np.arange(400) % 2)[:, None]
    run = Session(BudgetAbsorption(tg.WEvent(epsilon="10", window=4), columns=6, groups=2))
    run.push_batch(rows)
    groups = run._queries[0].state.published.group_of
    assert len(set(groups[[1, 3, 5]])) == 1
    assert set(groups[[0, 2, 4]]) != set(groups[[1, 3, 5]])


@BOTH
def test_a_dissimilarity_of_ones_own(kind):
    """A user's dissimilarity with its sensitivity replaces the built-in one; the same function gives the same run."""
    own = Dissimilarity("mine", lambda values, last: int(np.abs(values - last).sum()), 1, float)
    twice = Dissimilarity(
        "twice", lambda values, last: 2 * int(np.abs(values - last).sum()), 2, lambda d: 2.0 * d
    )
    policy = tg.WEvent(epsilon="3", window=4)
    rows = 40 * (np.arange(60) // 9 % 2)[:, None] + np.zeros((60, 3), dtype=np.int64)
    with fixed_entropy(3):
        expected = Session(kind(policy, columns=3)).push_batch(rows)
        mine = Session(kind(policy, columns=3, dissimilarity=own)).push_batch(rows)
    assert np.array_equal(expected.values, mine.values)
    assert kind(policy, columns=3, dissimilarity=twice).score_scale == 2 * kind(policy, columns=3).score_scale


def test_shifting_moves_budget_to_publications():
    """With d > 2w the test costs ε/d a step, and the pool grows from ε/2 to ε(1 − w/d)."""
    policy = tg.WEvent(epsilon="1", window=10)
    total, test, pool = BudgetAbsorption(policy, columns=100, shift=True).unit_split
    assert (Fraction(test, total), Fraction(pool, total)) == (Fraction(1, 100), Fraction(9, 10))
    total, test, pool = BudgetDistribution(policy, columns=100, shift=True).unit_split
    assert (Fraction(test, total), Fraction(pool, total)) == (Fraction(1, 100), Fraction(9, 10))
    with pytest.raises(InvalidParameter, match="leave it out"):
        BudgetAbsorption(policy, columns=20, shift=True)


def test_theorems_6_and_7():
    """expected_error is the paper's bound, for Δ = 1 and the default budgets."""
    policy = tg.WEvent(epsilon="1/2", window=20)
    assert BudgetDistribution(policy, columns=10).error_bound(3) == pytest.approx(
        4 * 7 / (3 * 0.5) + 2 * 20 / (0.5 * 10)
    )
    harmonic = 1 + 1 / 2 + 1 / 3
    assert BudgetAbsorption(policy, columns=10).error_bound(2, nullified_error=7.0) == pytest.approx(
        (2 * 20 / 0.5 * harmonic + 2 * 7.0) / 5 + 2 * 20 / (0.5 * 10)
    )


@BOTH
def test_fixed_units_have_the_full_budget_in_each_group(kind):
    """Groups decide and spend by themselves; each account is within ε, and the guarantee names the assumption."""
    policy = tg.WEvent(epsilon="1", window=4, mobility="fixed")
    mechanism = kind(policy, columns=4, groups=((0, 1), (2, 3)))
    rows = np.zeros((60, 4), dtype=np.int64)
    rows[:, :2] = 10**5 * (np.arange(60) % 2)[:, None]
    run = Session(mechanism)
    releases = run.push_batch(rows)
    assert Status.PARTIAL in releases.status
    assert len(mechanism.account().parts) == 2
    alone = kind(policy, columns=2, step_columns=4, noise="laplace")
    with fixed_entropy(8):
        together = Session(mechanism).push_batch(rows)
        noise = Draws(current()).part("group 0: ")
        found = alone.advance(alone.begin(1), np.ascontiguousarray(rows[:, :2]), 1, noise)
        assert np.array_equal(found.values, together.values[:, :2])
    assert "stays in one column within any window" in str(mechanism.guarantee)
    with pytest.raises(InvalidParameter, match="declare that units move"):
        kind(policy, columns=4, groups=2, regroup_every=10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": ((0, 1), (1, 2))}, "a partition of the columns"),
        ({"groups": ((0, 1), ())}, "a partition of the columns"),
        ({"groups": 4}, "at most 3"),
        ({"groups": ((0,), (1, 2)), "regroup_every": 5}, "give a number of groups"),
        ({"dissimilarity": "cosine"}, "'l1' or 'largest'"),
    ],
)
@BOTH
def test_bad_options(kind, options, words):
    """Each refusal names the parameter and the remedy."""
    with pytest.raises(InvalidParameter, match=words):
        kind(tg.WEvent(epsilon="1", window=4), columns=3, **options)


@BOTH
def test_a_window_beyond_the_numbers_is_refused(kind):
    """An enormous w whose noise would leave the integers is refused before anything starts."""
    with pytest.raises(InvalidParameter, match="shorten the window"):
        kind(tg.WEvent(epsilon="1e-9", window=2**39), columns=1)


@BOTH
def test_long_windows_cost_a_ring_of_their_steps(kind):
    """A window of 2^18 steps starts at once, and publishes; accounts have a number for each of its steps."""
    tracemalloc.start()
    try:
        run = Session(kind(tg.WEvent(epsilon="1000000", window=2**18)))
        releases = run.push_batch(np.array([[10**9], [10**9], [2 * 10**9]]))
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert len(releases) == 3


@pytest.mark.parametrize("sensitivity", [0, -1, 0.5, True])
def test_a_dissimilarity_has_a_sensitivity(sensitivity):
    """A score that claims not to depend on the data would be compared without noise: refused by name."""
    with pytest.raises(InvalidParameter, match="sensitivity"):
        Dissimilarity("own", lambda values, last: int(values[0]), sensitivity, float)


@BOTH
def test_replaced_units_may_change_their_group(kind):
    """Groups of fixed units count with the whole step's change, also groups of a single column."""
    policy = tg.WEvent(epsilon="1", window=1, mobility="fixed", adjacency="replace")
    mechanism = kind(policy, columns=3, groups=((0,), (1, 2)))
    parts = [part for _, part in mechanism.parts]
    assert [part.sensitivity for part in parts] == [2, 2]
    assert {part.score_scale for part in parts} == {mechanism.score_scale} == {4.0}  # 2wΔ/ε, Δ = 2
    assert {part.unit_scale for part in parts} == {mechanism.unit_scale} == {2.0 * mechanism.units}


class Interrupted(FixedEntropy):
    """Fixed entropy that fails at one request for the noise of a publication."""

    def __init__(self, seed, request):
        super().__init__(seed)
        self.left = request

    def words(self, stream, step, draws, elements, first, count):
        """The words of the addressed elements, unless this is the request that fails."""
        if stream == "publication" and len(elements):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return super().words(stream, step, draws, elements, first, count)


@BOTH
def test_wide_streams_need_few_vectors(kind):
    """Beyond input and output: the last publication, pieces of noise, what intervals learn from, the log's releases."""
    columns, steps = 50_000, 12
    rows = np.outer(np.arange(steps) % 3, np.ones(columns, dtype=np.int64)) * 10**6
    mechanism = kind(tg.WEvent(epsilon="1", window=4), columns=columns)
    Session(mechanism).push_batch(rows)  # compiles
    tracemalloc.start()
    try:
        releases = Session(mechanism).push_batch(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert releases.fresh.sum() > 2
    assert peak - releases.values.nbytes < 80 * 8 * columns


# dissimilarities that share noise -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Absorption, Distribution])
@pytest.mark.parametrize(
    "options", [{}, {"noise": "cube"}, {"columns": 60, "shift": True}, {"columns": 4, "groups": 2}]
)
def test_tests_cost_their_part_together(kind, options):
    """All tests of a window cost what they cost apart, publications have the rest, and the law is that of the scores."""
    mechanism = kind(tg.WEvent(epsilon="2", window=12), **options)
    total, test, pool = mechanism.unit_split
    part = Fraction(12, 60) if options.get("shift") else Fraction(1, 2)
    assert (test, mechanism.measuring_part, Fraction(pool, total)) == (0, part, 1 - part)
    assert mechanism.sharing.group_part * mechanism.sharing.units == part
    assert (mechanism.sharing.group_part * total).denominator == 1
    run = Session(mechanism)
    rows = np.random.default_rng(2).integers(0, 500, (400, mechanism.columns))
    for row in rows[:40]:
        run.push(row)
    releases = run.push_batch(rows[40:])
    assert part < spent(run) <= 1
    laplace = kind(tg.WEvent(epsilon="2", window=12), **{**options, "noise": "laplace"})
    assert mechanism.score_scale < laplace.score_scale
    assert mechanism.law == laplace.law
    assert mechanism.step_losses(releases) is None


def test_decisions_have_the_noise_of_the_law():
    """α = 1e-9: a score of 0 against a limit passes as often as the law's noise is above it; Laplace's is more often."""
    mechanism = Absorption(tg.WEvent(epsilon="1", window=8))
    limit = mechanism.sensitivity * 2 * 8  # of the first step, whose publication would have one share
    count = 2000
    published = sum(Session(mechanism).push(0).fresh for _ in range(count))
    law = mechanism.sharing.law
    noise = [law.draw(current(), "score", 0, law.start())[0].item() for _ in range(40_000)]
    chance = np.mean(np.array(noise) > limit)
    deviation = np.sqrt(chance * (1 - chance) / count + chance * (1 - chance) / 40_000)
    assert abs(published / count - chance) < 6.2 * deviation
    assert abs(np.exp(-1) / 2 - chance) > 6.2 * deviation  # of Laplace noise


@BOTH
def test_steps_before_the_first_one_leave_their_budget(kind):
    """A stream that begins late has steps that were passed over, and they have spent nothing."""
    mechanism, row = kind(tg.WEvent(epsilon="4", window=5), columns=3, noise="laplace"), np.full(3, 10**6)
    late, early = Session(mechanism), Session(mechanism)
    first = late.push(row, step=50)
    assert first.fresh
    if kind is Absorption:
        assert first.scale * mechanism.window <= early.push(row).scale * 1.0000001
        assert late.push(row).status is Status.NULLIFIED  # it is paid for
