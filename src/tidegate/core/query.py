"""One query of a session: its mechanism, its account and its state, and how a commit stores them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tidegate.core import arrays
from tidegate.core.account import Account, After, Checked
from tidegate.core.charges import FIRST, NO_SPANS, SPAN_FIELDS, UNITS, Charges, Span
from tidegate.core.errors import AccountRefused
from tidegate.core.mechanism import (
    Finishes,
    HandlesEvents,
    HasAccount,
    KnowsErrors,
    Mechanism,
    Output,
    Reads,
    unit_of,
)
from tidegate.core.rows import Draws
from tidegate.core.scope import Scope
from tidegate.core.values import Matrix, Reader, ValueReader
from tidegate.intervals import History
from tidegate.noise.entropy import Source
from tidegate.releases import Releases

INTEGER = np.dtype(np.int64)
ACCOUNT_ARRAYS = 3  # arrays of the account, stored before those of the mechanism: total, spans, ordinals
OUTPUTS = 4  # arrays that every query releases: values, status, source, scale
QUERY_FIELDS = 4  # last step, last silent step, last charged step, number of stored arrays


class Query:
    """One statistic of a session: its mechanism, its account, its state."""

    def __init__(self, name: str, mechanism: Mechanism, source: Source) -> None:
        self.name, self.mechanism, self.draws = name, mechanism, Draws(source)
        policy = mechanism.policy
        self.account: Account = (
            mechanism.account()
            if isinstance(mechanism, HasAccount)
            else Account(mechanism.units, policy.window, policy.horizon)
        )
        clamp = None if mechanism.clamp is None else Fraction(mechanism.clamp)
        self.reader: Reader = (
            mechanism.reader()
            if isinstance(mechanism, Reads)
            else ValueReader(mechanism.columns, Fraction(mechanism.grid), mechanism.rounding, clamp)
        )
        self.names: tuple[str, ...] | None = None  # of its columns, where they have some
        self.outputs = mechanism.outputs
        self.unit = unit_of(mechanism)  # what a unit is worth
        self.most_spans = mechanism.most_spans
        self.further = further_arrays(mechanism)
        self.released = OUTPUTS + sum(self.further)  # arrays
        self.scope: Scope
        self.silent_until = 0  # steps up to this one release nothing and cost nothing
        self.state: Any = ()
        self.packed: arrays.Packed | None = None  # the block of memory that holds the state
        self.history: History | None = None  # gives releases their intervals

    @property
    def step(self) -> int:
        """The last step that was committed."""
        return self.account.step

    @property
    def has_event(self) -> bool:
        """Whether the step in progress was charged for an event."""
        return bool(getattr(self.account, "event_units", 0))

    def begin(self, scope: Scope, step: int) -> None:
        """Set the last step to `step`, and begin the mechanism at the first step that the scope reads."""
        self.scope, self.account.step, self.silent_until = scope, step, scope.first - 1
        self.set_state(self.mechanism.begin(scope.first))
        self.history = new_history(self.mechanism)

    def set_state(self, state: Any) -> None:
        """Set the mechanism's state. Its arrays move into one block of memory, which a commit copies at once."""
        self.state, self.packed = state, None
        if arrays.in_one_piece(state):
            self.packed = arrays.Packed(list(arrays.flat(state)))
            self.state = arrays.moved(state, iter(self.packed.arrays))

    def check_public(self, first: int, count: int) -> None:
        """Refuse what the next steps cost at least, before a random word is drawn."""
        silent = self._silent(first, count) if first <= self.silent_until else 0
        charges = self.mechanism.public(self.state, first + silent, count - silent)
        try:
            self.account.check(charges.after_silence(silent) if silent else charges)
        except AccountRefused as error:
            raise error.of(f"query {self.name!r}", self.name) if self.name else error from None

    def check_step(self) -> None:
        """Refuse a next step that is never charged, because the stream is over."""
        self.account.check(Charges(self.step + 1, np.zeros(1, dtype=np.int64)))

    def halted(self, first: int, count: int) -> Checked:
        """What is charged for steps that failed: all that is left, but for those that are silent anyway."""
        silent = self._silent(first, count)
        return self.account.check(self.account.fill(first + silent, first + count - 1).after_silence(silent))

    def _silent(self, first: int, count: int) -> int:
        """How many of the next steps are silent."""
        return min(max(0, self.silent_until - first + 1), count)

    def advance(self, rows: Matrix, first: int) -> Output:
        """Release the next steps, the first of which may be silent."""
        silent = self._silent(first, len(rows)) if first <= self.silent_until else 0
        if not silent:
            return self.mechanism.advance(self.state, rows, first, self.draws)
        rest = self.mechanism.advance(self.state, rows[silent:], first + silent, self.draws)
        if (rest.spans[rest.spans[:, UNITS] > 0, FIRST] < first + silent).any():
            raise ValueError("a span begins at a silent step")
        return rest.after_silence(silent)

    def finish(self) -> Output | None:
        """What the end of the stream releases; nothing while it is silent."""
        last = self.step
        if last <= self.silent_until or not isinstance(self.mechanism, Finishes):
            return None
        output = self.mechanism.finish(self.state, last, self.draws)
        if output is not None:
            self.check_output(output, 0)
        return output

    def check_output(self, output: Output, count: int) -> None:
        """Raise where it is not what the mechanism has announced."""
        output.check_shape(count, self.outputs)
        if (len(output.more), len(output.revised)) != self.further:
            raise ValueError("a mechanism must release the arrays that it has named")

    def event(self, name: str) -> int:
        """Report an event to the mechanism. Return the budget units that are charged to the step in progress."""
        step = self.step + 1
        if step <= self.silent_until or not isinstance(self.mechanism, HandlesEvents):
            return 0
        charges = self.mechanism.event(self.state, name, step, self.draws)
        if charges is None:
            return 0
        if charges.first != step or len(charges.units) > 1 or (charges.spans[:, UNITS] > 0).any():
            raise ValueError("an event charges units to the step in progress")
        units = int(charges.units.sum())
        self.account.check_event(units)
        return units

    def fall_silent(self) -> None:
        """Until no window contains a step so far."""
        if self.account.window is not None:
            self.silent_until = max(self.silent_until, self.step + self.account.window - 1)

    def restart(self) -> bool:
        """Begin anew when no window contains a step so far; False where that never happens."""
        if self.account.window is None:
            return False
        self.fall_silent()
        self.account.end_spans()
        self.set_state(self.mechanism.begin(self.silent_until + 1))
        self.history = new_history(self.mechanism)
        return True

    def state_to_store(self, verdict: Checked | None = None, event: bool = False) -> QueryState:
        """Return a copy of the current state, with the account as it is after the charges or the event."""
        found = self.account.unchanged() if verdict is None else verdict
        step = found.charges.first + len(found.charges.units) - 1
        charged = step + (step == self.account.step and (event or self.has_event))
        return QueryState(
            step, self.silent_until, charged, self.most_spans, found.after, *self.stored(found.after)
        )

    def stored(self, after: After) -> tuple[int, bytes]:
        """Return the number of stored arrays, and the encoded state. Raise if the account has too many spans."""
        if len(after.live) > self.most_spans or len(after.ordinals) > self.most_spans:
            raise ValueError("more spans than the mechanism has named")  # never more laws than spans
        if self.packed is not None:
            return ACCOUNT_ARRAYS + len(self.packed.arrays), self.packed.stored()
        parts = list(arrays.flat(self.state))
        return ACCOUNT_ARRAYS + len(parts), arrays.encode(parts)

    def state_of_end(self) -> QueryState:
        """Return what a halt or the end stores: the steps, without account and state, which are not used again."""
        charged = self.step + self.has_event
        return QueryState(self.step, self.silent_until, charged, 0, After(0, {}, {}, 0), 0, b"")

    def load(self, parts: Iterator[arrays.Array]) -> None:
        """Restore account and state from the arrays that `QueryState` has encoded."""
        template = (
            np.zeros(2, dtype=np.int64),
            NO_SPANS,
            np.zeros((0, 2), dtype=np.int64),
            self.mechanism.begin(1),
        )
        numbers, spans, ordinals, state = arrays.rebuilt(template, parts)
        self.set_state(state)
        total, ended = numbers.tolist()
        live = {(row[0], row[1]): Span(*row) for row in spans.tolist() if row[UNITS]}
        largest = {law: ordinal for law, ordinal in ordinals.tolist() if ordinal >= 0}
        self.account.restore(After(total, live, largest, ended))


