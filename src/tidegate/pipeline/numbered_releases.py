"""Commits as numbered releases: what every sink gets, made from committed bytes alone.

A release has a number, counted from 1 for each query. A step may be released again: revision 0 is its first release.
Numbers, revisions, intervals and what stands for missing readings are a fold over the commits. So the same bytes come
out whenever a commit is read, at once or after a crash. Where the fold stands is kept with the sinks, to begin there at
the next start instead of at the first commit.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import Charges
from tidegate.core.commit import FINISHED, HALTED, PUSHED, Row
from tidegate.core.errors import LogMismatch
from tidegate.core.mechanism import Mechanism
from tidegate.core.scope import Scope
from tidegate.core.session import charges_of
from tidegate.intervals import Fold, Phases
from tidegate.pipeline.missing_readings import Gaps
from tidegate.pipeline.window_spending import Spending
from tidegate.releases import Releases, Status
from tidegate.sinks.chunks import Chunk, joined

Mask = npt.NDArray[np.bool_]
Masks = Callable[[str, int, int], "Mask | None"]
State = dict[str, Any]

BEGINNING: State = {
    "commit": 0,
    "number": 0,
    "step": 0,
    "revised": [],
    "spent": [],
    "spans": [],
    "gaps": None,
    "intervals": None,
    "clip": None,
}
SAID = (PUSHED, HALTED, FINISHED)  # commits with something for readers
ARCHIVED = (
    "the releases of commit {number} are in an archive; name its folder as archives in [run], or put the output back "
    "that has them."
)


class ReleaseReader:
    """Reads the commits of one query in order.

    Parameters
    ----------
    name, scope
        The query, and its scope in the log: what it releases, and from which step on.
    mechanism
        What has released them.
    masks
        Which cells of some steps have no reading, or None; None where no reading is ever missing.
    withholds
        Whether a value without a reading is withheld; not so where released values are sums over steps.
    seasons
        Lengths of a day and a week in steps, as far as the clock has them.
    explained
        Whether releases say of what their errors are made: answers ask for it.
    state
        Where to continue; by default before the first commit.
    """

    def __init__(
        self,
        name: str,
        scope: Scope,
        mechanism: Mechanism,
        *,
        masks: Masks | None,
        withholds: bool,
        seasons: Sequence[int] = (),
        explained: bool = False,
        state: State | None = None,
    ) -> None:
        self.name, self.scope = name, scope
        self._columns, self._outputs = mechanism.columns, mechanism.outputs
        self._masks, self._withholds, self._explained = masks, withholds, explained
        self._intervals: Fold | None = mechanism.intervals() if hasattr(mechanism, "intervals") else None
        if self._intervals is not None and seasons and getattr(mechanism, "skips_steps", False):
            self._intervals = Phases(self._intervals, seasons)
        self._revises = bool(getattr(mechanism, "revised", ()))
        found = BEGINNING if state is None else state
        self.commit: int = found["commit"]  # the next one
        self.number: int = found["number"]  # of the last release
        self.step: int = found["step"]  # the last one of which anything was said
        self._revised: list[list[int]] = [list(each) for each in found["revised"]]  # first and last step
        self._spent: dict[int, int] = dict(found["spent"])  # units of steps that may be released again
        self.spending = Spending(mechanism, found["spans"])
        self.gaps = Gaps.fresh(self._columns, None) if found["gaps"] is None else Gaps.read(found["gaps"])
        self.clip: float | None = found["clip"]  # where values are clipped, if that is learnt
        if self._intervals is not None:
            self._errors = self._intervals.begin()
            if found["intervals"] is not None:
                stored = np.frombuffer(b64decode(found["intervals"]), dtype=self._errors.dtype)
                if stored.size == self._errors.size:  # another version may have learnt something else
                    self._errors = stored.reshape(self._errors.shape).copy()

    @property
    def state(self) -> State:
        """Where it stands, as JSON."""
        return {
            "scope": self.scope.number,
            "commit": self.commit,
            "number": self.number,
            "step": self.step,
            "revised": [list(each) for each in self._revised],
            "spent": [list(each) for each in self._spent.items()],
            "spans": self.spending.live(self.step),
            "gaps": None if self._masks is None else self.gaps.describe(),
            "intervals": None if self._intervals is None else b64encode(self._errors.tobytes()).decode(),
            "clip": self.clip,
        }

    def read(self, row: Row, released: Mapping[str, Releases] | None) -> Chunk:
        """The releases of the next commit; there may be none."""
        if row.number != self.commit:
            raise LogMismatch(f"commit {row.number} was read in place of {self.commit}; open the log again.")
        charges = dict(charges_of(row)).get(self.scope.number) if row.kind in SAID else None
        found: list[Chunk] = []
        if charges is not None:
            self.spending.read(charges)
        if charges is not None and row.kind == HALTED:
            found = [self._halted(charges)]
        elif charges is not None:
            if released is None:
                raise LogMismatch(ARCHIVED.format(number=row.number))
            found = self._made(charges, released[self.name])
        chunk = joined(found, self._outputs) if found else no_releases_after(self.number)
        early = int(
            (chunk.step < self.scope.first).sum()
        )  # silent, while windows hold what an ended scope has read
        chunk = replace(chunk[early : len(chunk)], first=self.number + 1) if early else chunk
        self.commit, self.number = row.number + 1, chunk.last
        if charges is not None:
            self.step = max(self.step, charges.last)
        return chunk

    def _made(self, charges: Charges, releases: Releases) -> list[Chunk]:
        if self._intervals is not None:
            self._errors = self._intervals.attach(self._errors, releases)
        found, last = [], self.number
        clips = getattr(releases, "clip", None)
        if clips is not None and len(clips) and np.isfinite(clips[-1]):
            self.clip = float(clips[-1])
        if len(releases):
            missing = self._missing(charges.first, charges.last)
            made = Chunk.of_batch(last + 1, releases, explained=self._explained)
            chunk = replace(made, units=self.spending.units(charges))
            if self._revises:
                pairs = zip(chunk.step.tolist(), chunk.units.tolist(), strict=True)
                self._spent.update((step, units) for step, units in pairs if units)
            if self._masks is not None:
                self.gaps.learn(
                    releases, np.zeros(self._columns, np.bool_) if missing is None else missing[0]
                )
            found, last = [self._withheld(chunk, missing)], chunk.last
        revised = releases.revised
        if revised is not None and len(revised):
            again = Chunk.of_batch(last + 1, revised, self._revisions(revised.steps))
            if not revised.units.any():  # it costs nothing more: the row says what the step has cost
                spent = [self._spent.get(step, 0) for step in again.step.tolist()]
                again = replace(again, units=np.array(spent, dtype=np.int64))
            self._spent = {step: units for step, units in self._spent.items() if step > again.step[-1]}
            missing = self._missing(int(revised.steps[0]), int(revised.steps[-1]))
            found.append(self._withheld(again, missing))
        return found

    def _missing(self, first: int, last: int) -> Mask | None:
        return None if self._masks is None else self._masks(self.name, first, last)

    def _withheld(self, chunk: Chunk, missing: Mask | None) -> Chunk:
        return chunk if missing is None or not self._withholds else chunk.withheld(missing)

    def _revisions(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How often each of these steps, which are consecutive, is revised with this; remembered."""
        covered = self.revisions_of(steps) + 1
        before = next((each for each in self._revised if each[1] == steps[0] - 1), None)
        if before is None:
            self._revised.append([int(steps[0]), int(steps[-1])])
        else:
            before[1] = int(steps[-1])
        return covered

    def revisions_of(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How often each of some steps was revised so far."""
        found = np.zeros(len(steps), dtype=np.int64)
        for first, last in self._revised:
            found += (steps >= first) & (steps <= last)
        return found

    def _halted(self, charges: Charges) -> Chunk:
        """Steps that were charged, and of which nothing is said."""
        steps = np.arange(charges.first, charges.last + 1)
        count = len(steps)
        return Chunk(
            self.number + 1,
            steps,
            steps,
            self.spending.units(charges),
            np.zeros(count),
            np.zeros(count, dtype=np.int32),
            np.zeros(count, dtype=np.int32),
            np.full(count, Status.SILENT, dtype=np.int8),
            np.full((count, self._outputs), np.nan),
        )


def no_releases_after(number: int) -> Chunk:
    """No release, behind those up to a number."""
    return replace(Chunk.of(1, []), first=number + 1)
