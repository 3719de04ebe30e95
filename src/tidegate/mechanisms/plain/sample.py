"""Sample: the whole budget on every w-th step, and the last release in between."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import whole
from tidegate.mechanisms.kernels.values import hold
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.plain.measuring import Measuring
from tidegate.noise import check_scale
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Status

STREAM = "sample"  # of the noise


class State(NamedTuple):
    """All that is carried from step to step. It is released, but for the law's part."""

    last: Any  # the last measurement of each column, in grid units
    source: Any  # its step; 0 before there was any
    law: Any  # SECRET: the law that measurements share; empty where each has noise of its own


@dataclass(frozen=True)
class Sample(Measuring):
    """Measure one step of every w with the whole budget, and repeat it until the next one.

    Steps 1, w + 1, 2w + 1, … are measured. On streams that change slowly this is hard to beat, and it is the
    yardstick for everything that adapts.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    every
        Measure every so many steps; by default w. With a smaller number k a window has ⌈w/k⌉ measurements, which divide
        the budget.
    noise
        "auto": the best law for several measurements in a window. "laplace": noise of its own for each of them, as in the
        papers. "cube", "semiorder": this law.

    Privacy
    -------
    Unit and neighbours: the policy's. A window of w steps contains at most ⌈w/every⌉ measured steps, each measured
    with that fraction of ε by discrete Laplace noise of scale ⌈w/every⌉Δ/ε (with ρ: Gaussian noise); the schedule is
    public (w-event paper, section 3). Sound as printed. Several measurements in a window share noise where that gains
    (docs/mechanisms/noise.md): they lose ε together, and the state is secret, as for :class:`Uniform`.

    Error
    -----
    Δ/ε at measured steps, with k of them in a window k·Δ/ε or less; in between also the change since then, which only the
    data know. Time O(d) a step.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> session = Session(Sample(WEvent(epsilon="1", window=24), columns=2))
    >>> releases = session.push_batch(np.zeros((48, 2), dtype=np.int64))
    >>> np.flatnonzero(releases.fresh)
    array([ 0, 24])

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    every: int | None = None

    plain: ClassVar[bool] = True
    holds: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, Event, User)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")

    def validate(self) -> None:
        """Fill in the period."""
        length = self.policy.steps_charged
        object.__setattr__(
            self, "every", length if self.every is None else whole("every", self.every, most=length)
        )
        check_scale(self.scale)  # refuses, while nothing is charged, what noise could not be drawn for

    @property
    def skips_steps(self) -> bool:
        """Steps between measurements are not looked at."""
        return True

    @property
    def period(self) -> int:
        """Steps from one measurement to the next."""
        assert self.every is not None
        return self.every

    @property
    def distance(self) -> int:
        """Steps from one measurement to the next."""
        return self.period

    @property
    def measurements(self) -> int:
        """The most measurements that a window can contain."""
        return -(-self.policy.steps_charged // self.period)

    def begin(self, first: int) -> State:
        """Nothing was measured."""
        return State(np.zeros(self.columns, dtype=np.int64), np.zeros(1, dtype=np.int64), self.begin_shared())

    def public(self, state: State, first: int, count: int) -> Charges:
        """Measurements are at public steps and cost the same."""
        return Charges(first, self._units(first, count))

    def _units(self, first: int, count: int) -> Integers:
        units = np.zeros(count, dtype=np.int64)
        if self.shared is None:
            units[(1 - first) % self.period :: self.period] = 1
        return units

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure the steps 1, 1 + period, …, and repeat the last measurement at all others."""
        count, period = len(rows), self.period
        measured = np.arange((1 - first) % period, count, period)
        number, spans = (first + int(measured[0]) - 1) // period if measured.size else 0, NO_SPANS
        if self.shared is not None:
            drawn, spans = self.shared.measure(state.law, noise.source, STREAM, number, first + measured)
        else:
            drawn = self.own_noise.draw(
                noise.source, STREAM, number, self.scale, (measured.size, self.columns)
            )
        source = np.full(count, state.source[0])
        source[measured] = first + measured
        np.maximum.accumulate(source, out=source)
        values = np.empty(rows.shape)
        state.last[:] = hold(rows, drawn, measured, state.last, float(Fraction(self.grid)), values)
        state.source[:] = source[-1:] if count else state.source
        fresh = source == np.arange(first, first + count)
        return Output(
            values,
            np.where(fresh, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED)),
            source,
            np.where(source > 0, self.shown_scale, 0.0),
            self._units(first, count),
            spans,
        )

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """Measure once a window, or 2, 4, 8 … times; every step would be Uniform."""
        length = policy.steps_charged
        periods = {length // 2**power for power in range(8)} - {0, 1}
        return [cls(policy, columns=columns, every=period) for period in sorted(periods or {length})]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="1", window=5), columns=3),
            cls(WEvent(epsilon="1", window=12), columns=2, every=5),
            cls(WEvent(epsilon="1", window=12), columns=2, every=5, noise="laplace"),
            cls(WEvent(epsilon="1", window=24), every=3, noise="cube"),
            cls(WEvent(rho="1", window=7)),
            cls(Event(epsilon="1/2", adjacency="replace"), columns=2),
            cls(User(epsilon="1", horizon=6000), every=24),
        ]
