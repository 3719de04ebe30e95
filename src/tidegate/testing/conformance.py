"""One suite that every mechanism passes, ours or a user's own.

>>> from tidegate.testing.conformance import CHECKS
>>> len(CHECKS) >= 12
True

Each check takes a configured mechanism and raises AssertionError, with a sentence, when it does not conform. The
checks find the mechanism's own examples through ``Mechanism.examples()``; the test suite runs every check on every
example of every mechanism in the catalogue.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import (
    BudgetExceeded,
    InvalidInput,
    InvalidParameter,
    LedgerError,
    LedgerMismatch,
    SnapshotError,
)
from tidegate.ledger import Group, Ledger, MemoryLedger
from tidegate.ledger.events import MOST_STEPS
from tidegate.ledger.parallel import ParallelLedger
from tidegate.mechanisms import Blocks, Mechanism, Run, snapshot
from tidegate.noise import Source
from tidegate.noise.entropy import Elements, Words
from tidegate.policy import Swellfish
from tidegate.releases import Release, Releases, Status
from tidegate.testing.entropy import CountingEntropy, FixedEntropy, ZeroEntropy, fixed_entropy, install

Check = Callable[[Mechanism], None]
CHECKS: list[Check] = []
STEPS = 60
REMEMBERED = (int, float, Fraction, str, tuple, np.ndarray)  # what a configuration computes once
REAL_TYPES = ["float16", "float32", "float64", "longdouble", "object"]
ROUNDING = 1e-9  # of floating point, where forecasts have other numbers of steps in them
MARKER = 7_319_064_211  # a raw value that cannot come about by chance


def check(function: Check) -> Check:
    """Register a check."""
    CHECKS.append(function)
    return function


def stream(mechanism: Mechanism, steps: int = STEPS, phase: int = 0) -> npt.NDArray[np.float64]:
    """A stream that moves, stands still, is empty for a while and jumps, on the mechanism's grid."""
    time = np.arange(steps)[:, np.newaxis] + phase
    column = np.arange(mechanism.columns)[np.newaxis, :]
    wave = 40 + 30 * np.sin(2 * np.pi * (time + 5 * column) / 24)
    still = np.where((time // 20) % 3 == 1, 25.0, wave)
    empty = np.where((time // 10) % 6 == 4, 0.0, still)
    jumping = np.where(time % 37 == 0, 400.0, empty)
    grid = Fraction(mechanism.grid)
    return np.floor(jumping * grid.denominator + 0.5) / grid.denominator


def same(one: Releases | list[Release], other: Releases | list[Release], within: float = 0.0) -> bool:
    """Whether two sequences of releases are equal in every published field; values within a relative difference."""
    left, right = list(one), list(other)
    return len(left) == len(right) and all(
        np.allclose(a.values, b.values, rtol=within, atol=within, equal_nan=True)
        and (a.step, a.status, a.source, a.units, a.unit) == (b.step, b.status, b.source, b.units, b.unit)
        and abs(a.scale - b.scale) <= 1e-12 * abs(a.scale)
        for a, b in zip(left, right, strict=True)
    )


def _pushed(run: Run, rows: npt.NDArray[Any]) -> list[Release]:
    return [run.push(row) for row in rows]


@check
def push_equals_push_batch(mechanism: Mechanism) -> None:
    """Single pushes and one batch give identical releases under fixed entropy."""
    rows = stream(mechanism)
    with fixed_entropy(11):
        single = _pushed(mechanism.start(), rows)
        batch = mechanism.start().push_batch(rows)
    assert same(single, batch), "push and push_batch differ under the same entropy"


@check
def batches_may_be_cut_anywhere(mechanism: Mechanism) -> None:
    """One batch, several batches and pushes in between give identical releases."""
    rows = stream(mechanism)
    with fixed_entropy(12):
        whole = list(mechanism.start().push_batch(rows))
        run = mechanism.start()
        pieces = [*run.push_batch(rows[:1]), *run.push_batch(rows[1:17]), run.push(rows[17])]
        pieces += [*run.push_batch(rows[18:18]), *run.push_batch(rows[18:])]
    assert same(whole, pieces), "cutting a batch changes the releases"


@check
def every_step_of_a_batch_has_each_field(mechanism: Mechanism) -> None:
    """Statuses, sources, scales, charges and measurements of a batch: one for each of its steps, as of pushes."""
    rows = stream(mechanism, 30)
    with fixed_entropy(15):
        run, one = mechanism.start(), mechanism.start()
        for batch in (rows[:9], rows[9:9], rows[9:]):
            found, pushed = run.push_batch(batch), _pushed(one, batch)
            steps = len(batch)
            for name in ("values", "status", "source", "scale", "units"):
                assert len(getattr(found, name)) == steps, (
                    f"{name} of a batch has another length than the batch"
                )
            measured = found.measured
            for name, part in zip(measured._fields, measured, strict=True) if measured is not None else ():
                single = np.array([getattr(release.measured, name) for release in pushed]).reshape(part.shape)
                assert part.shape[0] == steps, f"{name} has another length than the batch"
                assert np.array_equal(part, single, equal_nan=True), (
                    f"{name} of a batch is not that of single pushes"
                )


@check
def revisions_say_where_they_come_from(mechanism: Mechanism) -> None:
    """A revised step has the charge of its step, and rests on a measured step or on all until it became known."""
    with fixed_entropy(16):
        releases = mechanism.start().push_batch(stream(mechanism, 100))
    revised = releases.revised
    if revised is None or revised.ends is None:
        return
    count = len(revised)
    begin = revised.first_step - releases.first_step
    assert np.array_equal(revised.units, releases.units[begin : begin + count]), (
        "a revision has another charge"
    )
    whole = revised.source == revised.ends
    measured = revised.status[revised.source - revised.first_step] != Status.APPROXIMATED
    assert (whole | measured).all(), "a revision rests on a step that was not measured"


@check
def restored_run_goes_on_unchanged(mechanism: Mechanism) -> None:
    """A run restored from a snapshot at any of several steps goes on as if it had never stopped."""
    rows = stream(mechanism)
    with fixed_entropy(13), TemporaryDirectory() as folder:
        # noise that steps share is continued where the ledger is durable, in the same file, and nowhere else
        durable = Path(folder) if mechanism.shares_noise else None
        whole = _pushed(mechanism.start(), rows)
        for index in (0, 1, 2, 7, 23, 24, 41):
            restored = _restarted(mechanism, durable and durable / f"{index}", rows[:index])
            assert restored.step == index, "the restored run stands at another step"
            assert same(whole[index:], _pushed(restored, rows[index:])), (
                f"restoring at step {index} changes releases"
            )
            other = _restarted(mechanism, durable and durable / f"{index} again", rows[:index])
            again = other.push_batch(rows[index:])
            assert same(whole[index:], again), f"a batch after restoring at step {index} changes releases"
            restored.ledger.close()
            other.ledger.close()


def _restarted(mechanism: Mechanism, path: Path | None, rows: npt.NDArray[Any]) -> Run:
    """A run that has released some steps, and was stopped and started again."""
    run = mechanism.start(ledger=path)
    _pushed(run, rows)
    state = run.snapshot()
    run.ledger.close()
    return mechanism.start(ledger=path, state=state)


@check
def shared_noise_is_gone_on_with_once(mechanism: Mechanism) -> None:
    """A snapshot of a ledger in memory, which may be restored twice, goes on in silence; who was overtaken ends."""
    if not mechanism.shares_noise:
        return
    rows = stream(mechanism)
    run = mechanism.start()
    run.push_batch(rows[:3])
    if not run.holds_noise:
        return  # nothing is secret at this moment
    measured = _silent_at_first(mechanism, None, run.snapshot(), rows[3:])
    # whoever decides what is worth a measurement may by chance wait as long as silence lasts, but not every time
    assert any(_goes_on(mechanism, rows, measured) for _ in range(30)), "the one run that goes on was silent"
    restored = mechanism.start(ledger=run.ledger, state=run.snapshot())
    _pushed(restored, rows[3:])
    _mismatch(lambda: run.push(rows[3]))
    _mismatch(lambda: run.push_batch(rows[3:]))
    _mismatch(run.snapshot)
    assert restored.ledger.verify().ok


def _goes_on(mechanism: Mechanism, rows: npt.NDArray[Any], measured: set[int]) -> bool:
    """Whether a run that goes on from a snapshot on its own ledger measures before one that was silent did."""
    run = mechanism.start()
    run.push_batch(rows[:3])
    restored = mechanism.start(ledger=run.ledger, state=run.snapshot())
    first = next((release.step for release in _pushed(restored, rows[3:]) if release.fresh), None)
    return first is not None and first not in measured


def _silent_at_first(
    mechanism: Mechanism, ledger: Ledger | None, state: bytes, rows: npt.NDArray[Any]
) -> set[int]:
    """Shared noise whose past is uncertain is dropped: the run is silent until it shares nothing, or ends for good.

    Returns the steps that it measured.
    """
    try:
        restored = mechanism.start(ledger=ledger, state=state)
    except LedgerMismatch as error:
        assert mechanism.policy.window is None or mechanism.policy.horizon is not None, str(error)
        return set()
    if ledger is None:
        with fixed_entropy(29):  # what is measured after the silence may depend on noise
            restored = mechanism.start(state=state)
    releases = _pushed(restored, rows)
    assert releases[0].status is Status.APPROXIMATED, "noise that may be shared twice was used"
    assert any(release.fresh for release in releases) or len(rows) < (mechanism.policy.window or 0)
    assert restored.ledger.verify().ok
    if ledger is None:
        with fixed_entropy(29):
            again = list(mechanism.start(state=state).push_batch(rows))
        assert [release.status for release in again] == [release.status for release in releases]
    return {release.step for release in releases if release.fresh}


@check
def state_is_bounded(mechanism: Mechanism) -> None:
    """The snapshot, which is all the state there is, does not grow with the stream."""
    run = mechanism.start()
    window = mechanism.policy.window or 1
    run.push_batch(stream(mechanism, max(300, 4 * window)))
    early = len(run.snapshot())
    for repeat in range(4):
        run.push_batch(stream(mechanism, max(300, 4 * window), phase=repeat))
    late = len(run.snapshot())
    assert late <= 1.5 * early + 200, f"the state grew from {early} to {late} bytes"


@check
def something_is_measured(mechanism: Mechanism) -> None:
    """A stream that is large and moves is measured before long: a mechanism that only waits would publish nothing."""
    steps = STEPS if mechanism.policy.horizon else min(max(STEPS, 2 * (mechanism.policy.window or 1)), 2000)
    releases = mechanism.start().push_batch(np.floor(1000 * stream(mechanism, steps)))
    assert np.nan_to_num(releases.values).any(), "nothing was measured: all values are 0"


@check
def ledger_never_below_releases(mechanism: Mechanism) -> None:
    """The ledger has at least the budget that the releases say was spent, in each window, and verifies."""
    run = mechanism.start()
    releases = [run.push(row) for row in stream(mechanism)]
    verdict = run.ledger.verify()
    assert verdict.ok, str(verdict)
    window = mechanism.policy.window or STEPS
    total = mechanism.policy.budget.total
    if isinstance(run.ledger, ParallelLedger):
        return  # a release says what the most expensive part spent, and no unit is in all parts
    if isinstance(mechanism.policy, Swellfish):
        return  # what a release spent counts by the height of each secret; the verdict has judged them all
    for last in range(window, STEPS + 1):
        spent = sum((release.spent for release in releases[last - window : last]), Fraction(0))
        if not getattr(mechanism.policy, "delta", 0):
            assert spent <= total, f"the releases of steps {last - window + 1} to {last} spent {spent}"


class _Stingy(MemoryLedger):
    """A ledger that refuses whatever concerns a step, or comes after it, as long as it is set to."""

    refused_from = MOST_STEPS

    def _unless_refused(self, last: int) -> None:
        if last >= self.refused_from:
            nothing = Fraction(0)
            window = (last, last)
            raise BudgetExceeded(
                spent=nothing, requested=Fraction(1), remaining=nothing, window=window, step=last
            )

    def charge(self, step: int, *arguments: Any, **named: Any) -> None:
        """Charge a step."""
        self._unless_refused(step)
        super().charge(step, *arguments, **named)

    def charge_batch(self, first: int, units: Any, **named: Any) -> None:
        """Charge consecutive steps."""
        self._unless_refused(first + len(units) - 1)
        super().charge_batch(first, units, **named)

    def charge_group(self, first: int, last: int, *arguments: Any, **named: Any) -> Group:
        """Charge a group."""
        self._unless_refused(first)
        return super().charge_group(first, last, *arguments, **named)

    def extend_group(self, group: Group, last: int, **named: Any) -> Group:
        """Extend a group."""
        self._unless_refused(last)
        return super().extend_group(group, last, **named)


@check
def a_refused_batch_never_was(mechanism: Mechanism) -> None:
    """Refused in the middle, on a ledger that others have used, a batch leaves nothing behind, or no usable run."""
    rows = stream(mechanism, 12)

    def begun() -> tuple[_Stingy, Run]:
        ledger = _Stingy(mechanism.policy, mechanism.units)
        ledger.charge(1, 0)
        run = mechanism.start(ledger=ledger)
        for row in rows[:3]:
            run.push(row)
        return ledger, run

    if isinstance(mechanism.start().ledger, ParallelLedger) or not mechanism.enforced:
        return
    with fixed_entropy(31):
        ledger, run = begun()
        stood = run.step
        ledger.refused_from = 8
        try:
            run.push_batch(1000 + rows[3:])
        except BudgetExceeded:
            ledger.refused_from = MOST_STEPS
        else:
            return  # it is charged by a compiled loop
        if run.step != stood:
            return  # what it had decided so far stays paid, and it stands there
        try:
            after = _pushed(run, rows[3:])
        except LedgerMismatch:
            return  # it is not used again
        _, other = begun()
        assert same(after, _pushed(other, rows[3:])), "what was refused shows in later releases"


@check
def charges_of_others_are_seen(mechanism: Mechanism) -> None:
    """Whatever else is charged to a run's ledger stands where `verify` looks, or is refused."""
    if not mechanism.enforced:
        return
    ways: dict[str, tuple[Any, ...]] = {"charge": (1, 0), "charge_batch": (1, [0]), "charge_group": (1, 1, 0)}
    for way, arguments in ways.items():
        ledger = mechanism.start().ledger
        before = ledger.verify().rows
        try:
            getattr(ledger, way)(*arguments)
        except LedgerError:
            continue
        assert ledger.verify().rows == before + 1, "a charge is in no account that is verified"


@check
def ledger_is_asked_before_noise_is_drawn(mechanism: Mechanism) -> None:
    """On an exhausted ledger a push fails and draws nothing, and the run's step does not move."""
    ledger = MemoryLedger(mechanism.policy, mechanism.units)
    if not mechanism.policy.delta:
        ledger.charge(1, int(ledger.remaining(1) / ledger.unit))
    counting = CountingEntropy()
    with install(counting):
        try:
            run = mechanism.start(ledger=ledger)
        except InvalidParameter:
            return  # it insists on accounts side by side, which check themselves
        run.begin_at(1)  # the exhausted step itself
        rows = stream(mechanism, max(2, min(mechanism.policy.window or 2, STEPS)))
        if mechanism.policy.delta:
            return
        refused = 0
        for push in (lambda: run.push(rows[0]), lambda: run.push_batch(rows[:1])):
            before = counting.words_drawn
            try:
                push()
            except BudgetExceeded as error:
                refused += 1
                assert counting.words_drawn == before, "noise was drawn although the ledger refused"
                assert error.remaining >= 0
                assert run.step == 0, "the refused step was counted"
        assert refused in (0, 2), "push and push_batch disagree about an exhausted ledger"


def used_ledger(mechanism: Mechanism, steps: int) -> Ledger:
    """A ledger that stands at a step, though nothing was spent so far."""
    ledger = mechanism.start().ledger
    for part in ledger.parts if isinstance(ledger, ParallelLedger) else (ledger,):
        part.charge_batch(1, np.zeros(steps, dtype=np.int64))
    return ledger


def _numbered_from(offset: int, releases: Releases) -> list[Release]:
    """Releases with other numbers of steps."""
    shifted = list(releases)
    for release in shifted:
        release.step += offset
        release.source += offset if release.source else 0
    return shifted


@check
def begins_anew_on_a_used_ledger(mechanism: Mechanism) -> None:
    """Begun without a snapshot at a later step, a run releases what it releases at step 1: it has seen nothing before.

    Noise is the same at every step here, so that releases can be compared. Mechanisms with a public calendar (periods,
    samples) begin anew where it does, as here, and wait for that elsewhere.
    """
    if isinstance(mechanism.policy, Swellfish):
        return  # its noise follows the calendar of the secrets, not the beginning of a run
    rows, before = stream(mechanism), 840 * (mechanism.policy.window or 1)
    with install(LoudEntropy()):
        expected = _numbered_from(before, mechanism.start().push_batch(rows))
        assert same(
            expected, mechanism.start(ledger=used_ledger(mechanism, before)).push_batch(rows), ROUNDING
        ), "a batch on a used ledger differs from one on a new ledger"
        run = mechanism.start(ledger=used_ledger(mechanism, before))
        early, states = _pushed(run, rows[:23]), run.snapshot()
        assert same(expected[:23], early, ROUNDING), "pushes on a used ledger differ from those on a new one"
        restored = mechanism.start(ledger=run.ledger, state=states)
        assert same(expected[23:], _pushed(restored, rows[23:]), ROUNDING), (
            "a run that began late is restored otherwise"
        )


@check
def noise_is_there_wherever_a_run_begins(mechanism: Mechanism) -> None:
    """Begun at any step, also one in the middle of a period: whatever is measured has noise, as large as it says."""
    nothing = np.zeros((STEPS, mechanism.columns), dtype=np.int64)
    for before in (1, 2, 3, 5, 7, 11, 16, 29):
        with install(LoudEntropy()):
            for releases in (
                mechanism.start(ledger=used_ledger(mechanism, before)).push_batch(nothing),
                _pushed(mechanism.start(ledger=used_ledger(mechanism, before)), nothing),
            ):
                _all_noised(releases, before)


def _all_noised(releases: Releases | list[Release], before: int) -> None:
    for release in releases:
        if release.status != Status.FRESH:
            continue
        assert release.scale > 0, f"step {release.step}, of a run begun after {before}, says it has no noise"
        size = np.abs(release.values)
        assert (size > 0).any(), f"step {release.step}, of a run begun after {before}, has no noise"
        assert (size < 1e4 * release.scale).all(), f"step {release.step} released what is no noise"


@check
def begins_again_after_its_snapshot_was_lost(mechanism: Mechanism) -> None:
    """A run begun without its snapshot on its own ledger stays within the budget together with the run before it."""
    if not mechanism.enforced:
        return
    run, rows = mechanism.start(), stream(mechanism)
    spent = {release.step: release.spent for release in run.push_batch(rows[:17])}
    again = mechanism.start(ledger=run.ledger)
    assert again.step == 17, "a run without a snapshot begins at the present step of its ledger"
    for row in rows[17:]:
        try:
            release = again.push(row)
        except BudgetExceeded:
            break  # it needs more than others have left
        assert release.step not in spent, "a step was released twice"
        spent[release.step] = release.spent
    verdict = run.ledger.verify()
    assert verdict.ok, str(verdict)


@check
def the_ledger_stands_where_the_run_stands(mechanism: Mechanism) -> None:
    """Every pushed step moves the ledger on, also a silent one: who joins later begins at the present step."""
    run = mechanism.start()
    for row in stream(mechanism, 30):
        release = run.push(row)
        assert run.ledger.step >= release.step == run.step, "the ledger stands behind the run"


class InterruptedEntropy(FixedEntropy):
    """Fixed words, and an interruption instead of one request for them."""

    def __init__(self, seed: int, request: int = 0) -> None:
        super().__init__(seed)
        self.requests, self.request = 0, request

    def _count(self) -> None:
        self.requests += 1
        if self.requests == self.request:
            raise KeyboardInterrupt

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The words of the addressed elements, unless this is the request."""
        self._count()
        return super().words(stream, step, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word, unless this is the request."""
        self._count()
        return super().word(stream, step, draw, index)


@check
def interrupted_work_leaves_no_trace_or_ends_the_run(mechanism: Mechanism) -> None:
    """Interrupted at a request for noise, a push or a batch never was, or the run says that it cannot be used again."""
    rows, begun = stream(mechanism, 30), 7

    def interrupted(request: int, batch: bool) -> tuple[Run, int, bool]:
        with install(InterruptedEntropy(18, request)) as source:
            run = mechanism.start()
            assert isinstance(source, InterruptedEntropy)
            source.requests = -(10**9)
            run.push_batch(rows[:begun])
            source.requests = 0
            before = (snapshot.pack({}, run._state()), run.ledger.position)
            try:
                run.push_batch(rows[begun:]) if batch else _pushed(run, rows[begun:])
            except KeyboardInterrupt:
                _goes_on_or_refuses(mechanism, run, before if batch else None, rows)
                return run, source.requests, True
            return run, source.requests, False

    for batch in (True, False):
        _, requests, _ = interrupted(0, batch)
        for request in sorted(set(np.linspace(1, requests, 8).astype(int).tolist())) if requests else ():
            assert interrupted(request, batch)[2], "an interruption was swallowed"


def _goes_on_or_refuses(
    mechanism: Mechanism, run: Run, before: tuple[bytes, str] | None, rows: npt.NDArray[Any]
) -> None:
    try:
        run.snapshot()
    except LedgerMismatch as error:
        assert len(str(error).splitlines()) == 1
        _mismatch(lambda: run.push(rows[-1]))
        _mismatch(lambda: run.push_batch(rows[-2:]))
    else:
        after = (snapshot.pack({}, run._state()), run.ledger.position)
        assert before is None or before == after, "an interrupted batch left a trace in a run that goes on"
        step = run.step
        assert run.push(rows[step]).step == step + 1
    _holds(mechanism, run.ledger)


def _holds(mechanism: Mechanism, ledger: Ledger) -> None:
    verdict = ledger.verify()
    assert verdict.ok or not mechanism.enforced, str(verdict)


def _mismatch(push: Callable[[], object]) -> None:
    try:
        push()
    except LedgerMismatch:
        return
    raise AssertionError("a run went on that may not be used again")


def _accounts(run: Run) -> tuple[Ledger, ...]:
    return tuple(run.ledger.parts) if isinstance(run.ledger, ParallelLedger) else (run.ledger,)


@contextmanager
def _transaction_that_fails(ledgers: tuple[Ledger, ...], **options: bool) -> Iterator[None]:
    """One transaction of all these ledgers, which fails at its end."""
    with suppress(RuntimeError), ExitStack() as stack:
        for ledger in ledgers:
            stack.enter_context(ledger.transaction(**options))
        yield
        raise RuntimeError


@check
def charges_that_were_taken_back_end_the_run(mechanism: Mechanism) -> None:
    """A run whose charges were rolled back is not used again, also when others have added rows since."""
    run, rows = mechanism.start(), stream(mechanism, 12)
    run.push_batch(rows[:5])
    parts = _accounts(run)
    untouched = mechanism.start(ledger=run.ledger) if len(parts) == 1 else None
    with _transaction_that_fails(parts, unseen=True):
        run.push(rows[5])
    for part in parts:
        part.charge_batch(6, np.zeros(9, dtype=np.int64))
        part.charge(15, 0)
    _mismatch(lambda: run.push(rows[6]))
    _mismatch(lambda: run.push_batch(rows[6:]))
    _mismatch(run.snapshot)
    if untouched is not None:
        untouched.snapshot()  # whose charges were not taken back goes on


@check
def a_snapshot_is_gone_on_with_once(mechanism: Mechanism) -> None:
    """Of all that start from one snapshot, and the run that made it, one goes on; and none after a release."""
    _once(mechanism, None)
    if mechanism.enforced and not isinstance(mechanism.start().ledger, ParallelLedger):
        with TemporaryDirectory() as folder:
            _once(mechanism, Path(folder) / "ledger")


def _once(mechanism: Mechanism, path: Path | None) -> None:
    rows, run = stream(mechanism, 8), mechanism.start(ledger=path)
    alone = isinstance(run.ledger, ParallelLedger)
    run.push_batch(rows[:3])
    other = None if alone else mechanism.start(ledger=run.ledger)
    state, again = run.snapshot(), run.snapshot()

    def start(state: bytes) -> Run:
        return mechanism.start(ledger=run.ledger, state=state)

    first = start(state)
    _mismatch(lambda: run.push(rows[3]))
    second = start(again)
    _mismatch(lambda: first.push_batch(rows[3:]))
    _mismatch(first.snapshot)
    second.push(rows[3])
    _mismatch(lambda: start(state))
    _mismatch(lambda: start(again))
    second.push(rows[4])
    if other is not None:
        other.snapshot()  # who has nothing to do with it goes on
    _holds(mechanism, run.ledger)
    run.ledger.close()


@check
def what_was_released_in_a_transaction_stays_paid(mechanism: Mechanism) -> None:
    """A caller's transaction that fails takes no charge back whose release was handed out; snapshots wait for its end."""
    run, rows = mechanism.start(), stream(mechanism, 8)
    run.push_batch(rows[:3])
    with _transaction_that_fails(_accounts(run)):
        run.push(rows[3])
        before = run.ledger.rows, run.ledger.spent()
        _mismatch(run.snapshot)
    assert (run.ledger.rows, run.ledger.spent()) == before, "what was seen is no longer paid"
    assert run.push(rows[4]).step == 5


@check
def runs_are_not_copied(mechanism: Mechanism) -> None:
    """Two copies would go on with the same noise."""
    run = mechanism.start()
    for work in (copy.copy, copy.deepcopy, pickle.dumps):
        _mismatch(lambda work=work: work(run))  # type: ignore[misc]
        _mismatch(lambda work=work: work(run.ledger))  # type: ignore[misc]


@check
def runs_that_share_a_ledger_are_restored_with_it(mechanism: Mechanism) -> None:
    """A shared account is in no run's snapshot: restored runs meet on one ledger, and on no older one."""
    rows = stream(mechanism, 30)
    with fixed_entropy(19):
        expected = list(mechanism.start().push_batch(rows))
        run = mechanism.start()
        other = mechanism.start(ledger=run.ledger)
        assert same(expected[:9], run.push_batch(rows[:9])), "a second run on a ledger changed the first"
        assert isinstance(run.ledger, MemoryLedger)
        states, saved = (run.snapshot(), other.snapshot()), run.ledger.snapshot()
        for state in states:
            try:
                mechanism.start(state=state)
            except SnapshotError:
                continue
            raise AssertionError("a run that shared its ledger was restored with an account of its own")
        ledger = mechanism.start().ledger
        assert isinstance(ledger, MemoryLedger)
        ledger.restore(saved)
        if run.holds_noise:
            _silent_at_first(mechanism, ledger, states[0], rows[9:])
        if mechanism.shares_noise:
            return
        restored, beside = (mechanism.start(ledger=ledger, state=state) for state in states)
        assert (restored.step, beside.step) == (9, 0)
        assert same(expected[9:], restored.push_batch(rows[9:])), "restoring a shared ledger changes releases"
    _mismatch(lambda: mechanism.start(ledger=ledger, state=states[0]))  # the ledger has moved on
    _holds(mechanism, ledger)


@check
def charges_cover_released_scales(mechanism: Mechanism) -> None:
    """What is measured at a step costs it at least what noise of the released scale loses, wherever the run begins."""
    gaussian = mechanism.policy.rho is not None
    for before in (0, 3):
        run = mechanism.start(ledger=used_ledger(mechanism, before))
        for row in stream(mechanism):
            release = run.push(row)
            if release.status != Status.FRESH:
                continue
            share = run.reach(release.step) / release.scale
            loss = share**2 / 2 if gaussian else share
            paid = max(release.spent, _paid(mechanism, run.ledger, release.step))
            assert paid >= loss * (1 - 1e-6), f"step {release.step} paid {paid} for a loss of {loss:.6g}"


def _paid(mechanism: Mechanism, ledger: Ledger, step: int) -> Fraction:
    """What a step has been charged, with the periods and groups that it lies in."""
    if mechanism.shares_noise and ledger.policy.window is None:
        return ledger.spent(1, step)
    if isinstance(ledger, ParallelLedger) or ledger.policy.window is None:
        return Fraction(0)
    return ledger.spent(step, step)


@check
def works_before_any_data(mechanism: Mechanism) -> None:
    """A fresh run can be printed, verified, snapshotted, restored and given an empty batch."""
    run = mechanism.start()
    assert run.ledger.verify().ok
    assert run.step == 0
    assert mechanism.start(state=run.snapshot()).step == 0
    nothing = run.push_batch(np.zeros((0, mechanism.columns), dtype=np.int64))
    assert nothing.values.shape == (0, mechanism.outputs)
    assert len(nothing.status) == len(nothing.spent) == 0


@check
def input_is_not_aliased(mechanism: Mechanism) -> None:
    """Input is neither changed nor kept: writing over it afterwards changes nothing."""
    rows = stream(mechanism)
    with fixed_entropy(14):
        expected = _pushed(mechanism.start(), rows)
        run, seen = mechanism.start(), []
        for row in rows:
            buffer = row.copy()
            release = run.push(buffer)
            assert np.array_equal(buffer, row), "push changed its input"
            buffer[:] = -1
            seen.append(release)
        assert same(expected, seen), "writing over an input changed a later release"
        matrix = rows.copy()
        run = mechanism.start()
        first = run.push_batch(matrix[:30])
        kept = first.values.copy()
        assert np.array_equal(matrix, rows), "push_batch changed its input"
        matrix[:] = -1
        assert np.array_equal(first.values, kept, equal_nan=True), "the releases alias the input"
        rest = run.push_batch(rows[30:])
        assert same(expected[30:], rest), "writing over a batch changed a later release"
        rest.values[:] = -1


@check
def outputs_are_independent_of_each_other(mechanism: Mechanism) -> None:
    """Writing over one release's values does not change another's."""
    rows = stream(mechanism, 30)
    with fixed_entropy(15):
        expected = [release.values.copy() for release in _pushed(mechanism.start(), rows)]
        run = mechanism.start()
        for row, values in zip(rows, expected, strict=True):
            release = run.push(row)
            assert np.array_equal(release.values, values, equal_nan=True), (
                "a release changed because an earlier one was written over"
            )
            release.values[:] = 1e9


@check
def bad_values_are_refused_unharmed(mechanism: Mechanism) -> None:
    """Wrong shapes, NaN, infinities, huge values and steps out of order are refused; nothing is charged."""
    rows = stream(mechanism)
    with fixed_entropy(16):
        expected = _pushed(mechanism.start(), rows[:5])
        run = mechanism.start()
        good = _pushed(run, rows[:3])
        columns = mechanism.columns
        bad: list[Any] = [
            np.zeros(columns + 1),
            np.full(columns, np.nan),
            np.full(columns, np.inf),
            np.full(columns, 1e300),
            np.full(columns, 2**62, dtype=np.int64),
            ["a"] * columns,
            np.zeros((columns, 2)),
        ]
        for values in bad:
            _refused(lambda values=values: run.push(values))  # type: ignore[misc]
            _refused(lambda values=values: run.push_batch([values, values]))  # type: ignore[misc]
        _refused(lambda: run.push(rows[3], step=7))
        assert run.step == 3
        good += [run.push(rows[3], step=4), run.push(rows[4])]
        assert same(expected, good), "a refused push changed the run"


@check
def each_cell_is_read_alone(mechanism: Mechanism) -> None:
    """A clamped cell's grid units depend on that cell's value alone: not on its type, nor on what stands beside it."""
    for clamped in _clamped(mechanism):
        run, columns = clamped.start(), clamped.columns
        most = int(Fraction(clamped.clamp or 0) / Fraction(clamped.grid))
        for numbers in ([0, 1, 2, 3, 7, -3, 127, -128], [0, 1, 2, 3, 7, 4, 127, 5]):
            cells = np.array([[numbers[(row + at) % 8] for at in range(columns)] for row in range(8)])
            expected = np.clip(cells * Fraction(clamped.grid).denominator, -most, most)
            for kind, same_cells in _in_other_types(cells):
                assert np.array_equal(run._rows(same_cells), expected), f"{kind} are read differently"
                single = [run._row(row) for row in same_cells]
                assert np.array_equal(single, expected), f"{kind} are read differently one by one"
        for value in (0.5, 0.3, True, np.nan, np.inf, 2**60, 10**30, None, Fraction(1, 3), Decimal("0.2")):
            changed = cells.astype(object)
            changed[3, -1] = value
            listed = changed.tolist()
            for whole in (changed, listed, [np.array(row) for row in listed]):
                elsewhere = run._rows(whole) != expected
                elsewhere[3, -1] = False
                assert not elsewhere.any(), f"{value!r} in one cell changes how others are read"


def _clamped(mechanism: Mechanism) -> Iterator[Mechanism]:
    """The same on a grid of halves, cut off at a bound that is no whole number, with and without rounding."""
    for rounding in ("refuse", "nearest"):
        change: dict[str, Any] = {"grid": Fraction(mechanism.grid) / 2, "rounding": rounding, "clamp": "5/2"}
        with suppress(InvalidParameter):  # not every policy or variant allows rounding
            if isinstance(mechanism, Blocks):
                yield Blocks(dataclasses.replace(mechanism.mechanism, **change))
            else:
                yield dataclasses.replace(mechanism, **change)


def _in_other_types(cells: npt.NDArray[Any]) -> Iterator[tuple[str, Any]]:
    """The same numbers as arrays and lists of every kind, where these can hold them."""
    for name in [f"{kind}{8 * size}" for kind in ("int", "uint") for size in (1, 2, 4, 8)] + REAL_TYPES:
        if name.startswith("int") or name in REAL_TYPES or cells.min() >= 0:
            yield name, cells.astype(name)
    yield "lists", cells.tolist()
    yield "lists of floats", [[float(cell) for cell in row] for row in cells]
    yield "fractions", [[Fraction(int(cell)) for cell in row] for row in cells]
    yield "decimals", [[Decimal(int(cell)) for cell in row] for row in cells]
    yield (
        "lists of mixed numbers",
        [
            [
                (int, float, Fraction, np.int64, np.float64)[(at + row) % 5](int(cell))
                for at, cell in enumerate(line)
            ]
            for row, line in enumerate(cells)
        ],
    )


def _refused(push: Callable[[], object]) -> None:
    try:
        push()
    except InvalidInput as error:
        assert len(str(error).splitlines()) == 1, "an error message must be one sentence"
        return
    raise AssertionError("bad input was accepted")


@check
def foreign_snapshots_are_refused(mechanism: Mechanism) -> None:
    """Damaged snapshots, and those of other mechanisms, versions or parameters, are refused."""
    run = mechanism.start()
    run.push_batch(stream(mechanism, 10))
    state = run.snapshot()
    other = dataclasses.replace(mechanism, columns=mechanism.columns + 1) if _free_shape(mechanism) else None
    damaged = bytearray(state)
    damaged[len(damaged) // 2] ^= 1
    newer = bytearray(state)
    newer[len(b"tidegate-run\n")] += 1
    for where, data in [
        (mechanism, damaged),
        (mechanism, newer),
        (mechanism, state[:-1]),
        (mechanism, b""),
    ] + ([(other, state)] if other else []):
        try:
            where.start(state=bytes(data))
        except SnapshotError:
            continue
        raise AssertionError("a foreign or damaged snapshot was accepted")


def _free_shape(mechanism: Mechanism) -> bool:
    try:
        dataclasses.replace(mechanism, columns=mechanism.columns + 1)
    except ValueError:
        return False
    return True


class LoudEntropy(ZeroEntropy):
    """Words that make every draw about nine times its scale: no release equals its raw value.

    Where such words are rejected, others follow that are the same at every step.
    """

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """A small uniform number in word 0."""
        words = super().words(stream, step, draws, elements, first, count)
        words[words > 0] = 1 << 51
        for row in range(max(0, 2 - first), count):
            words[row] = [self._further(int(element) % draws, first + row) for element in elements]
        return words

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word."""
        return self._further(draw, index) if index > 1 else 0 if index else 1 << 51

    def _further(self, draw: int, index: int) -> int:
        return (draw + 1) * (2 * index + 1) * 0x9E3779B97F4A7C15 % 2**64


@check
def snapshot_carries_no_raw_value(mechanism: Mechanism) -> None:
    """A marked raw value appears in the snapshot neither as an integer nor as a float nor as text."""
    if getattr(mechanism, "keeps_raw_values", False):
        return  # declared, with the reason, in the mechanism's Privacy section
    with install(LoudEntropy()):
        run = mechanism.start()
    marked = np.full((30, mechanism.columns), MARKER, dtype=np.int64)
    run.push_batch(marked)
    run.push(marked[0])
    state = run.snapshot()
    denominator = Fraction(mechanism.grid).denominator
    for number in (MARKER, MARKER * denominator):
        for needle in (struct.pack("<q", number), struct.pack("<d", number), str(number).encode()):
            assert needle not in state, "the snapshot contains a raw value"


@check
def configuration_is_frozen_and_printable(mechanism: Mechanism) -> None:
    """The configuration is immutable, comparable, describes itself as JSON and states its guarantee in words."""
    json.dumps(mechanism.describe())
    twin = dataclasses.replace(mechanism)
    assert twin == mechanism
    assert twin.fingerprint == mechanism.fingerprint
    try:
        mechanism.columns = 7  # type: ignore[misc]
    except dataclasses.FrozenInstanceError:
        pass
    else:
        raise AssertionError("the configuration can be changed")
    sentence = str(mechanism.guarantee)
    assert type(mechanism).__name__ in sentence
    assert len(sentence.splitlines()) == 1
    text = inspect.getdoc(type(mechanism)) or ""
    for section in ("Parameters", "Privacy", "Error", "Examples", "References"):
        assert f"\n{section}\n---" in text, f"the docstring has no section {section}"


@check
def entropy_of_tests_is_marked(mechanism: Mechanism) -> None:
    """A run on test entropy is marked in its ledger; one on the system's entropy is not."""
    with fixed_entropy(17):
        assert mechanism.start().ledger.marked
    run = mechanism.start()
    assert not run.ledger.marked
    assert isinstance(run.source, Source)


@check
def values_beyond_a_public_bound_saturate(mechanism: Mechanism) -> None:
    """With `clamp` no value is refused: huge, infinite, missing and rough ones count as what the docstring says."""
    bound = 50
    try:
        clamped = dataclasses.replace(mechanism, clamp=bound)
    except ValueError:
        clamped = dataclasses.replace(mechanism, **_inner_clamped(mechanism, bound))
    rows = stream(mechanism, 8)
    meant = rows.copy()
    for at, (given, counts) in enumerate(ROUGH.items()):
        rows[at % 8, at % mechanism.columns] = given
        meant[at % 8, at % mechanism.columns] = counts if np.isfinite(counts) else np.copysign(bound, counts)
    grid = Fraction(mechanism.grid)
    meant = np.floor(np.clip(meant, -bound, bound) * grid.denominator + 0.5) / grid.denominator
    with fixed_entropy(18):
        expected = _pushed(clamped.start(), meant)
        assert same(expected, _pushed(clamped.start(), rows)), "a value beyond the bound did not saturate"
        assert same(expected, clamped.start().push_batch(rows)), "a batch does not saturate like a push"
        whole = clamped.start().push(np.full(mechanism.columns, 2**62, dtype=np.int64))
        assert same([whole], [clamped.start().push(np.full(mechanism.columns, float(bound)))])
    assert any(np.any(row != meant_row) for row, meant_row in zip(rows, meant, strict=True))
    assert clamped.fingerprint != mechanism.fingerprint, "a snapshot must not forget the bound"


ROUGH = {1e300: np.inf, -np.inf: -np.inf, np.inf: np.inf, -7e20: -np.inf, 1.0 / 3.0: 1.0 / 3.0}


def _inner_clamped(mechanism: Mechanism, bound: int) -> dict[str, Any]:
    """The bound of what a mechanism runs, where it has none of its own."""
    inner = mechanism.mechanism  # type: ignore[attr-defined]
    return {"mechanism": dataclasses.replace(inner, clamp=bound)}


@check
def streams_may_end_anywhere(mechanism: Mechanism) -> None:
    """A stream that was declared to end in the middle of whatever repeats is released to its end, and flushed."""
    for horizon in (1, 7, 37):
        try:
            policy = dataclasses.replace(mechanism.policy, horizon=horizon)
            ending = dataclasses.replace(mechanism, policy=policy)
        except ValueError:  # a refused parameter is one
            continue  # it has no stream of this length, and says so before the first step
        run = ending.start()
        releases = run.push_batch(stream(mechanism, horizon))
        assert len(releases) == horizon, "the stream ended early"
        if callable(flush := getattr(run, "flush", None)):
            flush()
        assert run.ledger.verify().ok
        assert run.ledger.step <= horizon
        _refused(lambda run=run: run.push(stream(mechanism, 1)[0]))  # type: ignore[misc]


def _parts(holder: object, kind: type, seen: set[int]) -> list[Any]:
    """Everything of a kind that a run or a configuration holds, however deep."""
    if id(holder) in seen:
        return []
    seen.add(id(holder))
    found = [holder] if isinstance(holder, kind) else []
    inside: list[object] = []
    if isinstance(holder, Run | Mechanism):
        inside = list(vars(holder).values())
    elif isinstance(holder, list | tuple):
        inside = list(holder)
    elif isinstance(holder, dict):
        inside = list(holder.values())
    return found + [part for each in inside for part in _parts(each, kind, seen)]


@check
def reading_changes_nothing(mechanism: Mechanism) -> None:
    """No property of a run, its noise or what it learns draws, forgets or moves anything."""
    run = mechanism.start()
    _pushed(run, stream(mechanism))
    for part in [
        run,
        *(each for each in vars(run).values() if type(each).__module__.startswith("tidegate.")),
    ]:
        if not hasattr(part, "__dict__"):
            continue
        before, kinds = vars(part).copy(), type(part).__mro__
        for name in {
            name for kind in kinds for name, each in vars(kind).items() if isinstance(each, property)
        }:
            with suppress(Exception):  # some are of other configurations
                getattr(part, name)
            changed = [each for each, value in before.items() if vars(part).get(each) is not value]
            assert not changed, f"reading {name} of {type(part).__name__} changes {' and '.join(changed)}"


@check
def remembered_numbers_are_those_of_the_configuration(mechanism: Mechanism) -> None:
    """No configuration at work, whole or part, remembers a number that its fields alone would not give."""
    run = mechanism.start()
    run.push_batch(stream(mechanism))
    for part in _parts(run, Mechanism, set()):
        fresh = dataclasses.replace(part)
        fields = {field.name for field in dataclasses.fields(part)}
        for name, remembered in list(vars(part).items()):
            if name in fields or not isinstance(remembered, REMEMBERED):
                continue
            assert np.array_equal(np.asarray(remembered), np.asarray(getattr(fresh, name))), (
                f"{type(part).__name__} remembers another {name} than its configuration gives"
            )
