"""Replay of accounts: what released noise says was lost, against charges, which are data.

The loss of every window is recomputed from the scales that releases state and from the policy's own sensitivity, that
of steps which share noise from its law (`shared`). Charges are added up window by window, spans once in each window that
they meet, without the account that has judged them. Neither may exceed the budget, and no window may lose more than it
was charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import direct, projections, shared
from tidegate.audit.neighbours import BIG, chooser
from tidegate.audit.subjects import Stopwatch
from tidegate.core.account import Account
from tidegate.core.charges import Charges
from tidegate.core.errors import Halted
from tidegate.core.log import MemoryLog
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.mechanisms.w_event import pan_private
from tidegate.mechanisms.w_event.pan_private import SINGLE
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.noise import current
from tidegate.releases import Release, Releases, Status

Floats = npt.NDArray[np.float64]
SLACK = 1 + 1e-9  # scales and spends were rounded to floats
REPEATS = 3  # of all streams, while there is time


@dataclass(frozen=True)
class Problem:
    """A step or window whose account is wrong.

    Attributes
    ----------
    words
        What is wrong.
    loss
        The loss of the worst window as a multiple of the budget, where it is known; otherwise infinite.
    """

    words: str
    loss: float = float("inf")


def replay(mechanism: Any, steps: int, seconds: float = 60.0) -> tuple[Problem | None, npt.NDArray[np.int64]]:
    """The worst account over streams that publish often, rarely and in bursts; and that stream.

    Every stream is pushed as a batch and step by step, and more often as long as there is time.
    """
    streams, watch = replayed_streams(mechanism, steps), Stopwatch()
    plan = [(rows, singly) for singly in (False, True) for rows in streams]
    worst, where = None, streams[1]
    for at, (rows, singly) in enumerate(plan * REPEATS):
        if at >= len(plan) and watch.seconds() > seconds:
            break
        problem = check(mechanism, rows, singly=singly)
        if problem is not None and (worst is None or _larger(problem, worst)):
            worst, where = problem, rows
    if worst is None:  # what no window of these streams shows
        priced = shared.undercharged(mechanism)
        if priced is not None and priced.times > SLACK:
            lost = priced.times * priced.part  # of a window that is full of such measurements
            worst = Problem(priced.words, lost if lost > SLACK else priced.times)
        moved = projections.lost(mechanism)
        if worst is None and moved > SLACK:
            words = "sums of a period, of which a unit moves many a little, have noise for less than it moves them"
            worst = Problem(words, moved)
    return worst, where


def check(mechanism: Any, stream: npt.NDArray[np.int64], *, singly: bool = False) -> Problem | None:
    """Replay the account of one stream, pushed as one batch or step by step.

    It runs twice: directly, where nothing is refused, and in a session, whose log has to verify. That its own account
    refuses it says less than by how much it is overspent.
    """
    found = direct.recorded(mechanism, stream, singly=singly)
    printed = isinstance(mechanism, direct.Printed)
    own = None if printed else getattr(mechanism, "account", None)
    if (
        own is None or type(own()) is Account
    ):  # others are judged by secrets, or by parts: what their logs verify
        releases = joined([each[0] for each in found.releases]) if singly else found.releases[0]
        problem = _replayed(mechanism, found.charges, releases)
        if problem is not None:
            return problem
    return _intruded(mechanism, stream) or (None if printed else _logged(mechanism, stream, singly))


def _replayed(mechanism: Any, charges: Charges, releases: Any) -> Problem | None:
    budget = float(mechanism.policy.budget.total)
    charged = charged_windows(mechanism, charges)
    fullest, last = float(charged.max() / budget), int(charged.argmax()) + 1
    if fullest > SLACK:
        return Problem(f"the window that ends at step {last} is charged more than the budget", fullest)
    found = window_losses(mechanism, releases)
    if found is None:
        return None
    lost = found[1]
    wrong = np.flatnonzero(lost > charged * SLACK)
    if not wrong.size:
        return None
    at = int(wrong[np.argmax(lost[wrong])])
    words = (
        f"the window that ends at step {at + 1} lost {lost[at]:.4g} by its noise, charged {charged[at]:.4g}"
    )
    times = float(lost[at] / budget)
    return Problem(
        words, times if times > SLACK else float("inf") if not charged[at] else float(lost[at] / charged[at])
    )


def charged_windows(mechanism: Any, charges: Charges) -> Floats:
    """What the window that ends at each step was charged, in ε or ρ, by plain addition."""
    steps = charges.last
    units = np.zeros(steps + 1)
    units[charges.first :] = charges.units
    spans = {(law, ordinal): rest for law, ordinal, *rest in charges.spans.tolist() if rest[2]}
    window = mechanism.policy.window or steps
    found = np.zeros(steps)
    for last in range(1, steps + 1):
        first = max(1, last - window + 1)
        found[last - 1] = units[first : last + 1].sum()
        found[last - 1] += sum(cost for begin, end, cost in spans.values() if begin <= last and end >= first)
    return found * float(mechanism.policy.budget.total / mechanism.units)


def _logged(mechanism: Any, stream: npt.NDArray[np.int64], singly: bool) -> Problem | None:
    """The log of a session must verify."""
    log = MemoryLog()
    session = Session(mechanism, log)
    try:
        if singly:
            for row in stream:
                session.push(row)
        else:
            session.push_batch(stream)
    except Halted:
        return Problem("its charges depend on data, and its own account refuses them")
    verdict = verify(log.rows())
    return None if verdict.ok else Problem(f"its log does not verify: {verdict}")


def joined(pushed: Sequence[Release]) -> Releases:
    """Releases of single steps as those of one batch."""
    columns = [(each.status, each.source, each.scale, each.units) for each in pushed]
    status, source, scale, units = (np.array(column) for column in zip(*columns, strict=True))
    values = np.array([each.values for each in pushed])
    return Releases(pushed[0].step, values, status, source, scale, units, pushed[0].unit)


def replayed_streams(mechanism: Any, steps: int) -> list[npt.NDArray[np.int64]]:
    """Streams that publish often, rarely and in bursts."""
    time = np.arange(steps)
    shapes = [
        np.zeros(steps, dtype=np.int64),
        BIG * (time + 1),
        np.where(time % 3 == 2, BIG * (1 + time // 3), BIG * (time // 3)),
        np.where(time < steps // 2, 0, BIG * (time + 1)),
    ]
    rests = range(1, min(mechanism.policy.window or 2, 9))  # rest, then as many publications as there can be
    shapes += [np.where(time % (3 * quiet) < quiet, 0, BIG * (time + 1)) for quiet in rests]
    columns = mechanism.columns
    streams = [np.repeat(shape[:, np.newaxis], columns, axis=1) for shape in shapes]
    if columns > 1:  # columns that move one after the other
        streams += [
            np.stack([np.roll(shape, 2 * at) for at in range(columns)], axis=1) for shape in shapes[2:]
        ]
        streams.append(BIG * np.stack([(time + at) // columns for at in range(columns)], axis=1))
    streams.append(_irregular(steps, columns))
    return streams


def _irregular(steps: int, columns: int) -> npt.NDArray[np.int64]:
    """Columns that jump now and then, each at times of its own."""
    choose = chooser("irregular")
    jumps = [choose(2 * BIG) - BIG if choose(5) == 0 else 0 for _ in range(steps * columns)]
    return np.cumsum(np.array(jumps, dtype=np.int64).reshape(steps, columns), axis=0)


def _larger(one: Problem, other: Problem) -> bool:
    return np.isfinite(one.loss) and (not np.isfinite(other.loss) or one.loss > other.loss)


def window_losses(mechanism: Any, releases: Releases) -> tuple[Floats, Floats] | None:
    """What each step has to be charged at least, and what the window that ends at each step has lost."""
    found = shared.losses(mechanism, releases)
    if found is None:
        return None
    alone, together = found
    window = min(mechanism.policy.window or len(alone), len(alone))
    sums = np.convolve(alone, np.ones(window))[: len(alone)]
    due = alone.copy()
    for lost in together:
        sums += lost.windows(len(alone), window)
        due[lost.at[0]] += lost.charged
    return due, sums


def _intruded(mechanism: Any, stream: npt.NDArray[np.int64]) -> Problem | None:
    """Pan-private: tests and publications of a window, and what an unnoticed look at an unpublished step costs besides.

    The cells of a step that is not published have the noise of its publication, and no publication pays for them.
    """
    if not isinstance(mechanism, Publishing) or mechanism.pan_private != SINGLE:
        return None
    state, noise = mechanism.begin(1), Draws(current())
    change = float(mechanism.sensitivity)
    losses, looks = [], []
    for step, row in enumerate(stream, 1):
        pan_private.open_step(mechanism, state, step, noise)
        amount = int(state.numbers[pan_private.AMOUNT])
        offered = change * amount / mechanism.unit_scale if amount > 0 else 0.0
        output = mechanism.advance(state, row[np.newaxis].copy(), step, noise)
        fresh = output.status[0] == Status.FRESH
        losses.append(change / mechanism.score_scale + (offered if fresh else 0.0))
        looks.append(0.0 if fresh else offered)
    window, budget = mechanism.policy.window or len(losses), float(mechanism.policy.budget.total)
    worst, last = 0.0, 0
    for end in range(1, len(losses) + 1):
        inside = slice(max(0, end - window), end)
        total = sum(losses[inside]) + max(looks[inside])
        if total > worst:
            worst, last = total, end
    if worst / budget > SLACK:
        words = f"with one look at its state it loses {worst / budget:.4g} times the budget"
        return Problem(f"{words} in the window that ends at step {last}", worst / budget)
    return None
