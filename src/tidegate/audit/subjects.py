"""What is audited: a mechanism or any callable stream → stream, and the cheapest honest way to run it often.

Every transcript is one of a run of its own, and all of them are independent. Four ways, from the fastest:

columns
    Mechanisms that treat columns alike and independently: one run on many copies of the columns is as many
    runs. The copies must leave the noise as it is, which is checked by the sensitivity.
periods
    Adaptive OptStream: every period begins with a fresh threshold and a fresh sample, so one run on many copies
    of the stream, one after the other, is as many runs where a copy is a whole number of periods.
direct
    `begin` and `advance` for each run, without a log.
restart
    Anything else: a session for each run, or one call of a callable.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tidegate.audit import direct
from tidegate.audit.copies import places, widened
from tidegate.audit.courses import AT_ONCE, MARKS, SINGLY, Course, laid_out, visible
from tidegate.audit.neighbours import Counts
from tidegate.core.mechanism import Mechanism, Reads
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.policy import Policy, Swellfish
from tidegate.releases import Releases

Floats = npt.NDArray[np.float64]
Call = Callable[[Counts], Any]
Late = Callable[[], bool]

WIDEST = 1 << 15  # columns of one run
MOST_LEAVES = 512  # of all copies of a hierarchy
TILED = 1 << 16  # cells of all copies of a stream
LONGEST_CALL = 30.0  # seconds: whoever needs longer for one short stream hangs


FEWEST = 300  # transcripts that are drawn even when time is up: fewer say nothing
PATIENCE = (
    4  # what an audit waits for, a sleeping callable or a disk, counts so many times less than its work
)


class Stopwatch:
    """How long an audit has worked: processor time, whatever else the machine does, and a part of what it waited for."""

    def __init__(self) -> None:
        self._processor, self._elapsed = time.process_time(), _elapsed()

    def seconds(self) -> float:
        """Seconds since the beginning."""
        return max(time.process_time() - self._processor, (_elapsed() - self._elapsed) / PATIENCE)


def _elapsed() -> float:
    """Seconds of the wall clock, less those that the process stood in line for a processor where the system tells."""
    try:
        queued = int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        queued = 0.0
    return time.monotonic() - queued


class Failure(Exception):
    """A mechanism crashed, hung or changed the shape of its releases; `kind` says which."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.side = 0  # of the pair of streams


class Layout(NamedTuple):
    """How a transcript is laid out.

    Attributes
    ----------
    shown
        So many numbers of a step, from the first, have the noise scale that is its last number; 0: no scales.
    width
        So many numbers belong to one step; 0: as many as the stream's length says.
    steps
        So many steps a transcript begins with, where other numbers follow them; 0: nothing follows.
    """

    shown: int = 0
    width: int = 0
    steps: int = 0

    def marks(self, numbers: int) -> list[int]:
        """Which of so many numbers say how a step came about, and are no values."""
        end = self.steps * self.width or numbers
        return [at for at in range(end) if at % self.width >= self.shown] if self.shown else []


@runtime_checkable
class Subject(Protocol):
    """Something that can be audited."""

    policy: Policy
    columns: int
    name: str
    way: str

    def layout(self, steps: int) -> Layout:
        """How the transcripts of streams of so many steps are laid out."""
        ...

    def moments(self, steps: int) -> tuple[int, ...]:
        """Steps at which something happens to a run on a stream of so many steps."""
        ...

    def sample(self, stream: Counts, count: int, late: Late | None = None) -> Floats:
        """So many independent transcripts (fewer once it is `late`), one a row."""
        ...


