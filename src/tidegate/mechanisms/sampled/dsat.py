"""DSAT (Li et al. 2015): publish where the distance from the last publication passes a threshold that adapts itself."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import NO_SPANS, SPAN_FIELDS, Charges, Integers, Span
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.exact import ExactLike, exact, float_up, proper, whole
from tidegate.mechanisms.losses import Floats, noise_losses, policy_change
from tidegate.mechanisms.mechanism import SECRET_STATE, Mechanism
from tidegate.mechanisms.sampled.kalman import finite
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import laplace
from tidegate.policy import Policy, User, WEvent
from tidegate.releases import Releases

FRESH, APPROXIMATED, NULLIFIED = 1, 2, 3  # as in `releases.Status`
MOST = 2**61  # of a distance, so that sums stay within 64 bits; cutting it off does not raise its sensitivity
FURTHEST = 2**54  # of a published value, in grid units
CEILING = 2.0**60  # of a threshold
HIGHEST = 20.0  # powers of two between the first threshold and the highest and the lowest one

RUN, SEEN, NOISE, COUNT, SOURCE = range(5)  # positions in `State.memory`


class State(NamedTuple):
    """All that is carried from step to step. It is released, but for the noise of the threshold."""

    memory: Any  # the open run: first step (0: none), last one, noise (SECRET); publications so far, the last one's step
    taken: Any  # a ring of the steps of the last C publications
    level: Any  # of the threshold, in powers of two
    last: Any  # what was last published of each column, in grid units


class Constants(NamedTuple):
    """Functions of the configuration alone."""

    window: int  # w; 0: nothing returns before the stream ends
    scale: float  # of a publication's noise, in grid units
    unit: float  # the distance that this noise causes by itself: the first threshold
    rise: float  # of the threshold's level where a tested step is published
    fall: float  # and where it is not
    grid: float


@lean
def run_at(step: int, memory: Any, taken: Any, window: int) -> Any:
    """The first step of the run that tests this step; 0 where the window that ends with it has C publications.

    Steps that were passed over end a run: no window meets both parts of it.
    """
    count, run = memory[COUNT], memory[RUN]
    if run > 0 and (window == 0 or step - memory[SEEN] < window):
        return run
    free = count < taken.size or (window > 0 and taken[count % taken.size] <= step - window)
    return step if free else 0


@lean
def distance(row: Any, last: Any) -> Any:
    """The L1 distance of a step from the last publication, at most `MOST`."""
    total = 0
    for column in range(row.size):
        total = min(total + abs(row[column] - last[column]), MOST)
    return total


@lean
def publish_distant(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    tests: Any,
    thresholds: Any,
    pool: Any,
    slot: Any,
    state: Any,
    runs: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). Called again, a step finds the run that it has opened."""
    constants, state, out = Constants(*constants), State(*state), Output(*out)
    memory, last = state.memory, state.last
    for index in range(begin, rows.shape[0]):
        step, row, hit = first + index, rows[index], False
        run = run_at(step, memory, state.taken, constants.window)
        if run > 0:
            if run == step:
                memory[RUN], memory[NOISE] = step, thresholds[index, 0]
            memory[SEEN] = step
            limit = np.int64(min(constants.unit * 2.0 ** state.level[0], CEILING))
            hit = memory[COUNT] == 0 or distance(row, last) + tests[index, 0] >= limit + memory[NOISE]
            if hit:
                wanted = draw_row(pool, slot, step, constants.scale)
                if wanted != DONE:
                    return index, wanted
                for column in range(row.size):
                    last[column] = min(max(row[column] + slot.row[column], -FURTHEST), FURTHEST)
            runs[index] = run
            state.level[0] = min(
                max(state.level[0] + (constants.rise if hit else constants.fall), -HIGHEST), HIGHEST
            )
        if hit:
            state.taken[memory[COUNT] % state.taken.size] = step
            memory[COUNT], memory[SOURCE], memory[RUN], memory[NOISE] = memory[COUNT] + 1, step, 0, 0
        out.status[index] = FRESH if hit else APPROXIMATED if run > 0 else NULLIFIED
        out.source[index] = memory[SOURCE]
        out.scale[index] = constants.scale * constants.grid if memory[SOURCE] > 0 else 0.0
        for column in range(row.size):
            out.values[index, column] = last[column] * constants.grid
    return rows.shape[0], DONE


