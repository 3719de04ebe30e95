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
from tidegate.core.session import Session
from tidegate.errors import BudgetExceeded, InvalidInput, InvalidParameter, LedgerMismatch, SnapshotError
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import BudgetAbsorption as Absorption
from tidegate.mechanisms import BudgetDistribution as Distribution
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.budget_absorption import shares_offered
from tidegate.mechanisms.w_event.budget_distribution import units_offered
from tidegate.mechanisms.w_event.dissimilarity import Dissimilarity
from tidegate.noise import current, install, laplace
from tidegate.noise.discrete_laplace import PIECE
from tidegate.noise.scale import LARGEST
from tidegate.releases import Status
from tidegate.testing.entropy import FixedEntropy, fixed_entropy, zero_noise

# as in the paper: dissimilarities with noise of their own
BudgetAbsorption = partial(Absorption, noise="laplace")
BudgetDistribution = partial(Distribution, noise="laplace")
BOTH = pytest.mark.parametrize("kind", [BudgetAbsorption, BudgetDistribution])


def published(run, values):
    """What each step spent on its publication, in units of ε."""
    tests = run.mechanism.shares[1]
    total = run.mechanism.policy.budget.total
    return [(run.push([value]).units - tests) * run.ledger.unit / total for value in values]


def test_figure_3_of_the_paper():
    """BD, w = 3, publications at 1, 3 and 4: ε/4, 0, ε/8, 3ε/16, and then nothing."""
    with zero_noise():
        run = Session(BudgetDistribution(tg.WEvent(epsilon="1", w=3)))
        budgets = published(run, [100, 100, 200, 300, 300, 300])
    assert budgets == [Fraction(1, 4), 0, Fraction(1, 8), Fraction(3, 16), 0, 0]


