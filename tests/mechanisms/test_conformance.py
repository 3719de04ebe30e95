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
