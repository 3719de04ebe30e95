"""The papers' algorithms as programs for the exact tester, each written from the specification alone."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from tests.audit.exact import Draw, Program

from tidegate.audit.neighbours import Counts
from tidegate.mechanisms.pegasus.deviation import whole_deviation
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.dsat import DSAT
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.policy import Pure


def uniform(scale: float) -> Program:
    """Noise of one scale on every column of every step."""

    def program(stream: Counts, draw: Draw) -> None:
        for value in stream.reshape(-1):
            draw.value(int(value), scale)

    return program


def grouped(scale: float, lengths: tuple[int, ...], every: int = 1, paid: int | None = None) -> Program:
    """The cube on groups of steps: noise within one hidden radius for each group.

    Parameters
    ----------
    scale, lengths
        Of the law, and of its groups.
    every
        Steps from one measurement to the next.
    paid
        The length that radii are drawn for, where it is wrong.
    """

    def program(stream: Counts, draw: Draw) -> None:
        values, place = stream[::every].reshape(-1).tolist(), 0
        while values:
            length = lengths[place % len(lengths)]
            radii = draw.radius(scale, paid or length)
            for value in values[:length]:
                draw.value_within(value, radii)
            draw.forget()
            values, place = values[length:], place + 1

    return program


def sample(scale: float, every: int) -> Program:
    """Noise on one step of every so many."""

    def program(stream: Counts, draw: Draw) -> None:
        for value in stream[::every].reshape(-1):
            draw.value(int(value), scale)

    return program


def absorption(epsilon: Fraction, window: int, change: int = 1, literal: bool = False) -> Program:
    """Budget Absorption in whole units; `literal`: line 5 at its word, with ε_{i,2}."""

    def program(stream: Counts, draw: Draw) -> None:
        last, latest, taken = np.zeros(stream.shape[1], dtype=np.int64), 0, 1
        for step, row in enumerate(stream, 1):
            if step - latest <= taken - 1:
                continue
            shares = min(step - latest - taken + 1, window)
            spend = epsilon * shares / (2 * window)
            if _differs(draw, row, last, Fraction(change) / spend, 2 * window * change / epsilon):
                last = np.array([draw.value(value, float(change / spend)) for value in row])
                latest, taken = step, 1 if literal else shares

    return program


def distribution(epsilon: Fraction, window: int, change: int = 1) -> Program:
    """Budget Distribution: half of what the window has left."""

    def program(stream: Counts, draw: Draw) -> None:
        last, spent = np.zeros(stream.shape[1], dtype=np.int64), [Fraction(0)] * len(stream)
        for at, row in enumerate(stream):
            spend = (epsilon / 2 - sum(spent[max(0, at - window + 1) : at])) / 2
            if _differs(draw, row, last, change / spend, 2 * window * change / epsilon):
                last = np.array([draw.value(value, float(change / spend)) for value in row])
                spent[at] = spend

    return program


def distant(mechanism: DSAT) -> Program:
    """DSAT: the distance from the last publication against a threshold whose noise is drawn anew for each run.

    Where that noise is narrower than a whole number, it is left out, as by a threshold that was cut to its bounds.
    """
    publications, window = mechanism.units, mechanism.policy.steps_charged
    rate, gain, tests = Fraction(publications, window), Fraction(mechanism.gain), mechanism.tests

    def program(stream: Counts, draw: Draw) -> None:
        last, published, level, hidden = np.zeros(stream.shape[1], dtype=np.int64), [], Fraction(0), None
        for step, row in enumerate(stream, 1):
            if hidden is None and sum(other > step - window for other in published) == publications:
                continue
            if hidden is None and tests.threshold_scale > 0.1:
                hidden = draw.hidden(tests.threshold_scale)
            limit = int(mechanism.scale * len(row) * 2 ** float(level)) + (0 if hidden is None else hidden)
            hit = not published or draw.test(int(np.abs(row - last).sum()) - limit, tests.question_scale)
            level += gain * (hit - rate)
            if hit:
                last = np.array([draw.value(value, mechanism.scale) for value in row])
                published.append(step)
                draw.forget()
                hidden = None

    return program


def _differs(draw: Draw, row: Counts, last: Counts, scale: Fraction, noise: Fraction) -> bool:
    """Whether the dissimilarity and its noise exceed the error that a publication would have."""
    limit = math.floor(len(row) * scale) + 1
    return draw.test(int(np.abs(row - last).sum()) - limit, float(noise))


def sparse_vector(
    threshold_scale: float,
    question_scale: float,
    hits: int,
    limit: int = 0,
    *,
    shows: bool = False,
    redraws: bool = False,
    endless: bool = False,
) -> Program:
    """Tests ``count + ν ≥ limit + ρ``, one a step, until so many hits.

    Parameters
    ----------
    threshold_scale, question_scale
        Of ρ and ν; a question scale of 0 is a test without noise of its own.
    hits
        After how many hits it is over.
    limit
        The public threshold.
    shows
        Whether a hit shows the noisy answer that was tested.
    redraws
        Whether ρ is drawn anew after a hit.
    endless
        Whether it goes on after the last hit.
    """

    def program(stream: Counts, draw: Draw) -> None:
        hidden, found = draw.hidden(threshold_scale), 0
        for count in stream[:, 0]:
            margin = int(count) - limit - hidden
            if shows:
                noise = draw.hidden(question_scale)  # on an axis of its own
                answer = np.broadcast_to(noise, (len(hidden), len(noise)))
                hit = draw.tell(margin[:, np.newaxis] + answer >= 0)
                if hit:
                    draw.value_of_hidden(int(count), answer)
                draw.forget_last()
            else:
                hit = draw.test(margin, question_scale) if question_scale else draw.tell(margin >= 0)
            found += hit
            if found == hits and not endless:
                return
            if hit and redraws:
                draw.forget()
                hidden = draw.hidden(threshold_scale)

    return program


def grouper(limit: int, threshold_scale: float, question_scale: float, *, keeps: bool = False) -> Program:
    """The Grouper of PeGaSus: which steps begin a group.

    Parameters
    ----------
    limit
        The public θ.
    threshold_scale, question_scale
        Of ρ and ν.
    keeps
        Whether ρ is drawn once and kept for all groups.
    """

    def program(stream: Counts, draw: Draw) -> None:
        inside: list[int] = []
        hidden = draw.hidden(threshold_scale)
        for count in stream[:, 0].tolist():
            inside.append(count)
            if len(inside) == 1 or not draw.test(whole_deviation(inside) - limit - hidden, question_scale):
                continue
            inside = []
            if not keeps:
                draw.forget()
                hidden = draw.hidden(threshold_scale)

    return program


def model_of(mechanism: Any) -> Program | None:
    """The program of a configuration, where it is small enough and its paper's algorithm is modelled."""
    budget = mechanism.policy.budget
    if not isinstance(budget, Pure) or mechanism.grid != 1 or mechanism.rounding != "refuse":
        return None
    change, columns = mechanism.sensitivity, mechanism.columns
    if type(mechanism) in (Uniform, Sample) and columns == 1:
        assert isinstance(mechanism, Uniform | Sample)
        if mechanism.sharing is None:
            return sample(mechanism.scale, mechanism.distance)
        choice = mechanism.sharing.choice  # the semiorder has no closed form: statistics attack it
        if choice.law != "cube":
            return None
        return grouped(mechanism.scale, choice.lengths, mechanism.distance)
    if type(mechanism) is DSAT and columns == 1 and mechanism.policy.steps_charged <= 4:
        return distant(mechanism)
    if isinstance(mechanism, BudgetAbsorption | BudgetDistribution):
        apart = mechanism.shift or mechanism.pan_private or mechanism.shares_noise
        plain = mechanism.groups is None and not apart
        if (
            not plain
            or columns > 2
            or mechanism.window > 4
            or mechanism.dissimilarity is not mechanism.measure
        ):
            return None
        if type(mechanism) is BudgetDistribution:
            return distribution(budget.epsilon, mechanism.window, change)
        if type(mechanism) is BudgetAbsorption:
            return absorption(budget.epsilon, mechanism.window, change)
    return None
