"""The sliding account: what every window has spent, in whole units, with room, undo and snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import LedgerMismatch, SnapshotError
from tidegate.ledger import kernels as k
from tidegate.ledger.events import Overspent
from tidegate.ledger.kernels import Integers
from tidegate.ledger.late import late_refusal, place_late, place_late_group

SMALLEST = 512  # rows of `entries` to begin with: 8 KiB
FEW = 4  # groups to have room for, at least
FIRST_NUMBERS = 16  # numbers of an account in format 1
AT_ONCE = 4096  # steps of a batch with groups that are charged before room is made again
NO_GROUPS: Integers = np.zeros((0, 3), dtype=np.int64)


class Mark(NamedTuple):
    """All that is needed to return to an earlier moment; kernels only append, so old rows stay."""

    entries: Integers
    state: Integers
    tail: Integers


class Account:
    """Units spent in every window of consecutive steps.

    Parameters
    ----------
    window
        Steps in a window, or None when everything ever charged adds up.
    limit
        Units that a window may spend.
    horizon
        The last step that may be charged, or None.
    single
        The most units that one charge from a compiled loop may have.
    merges
        Whether charges to the same step may share a row.

    The rows of the last 2w − 1 steps are kept: a late charge to one of the last w steps is checked against
    every window that contains it, and the earliest of those begins w − 1 steps before it.
    """

    plain = True  # kernels may judge charges from the arrays alone

    def __init__(
        self,
        window: int | None,
        limit: int,
        horizon: int | None = None,
        single: int = 2**62,
        merges: bool = True,
    ) -> None:
        self.entries: Integers = np.zeros((SMALLEST, 2), dtype=np.int64)
        self.state: Integers = np.zeros(k.GROUPS + 3 * FEW, dtype=np.int64)
        self.state[[k.WINDOW, k.LIMIT, k.SINGLE, k.HORIZON, k.MERGES]] = (
            window or 0, limit, single, horizon or 0, int(merges)
        )  # fmt: skip

    def __getitem__(self, position: int) -> int:
        """One of the numbers that `kernels` names."""
        return int(self.state[position])

    @property
    def kept_from(self) -> int:
        """The first step whose charges are still known one by one."""
        if not self[k.WINDOW]:
            return self[k.LAST] + 1
        return max(1, self[k.LAST] - 2 * self[k.WINDOW] + 2)

    @property
    def last(self) -> int:
        """The last charged step."""
        return self.state.item(k.LAST)

    @property
    def steps(self) -> int:
        """How many steps were charged."""
        return self.state.item(k.STEPS)

    # room and undo

    def make_room(self, count: int, last: int | None = None) -> None:
        """Have room for `count` more rows, leaving out rows that no check from `last` on needs."""
        end = self.state.item(k.END)
        if end + count <= len(self.entries):
            return
        last = self[k.LAST] if last is None else last
        first_kept = last - 2 * self[k.WINDOW] + 2
        dropped = int(np.searchsorted(self.entries[:end, 0], first_kept))
        kept = end - dropped
        entries = np.zeros((max(SMALLEST, 2 * kept + count), 2), dtype=np.int64)
        entries[:kept] = self.entries[dropped:end]
        self.state[k.HEAD] = max(0, self[k.HEAD] - dropped)
        self.state[k.END] = kept
        self.entries = entries

    def make_group_room(self, count: int) -> None:
        """Have room for `count` more groups."""
        if k.GROUPS + 3 * (self.state.item(k.GROUP_END) + count) <= self.state.size:
            return
        self._set_groups(self.groups(), max(count, self[k.GROUP_END]))

    def mark_arrays(self) -> Mark:
        """Remember what kernels change, which is all that changes while they have the account."""
        end = self.state.item(k.END)
        return Mark(self.entries, self.state.copy(), self.entries[max(0, end - 1)].copy())

    def undo_arrays(self, mark: Mark) -> None:
        """Return the arrays to a remembered moment."""
        self.entries, self.state = mark.entries, mark.state.copy()
        self.entries[max(0, self.state.item(k.END) - 1)] = mark.tail

    mark, undo = mark_arrays, undo_arrays  # a moment of the whole account; subclasses have more to remember

    # charges

    def place(self, step: int, units: int) -> Overspent | None:
        """Charge one step; the answer tells why not."""
        code = k.account_place(self.entries, self.state, step, units)
        if code == k.FULL:
            self.make_room(1)
            code = k.account_place(self.entries, self.state, step, units)
        if code == k.ACCEPTED:
            return None
        if code == k.LATE:
            return place_late(self, step, np.array([units], dtype=np.int64))
        return self.overspent(step, step, units)

    def place_batch(self, first: int, units: Integers) -> Overspent | None:
        """Charge consecutive steps, all or none."""
        late = self[k.LAST] - first + 1
        kept = 2 * self[k.WINDOW]
        if late <= 0 and units.strides == (0,) and 0 < kept < len(units):
            return self._place_repeated(first, units)
        if not units.flags.writeable:
            units = units.copy()  # compiled code would be compiled again for a read-only view
        if late > 0:
            before = self.mark()
            refusal = place_late(self, first, units[:late])
            if refusal is None and late < len(units):
                refusal = self.place_batch(first + late, units[late:])
            if refusal is not None:
                self.undo(before)
            return refusal
        outcome = np.zeros(3, dtype=np.int64)
        refused = int(k.account_check_batch(self.entries, self.state, first, units, outcome))
        if refused >= 0:
            step, spent = first + refused, int(outcome[0])
            return Overspent(step, step, spent, int(units[refused]), max(self.limit_at(step) - spent, 0))
        begin, last = 0, first + len(units) - 1
        if self[k.WINDOW]:
            begin = max(0, len(units) - 2 * self[k.WINDOW] + 1)
            self.make_room(len(units) - begin, last)
        k.account_apply_batch(self.entries, self.state, first, units, begin, outcome)
        return None

    def _place_repeated(self, first: int, units: Integers) -> Overspent | None:
        """Charge one amount to more steps than are kept: all windows after the first w steps are alike."""
        window, before = self[k.WINDOW], self.mark()
        refusal = self.place_batch(first, units[:window].copy())
        if refusal is not None:
            return refusal
        rest = len(units) - window
        kept = min(rest, 2 * window)
        self.state[k.STEPS] += rest - kept
        refusal = self.place_batch(first + len(units) - kept, units[:kept].copy())
        if refusal is not None:
            self.undo(before)
        return refusal

    def place_group(self, first: int, last: int, units: int) -> Overspent | None:
        """Charge a group once in each window that meets it."""
        code = k.account_place_group(self.entries, self.state, first, last, units)
        if code == k.FULL:
            self.make_group_room(FEW)
            code = k.account_place_group(self.entries, self.state, first, last, units)
        if code == k.ACCEPTED:
            return None
        if code == k.LATE:
            return place_late_group(self, first, last, units)
        return self.overspent(first, first, units)

    def place_extension(
        self, group: tuple[int, int, int], last: int, *, moves: bool = True
    ) -> Overspent | None:
        """Let a group reach on to a later step, where the account then stands unless it `moves` not."""
        code = k.account_extend_group(self.entries, self.state, *group, last)
        if code in (k.UNKNOWN, k.LATE):
            raise LedgerMismatch(
                f"the group of steps {group[0]} to {group[1]} cannot be extended: the ledger, at step "
                f"{self[k.LAST]}, has no such group in its present window; charge a new group."
            )
        if code != k.ACCEPTED:
            return self.overspent(group[1] + 1, self[k.LAST], group[2])
        now = self[k.LAST]
        if moves and last > now:
            self.place(last, 0)
            self.state[k.STEPS] += last - now - 1  # each of the steps is charged, by the group
        return None

    def place_mixed(
        self, first: int, units: Integers, groups: Integers, extended: Integers
    ) -> Overspent | None:
        """Charge consecutive steps, the groups that begin among them, and what groups gain: all or none.

        `groups` has rows (first, last, units) in order of `first`; `extended` has rows (first, last, units, further).
        """
        before = self.mark()
        try:
            refusal = self._place_mixed(first, units, groups, extended)
        except BaseException:
            self.undo(before)
            raise
        if refusal is not None:
            self.undo(before)
        else:
            self._set_groups(self.groups(), FEW)  # no more room than is needed: marks copy it
        return refusal

    def _place_mixed(
        self, first: int, units: Integers, groups: Integers, extended: Integers
    ) -> Overspent | None:
        for *group, further in extended.tolist():
            refusal = self.place_extension((group[0], group[1], group[2]), further, moves=False)
            if refusal is not None:
                return refusal
        begin = min(max(0, self[k.LAST] - first + 1), len(units))  # steps that were charged already
        group = int(np.searchsorted(groups[:, 0], self[k.LAST], side="right"))
        refusal = self.place_batch(first, units[:begin]) if begin else None
        for early in groups[:group].tolist():
            refusal = refusal or self.place_group(*early)
        if refusal is not None:
            return refusal
        while begin < len(units):
            part = np.array(units[begin : begin + AT_ONCE])
            self.make_room(len(part))
            code, done, group = k.account_place_mixed(
                self.entries, self.state, first + begin, part, groups, group
            )
            begin += done
            if code == k.FULL:
                self.make_group_room(AT_ONCE)
            elif code != k.ACCEPTED:
                step = first + begin
                asked = int(units[begin])
                if group < len(groups) and groups[group, 0] <= step:
                    asked = int(groups[group, 2])
                return self.overspent(step, step, asked)
        return None

    def overspent(self, step: int, end: int, units: int) -> Overspent:
        """The refusal of a charge by the window that ends at `end`, the present step or a later one."""
        left = int(k.account_remaining(self.entries, self.state, end))
        return Overspent(step, end, self.limit_at(end) - left, units, max(left, 0))

    # reading

    def rows(self) -> Integers:
        """The kept charges as rows (step, units)."""
        return self.entries[: self[k.END]]

    def replace_rows(self, rows: Integers) -> None:
        """Keep these charges instead, in the order of their steps."""
        self.entries = np.zeros((max(SMALLEST, 2 * len(rows)), 2), dtype=np.int64)
        self.entries[: len(rows)] = rows
        self.state[k.END] = len(rows)
        self.state[k.HEAD] = np.searchsorted(rows[:, 0], self[k.LAST] - self[k.WINDOW], side="right")

    def groups(self) -> Integers:
        """The kept groups as rows (first, last, units)."""
        return self.state[k.GROUPS : k.GROUPS + 3 * self[k.GROUP_END]].reshape(-1, 3)

    def limit_at(self, end: int) -> int:
        """Units that the window which ends at a step may spend."""
        return int(k.limit_at(self.state, end))

    def limits(self, ends: Integers) -> Integers:
        """Units that the windows which end at these steps may spend."""
        raised_from = self[k.RAISED_FROM] or 2**62
        return np.where(ends >= raised_from, self[k.RAISED], self[k.LIMIT])

    def _set_groups(self, groups: Integers, room: int) -> None:
        """Keep these groups, as far as a window may still meet them, and have room for more."""
        now = self[k.LAST]
        groups = groups[groups[:, 1] > now - 2 * self[k.WINDOW] + 1]
        groups = groups[np.argsort(groups[:, 1], kind="stable")]
        state = np.zeros(k.GROUPS + 3 * (len(groups) + room), dtype=np.int64)
        state[: k.GROUPS] = self.state[: k.GROUPS]
        state[k.GROUPS : k.GROUPS + 3 * len(groups)] = groups.ravel()
        state[k.GROUP_END] = len(groups)
        state[k.GROUP_HEAD] = np.searchsorted(groups[:, 1], now - self[k.WINDOW], side="right")
        self.state = state

    def keep_group(self, first: int, last: int, units: int) -> None:
        """Keep one more group, wherever it begins."""
        self._set_groups(np.vstack([self.groups(), [[first, last, units]]]), FEW)

    def window_totals(self, rows: Integers, ends: Integers) -> Integers:
        """Units of the windows that end at the given steps."""
        sums = np.concatenate([[0], np.cumsum(rows[:, 1])])
        begins = ends - self[k.WINDOW]
        upper = np.searchsorted(rows[:, 0], ends, side="right")
        lower = np.searchsorted(rows[:, 0], begins, side="right")
        totals: Integers = sums[upper] - sums[lower]
        for first, last, units in self.groups():
            totals = totals + np.where((first <= ends) & (last > begins), units, 0)
        return totals

    def total(self, first: int, last: int) -> int:
        """Units charged to the steps first to last, groups that meet them included."""
        if not self[k.WINDOW]:
            return self[k.TOTAL]
        rows, groups = self.rows(), self.groups()
        inside = (rows[:, 0] >= first) & (rows[:, 0] <= last)
        met = (groups[:, 0] <= last) & (groups[:, 1] >= first)
        return int(rows[inside, 1].sum()) + int(groups[met, 2].sum())

    def remaining(self, step: int) -> int:
        """Units that a charge to `step` may have: what is left in the fullest window that contains it."""
        if step >= self[k.LAST] or not self[k.WINDOW]:
            return int(k.account_remaining(self.entries, self.state, max(step, self[k.LAST])))
        if step <= self[k.LAST] - self[k.WINDOW]:
            return 0
        return late_refusal(self, step, step, 0).remaining

    def consistent(self) -> bool:
        """Whether the running total is the sum of the rows of the last window."""
        most = max(self[k.LIMIT], self[k.RAISED], self[k.CARRIED])
        if not self[k.WINDOW]:
            return 0 <= self[k.TOTAL] <= most
        now = np.array([self[k.LAST]])
        return int(self.window_totals(self.rows(), now)[0]) == self[k.TOTAL] <= self[k.WORST] <= most

    # snapshots

    def history(self) -> dict[str, Any]:
        """What an archive leaves to remember besides the snapshot, ready for JSON: nothing of most accounts."""
        return {}

    def recall(self, history: Mapping[str, Any]) -> None:
        """Know again what `history` said, after `restore`."""

    def snapshot(self) -> dict[str, Any]:
        """The account as plain arrays; equal charges at equal distances are one run."""
        rows = self.rows()
        rows = rows[np.searchsorted(rows[:, 0], self.kept_from) :]
        if self[k.MERGES] and len(rows):
            steps, where = np.unique(rows[:, 0], return_index=True)
            rows = np.column_stack([steps, np.add.reduceat(rows[:, 1], where)])
        numbers = self.state[: k.GROUPS].copy()
        numbers[[k.HEAD, k.END, k.GROUP_HEAD, k.GROUP_END]] = (
            0  # where things lie says nothing about the account
        )
        if not numbers[FIRST_NUMBERS:].any():
            numbers = numbers[:FIRST_NUMBERS]  # as an account of format 1
        groups = self.groups()
        pairs = np.column_stack([np.diff(rows[:, 0], prepend=0), rows[:, 1]])
        starts = np.flatnonzero(np.any(np.diff(pairs, axis=0, prepend=-1) != 0, axis=1))
        counts = np.diff(np.append(starts, len(pairs)))
        return {
            "numbers": numbers,
            "spans": groups[groups[:, 1] > self[k.LAST] - 2 * self[k.WINDOW] + 1],
            "runs": np.column_stack([pairs[starts], counts]).astype(np.int64),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what a snapshot of an account with the same rule was; refused when it contradicts itself."""
        numbers, groups, runs = (
            np.asarray(snapshot[name], dtype=np.int64) for name in ("numbers", "spans", "runs")
        )
        if numbers.shape == (FIRST_NUMBERS,):
            numbers = np.concatenate([numbers, np.zeros(k.GROUPS - FIRST_NUMBERS, dtype=np.int64)])
        fixed = [k.WINDOW, k.LIMIT, k.SINGLE, k.HORIZON, k.MERGES]
        if numbers.shape != (k.GROUPS,) or (numbers[fixed] != self.state[fixed]).any():
            raise SnapshotError(
                "the ledger snapshot is of another policy; restore it into a ledger of its own policy."
            )
        runs, groups = runs.reshape(-1, 3), groups.reshape(-1, 3)
        if (runs < 0).any() or int(runs[:, 2].sum()) > 2**31 or (groups < 0).any():
            raise SnapshotError("the ledger snapshot is damaged; take an earlier one.")
        pairs = np.repeat(runs[:, :2], runs[:, 2], axis=0)
        rows = np.column_stack([np.cumsum(pairs[:, 0]), pairs[:, 1]])
        before = self.mark()
        self.state = np.concatenate([numbers, np.zeros(3 * FEW, dtype=np.int64)])
        self.replace_rows(rows)
        self._set_groups(groups, FEW)
        if not self.consistent():
            self.undo(before)
            raise SnapshotError("the ledger snapshot is damaged; take an earlier one.")
