"""Every check of the conformance suite on every example of every mechanism in the catalogue."""

import pytest

from tidegate.mechanisms import catalogue
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
