"""A model of the core: short histories of pushes, failures, copies and rivals, against a plain list of what was seen.

`Model` interprets a history, one action after the other. After every action it reads the log from scratch and looks for
a broken promise: something seen that is not charged, a step seen twice, noise used twice, an overspent window, a failure
that was retried, a record whose size tells something, a log that `verify` does not accept.

The mechanism `Tiny` does what the pushed number says, whatever it costs. What it releases are the words that it drew, so
every release shows which noise it has.

Faults are injected at the n-th line that the core executes. So a kill, an error, a handler or a rival can come anywhere.
"""

from __future__ import annotations

import json
import linecache
import random
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tidegate as tg
from tidegate import core
from tidegate.core import arrays, turns
from tidegate.core import session as session_module
from tidegate.core.charges import Charges, Span, span_rows
from tidegate.core.commit import (
    AMENDED,
    EVENT,
    HALTED,
    OPENED,
    PUSHED,
    RESTARTED,
    SALT_BYTES,
    Commit,
    Row,
)
from tidegate.core.log import Log, MemoryLog
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, ROW, WORDS, Draws, draw_row
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import TidegateError
from tidegate.releases import Status

CORE = str(Path(core.__file__).parent)
COIN = random.Random()  # whether a step fails; stands for noise, but is the same in every run of a history
NO_CALL = ("with ", "return None")
LIMIT = 6
AHEAD = 3  # noise to come that a state holds
SECRET = "SECRET"  # in every error of the mechanism
WIDE = 2.0**50  # a scale at which two draws are never equal
ROOM = 12  # spans of a push, padded
COMPUTED: list[int] = []  # every call of the mechanism, by its first step
OUTPUTS = 6  # word, two rows, the span's word, its ordinal, units


class Kill(BaseException):
    """What ends a process, at any line."""


class Alarm(Exception):
    """What a careless signal handler raises."""


class Broken(AssertionError):
    """A promise of the core was broken."""


# a mechanism that does what it is told -----------------------------------------------------------------------------

# a pushed number, as digits of base 4: units beyond one, what spans do, whether it fails, whether its output is wrong
NO_SPAN, BEGIN, USE, BEGIN_TWO = range(4)
GOOD, PERHAPS_FAIL, BACK, SHORT = range(4)


def code(units: int = 0, span: int = NO_SPAN, failure: int = GOOD) -> int:
    """The number that tells the mechanism what to do."""
    return units + 4 * span + 16 * failure


class TinyState(NamedTuple):
    """Noise to come, and the open span. SECRET."""

    ahead: Any
    numbers: Any  # values of `ahead` that were used; the last ordinal
    span: Any  # ordinal, first, last, units, word


