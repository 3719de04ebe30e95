"""Errors, curves and intervals of the papers' experiments."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


def mean_absolute_error(released: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """The mean of |released − true| over all cells.

    Examples
    --------
    >>> mean_absolute_error([[1, 5]], [[2, 3]])
    1.5
    """
    return float(np.abs(np.asarray(released, float) - np.asarray(truth, float)).mean())


def scaled_l1_error(released: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Σ|released − true| / Σ true: PeGaSus's scaled total error.

    Examples
    --------
    >>> scaled_l1_error([1, 5], [2, 3])
    0.6
    """
    true = np.asarray(truth, float)
    return float(np.abs(np.asarray(released, float) - true).sum() / max(true.sum(), 1e-12))


def roc(scores: npt.ArrayLike, happened: npt.ArrayLike) -> tuple[Values, Values]:
    """(false positive rates, true positive rates) as the threshold on the scores falls, from (0, 0) to (1, 1).

    Equal scores are accepted together.

    Examples
    --------
    >>> false, true = roc([3.0, 2.0, 1.0], [True, False, True])
    >>> false.tolist(), true.tolist()
    ([0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0])
    """
    values, truth = np.asarray(scores, float), np.asarray(happened, bool)
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    hits, misses = np.cumsum(truth[order])[ends], np.cumsum(~truth[order])[ends]
    return (
        np.concatenate([[0.0], misses / max(1, misses[-1])]),
        np.concatenate([[0.0], hits / max(1, hits[-1])]),
    )


def area_under(roc_curve: tuple[Values, Values]) -> float:
    """The area under a ROC curve: 0.5 for guessing, 1 for perfection.

    Examples
    --------
    >>> area_under(roc([3.0, 2.0, 1.0], [True, True, False]))
    1.0
    """
    false, true = roc_curve
    return float(np.trapezoid(true, false))


def interval_of_share(hits: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """An exact confidence interval (Clopper and Pearson) of the chance behind a share of runs.

    Examples
    --------
    >>> low, high = interval_of_share(5, 10)
    >>> round(low, 3), round(high, 3)
    (0.187, 0.813)
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = float(beta.ppf(tail, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high
