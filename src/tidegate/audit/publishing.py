"""Many independent runs of Budget Distribution or Budget Absorption, by their own compiled loop.

A pristine run is started through the front door; its arrays are copied for every replica, and the loop that
`PublishingRun` drives is driven over them. A replica whose noise floating point cannot decide (one in some ten
thousand) is run again through the front door, on the same random words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import kernels
from tidegate.mechanisms.loop_run import INLINE
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.column_groups_run import GroupedRun
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.mechanisms.w_event.publishing_run import PublishingRun
from tidegate.noise import Source, current, install
from tidegate.noise.entropy import Elements, Words
from tidegate.releases import Status

MEASURED = (Status.FRESH, Status.PARTIAL)
CELLS = 1 << 18  # random words that are drawn at once


class GivenWords:
    """A source that serves words which were drawn before, and fresh ones after them."""

    def __init__(self, source: Source, given: dict[str, Words]) -> None:
        self._source, self._given = source, given
        self.name, self.marked = source.name, source.marked

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The words that were drawn for this stream."""
        return self._given[stream].copy()

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A fresh word: those drawn before have been taken."""
        return self._source.word(stream, step, draw, index)


class PublishingReplicas:
    """Fresh runs of one configuration, as many as wanted."""

    def __init__(self, mechanism: Publishing) -> None:
        self.mechanism = mechanism

    @classmethod
    def of(cls, mechanism: Mechanism) -> PublishingReplicas | None:
        """The replicas of a mechanism, or None where its loop does not do all of the work."""
        if not isinstance(mechanism, Publishing) or mechanism.columns > INLINE or mechanism.shares_noise:
            return None
        run: Any = mechanism.start()
        if type(run) is GroupedRun:
            return GroupedReplicas(mechanism, run)
        plain = type(run) is PublishingRun and not run._regroup_every and run._rule.measure != loop.GIVEN
        return cls(mechanism) if plain else None

    def sample(self, stream: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.float64]:
        """Transcripts, one a row."""
        steps, columns = stream.shape
        most = max(1, CELLS // (2 * steps * columns))
        parts = [self._some(stream, min(most, count - start)) for start in range(0, count, most)]
        return np.concatenate(parts)

    def _some(self, stream: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.float64]:
        mechanism, source = self.mechanism, current()
        run: Any = mechanism.start()
        rows = run._rows(stream)
        steps, columns = rows.shape
        groups = mechanism.group_count
        run._make_room(1, steps)
        score_words = self._words(source, "dissimilarity", count, steps * groups)
        cell_words = self._words(source, "publication", count, steps * columns)
        values = np.empty((count, steps, columns))
        status = np.empty((count, steps), dtype=np.int8)
        scales = np.empty((count, steps))
        decided = np.zeros(count, dtype=np.bool_)
        with run.ledger.begin_batch(2 * steps) as batch:
            kernels.replicate_publishing(
                rows,
                run._rule[:],
                score_words,
                cell_words,
                run._work[:],
                (batch.entries[: 2 * steps].copy(), batch.state.copy()),
                run._arrays[:],
                values,
                status,
                scales,
                decided,
            )
        for replica in np.flatnonzero(~decided):
            given = {"dissimilarity": score_words[replica], "publication": cell_words[replica]}
            values[replica], scales[replica], status[replica] = self.one(stream, given)
        shown = np.where(np.isin(status, MEASURED), scales, 0.0)
        return np.concatenate([values, shown[:, :, np.newaxis]], axis=2).reshape(count, -1)

    def one(self, stream: npt.NDArray[np.int64], given: dict[str, Words]) -> tuple[Any, Any, Any]:
        """Values, scales and status of one run through the front door, on words that were drawn before."""
        with install(GivenWords(current(), given)):
            releases = self.mechanism.start().push_batch(stream)
            return releases.values, releases.scale, releases.status

    @staticmethod
    def _words(source: Source, stream: str, count: int, draws: int) -> Words:
        drawn = source.words(stream, 1, 1, range(2 * count * draws), 0, 1)
        return drawn.reshape(count, 2, draws)


class GroupedReplicas(PublishingReplicas):
    """Groups of columns that run by themselves: the replicas of each, side by side."""

    def __init__(self, mechanism: Publishing, run: Any) -> None:
        super().__init__(mechanism)
        self._members = run._members
        self._parts = [PublishingReplicas(part.mechanism) for part in run._runs]

    def sample(self, stream: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.float64]:
        """Transcripts, one a row."""
        steps, columns = stream.shape
        out = np.zeros((count, steps, columns + 1))
        for members, part in zip(self._members, self._parts, strict=True):
            drawn = part.sample(np.ascontiguousarray(stream[:, members]), count)
            shaped = drawn.reshape(count, steps, len(members) + 1)
            out[:, :, members] = shaped[:, :, :-1]
            np.maximum(out[:, :, -1], shaped[:, :, -1], out=out[:, :, -1])  # the largest, as a run says
        return out.reshape(count, -1)
