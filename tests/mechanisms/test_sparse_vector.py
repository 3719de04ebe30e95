from fractions import Fraction

import pytest

from tidegate.errors import InvalidParameter
from tidegate.mechanisms.sparse_vector import SparseVector


def test_scales():
    """2S/ε for the threshold; 4·hits·S/ε for the questions, half of that if they are monotone."""
    run = SparseVector("0.5", sensitivity=3, hits=2)
    assert (run.threshold_scale, run.question_scale) == (12.0, 48.0)
    assert SparseVector("0.5", sensitivity=3, hits=2, monotone=True).question_scale == 24.0
    third = SparseVector(Fraction(3), sensitivity=1)
    assert Fraction(third.threshold_scale) >= Fraction(2, 3)
    assert Fraction(third.question_scale) >= Fraction(4, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.5, "sensitivity": 1},
        {"epsilon": "0", "sensitivity": 1},
        {"epsilon": "1", "sensitivity": 0},
        {"epsilon": "1", "sensitivity": 1, "hits": 0},
        {"epsilon": "1", "sensitivity": 1, "monotone": 1},
    ],
)
def test_bad_parameters_are_refused(options):
    """One sentence each."""
    with pytest.raises(InvalidParameter) as caught:
        SparseVector(**options)
    assert len(str(caught.value).splitlines()) == 1
