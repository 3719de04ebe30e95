"""Compiled parts of the auditor: the additive classifier, and whole runs of BD and BA one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.mechanisms.w_event import kernels as loop

_DONE = loop.DONE
_publish = loop.publish


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
    whole: float,
    score_scale: float,
    weights: Any,
    group_of: Any,
    score_words: Any,
    cell_words: Any,
    entries: Any,
    account: Any,
    memory: Any,
    paid: Any,
    repaid: Any,
    last: Any,
    groups: int,
    given: int,
    grid: float,
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
    noise = np.zeros(given, dtype=np.int64)
    my_entries, my_account, my_memory = entries.copy(), account.copy(), memory.copy()
    my_paid, my_last = paid.copy(), last.copy()
    measured, scales = np.zeros(groups, dtype=np.int64), np.zeros(groups)
    chosen, scores = np.zeros(groups, dtype=np.bool_), np.zeros(groups, dtype=np.int64)
    squares = np.zeros(0)
    for replica in range(values.shape[0]):
        units[:] = 0
        noise[:] = 0
        my_entries[:] = entries
        my_account[:] = account
        my_memory[:] = memory
        my_paid[:] = paid
        my_last[:] = last
        measured[:] = 0
        scales[:] = 0.0
        _, reason = _publish(
            rows,
            0,
            1,
            rule,
            whole,
            score_scale,
            weights,
            group_of,
            score_words[replica],
            cell_words[replica],
            noise,
            my_entries,
            my_account,
            my_memory,
            my_paid,
            repaid,
            my_last,
            measured,
            scales,
            squares,
            chosen,
            scores,
            grid,
            values[replica],
            status[replica],
            source,
            shown[replica],
            units,
        )
        decided[replica] = reason == _DONE
