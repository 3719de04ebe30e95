"""What every mechanism declares about itself is true of what it does, so that nobody has to look at its class."""

import numpy as np
import pytest

from tidegate.audit.copies import widened
from tidegate.mechanisms import catalogue

EXAMPLES = [example for kind in catalogue().values() for example in kind.examples()]


def pushed(mechanism, steps=40):
    """A run after some steps, and what it released."""
    run = mechanism.start()
    return run, run.push_batch(np.zeros((steps, mechanism.columns), dtype=np.int64))


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=lambda each: type(each).__name__)
def test_what_is_declared_is_so(mechanism):
    """Only what revises has revised values and a last word; losses have one entry a step; copies can be made."""
    run, releases = pushed(mechanism)
    if not mechanism.revises:
        assert releases.revised is None
        assert run.flush() is None
    losses = mechanism.step_losses(releases)
    assert losses is None or losses.shape == (40,)
    wide = widened(mechanism, 2)
    assert mechanism.columns_independent or wide is None or type(mechanism).__name__ == "Blocks"
    assert mechanism.forest is None or len(mechanism.forest.names) == mechanism.outputs
