"""Goodness of fit with exact tails; every test also refuses the planted wrong versions it names.

Level: ALPHA = 1e-9 a test (distributions), n = N = 2^22 draws unless a test says otherwise.
Shared among some 100 events that is 7 standard deviations; every wrong version below is off by at least 16
in some event, so it is missed with a chance below 1e-9 too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom, norm

from distributions import ALPHA, Comparison, compare_counts, compare_integers
from tidegate.noise import (
    current,
    expected_absolute_gaussian,
    expected_absolute_laplace,
    gaussian,
    kernels,
    laplace,
    quantile_laplace,
    radius_laplace,
    reference,
    variance_gaussian,
    variance_laplace,
)
from tidegate.noise.discrete_gaussian import table_of
from tidegate.noise.entropy import SYSTEM
from tiers import thinned

N = 1 << 22
Integers = npt.NDArray[np.int64]
Sampler = Callable[[float, int], Integers]


def draw_laplace(scale: float, n: int) -> Integers:
    """What we ship."""
    return laplace(current(), "test", 0, scale, (n,))


def draw_gaussian(sigma: float, n: int) -> Integers:
    """What we ship."""
    return gaussian(current(), "test", 0, sigma, (n,))


def laplace_at_most(scale: float, edges: Integers) -> npt.NDArray[np.float64]:
    """P(X ≤ edge)."""
    q = math.exp(-1 / scale)
    below = np.exp(-np.maximum(-edges, 0) / scale) / (1 + q)
    above = 1 - np.exp(-(np.maximum(edges, 0) + 1.0) / scale) / (1 + q)
    return np.where(edges < 0, below, above)


def laplace_edges(scale: float) -> Integers:
    """All small integers, and quantiles of both sides down to 2^-16."""
    far = np.array([scale * depth for depth in (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 11)])
    positive = np.unique(np.concatenate([np.arange(0, 8), far.astype(np.int64)]))
    return np.unique(np.concatenate([-positive - 1, -positive, positive]))


def laplace_residue(scale: float, modulus: int, below: int) -> float:
    """P(|X| mod modulus < below)."""
    q = math.exp(-1 / scale)
    share = math.expm1(-below / scale) / math.expm1(-modulus / scale)
    return 2 * share / (1 + q) + math.expm1(-1 / scale) / (1 + q)


def fit_laplace(scale: float, sample: Integers) -> Comparison:
    """Cells and half-lines, zero, the sign, and the low bits of the magnitude."""
    magnitude = np.abs(sample)
    q = math.exp(-1 / scale)
    zero = -math.expm1(-1 / scale) / (1 + q)
    extra: dict[str, tuple[npt.NDArray[np.bool_], float]] = {
        "X = 0": (sample == 0, zero),
        "X > 0": (sample > 0, q / (1 + q)),
    }
    for bit in (0, 1, 4, 9, 10, 11, 19, 20, 21, 30):
        if scale > 2.0**bit:
            low = (magnitude >> bit) & 1 == 0
            extra[f"bit {bit} clear"] = (low, laplace_residue(scale, 2 << bit, 1 << bit))
    for value in [math.ceil(scale * depth) for depth in (0.5, 1.0, 1.6, 2.0)]:
        extra[f"|X| ≥ {value}"] = (magnitude >= value, 2 * math.exp(-value / scale) / (1 + q))
    edges = laplace_edges(scale)
    return compare_integers(sample, edges, laplace_at_most(scale, edges), extra)


def fit_gaussian(sigma: float, sample: Integers) -> Comparison:
    """Cells and half-lines, zero, the sign and parity."""
    reach = np.array([sigma * depth for depth in (0.05, 0.15, 0.3, 0.5, 0.8, 1, 1.3, 1.7, 2.2, 3, 4)])
    positive = np.unique(np.concatenate([np.arange(0, 6), reach.astype(np.int64)]))
    edges = np.unique(np.concatenate([-positive - 1, positive]))
    extra: dict[str, tuple[npt.NDArray[np.bool_], float]] = {}
    if sigma < 5000:
        support = np.arange(-math.ceil(14 * sigma) - 8, math.ceil(14 * sigma) + 9)
        weights = np.exp(-0.5 * (support / sigma) ** 2)
        weights /= weights.sum()
        at_most = np.minimum(np.cumsum(weights)[edges - support[0]], 1.0)
        for value in [math.ceil(sigma * depth) for depth in (1.0, 1.5, 2.0)]:
            tail = float(weights[np.abs(support) >= value].sum())
            extra[f"|X| ≥ {value}"] = (np.abs(sample) >= value, tail)
        extra["X = 0"] = (sample == 0, float(weights[support == 0][0]))
        extra["X even"] = (sample % 2 == 0, float(weights[support % 2 == 0].sum()))
    else:
        # The sum is the integral up to a relative error of order sigma^-2.
        at_most = norm.cdf((edges + 0.5) / sigma)
        for value in [math.ceil(sigma * depth) for depth in (1.0, 1.5, 2.0)]:
            tail = 2 * float(norm.sf((value - 0.5) / sigma))
            extra[f"|X| ≥ {value}"] = (np.abs(sample) >= value, tail)
        extra["X even"] = (sample % 2 == 0, 0.5)
    return compare_integers(sample, edges, at_most, extra)


WRONG_LAPLACE: dict[str, tuple[Sampler, list[float]]] = {
    "scale 1 % too small": (lambda s, n: draw_laplace(s * 0.99, n), [2.5, 10.0, 1000.0, 2.0**30]),
    "scale 1 % too large": (lambda s, n: draw_laplace(s * 1.01, n), [2.5, 10.0, 1000.0, 2.0**30]),
    "sign biased by 1 %": (
        lambda s, n: np.where(np.arange(n) % 50 == 0, np.abs(draw_laplace(s, n)), draw_laplace(s, n)),
        [1.0, 10.0, 2.0**40],
    ),
    "zero counted twice": (
        # A sign and a geometric magnitude without the rejection of minus zero.
        lambda s, n: np.trunc(np.log1p(-np.abs(uniform(n))) * s * np.sign(uniform(n))).astype(np.int64),
        [1.0, 2.5, 10.0],
    ),
    "half rounded to even": (
        lambda s, n: np.rint(draw_laplace(2 * s, n) / 2).astype(np.int64),
        [1.0, 10.0, 1000.0, 2.0**40],
    ),
    "continuous noise rounded": (
        lambda s, n: np.rint(np.log1p(-np.abs(uniform(n))) * s * np.sign(uniform(n))).astype(np.int64),
        [1.0, 2.5],
    ),
    "low part forgotten": (lambda s, n: draw_laplace(s, n) >> 10 << 10, [2.0**30, 2.0**40]),
}  # fmt: skip
WRONG_GAUSSIAN: dict[str, tuple[Sampler, list[float]]] = {
    "sigma 1 % too small": (lambda s, n: draw_gaussian(s * 0.99, n), [2.5, 1000.0, 2.0**30]),
    "sign biased by 1 %": (
        lambda s, n: np.where(np.arange(n) % 50 == 0, np.abs(draw_gaussian(s, n)), draw_gaussian(s, n)),
        [2.5, 2.0**30],
    ),
    "half rounded to even": (
        lambda s, n: np.rint(draw_gaussian(2 * s, n) / 2).astype(np.int64),
        [1.0, 1000.0],
    ),
    "Laplace noise": (draw_laplace, [1.0, 1000.0]),
    "one step of the table too far": (
        lambda s, n: draw_gaussian(s, n) + (draw_gaussian(s, n) > s),
        [1.0, 2.5, 10.0],
    ),
    "low part forgotten": (lambda s, n: draw_gaussian(s, n) >> 1 << 1, [1500.0, 2.0**40]),
    "negative values begin with 0": (
        # The mirror of the half line without its zero is the half line itself.
        lambda s, n: draw_gaussian(s, n) + (draw_gaussian(s, n) < 0),
        [1.0, 10.0],
    ),
    "zero counted too often": (
        # A sixteenth of the draws are replaced by zero.
        lambda s, n: np.where(np.arange(n) % 16 == 0, 0, draw_gaussian(s, n)),
        [1.0, 2.5],
    ),
}  # fmt: skip


def uniform(n: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in (−1, 1) for the wrong versions."""
    return SYSTEM.words("", 0, n, range(n), 0, 1)[0].view(np.int64) * 2.0**-63


