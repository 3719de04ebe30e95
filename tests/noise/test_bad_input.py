"""What the noise refuses: one sentence with name, value, constraint and remedy, and nothing is drawn."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tidegate.errors import InvalidParameter
from tidegate.noise import gaussian, laplace, laplace_one, prepare, quantile_laplace, radius_laplace
from tidegate.testing.entropy import CountingEntropy

BAD = [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, 2.0**56 * 1.001, Fraction(0), Fraction(2**57),
       Fraction(-1, 3), True, np.nan, np.float64(-1), "1", None, 1j, 10**400]  # fmt: skip


@pytest.mark.parametrize("scale", BAD)
def test_bad_scales_are_refused(scale: Any) -> None:
    """Zero, negative, not finite, too large or not a number."""
    source = CountingEntropy()
    for draw, name in ((laplace, "scale"), (gaussian, "sigma")):
        words = f"{name} is missing: it" if scale is None else f"{name}=.* is refused: {name}"
        with pytest.raises(InvalidParameter, match=f"^{words} must be .*; use a finite"):
            draw(source, "", 0, scale, (3,))
    with pytest.raises(InvalidParameter):
        laplace_one(source, "", 0, 0, scale)
    assert source.words_drawn == 0


@pytest.mark.parametrize(
    "scales",
    [
        np.array([1.0, 0.0]), np.array([1.0, np.nan]), np.array([np.inf, 1.0]), np.array([1.0, 2.0**57]),
        np.array([1.0, 2.0, 3.0]), np.array(["1", "2"]), np.array([True, True]), np.array([1, 2**54 + 1]),
        [1.0, -1.0], (0.0, 1.0),
    ],
)  # fmt: skip
def test_bad_arrays_of_scales_are_refused(scales: Any) -> None:
    """One bad element, a wrong shape or a wrong type; the message does not list the array."""
    source = CountingEntropy()
    for draw in (laplace, gaussian):
        with pytest.raises(InvalidParameter) as caught:
            draw(source, "", 0, scales, (4, 2))
        assert len(str(caught.value)) < 300
    assert source.words_drawn == 0


def test_good_scales_in_every_form() -> None:
    """Ints, fractions, numpy numbers and arrays are read as the exact numbers they are, or rounded up."""
    source = CountingEntropy()
    for scale in (
        1,
        Fraction(1, 3),
        np.float64(2.5),
        np.float32(0.1),
        np.int64(7),
        np.array(3.0),
        5e-324,
        2.0**56,
    ):
        assert laplace(source, "", 0, scale, (2, 3)).shape == (2, 3)  # type: ignore[arg-type]
        assert gaussian(source, "", 0, scale, (2, 3)).dtype == np.int64  # type: ignore[arg-type]
    assert laplace(source, "", 0, np.array([[1.0], [2.0]]), (2, 3)).shape == (2, 3)
    assert prepare(Fraction(1, 3)).exact > Fraction(1, 3)
    assert prepare(Fraction(1, 3)).value == math.nextafter(1 / 3, 1) or Fraction(1 / 3) > Fraction(1, 3)
    assert prepare(0.1).exact == Fraction(0.1)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (0, 3), (3, 0), (1, 1), (40_000,), (3, 20_000)])
def test_shapes(shape: tuple[int, ...]) -> None:
    """Results have the shape asked for and are int64, empty ones too."""
    for draw in (laplace, gaussian):
        for scale in (2.0, 2.0**30, np.array([2.0])):
            if isinstance(scale, float) or shape:
                drawn = draw(CountingEntropy(), "", 0, scale, shape)
                assert drawn.shape == shape
                assert drawn.dtype == np.int64


def test_other_bad_parameters() -> None:
    """More than two dimensions, and probabilities outside (0, 1)."""
    with pytest.raises(InvalidParameter, match="shape"):
        laplace(CountingEntropy(), "", 0, 1.0, (2, 2, 2))
    for probability in (0.0, 1.0, -1.0, math.nan):
        for function in (quantile_laplace, radius_laplace):
            with pytest.raises(InvalidParameter, match="probability"):
                function(1.0, probability)
