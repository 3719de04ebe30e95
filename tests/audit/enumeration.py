"""Audits by enumeration: every transcript of a small case of a known algorithm, with its exact chance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.audit import exact, models

from tidegate.audit.auditor import finding
from tidegate.audit.neighbours import Pair
from tidegate.audit.subjects import Configured, subject
from tidegate.audit.verdicts import CLEAN, VIOLATES, Finding
from tidegate.policy import Pure

SURELY = 1 + 1e-9  # an exact loss is accused only beyond rounding


def enumerated(
    audited: Any,
    *,
    seconds: float = 20.0,
    steps: int | None = None,
    pairs: Sequence[Pair] = (),
    name: str = "",
    seed: int | str = 0,
) -> Finding:
    """Enumerate the program of a known algorithm, or the one that the subject brings along."""
    looked, begun = subject(audited, None, name=name), time.monotonic()
    found = _largest(looked, seconds, steps, pairs, seed)
    if found is None:
        verdict = finding(looked, CLEAN, 0.0, "none", 0.0)
    else:
        one, other = found.chances
        words = f"the transcript {list(found.transcript)} has the chances {one:.4g} and {other:.4g}"
        verdict = finding(looked, VIOLATES, found.loss, "exact", 0.0, pair=found.pair, words=words)
    verdict.seconds, verdict.way = time.monotonic() - begun, looked.way
    return verdict


def _largest(
    looked: Any, seconds: float, steps: int | None, pairs: Sequence[Pair], seed: int | str
) -> exact.ExactLoss | None:
    """The largest loss, if it is beyond the claim."""
    program: exact.Program | None = getattr(looked, "program", None)
    own = isinstance(looked, Configured) and looked.policy == looked.mechanism.policy  # in whole numbers
    if program is None and own:
        program = models.model_of(looked.mechanism)
    budget = looked.policy.budget
    if program is None or not isinstance(budget, Pure):
        return None
    epsilon = float(budget.epsilon)
    window = looked.policy.window or 1
    steps = steps or (min(2 * window - 1, 6) if window > 1 else 2)
    given = [exact.largest_loss(program, pair, epsilon, radius=1) for pair in pairs]
    found = max(given, key=lambda each: each.loss, default=None)
    if found is None or found.loss <= epsilon * SURELY:
        found = exact.search(program, looked.policy, looked.columns, steps, epsilon, seconds, seed)
    return found if found.loss > epsilon * SURELY else None