@dataclass(frozen=True)
class Tiny:
    """Charges one unit a step and whatever the pushed number says."""

    window: int | None = 3
    noise_in_state: bool = True
    horizon: int | None = None
    columns: int = 1
    outputs: int = OUTPUTS
    grid: str = "1"
    rounding: str = "refuse"
    clamp: None = None
    units: int = LIMIT
    most_spans: int = 2 * ROOM
    epsilon: Any = "1"
    more: ClassVar[tuple[str, ...]] = ()
    revised: ClassVar[tuple[str, ...]] = ("last",)

    @property
    def policy(self) -> Any:
        """Any policy of this window."""
        if self.window is None:
            return tg.User(epsilon=self.epsilon, horizon=self.horizon or 1000)
        return tg.WEvent(epsilon=self.epsilon, window=self.window)

    def with_policy(self, policy: Any) -> Tiny:
        """With a share of the budget."""
        return replace(self, epsilon=policy.epsilon)

    def describe(self) -> dict[str, Any]:
        """All of it."""
        return {"policy": self.policy.describe(), "noise_in_state": self.noise_in_state}

    def begin(self, first: int) -> TinyState:
        """No noise, no span."""
        return TinyState(
            np.zeros(AHEAD, dtype=np.int64), np.array([AHEAD, -1]), np.array([-1, 0, 0, 0, 0], dtype=np.int64)
        )

    def public(self, state: TinyState, first: int, count: int) -> Charges:
        """One unit a step."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: TinyState, rows: Matrix, first: int, noise: Draws) -> Output:
        """Do what the numbers say."""
        COMPUTED.append(first)
        out, spans = empty_output(len(rows), OUTPUTS), []
        for index, told in enumerate(rows[:, 0].tolist()):
            step, extra, span, failure = first + index, told % 4, told // 4 % 4, told // 16 % 4
            word = self._word(state, noise)
            if failure == PERHAPS_FAIL and COIN.random() < 0.5:
                raise RuntimeError(f"{SECRET} {word}")
            begun = {NO_SPAN: 0, BEGIN: 1, USE: 0, BEGIN_TWO: 2}[span]
            for _ in range(begun):
                state.numbers[1] += 1
                state.span[:] = state.numbers[1], step, step + 1, 1, _words(noise, 1)[0]
                spans.append(self._row(state))
            if span == USE and state.span[0] >= 0:  # whether it is still open is for the account to say
                state.span[2] = max(state.span[2], step)
                spans.append(self._row(state))
            if failure == BACK:  # reaches back to a step that is over
                state.numbers[1] += 1
                spans.append(Span(0, int(state.numbers[1]), step - 2, step, 1))
            used = state.span[[4, 0]] if span in (BEGIN, USE, BEGIN_TWO) else (0, -1)
            out.values[index] = [word, *_two_rows(noise, step), *used, 1 + extra]
            out.status[index], out.source[index], out.scale[index] = Status.FRESH, step, WIDE
            out.units[index] = 1 + extra
        charged = span_rows(spans, ROOM) if spans else span_rows([], ROOM)
        if len(rows) and rows[-1, 0] // 16 % 4 == SHORT:
            out = out._replace(units=out.units[:-1])
        return out._replace(spans=charged, revised=(np.zeros(0, dtype=np.int64),))

    def hears(self, name: str) -> bool:
        """Of all events."""
        return True

    def event(self, state: TinyState, name: str, step: int, noise: Draws) -> Charges | None:
        """Drop the noise to come; costs what the name says, or fails."""
        COMPUTED.append(step)
        word = _words(noise, 1)[0]
        if name == "fail" and COIN.random() < 0.5:
            raise RuntimeError(f"{SECRET} {word}")
        state.numbers[0] = AHEAD
        return Charges(step, np.array([int(name[-1])])) if name[-1].isdigit() else None

    def finish(self, state: TinyState, last: int, noise: Draws) -> Output | None:
        """Say which step was the last, or fail."""
        COMPUTED.append(last)
        if COIN.random() < 0.3:
            raise RuntimeError(f"{SECRET} {state.ahead}")
        return empty_output(0, OUTPUTS)._replace(revised=(np.array([last]),))

    def _word(self, state: TinyState, noise: Draws) -> int:
        ahead, numbers = state.ahead, state.numbers
        if not self.noise_in_state:
            return int(_words(noise, 1)[0])
        if numbers[0] == AHEAD:
            ahead[:], numbers[0] = _words(noise, AHEAD), 0
        word = int(ahead[numbers[0]])
        ahead[numbers[0]] = 0
        numbers[0] += 1
        return word

    def _row(self, state: TinyState) -> Span:
        ordinal, first, last, units, _ = state.span.tolist()
        return Span(0, ordinal, first, last, units)


def _words(noise: Draws, count: int) -> Any:
    """Words that are exact as floating point numbers."""
    return (noise.source.words("tiny", 0, 1, range(count), 0, 1)[0] >> np.uint64(14)).astype(np.int64)


def _two_rows(noise: Draws, step: int) -> list[float]:
    """Two draws of one step, through the pool."""
    drawing, found = noise.rows(one=1, two=1), []
    for slot in drawing.slots:
        while (wanted := draw_row(drawing.pool, slot, step, WIDE)) != DONE:
            if wanted == WORDS:
                drawing.refill()
            else:
                drawing.decide(wanted - ROW, step)
        found.append(float(slot.row[0]))
    return found


# faults at every line -------------------------------------------------------------------------------------------------


@contextmanager
def at_line(number: int | None, act: Callable[[], None]) -> Iterator[list[int]]:
    """Do something when the core is about to execute its n-th line; yields how many it has executed."""
    lines = [0]
    if number is None:
        yield lines
        return

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(CORE) or file == turns.__file__:
            return None
        # Python looks for signals at calls: never between the lines of the `finally` in `turns`, where a `with` ends, or
        # at a plain return
        if event == "line" and not linecache.getline(file, frame.f_lineno).lstrip().startswith(NO_CALL):
            lines[0] += 1
            if lines[0] == number:
                sys.settrace(None)
                frame.f_trace = None
                act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


class Shaky(Log):
    """A log whose next commits fail, made or not made, and whose readers are told so."""

    fails: str = ""

    def append(self, expected: bytes, commit: Commit) -> bytes:
        """Fail before or after the commit."""
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise OSError("the disk is full")
        head = super().append(expected, commit)  # type: ignore[safe-super]
        if fails == "after":
            raise OSError("the answer was lost")
        return head


class ShakyMemory(Shaky, MemoryLog):
    """In memory."""


class ShakyFile(Shaky, SQLiteLog):
    """In a file."""


# actions of a history ---------------------------------------------------------------------------------------------------


class Push(NamedTuple):
    """Push numbers with the last session, or with the one before it; the fault comes at a line, or with the commit."""

    told: tuple[int, ...]
    skip: int = 0
    only: int = 0  # of two queries the first, or the second
    rival: bool = False
    fault: str = ""
    line: int = 0


class Do(NamedTuple):
    """Anything else: open, drop, close, copy, finish, wrong, event with its name, amend with a configuration."""

    what: str
    fault: str = ""
    line: int = 0


Action = Push | Do
LINE_FAULTS = ("kill", "alarm", "push", "peek", "rival", "close")
COMMIT_FAULTS = ("before", "after")


class Config(NamedTuple):
    """Queries that share a budget."""

    queries: dict[str, Tiny]
    shares: dict[str, str] | None = None

    def session(self, log: Log, amend: bool = False) -> Any:
        """A session with them."""
        return session_module.Session(self.queries, log, shares=self.shares, amend=amend)

    @property
    def epsilon(self) -> Fraction:
        """The budget."""
        return Fraction(next(iter(self.queries.values())).epsilon)

    def amount(self, name: str) -> Fraction:
        """What a query may spend."""
        return self.epsilon * Fraction(1 if self.shares is None else self.shares[name])

    @property
    def facts(self) -> Any:
        """What tells it from the others."""
        return self.epsilon, {
            name: (self.amount(name), each.noise_in_state) for name, each in self.queries.items()
        }


def facts_of(row: Row) -> Any:
    """The same, as a row describes it."""
    found = json.loads(row.charges)["description"]
    budget = Fraction(found["budget"]["epsilon"])
    return budget, {
        name: (budget * Fraction(each["share"]), each["mechanism"]["noise_in_state"])
        for name, each in found["queries"].items()
    }


class World:
    """One log, with its sessions, and what was seen of it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.memory = ShakyMemory()
        self.sessions: list[Any] = []
        self.seen: dict[tuple[str, int], tuple[float, ...]] = {}

    def log(self) -> Log:
        """The log of a new session."""
        return self.memory if self.path is None else ShakyFile(self.path)

    def rows(self) -> list[Row]:
        """All rows, read anew."""
        return self.read()[0]

    def read(self) -> tuple[list[Row], Any]:
        """All rows and the last commit, read anew."""
        log = self.log()
        found = list(log.rows()), log.load()
        if log is not self.memory:
            log.close()
        return found


