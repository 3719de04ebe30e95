"""Budget Distribution or Budget Absorption at work: what its compiled loop keeps, decides and publishes."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.exact import float_up
from tidegate.ledger import Batch
from tidegate.ledger.kernels import account_remaining
from tidegate.mechanisms.kernels.loops import Outputs
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.loop_run import CELLS, INLINE, Block, Drawn, LoopRun
from tidegate.mechanisms.run import Matrix, Row, State
from tidegate.mechanisms.shared_noise import SharedNoise, begin_noise
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.dissimilarity import BUILT_IN
from tidegate.noise.discrete_laplace import laplace_pieces
from tidegate.releases import Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.w_event.publishing import Publishing


UNITS = Outputs._fields.index("units")
# no group begins after the first step
NOTHING = (np.empty((0, 3), dtype=np.int64), np.zeros(1, dtype=np.int64))


class PublishingRun(LoopRun):
    """Budget Distribution or Budget Absorption at work."""

    mechanism: Publishing
    stream: ClassVar[str] = "publication"
    loop: ClassVar[Any] = loop

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        groups = mechanism.group_count
        self._rule = rule_of(mechanism, self.ledger.units // mechanism.units)
        regroups = isinstance(mechanism.groups, int) and groups > 1
        self._regroup_every = (mechanism.regroup_every or mechanism.window) if regroups else 0
        self._given = np.zeros(max(groups, self._columns if self._columns <= INLINE else 1), dtype=np.int64)
        self._work = loop.Work(
            weights=np.zeros(groups),
            repaid=mechanism.repaid(),
            given=self._given,
            chosen=np.zeros(groups, dtype=np.bool_),
            scores=np.zeros(groups, dtype=np.int64),
        )
        memory = np.zeros(loop.MEMORY, dtype=np.int64)
        memory[loop.TAKEN] = 1
        memory[loop.LATEST] = memory[loop.SINCE] = self.origin  # steps before this run have given it nothing
        fresh = {
            "memory": memory,
            "paid": np.zeros((0, 2), dtype=np.int64),
            "last": np.zeros(self._columns, dtype=np.int64),
            "measured": np.zeros(groups, dtype=np.int64),
            "scales": np.zeros(groups),
            "group_of": mechanism.initial_groups(),
            "squares": np.zeros(self._columns if regroups else 0),
        }
        found = {**fresh, **(state or {})}
        saved = found.pop("noise", None)
        if not len(found["paid"]):
            found["paid"] = np.zeros((1, 2), dtype=np.int64)
        self._put_back([found[name] for name in loop.Memory._fields])
        self._shared: tuple[npt.NDArray[np.int64], ...] | None = None  # `loop.Shared`
        if mechanism.sharing is not None:
            self.restores = False
            self._noise = begin_noise(self, mechanism.sharing, "dissimilarity", saved)

    def _kept(self) -> list[npt.NDArray[Any]]:
        return [array.copy() for array in self._arrays]

    def _put_back(self, kept: list[npt.NDArray[Any]]) -> None:
        self._arrays = loop.Memory(*kept)
        self._weigh()

    def _state(self) -> State:
        kept = self._arrays
        memory = kept.memory.copy()
        memory[loop.HEAD] = 0  # as in `_live`: where publications lie says nothing
        names = ("last", "measured", "scales", *(("group_of", "squares") if self._regroup_every else ()))
        noise = {} if self._noise is None else {"noise": self._noise.numbers()}
        named = {name: getattr(kept, name) for name in names}
        return {"memory": memory, "paid": self._live()} | named | noise

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        self._refuse_in_transaction()
        return super()._push_batch(matrix, first_step)

    def _refused(self, first_step: int, units: npt.NDArray[np.int64]) -> None:
        # where the refusal came depends on the decisions before it, so these stay paid
        self.ledger.charge_batch(first_step, np.trim_zeros(units, "b"))

    def _length(self, step: int, batch: Batch) -> int:
        """How many steps to handle at once, from this one on; the ledger must at least allow its test."""
        if self._noise is not None and self._noise.silent(step):
            return 1
        if account_remaining(*batch.account, step) < self._rule.test_units:
            batch.refuse(step, self._rule.test_units)
        if self._rule.measure == loop.GIVEN:
            return 1
        drawn = self._columns if self._columns <= INLINE else len(self._work.scores)
        length = max(1, CELLS // drawn)
        if self._regroup_every:
            length = min(length, self._regroup_every - (step - 1) % self._regroup_every)
        return length if self._noise is None else self._noise.ahead(step, length)

    def _release_block(self, block: Block) -> None:
        self._make_room(block.first_step, len(block.rows))
        if self._rule.measure == loop.GIVEN:
            self._score(block.rows[0])
        noise, step, steps = self._noise, block.first_step, len(block.rows)
        paid = 0 if noise is None else noise.pay_ahead(step, steps)
        if noise is not None and paid < 0:
            self._pass_over(block, noise)
        else:
            if noise is not None:
                block.outputs[UNITS][0] = paid
                due = noise.due(step, steps) if steps > 1 else NOTHING
                self._shared = noise.draw_all(step, steps), *due
            super()._release_block(block)
        last = block.first_step + len(block.rows) - 1
        if self._regroup_every and last % self._regroup_every == 0:
            self._regroup(last)

    def _pass_over(self, block: Block, noise: SharedNoise) -> None:
        """A silent step: nothing is tested, and the last publication stays."""
        kept, (values, status, source, scale, _) = self._arrays, block.outputs
        noise.ledger.charge(block.first_step, 0)
        values[0], status[0] = kept.last * self._grid, Status.APPROXIMATED
        source[0], scale[0] = kept.measured.max(), kept.scales.max()

    def _draw(self, block: Block) -> tuple[Drawn, Drawn]:
        first_step, steps, groups = block.first_step, len(block.rows), len(self._work.scores)
        scores = Drawn(self.source, "dissimilarity", first_step, steps, groups if self._noise is None else 0)
        return scores, super()._draw(block)

    def _arguments(self, block: Block) -> tuple[Any, ...]:
        scores, cells = block.drawn
        words = (scores.words, cells.words)
        own = (self._rule[:], words, self._shared, self._work[:])
        return *own, block.batch.account, self._arrays[:], block.outputs

    def _help(self, block: Block, index: int, reason: int) -> None:
        scores, cells = block.drawn
        if reason == loop.SCORE_NOISE:
            scores.decide(index, self._rule.score_scale, self._given)
            return
        # overwrite what was last published by one step plus noise: a piece at a time, since d may be large
        row, step, scale = block.rows[index], block.first_step + index, self._scale()
        if cells.draws:
            cells.decide(index, scale, self._given)
            pieces = iter([(0, self._given[: self._columns])])
        else:
            pieces = laplace_pieces(self.source, self.stream, step, scale, self._columns)
        for first, noise in pieces:
            loop.overwrite(self._arrays[:], self._work.chosen, row, first, noise, step, self._rule.grid)

    def _scale(self) -> float:
        return float(publication_scale(self._rule.whole, int(self._arrays.memory[loop.AMOUNT])))

    def _requested(self) -> int:
        return self._rule.test_units if self._noise is None else self._noise.cost

    def _score(self, row: Row) -> None:
        """The scores of a dissimilarity that is not built in."""
        for group in range(len(self._work.scores)):
            columns = self._arrays.group_of == group if self._arrays.group_of.size else slice(None)
            score = int(self.mechanism.measure.score(row[columns], self._arrays.last[columns]))
            self._work.scores[group] = max(0, min(score, loop.MOST))

    def _make_room(self, first_step: int, steps: int) -> None:
        """Let `paid` hold every publication that the next steps can add to the window."""
        if self._rule.kind != loop.DISTRIBUTION:
            return
        arrays, window = self._arrays, self._rule.window
        loop.offer(self._rule[:], arrays.memory, arrays.paid, first_step)  # forgets what has left the window
        needed = min(window, int(arrays.memory[loop.COUNT]) + steps)
        if needed > len(arrays.paid):
            live = self._live()
            paid = np.zeros((max(needed, min(2 * len(arrays.paid), window)), 2), dtype=np.int64)
            paid[: len(live)] = live
            arrays.memory[loop.HEAD] = 0
            self._arrays = arrays._replace(paid=paid)

    def _live(self) -> npt.NDArray[np.int64]:
        return live_rows(self._arrays.memory, self._arrays.paid)

    def _weigh(self) -> None:
        """The score that noise of scale 1 would cause by itself, for each group."""
        sizes = (
            np.bincount(self._arrays.group_of) if self._arrays.group_of.size else np.array([self._columns])
        )
        self._work.weights[:] = [self.mechanism.measure.expected(int(size)) for size in sizes]

    def _regroup(self, step: int) -> None:
        """Form groups of equal size by the root mean square of the releases since the last time."""
        groups = self.mechanism.group_count
        stood = step - np.maximum(
            self._arrays.measured[self._arrays.group_of], self._arrays.memory[loop.SINCE]
        )
        squares = self._arrays.squares + (self._arrays.last * self._grid) ** 2 * stood
        order = np.argsort(squares, kind="stable")
        measured, scales = (
            self._arrays.measured[self._arrays.group_of],
            self._arrays.scales[self._arrays.group_of],
        )
        self._arrays.group_of[order] = np.arange(self._columns) * groups // self._columns
        for group in range(groups):  # a mixed group is as old, and as noisy, as its worst column
            members = self._arrays.group_of == group
            self._arrays.measured[group] = measured[members].max()
            self._arrays.scales[group] = scales[members].max()
        self._arrays.squares[:] = 0
        self._arrays.memory[loop.SINCE] = step
        self._weigh()


def rule_of(mechanism: Publishing, factor: int) -> loop.Rule:
    """The public numbers of the loop, on a ledger whose units are so many times finer than the mechanism's."""
    _, test, pool = (share * factor for share in mechanism.shares)
    name = mechanism.measure.name
    return loop.Rule(
        kind=mechanism.kind,
        window=mechanism.window,
        test_units=test,
        step_units=pool // mechanism.window,
        pool_units=pool,
        measure=list(BUILT_IN).index(name) if name in BUILT_IN else loop.GIVEN,
        whole=float_up(Fraction(mechanism.whole_scale) * factor),
        score_scale=mechanism.score_scale,
        grid=float(Fraction(mechanism.grid)),
    )


def live_rows(memory: npt.NDArray[np.int64], paid: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The publications of the window in their order, wherever they lie in the ring."""
    order = (memory[loop.HEAD] + np.arange(memory[loop.COUNT])) % max(1, len(paid))
    live: npt.NDArray[np.int64] = np.take(paid, order, axis=0)
    return live
