"""What FAST and RescueDP share: a printed calibration in which each column has sampling times of its own."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tidegate.mechanisms.mechanism import Mechanism
from tidegate.policy import Policy, User, WEvent


@dataclass(frozen=True)
class Sampled(Mechanism):
    """Measure some steps, all columns at once, and predict the others."""

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, User)

    @property
    @abstractmethod
    def printed(self) -> bool:
        """Whether each column has sampling times of its own: not if there is one column, or nothing to choose."""

    @property
    def enforced(self) -> bool:
        """Whether a ledger may hold a run to its budget."""
        return not self.printed
