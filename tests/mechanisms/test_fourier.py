"""Fourier: orthonormal rows, what windows lose by enumeration, the two ways to charge, and reconstruction."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import tidegate as tg
from experiments.printed.optstream import PrintedFourier
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Fourier
from tidegate.mechanisms.optstream.fourier import ONE, real_fourier
from tidegate.testing.entropy import zero_noise


@pytest.mark.parametrize("w", [1, 2, 3, 7, 12, 48])
def test_the_transform_is_orthonormal(w):
    """All w rows are orthonormal, and the first one is the mean."""
    rows = real_fourier(w, w)
    assert np.allclose(rows @ rows.T, np.eye(w), atol=1e-12)
    assert np.allclose(rows[0], w**-0.5)


def losses(mechanism: Fourier):
    """(loss, charged) of every window of w steps and every change of its steps, exactly.

    The noise is Laplace and independent, so a change of the coefficients by a in L1 loses a/scale for some output.
    """
    w, columns = mechanism.window, mechanism.columns
    span, steps = mechanism.charges()
    scale = Fraction(mechanism.sum_scales)
    moves = [(0,) * columns]
    for column in range(columns):
        moves += [tuple(sign * (c == column) for c in range(columns)) for sign in (-1, 1)]
    for first in range(w):
        for change in product(moves, repeat=w):
            periods = np.zeros((2 * w, columns), dtype=np.int64)
            periods[first : first + w] = change
            touched = np.abs(periods).sum(axis=1).reshape(2, w) > 0
            moved = sum(int(np.abs(mechanism.rows @ half).sum()) for half in (periods[:w], periods[w:]))
            met = sum(bool(half.any()) for half in touched)
            charged = span * met + sum(int(steps[half].sum()) for half in touched)
            yield moved / scale, Fraction(charged, mechanism.units)


@pytest.mark.parametrize(
    "mechanism",
    [
        Fourier(tg.WEvent(epsilon="1", window=5), coefficients=1),
        Fourier(tg.WEvent(epsilon="1", window=5), coefficients=2),
        Fourier(tg.WEvent(epsilon="1", window=6), coefficients=4),
        Fourier(tg.WEvent(epsilon="1", window=6), coefficients=6),
        Fourier(tg.WEvent(epsilon="1", window=3), columns=2, coefficients=3),
    ],
    ids=["apart", "two", "together", "all", "moving between columns"],
)
def test_no_window_loses_more_than_it_is_charged(mechanism):
    """Every window, every change, moving units too: the loss is at most what the changed steps were charged, and ε."""
    for lost, charged in losses(mechanism):
        assert lost <= charged * mechanism.policy.budget.total
        assert lost <= 1


def test_the_scale_of_fixed_units_is_too_small_for_moving_ones():
    """The planted wrong version: a unit that is in another column at each step moves every coefficient of each."""
    moving = Fourier(tg.WEvent(epsilon="1", window=6), columns=6, coefficients=6)
    fixed = Fourier(tg.WEvent(epsilon="1", window=6, mobility="fixed"), columns=6, coefficients=6)
    change = int(np.abs(moving.rows @ np.eye(6, dtype=np.int64)).sum())  # column t changes at step t
    assert change / Fraction(moving.sum_scales) <= 1
    assert change / Fraction(fixed.sum_scales) > 1


def test_scales_are_those_of_the_review():
    """The smaller of √(2Kw) and the sum of the rows' L1 norms, a little more for rounded rows."""
    for count in range(1, 49):
        mechanism = Fourier(tg.WEvent(epsilon="1", window=48), coefficients=count)
        norms = np.abs(real_fourier(48, count)).sum()
        least = min(np.sqrt(2 * count * 48), norms)
        assert least * 0.999 <= mechanism.scale <= least * 1.001
    assert not Fourier(tg.WEvent(epsilon="1", window=48), coefficients=2).charges_period
    assert Fourier(tg.WEvent(epsilon="1", window=48), coefficients=3).charges_period


