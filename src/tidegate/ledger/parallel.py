"""Accounts side by side, for units that stay in one group of columns: each group may spend the whole budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NoReturn

from tidegate.errors import LedgerMismatch
from tidegate.ledger.events import Verdict
from tidegate.ledger.ledger import Ledger, User
from tidegate.ledger.memory import MemoryLedger


class ParallelLedger(MemoryLedger):
    """One ledger for each part of the columns; the policy must say that units are fixed.

    A fixed unit has data in one part only, so what the other parts spend does not concern it. Charges go
    to the parts; the whole only reports. `verify` is true when every part is.

    Parameters
    ----------
    parts
        Ledgers of one policy, in memory or on disk.
    """

    def __init__(self, parts: Sequence[Ledger]) -> None:
        first = parts[0]
        super().__init__(first.policy, first.units)
        if getattr(first.policy, "mobility", "moving") != "fixed" or any(
            part.policy != first.policy for part in parts
        ):
            raise LedgerMismatch(
                'accounts side by side need one policy with mobility="fixed"; moving units share one account.'
            )
        self.parts = tuple(parts)

    @property
    def step(self) -> int:
        """The last step that any part was charged."""
        return max(part.step for part in self.parts)

    @property
    def rows(self) -> int:
        """How many charges were recorded in all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def position(self) -> str:
        """What names this moment of all parts."""
        return " ".join(part.position for part in self.parts)

    @property
    def known_as(self) -> str:
        """The names of all parts."""
        return " ".join(part.known_as for part in self.parts)

    @property
    def in_transaction(self) -> bool:
        """Whether somebody has begun a transaction on a part."""
        return any(part.in_transaction for part in self.parts)

    @property
    def rehearses(self) -> bool:
        """Whether nothing is handed out before the present transaction of some part has ended."""
        return any(part.rehearses for part in self.parts)

    def move(self) -> None:
        """Add a row that costs nothing to the first part."""
        self.parts[0].move()

    def handed_out(self) -> None:
        """Let all parts hear that what was charged is handed out."""
        super().handed_out()
        for part in self.parts:
            part.handed_out()

    @property
    def crowded_until(self) -> int:
        """The last step whose windows contain what any part has been charged so far."""
        return max(part.crowded_until for part in self.parts)

    def remaining(self, step: int | None = None) -> Fraction:
        """What a charge to `step` may cost in every part."""
        return min(part.remaining(step) for part in self.parts)

    def spent(self, first: int | None = None, last: int | None = None) -> Fraction:
        """The most that the steps first to last were charged in any part."""
        return max(part.spent(first, last) for part in self.parts)

    def _refuse_whole(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what would stand in no part's account, where `verify` does not look."""
        raise LedgerMismatch(
            "accounts side by side belong to one run with groups of columns and are charged part by part; give other "
            "runs and charges a ledger of their own."
        )

    fit = charge = charge_batch = charge_group = extend_group = charge_span = begin_batch = divide = (
        _refuse_whole
    )

    def shared_with(self, user: User) -> bool:
        """Whether the whole, or a part besides the one run that works on it, has any other user."""
        return super().shared_with(user) or any(len(part._users) > 1 for part in self.parts)

    def mark(self) -> None:
        """Record that test entropy was used."""
        super().mark()
        for part in self.parts:
            part.mark()

    def verify(self) -> Verdict:
        """The worst verdict of all parts."""
        verdicts = [part.verify() for part in self.parts]
        worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.spent))
        return replace(worst, rows=self.rows, steps=max(verdict.steps for verdict in verdicts))

    def snapshot(self) -> dict[str, Any]:
        """The accounts of all parts that live in memory."""
        saved: dict[str, Any] = {}
        for number, part in enumerate(self.parts):
            if isinstance(part, MemoryLedger):
                saved |= {f"{number}.{name}": value for name, value in part.snapshot().items()}
        return saved

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what the snapshot was, part by part."""
        for number, part in enumerate(self.parts):
            if isinstance(part, MemoryLedger):
                mine = f"{number}."
                names = [name for name in snapshot if name.startswith(mine)]
                part.restore({name[len(mine) :]: snapshot[name] for name in names})

    def close(self) -> None:
        """Give up all parts."""
        super().close()
        for part in self.parts:
            part.close()
