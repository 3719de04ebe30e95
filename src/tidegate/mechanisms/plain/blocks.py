"""Blocks: a mechanism for finite streams, begun anew on every block of w steps, for w-event privacy.

Nesting is composition: the mechanism is called with steps counted from the block, and what it charges is shifted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tidegate.core import arrays
from tidegate.core.charges import NO_SPANS, Charges, Integers, shifted
from tidegate.core.mechanism import Matrix, Output, Resumes, empty_output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike
from tidegate.intervals import ByLaw, Fold, Held
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise.law import AnyLaw
from tidegate.policy import Policy, Pure, User, WEvent, ZeroConcentrated

BEFORE = 0  # the step before the block
SPENT = 1  # units that the block has spent
ORDINAL = 2  # where the ordinals of its spans begin
NEXT = 3  # the first ordinal that no span has had
NUMBERS = 4


class Begun:
    """The state of the mechanism inside, begun anew with every block. It is stored as its arrays.

    Parameters
    ----------
    mechanism
        What runs on each block.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self.state: Any = mechanism.begin(1)
        self.draws: Draws | None = None  # of this block; made again when a log is opened

    def renew(self) -> None:
        """Begin a block: nothing of an earlier one is kept, not even rows of noise, which are known by their steps."""
        self.state, self.draws = self.mechanism.begin(1), None

    def stored(self) -> tuple[arrays.Array, ...]:
        """Its arrays."""
        return tuple(arrays.flat(self.state))

    def loaded(self, stored: Iterator[arrays.Array]) -> Self:
        """The same mechanism with this state."""
        found = type(self)(self.mechanism)
        found.state = arrays.rebuilt(found.state, stored)
        return found


class State(NamedTuple):
    """All that is carried from step to step. SECRET where the state of the mechanism inside is."""

    numbers: Any
    block: Begun


