"""A ledger in memory: the last windows and a running verdict, bounded whatever the length of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidegate import process
from tidegate.errors import SnapshotError
from tidegate.ledger import kernels as k
from tidegate.ledger.account import Account
from tidegate.ledger.divided import told as told_by_shares
from tidegate.ledger.events import MOST_STEPS, MOST_UNITS, Group, Verdict
from tidegate.ledger.kernels import account_extend_group, account_place, account_place_group
from tidegate.ledger.ledger import Ledger
from tidegate.ledger.rules import LedgerPolicy, Schedule
from tidegate.ledger.secrets_rule import told


class MemoryLedger(Ledger):
    """An account that lives and dies with the process.

    A run that is its only user keeps the account in its own snapshots. Where several share one, keep
    `ledger.snapshot()` beside those of the runs; go on by `restore` into a new ledger and `start(ledger=…, state=…)`
    for each of them, before any of them is pushed.

    Parameters
    ----------
    policy, units, schedule
        As for `Ledger`.

    Examples
    --------
    >>> from tidegate.policy import WEvent
    >>> ledger = MemoryLedger(WEvent(epsilon="1", w=24), units=24)
    >>> for step in range(1, 31):
    ...     ledger.charge(step, 1)
    >>> print(ledger.verify())
    ledger verified: 30 steps, no window of 24 steps spent more than 1 (the fullest, steps 1 to 24, spent 1)
    >>> ledger.charge(31, 2)
    Traceback (most recent call last):
    tidegate.errors.BudgetExceeded: the charge of 1/12 at step 31 is refused: steps 8 to 31 have spent ...
    """

    def __init__(self, policy: LedgerPolicy, units: int, schedule: Schedule = "adaptive") -> None:
        super().__init__(policy, units, schedule)
        # the most units of a charge that costs what it says, so that the kernel alone may judge it
        self._plain_most = MOST_UNITS if self._adds else 1 if schedule == "adaptive" else -1
        if not self._account.plain:
            self._plain_most = -1
        self.keeps_batches = self._judges_batches()
        # a name that no other ledger has, how often rows were taken back, and where the last time led to
        self._identity = process.new_name()
        self._generation, self._floor = 0, (0, 0)

    def _judges_batches(self) -> bool:
        """Whether charges are plain amounts that add, and no subclass does anything besides when it charges a batch."""
        return self._plain_most == MOST_UNITS and type(self).charge_batch is Ledger.charge_batch

    @property
    def position(self) -> str:
        """What names this moment of this account."""
        return f"{self._stamp()}.{self._rows}"

    @property
    def known_as(self) -> str:
        """A name that no other ledger has but one that was restored from its snapshot."""
        return self._identity

    def _stamp(self) -> int:
        rows, stamp = self._floor
        return stamp if self._rows == rows else self._generation

    def _take_back(self, rows: int, stamp: int = 0) -> None:
        if self._rows > rows:
            self._generation += 1
            self._floor = (rows, stamp)
        super()._take_back(rows, stamp)

    def charge(
        self,
        step: int,
        units: int = 0,
        *,
        scope: str = "",
        groups: Mapping[str, int] | None = None,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        """Charge one step before its noise is drawn; see `Ledger.charge`."""
        # the path of every push: one plain amount; whatever is unusual, also a refusal, falls through to the general path
        if groups is levels is None and type(step) is type(units) is int:
            with self._lock:
                account = self._account
                if (
                    self._epoch is process.epoch
                    and not self._closed
                    and self._batch is None
                    and self._section.frame is None
                    and 0 < step <= MOST_STEPS
                    and 0 <= units <= self._plain_most
                    and account_place(account.entries, account.state, step, units) == 0
                ):
                    self._rows += 1
                    return
        super().charge(step, units, scope=scope, groups=groups, levels=levels)

    def charge_group(self, first: int, last: int, units: int, *, scope: str = "") -> Group:
        """Charge the steps first to last as one group; see `Ledger.charge_group`."""
        # the path of a push that begins a group; all else, also a refusal, falls through to the general path
        if type(first) is int and type(last) is int and 0 < first <= last <= MOST_STEPS:
            with self._lock:
                account = self._account
                if (
                    type(units) is int
                    and 0 <= units <= self._plain_most
                    and self._epoch is process.epoch
                    and not self._closed
                    and self._batch is None
                    and self._section.frame is None
                    and account_place_group(account.entries, account.state, first, last, units) == 0
                ):
                    self._rows += 1
                    return Group(first, last, units)
        return super().charge_group(first, last, units, scope=scope)

    def extend_group(self, group: Group, last: int, *, scope: str = "") -> Group:
        """Let a group reach on to a later step; see `Ledger.extend_group`."""
        # the path of every push with noise that slides: one more step, for one group or several of them; all else falls
        # through to the general path
        first, end, units = group
        if type(last) is int and 0 < end < last <= MOST_STEPS and 0 <= units <= self._plain_most:
            with self._lock:
                account = self._account
                stands = account.state.item(k.LAST)
                if (
                    self._epoch is process.epoch
                    and not self._closed
                    and self._batch is None
                    and self._section.frame is None
                    and last - 1 <= stands <= last
                    and account_extend_group(account.entries, account.state, first, end, units, last) == 0
                ):
                    if stands < last:
                        account_place(account.entries, account.state, last, 0)
                    self._rows += 1
                    return Group(first, last, units)
        return super().extend_group(group, last, scope=scope)

    def _was_divided(self) -> None:
        self._plain_most = -1  # from now on the general path, which refuses charges to the whole
        self.keeps_batches = False

    def verify(self) -> Verdict:
        """Check the account against its own rows and report the running verdict."""
        with self._lock:
            self._check()
            return verdict(self, self._account, self._rows)

    def snapshot(self) -> dict[str, Any]:
        """The account as numbers and arrays, for a run's snapshot; small when charges repeat."""
        with self._lock:
            self._check()
            return {
                **self._account.snapshot(),
                "rows": self._rows,
                "marked": int(self.marked),
                "identity": self._identity,
                "generations": np.array([self._generation, *self._floor], dtype=np.int64),
            }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what the snapshot was. Refused when this ledger has gone further than the snapshot."""
        with self._lock:
            self._check()
            try:
                numbers, rows = snapshot["numbers"], int(snapshot["rows"])
                stands = int(numbers[k.LAST])
                if self.step > 0 or rows < self._rows:
                    raise SnapshotError(
                        f"the snapshot stands at step {stands} and the ledger at step "
                        f"{self.step}; restore into a new ledger, so that nothing spent is forgotten."
                    )
                with self._section:
                    self._account.restore(snapshot)
                self._plain_most = -1 if self.shares else self._plain_most
                self.keeps_batches = self._judges_batches()
                self._rows, self.marked = rows, bool(snapshot["marked"])
                self._identity = str(snapshot.get("identity", self._identity))
                self._generation, *floor = (int(number) for number in snapshot["generations"])
                self._floor = (floor[0], floor[1])
                self._holders.clear()  # others may be restored from the same snapshot
            except (KeyError, TypeError, ValueError, IndexError) as error:
                if isinstance(error, SnapshotError):
                    raise
                raise SnapshotError("the ledger snapshot is damaged; take an earlier one.") from None


def verdict(ledger: Ledger, account: Account, rows: int, head: str = "") -> Verdict:
    """The verdict of an account that was kept or replayed row by row."""
    end, window = account[k.WORST_END], ledger.policy.window
    first = 1 if window is None else max(1, end - window + 1)
    ok = account.consistent()
    found = Verdict(
        ok=ok,
        rows=rows,
        steps=account.steps,
        spent=account[k.WORST] * ledger.unit,
        place=(first, end),
        budget=ledger.rule.limit,
        window=window,
        head=head,
        problem="" if ok else "the running total differs from the sum of the charges in the last window.",
        marked=ledger.marked,
    )
    return told_by_shares(told(found, account), account)