class Told:
    """A scope, as rows tell of it."""

    def __init__(self, name: str, amount: Fraction, step: int, first: int) -> None:
        self.name, self.amount, self.step = name, amount, step
        self.units: dict[int, int] = {}
        self.events: dict[int, int] = {}
        self.spans: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.data: set[int] = set()  # steps of which something was said, or charged
        self.epoch, self.silent = 0, first - 1

    def restart(self, window: int | None) -> None:
        """Nothing is said until windows have passed, and what was planned for later is never used."""
        self.epoch += 1
        self.silent = max(self.silent, self.step + (window or 10**9) - 1)
        self.spans = {
            key: (first, min(last, self.step), cost) for key, (first, last, cost) in self.spans.items()
        }


class Model:
    """Interprets a history, and looks for broken promises."""

    def __init__(self, configs: list[Config], folder: Path | None = None) -> None:
        self.configs, self.folder = configs, folder
        self.window = next(iter(configs[0].queries.values())).window
        COIN.seed(1)
        self.worlds: list[World] = []
        self.sizes: dict[Any, int] = {}
        self.lines = [0]  # of the core that the last action has executed
        self.salts: dict[bytes, bytes] = {}
        self.done: Counter[str] = Counter()
        self.known: list[Any] = []  # what the last check has looked at
        self._new_world(None)
        self.run(Do("open"))

    @property
    def world(self) -> World:
        """The one that is acted on: the last."""
        return self.worlds[-1]

    def config(self, world: World) -> Config:
        """What the log says that it is configured with."""
        books = [row for row in world.rows() if row.kind in (OPENED, AMENDED)]
        return self._config(books[-1]) if books else self.configs[0]

    def _config(self, row: Row) -> Config:
        return next(each for each in self.configs if each.facts == facts_of(row))

    def _new_world(self, source: Path | None) -> None:
        path = None if self.folder is None else self.folder / f"{len(self.worlds)}.db"
        if source is not None and path is not None:
            shutil.copy(source, path)
            beside = Path(f"{source}-wal")
            if beside.exists():
                shutil.copy(beside, f"{path}-wal")
        self.worlds.append(World(path))

    # what is done -----------------------------------------------------------------------------------------------------

    def run(self, *history: Action) -> Model:
        """Do all of it, and look after each."""
        for action in history:
            before = self.world.rows() if self.worlds else []
            if isinstance(action, Push):
                self._push(action, before)
            else:
                self._do(action)
            self.check()
        return self

    def end(self) -> None:
        """Look at everything once more, and let go of it."""
        self.check()
        for world in self.worlds:
            for each in world.sessions:
                with suppress(TidegateError):
                    each.close()

    def _do(self, action: Do) -> None:
        world, what = self.world, action.what
        if what == "open":
            self._open(action)
        elif what == "drop" and world.sessions:
            world.sessions.pop()
        elif what == "close" and world.sessions:
            world.sessions.pop().close()
        elif what == "copy" and world.path is not None and len(self.worlds) < 4:
            self._new_world(world.path)
            self._open(Do("open"))
        elif what == "back" and len(self.worlds) > 1:
            self.worlds.insert(0, self.worlds.pop())
        elif what == "finish" and world.sessions:
            COMPUTED.clear()
            self._guarded(action, world.sessions[-1].finish)
            if len(COMPUTED) > len(world.sessions[-1].steps if world.sessions else "ab"):
                raise Broken("the end was computed twice")
        elif what.startswith("event ") and world.sessions:
            self._event(action, what.removeprefix("event "))
        elif what.startswith("amend "):
            self._open(action, self.configs[int(what[-1]) % len(self.configs)])
        elif what == "wrong" and world.sessions:
            self._wrong(world)
        elif what == "read" and world.sessions:
            self._peek(world)
        self.done[what] += 1

    def _open(self, action: Do, other: Config | None = None) -> None:
        world = self.world
        config = other or self.config(world)

        def opened() -> None:
            world.sessions.append(config.session(world.log(), amend=other is not None))

        raised = self._guarded(action, opened)
        self.done["amended"] += other is not None and not raised
        if raised and not action.fault and (other is None or raised not in ("LogMismatch", "SessionClosed")):
            raise Broken(f"a log cannot be opened: {raised}")

    def _event(self, action: Do, name: str) -> None:
        """An event is a commit of its own, or a halt."""
        before = len(self.world.rows())
        COMPUTED.clear()
        session = self.world.sessions[-1]
        raised = self._guarded(action, lambda: session.event(name))
        kinds = [row.kind for row in self.world.rows()[before:]]
        expected = {"": [EVENT], "Halted": [HALTED]}.get(raised, [])
        self.done[f"event {raised}"] += 1
        if len(COMPUTED) > len(session.steps):
            raise Broken("an event was told twice")
        if not action.fault and kinds != expected:
            raise Broken(f"an event that raised {raised or 'nothing'} left commits of the kinds {kinds}")

    def _wrong(self, world: World) -> None:
        """Input of a wrong form and steps that are over are refused, and cost nothing."""
        config = self.config(world)
        for other in self.configs:
            log = world.log()
            try:
                if other.facts != config.facts:
                    other.session(log)
                    raise Broken("a log was opened with another configuration")
            except TidegateError:
                continue
            finally:
                if log is not world.memory:
                    log.close()
        session, head = world.sessions[-1], world.sessions[-1].head
        for values, step in (
            (["x"], None),
            ([1, 2], None),
            ([1], max(session.steps.values(), default=0)),
            ([1], 2**60),
            ([1], 0),
        ):
            try:
                session.push(dict.fromkeys(session.steps, values), step=step)
            except TidegateError:
                continue
            raise Broken(f"a wrong push was accepted: {values}, step {step}")
        if session.head != head:
            raise Broken("a refused push has moved the head")

    def _guarded(self, action: Push | Do, call: Callable[[], None]) -> str:
        """Call with the action's fault; the name of what it raised."""
        world = self.world
        for each in world.sessions[-1:]:
            if action.fault in COMMIT_FAULTS:
                each._log.fails = action.fault
        line = action.line if action.fault in LINE_FAULTS else None
        try:
            with at_line(line, lambda: self._fault(action.fault, world)) as self.lines:
                call()
        except (Kill, Alarm, TidegateError, OSError) as error:
            self._no_secret(error)
            if isinstance(error, Kill) and world.path is not None:
                self._die(world)
            return type(error).__name__
        except Exception as error:
            raise Broken(f"{type(error).__name__} left the session: {error}") from error
        finally:
            for each in world.sessions:
                each._log.fails = ""
        return ""

    def _die(self, world: World) -> None:
        """The process is gone, and its files are closed."""
        for each in world.sessions:
            each._log.close()
        world.sessions.clear()

    def _fault(self, fault: str, world: World) -> None:
        self.done[fault] += 1
        if fault == "kill":
            raise Kill
        if fault == "alarm":
            raise Alarm
        if fault == "peek":  # what was seen stays seen, if nothing was committed as well
            self._peek(world)
            raise Kill
        elif fault == "close" and world.sessions:
            with suppress(TidegateError):
                world.sessions[-1].close()
        elif fault == "push" and world.sessions:
            with suppress(TidegateError):
                session = world.sessions[-1]
                self._see(
                    world, session.push_batch({name: [[code(1)]] for name in session.steps}, position=b"x")
                )
        elif (
            fault == "rival" and world.path is None
        ):  # a handler cannot wait for the lock that its own thread has
            with suppress(TidegateError):
                rival = self.config(world).session(world.log())
                self._see(world, rival.push_batch({name: [[code(1)]] for name in rival.steps}, position=b"x"))

    def _peek(self, world: World) -> None:
        """Read releases, at any moment."""
        for each in world.sessions[-1:]:
            for released in each.releases():
                self._see(world, released)

    def _push(self, action: Push, before: list[Row]) -> None:
        world = self.world
        if not world.sessions:
            return
        session = world.sessions[-2 if action.rival and len(world.sessions) > 1 else -1]
        told = np.array(action.told, dtype=np.int64).reshape(-1, 1)
        position = b"\0" * (session.step % 3) + b"at %d\0" % session.step

        names = list(session.steps)
        names = names[action.only - 1 : action.only] or names if action.only else names

        def pushed() -> None:
            step = {name: session.steps[name] + 1 + action.skip for name in names} if action.skip else None
            if len(told) == 1:
                single = session.push(dict.fromkeys(names, told[0]), step=step, position=position)
                self._see_one(world, single)
            else:
                self._see(world, session.push_batch(dict.fromkeys(names, told), step=step, position=position))

        head = session.head
        COMPUTED.clear()
        raised = self._guarded(action, pushed)
        if len(COMPUTED) > len(names) + (2 if action.fault in ("push", "rival") else 0):
            raise Broken("a step was computed twice in one push")
        self.done[raised or "pushed"] += 1
        if not action.fault:
            self._look_after(session, before, raised, head, position)

    def _look_after(self, session: Any, before: list[Row], raised: str, head: bytes, position: bytes) -> None:
        """What a push without a fault leaves: a release, a public refusal, a halt, or a closed session."""
        new = self.world.rows()[len(before) :]
        kinds = [row.kind for row in new]
        if raised == "":
            good = kinds == [PUSHED] and session.position == position and session.head == new[0].head
        elif raised == "Halted":
            good = kinds == [HALTED]
        else:
            good = raised in ("AccountRefused", "SessionClosed", "Fenced") and not kinds
            if COMPUTED and raised != "Fenced":
                raise Broken("noise was drawn, and the step is neither released nor charged")
        if not good:
            raise Broken(f"a push that raised {raised or 'nothing'} left commits of the kinds {kinds}")
        if raised == "AccountRefused" and session.head != head:
            raise Broken("a refused push has moved the head")

    # what is seen -----------------------------------------------------------------------------------------------------

    def _see(self, world: World, released: Any) -> None:
        for name, part in released.items():
            for release in part:
                self._see_one(world, {name: release})

    def _see_one(self, world: World, released: Any) -> None:
        """What one step of each query says."""
        for name, each in released.items():
            values = () if each.status == Status.SILENT else tuple(each.values.tolist())
            if world.seen.setdefault((name, each.step), values) != values:
                raise Broken(f"step {each.step} was seen twice")

    def _no_secret(self, error: BaseException) -> None:
        """Neither the text of an error nor what it carries may tell of the mechanism's."""
        if isinstance(error, Kill | Alarm):
            return  # whoever raises them has the mechanism's own frames
        found: BaseException | None = error
        while found is not None:
            if SECRET in str(found) or isinstance(found, RuntimeError | ValueError):
                raise Broken(f"{type(error).__name__} carries {type(found).__name__}") from found
            found = found.__cause__ or found.__context__

    # what is promised -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every promise, recomputed from the rows of every log."""
        uses: dict[float, set[tuple[bytes, int, str, int]]] = defaultdict(set)
        shared: dict[float, set[bytes]] = defaultdict(set)
        chains, read = [], []
        for world in self.worlds:
            try:
                read.append(world.read())
            except Exception as error:
                raise Broken(f"a log cannot be read: {type(error).__name__}") from error
        known = [(found, dict(world.seen)) for found, world in zip(read, self.worlds, strict=True)]
        if known == self.known:  # nothing was written, and nothing more was seen
            return
        self.known = known
        for world, (rows, loaded) in zip(self.worlds, read, strict=True):
            if not rows:
                continue
            chains.append({row.head for row in rows})
            found = verify(rows)
            if not found.ok:
                raise Broken(f"verify: {found.reason}")
            if loaded is None or loaded.row.head != found.head:
                raise Broken("the log's head is not that of its last row")
            if self.salts.setdefault(loaded.secret[:SALT_BYTES], found.head) != found.head:
                raise Broken("two commits have the same salt")
            self._check_sizes(rows, len(loaded.secret))
            self._check_rows(world, rows, uses, shared)
        for word, places in uses.items():
            if len(places) > 1:
                raise Broken(f"the noise {word} is in {len(places)} releases")
        for word, heads in shared.items():
            if not any(heads <= chain for chain in chains):
                raise Broken(f"the noise {word} of a span is used in two logs")

    def _check_rows(self, world: World, rows: list[Row], uses: Any, shared: Any) -> None:
        """Every promise about scopes, from the rows of one log, one after the other."""
        alive: dict[int, Told] = {}
        ended: list[Told] = []
        budgets: list[tuple[int, Fraction]] = []  # from which step on
        held: dict[tuple[str, int], tuple[float, ...]] = {}
        clock = 0
        for row in rows:
            if row.kind in (OPENED, AMENDED):
                config = self._config(row)
                budgets.append((clock + 1, config.epsilon))
                named = {each.name: each for each in alive.values()}
                found = {each[0]: (each[1], each[4]) for each in json.loads(row.charges)["alive"]}
                ended += [each for number, each in alive.items() if number not in found]
                alive = {
                    number: alive.get(number)
                    or Told(name, config.amount(name), named[name].step if name in named else clock, first)
                    for number, (name, first) in found.items()
                }
                if sum(each.amount for each in alive.values()) > config.epsilon:
                    raise Broken("the queries of a log have more than its budget")
            if row.kind in (PUSHED, HALTED, EVENT):
                parts = session_module.charges_of(row)
                values = iter(arrays.decode(row.releases or b""))
                for number, charges in parts:
                    told = alive[number]
                    read = self._charge(row, told, charges)
                    if row.kind == PUSHED:
                        released, *_ = [next(values) for _ in range(5)]
                        read |= self._release(row, told, charges.first, released.tolist(), held, uses, shared)
                    told.step = max(told.step, charges.last if row.kind != EVENT else 0)
                    told.data |= read
                    for step in read:
                        self._check_scopes(step, [*alive.values(), *ended], budgets)
            if row.kind in (HALTED, RESTARTED):
                for told in alive.values():
                    if row.kind == HALTED or config.queries[told.name].noise_in_state:
                        told.restart(self.window)
            clock = max([clock, *(each.step for each in alive.values())])
        for (name, step), seen in world.seen.items():
            if held.get((name, step)) != seen:
                raise Broken(f"step {step} of {name} was seen and is not in the log")
        for told in (*alive.values(), *ended):
            units = Counter(told.units) + Counter(told.events)
            self._check_windows(units, list(told.spans.values()), self.window)

    def _charge(self, row: Row, told: Told, charges: Charges) -> set[int]:
        """Take over charges; the steps that cost something."""
        for index, each in enumerate(charges.units.tolist()):
            step = charges.first + index
            if row.kind == EVENT:
                told.events[step] = told.events.get(step, 0) + each
            elif step <= told.step or step in told.units:
                raise Broken(f"step {step} is in two commits")
            else:
                told.units[step] = each
        for law, ordinal, first, last, cost in charges.spans.tolist():
            if cost:
                begun = told.spans.get((told.epoch, ordinal), (first, last, cost))[0]
                told.spans[told.epoch, ordinal] = (begun, last, cost)
                assert law == 0
        if row.kind == HALTED:
            self._check_full(charges, told)
        return {charges.first + index for index in np.flatnonzero(charges.units).tolist()}

    def _release(
        self, row: Row, told: Told, begin: int, values: Any, held: Any, uses: Any, shared: Any
    ) -> set[int]:
        """What a push has released of a scope; the steps of which something is said."""
        said = set()
        for index, each in enumerate(values):
            step = begin + index
            quiet = each[0] != each[0]
            if (told.name, step) in held:
                raise Broken(f"step {step} of {told.name} is released twice")
            held[told.name, step] = () if quiet else tuple(each)
            if quiet:
                continue
            said.add(step)
            if step <= told.silent:
                raise Broken(
                    f"step {step} is released although windows up to {told.silent} have a halt in them"
                )
            if told.units.get(step) != each[5]:
                raise Broken(f"step {step} costs {each[5]} and is charged {told.units.get(step)}")
            for column, word in enumerate(each[:3]):
                uses[word].add((row.head, step, told.name, column))
            if each[4] >= 0:
                shared[each[3]].add(row.head)
                first, last, _ = told.spans.get((told.epoch, int(each[4])), (1, 0, 0))
                if not first <= step <= last:
                    raise Broken(f"step {step} uses a span that is not charged for it")
        return said

    def _check_scopes(self, step: int, scopes: list[Told], budgets: list[tuple[int, Fraction]]) -> None:
        """Every window of a step that is charged now fits the budgets in force: those of its steps, and today's."""
        for begin in [1] if self.window is None else range(step - self.window + 1, step + 1):
            inside = range(begin, 10**9 if self.window is None else begin + self.window)
            spent = sum(each.amount for each in scopes if any(at in inside for at in each.data))
            ends = [since - 1 for since, _ in budgets[1:]] + [10**9]
            allowed = min(budget for (_, budget), end in zip(budgets, ends, strict=True) if end >= begin)
            if spent > allowed:
                raise Broken(
                    f"scopes with {spent} read the window from step {begin}, of which {allowed} are allowed"
                )

    def _check_full(self, charges: Charges, told: Told) -> None:
        """A halt leaves nothing in the windows that end at its steps, and so pays for whatever was computed."""
        for end in range(max(charges.first, told.silent + 1), charges.last + 1):
            begin = 1 if self.window is None else end - self.window + 1
            units = Counter(told.units) + Counter(told.events)
            spent = sum(each for step, each in units.items() if begin <= step <= end)
            spent += sum(cost for first, last, cost in told.spans.values() if first <= end and last >= begin)
            if spent < LIMIT:
                raise Broken(f"the halt of step {end} has charged {spent} of {LIMIT}")

    def _check_windows(
        self, units: dict[int, int], spans: list[tuple[int, int, int]], window: int | None
    ) -> None:
        if not units:
            return
        for end in range(min(units), max(units) + 1):
            begin = 1 if window is None else end - window + 1
            spent = sum(each for step, each in units.items() if begin <= step <= end)
            spent += sum(cost for first, last, cost in spans if first <= end and last >= begin)
            if spent > LIMIT:
                raise Broken(f"steps {begin} to {end} have spent {spent} of {LIMIT}")

    def _check_sizes(self, rows: list[Row], secret: int) -> None:
        """The size of a record depends on public numbers alone."""
        for row in rows[1:]:
            if row.kind == PUSHED:
                counts = tuple(len(charges.units) for _, charges in session_module.charges_of(row))
                self._same_size((row.kind, counts, "releases"), len(row.releases or b""))
                self._same_size((row.kind, counts, "charges"), len(row.charges))
        pushed = any(row.kind in (PUSHED, HALTED) for row in rows)  # has a position
        books = [row for row in rows if row.kind in (OPENED, AMENDED)]
        config = self.configs.index(self._config(books[-1]))
        self._same_size((rows[-1].kind, pushed, config, "secret"), secret)

    def _same_size(self, key: Any, size: int) -> None:
        if self.sizes.setdefault(key, size) != size:
            raise Broken(f"a record {key} has {size} bytes and another one {self.sizes[key]}")


