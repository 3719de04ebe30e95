"""The suite of checks: every mechanism of the core passes, and each planted mistake is caught by the check it is for."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from every_mechanism import mechanisms, subjects
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Output
from tidegate.errors import InvalidInput
from tidegate.noise import laplace
from tidegate.policy import Policy, WEvent
from tidegate.releases import Status
from tidegate.testing.checks import CHECKS, NotConforming, check, run_check
from tidegate.testing.trials import Subject

NAMED = {each.__name__: each for each in CHECKS}


class State(NamedTuple):
    """All that is carried from step to step."""

    last: Any
    source: Any


@dataclasses.dataclass(frozen=True)
class Alternating:
    """Every second step is measured, the others repeat it: a mechanism as somebody else would write it."""

    policy: Policy = dataclasses.field(default_factory=lambda: WEvent(epsilon="1", window=4))
    columns: int = 2
    grid: str | Fraction = "0.5"
    rounding: str = "refuse"
    clamp: Any = None

    more = ()
    most_spans = 0
    noise_in_state = False

    @property
    def outputs(self) -> int:
        """As many as columns."""
        return self.columns

    @property
    def units(self) -> int:
        """Measured steps of a window."""
        return -(-(self.policy.window or 1) // 2)

    @property
    def scale(self) -> float:
        """Of a measurement, in grid units: a unit changes each of the steps that a window measures."""
        share = self.policy.budget.total / self.units
        return float(self.columns / Fraction(self.grid) / share)

    def describe(self) -> dict[str, Any]:
        """All of it."""
        return {
            "name": type(self).__name__,
            "policy": self.policy.describe(),
            "columns": self.columns,
            "grid": str(Fraction(self.grid)),
            "rounding": self.rounding,
            "clamp": None if self.clamp is None else str(self.clamp),
        }

    def begin(self, first: int) -> Any:
        """Nothing was measured."""
        return State(np.zeros(self.columns), np.zeros(1, dtype=np.int64))

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Every second step."""
        return Charges(first, np.arange(first, first + count) % 2)

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        return laplace(noise.source, "alternating", step, self.scale, (self.columns,))

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        count, grid = len(rows), float(Fraction(self.grid))
        values, source = np.zeros((count, self.columns)), np.zeros(count, dtype=np.int64)
        for at in range(count):
            if (first + at) % 2:
                state.last[:] = (rows[at] + self.drawn(state, noise, first + at)) * grid
                state.source[0] = first + at
            values[at], source[at] = state.last, state.source[0]
        steps = np.arange(first, first + count)
        return Output(
            values,
            np.where(source == steps, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED)),
            source,
            np.where(source > 0, self.scale * grid, 0.0),
            steps % 2,
        )


def test_a_mechanism_of_somebody_else_conforms() -> None:
    """One that inherits nothing."""
    check(Alternating())


# planted mistakes ----------------------------------------------------------------------------------------------------


class DrawsByBatch(Alternating):
    """Noise that depends on where batches begin."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        moved = laplace(noise.source, "batch", first, self.scale, (1,)) * float(Fraction(self.grid))
        return output._replace(values=output.values + moved * (output.source > 0)[:, np.newaxis])


class RemembersOutside(Alternating):
    """Something that decides and is in no state."""

    def begin(self, first: int) -> Any:
        """Nothing was measured."""
        object.__setattr__(self, "before", 0)
        return super().begin(first)

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        total: int = self.before  # type: ignore[attr-defined]
        object.__setattr__(self, "before", total + len(rows))
        return output._replace(values=output.values + total)


class ChargesLess(Alternating):
    """A measured step that is not charged."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        return output._replace(units=np.where(output.source % 4 == 1, 0, output.units))


class ChargesMore(Alternating):
    """More than a window has."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        return output._replace(units=np.where(rows[:, 0] > 400, self.units, output.units))


class PublicChangesState(Alternating):
    """A question that is answered by doing."""

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Every second step."""
        state.source[0] += 0 if first == 1 else 1
        return super().public(state, first, count)


