"""A ledger that writes down and does not refuse, for printed calibrations that overspend."""

from __future__ import annotations

from dataclasses import replace

from tidegate.ledger import kernels as k
from tidegate.ledger.events import MOST_UNITS, Verdict
from tidegate.ledger.memory import MemoryLedger
from tidegate.ledger.rules import LedgerPolicy, Schedule


class UnenforcedLedger(MemoryLedger):
    """Records every charge and refuses none; `verify` says by how much the budget was overspent.

    Only runs with ``calibration="paper"`` use it: for reproduction and audit, never for people's data.
    """

    def __init__(self, policy: LedgerPolicy, units: int, schedule: Schedule = "adaptive") -> None:
        super().__init__(policy, units, schedule)
        self._account.state[k.LIMIT] = MOST_UNITS

    def verify(self) -> Verdict:
        """The truth about the fullest window."""
        verdict = super().verify()
        worst = self._account[k.WORST]
        if worst <= self.units:
            return verdict
        times = worst / self.units
        problem = f"the fullest window spent {times:.4g} times the budget: this calibration is not private."
        return replace(verdict, ok=False, problem=problem)
