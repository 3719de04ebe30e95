"""Replay of accounts of the core: what released noise says was lost, against charges, which are data of the log.

The loss of every window is computed anew from the scales that releases state (`accounts.window_losses`). Charges are
added up window by window, spans once in each window that they meet, without the account that has judged them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit.accounts import SLACK, Problem, joined, replayed_streams, window_losses
from tidegate.audit.subjects import Stopwatch
from tidegate.core.account import Account
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.releases import Releases

Floats = npt.NDArray[np.float64]


def replay(mechanism: Any, steps: int, seconds: float = 60.0) -> tuple[Problem | None, npt.NDArray[np.int64]]:
    """The first wrong account over streams that publish often, rarely and in bursts; and that stream."""
    streams, watch = replayed_streams(mechanism, steps), Stopwatch()
    plan = [(rows, singly) for singly in (False, True) for rows in streams]
    for at, (rows, singly) in enumerate(plan * 3):
        if at >= len(plan) and watch.seconds() > seconds:
            break
        problem = check(mechanism, rows, singly=singly)
        if problem is not None:
            return problem, rows
    return None, streams[1]


def check(mechanism: Any, stream: npt.NDArray[np.int64], *, singly: bool = False) -> Problem | None:
    """Replay the account of one session on a stream, pushed as one batch or step by step."""
    log = MemoryLog()
    session = Session(mechanism, log)
    releases = joined(_singly(session, stream)) if singly else session.push_batch(stream)
    verdict = verify(log.rows())
    if not verdict.ok:
        return Problem(f"its log does not verify: {verdict}")
    if hasattr(mechanism, "account") and type(mechanism.account()) is not Account:
        return None  # judged by secrets, or by parts: what it verifies
    budget = float(mechanism.policy.budget.total)
    charged = charged_windows(mechanism, log, len(stream))
    if charged.max() > budget * SLACK:
        last = int(charged.argmax()) + 1
        return Problem(
            f"the window that ends at step {last} is charged more than the budget",
            float(charged.max() / budget),
        )
    found = window_losses(mechanism, releases)
    if found is None:
        return None
    lost = found[1]
    wrong = np.flatnonzero(lost > charged * SLACK)
    if wrong.size:
        at = int(wrong[np.argmax(lost[wrong])])
        words = f"the window that ends at step {at + 1} lost {lost[at]:.4g} by its noise, charged {charged[at]:.4g}"
        return Problem(words, float(lost[at] / budget))
    return None


def _singly(session: Session, stream: npt.NDArray[np.int64]) -> list[Any]:
    found = []
    for row in stream:
        released = session.push(row)
        found.append(released[0] if isinstance(released, Releases) else released)
    return found


def charged_windows(mechanism: Any, log: MemoryLog, steps: int) -> Floats:
    """What the window that ends at each step was charged, in ε or ρ, by plain addition."""
    units, spans = np.zeros(steps + 1), dict[Any, list[int]]()
    for row in log.rows():
        if row.last < row.first:
            continue
        ((_, charges),) = charges_of(row)
        units[charges.first : charges.last + 1] += charges.units
        spans.update({(law, ordinal): rest for law, ordinal, *rest in charges.spans.tolist() if rest[2]})
    window = mechanism.policy.window or steps
    found = np.zeros(steps)
    for last in range(1, steps + 1):
        first = max(1, last - window + 1)
        found[last - 1] = units[first : last + 1].sum()
        found[last - 1] += sum(cost for begin, end, cost in spans.values() if begin <= last and end >= first)
    return found * float(mechanism.policy.budget.total / mechanism.units)
