"""Pan-private mechanisms as an intruder sees them: all releases, and the state in the middle of a step, once or more."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.audit.neighbours import BIG, Counts
from tidegate.audit.subjects import Callee, Floats
from tidegate.core.rows import Draws
from tidegate.mechanisms.w_event import pan_private
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.noise import current
from tidegate.policy import Policy
from tidegate.releases import Status


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
        """One row per step: what was released, the states that were seen (0 at other steps), and the noise scale."""
        mechanism, columns = self.mechanism, self.columns
        state, noise = mechanism.begin(1), Draws(current())
        nothing = np.zeros((1, columns), dtype=np.int64)
        seen = np.zeros((len(stream), self.width))
        for step, row in enumerate(stream, 1):
            pan_private.open_step(mechanism, state, step, noise)
            into = seen[step - 1, columns:-1].reshape(-1, 2, columns)
            if step == self.at:
                for number in range(self.earlier):
                    self._look(state, step, noise, into[number])
            if step == self.at and not self.after:
                if self.before:
                    pan_private.arrive(mechanism, state, 0, self.before, noise)
                self._look(state, step, noise, into[-1])
            for column in range(columns):
                pan_private.arrive(mechanism, state, column, int(row[column]), noise)
            if step == self.at and self.after:
                self._look(state, step, noise, into[-1])
            output = mechanism.advance(state, nothing, step, noise)
            seen[step - 1, :columns] = output.values[0]
            seen[step - 1, -1] = output.scale[0] if output.status[0] == Status.FRESH else 0.0
        return seen

    def _look(self, state: Any, step: int, noise: Draws, into: Floats) -> None:
        if state.numbers[pan_private.AMOUNT] > 0:
            into[:] = state.cells
        if self.mechanism.pan_private == ANNOUNCED:
            self.mechanism.event(state, "intrusion", step, noise)
