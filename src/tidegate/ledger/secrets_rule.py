"""The Swellfish rule: for each secret and each placement of its event, Σ_t Δ_t/λ_t ≤ ε_s.

A charge of n units says that a change by the policy's `max_change` loses n units at that step; a household
whose temporal sensitivity there is Δ_t loses n·Δ_t/max_change. The account keeps the charges of the last
2w − 1 steps, w being the longest event, which is all that a placement may reach; what every placement has lost
follows from them and from the public specifications, so nothing else has to be stored.

Specifications may come and go while the stream runs. One that is added is in force from the next step on. One
that is withdrawn stays in force until every event that may have begun by now is over. Both are rows of the
ledger, so whoever verifies it sees which promises were in force at which step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tidegate.errors import InvalidParameter, LedgerError, SnapshotError
from tidegate.exact import show
from tidegate.ledger import kernels as k
from tidegate.ledger.account import Account, Mark
from tidegate.ledger.events import MOST_UNITS, Overspent, Verdict
from tidegate.ledger.kernels import Integers
from tidegate.ledger.late import first_refused, still_open
from tidegate.policy import Specification, Swellfish
from tidegate.policy.promises import PIECE, Promises, promises_of
from tidegate.policy.swellfish import check_clock, specification_from

SHARE = k.GROUP_END + 1  # the fullest placement's share of its promise, times 2^40
SHARE_END = k.GROUP_END + 2  # and its last step
FULL_SHARE = 2**40


class _SecretsMark(Mark):
    """A moment of a Swellfish account: the charges, and how often the specifications had changed."""

    amended: int = 0


class SecretsAccount(Account):
    """Charges under a Swellfish policy, judged by every promise of every specification in force.

    Parameters
    ----------
    policy
        The policy that the ledger was opened with.
    units
        Into how many units the policy's ε is divided.
    """

    plain = False  # the kernels of a plain account may not judge charges here

    def __init__(self, policy: Swellfish, units: int) -> None:
        super().__init__(policy.window, 2**55, policy.horizon, single=-1)
        self.policy = policy
        self.units = units
        self.amendments: list[dict[str, Any]] = []
        self.promises = promises_of(policy, units)

    # charging

    def place(self, step: int, units: int) -> Overspent | None:
        """Charge one step if every placement that contains it keeps its promise."""
        return self.place_batch(step, np.array([units], dtype=np.int64))

    def place_batch(self, first: int, units: Integers) -> Overspent | None:
        """Charge consecutive steps, all or none."""
        still_open(self, first)
        broken, worst = self._judge(first, units)
        if broken is not None and len(units) > 1:
            return first_refused(self, first, units)
        if broken is not None:
            begin = max(1, broken - self[k.WINDOW] + 1)
            return Overspent(first, broken, self.total(begin, broken), int(units[0]), self.remaining(first))
        refusal = super().place_batch(first, units)
        if refusal is None and worst[0] > self[SHARE]:
            self.state[SHARE], self.state[SHARE_END] = worst[0], worst[1]
        return refusal

    def place_group(self, first: int, last: int, units: int) -> Overspent | None:
        """Groups have no meaning here: a placement may meet a part of one."""
        raise LedgerError("a group cannot be charged under Swellfish; charge each of its steps.")

    def place_extension(
        self, group: tuple[int, int, int], last: int, *, moves: bool = True
    ) -> Overspent | None:
        """As for `place_group`."""
        return self.place_group(*group)

    def place_mixed(
        self, first: int, units: Integers, groups: Integers, extended: Integers
    ) -> Overspent | None:
        """As for `place_group`."""
        return self.place_group(first, first, 0)

    def _charges(self, low: int, high: int) -> Integers:
        """The units charged to each of the steps low to high, as far as they are kept."""
        charged = np.zeros(high - low + 1, dtype=np.int64)
        rows = self.rows()
        rows = rows[(rows[:, 0] >= low) & (rows[:, 0] <= high)]
        np.add.at(charged, rows[:, 0] - low, rows[:, 1])
        return charged

    def _judge(self, first: int, units: Integers) -> tuple[int | None, Integers]:
        """The first step whose placements would break a promise, and the fullest placement of all."""
        window, last = self[k.WINDOW], first + len(units) - 1
        low, high = max(1, first - window + 1), max(last, self[k.LAST])
        charged = self._charges(low, high)
        charged[first - low : last - low + 1] += units
        fullest = np.zeros(3, dtype=np.int64)
        for begin in range(first, high + 1, PIECE):
            start = max(low, begin - window + 1)
            broken, worst = self.promises.check(start, begin, charged[start - low : begin + PIECE - low])
            if broken is not None:
                return broken, worst
            fullest = worst if worst[0] > fullest[0] else fullest
        return None, fullest

    def remaining(self, step: int) -> int:
        """Units that a charge to the step may have."""
        if step <= self[k.LAST] - self[k.WINDOW]:
            return 0
        low, high = 0, MOST_UNITS
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._judge(step, np.array([middle], dtype=np.int64))[0] is None
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    # specifications that come and go

    @property
    def specifications(self) -> tuple[Specification, ...]:
        """Those in force, now or at some step to come, and those of the past that placements may still reach."""
        return self.promises.specifications

    def amend(self, change: Mapping[str, Any]) -> None:
        """Apply a change that `added` or `withdrawn` made."""
        now, kept = int(change["now"]), self[k.LAST] - 2 * self[k.WINDOW]
        named = {each.label: each for each in self.specifications if each.ends > now}
        if "add" in change:
            specification = specification_from(change["add"])
            if specification.begins != now + 1:
                raise LedgerError("a specification is in force from the step after it was added.")
            check_added(specification, named, now, self.policy)
            following = [*self.specifications, specification]
        else:
            ends = int(change["ends"])
            leaving = named[change["withdraw"]]
            if ends < last_promise(leaving, now, self.policy):
                raise LedgerError("a specification stays in force while an event that has begun may go on.")
            following = [
                replace(each, ends=ends) if each is leaving else each for each in self.specifications
            ]
        following = [each for each in following if each.ends >= kept]
        self.promises = Promises(self.policy, self.units, following)
        self.amendments.append(dict(change))

    def mark(self) -> Mark:
        """Remember this moment."""
        moment = _SecretsMark(*super().mark())
        moment.amended = len(self.amendments)
        return moment

    def undo(self, mark: Mark) -> None:
        """Return to a remembered moment."""
        super().undo(mark)
        amended = getattr(mark, "amended", len(self.amendments))
        if amended < len(self.amendments):
            self._amend_anew(self.amendments[:amended])

    def _amend_anew(self, changes: list[dict[str, Any]]) -> None:
        self.amendments = []
        self.promises = promises_of(self.policy, self.units)
        for change in changes:
            self.amend(change)

    # reading

    def consistent(self) -> bool:
        """Whether the kept charges keep every promise that can be checked from them."""
        low = max(1, self[k.LAST] - 2 * self[k.WINDOW] + 2)
        if self[k.LAST] < low:
            return True
        charged = self._charges(low, self[k.LAST])
        begin = low if low == 1 else low + self[k.WINDOW] - 1
        return self.promises.check(low, begin, charged)[0] is None and self[SHARE] <= FULL_SHARE

    def history(self) -> dict[str, Any]:
        """Every change of specifications: which promises are in force follows from them."""
        return {"amendments": self.amendments}

    def recall(self, history: Mapping[str, Any]) -> None:
        """Let the changes be in force again."""
        self._amend_anew(list(history["amendments"]))

    def snapshot(self) -> dict[str, Any]:
        """The account as plain arrays, and the changes of specifications as text in one of them."""
        text = json.dumps(self.amendments, sort_keys=True, ensure_ascii=False).encode()
        return {**super().snapshot(), "amendments": np.frombuffer(text, dtype=np.uint8)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what a snapshot was."""
        if "amendments" in snapshot:
            try:
                self._amend_anew(json.loads(bytes(np.asarray(snapshot["amendments"], dtype=np.uint8))))
            except (ValueError, KeyError, TypeError, LedgerError):
                raise SnapshotError("the ledger snapshot is damaged; take an earlier one.") from None
        super().restore(snapshot)


