"""Budget replay: what the released noise scales say was lost, against what the ledger says was spent.

The loss of every step is computed anew from the scale that its release states and from the policy's own
sensitivity, that of steps which share noise from its law (`shared`). It must not exceed the step's charge, nor a
window's sum the budget; the ledger must agree with the releases; and no noise may be drawn before the ledger was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import shared
from tidegate.audit.neighbours import BIG, chooser
from tidegate.audit.subjects import Stopwatch
from tidegate.errors import TidegateError
from tidegate.ledger.parallel import ParallelLedger
from tidegate.mechanisms.mechanism import Mechanism, Run
from tidegate.mechanisms.plain.blocks_run import BlocksRun
from tidegate.mechanisms.w_event.pan_private import SINGLE
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.noise import Source
from tidegate.noise.entropy import Elements, Words
from tidegate.policy import Approximate
from tidegate.releases import Release, Releases

Floats = npt.NDArray[np.float64]
SLACK = 1 + 1e-9  # scales and spends were rounded to floats
REPEATS = 4  # runs on each stream
WATCHED = 24  # steps that are pushed one by one, to see who is asked first


@dataclass(frozen=True)
class Problem:
    """A step or window whose account is wrong.

    Attributes
    ----------
    words
        What is wrong.
    loss
        The loss of the worst window as a multiple of the budget, where it is known; else infinite.
    """

    words: str
    loss: float = float("inf")


def check(mechanism: Mechanism, stream: npt.NDArray[np.int64], *, singly: bool = False) -> Problem | None:
    """Replay the account of one run on a stream, pushed as one batch or step by step."""
    run = mechanism.start()
    if singly:
        pushed = [run.push(row) for row in stream]
        if any(release.revised is not None or release.delay for release in pushed):
            return None  # steps that are charged later are seen in batches
        releases = joined(pushed)
        return _replayed(mechanism, releases) or _booked(run, releases)
    releases = run.push_batch(stream)
    return _replayed(mechanism, releases) or _intruded(mechanism, stream) or _booked(run, releases)


def joined(pushed: Sequence[Release]) -> Releases:
    """Releases of single steps as those of one batch."""
    columns = [(each.status, each.source, each.scale, each.units) for each in pushed]
    status, source, scale, units = (np.array(column) for column in zip(*columns, strict=True))
    values = np.array([each.values for each in pushed])
    return Releases(pushed[0].step, values, status, source, scale, units, pushed[0].unit)


def replay(
    mechanism: Mechanism, steps: int, seconds: float = 60.0
) -> tuple[Problem | None, npt.NDArray[np.int64]]:
    """The worst account over streams that publish often, rarely and in bursts; and that stream.

    Every stream is pushed as a batch and step by step, and more often as long as there is time.
    """
    streams = replayed_streams(mechanism, steps)
    # a ledger that refuses nothing may be written after the fact
    worst = asked_first(mechanism, streams[1][:WATCHED]) if mechanism.enforced else None
    where = streams[1][:WATCHED]
    if worst is not None:
        return worst, where
    watch = Stopwatch()
    plan = [(rows, singly) for singly in (False, True) for rows in streams]
    if shared.losses(mechanism, mechanism.start().push_batch(streams[0][:1])) is not None:
        plan += [
            (rows, False) for rows in streams * (REPEATS - 1)
        ]  # what is published depends on noise as well
    for at, (rows, singly) in enumerate(plan):
        if at >= 2 * len(streams) and watch.seconds() > seconds:
            break
        problem = check(mechanism, rows, singly=singly)
        if problem is not None and (worst is None or _larger(problem, worst)):
            worst, where = problem, rows
    if worst is None and mechanism.enforced:  # what no window of these streams shows
        priced = shared.undercharged(mechanism)
        if priced is not None and priced.times > SLACK:
            lost = priced.times * priced.part  # of a window that is full of such measurements
            worst = Problem(priced.words, lost if lost > SLACK else priced.times)
    return worst, where


def replayed_streams(mechanism: Mechanism, steps: int) -> list[npt.NDArray[np.int64]]:
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


def window_losses(mechanism: Mechanism, releases: Releases) -> tuple[Floats, Floats] | None:
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


def _replayed(mechanism: Mechanism, releases: Releases) -> Problem | None:
    found = window_losses(mechanism, releases)
    if found is None:
        return None
    losses, sums = found
    budget = float(mechanism.policy.budget.total)
    fullest = float(sums.max() / budget)
    if fullest > SLACK:
        last = int(sums.argmax()) + 1
        words = f"its scales lose {fullest:.4g} times the budget in the window that ends at step {last}"
        return Problem(words, fullest)
    if mechanism.enforced:
        charged = releases.spent
        bad = np.flatnonzero(losses > charged * SLACK)
        if len(bad):
            at = int(bad[0])
            words = f"step {at + 1} lost {losses[at]:.4g} by its scale and was charged {charged[at]:.4g}"
            with np.errstate(divide="ignore"):
                return Problem(
                    words, float(np.max(losses[bad] / charged[bad]))
                )  # infinite where nothing was charged
    return None


def _intruded(mechanism: Mechanism, stream: npt.NDArray[np.int64]) -> Problem | None:
    """Pan-private: tests and publications of a window, and what an unnoticed look at an unpublished step costs besides.

    The cells of a step that is not published have the noise of its publication, and no publication pays for them.
    """
    if not isinstance(mechanism, Publishing) or mechanism.pan_private != SINGLE:
        return None
    run: Any = mechanism.start()
    change, test = float(mechanism.sensitivity), float(mechanism.sensitivity) / run.mechanism.score_scale
    losses, looks = [], []
    for row in stream:
        run.open_step()
        cells = run.memory()["counts"].size > 0
        offered = change / run._publication_scale() if cells else 0.0
        for column, value in enumerate(row):
            run.arrive(column, int(value))
        fresh = run.close_step().fresh
        losses.append(test + (offered if fresh else 0.0))
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


def _booked(run: Run, releases: Releases) -> Problem | None:
    """The ledger must agree with itself and with the releases of its last window."""
    verdict = run.ledger.verify()
    if not verdict.ok:
        times = float(verdict.spent / run.mechanism.policy.budget.total)
        return Problem(
            f"its own ledger says: {verdict.problem.rstrip('.')}", times if times > 1 else float("inf")
        )
    if (
        isinstance(run.ledger, ParallelLedger)
        or not run.mechanism.enforced
        or releases.delay
        or releases.revised is not None
    ):
        return None
    window = run.mechanism.policy.window or len(releases)
    shown = int(releases.units[-window:].sum()) * releases.unit
    if isinstance(run.mechanism.policy.budget, Approximate):
        return None
    losses = window_losses(run.mechanism, releases)
    last = run.step
    try:
        booked = run.ledger.spent(max(1, last - window + 1), last)
    except TidegateError:
        return None
    if booked < shown:
        return Problem(f"its releases say that the last window spent {shown} and its ledger says {booked}")
    if losses is not None and losses[1][-1] > float(booked) * SLACK:
        words = (
            f"the last window lost {losses[1][-1]:.4g} by its noise and its ledger says {float(booked):.4g}"
        )
        return Problem(words, float(losses[1][-1] / booked) if booked else float("inf"))
    return None


class _Recorder:
    """A source that notes whether the ledger had been asked when noise was drawn."""

    def __init__(self, source: Source, asked: Callable[[], bool]) -> None:
        self._source, self._asked = source, asked
        self.name, self.marked = source.name, source.marked
        self.too_early = False

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Words, and a note."""
        if count and len(elements):
            self.too_early |= not self._asked()
        return self._source.words(stream, step, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A word, and a note."""
        self.too_early |= not self._asked()
        return self._source.word(stream, step, draw, index)


def asked_first(mechanism: Mechanism, stream: npt.NDArray[np.int64]) -> Problem | None:
    """Push step by step and watch who is asked first."""
    run: Any = mechanism.start()
    asked = False

    def watched(ask: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal asked
            asked = True
            return ask(*arguments, **named)

        return call

    if isinstance(run.ledger, ParallelLedger) or isinstance(run, BlocksRun):
        return None  # others are asked on its behalf
    for name in ("charge", "charge_batch", "charge_span", "charge_group", "extend_group", "begin_batch"):
        setattr(run.ledger, name, watched(getattr(run.ledger, name)))
    recorder = run.source = _Recorder(run.source, lambda: asked)
    for at, row in enumerate(stream):
        asked = False
        run.push(row)
        if recorder.too_early:
            return Problem(f"noise was drawn at step {at + 1} before the ledger was asked")
    return None