@contextmanager
def guarded(seconds: float) -> Iterator[None]:
    """Interrupt whatever runs too long; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Failure("hangs", f"one call took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Callee:
    """Any callable from a stream to what is released about it.

    Parameters
    ----------
    call
        Gets steps × columns whole numbers and returns an array of numbers of a fixed shape.
    policy
        What it claims to protect.
    columns
        Columns of the streams it is given.
    name
        For the verdict.
    many
        Whether it is called with (stream, count) and returns count transcripts at once.
    seconds
        A call that takes longer hangs.

    Examples
    --------
    >>> import numpy as np
    >>> from tidegate.policy import Event
    >>> Callee(lambda stream: np.zeros(len(stream)), Event(epsilon="1"), name="silence").name
    'silence'
    """

    call: Callable[..., Any]
    policy: Policy
    columns: int = 1
    name: str = "callable"
    many: bool = False
    seconds: float = LONGEST_CALL

    way: str = "restart"
    shown: int = 0
    width: int = 0

    def layout(self, steps: int) -> Layout:
        """As its attributes say."""
        return Layout(self.shown, self.width)

    def moments(self, steps: int) -> tuple[int, ...]:
        """None that is known."""
        return ()

    def sample(self, stream: Counts, count: int, late: Late | None = None) -> Floats:
        """One call a transcript, or one for all."""
        rows: list[Floats] = []
        if self.many:
            with guarded(self.seconds):
                return self._checked(self._call(stream, count), count)
        together = 1  # calls under one alarm: setting it costs as much as a short call
        while len(rows) < count:
            begun = time.monotonic()
            with guarded(self.seconds):
                calls = range(min(together, count - len(rows)))
                rows += [self._checked(self._call(stream.copy()), None) for _ in calls]
            together = 100 if (time.monotonic() - begun) / len(calls) < self.seconds / 1000 else 1
            if late is not None and len(rows) >= FEWEST and late():
                break
        if len({row.shape for row in rows}) > 1:
            shapes = sorted({row.shape for row in rows})
            raise Failure(
                "shape", f"it returned {shapes[0][0]} numbers once and {shapes[-1][0]} another time"
            )
        return np.array(rows)

    def _call(self, *arguments: Any) -> Any:
        try:
            return self.call(*arguments)
        except Failure:
            raise
        except Exception as error:
            raise Failure("crashes", f"it raised {type(error).__name__}") from error

    def _checked(self, released: Any, count: int | None) -> Floats:
        try:
            array = np.asarray(
                visible(released) if isinstance(released, Releases) else released, dtype=np.float64
            )
        except (TypeError, ValueError):
            raise Failure("shape", "it returned something that is not an array of numbers") from None
        if count is None:
            return array.reshape(-1)
        if array.ndim < 2 or len(array) != count:
            raise Failure(
                "shape", f"it was asked for {count} transcripts and returned the shape {array.shape}"
            )
        return array.reshape(count, -1)


class Configured:
    """A mechanism of the catalogue, or one that is written like them.

    Parameters
    ----------
    mechanism
        The configuration.
    policy, name
        What is claimed, and the name for the verdict, where they are not the mechanism's.
    course
        What happens to a run; by default one batch. A mechanism of the core runs in sessions.

    Streams are whole numbers of `unit`, and so are the changes of `policy`; `claimed` is the policy in values.
    """

    signed = True  # what is pushed to a mechanism may be negative

    def __init__(
        self,
        mechanism: Any,
        policy: Policy | None = None,
        name: str = "",
        course: Course | None = None,
    ) -> None:
        course = course or AT_ONCE
        if isinstance(mechanism, Reads):
            _check_values(mechanism)
        self.mechanism: Any = mechanism
        self.claimed = policy or mechanism.policy
        self.unit = unit_of(mechanism)
        self.policy = in_units(self.claimed, self.unit)
        self.columns = mechanism.columns
        self.name = name or type(mechanism).__name__
        self.course = course
        self._wide = None if course.alone else widened(mechanism, 2)
        # a session costs ten times as much as what it runs
        self.way = (
            "columns" if self._wide is not None else "direct" if course in (AT_ONCE, SINGLY) else "restart"
        )
        self._period = (
            getattr(mechanism, "independent_period", 0) if course is AT_ONCE and self._wide is None else 0
        )
        self._cache: dict[int, Any] = {}
        self._layouts: dict[int, Layout] = {}
        self._lengths: dict[int, int] = {}

    def sample(self, stream: Counts, count: int, late: Late | None = None) -> Floats:
        """Independent transcripts by the fastest honest way."""
        try:
            stream = self._values(stream)
            if self.way == "columns":
                return self._by_columns(stream, count)
            if self._period and len(stream) % self._period == 0 and not self.layout(len(stream)).steps:
                return self._by_periods(stream, count)
            if self.way == "direct" and self.layout(len(stream)).shown:
                return self._directly(stream, count, late)
            return self._by_restart(stream, count, late)
        except Failure:
            raise
        except Exception as error:
            raise Failure("crashes", f"it raised {type(error).__name__}") from error

    def _values(self, stream: Counts) -> Any:
        """A stream in the mechanism's own values."""
        return stream if self.unit == 1 else stream * self.unit.numerator / self.unit.denominator

    def layout(self, steps: int) -> Layout:
        """Whether values have the scale that their step states; tried on a stream of zeros of that length."""
        if self.way == "columns":
            return Layout()
        if steps not in self._layouts:
            self._layouts[steps] = self._tried(steps)
        return self._layouts[steps]

    def moments(self, steps: int) -> tuple[int, ...]:
        """Those of its course."""
        return self.course.moments(steps)

    def _tried(self, steps: int) -> Layout:
        values = self.mechanism.outputs
        try:
            parts = self.course.drive(self.mechanism, np.zeros((steps, self.columns), dtype=np.int64))
            rows, rest = laid_out(parts, values, marks=True)
        except Exception:
            return Layout()  # reported when it is sampled
        if rows.shape[1] != values + MARKS:  # measurements and groups besides
            return Layout()
        return Layout(values, values + MARKS, len(rows) if len(rest) else 0)

    def _by_columns(self, stream: Counts, count: int) -> Floats:
        columns = stream.shape[1]
        forest = self.mechanism.forest
        most = max(1, (WIDEST if forest is None else MOST_LEAVES) // columns)
        pieces = []
        for start in range(0, count, most):
            copies = min(most, count - start) if forest is None else most  # a hierarchy takes long to copy
            wide = self._cache.get(copies)
            if wide is None:
                made = widened(self.mechanism, copies)
                assert made is not None
                wide = self._cache[copies] = made
            parts = self.course.drive(wide, np.tile(stream, (1, copies)))
            rows, rest = laid_out(parts, wide.outputs, marks=False)
            # steps × (kinds × copies × outputs) → copies × (steps × kinds × outputs)
            outputs = self.mechanism.outputs
            shown = []
            for seen in (rows, rest.reshape(-1, copies * outputs)):
                kinds = seen.shape[1] // (copies * outputs)
                if forest is not None and wide.forest is not None:  # nodes stand level by level
                    order = places(forest, wide.forest, copies)
                    seen = seen.reshape(len(seen), kinds, len(order))[:, :, order]
                shaped = seen.reshape(len(seen), kinds, copies, outputs)
                shown.append(np.moveaxis(shaped, 2, 0).reshape(copies, -1))
            pieces.append(np.concatenate(shown, axis=1))
        return self._even(pieces, len(stream))[:count]

    def _by_periods(self, stream: Counts, count: int) -> Floats:
        most = max(1, TILED // stream.size)
        pieces = []
        for start in range(0, count, most):
            copies = min(most, count - start)
            (released,) = self.course.drive(self.mechanism, np.tile(stream, (copies, 1)))
            assert isinstance(released, Releases)
            seen = visible(released, marks=self.layout(len(stream)).shown > 0)
            pieces.append(seen.reshape(copies, -1))
        return np.concatenate(pieces)

    def _directly(self, stream: Counts, count: int, late: Late | None) -> Floats:
        parts: list[Floats] = []
        for start in range(0, count, FEWEST):
            some = min(FEWEST, count - start)
            parts.append(
                direct.transcripts(self.mechanism, stream, some, MARKS, singly=self.course is SINGLY)
            )
            if late is not None and late():
                break
        return np.concatenate(parts)

    def _by_restart(self, stream: Counts, count: int, late: Late | None) -> Floats:
        rows: list[Floats] = []
        marks = self.layout(len(stream)).shown > 0
        for _ in range(count):
            rows.append(self.course.transcript(self.mechanism, stream, marks=marks).reshape(1, -1))
            if late is not None and len(rows) >= FEWEST and late():
                break
        return self._even(rows, len(stream))

    def _even(self, pieces: list[Floats], steps: int) -> Floats:
        """All transcripts, also where a refusal leaves fewer numbers: with as many as the first ones had at most."""
        length = self._lengths.setdefault(steps, max(piece.shape[1] for piece in pieces))
        even = np.full((sum(map(len, pieces)), length), np.nan)
        first = 0
        for piece in pieces:
            even[first : first + len(piece), : piece.shape[1]] = piece[:, :length]
            first += len(piece)
        return even


def unit_of(mechanism: Any) -> Fraction:
    """The unit of the whole numbers of a stream: the grid, and half of it where values beside it are rounded."""
    grid = Fraction(getattr(mechanism, "grid", 1))
    return grid / 2 if getattr(mechanism, "rounding", "refuse") != "refuse" else grid


def in_units(policy: Policy, unit: Fraction) -> Policy:
    """The same neighbours of streams in another unit, as far as they are whole numbers of it."""
    if unit == 1 or isinstance(policy, Swellfish):
        return policy
    return replace(policy, max_change=Fraction(policy.max_change) / unit)


def _check_values(mechanism: Any) -> None:
    """Refuse a mechanism whose steps are no values of columns: it would refuse all streams that are tried."""
    try:
        direct.read(mechanism, np.ones((1, mechanism.columns), dtype=np.int64))
    except InvalidInput:
        raise InvalidParameter(
            "audited",
            type(mechanism).__name__,
            "a mechanism whose steps are values of columns",
            "audit a function that makes its records from values: audit(function, policy)",
        ) from None


def subject(
    audited: Mechanism | Call | Subject, policy: Policy | None, columns: int = 1, name: str = ""
) -> Subject:
    """Make something auditable."""
    if isinstance(audited, Subject):
        return audited
    if hasattr(audited, "advance"):
        return Configured(audited, policy, name)
    if callable(audited) and policy is not None:
        return Callee(audited, policy, columns, name or getattr(audited, "__name__", "callable"))
    raise InvalidParameter(
        "audited",
        type(audited).__name__,
        "a mechanism, or a callable together with the policy that it claims to keep",
        "write audit(function, policy=WEvent(...))",
    )


def longest(mechanism: Any) -> int:
    """How many steps a stream may have: the policy's horizon, or where the mechanism or its sample ends."""
    horizon = mechanism.policy.horizon or 10**9
    own = getattr(mechanism, "horizon", None) or getattr(mechanism, "sample", None)
    return min(horizon, own) if own and not _goes_on(mechanism, own) else horizon


def _goes_on(mechanism: Any, steps: int) -> bool:
    """Whether a run continues after the end of its own horizon."""
    try:
        mechanism.public(mechanism.begin(1), 1, steps + 1)
    except Exception:
        return False
    return True