@dataclass(frozen=True)
class SecretsVerdict(Verdict):
    """A verdict that speaks of promises to secrets."""

    def __str__(self) -> str:
        if not self.ok:
            return super().__str__()
        counted = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        share = f"{100 * float(self.spent):.4g} % of its ε, ending at step {self.place[1]}"
        fullest = f"the fullest lost {share}" if self.spent else "nothing was spent"
        promise = "every placement of every secret kept its promise"
        return f"ledger verified: {counted}, {promise} ({fullest}){self.remarks}"


def told(verdict: Verdict, account: Account) -> Verdict:
    """The verdict in the words of the account's rule."""
    if not isinstance(account, SecretsAccount):
        return verdict
    fields = {name: getattr(verdict, name) for name in verdict.__dataclass_fields__}
    end = account[SHARE_END]
    window = account.policy.window
    return SecretsVerdict(
        **{
            **fields,
            "spent": Fraction(account[SHARE], FULL_SHARE),
            "place": (max(1, end - window + 1), end),
            "budget": f"its ε, the smallest being {show(Fraction(account.policy.epsilon or 1))}",
        }
    )


def last_promise(specification: Specification, now: int, policy: Swellfish) -> int:
    """The last step of any event that may have begun by now: until then the whole specification stays in force."""
    if now < specification.begins:
        return specification.begins
    last = now
    rows, owners = specification.occurrences(policy.clock, now, now)
    for (_, end), owner in zip(rows.tolist(), owners.tolist(), strict=True):
        last = max(last, min(end, now + specification.secrets[owner].duration - 1))
    return max(last, specification.begins)


def check_added(
    specification: Specification, named: Mapping[str, Specification], now: int, policy: Swellfish
) -> None:
    """Refuse what a running stream cannot promise."""
    label = specification.label
    if not label or label in named:
        raise InvalidParameter(
            "label",
            label,
            "new, and not empty, for a specification that is added",
            "give it a name of its own",
        )
    if specification.longest > policy.window:
        raise InvalidParameter(
            "duration",
            specification.longest,
            f"at most {policy.window} steps, the longest event that this ledger looks back for",
            "start the stream with a policy whose `longest` is larger",
        )
    check_clock(specification, policy.clock)
    for secret in specification.secrets:
        rows = secret.intervals.rows
        if len(rows) and rows[0, 0] <= now and not secret.endless:
            raise InvalidParameter(
                "intervals",
                tuple(rows[0].tolist()),
                f"after step {now}, which is already released",
                f"hide the event from step {now + 1} on",
            )
    if specification.uncovered(policy.clock, policy.horizon) is not None:
        raise InvalidParameter(
            "secrets", label, "complete with a baseline", 'add a secret with intervals="always"'
        )


def amendment_of(units: Integers) -> dict[str, Any]:
    """The change that a row of kind "amend" records."""
    change: dict[str, Any] = json.loads(bytes(units.astype(np.uint8)))
    return change
