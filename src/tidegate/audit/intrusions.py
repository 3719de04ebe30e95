"""Pan-private mechanisms as an intruder sees them: all releases, and the state in the middle of a step, once or more."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.audit.neighbours import BIG, Counts
from tidegate.audit.subjects import Callee, Floats
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import Policy


class Intruded(Callee):
    """Somebody looks into the state in the middle of a step.

    Parameters
    ----------
    mechanism
        A pan-private Budget Distribution or Budget Absorption. Where intrusions are announced, each of these is.
    at
        The step in which it happens, from 1.
    after
        Whether the step's rows have arrived by then. If not, they arrive afterwards.
    before
        So many other rows have arrived by then, where the step's own have not.
    earlier
        How often somebody has looked in the same step before, when nothing had arrived; for announced intrusions.
    policy, name
        What is claimed, and the name for the verdict, where they are not the mechanism's.
    """

    def __init__(
        self,
        mechanism: Publishing,
        at: int,
        *,
        after: bool = True,
        before: int = BIG,
        earlier: int = 0,
        policy: Policy | None = None,
        name: str = "",
    ) -> None:
        super().__init__(self.watch, policy or mechanism.policy, mechanism.columns, name or "intruded")
        self.mechanism, self.at, self.after, self.before = mechanism, at, after, before
        self.earlier = earlier
        self.shown, self.width = mechanism.columns, (3 + 2 * earlier) * mechanism.columns + 1

    def moments(self, steps: int) -> tuple[int, ...]:
        """The step that is looked into."""
        return (self.at,)

    def watch(self, stream: Counts) -> Floats:
        """One row a step: what was released, the states that were seen (0 at other steps), and the noise scale."""
        run: Any = self.mechanism.start()
        columns = self.columns
        seen = np.zeros((len(stream), self.width))
        for step, row in enumerate(stream, 1):
            run.open_step()
            into = seen[step - 1, columns:-1].reshape(-1, 2, columns)
            if step == self.at:
                for number in range(self.earlier):
                    self._look(run, into[number])
            if step == self.at and not self.after:
                if self.before:
                    run.arrive(0, self.before)
                self._look(run, into[-1])
            for column in range(columns):
                run.arrive(column, int(row[column]))
            if step == self.at and self.after:
                self._look(run, into[-1])
            release = run.close_step()
            seen[step - 1, :columns] = release.values
            seen[step - 1, -1] = release.scale if release.fresh else 0.0
        return seen

    def _look(self, run: Any, into: Floats) -> None:
        state = run.memory()
        if state["counts"].size:
            into[:] = state["counts"], state["differences"]
        if self.mechanism.pan_private == ANNOUNCED:
            run.announce_intrusion()
