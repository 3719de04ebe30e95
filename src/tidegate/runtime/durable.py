"""A run that is durable by itself: charge, state and release of every push are one commit in the ledger's database.

A process that dies at any instruction is in one of two cases when it opens the run again: the push was not committed,
then nobody has seen anything of it and its step is still to come; or it was, then its release is in `releases()`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter, LedgerError, LedgerMismatch, TidegateError
from tidegate.exact import whole
from tidegate.ledger import Ledger, Verdict
from tidegate.mechanisms import Mechanism, Run
from tidegate.mechanisms.run import Pushed
from tidegate.noise.law import spread_radius
from tidegate.releases import Radii, Release, Releases, Values
from tidegate.runtime.chunks import CONFIDENCE, Chunk, joined, newest
from tidegate.runtime.pruning import Pruned, Pruning, prune
from tidegate.runtime.store import Progress, Store, open_store, stored_fingerprint

Result = TypeVar("Result", Release, Releases)


class KeptReleases(Releases):
    """Releases as they were read from the store, with their intervals, which are kept for 90 %."""

    __slots__ = ("_radius",)

    def __init__(self, chunk: Chunk, mechanism: Mechanism, ledger: Ledger) -> None:
        super().__init__(
            int(chunk.step[0]) if len(chunk) else ledger.step + 1,
            chunk.values,
            chunk.status,
            chunk.source,
            chunk.scale,
            chunk.units,
            ledger.unit,
            int(chunk.delay.max(initial=0)),
        )
        self.law = mechanism.law
        self._radius = chunk.radius
        if chunk.radius is not None:
            self.radii = Radii(self._around)

    def _around(self, confidence: float) -> Values:
        radius = self.radius(confidence)
        assert radius is not None
        return radius

    def radius(self, confidence: float = CONFIDENCE) -> Values | None:
        """Half the widths of `interval`; those that a model gave are kept for 90 % and made wider or narrower."""
        if confidence == CONFIDENCE or self._radius is None:
            return self._radius
        wider = self._radius * (spread_radius(1.0, confidence) / spread_radius(1.0, CONFIDENCE))
        if self.law is None:
            return wider
        return np.where(
            self.fresh[:, np.newaxis], self.law.radius(self.scale, confidence)[:, np.newaxis], wider
        )


class DurableRun:
    """A run whose every push is on disk, with its charge and its state, before it returns; made by `tidegate.open`.

    Attributes
    ----------
    mechanism
        The configuration that is at work.

    One lock lets threads take turns, so any of them may push and read. An event loop is not held up if pushes go to a
    thread, ``await asyncio.to_thread(run.push, values)``; a task that is cancelled meanwhile does not undo the push,
    whose release is then found by `releases`. Whoever pushes from several places gives `step`, so that none is
    taken for another. A forked child opens a run of its own.

    A push that fails, for whatever reason, leaves the run where the last committed push left it, and usable.

    Examples
    --------
    >>> import tempfile, tidegate as tg
    >>> folder = tempfile.TemporaryDirectory()

    >>> with tg.open(tg.mechanisms.Uniform(tg.Event(epsilon="1")), f"{folder.name}/s.ledger") as run:
    ...     release = run.push(7)
    ...     run.step, len(run.releases())
    (1, 1)
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, mechanism: Mechanism, names: tuple[str, ...] | None = None) -> None:
        self.mechanism = mechanism
        self._names = names
        self._store = store
        self._lock = threading.RLock()
        self._run: Run | None = None
        self._standing()

    def _standing(self) -> Run:
        """The run, begun again where the last commit stands if a push has failed."""
        if self._run is None:
            self._store.refresh()
            self._run = self._begin()
        return self._run

    def _begin(self) -> Run:
        progress = self._store.progress
        run = self.mechanism.start(ledger=self._store.ledger, state=progress.state)
        if run.step != progress.step:
            raise LedgerMismatch(
                f"the ledger stands at step {run.step} and its releases at step {progress.step}; "
                "use a ledger that nothing else has charged."
            )
        run.names = self._names or run.names
        return run

    # pushing ------------------------------------------------------------------------------------------------

    def push(
        self,
        values: Pushed,
        step: int | None = None,
        *,
        position: object = None,
    ) -> Release:
        """Release the next step; when this returns, everything about it is on disk.

        Parameters
        ----------
        values, step
            As for the push of every run.
        position
            Where the caller stands in its own source, as JSON: committed with the release, and found in `position`
            after a crash. Give offsets or times, never what people have contributed.
        """

        def release(run: Run) -> tuple[Release, Chunk]:
            found = run.push(values, step)
            return found, Chunk.of(self._store.progress.number + 1, [found])

        return self._commit(release, position)

    def push_batch(self, matrix: npt.ArrayLike, *, position: object = None) -> Releases:
        """Release many steps, all of them in one commit; parameters as for `push`."""

        def release(run: Run) -> tuple[Releases, Chunk]:
            found = run.push_batch(matrix)
            return found, Chunk.of_batch(self._store.progress.number + 1, found)

        return self._commit(release, position)

    def finish(self) -> Releases | None:
        """The last word of a mechanism that works in periods, when the stream has ended; None where it has none."""
        with self._committing() as (run, before):
            final = run.flush()
            if final is not None and len(final):
                self._put(Chunk.of(before.number + 1, []), final, before.step, before.position or {})
        return final

    def _commit(self, release: Callable[[Run], tuple[Result, Chunk]], position: object) -> Result:
        _check_position(position)
        with self._committing() as (run, before):
            found, chunk = release(run)
            kept = {"caller": position} if position is not None else before.position or {}
            self._put(chunk, found.revised, run.step, kept)
        return found

    @contextmanager
    def _committing(self) -> Iterator[tuple[Run, Progress]]:
        """One transaction; whatever goes wrong in it, the next one goes on from the last commit."""
        if (
            self._store.ledger.in_transaction
        ):  # asked before the lock is taken, so that two threads cannot wait in a ring
            raise LedgerMismatch(
                "a push is one commit of its own and was called inside of another; push when that has ended."
            )
        with self._lock:
            run = self._standing()
            self._next: Progress | None = None
            try:
                with self._store.transaction():
                    yield run, self._store.progress
                if self._next is not None:
                    self._store.committed(self._next)
            except BaseException:
                # Rolled back, or interrupted right after the commit: the database knows, and the state in memory may be
                # ahead of it.
                self._run = None
                with suppress(TidegateError):
                    self._store.refresh()
                raise

    def _put(self, chunk: Chunk, revised: Releases | None, step: int, position: dict[str, Any]) -> None:
        """Keep releases and the state that they lead to, and better values of earlier steps after them."""
        if revised is not None and len(revised):
            again = self._store.revisions(revised.steps) + 1
            self._store.put_revisions(revised.steps, again)
            more = Chunk.of_batch(chunk.last + 1, revised, again)
            chunk = joined([chunk, more], more.values.shape[1]) if len(chunk) else more
        if len(chunk) and self._run is not None:
            state = self._run.snapshot()
            self._store.put(chunk, step, position, state)
            self._next = Progress(step, chunk.last, position, state)

    # reading ------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The last step that was committed; 0 before any."""
        return self._store.progress.step

    @property
    def position(self) -> Any:
        """What the last push that gave a `position` gave; None before any."""
        return (self._store.progress.position or {}).get("caller")

    def remaining(self, step: int | None = None) -> Fraction:
        """What a charge to a step (by default the next one) may cost, over all windows that contain it."""
        return self._store.ledger.remaining(step)

    def spent(self, first: int | None = None, last: int | None = None) -> Fraction:
        """What the steps first to last were charged; the window that ends at the last step if not given."""
        return self._store.ledger.spent(first, last)

    def releases(self, since: int = 0, *, final: bool = False) -> Releases:
        """What was released after a step, as it was released, also by earlier processes.

        Parameters
        ----------
        since
            The last step that the caller has; 0 for all.
        final
            Whether to give the best values of each step that are known by now, where a mechanism revises them.
        """
        since = whole("since", since, least=0)
        with self._lock:
            self._standing()
            if since < self._store.archived.step:
                raise LedgerError(
                    f"releases up to step {self._store.archived.step} are in archives of this ledger; ask for those "
                    f"since={self._store.archived.step}, or open an archive."
                )
            found = []
            for chunk in self._store.latest():
                found.append(chunk.picked(np.flatnonzero(chunk.step > since)))
                if (chunk.step[chunk.revision == 0] <= since + 1).any():
                    break
            chunk = _by_step(joined(found[::-1], self.mechanism.outputs), final)
            kept = KeptReleases(chunk, self.mechanism, self._store.ledger)
            kept.names = self._names if self.mechanism.outputs == self.mechanism.columns else None
            return kept

    def verify(self) -> Verdict:
        """Replay all charges, and compare all releases with the chain that they are in."""
        with self._lock:
            return self._store.verify()

    def prune(self, archives: str | PathLike[str], *, keep: int | None = None) -> Pruned | None:
        """Move what no window needs any more into an archive, so that the ledger stays small; None if there is nothing.

        Parameters
        ----------
        archives
            A folder; each archive is named by its last row.
        keep
            How many of the last steps stay; by default twice a window, and at least 1,000.
        """
        with self._lock:
            run = self._standing()
            try:
                return prune([Pruning(self._store, run)], Path(archives), keep=keep)
            except BaseException:
                self._run = None
                with suppress(TidegateError):
                    self._store.refresh()
                raise

    # closing ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the ledger; of a run that has released nothing no file stays behind."""
        with self._lock:
            self._store.discard()

    def __enter__(self) -> DurableRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = type(self.mechanism).__name__
        return f"<DurableRun of {name} at step {self.step} on {self._store.ledger.where}>"