def test_figure_5_of_the_paper():
    """BA, w = 3: publishes, skips, absorbs, is nullified, publishes its own share, skips."""
    with zero_noise():
        run = Session(BudgetAbsorption(tg.WEvent(epsilon="1", w=3)))
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
    total, test, pool = mechanism.shares
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
            width = publication_scale(mechanism.whole_scale, int(spend / unit))
            cells = laplace(current(), "publication", step, width, (columns,))
            last[fresh] = row[fresh] + cells[fresh]
            spends[step - 1], latest = spend, step
            if isinstance(mechanism, Absorption):
                taken = int(spend / (pool // w * unit))
        result.append((last.copy(), spends[step - 1] + test * unit, latest))
    return result


def noise_of_tests(mechanism, steps):
    """The noise of the dissimilarities of each step, one step after the other, and the units that it is charged."""
    (total, test, _), groups, sharing = mechanism.shares, mechanism.group_count, mechanism.sharing
    scale = loop_scale(mechanism.sensitivity * total / (max(test, 1) * mechanism.policy.budget.total))
    state = Session(sharing.law) if sharing else None
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
    mechanism = kind(tg.WEvent(epsilon="2.5", w=w), columns=columns, **options)
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
    mechanism = kind(tg.WEvent(epsilon="8", w=12), columns=columns, groups=groups, noise=noise)
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
    last = sum(spent for _, spent, _ in expected[-12:])
    assert last <= run.ledger.spent() <= 8  # a group that began before the window counts as well


@pytest.mark.parametrize("kind", [Absorption, Distribution])
def test_a_group_that_is_refused_in_a_batch_leaves_the_rest_paid(kind):
    """Another takes what the next group of tests needs: the batch is refused, and what it cost so far stays charged."""
    policy = tg.WEvent(epsilon="8", w=12)
    mechanism = kind(policy, noise="cube")
    ledger = MemoryLedger(policy, mechanism.units)
    run = mechanism.start(ledger=ledger)
    run.push(0)
    ledger.charge_group(1, 30, int(ledger.remaining(1) / ledger.unit))
    with pytest.raises(BudgetExceeded, match="at step 5"):
        run.push_batch(np.zeros((30, 1), dtype=np.int64))
    assert mechanism.sharing.choice.lengths[0] == 4
    assert (ledger.verify().ok, ledger.verify().spent) == (True, 8)
    with pytest.raises(LedgerMismatch):
        run.push(0)


@pytest.mark.parametrize("w", [1, 2, 3, 4, 5])
def test_no_sequence_of_decisions_overspends(w):
    """All publish-or-skip sequences of 11 steps: the loop's rule is the mechanism's, no window overspends its pool."""
    for kind, pool in ((loop.ABSORPTION, w), (loop.DISTRIBUTION, 64 * w)):
        rule = (kind, w, 1, pool // w, pool, loop.L1, 1.0, 1.0, 1.0)
        worst = 0
        for decisions in itertools.product((False, True), repeat=11):
            memory = np.zeros(loop.MEMORY, dtype=np.int64)
            memory[loop.TAKEN] = 1
            paid = np.zeros((w + 1, 2), dtype=np.int64)
            spent, latest, taken = [], 0, 1
            for step, publishes in enumerate(decisions, 1):
                amount = loop.offer(rule, memory, paid, step)
                if kind == loop.ABSORPTION:
                    assert max(amount, 0) == shares_offered(step, latest, taken, w)
                else:
                    assert amount == units_offered(sum(spent[max(0, step - w) :]), pool)
                spent.append(amount if publishes and amount > 0 else 0)
                if spent[-1]:
                    latest, taken = step, spent[-1]
                    loop.remember(rule, memory, paid, np.zeros(0, dtype=np.int64), step, amount)
            worst = max(worst, *(sum(spent[first : first + w]) for first in range(11)))
        assert worst == pool if kind == loop.ABSORPTION else worst <= pool


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
    policy = tg.WEvent(epsilon=epsilon, w=w, adjacency=adjacency)
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
    tests = mechanism.shares[1] * releases.unit
    for release in releases:
        if release.status in (Status.FRESH, Status.PARTIAL):
            assert delta / Fraction(release.scale) + tests <= release.spent


def test_groups_are_formed_from_releases():
    """Quiet and loud columns are told apart by the root mean square of what was released."""
    rows = np.zeros((400, 6), dtype=np.int64)
    rows[:, [1, 3, 5]] = 5000 + 3000 * (np.arange(400) % 2)[:, None]
    run = Session(BudgetAbsorption(tg.WEvent(epsilon="10", w=4), columns=6, groups=2))
    run.push_batch(rows)
    groups = run._arrays.group_of
    assert len(set(groups[[1, 3, 5]])) == 1
    assert set(groups[[0, 2, 4]]) != set(groups[[1, 3, 5]])


@BOTH
def test_a_dissimilarity_of_ones_own(kind):
    """A user's dissimilarity with its sensitivity replaces the built-in one; the same function gives the same run."""
    own = Dissimilarity("mine", lambda values, last: int(np.abs(values - last).sum()), 1, float)
    twice = Dissimilarity(
        "twice", lambda values, last: 2 * int(np.abs(values - last).sum()), 2, lambda d: 2.0 * d
    )
    policy = tg.WEvent(epsilon="3", w=4)
    rows = 40 * (np.arange(60) // 9 % 2)[:, None] + np.zeros((60, 3), dtype=np.int64)
    with fixed_entropy(3):
        expected = Session(kind(policy, columns=3)).push_batch(rows)
        mine = Session(kind(policy, columns=3, dissimilarity=own)).push_batch(rows)
    assert np.array_equal(expected.values, mine.values)
    assert kind(policy, columns=3, dissimilarity=twice).score_scale == 2 * kind(policy, columns=3).score_scale


def test_shifting_moves_budget_to_publications():
    """With d > 2w the test costs ε/d a step, and the pool grows from ε/2 to ε(1 − w/d)."""
    policy = tg.WEvent(epsilon="1", w=10)
    total, test, pool = BudgetAbsorption(policy, columns=100, shift=True).shares
    assert (Fraction(test, total), Fraction(pool, total)) == (Fraction(1, 100), Fraction(9, 10))
    total, test, pool = BudgetDistribution(policy, columns=100, shift=True).shares
    assert (Fraction(test, total), Fraction(pool, total)) == (Fraction(1, 100), Fraction(9, 10))
    with pytest.raises(InvalidParameter, match="leave it out"):
        BudgetAbsorption(policy, columns=20, shift=True)


def test_theorems_6_and_7():
    """expected_error is the paper's bound, for Δ = 1 and the default budgets."""
    policy = tg.WEvent(epsilon="1/2", w=20)
    assert BudgetDistribution(policy, columns=10).error_bound(3) == pytest.approx(
        4 * 7 / (3 * 0.5) + 2 * 20 / (0.5 * 10)
    )
    harmonic = 1 + 1 / 2 + 1 / 3
    assert BudgetAbsorption(policy, columns=10).error_bound(2, nullified_error=7.0) == pytest.approx(
        (2 * 20 / 0.5 * harmonic + 2 * 7.0) / 5 + 2 * 20 / (0.5 * 10)
    )


def test_printed_variants_overspend_and_say_so():
    """Line 5 read literally reaches 1.5 ε, in floating point 1.125 ε, the shift without re-budgeting 1 + w/d."""
    jumpy = np.array([0] * 9 + [10**6 * (step % 2 + 1) for step in range(30)])[:, None]
    with zero_noise():
        literal = Session(BudgetAbsorption(tg.WEvent(epsilon="1", w=4), calibration="paper"))
        literal.push_batch(jumpy)
        verdict = literal.ledger.verify()
        assert not verdict.ok
        assert verdict.spent == Fraction(3 * 4 - 1, 2 * 4)
        assert "does NOT keep its promise" in str(literal.mechanism.guarantee)
        floats = Session(BudgetAbsorption(tg.WEvent(epsilon="0.7", w=4), calibration="paper-float"))
        pattern = [0, 0] + [10**6 * (step % 2 + 1) for step in range(30)]
        floats.push_batch(np.array(pattern)[:, None])
        assert floats.ledger.verify().spent / Fraction("0.7") == Fraction(9, 8)
        shifted = Session(BudgetAbsorption(
            tg.WEvent(epsilon="1", w=2), columns=8, shift=True, calibration="paper"
        ))
        shifted.push_batch(np.repeat(jumpy, 8, axis=1))
        assert shifted.ledger.verify().spent == 1 + Fraction(2, 8)


@BOTH
def test_fixed_units_have_the_full_budget_in_each_group(kind):
    """Groups decide and spend by themselves; each account is within ε, and the guarantee names the assumption."""
    policy = tg.WEvent(epsilon="1", w=4, mobility="fixed")
    mechanism = kind(policy, columns=4, groups=((0, 1), (2, 3)))
    rows = np.zeros((60, 4), dtype=np.int64)
    rows[:, :2] = 10**5 * (np.arange(60) % 2)[:, None]
    run = Session(mechanism)
    releases = run.push_batch(rows)
    assert Status.PARTIAL in releases.status
    assert len(run.ledger.parts) == 2
    alone = kind(policy, columns=2)
    with fixed_entropy(8):
        together = Session(mechanism).push_batch(rows)
        run = Session(alone)
        run.source = type(Session(mechanism)._runs[0].source)(run.source, "group 0: ")
        assert np.array_equal(run.push_batch(rows[:, :2]).values, together.values[:, :2])
    assert "stays in one column within any window" in str(mechanism.guarantee)
    with pytest.raises(InvalidParameter, match="declare that units move"):
        kind(policy, columns=4, groups=2, regroup_every=10)


def test_independent_groups_overspend_for_moving_units():
    """Printed column partitioning: the sum over steps of the largest group's spend exceeds ε, and verify says so."""
    rows = np.zeros((80, 4), dtype=np.int64)
    for step in range(
        80
    ):  # every group waits for w steps and then publishes with w shares, one after the other
        for group in range(4):
            rows[step, group] = 10**6 * ((step + group) // 4)
    with zero_noise():
        mechanism = BudgetAbsorption(tg.WEvent(epsilon="1", w=4), columns=4, groups=4, calibration="paper")
        run = Session(mechanism)
        run.push_batch(rows)
    verdict = run.ledger.verify()
    assert not verdict.ok
    assert verdict.spent > Fraction(5, 4)
    assert "2.5 times" in str(mechanism.guarantee)


def test_printed_variants_may_not_touch_a_real_ledger(tmp_path):
    """A ledger that protects people is never lent to a printed calibration."""
    with pytest.raises(LedgerMismatch, match="printed calibration"):
        BudgetAbsorption(tg.WEvent(epsilon="1", w=4), calibration="paper").start(
            ledger=tmp_path / "ledger.db"
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": ((0, 1), (1, 2))}, "a partition of the columns"),
        ({"groups": ((0, 1), ())}, "a partition of the columns"),
        ({"groups": 4}, "at most 3"),
        ({"groups": ((0,), (1, 2)), "regroup_every": 5}, "give a number of groups"),
        ({"dissimilarity": "cosine"}, "'l1' or 'largest'"),
        ({"calibration": "loose"}, "'sound' or 'paper'"),
    ],
)
@BOTH
def test_bad_options(kind, options, words):
    """Each refusal names the parameter and the remedy."""
    with pytest.raises(InvalidParameter, match=words):
        kind(tg.WEvent(epsilon="1", w=4), columns=3, **options)


@BOTH
def test_a_window_beyond_the_numbers_is_refused(kind):
    """An enormous w whose noise would leave the integers is refused before anything starts."""
    with pytest.raises(InvalidParameter, match="shorten the window"):
        kind(tg.WEvent(epsilon="1e-9", w=2**39), columns=1)


@BOTH
def test_other_columns_after_a_restore_are_refused(kind):
    """A step with another number of columns is refused, and so is a snapshot of another width."""
    run = Session(kind(tg.WEvent(epsilon="1", w=4), columns=3))
    run.push([1, 2, 3])
    with pytest.raises(InvalidInput, match="has 3 columns"):
        run.push([1, 2])
    with pytest.raises(SnapshotError, match="other parameters"):
        kind(tg.WEvent(epsilon="1", w=4), columns=2).start(state=run.snapshot())


@BOTH
def test_enormous_windows_cost_nothing(kind):
    """A window of 2^30 steps starts at once, in little memory, and publishes."""
    tracemalloc.start()
    try:
        run = Session(kind(tg.WEvent(epsilon="1000000", w=2**30)))
        releases = run.push_batch(np.array([[10**9], [10**9], [2 * 10**9]]))
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert len(releases) == 3
    assert len(run.snapshot()) < 5000


@pytest.mark.parametrize("sensitivity", [0, -1, 0.5, True])
def test_a_dissimilarity_has_a_sensitivity(sensitivity):
    """A score that claims not to depend on the data would be compared without noise: refused by name."""
    with pytest.raises(InvalidParameter, match="sensitivity"):
        Dissimilarity("own", lambda values, last: int(values[0]), sensitivity, float)


@BOTH
def test_replaced_units_may_change_their_group(kind):
    """Groups of fixed units count with the whole step's change, also groups of a single column."""
    policy = tg.WEvent(epsilon="1", w=1, mobility="fixed", adjacency="replace")
    mechanism = kind(policy, columns=3, groups=((0,), (1, 2)))
    run = Session(mechanism)
    parts = [part.mechanism for part in run._runs]
    assert [part.sensitivity for part in parts] == [2, 2]
    assert {part.score_scale for part in parts} == {mechanism.score_scale} == {4.0}  # 2wΔ/ε, Δ = 2
    assert {part.whole_scale for part in parts} == {mechanism.whole_scale} == {2.0 * mechanism.units}
    run.push_batch(np.zeros((5, 3), dtype=np.int64))
    again = mechanism.start(state=run.snapshot())
    assert [part.mechanism.sensitivity for part in again._runs] == [2, 2]


@BOTH
def test_a_refusal_never_tells_of_a_decision(kind):
    """On a shared ledger a publication that cannot be paid is not considered, and what was tested stays paid."""
    policy = tg.WEvent(epsilon="1", w=2)
    mechanism = kind(policy)
    for value in (0, 10**6):
        ledger = MemoryLedger(policy, units=mechanism.units)
        ledger.charge(1, mechanism.units - mechanism.shares[1])  # room for one test and for no publication
        run = mechanism.start(ledger=ledger)
        run.begin_at(1)
        assert run.push([value]).status is Status.APPROXIMATED
        assert ledger.spent() == 1
        with pytest.raises(BudgetExceeded):
            run.push([value])


def test_a_refused_batch_stays_paid():
    """Where a batch is refused depends on its decisions, so the steps before the refusal are charged all the same."""
    policy = tg.WEvent(epsilon="1", w=2)
    ledger = MemoryLedger(policy, units=4)
    ledger.charge(1, 2)
    run = BudgetAbsorption(policy).start(ledger=ledger)
    run.begin_at(1)
    with zero_noise(), pytest.raises(BudgetExceeded):
        run.push_batch([[10**6], [10**6]])  # the first is published, and the second cannot even be tested
    assert ledger.spent(1, 1) == 1
    assert run.step == 0


def test_a_ledger_that_went_back_is_noticed():
    """A run whose charges were rolled back with a transaction is not used again: its state remembers a publication."""
    run = Session(BudgetAbsorption(tg.WEvent(epsilon="40", w=4)))

    def failing():
        with run.ledger.transaction(unseen=True):
            run.push([123456])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    with pytest.raises(LedgerMismatch, match="taken back"):
        run.push([0])


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
@pytest.mark.parametrize("options", [{}, {"groups": 3, "regroup_every": 7}])
@pytest.mark.parametrize("request_", [3, 4, 5, 6])
def test_a_failure_between_two_publications_leaves_no_trace(kind, options, request_):
    """A batch that fails before a publication, or half way through its columns, is as if it had never begun."""
    columns = PIECE + 40  # two requests a publication
    mechanism = kind(tg.WEvent(epsilon="6", w=5), columns=columns, **options)
    rows = 500 * (np.arange(40)[:, None] // 3 % 4) + np.arange(columns)[None, :] % 90
    with fixed_entropy(5):
        expected = Session(mechanism).push_batch(rows)
        run = Session(mechanism)
        run.push_batch(rows[:10])
    before, step, rows_charged = run.snapshot(), run.step, run.ledger.rows
    with install(Interrupted(5, request_)) as source:
        run.source = source
        with pytest.raises(KeyboardInterrupt):
            run.push_batch(rows[10:])
        assert source.left == 0
    assert (run.snapshot(), run.step, run.ledger.rows) == (before, step, rows_charged)
    with fixed_entropy(5) as source:
        run.source = source
        rest = run.push_batch(rows[10:])
    assert (rest.status == Status.APPROXIMATED).any()
    assert np.array_equal(rest.values, expected.values[10:])
    assert np.array_equal(rest.units, expected.units[10:])


@BOTH
def test_wide_streams_need_few_vectors(kind):
    """Beyond input and output: the last publication, a copy of it, pieces of noise, and what intervals learn from."""
    columns, steps = 50_000, 12
    rows = np.outer(np.arange(steps) % 3, np.ones(columns, dtype=np.int64)) * 10**6
    mechanism = kind(tg.WEvent(epsilon="1", w=4), columns=columns)
    Session(mechanism).push_batch(rows)  # compiles
    tracemalloc.start()
    try:
        releases = Session(mechanism).push_batch(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert releases.fresh.sum() > 2
    assert peak - releases.values.nbytes < 20 * 8 * columns


# dissimilarities that share noise -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "digest"),
    [(Absorption, "5e2693d9bed0c93875b6ca397cf69e74"), (Distribution, "8fedabbd79046e7cdd6cdb967d12feb0")],
)
def test_laplace_is_what_it_was(kind, digest):
    """noise="laplace" has the units and the digest of version 0.1, also where "auto" has nothing to share."""
    plain = kind(tg.WEvent(epsilon="1", w=24), noise="laplace")
    assert plain.fingerprint == digest
    assert kind(tg.WEvent(epsilon="1", w=24)).earlier == plain
    for options in ({"pan_private": "single"}, {"calibration": "paper"}):
        assert kind(tg.WEvent(epsilon="1", w=24), **options).sharing is None


@pytest.mark.parametrize("kind", [Absorption, Distribution])
@pytest.mark.parametrize(
    "options", [{}, {"noise": "cube"}, {"columns": 60, "shift": True}, {"columns": 4, "groups": 2}]
)
def test_tests_cost_their_part_together(kind, options):
    """All tests of a window cost what they cost apart, publications have the rest, and the law is that of the scores."""
    mechanism = kind(tg.WEvent(epsilon="2", w=12), **options)
    total, test, pool = mechanism.shares
    part = Fraction(12, 60) if options.get("shift") else Fraction(1, 2)
    assert (test, mechanism.measuring_part, Fraction(pool, total)) == (0, part, 1 - part)
    assert mechanism.sharing.group_part * mechanism.sharing.units == part
    assert (mechanism.sharing.group_part * total).denominator == 1
    run = Session(mechanism)
    rows = np.random.default_rng(2).integers(0, 500, (400, mechanism.columns))
    for row in rows[:40]:
        run.push(row)
    releases = run.push_batch(rows[40:])
    assert part < run.ledger.verify().spent / 2 <= 1
    laplace = kind(tg.WEvent(epsilon="2", w=12), **{**options, "noise": "laplace"})
    assert mechanism.score_scale < laplace.score_scale
    assert mechanism.law == laplace.law
    assert mechanism.step_losses(releases) is None


@pytest.mark.parametrize("kind", [Absorption, Distribution])
def test_a_silent_step_tests_nothing(kind):
    """A snapshot in memory goes on in silence: the last publication, whatever the data, at no cost."""
    mechanism = kind(tg.WEvent(epsilon="8", w=5), columns=2)
    run = Session(mechanism)
    last = run.push_batch(np.full((9, 2), 100))[-1]
    restored = mechanism.start(state=run.snapshot())
    silent = restored.push_batch(np.full((4, 2), 10**9))
    assert (silent.values == last.values).all()
    assert not silent.units.any()
    assert restored.push(np.full(2, 10**9)).fresh


def test_decisions_have_the_noise_of_the_law():
    """α = 1e-9: a score of 0 against a limit passes as often as the law's noise is above it; Laplace's is more often."""
    mechanism = Absorption(tg.WEvent(epsilon="1", w=8))
    limit = mechanism.sensitivity * 2 * 8  # of the first step, whose publication would have one share
    count = 4000
    published = sum(Session(mechanism).push(0).fresh for _ in range(count))
    law = mechanism.sharing.law
    noise = [law.draw(current(), "score", 0, Session(law))[0].item() for _ in range(40_000)]
    chance = np.mean(np.array(noise) > limit)
    deviation = np.sqrt(chance * (1 - chance) / count + chance * (1 - chance) / 40_000)
    assert abs(published / count - chance) < 6.2 * deviation
    assert abs(np.exp(-1) / 2 - chance) > 6.2 * deviation  # of Laplace noise


@pytest.mark.parametrize("columns", [1, 40])
def test_no_publication_has_noise_that_cannot_be_drawn(columns):
    """On a ledger with finer units halves become so small that their noise would leave the sampler's range: skipped."""
    always = Dissimilarity("always", lambda values, last: 2**60, 1, lambda columns: 0.0)
    policy = tg.WEvent(epsilon="1", w=64, max_change=2**15)
    mechanism = Distribution(policy, columns=columns, dissimilarity=always, noise="laplace")
    run = mechanism.start(MemoryLedger(policy, mechanism.units * 2**13))
    releases = run.push_batch(np.zeros((64, columns), dtype=np.int64))
    assert 30 < releases.fresh.sum() < 45
    assert releases.scale.max() <= LARGEST
