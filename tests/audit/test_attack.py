from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.audit import attack as attack_module
from tests.audit import levels
from tests.audit.attack import angles, attack
from tests.audit.courses import COURSES
from tests.audit.intrusions import Intruded
from tests.audit.shipped import shipped

from tidegate.audit.auditor import audit, finding
from tidegate.audit.courses import MARKS, Course, Refused, at_once
from tidegate.audit.features import fit
from tidegate.audit.neighbours import Pair, library, placed
from tidegate.audit.search import Effort, FailureAt
from tidegate.audit.subjects import Configured, Failure, longest
from tidegate.audit.verdicts import CLEAN, VIOLATES
from tidegate.mechanisms import catalogue
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event import pan_private
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.noise import current, laplace
from tidegate.policy import Event, WEvent

STREAM = np.array([[5], [900], [0], [7], [7], [90], [1]])


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.name)
@pytest.mark.parametrize(
    "mechanism",
    [
        Uniform(WEvent(epsilon="1", window=3)),
        BudgetAbsorption(WEvent(epsilon="2", window=2), noise="laplace"),
    ],
)
def test_every_course_shows_as_many_numbers_each_time(course: Course, mechanism: Any) -> None:
    """The shape of a transcript depends on the length of the stream alone, and something is released."""
    drawn = [course.transcript(mechanism, stream, marks=True) for stream in (STREAM, 0 * STREAM, STREAM)]
    assert len({each.shape for each in drawn}) == 1
    assert drawn[0].shape[1] == 1 + MARKS
    assert np.isfinite(drawn[0][0]).all()
    assert np.isfinite(drawn[0]).any(axis=1).sum() >= len(STREAM) // 2


class _KeepsItsNoise(Uniform):
    """Uniform that draws the noise of its first batch again in every session after the first."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Any:
        output = super().advance(state, rows, first, noise)
        kept, columns = self.__dict__.setdefault("_kept", {}), rows.shape[1]
        if first == 1:
            kept[columns] = output.values[:1] - rows[:1]
        return output._replace(values=rows + kept[columns])


@pytest.mark.slow
def test_noise_that_is_the_same_after_a_new_beginning_is_found() -> None:
    """A single release is sound; two of them show the difference of two steps exactly."""
    verdict = attack(_KeepsItsNoise(Event(epsilon="1"), noise="laplace"), seconds=12, error=1e-9, steps=1)
    assert verdict.outcome == VIOLATES, str(verdict)
    assert any("it happened" in line for line in verdict.evidence())
    assert any(line.startswith("neighbour") for line in verdict.evidence())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Uniform, w = 3", "Sample"])
def test_sound_mechanisms_are_not_accused_from_any_angle(name: str) -> None:
    """A short attack from all angles; the error of each is 10⁻⁹."""
    chosen = next(each for each in shipped() if each.name == name)
    verdict = chosen.attack(error=1e-9, seconds=4)
    assert verdict.outcome == CLEAN, str(verdict)
    assert verdict.ratio > 0.5


def test_lengths_go_beyond_two_cycles_and_begin_at_one() -> None:
    """Periods, windows and trees are repeated at least twice."""
    assert levels.cycle(Sample(WEvent(epsilon="1", window=3), every=2)) == 3
    for each in shipped():
        every = levels.lengths(each.mechanism, each.steps or 4)
        assert every[0] == 1
        assert every[-1] >= (each.steps or 4)
        own = getattr(each.mechanism, "horizon", None)
        if own is None and each.mechanism.policy.horizon is None:
            assert every[-1] > 2 * levels.cycle(each.mechanism), each.name


@pytest.mark.slow
def test_streams_stand_at_public_limits_and_at_decisions() -> None:
    """θ of the Grouper is found by its name, the border of BA's decision by trying."""
    assert 7 in levels.public_levels(PeGaSus(Event(epsilon="2"), threshold=7))
    absorbing = BudgetAbsorption(WEvent(epsilon="1/10", window=2), noise="laplace")
    (border, *_) = levels.decision_levels(Configured(absorbing), 4)
    assert 5 <= border <= 80  # d·λ is 40, or 20 after a quiet step; found by trying
    pairs = placed(absorbing.policy, 1, 4, (border,))
    assert pairs
    assert all(absorbing.policy.distance(pair.first, pair.second) == 1 for pair in pairs)


def test_the_first_pairs_of_a_library_have_their_windows_everywhere() -> None:
    """Whoever looks at few pairs looks at nearly all places."""
    first = library(Event(epsilon="1"), 1, 7)[:9]
    changed = {int(np.flatnonzero((pair.first != pair.second).any(axis=1))[0]) for pair in first}
    assert len(changed) >= 6


def test_intruders_come_before_anything_arrives() -> None:
    """A pan-private run is seen after its rows, before them, and with nothing added at all."""
    watched = BudgetAbsorption(WEvent(epsilon="4", window=2), pan_private="single")
    named = [angle.name for angle in angles(watched, 3)]
    assert "seen before step 1 arrives" in named
    assert "seen after step 1 arrived" in named
    assert "one step" in named