def _checked_names(names: Sequence[str], columns: int) -> list[str]:
    found = list(names)
    if (
        len(found) != columns
        or len(set(found)) != columns
        or not all(isinstance(name, str) for name in found)
    ):
        raise InvalidParameter("names", found, f"{columns} different texts, one a column", "give as many")
    return found


def _check_position(position: object) -> None:
    """Refuse a position that could not be read back."""
    try:
        json.dumps(position, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidParameter(
            "position", type(position).__name__, "JSON: numbers, texts, lists, objects", "convert it"
        ) from None


def _by_step(chunk: Chunk, final: bool) -> Chunk:
    """One release of each step, the first or the best of them, in the order of steps."""
    if not final:
        return chunk.picked(np.flatnonzero(chunk.revision == 0))
    return chunk.picked(newest(chunk.step, chunk.revision))


def _described(mechanism: Mechanism, names: Sequence[str] | None) -> tuple[dict[str, Any], str]:
    """What must not change while a run goes on, and its digest."""
    described: dict[str, Any] = {"mechanism": mechanism.describe(), "made_by": "tidegate.open"}
    if names is not None:
        described["names"] = _checked_names(names, mechanism.columns)
    text = json.dumps(described, sort_keys=True, ensure_ascii=False)
    return described, hashlib.sha256(text.encode()).hexdigest()[:32]


def open(
    mechanism: Mechanism, ledger: str | PathLike[str], *, names: Sequence[str] | None = None
) -> DurableRun:
    """Begin, or after any kind of end go on with, a run that keeps itself in its ledger.

    Parameters
    ----------
    mechanism
        The configuration; the same as before where the ledger exists. A run that was begun by version 0.1 goes on with
        what the same arguments meant then: Laplace noise where none is named.
    ledger
        The file of the ledger, created if there is none, or the URL of a PostgreSQL database.
    names
        The names of the columns, kept with the run: DataFrames and mappings that are pushed must have them, in any order,
        and tables of releases carry them.

    Returns
    -------
    DurableRun
        Pushes like every run; what it has released is on disk before `push` returns.

    Examples
    --------
    >>> import tempfile, tidegate as tg
    >>> mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", w=24))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for count in (12, 7):  # two processes, one after the other
    ...         with tg.open(mechanism, f"{folder}/service.ledger") as run:
    ...             release = run.push(count)
    ...     with tg.open(mechanism, f"{folder}/service.ledger") as run:
    ...         print(run.step, run.releases(since=1).steps, run.verify().ok)
    2 [2] True
    """
    described, fingerprint = _described(mechanism, names)
    earlier = mechanism.earlier
    if earlier is not None:
        before, known = _described(earlier, names)
        if stored_fingerprint(ledger) == known:
            mechanism, described, fingerprint = earlier, before, known
    store = open_store(ledger, mechanism.policy, mechanism.units, fingerprint, described)
    try:
        return DurableRun(store, mechanism, None if names is None else tuple(names))
    except BaseException:
        store.discard()
        raise