# drivers ----------------------------------------------------------------------------------------------------------------

HALVES = {"a": "1/2", "b": "1/2"}
MECHANISMS: dict[str, list[Config]] = {
    "one": [
        Config({"a": Tiny(1)}),
        Config({"a": Tiny(1), "b": Tiny(1, noise_in_state=False)}, HALVES),
        Config({"a": Tiny(1, epsilon="1/2")}),
    ],
    "three": [Config({"a": Tiny(3)}), Config({"a": Tiny(3, epsilon="1/2")}), Config({"b": Tiny(3)})],
    "two queries": [
        Config({"a": Tiny(3), "b": Tiny(3, noise_in_state=False)}, HALVES),
        Config({"a": Tiny(3), "c": Tiny(3)}, {"a": "1/2", "c": "1/2"}),  # c in the place of b
        Config({"a": Tiny(3, epsilon="1/2")}),  # a cut, with the same amount for a
        Config({"b": Tiny(3, noise_in_state=False, epsilon="2")}, {"b": "1/4"}),  # a raise
    ],
    "user": [
        Config({"a": Tiny(None)}, {"a": "1/2"}),
        Config({"b": Tiny(None)}, {"b": "1/2"}),
        Config({"a": Tiny(None), "b": Tiny(None)}, HALVES),
    ],
}
CODES = tuple(
    [code()] * 4
    + [code(units) for units in (1, 2, 3)]
    + [code(0, span) for span in (BEGIN, USE, USE, BEGIN_TWO)]
    + [code(1, BEGIN), code(1, USE)]
    + [code(0, NO_SPAN, PERHAPS_FAIL)] * 2
    + [code(0, USE, PERHAPS_FAIL), code(0, NO_SPAN, BACK), code(0, NO_SPAN, SHORT)]
)
LINES = 420  # a push of one step executes about as many


