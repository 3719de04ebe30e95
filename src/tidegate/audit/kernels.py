"""Compiled parts of the auditor: the classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def add_up(codes: Any, weights: Any, scores: Any) -> None:
    """The score of each transcript: the sum of the weights of its bins."""
    scores[:] = 0.0
    for feature in range(codes.shape[0]):
        for at in range(codes.shape[1]):
            scores[at] += weights[feature, codes[feature, at]]


@kernel
def boost(codes: Any, labels: Any, sweeps: int, ridge: float, rate: float, weights: Any, scores: Any) -> None:
    """Additive logistic regression with a ridge on every weight, by Newton steps, feature after feature, bin by bin."""
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
                move = rate * (gradient[code] - ridge * weights[feature, code]) / curvature[code]
                gradient[code] = min(max(move, -2.0), 2.0)
                weights[feature, code] += gradient[code]
            for at in range(codes.shape[1]):
                scores[at] += gradient[codes[feature, at]]


@kernel
def add_trees(codes: Any, features: Any, cuts: Any, counts: Any, scores: Any) -> None:
    """Add to the score of each transcript the ends that it comes to."""
    asked = features.shape[1]
    for at in range(codes.shape[1]):
        for tree in range(features.shape[0]):
            node = 0
            while node < asked:
                feature = features[tree, node]
                right = feature >= 0 and codes[feature, at] > cuts[tree, node]
                node = 2 * node + (2 if right else 1)
            scores[at] += counts[tree, node - asked]


@kernel
def grow_trees(
    codes: Any,
    labels: Any,
    scores: Any,
    rate: float,
    ridge: float,
    least: int,
    features: Any,
    cuts: Any,
    counts: Any,
) -> None:
    """Gradient boosting: each tree asks, level by level, what lowers the logistic loss most; scores are moved along."""
    asked, many, bins = features.shape[1], codes.shape[1], 256
    node = np.zeros(many, dtype=np.int64)
    slope, bend = np.zeros(many), np.zeros(many)
    for tree in range(features.shape[0]):
        for at in range(many):
            chance = 1.0 / (1.0 + np.exp(-scores[at]))
            slope[at], bend[at] = labels[at] - chance, chance * (1.0 - chance)
            node[at] = 0
        first = 0
        while first < asked:
            width = first + 1  # nodes of a level: 1, 2, 4, …
            best = np.full(width, 1e-6)
            slopes, bends = np.zeros((width, bins)), np.zeros((width, bins))
            filled = np.zeros((width, bins), dtype=np.int64)
            for feature in range(codes.shape[0]):
                slopes[:] = 0.0
                bends[:] = 0.0
                filled[:] = 0
                for at in range(many):
                    own, code = node[at] - first, codes[feature, at]
                    slopes[own, code] += slope[at]
                    bends[own, code] += bend[at]
                    filled[own, code] += 1
                for own in range(width):
                    all_slope, all_bend, in_all = slopes[own].sum(), bends[own].sum(), filled[own].sum()
                    left_slope, left_bend, left = 0.0, 0.0, 0
                    before = all_slope * all_slope / (all_bend + ridge)
                    for code in range(bins - 1):
                        if filled[own, code] == 0:
                            continue
                        left_slope += slopes[own, code]
                        left_bend += bends[own, code]
                        left += filled[own, code]
                        if in_all - left < least:
                            break
                        if left < least:
                            continue
                        right_slope, right_bend = all_slope - left_slope, all_bend - left_bend
                        gain = left_slope * left_slope / (left_bend + ridge) - before
                        gain += right_slope * right_slope / (right_bend + ridge)
                        if gain > best[own]:
                            best[own] = gain
                            features[tree, first + own], cuts[tree, first + own] = feature, code
            for at in range(many):
                feature = features[tree, node[at]]
                right = feature >= 0 and codes[feature, at] > cuts[tree, node[at]]
                node[at] = 2 * node[at] + (2 if right else 1)
            first = 2 * first + 1
        end_slope, end_bend = np.zeros(asked + 1), np.zeros(asked + 1)
        for at in range(many):
            end_slope[node[at] - asked] += slope[at]
            end_bend[node[at] - asked] += bend[at]
        for end in range(asked + 1):
            move = rate * end_slope[end] / (end_bend[end] + ridge)
            counts[tree, end] = min(max(move, -2.0), 2.0)
        for at in range(many):
            scores[at] += counts[tree, node[at] - asked]
