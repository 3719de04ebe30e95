"""The two kinds of noise that a measurement has for itself: what draws them, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from tidegate.noise import discrete_gaussian, discrete_laplace
from tidegate.noise.discrete_laplace import Integers


class Kind(NamedTuple):
    """Discrete Laplace or Gaussian noise, whose scale is its b or σ in grid units."""

    draw: Callable[..., Integers]  # takes a source, a stream, a step, a scale and a shape
    variance: Callable[[float | Fraction], float]
    expected_absolute: Callable[[float | Fraction], float]


KINDS = {
    "laplace": Kind(discrete_laplace.laplace, discrete_laplace.variance, discrete_laplace.expected_absolute),
    "gaussian": Kind(
        discrete_gaussian.gaussian, discrete_gaussian.variance, discrete_gaussian.expected_absolute
    ),
}
