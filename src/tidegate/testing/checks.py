"""One suite that every mechanism of the core passes, ours or somebody else's.

>>> from tidegate.testing.checks import CHECKS, check
>>> len(CHECKS) >= 20
True

`check(mechanism)` runs all of them and raises `NotConforming`, with the name of the check and one sentence, where one
fails. The life cycle (two writers, forks, kills) is tested once, on the session; here is what a mechanism can do wrong.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tidegate.core import arrays
from tidegate.core.account import LARGEST_LIMIT, LARGEST_STEP
from tidegate.core.charges import Charges
from tidegate.core.commit import HALTED, RESTARTED
from tidegate.core.errors import AccountRefused, Halted, LogMismatch, SessionClosed
from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import Mechanism
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.releases import Status
from tidegate.testing.entropy import CountingEntropy, fixed_entropy
from tidegate.testing.trials import (
    STEPS,
    Direct,
    Failing,
    Loud,
    Numbered,
    Subject,
    Trial,
    difference,
    joined,
    overspent,
    seen,
)

Check = Callable[[Subject], None]
CHECKS: list[Check] = []
LATEST = 600  # steps by which something is measured
RUNS = 150  # of a statistic
SMALLEST, LARGEST = (
    0.5,
    2.3,
)  # deviation of noise, over the scale that is stated; two draws of Laplace noise have 2
ALIKE = 0.95  # correlation of the noise of two columns that is no accident
ODD = (1, 16, 1, 0, 5)  # sizes of batches, in turn
FEW = 7  # steps of runs that are repeated often
CHANGED_WORDS = 120  # random words that are changed one by one
LONG_WINDOW = 3000
KNOWN = frozenset(int(status) for status in Status)
BETWEEN = (Status.APPROXIMATED, Status.NULLIFIED)  # not measured at its step


class NotConforming(AssertionError):
    """A mechanism does not do what the core relies on; the message names the check and says what was seen."""


def _check(function: Check) -> Check:
    """Register a check."""
    CHECKS.append(function)
    return function


def check(mechanism: Mechanism, stream: Callable[[int], Any] | None = None) -> None:
    """Run every check on a mechanism.

    Parameters
    ----------
    mechanism
        A configuration.
    stream
        What gives so many steps of input, for a mechanism that does not read plain columns.

    Raises
    ------
    NotConforming
        With one sentence, at the first check that fails.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> check(Uniform(tg.WEvent(epsilon="1", window=3), noise="laplace"))
    """
    for each in CHECKS:
        run_check(each, Subject(mechanism, stream))


def run_check(each: Check, subject: Subject) -> None:
    """One check; whatever goes wrong is said in one sentence."""
    name = each.__name__.replace("_", " ")
    try:
        each(subject)
    except NotConforming as error:
        raise NotConforming(f"{type(subject.mechanism).__name__}, {name}: {error}.") from None
    except Exception as error:
        raise NotConforming(
            f"{type(subject.mechanism).__name__}, {name}: {type(error).__name__} was raised: {error}"
        ) from error


def _must(holds: object, sentence: str) -> None:
    if not holds:
        raise NotConforming(sentence)


@cache
def _steps(subject: Subject) -> int:
    """Steps in which something is measured, and a few more."""
    with fixed_entropy("steps"):
        status = Direct(subject).push(subject.read(subject.rows(LATEST))).status
    fresh = np.flatnonzero(status == Status.FRESH)
    return max(STEPS, int(fresh[0]) + 20 if fresh.size else 0)


def _batches(rows: Any) -> Iterator[Any]:
    """Rows in batches of odd sizes."""
    at = turn = 0
    while at < len(rows):
        size = ODD[turn % len(ODD)]
        yield rows[at : at + size]
        at, turn = at + size, turn + 1


def _trial(subject: Subject, rows: Any, seed: str = "trial") -> Trial:
    """One batch under fixed entropy."""
    with fixed_entropy(seed):
        trial = Trial(subject)
        trial.session.push_batch(rows)
    return trial


# it runs, and is cut anywhere ----------------------------------------------------------------------------------------


@_check
def it_runs_and_charges_every_step(subject: Subject) -> None:
    """Called without a session, so that what it raises is seen: arrays have a row per step, of a kind that is stored."""
    mechanism, rows = subject.mechanism, subject.read(subject.rows(_steps(subject)))
    output = Direct(subject).push(rows)
    output.check_shape(len(rows), mechanism.outputs)
    _must(len(output.more) == len(mechanism.more), "it releases other arrays than `more` names")
    _must(all(len(part) == len(rows) for part in output.more), "an array of `more` has not one row per step")
    revised = len(getattr(mechanism, "revised", ()))
    _must(len(output.revised) == revised, "it releases other arrays than `revised` names")
    _must(output.units.dtype == np.int64, "units are not 64-bit whole numbers")
    arrays.encode(output.released)
    arrays.encode(arrays.flat(mechanism.begin(1)))


@_check
def configuration_is_frozen_and_describes_itself(subject: Subject) -> None:
    """JSON that says everything: equal for equal configurations, another for every change; one log for each."""
    mechanism: Any = subject.mechanism
    described = mechanism.describe()
    _must(json.loads(json.dumps(described)) == described, "`describe` is not plain JSON")
    _must(0 < mechanism.units <= LARGEST_LIMIT, "`units` is not a number that an account can hold")
    _must(mechanism.most_spans >= 0, "`most_spans` is negative")
    if not hasattr(mechanism, "__dataclass_fields__"):
        return
    _must(dataclasses.replace(mechanism).describe() == described, "an equal one describes itself otherwise")
    try:
        mechanism.columns = mechanism.columns
    except (AttributeError, TypeError):
        pass
    else:
        raise NotConforming("a field of the configuration can be changed")
    for name, changed in _changed(mechanism):
        _must(changed.describe() != described, f"another {name} is described the same")
        log = MemoryLog()
        Session(mechanism, log)
        try:
            Session(changed, log)
        except LogMismatch:
            continue
        raise NotConforming(f"a log is continued with another {name}")


def _changed(mechanism: Any) -> Iterator[tuple[str, Any]]:
    """The same with one number changed, where it may be."""
    policy = mechanism.policy
    budget = "rho" if getattr(policy, "rho", None) is not None else "epsilon"
    changes: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("budget", lambda: {"policy": dataclasses.replace(policy, **{budget: 2 * getattr(policy, budget)})}),
        ("columns", lambda: {"columns": mechanism.columns + 1}),
        ("grid", lambda: {"grid": Fraction(mechanism.grid) / 2}),
        ("clamp", lambda: {"clamp": 50}),
        ("rounding", lambda: {"rounding": "nearest" if mechanism.rounding == "refuse" else "refuse"}),
    ]
    for name, change in changes:
        with suppress(ValueError, TypeError, AttributeError, KeyError):  # not every one has it, or allows it
            yield name, dataclasses.replace(mechanism, **change())


@_check
def cuts_do_not_matter(subject: Subject) -> None:
    """Single pushes, one batch, odd batches and a new session for every step give the same under fixed entropy."""
    rows = subject.rows(_steps(subject))
    whole = _trial(subject, rows).joined()
    with fixed_entropy("trial"):
        single, odd, reopened = Trial(subject), Trial(subject), Trial(subject)
        for row in rows:
            single.session.push(row)
            reopened.reopen()
            reopened.session.push(row)
        for batch in _batches(rows):
            odd.session.push_batch(batch)
    ways = {"single pushes": single, "batches of odd sizes": odd, "a new session for each step": reopened}
    for way, trial in ways.items():
        name = difference(whole, trial.joined())
        _must(not name, f"{way} and one batch differ in {name} under the same entropy")


@_check
def empty_batches_do_nothing(subject: Subject) -> None:
    """Before the first step and between steps: arrays of the right form without rows, no words, the same afterwards."""
    rows, outputs = subject.rows(), subject.mechanism.outputs
    with install(CountingEntropy()) as source:
        assert isinstance(source, CountingEntropy)
        trial = Trial(subject)
        trial.session.push_batch(rows[:0])
        _must(source.words_drawn == 0, "a batch without steps draws noise")
        first = trial.seen()[0]
        _must(first.values.shape == (0, outputs), "a batch without steps has values of another form")
        _must(not first.units.size and not (first.spans[:, 4] > 0).any(), "a batch without steps is charged")
        _must(trial.session.step == 0, "a batch without steps moves the session")
    direct = Direct(subject)
    direct.push(subject.read(rows[:5]))
    before = direct.stored()
    output = direct.push(subject.read(rows[:0]))
    _must(
        output.values.shape == (0, outputs), "a batch without steps between others has values of another form"
    )
    _must(
        direct.stored() == before or len(direct.stored()) <= len(before),
        "a batch without steps changes the state",
    )


@_check
def steps_may_be_passed_over(subject: Subject) -> None:
    """Gaps cost nothing and are no steps; one session and one per step agree; no window is overspent."""
    rows, window = subject.rows(), subject.window or 4
    gaps = (1, 2, 1, window, 1, window + 1, 3, max(1, window - 1), 1)
    with fixed_entropy("gaps"):
        one, each = Trial(subject), Trial(subject)
        step = 0
        for at, row in enumerate(rows):
            step += gaps[at % len(gaps)]
            try:
                one.session.push(row, step=step)
            except (AccountRefused, InvalidInput):
                break  # the stream or the mechanism ends before
            each.reopen()
            each.session.push(row, step=step)
    found = one.joined()
    name = difference(found, each.joined())
    _must(not name, f"behind steps that were passed over, a session that was opened again differs in {name}")
    _agrees(subject, found)
    _fits(subject, one, found)


# what it costs -------------------------------------------------------------------------------------------------------


def _fits(subject: Subject, trial: Trial, found: dict[str, Any]) -> None:
    verdict = verify(trial.log.rows())
    _must(verdict.ok, f"its log does not verify: {verdict}")
    if subject.judged_by_units:
        wrong = overspent(subject.mechanism, found)
        _must(not wrong, wrong)


@_check
def no_window_is_overspent(subject: Subject) -> None:
    """Charges are added up window by window, on input that moves, stands still, jumps and is huge."""
    rows = subject.rows(max(_steps(subject), min(3 * (subject.window or 1), 300)))
    streams = [rows, *subject.others(rows)]
    for number, stream in enumerate(streams):
        trial = _trial(subject, stream, f"charges {number}")
        _fits(subject, trial, trial.joined())


@_check
def public_charges_are_a_lower_bound(subject: Subject) -> None:
    """What `public` says is charged at least; it changes nothing, and says the same for a part as for the whole."""
    rows = subject.read(subject.rows(_steps(subject)))
    with fixed_entropy("public"):
        direct = Direct(subject)
        for batch in _batches(rows):
            count = len(batch)
            before = direct.stored()
            public = direct.public(count)
            _must(direct.stored() == before, "`public` changes the state")
            _must(public.first == direct.next, "`public` begins at another step")
            _must(len(public.units) == count, "`public` has not one charge per step")
            part = direct.public(count // 2)
            _must(
                np.array_equal(part.units, public.units[: count // 2]),
                "`public` says less or more of a step when fewer steps follow it",
            )
            output = direct.push(batch)
            _must((output.units >= public.units).all(), "a step is charged less than `public` said")
            known = {tuple(row) for row in output.spans[:, [0, 1, 4]].tolist()}
            said = {tuple(row) for row in public.spans[:, [0, 1, 4]].tolist() if row[2]}
            _must(said <= known or not subject.judged_by_units, "a span that `public` named was not charged")
            _must(direct.stored() == direct.stored(), "storing a state changes it")


@_check
def public_refusals_come_before_noise(subject: Subject) -> None:
    """No word is drawn for a step beyond the last one, out of order, or without budget; the session stays open."""
    rows = subject.rows()
    with install(CountingEntropy()) as source:
        assert isinstance(source, CountingEntropy)
        trial = Trial(subject)
        trial.session.push_batch(rows[:3])
        drawn = source.words_drawn
        for words, push in (
            ("beyond the last step", lambda: trial.session.push(rows[3], step=LARGEST_STEP + 1)),
            ("that was released", lambda: trial.session.push(rows[3], step=3)),
        ):
            _refused(push, f"a step {words} is not refused")
            _must(source.words_drawn == drawn, f"noise was drawn for a step {words}")
        trial.session.push(rows[3])
        _must(trial.session.step == 4, "after a refusal the session does not continue")
        if not subject.judged_by_units or subject.window == 1:
            return
        spent = Trial(subject)
        query = spent.session._queries[0]
        step = next((at for at in range(2, 40) if Direct(subject, first=at).public(1).units.any()), None)
        if step is None:
            return
        query.account.apply(query.account.check(Charges(step - 1, np.array([query.account.limit]))))
        drawn = source.words_drawn
        _refused(lambda: spent.session.push(rows[0], step=step), "a step without budget is not refused")
        _must(source.words_drawn == drawn, "noise was drawn for a step without budget")


def _refused(push: Callable[[], object], sentence: str) -> None:
    try:
        push()
    except (AccountRefused, InvalidInput):
        return
    except SessionClosed:
        raise NotConforming(f"{sentence} in public, but ends the session") from None
    raise NotConforming(sentence)


@_check
def streams_end_at_their_horizon(subject: Subject) -> None:
    """A stream that was declared to end anywhere is released to its end; the next step is refused, without a word."""
    for horizon in (1, 7, 37):
        try:
            policy = dataclasses.replace(subject.mechanism.policy, horizon=horizon)
            ending = Subject(dataclasses.replace(subject.mechanism, policy=policy), subject.stream)
        except (ValueError, TypeError):
            continue  # it has no stream of this length, and says so before the first step
        if ending.length(horizon) < horizon:
            continue
        rows = subject.rows(horizon + 1)
        with install(CountingEntropy()) as source:
            assert isinstance(source, CountingEntropy)
            trial = Trial(ending)
            _refused(
                lambda trial=trial, rows=rows: trial.session.push_batch(rows),  # type: ignore[misc]
                "a batch beyond the horizon is not refused",
            )
            _must(source.words_drawn == 0, "noise was drawn for a batch beyond the horizon")
            trial.session.push_batch(rows[:horizon])
            drawn = source.words_drawn
            _refused(
                lambda trial=trial, rows=rows: trial.session.push(rows[0]),  # type: ignore[misc]
                "a step beyond the horizon is not refused",
            )
            _must(source.words_drawn == drawn, "noise was drawn for a step beyond the horizon")
            _fits(ending, trial, trial.joined())
            trial.session.finish()


# what is public ------------------------------------------------------------------------------------------------------


def _forms(trial: Trial) -> list[Any]:
    """Kinds and sizes of all that commits have in the open."""
    return [
        [(part.shape, part.dtype.str) for part in (*each[1:7], *each.more, *each.revised)]
        for each in trial.seen()
    ]


def _neighbour(subject: Subject, rows: Any, at: int) -> Any:
    """The same stream with another step."""
    other = rows.copy()
    if subject.plain:
        other[at, at % other.shape[1]] += 1
    else:
        other[at] = rows[(at + 2) % len(rows)]
    return other


@_check
def forms_do_not_depend_on_values(subject: Subject) -> None:
    """Whatever input and noise are, commits have arrays of the same kinds and sizes: also `more`, `revised`, spans."""
    steps = _steps(subject)
    rows = subject.rows(steps)
    streams = [rows, _neighbour(subject, rows, 3), *subject.others(rows)]
    expected = None
    for number, stream in enumerate([*streams, rows]):
        with fixed_entropy(f"form {number // 2}"):
            trial = Trial(subject)
            for batch in _batches(stream):
                trial.session.push_batch(batch)
        found = _forms(trial)
        expected = expected or found
        _must(found == expected, "the size of what a commit releases or charges depends on values or noise")


@_check
def sizes_of_states_follow_from_releases(subject: Subject) -> None:
    """Runs that have released the same whole numbers (statuses, sources, groups, clips) store states of the same size."""
    known: dict[Any, int] = {}
    rows = subject.rows(FEW)
    streams = [rows, _neighbour(subject, rows, 2), *subject.others(rows)]
    for number in range(24):
        stream = streams[number % len(streams)]
        with fixed_entropy(f"size {number}"):
            trial = Trial(subject)
            for batch in (stream[:2], stream[2:3], stream[3:]):
                trial.session.push_batch(batch)
        released = joined(trial.seen())
        key = tuple(
            (name, part.shape, part.tobytes() if part.dtype.kind != "f" else b"")
            for name, part in released.items()
            if isinstance(part, np.ndarray)
        )
        size = trial.secret_size()
        _must(
            known.setdefault(key, size) == size,
            "states of two sizes are stored behind the same released whole numbers",
        )


@_check
def states_do_not_grow(subject: Subject) -> None:
    """What is stored after many windows is not larger than after a few."""
    window = min(subject.window or 1, LATEST)
    length = max(300, 4 * window)
    rows = subject.rows(length)
    if len(rows) < length:
        return  # it ends before
    trial, sizes = Trial(subject), []
    for _ in range(4):
        try:
            trial.session.push_batch(rows)
        except (AccountRefused, InvalidInput):
            return
        sizes.append(trial.secret_size())
    _must(sizes[-1] <= 1.5 * sizes[0] + 200, f"the state grew from {sizes[0]} to {sizes[-1]} bytes")


@_check
def nothing_is_shared_with_the_state(subject: Subject) -> None:
    """Input is not changed and not kept; whoever writes over input, released arrays or charges changes nothing later."""
    rows = subject.read(subject.rows(_steps(subject)))
    with fixed_entropy("shared"):
        expected = [Direct(subject)]
        kept = [expected[0].push(batch.copy()) for batch in _batches(rows)]
        direct = Direct(subject)
        for batch, before in zip(_batches(rows), kept, strict=True):
            given = batch.copy()
            public = direct.public(len(given))
            output = direct.push(given)
            _must(np.array_equal(given, batch), "`advance` changes its input")
            for one, other in zip(output.released, before.released, strict=True):
                equal = np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
                _must(equal, "a release changed because input or an earlier release was written over")
            for part in (given, public.units, *output.released, output.units, output.spans, public.spans):
                if part.flags.writeable:
                    part[...] = 1
    _must(expected[0].stored() == direct.stored(), "the state changed because a release was written over")


# what is said --------------------------------------------------------------------------------------------------------


def _selects(subject: Subject) -> bool:
    """Whether its values are chosen among candidates by noisy counts, so that they have no noise of their own."""
    return bool(getattr(subject.mechanism, "selects", False))


def _agrees(subject: Subject, found: dict[str, Any]) -> None:
    """Status, source and scale of every step."""
    measured = set()
    ever = np.isin(
        found["status"], (Status.FRESH, Status.PARTIAL)
    ).any()  # otherwise whole periods are measured at once
    for at, step in enumerate(found["steps"]):
        status, source, scale = (found[name][at].item() for name in ("status", "source", "scale"))
        values = found["values"][at]
        _must(status in KNOWN, f"step {step} has a status that does not exist")
        _must(np.isfinite(scale) and scale >= 0, f"step {step} states the scale {scale}")
        _must(0 <= source <= step, f"step {step} says that it was measured at step {source}")
        if status == Status.SILENT or status == Status.MISSING:
            _must(np.isnan(values).all(), f"step {step} is silent and has values")
            continue
        _must(np.isfinite(values).all(), f"step {step} releases what is no number")
        if status in (Status.FRESH, Status.PARTIAL):
            measured.add(step)
        if status == Status.FRESH:
            _must(source == step, f"step {step} was measured, and says at step {source}")
            _must(scale > 0 or _selects(subject), f"step {step} was measured, and says without noise")
        elif status in BETWEEN:
            _must(source < step, f"step {step} was not measured, and says at step {source}")
            _must(
                source == 0 or source in measured or not ever,
                f"step {step} rests on step {source}, which was not measured",
            )


@_check
def status_source_and_scale_agree(subject: Subject) -> None:
    """Measured steps name themselves and have noise; others name an earlier one that was measured."""
    rows = subject.rows(max(_steps(subject), 100))
    for number in range(3):
        _agrees(subject, _trial(subject, rows, f"status {number}").joined())


@_check
def something_is_measured(subject: Subject) -> None:
    """A stream that is large and moves is measured before long."""
    steps = min(max(LATEST, 2 * (subject.window or 1)), 2000)
    rows = subject.rows(steps)
    found = _trial(subject, subject.times(1000, rows)).joined()
    measured = np.isin(found["status"], (Status.FRESH, Status.PARTIAL)) | (found["source"] > 0)
    _must(measured.any(), "nothing is ever measured")


@_check
def noise_has_the_stated_scale(subject: Subject) -> None:
    """Over many runs on the same input, the first measurement varies as its scale says; no two columns vary alike."""
    if _selects(subject):
        return
    rows = subject.read(subject.rows(_steps(subject)))
    if subject.plain:
        rows = 100 * rows + 1000
    drawn: dict[Any, list[Any]] = {}
    for number in range(RUNS):
        output = Direct(subject, FixedEntropy(f"scale {number}")).push(rows)
        fresh = np.flatnonzero(output.status == Status.FRESH)
        if fresh.size:
            at = int(fresh[0])
            chosen = [
                part[at].tobytes() for part in output.more if part.dtype.kind == "i"
            ]  # for example a clip
            drawn.setdefault((at, *chosen), []).append((output.values[at], output.scale[at]))
    (at, *_), found = max(drawn.items(), key=lambda item: len(item[1]), default=((0,), []))
    if len(found) < RUNS // 5:
        return
    values, scales = np.array([each[0] for each in found]), np.array([each[1] for each in found])
    noise = (values - np.median(values, axis=0)) / scales[:, np.newaxis]
    ratio = float(np.sqrt((np.clip(noise, -20, 20) ** 2).mean()))
    # nodes of a hierarchy are estimated from all of them, and vary less than any measurement
    smallest = SMALLEST if subject.mechanism.outputs == subject.mechanism.columns else 0.01
    _must(
        smallest <= ratio <= LARGEST,
        f"the noise of step {at + 1} has {ratio:.2f} times the deviation of the scale that is stated",
    )
    if subject.mechanism.outputs == subject.mechanism.columns > 1:
        alike = np.corrcoef(noise.T) - 2 * np.eye(noise.shape[1])
        _must(float(alike.max()) < ALIKE, "two columns have the same noise")


@_check
def noise_is_there_wherever_it_begins(subject: Subject) -> None:
    """Begun at any step, as after a restart: whatever is measured has noise, as large as it says, also of no data."""
    if not subject.plain or _selects(subject):
        return
    rows = subject.read(0 * subject.rows(_steps(subject)))
    for first in (1, 2, 3, 4, 6, 8, 12, 17, 30):
        output = Direct(subject, Loud(), first).push(rows)
        for at in np.flatnonzero(output.status == Status.FRESH).tolist():
            step, size, scale = first + at, np.abs(output.values[at]), output.scale[at]
            _must(scale > 0, f"step {step}, of a state that began at {first}, says it has no noise")
            _must((size > 0).any(), f"step {step}, of a state that began at {first}, has no noise")
            _must(
                (size < 1e4 * scale).all(),
                f"step {step}, of a state that began at {first}, has no noise but data",
            )


@_check
def fresh_noise_for_every_step(subject: Subject) -> None:
    """With other words from some step on, later measurements are others: no noise is used twice unless it is said.

    Mechanisms whose state has noise to come, or that charge spans, may use it again.
    """
    if subject.mechanism.noise_in_state or subject.mechanism.most_spans:
        return
    steps = _steps(subject)
    rows = subject.read(subject.rows(steps))
    half = steps // 2
    found = []
    for seed in ("one", "another"):
        direct = Direct(subject, FixedEntropy("before"))
        direct.push(rows[:half])
        other = Direct(subject, FixedEntropy(seed))
        other.state, other.next = direct.state, direct.next
        found.append(other.push(rows[half:]))
    one, another = found
    both = (one.status == Status.FRESH) & (another.status == Status.FRESH)
    if both.sum() < 3:
        return
    same = (one.values[both] == another.values[both]).all(axis=1)
    _must(not same.all(), "later measurements are the same whatever noise is drawn for them")


# state and noise to come ---------------------------------------------------------------------------------------------


@_check
def noise_to_come_is_declared(subject: Subject) -> None:
    """Where `noise_in_state` is false, input and releases give the state: no other random word may change it.

    Random words are changed one by one. A state that differs behind the same releases has noise that is still to be used,
    and a copy of the log would use it twice.
    """
    if subject.mechanism.noise_in_state:
        return
    rows = subject.read(subject.rows(FEW))

    def run(changed: frozenset[int] = frozenset()) -> tuple[Any, bytes, list[range]]:
        source = Numbered(changed)
        direct = Direct(subject, source)
        outputs = [direct.push(rows[:4]), direct.push(rows[4:])]
        released = [part.tobytes() for output in outputs for part in (*output.released, output.units)]
        return released, direct.stored(), source.asked

    released, state, asked = run()
    words = [number for request in asked for number in request[:12]][:CHANGED_WORDS]
    for number in words:
        others, changed, _ = run(frozenset([number]))
        _must(
            others != released or changed == state,
            "the state has noise that nothing released shows, and `noise_in_state` is false",
        )


@_check
def halts_are_charged(subject: Subject) -> None:
    """Where noise fails, all that is left is charged, the error says nothing; a restart is silent at first."""
    rows = subject.rows(_steps(subject))
    for request in (1, 3):
        with install(Failing(request)) as source:
            assert isinstance(source, Failing)
            trial = Trial(subject)
            if not _fails(trial, rows):
                _must(source.left > 0, "noise failed, and something was released all the same")
                continue
        last = list(trial.log.rows())[-1]
        _must(last.kind == HALTED, "a failure after the first word does not end in a halt")
        with install(Numbered()):
            trial.reopen()
            if subject.window is None:
                _must(trial.session._closed, "at user level a halted stream continues")
                continue
            if subject.window > LATEST or subject.mechanism.policy.horizon is not None:
                continue
            before = len(trial.seen())
            for row in rows[: subject.window + 3]:
                with suppress(InvalidInput, AccountRefused):
                    trial.session.push(row)
        after = joined(trial.seen()[before:])
        silent = after["status"] == Status.SILENT
        _must(silent[: subject.window - 1].all(), "a step right after a halt is not silent")
        new = Direct(subject, Numbered()).push(subject.read(rows[:4])).status == Status.SILENT
        _must(np.array_equal(silent[subject.window - 1 :], new), "a stream does not start again after a halt")
        _must(verify(trial.log.rows()).ok, "the log of a halted stream does not verify")


def _fails(trial: Trial, rows: Any) -> bool:
    """Push until noise fails; whether it did."""
    for row in rows:
        try:
            trial.session.push(row)
        except Halted as error:
            _must(
                error.__cause__ is None and error.__context__ is None,
                "the error of a halt has another behind it",
            )
            return True
    return False


@_check
def a_copy_restarts_where_noise_is_to_come(subject: Subject) -> None:
    """A copy of a file is silent for a window where the state has noise; elsewhere it continues as the original does."""
    mechanism, rows = subject.mechanism, subject.rows()
    if subject.window is None or subject.window > STEPS:
        return
    with TemporaryDirectory() as folder, fixed_entropy("copy"):
        original, copied = Path(folder) / "original", Path(folder) / "copied"
        with Session(mechanism, original) as session:
            session.push_batch(rows[:5])
        shutil.copyfile(original, copied)
        found = []
        for path in (original, copied):
            with Session(mechanism, path) as session:
                for row in rows[5 : 5 + subject.window]:
                    session.push(row)
                log = session._log
                found.append(joined(list(seen(log.rows(), mechanism))[1:]))
                restarted = any(row.kind == RESTARTED for row in log.rows())
        if not mechanism.noise_in_state:
            name = difference(*found)
            _must(not name and not restarted, f"a copy without noise to come differs in {name}")
            return
        silent = found[1]["status"][: subject.window - 1] == Status.SILENT
        _must(restarted and silent.all(), "a copy of a log uses noise that the original uses")


@_check
def states_return_from_their_bytes(subject: Subject) -> None:
    """Stored, read and stored again, a state is the same; and its form is that of a new one."""
    mechanism = subject.mechanism
    rows = subject.read(subject.rows(_steps(subject)))
    with fixed_entropy("bytes"):
        direct = Direct(subject)
        for batch in _batches(rows):
            direct.push(batch)
            stored = direct.stored()
            again = arrays.rebuilt(mechanism.begin(1), iter(arrays.decode(stored)))
            _must(arrays.encode(arrays.flat(again)) == stored, "a state that was read is another one")


@_check
def raw_values_are_kept_only_where_it_is_said(subject: Subject) -> None:
    """A marked value is in no state, unless `keeps_raw_values` says so."""
    mechanism = subject.mechanism
    if not subject.plain or getattr(mechanism, "keeps_raw_values", False):
        return
    marker = 7_319_064_211
    rows = np.full((30, mechanism.columns), marker, dtype=np.int64)
    direct = Direct(subject, Loud())
    direct.push(rows)
    direct.push(rows[:1])
    state = direct.stored()
    for number in (np.int64(marker).tobytes(), np.float64(marker).tobytes()):
        _must(
            number not in state,
            "the state has a raw value, which the commit log would store; carry only releases and noise, or declare "
            "keeps_raw_values = True and let the proof cover it",
        )


# input ---------------------------------------------------------------------------------------------------------------


@_check
def bad_input_is_refused_unharmed(subject: Subject) -> None:
    """Wrong shapes, text, infinite and huge values are refused; the session continues as if nothing had been pushed."""
    if not subject.plain:
        return
    columns, rows = subject.mechanism.columns, subject.rows(6)
    bad: list[Any] = [np.zeros(columns + 1), ["a"] * columns, np.zeros((columns, 2))]
    if subject.mechanism.clamp is None:
        bad += [np.full(columns, number) for number in (np.inf, 1e300)]
        bad += [] if getattr(subject.mechanism, "accepts_missing", False) else [np.full(columns, np.nan)]
        bad += [np.full(columns, 2**62, dtype=np.int64)]
    expected = _trial(subject, rows).joined()
    with fixed_entropy("trial"):
        trial = Trial(subject)
        trial.session.push_batch(rows[:3])
        for values in bad:
            _refused(lambda values=values: trial.session.push(values), "bad input is not refused")  # type: ignore[misc]
            _refused(
                lambda values=values: trial.session.push_batch([values, values]),  # type: ignore[misc]
                "a batch of bad input is not refused",
            )
        trial.session.push_batch(rows[3:])
    _must(not difference(expected, trial.joined()), "refused input changed what was released after it")


@_check
def grid_and_rounding_are_kept(subject: Subject) -> None:
    """Values between grid points are refused or rounded, as declared."""
    mechanism = subject.mechanism
    if not subject.plain or mechanism.clamp is not None:
        return
    grid, rows = Fraction(mechanism.grid), subject.rows(6)
    between = rows + float(grid) / 4
    with fixed_entropy("trial"):
        trial = Trial(subject)
        if mechanism.rounding == "refuse":
            _refused(lambda: trial.session.push_batch(between), "values off the grid are not refused")
            return
        trial.session.push_batch(between)
    name = difference(_trial(subject, rows).joined(), trial.joined())
    _must(not name, f"values that are rounded to the grid differ in {name} from those on it")


# other shapes --------------------------------------------------------------------------------------------------------


def _shapes(mechanism: Any) -> Iterator[Any]:
    """The same with one column, a window of one step, and a very long one, where these exist."""
    policy = mechanism.policy
    changes: list[Callable[[], dict[str, Any]]] = [
        lambda: {"columns": 1},
        lambda: {"policy": dataclasses.replace(policy, window=1)},
        lambda: {"policy": dataclasses.replace(policy, window=2)},
        lambda: {"policy": dataclasses.replace(policy, window=LONG_WINDOW)},
        lambda: {"grid": "0.25"},
        lambda: {"rounding": "nearest"},
    ]
    for change in changes:
        with suppress(ValueError, TypeError, AttributeError):  # it has no such shape, and says so
            yield dataclasses.replace(mechanism, **change())


@_check
def other_shapes_conform(subject: Subject) -> None:
    """One column, windows of 1, 2 and many steps, a fine grid, rounding: cuts do not matter, charges fit."""
    if not subject.plain or not dataclasses.is_dataclass(subject.mechanism):
        return
    for mechanism in _shapes(subject.mechanism):
        shaped = Subject(mechanism)
        rows = shaped.rows(12)
        whole = _trial(shaped, rows)
        with fixed_entropy("trial"):
            single = Trial(shaped)
            for row in rows:
                single.session.push(row)
                single.reopen()
        shape = f"{mechanism.columns} columns, windows of {shaped.window} and a grid of {mechanism.grid}"
        name = difference(whole.joined(), single.joined())
        _must(not name, f"with {shape}, single pushes and one batch differ in {name}")
        _fits(shaped, whole, whole.joined())
        _agrees(shaped, whole.joined())


# the end -------------------------------------------------------------------------------------------------------------


@_check
def the_end_costs_nothing(subject: Subject) -> None:
    """What the end of a stream releases has no steps, no charges, and a size that does not depend on values."""
    mechanism = subject.mechanism
    if not hasattr(mechanism, "finish"):
        return
    rows = subject.rows(_steps(subject))
    forms = []
    for number, stream in enumerate([rows, rows, *subject.others(rows)]):
        direct = Direct(subject, FixedEntropy(f"end {number}"))
        direct.push(subject.read(stream))
        output = mechanism.finish(direct.state, direct.next - 1, direct.draws)
        if output is not None:
            output.check_shape(0, mechanism.outputs)
            _must(not (output.spans[:, 4] > 0).any(), "the end of a stream is charged")
            _must(
                len(output.revised) == len(mechanism.revised),
                "the end releases other arrays than `revised` names",
            )
        forms.append(output and [(part.shape, part.dtype.str) for part in output.released])
    _must(all(form == forms[0] for form in forms), "what the end releases has a size that depends on values")