@dataclass(frozen=True)
class Blocks(Mechanism):
    """Cut the stream into blocks of w steps and run a user-level mechanism afresh on each.

    The mechanism is one for a finite stream: its policy is ``User(epsilon, horizon=w)``. A window of w steps
    meets at most two blocks, so the whole is 2ε-private for any w consecutive steps; for w = 1 it meets one, and the
    whole is ε-private. Mechanisms that have a w-event policy themselves do better; this is the way for those that
    need a beginning and an end. A block begins at the first step that is pushed after the end of the one before.

    Parameters
    ----------
    mechanism
        What runs on each block; its policy is a :class:`User` policy with a pure or a zCDP budget. Everything
        else (columns, grid, rounding, sensitivity) is taken from it.

    Privacy
    -------
    Unit: everything within any w consecutive steps, at twice the budget of a block (once for w = 1); `policy` is that
    w-event policy. Neighbours differ in one window, which meets at most two blocks; in each of them they are user-level
    neighbours, and blocks use independent noise (w-event paper, section 3; docs/proofs/blocks.md). The charges of a
    block go to the account of the whole stream with steps and ordinals of the whole, and no block spends more than its
    mechanism may.

    Error
    -----
    That of the mechanism with half of the budget, for w = 1 with all of it. Time and memory are the mechanism's, and a
    new state for each block.

    Examples
    --------
    >>> mechanism = Blocks(Uniform(User(epsilon="1/2", horizon=24), columns=2))
    >>> mechanism.policy.unit()
    'everything within any 24 consecutive steps: a change of at most 1 in each of them'
    >>> from tidegate.core.session import Session
    >>> Session(mechanism).push_batch(np.zeros((100, 2), dtype=np.int64)).values.shape
    (100, 2)

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    policy: Policy = field(init=False)
    columns: int = field(init=False)
    grid: ExactLike = field(init=False)
    rounding: str = field(init=False)
    clamp: ExactLike | None = field(init=False)
    mechanism: Mechanism

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent,)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")

    def __post_init__(self) -> None:
        inner = self.mechanism
        if not isinstance(inner, Mechanism) or not isinstance(inner.policy, User):
            raise InvalidParameter(
                "mechanism",
                type(inner).__name__,
                "a mechanism with a User policy",
                'write for example Blocks(Uniform(User(epsilon="0.5", horizon=24)))',
            )
        put = object.__setattr__
        put(self, "policy", of_windows(inner.policy))
        for name in ("columns", "grid", "rounding", "clamp"):
            put(self, name, getattr(inner, name))
        super().__post_init__()

    def validate(self) -> None:
        """Refuse what releases more than values, or follows its own charges: it needs no blocks."""
        inner = self.mechanism
        if inner.more or inner.revised or isinstance(inner, Resumes):
            raise InvalidParameter(
                "mechanism",
                type(inner).__name__,
                "Uniform, Sample, Fast or a counter, which release values and nothing else",
                "use it with a w-event policy, without blocks",
            )

    @property
    def inner(self) -> Mechanism:
        """What runs on each block."""
        return self.mechanism

    def with_policy(self, policy: Policy) -> Blocks:
        """The same on blocks that keep another budget together."""
        return Blocks(replace(self.mechanism, policy=of_block(policy)))

    @property
    def outputs(self) -> int:
        """As many columns as the mechanism releases."""
        return self.mechanism.outputs

    @property
    def law(self) -> AnyLaw | None:
        """As for the mechanism."""
        return self.mechanism.law

    @property
    def shares_noise(self) -> bool:
        """As for the mechanism: the steps of a block may share noise, blocks share none."""
        return self.mechanism.shares_noise

    @property
    def units(self) -> int:
        """The units of as many blocks as a window can meet."""
        return blocks_met(self.policy.steps_charged) * self.mechanism.units

    @property
    def length(self) -> int:
        """Steps of a block."""
        return self.mechanism.policy.steps_charged

    @property
    def most_spans(self) -> int:
        """Those of as many blocks as a window meets."""
        return blocks_met(self.length) * self.mechanism.most_spans

    @property
    def noise_in_state(self) -> bool:
        """As for the mechanism."""
        return self.mechanism.noise_in_state

    def begin(self, first: int) -> State:
        """No block has begun: the next step begins one."""
        return State(np.array([first - 1 - self.length, 0, 0, 0]), Begun(self.mechanism))

    def _parts(self, before: int, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """(step before the block, index of its first step here, index after its last one), block by block."""
        start = 0
        while start < count:
            step = first + start
            before = before if step <= before + self.length else step - 1
            stop = min(count, before + self.length + 1 - first)
            yield before, start, stop
            start = stop

    def public(self, state: State, first: int, count: int) -> Charges:
        """What the mechanism charges whatever the data are, block by block."""
        units, begun = np.zeros(count, dtype=np.int64), int(state.numbers[BEFORE])
        new = None
        for before, start, stop in self._parts(begun, first, count):
            if before != begun and new is None:
                new = self.mechanism.begin(1)
            inner = state.block.state if before == begun else new
            units[start:stop] = self.mechanism.public(inner, first + start - before, stop - start).units
        return Charges(first, units)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps, those of one block after the other."""
        numbers, block = state.numbers, state.block
        output, spans = empty_output(len(rows), self.outputs), [NO_SPANS]
        for before, start, stop in self._parts(int(numbers[BEFORE]), first, len(rows)):
            if before != numbers[BEFORE]:
                numbers[:NEXT] = before, 0, numbers[NEXT]
                block.renew()
            if block.draws is None:
                block.draws = noise.part(offset=before)
            local = first + start - before
            found = self.mechanism.advance(block.state, rows[start:stop], local, block.draws)
            found = self._of_whole(numbers, found, local)
            here = output.part(slice(start, stop))
            for whole, part in zip(here.charged, found.charged, strict=True):
                whole[...] = part
            spans.append(found.spans)
        return output._replace(spans=np.concatenate(spans))

    def _of_whole(self, numbers: Integers, found: Output, first: int) -> Output:
        """What a block has released, with steps and ordinals of the whole stream."""
        before, live = int(numbers[BEFORE]), found.spans[:, 4] > 0
        new = found.spans[live & (found.spans[:, 2] >= first)]
        numbers[SPENT] += found.units.sum() + np.unique(new[:, [0, 1, 4]], axis=0)[:, 2].sum()
        if numbers[SPENT] > self.mechanism.units:
            raise ValueError("a block has spent more than its mechanism may")
        spans = shifted(Charges(first, found.units, found.spans), before).spans
        spans[live, 1] += numbers[ORDINAL]
        numbers[NEXT] = max(numbers[NEXT], spans[live, 1].max(initial=-1) + 1)
        return found._replace(source=np.where(found.source > 0, found.source + before, 0), spans=spans)

    @property
    def skips_steps(self) -> bool:
        """As for the mechanism."""
        return self.mechanism.skips_steps

    def intervals(self) -> Fold | None:
        """As for the mechanism, over all blocks; of one that smooths within a block nothing is known."""
        found = self.mechanism.intervals()
        return found if isinstance(found, ByLaw | Held) else None

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Uniform(User(epsilon="1/2", horizon=5), columns=2)),
            cls(Uniform(User(epsilon="1/2", horizon=5), columns=2, noise="laplace")),
            cls(Sample(User(epsilon="1", horizon=12, adjacency="replace"), columns=3, grid="0.5", every=5)),
            cls(Uniform(User(rho="1/2", horizon=1))),
        ]


def blocks_met(length: int) -> int:
    """How many blocks of so many steps a window of as many steps can meet: two, or one where a block is one step."""
    return min(length, 2)


def of_windows(policy: User) -> WEvent:
    """The w-event policy that blocks of a user-level policy keep, all that a window can meet together."""
    budget = policy.budget
    if not isinstance(budget, Pure | ZeroConcentrated):
        raise InvalidParameter(
            "policy", str(budget), "a pure or a zCDP budget for Blocks", "write epsilon or rho alone"
        )
    length = policy.steps_charged
    return policy.restated(WEvent, blocks_met(length) * budget.total, window=length)


def of_block(policy: Policy) -> User:
    """The user-level policy of each block where all that a window can meet together keep a policy."""
    length = policy.steps_charged
    return policy.restated(User, policy.budget.total / blocks_met(length), horizon=length)
