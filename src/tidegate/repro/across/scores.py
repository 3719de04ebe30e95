"""Errors of one configuration on one stream: of the values of steps, of window sums and of running sums."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import TidegateError
from tidegate.mechanisms import Mechanism
from tidegate.releases import Releases
from tidegate.repro.metrics import cut_errors

Matrix = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
AT_ONCE, LATER, WINDOWS, SUMS = "at once", "delayed", "window sums", "running sums"
STATISTICS = (AT_ONCE, LATER, WINDOWS, SUMS)
WINDOW = 24  # steps of the window sums
SUMMED = ("Uniform", "Sample")  # whose sums are compared with those of mechanisms made for sums


def errors(mechanism: Mechanism, truth: Matrix) -> dict[str, tuple[float, float]]:
    """(mean absolute, mean relative) error of one run for each statistic it answers; values are cut at 0.

    Examples
    --------
    >>> from tidegate.mechanisms import Uniform
    >>> from tidegate.policy import WEvent
    >>> sorted(errors(Uniform(WEvent(epsilon="1", w=2)), np.ones((50, 1), dtype=np.int64)))
    ['at once', 'running sums', 'window sums']
    """
    releases = mechanism.start().push_batch(truth)
    if mechanism.statistic == "sums":
        return {SUMS: cut_errors(releases.values, np.cumsum(truth, axis=0))}
    if mechanism.statistic == "windows":
        return {WINDOWS: cut_errors(releases.values, _windows(truth, getattr(mechanism, "window", WINDOW)))}
    hierarchy = mechanism.forest

    def values(given: Releases) -> Values:
        """Those of the leaves, where a hierarchy is released."""
        return given.values if hierarchy is None else given.values[:, list(hierarchy.leaves)]

    found = {AT_ONCE: cut_errors(values(releases), truth)}
    revised = releases.revised
    if revised is not None and len(revised):
        first = revised.first_step - 1
        found[LATER] = cut_errors(values(revised), truth[first : first + len(revised)])
    if type(mechanism).__name__ in SUMMED:  # not cut at 0 before they are summed: that would add up
        found[WINDOWS] = cut_errors(_windows(releases.values, WINDOW), _windows(truth, WINDOW))
        found[SUMS] = cut_errors(np.cumsum(releases.values, axis=0), np.cumsum(truth, axis=0))
    return found


def repeated(
    mechanism: Mechanism, truth: Matrix, least: int, most: int, seconds: float
) -> dict[str, npt.NDArray[np.float64]]:
    """Errors (runs × 2) of each statistic over `most` runs, or over as many as the time allows and at least `least`."""
    began = time.process_time()
    runs: dict[str, list[tuple[float, float]]] = {}
    for run in range(most):
        if run >= least and time.process_time() - began > seconds:
            break
        for statistic, pair in errors(mechanism, truth).items():
            runs.setdefault(statistic, []).append(pair)
    return {statistic: np.array(pairs) for statistic, pairs in runs.items()}


def expected(mechanism: Mechanism, made_up: Matrix) -> dict[str, float]:
    """The absolute errors on a made-up stream; none where the mechanism does not run on it."""
    try:
        return {statistic: pair[0] for statistic, pair in errors(mechanism, made_up).items()}
    except TidegateError:
        return {}


def _windows(values: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """The sum of the last steps at each step, of fewer at the beginning."""
    sums = np.cumsum(values, axis=0)
    sums[length:] -= sums[:-length].copy()
    return sums
