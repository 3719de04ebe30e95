"""ClippedRecords: learn where single values end, clip each of them there, then release sums by any mechanism.

What is pushed are no columns but records, as counts and sums in public bins (`record_reader`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tidegate.core.account import Account
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import HasAccount, Matrix, Output, Resumes
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import Fold
from tidegate.mechanisms import clipped_records as configured
from tidegate.mechanisms.clipping.clipped_releases import ClippedReleases
from tidegate.mechanisms.clipping.nested import Nested
from tidegate.mechanisms.clipping.record_reader import RecordReader
from tidegate.noise import laplace, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.releases import Releases, Status
from tidegate.structures.clamping import LARGEST


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # see the positions below
    sample: (
        Any  # SECRET: counts, and for running sums also sums, of the sample's values in bins; 0 after step m
    )
    first: Any  # the released sums of the sample, and their variance
    released: Nested  # the mechanism that releases


# positions in `State.numbers`: steps that were pushed up to step m, the step at which the threshold was learned, the clip
# in grid units, and the first step of the mechanism; 0 where there is none yet
PUSHED, LEARNED, CLIP, BEGAN = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class ClippedRecords(configured.ClippedRecords):
    """Clip records where they end; see :class:`tidegate.mechanisms.clipped_records.ClippedRecords`.

    `build` makes a mechanism of this core. Steps that are passed over are not in the sample. Releases have `clip`, where
    values are clipped.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.counters.binary_tree import BinaryTree
    >>> from tidegate.core.session import Session
    >>> from tidegate.structures.value_bins import ValueBins
    >>> bins = ValueBins(1440)
    >>> policy = tg.Event(epsilon="1", max_change=1440)
    >>> mechanism = ClippedRecords(policy, build=lambda policy: BinaryTree(policy, horizon=200), bins=bins, learn=50)
    >>> releases = Session(mechanism).push_batch(bins.of_steps([[30, 31, 29]] * 200))
    >>> releases.values.shape, int(releases.fresh.sum()), bool(releases.clip[-1] < 1440)
    ((200, 1), 150, True)
    """

    def validate(self) -> None:
        """Check also what is particular to this core."""
        if self.clamp is not None or self.rounding != "refuse":
            raise InvalidParameter("clamp", self.clamp, "left out: bins have a bound", "leave it out")
        super().validate()
        for released in self.extremes:
            account = released.account() if isinstance(released, HasAccount) else None
            if not hasattr(released, "advance") or (account is not None and type(account) is not Account):
                name = type(released).__name__
                raise InvalidParameter(
                    "build", name, "a mechanism with units per window", "choose another one"
                )
            if Fraction(released.grid) != Fraction(self.grid):
                raise InvalidParameter(
                    "build", f"grid {released.grid}", f"the grid of the records, {self.grid}", "write it"
                )

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def more(self) -> tuple[str, ...]:
        """The clip, and what the mechanism releases besides."""
        return ("clip", *getattr(self.bounded, "more", ()))

    @property
    def revised(self) -> tuple[str, ...]:
        """As for the mechanism."""
        found: tuple[str, ...] = getattr(self.bounded, "revised", ())
        return found

    @cached_property
    def most_spans(self) -> int:
        """As for the mechanism, with some clip."""
        return max(_public(released)[0] for released in self.extremes)

    @cached_property
    def noise_in_state(self) -> bool:
        """As for the mechanism, with some clip."""
        return any(_public(released)[1] for released in self.extremes)

    def at(self, clip: int) -> Any:
        """The mechanism for values that are clipped at so many grid units; made once."""
        if clip not in self._made_at:
            self._made_at[clip] = super().at(clip)
        return self._made_at[clip]

    @cached_property
    def _made_at(self) -> dict[int, Any]:
        return {}

    def fitting(self, clip: int, units: int) -> int:
        """The smallest candidate from a clip on whose mechanism has charges and spans that the session was promised."""
        for end in (clip, *(int(end) for end in self.bins.ends if end > clip)):
            spans, noise = _public(self.at(end))
            fits = spans <= self.most_spans and noise <= self.noise_in_state
            if fits and super().fitting(end, units) == end:
                return end
        return self.bins.bound

    def reader(self) -> RecordReader:
        """Reads counts and sums in bins."""
        return RecordReader(self.bins, self.learn, self.learn if self.sums_of_sample else 1)

    def begin(self, first: int) -> State:
        """An empty sample, of a public size."""
        cells = self.bins.width if self.sums_of_sample else len(self.bins.ends)
        return State(
            np.zeros(4, dtype=np.int64),
            np.zeros(cells, dtype=np.int64),
            np.zeros(self.outputs + 1),
            Nested(self.at, self.bins.bound, first),
        )

    def _parts(self, state: State, first: int, count: int) -> tuple[int, int]:
        """How many of the next steps are in the sample, and how many are silent: it, and those that wait after it."""
        learning = min(count, self.learn - int(state.numbers[PUSHED]))
        learned = int(state.numbers[LEARNED]) or first + learning - 1
        if state.numbers[PUSHED] + learning < self.learn:
            return learning, count
        waiting = learned + self.waits - self.learn - first + 1
        return learning, min(count, max(learning, waiting))

    def _units(self, learning: int, count: int) -> Integers:
        """What the sample costs: each of its steps as much as any step of a window may."""
        units = np.zeros(count, dtype=np.int64)
        units[:learning] = self.units // self.policy.steps_charged
        return units

    def _times(self, released: Any) -> int:
        """How many units are one of the mechanism's."""
        return self.units // int(released.units)

    def public(self, state: State, first: int, count: int) -> Charges:
        """The sample, and what the mechanism says; while no clip is learned, what it says with the bound."""
        learning, silent = self._parts(state, first, count)
        if silent == count:
            return Charges(first, self._units(learning, count))
        released = state.released.mechanism
        own = released.public(state.released.state, first + silent, count - silent)
        times, spans = self._times(released), own.spans.copy()
        spans[:, 4] *= times
        units = np.concatenate([self._units(learning, silent), own.units * times])
        return Charges(first, units, spans)

    def resume(self, state: State, step: int, recent: Integers) -> None:
        """Let the mechanism fill what follows from its own charges."""
        released, began = state.released.mechanism, int(state.numbers[BEGAN])
        if not began or not isinstance(released, Resumes):
            return
        steps = np.arange(step - len(recent) + 1, step + 1)
        own = np.where(steps >= began, recent // self._times(released), 0)
        released.resume(state.released.state, step, own)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Take steps into the sample, learn the clip, wait, then release."""
        count = len(rows)
        learning, silent = self._parts(state, first, count)
        clips = np.full(count, state.numbers[CLIP])
        if learning:
            self._collect(state, rows[:learning])
            if state.numbers[PUSHED] == self.learn:
                self._learn(state, first + learning - 1, noise.source)
                clips[learning - 1 :] = state.numbers[CLIP]
        output = self._release(state, rows[silent:], first + silent, noise)
        output = output.after_silence(silent)
        output.units[:silent] = self._units(learning, silent)
        return output._replace(more=(clips, *output.more))

    def _collect(self, state: State, rows: Matrix) -> None:
        added = rows if self.sums_of_sample else self.bins.apart(rows)[0].sum(axis=1)
        state.sample[:] += added.sum(axis=0)  # the reader bounds how many records there are
        state.numbers[PUSHED] += len(rows)

    def _learn(self, state: State, step: int, source: Source) -> None:
        """Draw the threshold, and where they are needed the sums of the sample; then forget it."""
        bins, sample = self.bins, state.sample
        if self.sums_of_sample:
            sample = bins.apart(state.sample[np.newaxis])[0].sum(axis=(0, 1))
        above = np.append(sample.sum(), sample.sum() - np.cumsum(sample))
        clip = self.fitting(self.clip_of(above, source, step), self.units)
        state.numbers[LEARNED], state.numbers[CLIP] = step, clip
        if self.sums_of_sample:
            total = self._measured(state.sample[np.newaxis], clip)[0]
            scale, grid = self.first_scale(clip), float(Fraction(self.grid))
            drawn = laplace(source, "sums of the sample", step, scale, total.shape)
            state.first[:-1] = (total + drawn) * grid
            state.first[-1] = variance_laplace(scale) * grid**2
        state.sample[:] = 0
        state.released.begin(clip, step + 1)

    def _measured(self, vectors: Matrix, clip: int) -> Matrix:
        """What the mechanism is given, each number cut at the same public bound."""
        found = self.made.measured(self.bins.clipped(vectors, clip), self.bins.totals(vectors), clip)
        return np.ascontiguousarray(np.clip(found, -LARGEST, LARGEST))

    def _release(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps by the mechanism; without any, nothing but arrays of the right form."""
        nested = state.released
        if len(rows) and not state.numbers[BEGAN]:
            state.numbers[BEGAN] = first
            nested.begin(nested.clip, first)
        measured = self._measured(rows, nested.clip)
        found: Output = nested.mechanism.advance(nested.state, measured, first, noise)
        times, spans = self._times(nested.mechanism), found.spans.copy()
        spans[:, 4] *= times
        if self.sums_of_sample:
            found = found._replace(
                values=found.values + state.first[:-1],
                scale=np.sqrt(found.scale**2 + state.first[-1]),
            )
        return found._replace(units=found.units * times, spans=spans)

    def finish(self, state: State, last: int, noise: Draws) -> Output | None:
        """As for the mechanism."""
        finish = getattr(state.released.mechanism, "finish", None)
        if finish is None or not state.numbers[BEGAN]:
            return None
        found: Output | None = finish(state.released.state, last, noise)
        return None if found is None else found._replace(more=(np.zeros(0, dtype=np.int64), *found.more))

    def attach(self, releases: Releases, more: Any, revised: Any) -> ClippedReleases:
        """Releases with the clip and with what the mechanism releases besides, for readers."""
        clips, *own = more
        clip = int(clips[-1]) if len(clips) else 0
        released: Any = self.at(clip) if clip else self.bounded
        found, unit, times = releases, releases.unit, self._times(released)
        if hasattr(released, "attach"):
            charged = releases.units.copy()
            releases.units, releases.unit = releases.units // times, unit * times  # in the mechanism's units
            found = released.attach(releases, own, revised)
            found.units, found.unit = found.units * times, unit
            silent = found.status == int(Status.SILENT)
            found.units[silent] = charged[silent]
        return ClippedReleases.with_clip(found, clips, float(Fraction(self.grid)))

    def intervals(self) -> Fold:
        """As for the mechanism with the largest clip, whose scales are released; noise that steps share is no wider."""
        released: Any = self.bounded
        found: Fold = released.intervals()
        return found


def _public(released: Any) -> tuple[int, bool]:
    """What a session was promised of a mechanism: its spans, and whether its state holds noise."""
    return int(released.most_spans), bool(released.noise_in_state)