@dataclass(frozen=True)
class DSAT(Mechanism):
    """Publish the steps that are far from the last publication, by a threshold that rises when they are too many.

    At each step a noisy L1 distance from the last publication is compared with a noisy threshold, by the sparse vector
    technique: steps below it cost nothing. A run of tests ends with its publication. C runs may meet a window, so each
    run has ε/C, tests and publication together. The threshold rises with every publication, and falls with every test
    that publishes nothing, such that C of w tested steps are published in the long run.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    publications
        C: how many steps of a window, or of a finite stream, may be published; by default a sixteenth.
    test_share
        The part of the budget that the tests spend (k).
    gain
        How fast the threshold adapts (θ): it is doubled after 1/θ publications, C/w of one being expected at each step.

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or user level). One run compares distances, which change by at most Δ,
    with a public threshold by the sparse vector technique with one hit: ρ ~ Lap(2CΔ/kε), drawn anew for each run, and
    ν ~ Lap(4CΔ/kε) for each test. Its publication has the scale CΔ/((1 − k)ε). A run begins only where fewer than C of
    the last w − 1 steps were published, so at most C runs meet a window (docs/proofs/dsat.md). A run is a span of the
    account: it costs ε/C in every window that it meets, however long it lasts.
    Departures from the paper, whose algorithm is not private as printed: its one noisy threshold loses its noise where
    it is cut to [0, 2], and then each step that is NOT published loses ε₁/(2C); under w-event privacy the steps outside
    of a window reveal it. Distances are of counts, and not divided by the number of tuples, which is not public. The
    threshold begins at the distance that a publication's own noise causes, and adapts by factors. No step is published
    because the stream ends, and none is skipped at its beginning.

    The state holds the noise of the threshold while a run is open. Guard a commit log like the stream.

    Error
    -----
    CΔ/((1 − k)ε) at published steps; in between also the change since then, which only the data know. Time O(d) a step,
    memory a vector of d and C steps.

    Examples
    --------
    >>> mechanism = DSAT(WEvent(epsilon="1", window=120), columns=3, publications=10, test_share="1/2")
    >>> mechanism.scale, mechanism.tests.threshold_scale, mechanism.tests.question_scale
    (20.0, 40.0, 80.0)
    >>> from tidegate.core.session import Session
    >>> releases = Session(mechanism).push_batch(np.full((600, 3), 40))
    >>> bool(releases.fresh.sum() <= 10 * 5)
    True

    References
    ----------
    Li, Xiong, Jiang, Liu: Differentially private histogram publication for dynamic datasets: an adaptive sampling
    approach. CIKM 2015.
    """

    publications: int | None = None
    test_share: ExactLike = "1/4"
    gain: float = 0.5

    plain: ClassVar[bool] = True
    holds: ClassVar[bool] = True
    needs_room: ClassVar[bool] = True  # a refusal would tell what it decided on raw data
    noise_in_state: ClassVar[bool] = True  # an open run has a noisy threshold
    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, User)

    def validate(self) -> None:
        """Fill in the number of publications, and read the split."""
        put, length = object.__setattr__, self.policy.steps_charged
        default = max(1, length // 16)
        given = self.publications
        put(self, "publications", default if given is None else whole("publications", given, most=length))
        put(
            self,
            "test_share",
            proper("test_share", exact("test_share", self.test_share), 'write for example test_share="1/4"'),
        )
        put(self, "gain", finite("gain", self.gain, 0.0, HIGHEST))
        self.refuse_wide_noise(max(self.scale * self.columns, self.tests.question_scale))

    @property
    def units(self) -> int:
        """C: one for each run, with its publication."""
        assert self.publications is not None
        return self.publications

    @property
    def most_spans(self) -> int:
        """As many runs can meet a window."""
        return self.units

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted: the steps of an open run share the noise of its threshold."""
        return (*super().assumptions, SECRET_STATE)

    @cached_property
    def tests(self) -> SparseVector:
        """One run, which ends with its first hit."""
        share = Fraction(self.test_share) / self.units
        return SparseVector(share * self.policy.budget.total, self.sensitivity)

    @cached_property
    def scale(self) -> float:
        """The noise scale of a publication in grid units, rounded up."""
        share = (1 - Fraction(self.test_share)) / self.units
        return float_up(self.sensitivity / (share * self.policy.budget.total))

    @property
    def noise_error(self) -> float:
        """The mean absolute error of a published value."""
        return self.own_noise.expected_absolute(self.scale) * float(Fraction(self.grid))

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each step lost: its noise, and all tests of the run that it has ended."""
        change, noise = policy_change(self), noise_losses(self, releases)
        tests = change / self.tests.threshold_scale + 2 * change / self.tests.question_scale
        return None if noise is None else noise + np.where(noise > 0, tests, 0.0)

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was published: the first step is."""
        return State(
            np.zeros(5, dtype=np.int64),
            np.zeros(self.units, dtype=np.int64),
            np.zeros(1),
            np.zeros(self.columns, dtype=np.int64),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """The run that is open, or that the first step opens; which runs follow depends on the data."""
        run = int(run_at(first, state.memory, state.taken, self.policy.window or 0))
        spans = np.array([Span(0, run, run, first, 1)]) if run and count else NO_SPANS
        return Charges(first, np.zeros(count, dtype=np.int64), spans)

    @cached_property
    def constants(self) -> Constants:
        """What the loop knows of the configuration."""
        rate = self.units / self.policy.steps_charged
        return Constants(
            window=self.policy.window or 0,
            scale=self.scale,
            unit=self.scale * self.columns,
            rise=float(self.gain) * (1 - rate),
            fall=-float(self.gain) * rate,
            grid=float(Fraction(self.grid)),
        )

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Test every step that may be published, and release the last publication."""
        count, out, drawn = (
            len(rows),
            empty_output(len(rows), self.columns),
            noise.rows(publication=self.columns),
        )
        tests = laplace(noise.source, "test", first, self.tests.question_scale, (count, 1))
        thresholds = laplace(noise.source, "threshold", first, self.tests.threshold_scale, (count, 1))
        runs = np.zeros(count, dtype=np.int64)
        fixed = (
            first,
            self.constants[:],
            tests,
            thresholds,
            drawn.pool,
            drawn.slots[0],
            state[:],
            runs,
            out[:5],
        )
        drawn.run_loop(lambda begin: publish_distant(rows, begin, *fixed), first)
        return out._replace(spans=self._spans(runs, first))

    def most_named(self, steps: int) -> int:
        """The most runs that test some of so many steps."""
        return min(steps, self.units * -(-steps // self.policy.steps_charged))

    def _spans(self, runs: Integers, first: int) -> Integers:
        """The runs of these steps, each up to the last step that it tests; padded to the most that there can be."""
        rows = np.zeros((self.most_named(len(runs)), SPAN_FIELDS), dtype=np.int64)
        ends = np.flatnonzero(runs)
        ends = ends[np.append(np.diff(runs[ends]), 1)[: ends.size] != 0]
        rows[: ends.size, 1] = rows[: ends.size, 2] = runs[ends]
        rows[: ends.size, 3] = first + ends
        rows[: ends.size, 4] = 1
        return rows

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """A publication in every 8, 16, 32 or 64 steps."""
        length = policy.steps_charged
        found = sorted({max(1, length // part) for part in (8, 16, 32, 64)})
        return [cls(policy, columns=columns, publications=each) for each in found]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", window=10), columns=3, publications=4),
            cls(WEvent(epsilon="4", window=10), publications=1, gain=2.0),
            cls(WEvent(epsilon="2", window=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(WEvent(epsilon="6", window=50), columns=2, test_share="1/2", gain=0),
            cls(User(epsilon="9", horizon=6000), columns=2, publications=30),
        ]
