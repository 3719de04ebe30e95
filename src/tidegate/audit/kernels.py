"""Compiled parts of the auditor: the additive classifier, and whole runs of BD and BA one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.mechanisms.kernels.loops import DONE, Account
from tidegate.mechanisms.w_event.kernels import Memory, release


@kernel
def add_up(codes: Any, weights: Any, scores: Any) -> None:
    """The score of each transcript: the sum of the weights of its bins."""
    scores[:] = 0.0
    for feature in range(codes.shape[0]):
        for at in range(codes.shape[1]):
            scores[at] += weights[feature, codes[feature, at]]


@kernel
def boost(codes: Any, labels: Any, sweeps: int, ridge: float, rate: float, weights: Any, scores: Any) -> None:
    """Additive logistic regression by Newton steps, feature after feature, bin by bin."""
    bins = weights.shape[1]
    gradient = np.zeros(bins)
    curvature = np.zeros(bins)
    for _ in range(sweeps):
        for feature in range(codes.shape[0]):
            gradient[:] = 0.0
            curvature[:] = ridge
            for at in range(codes.shape[1]):
                chance = 1.0 / (1.0 + np.exp(-scores[at]))
                code = codes[feature, at]
                gradient[code] += labels[at] - chance
                curvature[code] += chance * (1.0 - chance)
            for code in range(bins):
                move = rate * gradient[code] / curvature[code]
                gradient[code] = min(max(move, -2.0), 2.0)
                weights[feature, code] += gradient[code]
            for at in range(codes.shape[1]):
                scores[at] += gradient[codes[feature, at]]


@kernel
def replicate_publishing(
    rows: Any,
    rule: Any,
    score_words: Any,
    cell_words: Any,
    work: Any,
    account: Any,
    state: Any,
    values: Any,
    status: Any,
    shown: Any,
    decided: Any,
) -> None:
    """Many fresh runs of BD or BA on the same rows, each with words of its own: the mechanism's own loop.

    values is replicas × steps × columns, and shown, the scales, replicas × steps; a run that meets an undecided
    draw is left for the caller.
    """
    steps = rows.shape[0]
    source = np.empty(steps, dtype=np.int64)
    units = np.zeros(steps, dtype=np.int64)
    begun, opened = Memory(*state), Account(*account)
    entries, numbers = opened.entries.copy(), opened.numbers.copy()
    memory, paid, last = begun.memory.copy(), begun.paid.copy(), begun.last.copy()
    measured, scales = begun.measured.copy(), begun.scales.copy()
    for replica in range(values.shape[0]):
        units[:] = 0
        entries[:] = opened.entries
        numbers[:] = opened.numbers
        memory[:] = begun.memory
        paid[:] = begun.paid
        last[:] = begun.last
        measured[:] = begun.measured
        scales[:] = begun.scales
        _, reason = release(
            rows,
            0,
            DONE,
            1,
            rule,
            (score_words[replica], cell_words[replica]),
            None,
            work,
            (entries, numbers),
            (memory, paid, last, measured, scales, begun.group_of, begun.squares),
            (values[replica], status[replica], source, shown[replica], units),
        )
        decided[replica] = reason == DONE