def test_all_coefficients_without_noise_are_the_stream():
    """Nothing is lost but the rounding of the rows."""
    rows = np.array([[500, 3], [20, 9], [31, 0], [44, 7], [5, 80]])
    with zero_noise():
        final = (
            Session(Fourier(tg.WEvent(epsilon="1", window=5), columns=2, coefficients=5))
            .push_batch(rows)
            .final
        )
    assert np.allclose(final.values, rows, atol=500 * 10 / ONE)


def test_low_frequencies_smooth_and_steps_show_the_last_period():
    """A period of one coefficient is its mean; until it ends, its steps show the mean of the one before."""
    with zero_noise():
        mechanism = Fourier(tg.WEvent(epsilon="1", window=4), coefficients=1)
        releases = Session(mechanism).push_batch([0, 4, 8, 4, 10, 10, 10, 10])
    assert np.allclose(releases.revised.values[:, 0], [4, 4, 4, 4, 10, 10, 10, 10], atol=1e-3)
    assert np.allclose(releases.values[:, 0], [0, 0, 0, 0, 4, 4, 4, 4], atol=1e-3)


def test_a_period_that_is_cut_short_borrows_from_the_one_before():
    """Steps that never came are taken from the last curve, so that the sums are of a whole period."""
    with zero_noise():
        session = Session(Fourier(tg.WEvent(epsilon="1", window=4), coefficients=1))
        session.push_batch([4, 4, 4, 4, 8, 8])
        assert np.allclose(session.finish().revised.values[:, 0], [6, 6], atol=1e-3)


def test_the_predicted_error_is_the_measured_one_and_chooses():
    """Within 10 % (n = 48,000 steps); a smooth profile needs few frequencies."""
    day = np.rint(500 + 200 * np.sin(np.arange(24) / 24 * 2 * np.pi)).astype(np.int64)
    mechanism = Fourier(tg.WEvent(epsilon="0.1", window=24), coefficients=5)
    rows = np.tile(day, 2000)[:, None]
    measured = np.abs(Session(mechanism).push_batch(rows).final.values - rows).mean()
    assert measured == pytest.approx(mechanism.predicted_error(day), rel=0.1)
    assert Fourier.from_profile(tg.WEvent(epsilon="1", window=24), day).coefficients in (2, 3)


def test_wrong_parameters_are_refused():
    """More coefficients than steps, none, or noise beyond the grid."""
    policy = tg.WEvent(epsilon="1", window=12)
    for options in ({"coefficients": 13}, {"coefficients": 0}, {"coefficients": 1.5}):
        with pytest.raises(InvalidParameter):
            Fourier(policy, **options)
    with pytest.raises(InvalidParameter, match="coarser grid"):
        Fourier(tg.WEvent(epsilon="1e-12", window=12))


def test_the_printed_transform_is_the_papers():
    """Noise of scale √K·Δ/ε on the real and imaginary parts of numpy's transform, divided by w on the way back."""
    w, count = 12, 4
    mechanism = PrintedFourier(tg.WEvent(epsilon="1", window=w), coefficients=count)
    rows = np.fft.rfft(np.eye(w))[:, :count].T
    parts = np.concatenate([rows.real[:1], np.stack([rows.real[1:], rows.imag[1:]], axis=1).reshape(-1, w)])
    for ours, theirs, scale in zip(mechanism.rows, parts, mechanism.sum_scales, strict=True):
        assert np.abs(ours / scale) == pytest.approx(np.abs(theirs) / count**0.5, abs=1e-4)


def test_the_printed_transform_loses_far_more_than_epsilon():
    """By enumeration of every change of a period; at the paper's parameters some change loses 40 times ε."""
    small = PrintedFourier(tg.WEvent(epsilon="1", window=6), coefficients=2)
    weighed = small.rows / small.sum_scales[:, None]
    assert max(np.abs(weighed @ np.array(change)).sum() for change in product((-1, 1), repeat=6)) > 2
    papers = PrintedFourier(tg.WEvent(epsilon="1", window=48), coefficients=10)
    weighed = papers.rows / papers.sum_scales[:, None]
    changes = (np.where(one + other >= 0, 1, -1) for one, other in product(weighed[:9], repeat=2))
    assert max(np.abs(weighed @ change).sum() for change in changes) > 20
