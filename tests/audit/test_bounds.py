from __future__ import annotations

from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tidegate.audit import bounds
from tidegate.policy import Approximate, Pure, ZeroConcentrated

PURE = Pure(Fraction(1))


@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([1e-3, 1e-6, 1e-12]))
def test_clopper_pearson_inverts_the_exact_tails(trials: int, share: float, error: float) -> None:
    """At the bounds themselves the binomial tails have at most the stated error."""
    count = round(share * trials)
    low = float(bounds.at_least(count, trials, error))
    high = float(bounds.at_most(count, trials, error))
    assert 0 <= low <= count / trials <= high <= 1
    if count:
        assert binom.sf(count - 1, trials, low) <= error * (1 + 1e-6)
    if count < trials:
        assert binom.cdf(count, trials, high) <= error * (1 + 1e-6)


def test_bounds_fail_as_rarely_as_they_say() -> None:
    """Summed over all outcomes, the chance that the lower bound exceeds the truth is at most the error."""
    trials, truth, error = 400, 0.07, 1e-3
    counts = np.arange(trials + 1)
    wrong = bounds.at_least(counts, trials, error) > truth
    assert 0 < binom.pmf(counts, trials, truth)[wrong].sum() <= error


def test_a_pure_loss_is_the_logarithm_of_the_ratio() -> None:
    """ln(p/q), and with δ ln((p − δ)/q); nothing where the event is rarer."""
    assert float(bounds.implied(0.5, 0.1, PURE)) == pytest.approx(np.log(5))
    assert float(bounds.implied(0.5, 0.1, Approximate(Fraction(1), Fraction(1, 10)))) == pytest.approx(
        np.log(4)
    )
    assert float(bounds.implied(0.1, 0.5, PURE)) == 0


@given(st.floats(0.05, 3))
def test_a_concentrated_loss_never_exceeds_that_of_the_gaussian(rho: float) -> None:
    """Half-lines of Gaussian noise with ρ = μ²/2 imply at most ρ, and some of them nearly that."""
    from scipy.stats import norm

    shift = np.sqrt(2 * rho)
    marks = np.linspace(-4, 4 + 3 * shift, 200)
    implied = bounds.implied(norm.sf(marks - shift), norm.sf(marks), ZeroConcentrated(Fraction(1)))
    assert implied.max() <= rho * (1 + 1e-6)
    assert implied.max() >= 0.6 * rho


def test_more_trials_prove_more() -> None:
    """The same shares of more transcripts give a larger bound, which stays below the truth."""
    few = float(bounds.proved(730, 270, 1000, 1e-6, PURE))
    many = float(bounds.proved(730_000, 270_000, 1_000_000, 1e-6, PURE))
    assert 0 < few < many < np.log(730 / 270)


def test_the_mean_of_scores_proves_nearly_all_of_gaussian_noise_and_never_more() -> None:
    """ρ = ½ of unit normals one apart: 0.45 is proved with the true score, less with others, 0 without a difference."""
    normal = NormalDist()
    grid = np.array([normal.inv_cdf((at + 0.5) / 200_000) for at in range(200_000)])
    for score, least in ((lambda x: x - 0.5, 0.45), (lambda x: 0.5 * x, 0.3), (lambda x: -x, 0.0)):
        mean = bounds.Mean(4.0)
        mean.add(0, score(grid + 1))
        mean.add(1, score(grid))
        proved = mean.proved(1e-6)
        assert least <= proved <= 0.5
        assert proved <= mean.estimate
    same = bounds.Mean(4.0)
    same.add(0, grid - 0.5)
    same.add(1, grid - 0.5)
    assert same.proved(1e-6) == 0.0
    assert bounds.Mean(4.0).proved(1e-6) == 0.0


def test_the_mean_of_scores_errs_rarely() -> None:
    """1,000 proofs at error 0.1 on two equal coins' scores: exact binomial tails; the plain means would err often."""
    choose = np.random.default_rng(5)
    wrong = naive = 0
    for _ in range(1000):
        mean = bounds.Mean(1.0)
        mean.add(0, choose.choice([-1.0, 1.0], 400))
        mean.add(1, choose.choice([-1.0, 1.0], 400) - 0.51)  # E e^f is about 1: nothing is lost
        wrong += mean.proved(0.1) > 0.01
        naive += mean.estimate > 0.01
    assert wrong <= 140
    assert naive > 200
