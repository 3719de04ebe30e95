"""Every check of the conformance suite on every example of every mechanism in the catalogue."""

import dataclasses

import numpy as np
import pytest

from tidegate.errors import TidegateError
from tidegate.mechanisms import Blocks, catalogue
from tidegate.noise.scale import LARGEST
from tidegate.testing.conformance import CHECKS

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