def cases(wrong: dict[str, tuple[Sampler, list[float]]]) -> list[Any]:
    """All pairs of a wrong version and a scale at which it must be refused."""
    return thinned([pytest.param(name, scale) for name, (_, scales) in wrong.items() for scale in scales], 2)


@pytest.mark.parametrize(
    "scale", [0.05, 0.3, 1.0, 2.5, 10.0, 1000.0, 2.0**20, 2.0**20 + 1, 2.0**30, 2.0**40 * 1.3]
)
def test_laplace_fits(scale: float) -> None:
    """The shipped Laplace noise fits the exact distribution (α = 1e-9, n = 2^22)."""
    verdict = fit_laplace(scale, draw_laplace(scale, N))
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(("name", "scale"), cases(WRONG_LAPLACE))
def test_wrong_laplace_is_refused(name: str, scale: float) -> None:
    """A planted wrong version is refused at the same level and n."""
    assert not fit_laplace(scale, WRONG_LAPLACE[name][0](scale, N)).ok


@pytest.mark.parametrize(
    "sigma", [0.1, 0.3, 1.0, 2.5, 10.0, 1000.0, 1024.0, 1025.0, 1500.0, 2.0**20, 2.0**30, 2.0**40 * 1.3]
)
def test_gaussian_fits(sigma: float) -> None:
    """The shipped Gaussian noise fits the exact distribution (α = 1e-9, n = 2^21)."""
    verdict = fit_gaussian(sigma, draw_gaussian(sigma, N // 2))
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(("name", "sigma"), cases(WRONG_GAUSSIAN))
def test_wrong_gaussian_is_refused(name: str, sigma: float) -> None:
    """A planted wrong version is refused at the same level and n."""
    assert not fit_gaussian(sigma, WRONG_GAUSSIAN[name][0](sigma, N // 2)).ok


def test_per_element_scales_fit() -> None:
    """Columns of different scales each fit their own distribution (α = 1e-9, n = 2^20 a column)."""
    scales = np.array([0.5, 3.0, 2.0**25])
    sample = laplace(current(), "test", 0, scales, (N // 4, 3))
    sigmas = gaussian(current(), "test", 0, scales, (N // 8, 3))
    for column, scale in enumerate(scales.tolist()):
        assert fit_laplace(scale, sample[:, column]).ok
        assert fit_gaussian(scale, sigmas[:, column]).ok
        assert not fit_laplace(scale, sample[:, column - 1]).ok


@pytest.mark.parametrize("scale", [2.5, 2.0**30])
def test_reference_fits_by_itself(scale: float) -> None:
    """The reference alone fits (α = 1e-9, n = 10,000) and a scale off by a fifth is refused."""
    words = iter(SYSTEM.words("", 0, 40_000, range(40_000), 0, 1)[0].tolist())
    sample = np.array([reference.laplace(Fraction(scale), words) for _ in range(10_000)])
    assert fit_laplace(scale, sample).ok
    assert not fit_laplace(scale * 1.2, sample).ok


@pytest.mark.parametrize("scale", [1.0, 1000.0, 2.0**20, 2.0**40])
def test_undecided_draws_are_rare(scale: float) -> None:
    """At most one Laplace draw in 2^18 is undecided (α = 1e-9, n = 2^22); one in 2^14 is refused."""
    part, _, shift = kernels.constants(scale)
    out = np.empty(N, dtype=np.int64)
    words = SYSTEM.words("", 0, N, range(N), 0, 2)
    if shift:
        undecided = kernels.fill_laplace_large(words[0], words[1], part, shift, out)
    else:
        undecided = kernels.fill_laplace_small(words[0], scale, out)
    assert undecided == np.count_nonzero(out == kernels.UNDECIDED)
    assert binom.sf(undecided - 1, N, 2.0**-18) >= ALPHA
    assert binom.sf(round(N * 2.0**-14) - 1, N, 2.0**-18) < ALPHA


@pytest.mark.parametrize("sigma", [0.1, 1.0, 1024.0, 1500.0, 2.0**40])
def test_gaussian_attempts_are_nearly_always_kept_and_decided(sigma: float) -> None:
    """At most 1 in 2^20 is undecided and 1 in 512 rejected (α = 1e-9, n = 2^22); 8 and 2 times as many are refused."""
    table = table_of(sigma)
    out = np.empty(N, dtype=np.int64)
    words = SYSTEM.words("", 0, N, range(N), 0, table.leading)
    left = kernels.fill_gaussian(words, *table[2:], out)
    undecided, rejected = (np.count_nonzero(out == each) for each in (kernels.UNDECIDED, kernels.REJECTED))
    assert left == undecided + rejected
    for found, most, wrong in ((undecided, 2.0**-20, 8), (rejected, 2.0**-9, 2)):
        assert binom.sf(found - 1, N, most) >= ALPHA
        assert binom.sf(round(N * most * wrong) - 1, N, most) < ALPHA


def test_laplace_closed_forms_match_the_distribution() -> None:
    """Variance, mean magnitude, quantiles and radii agree with summation."""
    for scale in (0.05, 0.4, 1.0, 7.3, 250.0):
        support = np.arange(-20_000, 20_001)
        weights = np.exp(-np.abs(support) / scale)
        weights /= weights.sum()
        assert variance_laplace(scale) == pytest.approx(float(weights @ support.astype(float) ** 2), rel=1e-9)
        assert expected_absolute_laplace(scale) == pytest.approx(float(weights @ np.abs(support)), rel=1e-9)
        at_most = np.cumsum(weights)
        inside = at_most[20_000:] - np.concatenate([at_most[:20_000][::-1], [0.0]])
        for probability in (0.01, 0.2, 0.51, 0.77, 0.95, 0.999):
            assert quantile_laplace(scale, probability) == support[np.searchsorted(at_most, probability)]
            assert radius_laplace(scale, probability) == np.searchsorted(inside, probability)
    assert variance_laplace(1e-9) == expected_absolute_laplace(1e-9) == 0.0
    assert variance_laplace(Fraction(2**40)) == pytest.approx(2.0**81)


def test_gaussian_closed_forms_match_the_distribution() -> None:
    """Moments agree with summation on both sides of the switch to the expansion."""
    for sigma in (0.05, 0.5, 3.0, 31.9, 32.1, 400.0):
        support = np.arange(-10_000, 10_001)
        weights = np.exp(-0.5 * (support / sigma) ** 2)
        weights /= weights.sum()
        assert variance_gaussian(sigma) == pytest.approx(
            float(weights @ support.astype(float) ** 2), rel=1e-9
        )
        assert expected_absolute_gaussian(sigma) == pytest.approx(float(weights @ np.abs(support)), rel=1e-9)


def test_the_statistical_test_keeps_its_level() -> None:
    """The chance of a refusal under the null, computed exactly for one event, is at most α."""
    draws, probability = 5000, 0.3
    counts = np.arange(draws + 1)
    tails = 2 * np.minimum(binom.cdf(counts, draws, probability), binom.sf(counts - 1, draws, probability))
    assert binom.pmf(counts, draws, probability)[tails < ALPHA].sum() <= ALPHA
    assert compare_counts({"fair": (1500, 0.3)}, draws).ok
    assert not compare_counts({"fair": (1500, 0.3), "off": (1750, 0.3)}, draws).ok
