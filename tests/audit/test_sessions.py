"""Mechanisms of the core under audit: they run in sessions, and their charges are read from the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.audit.courses import COURSES

from tidegate.audit import accounts
from tidegate.audit.auditor import audit
from tidegate.audit.subjects import Configured
from tidegate.audit.verdicts import CLEAN, VIOLATES
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Output
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.policy import Event, WEvent

POLICY = WEvent(epsilon="1", window=3)


class Louder(Uniform):
    """It releases with the noise of twice its budget."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release with too little noise, and say so."""
        honest = Uniform(
            replace(self.policy, epsilon=2 * self.policy.epsilon), columns=self.columns, noise="laplace"
        )
        return honest.advance(honest.begin(1), rows, first, noise)


class Free(Uniform):
    """Nothing is charged."""

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Nothing."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release for nothing."""
        return super().advance(state, rows, first, noise)._replace(units=np.zeros(len(rows), dtype=np.int64))


@pytest.mark.slow
def test_too_little_noise_is_found_by_replay_and_by_sampling() -> None:
    """Scales that are released, and transcripts."""
    wrong = Louder(Event(epsilon="1"), noise="laplace")
    assert audit(wrong, testers=("replay",)).outcome == VIOLATES
    found = audit(wrong, testers=("statistical",), seconds=2, steps=1)
    assert found.outcome == VIOLATES
    assert found.loss > 1.2


def test_what_is_not_charged_is_found() -> None:
    """By plain addition of charges."""
    found = audit(Free(POLICY, noise="laplace"), testers=("replay",))
    assert found.outcome == VIOLATES
    assert "charged 0" in (found.words or "")


@pytest.mark.parametrize("kind", [Uniform, BudgetAbsorption])
@pytest.mark.parametrize("noise", ["laplace", "auto"])
def test_charges_cover_what_is_lost(kind: Any, noise: str) -> None:
    """Steps, and spans that windows share."""
    problem, _ = accounts.replay(kind(POLICY, noise=noise), 12, seconds=0.1)
    assert problem is None


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.name)
def test_every_course_has_transcripts_of_one_length(course: Any) -> None:
    """Also where steps are refused or silent."""
    looked = Configured(BudgetAbsorption(POLICY), course=course)
    stream = np.arange(8)[:, np.newaxis] * 100
    drawn = looked.sample(stream, 6)
    assert drawn.shape[0] == 6
    assert drawn.shape == looked.sample(0 * stream, 6).shape


def test_transcripts_without_a_log_are_those_of_sessions() -> None:
    """The same law: means of both ways agree, and no two runs have the same noise."""
    looked = Configured(BudgetAbsorption(POLICY, noise="laplace"))
    stream = np.array([[1000], [2000], [4000]])
    drawn = looked.sample(stream, 400)
    assert len(np.unique(drawn[:, 0])) > 20
    assert len(np.unique(looked.sample(stream[:1], 400)[:, 0])) > 20  # rows of noise are known by their step
    sessions = Configured(BudgetAbsorption(POLICY, noise="laplace"), course=COURSES[0])
    other = sessions.sample(stream, 400)
    assert drawn.shape == other.shape
    spread = float(drawn[:, 0].std() + other[:, 0].std())
    assert abs(float(drawn[:, 0].mean() - other[:, 0].mean())) < spread / 2
    assert audit(Uniform(Event(epsilon="1")), testers=("replay",)).outcome == CLEAN
