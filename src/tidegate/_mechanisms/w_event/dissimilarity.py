"""How far a step is from the last publication, in compiled code, and which column groups therefore publish."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import lean

L1, LARGEST, GIVEN = 0, 1, 2  # which dissimilarity; GIVEN: the caller has computed the scores
MOST = 2**61  # of a score, so that sums stay within 64 bits; cutting it off does not raise its sensitivity


@lean
def score(row: Any, last: Any, group_of: Any, measure: int, scores: Any) -> None:
    """The dissimilarity of each column group."""
    scores[:] = 0
    if scores.size == 1 and measure == L1:
        total = scores[0]
        for start in range(0, row.size, 64):  # 64 differences below 2^55 cannot leave 64 bits
            piece = scores[0] * 0
            for column in range(start, min(start + 64, row.size)):
                piece += abs(row[column] - last[column])
            total = min(total + piece, MOST)
        scores[0] = total
    elif measure == L1:
        for column in range(row.size):
            group = group_of[column]
            scores[group] = min(scores[group] + abs(row[column] - last[column]), MOST)
    elif measure == LARGEST:
        for column in range(row.size):
            group = group_of[column]
            scores[group] = max(scores[group], abs(row[column] - last[column]))
