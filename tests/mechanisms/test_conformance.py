"""Every check of the conformance suite on every example of every mechanism in the catalogue."""

import dataclasses
import importlib
import pkgutil
from contextlib import suppress

import numpy as np
import pytest

from tidegate.errors import BudgetExceeded, LedgerError, TidegateError
from tidegate.ledger.parallel import ParallelLedger
from tidegate.mechanisms import Blocks, catalogue
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.noise.scale import LARGEST
from tidegate.testing.conformance import (
    CHECKS,
    interrupted_work_leaves_no_trace_or_ends_the_run,
    same,
    stream,
)
from tidegate.testing.entropy import fixed_entropy
from tiers import rotated

ALL = {**catalogue(), "ClippedRecords": ClippedRecords}  # which stands beside the catalogue
EXAMPLES = {name: mechanism.examples() for name, mechanism in ALL.items()}
# of which a step is the columns that are released, and not records in bins
PLAIN = {name: examples for name, examples in EXAMPLES.items() if name != "ClippedRecords"}
# The quick tier runs each check on one example of each mechanism, another one from check to check. These notice most
# mistakes per second (tests/mutants), and run on all examples.
ON_ALL = {
    "push_equals_push_batch",
    "charges_cover_released_scales",
    "every_step_of_a_batch_has_each_field",
    "revisions_say_where_they_come_from",
    "shared_noise_is_gone_on_with_once",
}
MATRIX = [
    pytest.param(
        *example.values,
        check,
        id=f"{example.id}-{check.__name__}",
        marks=() if check.__name__ in ON_ALL else example.marks,
    )
    for turn, check in enumerate(CHECKS)
    for example in rotated(EXAMPLES, turn)
]


def test_every_mechanism_has_examples():
    """A mechanism without examples would not be tested at all."""
    assert all(mechanism.examples() for mechanism in ALL.values())


def test_the_quick_tier_has_every_check_and_every_example():
    """Each check on each mechanism, and each example in some check that is not for all."""
    quick = [each for each in MATRIX if not each.marks]
    assert {(each.id.split("-")[0], each.values[1]) for each in quick} == {
        (name, check) for name in ALL for check in CHECKS
    }
    turned = {each.id.rsplit("-", 1)[0] for each in quick if each.values[1].__name__ not in ON_ALL}
    assert turned == {each.id for each in rotated(EXAMPLES, 0)}
    assert {check.__name__ for check in CHECKS} >= ON_ALL


@pytest.mark.parametrize(("mechanism", "check"), MATRIX)
def test_conformance(mechanism, check):
    """The mechanism passes the check."""
    check(mechanism)


def pieces():
    """Where a batch is cut into pieces: the constants that say how large they are, in every module of mechanisms."""
    package = importlib.import_module("tidegate.mechanisms")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, "tidegate.mechanisms.")]
    modules = [importlib.import_module(name) for name in names if ".kernels" not in name]
    return [(module, name) for module in modules for name in ("CELLS", "BLOCK") if hasattr(module, name)]


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 0))
def test_an_interruption_between_two_pieces_leaves_no_trace_or_ends_the_run(mechanism, monkeypatch):
    """The same with pieces of a few steps, so that every batch is cut many times."""
    found = pieces()
    assert len(found) > 5
    for module, name in found:
        monkeypatch.setattr(module, name, 8)
    interrupted_work_leaves_no_trace_or_ends_the_run(mechanism)


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 1))
def test_pieces_of_a_batch_do_not_show(mechanism, monkeypatch):
    """However large the pieces are in which a batch is worked on, the same is released under fixed entropy."""
    rows = stream(mechanism, 40)
    with fixed_entropy("pieces"):
        expected = mechanism.start().push_batch(rows)
    for module, name in pieces():
        monkeypatch.setattr(module, name, 8)
    with fixed_entropy("pieces"):
        assert same(expected, mechanism.start().push_batch(rows))


@pytest.mark.parametrize("tiny", ["1e-400", "1e-26", "1e-18"])
@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 2))
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


@pytest.mark.parametrize("mechanism", rotated(PLAIN, 4))
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


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 3))
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
