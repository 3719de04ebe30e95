"""Every check of the conformance suite on every example of every mechanism in the catalogue."""

import dataclasses
import importlib
import pkgutil
from contextlib import suppress

import numpy as np
import pytest
from scipy.stats import binom

from tidegate.errors import BudgetExceeded, LedgerError, TidegateError
from tidegate.ledger.parallel import ParallelLedger
from tidegate.mechanisms import Blocks, Uniform, catalogue
from tidegate.noise.scale import LARGEST
from tidegate.testing.conformance import CHECKS, interrupted_work_leaves_no_trace_or_ends_the_run

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, mechanism in catalogue().items()
    for number, example in enumerate(mechanism.examples())
]


def test_every_mechanism_has_examples():
    """A mechanism without examples would not be tested at all."""
    assert all(mechanism.examples() for mechanism in catalogue().values())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_conformance(mechanism, check):
    """The mechanism passes the check."""
    check(mechanism)


def pieces():
    """Where a batch is cut into pieces: the constants that say how large they are, in every module of mechanisms."""
    package = importlib.import_module("tidegate.mechanisms")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, "tidegate.mechanisms.")]
    modules = [importlib.import_module(name) for name in names if ".kernels" not in name]
    return [(module, name) for module in modules for name in ("CELLS", "BLOCK") if hasattr(module, name)]


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_an_interruption_between_two_pieces_leaves_no_trace_or_ends_the_run(mechanism, monkeypatch):
    """The same with pieces of a few steps, so that every batch is cut many times."""
    found = pieces()
    assert len(found) > 5
    for module, name in found:
        monkeypatch.setattr(module, name, 8)
    interrupted_work_leaves_no_trace_or_ends_the_run(mechanism)


@pytest.mark.parametrize("tiny", ["1e-400", "1e-26", "1e-18"])
@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_noise_that_cannot_be_drawn_is_refused(mechanism, tiny):
    """A budget so small that its noise is beyond the proof of the draws is refused by a sentence, never released."""
    if isinstance(mechanism, Blocks):  # has the policy of what it runs
        return
    measure = "epsilon" if mechanism.policy.rho is None else "rho"
    try:
        policy = dataclasses.replace(mechanism.policy, **{measure: tiny})
        run = dataclasses.replace(mechanism, policy=policy).start()
        releases = run.push_batch(np.ones((4, mechanism.columns), dtype=np.int64))
    except TidegateError:
        return
    assert (
        np.max(releases.scale) <= LARGEST * mechanism.columns
    )  # a sum of draws may be larger than one of them


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_nothing_is_cut_at_zero_without_being_asked(mechanism):
    """A stream far below zero is released far below zero, unless a parameter says that it cannot be there."""
    if mechanism.statistic != "steps" or getattr(mechanism, "nonnegative", False) or _counts_only(mechanism):
        return
    level = -(10**7)  # beyond any noise of the examples
    steps = min(30, mechanism.policy.horizon or 30)
    releases = mechanism.start().push_batch(np.full((steps, mechanism.columns), level)).final
    measured = releases.values[releases.source > 0]  # before that nothing is known
    assert len(measured) == 0 or np.median(measured) < level / 2


def _counts_only(mechanism):
    """Pruning is for counts: what is small is nothing."""
    return getattr(mechanism, "prunes", False)


@pytest.mark.parametrize("name", ["Tide", "OptStream", "HierarchicalOptStream", "Fourier"])
def test_being_nonnegative_is_no_default(name):
    """Whoever says nothing about signs gets values of any sign."""
    (declared,) = [field for field in dataclasses.fields(catalogue()[name]) if field.name == "nonnegative"]
    assert declared.default is False


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_intervals_hold_the_truth_as_often_as_they_say(mechanism):
    """α = 1e-9 each, n up to 4,000 values: at least 0.9 of the intervals hold; Uniform's, half as wide, do not."""
    if mechanism.law is None:
        return
    level = 1000  # constant: publications and samples are what is looked at
    covered, narrow, total = 0, 0, 0
    for _ in range(200):
        steps = min(60, mechanism.policy.horizon or 60)
        releases = mechanism.start().push_batch(np.full((steps, mechanism.columns), level))
        low, high = releases.interval(0.9)
        known = ~np.isnan(low)
        assert (known == releases.fresh[:, np.newaxis]).all()
        covered += int(((low <= level) & (level <= high))[known].sum())
        half = (high - low) / 2
        narrow += int((np.abs(releases.values - level) <= half / 2)[known].sum())
        total += int(known.sum())
        if total >= 4000:
            break
    assert binom.cdf(covered, total, 0.9) > 1e-9
    assert not isinstance(mechanism, Uniform) or binom.cdf(narrow, total, 0.9) < 1e-9


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_a_run_that_others_overtook_goes_on_or_says_a_true_sentence(mechanism):
    """Behind the ledger by more than a window, nothing is overspent and no refusal speaks of a window over the budget."""
    window = mechanism.policy.window
    if window is None or mechanism.policy.horizon is not None or window > 100:
        return
    run = mechanism.start()
    if isinstance(run.ledger, ParallelLedger):
        return  # belongs to one run
    rows = np.full((3, mechanism.columns), 5)
    run.push_batch(rows)
    other = mechanism.start(ledger=run.ledger)
    with suppress(BudgetExceeded):  # both together may be too much: then nobody was overtaken by far
        other.push_batch(np.full((4 * window + 4, mechanism.columns), 5))
    for work in (lambda: run.push(rows[0]), lambda: run.push_batch(rows)):
        refused = _refusal(work)
        assert not isinstance(refused, BudgetExceeded) or refused.spent <= mechanism.policy.budget.total
    assert run.ledger.verify().ok


def _refusal(work):
    """What the ledger answers, if it refuses."""
    try:
        work()
    except (BudgetExceeded, LedgerError) as refused:
        return refused
    return None
