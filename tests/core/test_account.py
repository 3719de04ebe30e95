"""The account against a plain list of all charges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.account import Account
from tidegate.core.charges import Charges, Span, span_rows
from tidegate.core.errors import AccountRefused
from tidegate.core.parallel_account import ParallelAccount, charges_of_parts

LIMIT = 8


class Oracle:
    """Every charge ever made, and every window looked at."""

    def __init__(self, limit: int, window: int | None) -> None:
        self.limit, self.window = limit, window
        self.units: dict[int, int] = {}
        self.spans: dict[tuple[int, int], Span] = {}

    def fits(self, charges: Charges) -> bool:
        """Whether no window is overspent with these charges."""
        units = self.units | {charges.first + at: int(each) for at, each in enumerate(charges.units)}
        spans = self.spans | {(row[0], row[1]): Span(*row) for row in charges.spans.tolist() if row[4]}
        for end in range(1, charges.last + 1):
            begin = 1 if self.window is None else end - self.window + 1
            spent = sum(each for step, each in units.items() if begin <= step <= end)
            spent += sum(span.units for span in spans.values() if span.first <= end and span.last >= begin)
            if spent > self.limit:
                return False
        self.units, self.spans = units, spans
        return True


@st.composite
def histories(draw: st.DrawFn) -> tuple[int | None, list[tuple[int, list[int], list[tuple[int, int, int]]]]]:
    """A window and pushes: gaps, units, and spans that begin (offset, length, units)."""
    window = draw(st.sampled_from([None, 1, 2, 3, 5]))
    small = st.sampled_from([0, 0, 1, 2, 3, 8])
    span = st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 8))
    push = st.tuples(
        st.sampled_from([0, 0, 1, 4]), st.lists(small, min_size=1, max_size=7), st.lists(span, max_size=2)
    )
    return window, draw(st.lists(push, min_size=1, max_size=8))


@given(histories())
def test_accepts_exactly_what_fits(
    history: tuple[int | None, list[tuple[int, list[int], list[tuple[int, int, int]]]]],
) -> None:
    """Charges are accepted if and only if no window is overspent; refused ones change nothing."""
    window, pushes = history
    account, oracle, ordinal = Account(LIMIT, window), Oracle(LIMIT, window), 0
    for gap, units, begun in pushes:
        first, spans = account.step + 1 + gap, []
        for offset, length, cost in begun:
            if offset < len(units):
                spans.append(Span(0, ordinal, first + offset, first + offset + length, cost))
                ordinal += 1
        charges = Charges(first, np.array(units), span_rows(spans, room=3))
        before = account.remaining(), account.step, account.total, dict(account.live)
        try:
            account.apply(account.check(charges))
            accepted = True
        except AccountRefused:
            accepted = False
            assert before == (account.remaining(), account.step, account.total, account.live)
        assert accepted == oracle.fits(charges)


class Acted(NamedTuple):
    """One thing that happens to an account: a gap, units of steps, spans that begin, an event, and whether it halts."""

    gap: int
    units: list[int]
    begun: list[tuple[int, int, int]]
    event: int
    halts: bool


def acts() -> st.SearchStrategy[list[Acted]]:
    """A history in which anything may happen."""
    span = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, LIMIT))
    units = st.lists(st.sampled_from([0, 0, 1, 2, 3, LIMIT]), min_size=1, max_size=7)
    event = st.sampled_from([0, 0, 1, 3, LIMIT])
    act = st.builds(
        Acted, st.sampled_from([0, 0, 1, 4]), units, st.lists(span, max_size=2), event, st.booleans()
    )
    return st.lists(act, min_size=1, max_size=8)


@given(st.sampled_from([None, 1, 2, 3, 5]), st.sampled_from([None, 20]), acts())
def test_a_halt_fills_every_window(window: int | None, horizon: int | None, history: list[Acted]) -> None:
    """What a halt charges always fits, and leaves nothing in the windows that end at its steps."""
    account, ordinal = Account(LIMIT, window, horizon), 0
    for act in history:
        try:
            account.check_event(act.event)
            account.apply_event(act.event)
        except AccountRefused:
            pass
        first = account.step + 1 + act.gap
        last = first + len(act.units) - 1
        if horizon is not None and last > horizon:
            break
        spans = []
        for offset, length, cost in act.begun:
            begin = min(first + offset, last)
            spans.append(Span(0, ordinal, begin, begin + length, cost))
            ordinal += 1
        # a halt begins behind steps that are silent
        silent = min(act.gap, len(act.units))
        for begin in range(first, first + silent + 1):
            filled = account.fill(begin, last).after_silence(begin - first)
            account.check(filled)
        filled = account.fill(first, last)
        for at in range(len(filled.units)):
            more = filled.units.copy()
            more[at] += 1
            with pytest.raises(AccountRefused):
                account.check(Charges(first, more, filled.spans))
        try:
            asked = Charges(first, np.array(act.units), span_rows(spans, 2))
            account.apply(account.check(filled if act.halts else asked))
        except AccountRefused:
            assert not act.halts
            account.apply(account.check(filled))
        if act.halts:
            assert account.spent() == LIMIT


@given(
    st.sampled_from([1, 2, 3, 5]),
    st.sampled_from([None, 20]),
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 1, 4]),
            st.lists(st.tuples(*[st.sampled_from([0, 1, 3, LIMIT])] * 3).map(list), min_size=1, max_size=7),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_a_halt_fills_every_part(
    window: int, horizon: int | None, history: list[tuple[int, list[list[int]], int]]
) -> None:
    """The same of accounts side by side."""
    account = ParallelAccount([(LIMIT, window)] * 3, horizon)
    for gap, rows, quiet in history:
        first = account.step + 1 + gap
        last, silent = first + len(rows) - 1, min(quiet, len(rows))
        if horizon is not None and last > horizon:
            break
        filled = account.fill(first + silent, last).after_silence(silent)
        fits = account.check(filled)
        try:
            account.apply(account.check(charges_of_parts(first, np.array(rows))))
        except AccountRefused:
            account.apply(fits)
            if silent < len(rows):
                assert all(int(part.recent().sum()) == LIMIT for part in account.parts)


def test_batches_and_single_charges_agree() -> None:
    """One by one or all at once, the account is the same."""
    units = np.array([3, 0, 5, 0, 0, 3, 0, 5])
    one, many = Account(LIMIT, 3), Account(LIMIT, 3)
    many.apply(many.check(Charges(1, units)))
    for at, each in enumerate(units):
        one.apply(one.check(Charges(at + 1, np.array([each]))))
    assert (one.total, one.recent().tolist(), one.step) == (many.total, many.recent().tolist(), many.step)


@pytest.mark.parametrize("window", [1, 7, 10_000])
def test_memory_is_one_window(window: int) -> None:
    """Millions of steps, charged at once or one by one, leave one window of charges."""
    account = Account(window, window)
    for _ in range(3):
        account.apply(account.check(Charges(account.step + 1, np.ones(10**6, dtype=np.int64))))
    for _ in range(1000):
        account.apply_next(1, account.check_next(1))
    assert (account.step, account.total) == (3 * 10**6 + 1000, window)
    values = vars(account).values()
    assert sum(each.nbytes for each in values if isinstance(each, np.ndarray)) == 8 * window
    assert not any(len(each) for each in values if isinstance(each, dict | list))


@pytest.mark.parametrize(
    ("spans", "why"),
    [
        ([Span(0, 0, 5, 7, 8), Span(0, 0, 5, 7, 8)], None),  # the same identity twice is one span
        ([Span(0, 0, 5, 7, 5), Span(0, 1, 5, 7, 5)], "units at step"),  # two of them are two
        ([Span(0, 0, 1, 5, 2)], "never before"),
        ([Span(0, 0, 5, 4, 2)], "ends before"),
        ([Span(0, 0, 5, 7, -2)], "no units"),
        ([Span(0, 0, 5, 7, 9)], "more than a whole"),
        ([Span(-1, 0, 5, 7, 1)], "no units"),
    ],
)
def test_spans_that_break_a_rule(spans: list[Span], why: str | None) -> None:
    """A span begins at a step that is charged with it, has units, and is known by its identity."""
    account = Account(LIMIT, 4)
    account.apply(account.check(Charges(1, np.zeros(4, dtype=np.int64))))
    charges = Charges(5, np.zeros(1, dtype=np.int64), span_rows(spans, 2))
    if why is None:
        account.check(charges)
    else:
        with pytest.raises(AccountRefused, match=why):
            account.check(charges)


def test_a_span_is_extended_by_its_identity() -> None:
    """An open span grows and costs nothing more; it cannot shrink, change its price, or come back when it has ended."""
    account, none = Account(LIMIT, 3), np.zeros(1, dtype=np.int64)

    def charge(step: int, span: Span) -> None:
        account.apply(account.check(Charges(step, none, span_rows([span], 1))))

    charge(1, Span(0, 0, 1, 1, 8))
    charge(2, Span(0, 0, 1, 2, 8))
    for wrong in (Span(0, 0, 1, 1, 8), Span(0, 0, 1, 3, 7), Span(0, 0, 2, 3, 8)):
        with pytest.raises(AccountRefused, match="only be extended"):
            charge(3, wrong)
    charge(4, Span(0, 0, 1, 4, 8))
    with pytest.raises(AccountRefused, match="another ordinal"):
        charge(8, Span(0, 0, 1, 8, 8))
    charge(8, Span(0, 1, 8, 8, 8))


@pytest.mark.parametrize("units", [[-1], [9], [8, -8, 8]])
def test_units_are_between_nothing_and_a_window(units: list[int]) -> None:
    """Negative units would pay for others."""
    with pytest.raises(AccountRefused):
        Account(LIMIT, 4).check(Charges(1, np.array(units)))


def test_large_numbers_do_not_wrap() -> None:
    """Sums that leave 64 bits are refused, not wrapped."""
    limit = 2**62 - 1
    account = Account(limit, 2**14)
    with pytest.raises(AccountRefused):
        account.check(Charges(1, np.full(2**14, limit)))
    spans = [Span(0, at, 1, 5, limit) for at in range(9)]
    with pytest.raises(AccountRefused):
        account.check(Charges(1, np.zeros(1, dtype=np.int64), span_rows(spans, 9)))


def test_the_horizon_and_the_order_of_steps() -> None:
    """No step after the horizon, and none twice."""
    account = Account(LIMIT, None, horizon=3)
    account.apply(account.check(Charges(1, np.array([1, 1]))))
    with pytest.raises(AccountRefused, match="released already"):
        account.check(Charges(2, np.array([1])))
    with pytest.raises(AccountRefused, match="horizon"):
        account.check(Charges(3, np.array([1, 1])))