class RefusesLate(Alternating):
    """The end of the stream is noticed when noise is drawn."""

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Every second step."""
        return super().public(state, first, min(count, max(0, 100 - first)))

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        if first > 100:
            raise InvalidInput("the end")
        return super().advance(state, rows, first, noise)


class ReleasesWhatIsThere(Alternating):
    """An array whose size is the number of empty steps."""

    revised = ("empty",)

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        empty = first + np.flatnonzero((rows == 0).all(axis=1))
        return super().advance(state, rows, first, noise)._replace(revised=(empty,))


class Kept(NamedTuple):
    """A state with raw rows."""

    last: Any
    source: Any
    rows: Any


class Rows:
    """Rows, as they are."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def stored(self) -> Any:
        """The rows."""
        return (self.content,)

    def loaded(self, stored: Any) -> Any:
        """The same with other rows."""
        return Rows(next(stored))


class StoresWhatIsThere(Alternating):
    """A state whose size is the number of values that are not 0."""

    def kept(self, state: Any, rows: Any) -> Any:
        """What the state has of rows."""
        return rows[rows != 0][-8:]

    def begin(self, first: int) -> Any:
        """Nothing was measured."""
        return Kept(*super().begin(first), Rows(np.zeros(0, dtype=np.int64)))

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        state.rows.content = self.kept(state, rows)
        return super().advance(state, rows, first, noise)


class StoresEverything(StoresWhatIsThere):
    """A state that has all rows."""

    def kept(self, state: Any, rows: Any) -> Any:
        """What the state has of rows."""
        return np.concatenate([state.rows.content, rows.ravel()])


class StoresRaw(StoresWhatIsThere):
    """Raw values, and nothing that says so."""

    def kept(self, state: Any, rows: Any) -> Any:
        """What the state has of rows."""
        return np.resize(rows[-1:] if len(rows) else 0, 4)


class SaysFresh(Alternating):
    """Every step says that it was measured."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        return output._replace(status=np.full(len(rows), int(Status.FRESH), dtype=np.int8))


class TooLittleNoise(Alternating):
    """Noise of a third of the scale that is stated."""

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        return laplace(noise.source, "alternating", step, self.scale / 3, (self.columns,))


class OtherUnit(Alternating):
    """A scale in grid units."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        return output._replace(scale=output.scale / float(Fraction(self.grid)) ** 3)


class OneDraw(Alternating):
    """All columns have the same noise."""

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        return np.repeat(laplace(noise.source, "alternating", step, self.scale, (1,)), self.columns)


class NoiselessLater(Alternating):
    """Noise only for streams that begin with step 1."""

    def begin(self, first: int) -> Any:
        """Nothing was measured."""
        object.__setattr__(self, "factor", int(first == 1))
        return super().begin(first)

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        return super().drawn(state, noise, step) * self.factor  # type: ignore[attr-defined]


class WithNoise(NamedTuple):
    """A state with noise to come."""

    last: Any
    source: Any
    ahead: Any


class DrawsAhead(Alternating):
    """The noise of the next measurement is drawn before, and the state does not say so."""

    def begin(self, first: int) -> Any:
        """Nothing was measured."""
        return WithNoise(*super().begin(first), np.zeros(self.columns, dtype=np.int64))

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        own = state.ahead.copy() if state.source[0] else super().drawn(state, noise, 0)
        state.ahead[:] = super().drawn(state, noise, step)
        return own


class OneNoiseForAll(DrawsAhead):
    """The noise of the first measurement is used for all."""

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        if not state.source[0]:
            state.ahead[:] = Alternating.drawn(self, state, noise, step)
        return state.ahead


class SharesValues(Alternating):
    """Released values are the state's."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        return output if len(rows) != 1 else output._replace(values=state.last[np.newaxis])


class ChangesInput(Alternating):
    """Rows are worked on in place."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        rows += 1
        return super().advance(state, rows, first, noise)


class ForgetsGrid(Alternating):
    """A description without the grid."""

    def describe(self) -> dict[str, Any]:
        """All of it."""
        return {name: value for name, value in super().describe().items() if name != "grid"}


