import numpy as np
import pytest

from tidegate.datasets.shapes import SHAPES, shape
from tidegate.errors import InvalidParameter


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_the_lengths_and_totals_of_table_1(name):
    """Steps, columns, total; counts; the same for the same seed, another for another."""
    counts, wanted = shape(name), SHAPES[name]
    assert counts.shape == (wanted.steps, wanted.columns)
    assert counts.sum() == wanted.total
    assert counts.min() >= 0
    assert np.array_equal(counts, shape(name))
    assert not np.array_equal(counts, shape(name, seed=1))


def test_unknown_shapes_are_refused():
    """The message names those that exist."""
    with pytest.raises(InvalidParameter, match="Med_5"):
        shape("Huge_5")
