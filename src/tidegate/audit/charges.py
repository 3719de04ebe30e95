"""An attack on the ledger alone: charges of every kind, until it takes more than a window may spend.

What it took is added up anew, charge by charge and window by window. Spans count once in each window that meets them; of
the groups of a step the largest counts, of its levels all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.audit.neighbours import Choose, Pair, chooser
from tidegate.audit.verdicts import VIOLATES, Finding
from tidegate.errors import TidegateError
from tidegate.ledger import Ledger, MemoryLedger, SQLiteLedger
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.policy import Event, Pure, User, WEvent, ZeroConcentrated

ROUNDS, CHARGES = 12, 60  # ledgers in memory, and charges of each
ON_DISK = 2  # ledgers in files


@dataclass
class Taken:
    """What a ledger took: (first step, last step, units) of every charge, and what was done in words."""

    charges: list[tuple[int, int, int]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def fullest(self, window: int | None) -> tuple[int, int]:
        """The units of the fullest window, and its last step."""
        last = max((end for _, end, _ in self.charges), default=0)
        if window is None:
            return sum(units for _, _, units in self.charges), last
        ends = range(1, last + window)
        sums = [
            sum(units for first, stop, units in self.charges if first <= end and stop > end - window)
            for end in ends
        ]
        best = int(np.argmax(sums)) if sums else 0
        return (sums[best], best + 1) if sums else (0, 0)


def attack(mechanism: Mechanism, clean: Finding) -> Finding:
    """The verdict of a clean account, or one that shows charges which overspend a window."""
    policy, budget = mechanism.policy, mechanism.policy.budget
    if not isinstance(policy, Event | WEvent | User) or not isinstance(budget, Pure | ZeroConcentrated):
        return clean
    units = mechanism.units
    for number in range(ROUNDS):
        problem = overspent(partial(MemoryLedger, policy, units), chooser(f"charges {number}"))
        if problem:
            return _accused(clean, *problem)
    with tempfile.TemporaryDirectory(prefix="tidegate-audit-") as folder:
        for number in range(ON_DISK):
            path = Path(folder) / f"{number}.ledger"
            problem = overspent(partial(SQLiteLedger, path, policy, units), chooser(f"disk {number}"))
            if problem:
                return _accused(clean, *problem)
    return clean


def overspent(open_ledger: Callable[[], Ledger], choose: Choose) -> tuple[str, float] | None:
    """Charge a ledger in every way; the words and the multiple of the budget if a window was overspent."""
    ledger, taken = open_ledger(), Taken()
    try:
        for _ in range(CHARGES):
            before = len(taken.charges)
            ledger = _act(ledger, open_ledger, taken, choose)
            if len(taken.charges) == before:
                continue
            fullest, end = taken.fullest(ledger.policy.window)
            if fullest > ledger.units:
                last = "; ".join(taken.words[-6:])
                words = (
                    f"its ledger took {fullest} of {ledger.units} units in the window to step {end} ({last})"
                )
                return words, fullest / ledger.units
    finally:
        ledger.close()
    return None


def _act(ledger: Any, open_ledger: Callable[[], Ledger], taken: Taken, choose: Choose) -> Any:
    units, horizon = ledger.units, ledger.policy.horizon or 10**6
    amounts = (0, 1, max(1, units // 3), max(1, units // 2), max(1, units - 1), units)

    def amount() -> int:
        return amounts[choose(len(amounts))]

    step = min(max(1, ledger.step + (0, 1, 1, 1, 2, -1)[choose(6)]), horizon)
    kind = choose(7)
    with suppress(TidegateError):
        if kind <= 1:
            spent = amount()
            ledger.charge(step, spent)
            _note(taken, f"step {step}: {spent}", [(step, step, spent)])
        elif kind == 2:
            several = [amount() for _ in range(1 + choose(4))]
            ledger.charge_batch(step, several)
            made = [(step + at, step + at, each) for at, each in enumerate(several)]
            _note(taken, f"steps from {step}: {several}", made)
        elif kind == 3:
            last, spent = step + choose(4), amount()
            ledger.charge_span(step, last, spent)
            _note(taken, f"the span {step} to {last}: {spent}", [(step, last, spent)])
        elif kind == 4:
            groups = {"a": amount(), "b": amount()}
            levels = {"c": amount() // 2, "d": amount() // 4}
            ledger.charge(step, 0, groups=groups, levels=levels)
            total = max(groups.values()) + sum(levels.values())
            _note(taken, f"step {step}: groups {groups}, levels {levels}", [(step, step, total)])
        elif kind == 5:
            with suppress(_TakenBack), ledger.transaction(unseen=True):
                ledger.charge(step, amount())
                raise _TakenBack
        else:
            ledger = _kept(ledger, open_ledger)
            taken.words.append("kept and opened again")
    return ledger


def _note(taken: Taken, words: str, charges: list[tuple[int, int, int]]) -> None:
    taken.words.append(words)
    taken.charges += charges


def _kept(ledger: Any, open_ledger: Callable[[], Ledger]) -> Any:
    """The same ledger from its snapshot, or from its file."""
    saved = ledger.snapshot() if isinstance(ledger, MemoryLedger) else None
    ledger.close()
    opened: Any = open_ledger()
    if saved is not None:
        opened.restore(saved)
    return opened


def _accused(clean: Finding, words: str, times: float) -> Finding:
    nothing = np.zeros((1, 1), dtype=np.int64)
    return replace(
        clean,
        outcome=VIOLATES,
        loss=times * clean.claim,
        tester="replay",
        error=0.0,
        words=words,
        pair=Pair(nothing, nothing, "account"),
        angle="charges",
    )


class _TakenBack(Exception):
    """Ends a transaction."""