def any_action(rng: random.Random) -> Action:
    """One of them, pushes more often than others."""
    kind = rng.random()
    if kind < 0.66:
        told = tuple(rng.choice(CODES) for _ in range(rng.choice((1, 1, 1, 2, 3, 0))))
        fault = rng.choice(("",) * 8 + LINE_FAULTS + COMMIT_FAULTS)
        skip, only = rng.choice((0, 0, 0, 1, 2, 5)), rng.choice((0, 0, 1, 2))
        return Push(told, skip, only, rng.random() < 0.2, fault, rng.randrange(1, LINES))
    if kind < 0.82:
        return Do("open", rng.choice(("",) * 6 + ("kill", "alarm")), rng.randrange(1, LINES))
    if kind < 0.91:
        what = rng.choice(
            ("event 0", "event 1", "event 3", "event fail", "amend 0", "amend 1", "amend 2", "amend 3")
        )
        return Do(what, rng.choice(("",) * 5 + ("kill", "alarm", "before", "after")), rng.randrange(1, LINES))
    return Do(rng.choice(("drop", "close", "copy", "copy", "back", "wrong", "read", "finish")))


def any_history(seed: int, length: int) -> list[Action]:
    """A history that every machine makes from this number."""
    rng = random.Random(seed)
    history: list[Action] = []
    while len(history) < length:
        action = any_action(rng)
        if action == Do("finish") and rng.random() < 0.7:
            continue
        history.append(action)
        faulty = action.fault in ("kill", "alarm", "before", "after")
        if faulty or (isinstance(action, Push) and any(told // 16 for told in action.told)):
            history.append(Do("open"))  # what happens after a failure is where defects are
    return history


def lines_of(configs: list[Config], *history: Action) -> int:
    """How many lines of the core the last action executes."""
    *before, last = history
    model = Model(configs).run(*before, last._replace(fault="kill", line=10**9))
    model.end()
    return model.lines[0]