def test_several_announced_intrusions_in_one_step_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none of them renews the noise, the last two states differ by exactly what has arrived."""
    watched = BudgetAbsorption(Event(epsilon="2"), pan_private="announced")
    (three,) = [angle.subject for angle in angles(watched, 2) if angle.name == "seen three times in a step"]
    assert isinstance(three, Intruded)

    def arrived() -> set[float]:
        seen = [three.watch(np.array([[5], [0]]))[0] for _ in range(20)]
        return {row[5] - row[3] for row in seen}  # after the value come three pairs of cells

    assert len(arrived()) > 1  # all alike with a chance below 1e-6
    monkeypatch.setattr(pan_private, "_renew", lambda mechanism, state, noise: None)
    assert arrived() == {5.0}


def test_mirrored_noise_of_distant_steps_is_looked_at() -> None:
    """Step 9 has the negative noise of step 1: their sum is among the features, and it is exact."""
    drawn = [
        (lambda noise: np.concatenate([noise[:, :8], side - noise[:, :1]], axis=1))(
            laplace(current(), "test", 0, 5.0, (4000, 8))
        ).astype(float)
        for side in (0, 1)
    ]
    fitted = fit(drawn[0], drawn[1], 1)
    assert (8, -2) in fitted.differences
    assert "number 9 + number 1" in fitted.names
    assert len(fitted.names) == fitted.count


def test_residues_that_noise_leaves_alone_are_looked_at() -> None:
    """Noise that is always even shows whether a count is odd."""
    drawn = [2.0 * laplace(current(), "test", 0, 20.0, (4000, 1)) + side for side in (0, 1)]
    fitted = fit(drawn[0], drawn[1], 1)
    assert any("modulo" in name for name in fitted.names)


def test_plain_course_is_one_batch() -> None:
    """The plain course is what a caller of push_batch gets."""
    (only,) = at_once(Uniform(Event(epsilon="1")), STREAM)
    assert not isinstance(only, Refused)
    assert only.values.shape == STREAM.shape


BRIEF = Effort(seconds=0.5, trials=200, scan=60, pairs=2, fewest=60)
EXAMPLES = [
    *[example for kind in catalogue().values() if kind.reads_columns for example in kind.examples()[:1]],
    ClippedSum(
        WEvent(epsilon="1", window=6, max_change=1024), horizon=8, lag=6, above=0, per_doubling=1, branching=2
    ),
]


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=lambda mechanism: type(mechanism).__name__)
def test_no_angle_goes_beyond_a_horizon_and_transcripts_are_as_they_are_said_to_be(mechanism: Any) -> None:
    """An example of every mechanism: no stream is too long, and what is taken for a noise scale is one."""
    every = list(angles(mechanism, 13))
    assert max(angle.steps for angle in every) <= longest(mechanism)
    subject, length = Configured(mechanism), min(5, longest(mechanism))
    shown, width, steps = subject.layout(length)
    if shown:
        drawn = subject.sample(np.zeros((length, mechanism.columns), dtype=np.int64), 2)
        rows = drawn[:, : (steps * width or drawn.shape[1])].reshape(-1, width)
        assert np.all(np.isnan(rows[:, -1]) | (rows[:, -1] >= 0))
        assert rows.shape[1] > shown


@pytest.mark.slow
def test_a_stream_is_not_longer_than_a_counter() -> None:
    """A window of six asks for 13 steps, and a counter of eight steps ends before: nobody is accused of that."""
    stepwise = Configured(EXAMPLES[-1], course=COURSES[1])
    verdict = audit(stepwise, testers=("statistical",), effort=BRIEF, error=1e-9)
    assert verdict.outcome == CLEAN, str(verdict)


@pytest.mark.slow
def test_values_that_are_revised_later_are_attacked() -> None:
    """Tide revises fewer steps than it has released: the likelihood is that of its values and their own scales."""
    subject = Configured(Tide(WEvent(epsilon="2", window=4)))
    shown, width, steps = subject.layout(9)
    assert (shown, width) == (1, 1 + MARKS)
    assert steps in (0, 9)
    assert subject.sample(np.zeros((9, 1), dtype=np.int64), 3).shape[1] >= 9 * width
    verdict = audit(subject, testers=("statistical",), steps=9, effort=BRIEF, error=1e-9)
    assert verdict.outcome == CLEAN, str(verdict)


def test_a_stream_on_which_means_cannot_be_looked_at_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever only looks at means must not lose what fails."""
    fine, pair = Uniform(Event(epsilon="1")), Pair(np.zeros((1, 1), int), np.ones((1, 1), int), "one step")

    def failing(*_: Any) -> Any:
        raise FailureAt(Failure("crashes", "it raised ZeroDivisionError"), pair, 0)

    monkeypatch.setattr(attack_module, "most_moved", failing)
    rounds = attack_module._Rounds(
        fine, 1, finding(Configured(fine), CLEAN, 0.0, "none", 1e-6), 1e-6, 1.0, "", 1
    )
    assert {each.origin for _, each in rounds._suggested()} == {"one step"}
