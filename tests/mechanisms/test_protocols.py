"""What every mechanism declares about itself is true of what it does, so that nobody has to look at its class."""

import inspect

import numpy as np
import pytest

from tidegate.audit.copies import widened
from tidegate.core.session import Session
from tidegate.mechanisms import catalogue
from tidegate.mechanisms.clipped_records import ClippedRecords
from tiers import rotated

KINDS = (*(kind for kind in catalogue().values() if kind.reads_columns), ClippedRecords)
EXAMPLES = {kind.__name__: kind.examples() for kind in KINDS}


def pushed(mechanism, steps=40):
    """A session after some steps, and what it released."""
    session = Session(mechanism)
    return session, session.push_batch(np.zeros((steps, mechanism.columns), dtype=np.int64))


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 0))
def test_what_is_declared_is_so(mechanism):
    """Only what revises has revised values and a last word; losses have one entry a step; copies can be made."""
    session, releases = pushed(mechanism)
    if not mechanism.revises:
        assert releases.revised is None
        assert session.finish() is None
    losses = mechanism.step_losses(releases)
    assert losses is None or losses.shape == (40,)
    wide = widened(mechanism, 2)
    # copies of one column that shares noise are of units that stay in theirs
    apart = mechanism.shares_noise and wide is not None and wide.policy.mobility == "fixed"
    assert mechanism.columns_independent or wide is None or apart or type(mechanism).__name__ == "Blocks"
    assert mechanism.forest is None or len(mechanism.forest.names) == mechanism.outputs


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 1))
def test_an_expected_error_is_asked_in_one_way_and_true(mechanism):
    """One signature; of one step, of some, of a long run; where it is a number, noise alone makes that error.

    Some mechanisms take it from a normal distribution, which is off by a few per cent. Beyond a twentieth, the mean of
    150 runs is off by more than six of its standard errors with a probability below 1e-5: those of few draws are skewed.
    """
    assert list(inspect.signature(mechanism.expected_error).parameters) == ["first", "last"]
    whole, some, one = (mechanism.expected_error(*steps) for steps in ((), (1, 40), (7,)))
    if whole is None:
        assert (some, one) == (None, None)
        return
    assert min(whole, some, one) > 0
    errors = [np.abs(pushed(mechanism)[1].values).mean(axis=1) for _ in range(150)]
    for expected, found in ((some, [run.mean() for run in errors]), (one, [run[6] for run in errors])):
        assert abs(np.mean(found) - expected) < 6 * np.std(found) / np.sqrt(len(found)) + expected / 20