class QueryState(NamedTuple):
    """The stored state of a query after a commit: its account, and the state of its mechanism. SECRET.

    Attributes
    ----------
    step, silent, charged
        The last step, the last silent step, and the last charged step.
    room
        The number of spans, and of laws, to which those of the account are padded: a public number.
    after
        The account.
    arrays, state
        The number of stored arrays, and the encoded state; 0 and empty for a halt and the end.
    """

    step: int
    silent: int
    charged: int
    room: int
    after: After
    arrays: int
    state: bytes

    def encoded(self) -> bytes:
        """Return account and state as bytes; `Query.load` reads them."""
        if not self.arrays:
            return b""
        room, spans, ordinals = self.room, self.after.live.values(), self.after.ordinals.items()
        numbers = [self.after.total, self.after.ended_units, *(number for span in spans for number in span)]
        numbers += [0] * ((room - len(spans)) * SPAN_FIELDS)
        numbers += [number for pair in ordinals for number in pair] + [-1] * ((room - len(ordinals)) * 2)
        header = arrays.header(((INTEGER, (2,)), (INTEGER, (room, SPAN_FIELDS)), (INTEGER, (room, 2))))
        return header + struct.pack(f"<{len(numbers)}q", *numbers) + self.state


class SessionState(NamedTuple):
    """The stored state of all queries after a commit, and the number of the commit with the configuration. SECRET."""

    configuration: int
    queries: list[QueryState]

    def encoded_state(self) -> bytes:
        """Return a table with one row for the session and one per query, then account and state of each query."""
        rows = [self.configuration, *[0] * (QUERY_FIELDS - 1)]
        for each in self.queries:
            rows += each.step, each.silent, each.charged, each.arrays
        header = arrays.header(((INTEGER, (len(self.queries) + 1, QUERY_FIELDS)),))
        table = header + struct.pack(f"<{len(rows)}q", *rows)
        return b"".join([table, *(each.encoded() for each in self.queries)])


def new_history(mechanism: Mechanism) -> History | None:
    """What gives its releases their intervals; None where it does not say how far values may be off."""
    fold = mechanism.intervals() if isinstance(mechanism, KnowsErrors) else None
    return None if fold is None else History(fold)


def releases_by(
    mechanism: Mechanism,
    unit: Fraction,
    first: int,
    parts: Sequence[arrays.Array],
    units: arrays.Array,
    names: tuple[str, ...] | None = None,
) -> Any:
    """Releases from the arrays that a mechanism has released, and the units of their steps."""
    values, status, source, scale, *further = parts
    found = Releases(first, values, status, source, scale, units, unit)
    attach = getattr(mechanism, "attach", None)
    if attach is not None:
        more, _ = further_arrays(mechanism)
        found = attach(found, further[:more], further[more:])
    if names is not None and found.values.shape[1] == len(names):
        found.names = names
    return found


def further_arrays(mechanism: Mechanism) -> tuple[int, int]:
    """How many arrays it releases besides: per step, and about earlier ones."""
    return len(getattr(mechanism, "more", ())), len(getattr(mechanism, "revised", ()))