class CountsSteps(Alternating):
    """Steps are counted, not read: one that was passed over moves the source."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        output = super().advance(state, rows, first, noise)
        gaps = np.diff(output.source, prepend=output.source[:1]) > 2
        counted = output.source + (first > 1) * (self.columns if (first > 90 or gaps.any()) else 0)
        return output._replace(source=counted)


class Swallows(Alternating):
    """Where noise fails, there is none."""

    def drawn(self, state: Any, noise: Any, step: int) -> Any:
        """Noise of a measurement."""
        try:
            return super().drawn(state, noise, step)
        except RuntimeError:
            return np.zeros(self.columns, dtype=np.int64)


class EndsWithValues(Alternating):
    """The end releases as many rows as there were values."""

    revised = ("last",)

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Output:
        """Release the next steps."""
        return super().advance(state, rows, first, noise)._replace(revised=(np.zeros(0),))

    def finish(self, state: Any, last: int, noise: Any) -> Output:
        """The end."""
        output = Alternating.advance(self, state, np.zeros((0, self.columns), dtype=np.int64), last, noise)
        return output._replace(revised=(np.zeros(int(abs(state.last[0])) % 7),))


PLANTED: list[tuple[type[Alternating], str]] = [
    (DrawsByBatch, "cuts_do_not_matter"),
    (RemembersOutside, "cuts_do_not_matter"),
    (ChargesLess, "public_charges_are_a_lower_bound"),
    (ChargesMore, "no_window_is_overspent"),
    (PublicChangesState, "public_charges_are_a_lower_bound"),
    (RefusesLate, "public_refusals_come_before_noise"),
    (ReleasesWhatIsThere, "forms_do_not_depend_on_values"),
    (StoresWhatIsThere, "sizes_of_states_follow_from_releases"),
    (StoresEverything, "states_do_not_grow"),
    (StoresRaw, "raw_values_are_kept_only_where_it_is_said"),
    (SaysFresh, "status_source_and_scale_agree"),
    (TooLittleNoise, "noise_has_the_stated_scale"),
    (OtherUnit, "noise_has_the_stated_scale"),
    (OneDraw, "noise_has_the_stated_scale"),
    (NoiselessLater, "noise_is_there_wherever_it_begins"),
    (DrawsAhead, "noise_to_come_is_declared"),
    (OneNoiseForAll, "fresh_noise_for_every_step"),
    (SharesValues, "nothing_is_shared_with_the_state"),
    (ChangesInput, "nothing_is_shared_with_the_state"),
    (ForgetsGrid, "configuration_is_frozen_and_describes_itself"),
    (CountsSteps, "steps_may_be_passed_over"),
    (Swallows, "halts_are_charged"),
    (EndsWithValues, "the_end_costs_nothing"),
]


@pytest.mark.parametrize(("kind", "name"), PLANTED, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_mistake_is_caught(kind: type[Alternating], name: str) -> None:
    """By the check that it is for, in one sentence that names it."""
    with pytest.raises(NotConforming) as caught:
        run_check(NAMED[name], Subject(kind()))
    sentence = str(caught.value)
    assert sentence.startswith(f"{kind.__name__}, {name.replace('_', ' ')}: ")
    assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize("kind", [kind for kind, _ in PLANTED], ids=lambda kind: kind.__name__)
def test_a_planted_mistake_does_not_conform(kind: type[Alternating]) -> None:
    """`check` raises."""
    with pytest.raises(NotConforming):
        check(kind())


# all mechanisms ------------------------------------------------------------------------------------------------------

SUBJECTS = list(subjects())


def test_every_mechanism_has_an_example() -> None:
    """But for those that others are built from."""
    without = {kind.__name__ for kind in mechanisms()} - {each.name.split("-")[0] for each in SUBJECTS}
    assert without <= {"LearnedClip", "Publishing", "TreeCounter"}


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_example_conforms(subject: Subject) -> None:
    """Every check on every example of every mechanism."""
    for each in CHECKS:
        run_check(each, subject)
