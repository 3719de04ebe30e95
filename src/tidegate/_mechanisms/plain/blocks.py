"""Blocks: a mechanism for finite streams, begun anew every w steps. Nesting is composition: its charges are shifted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tidegate.core import arrays
from tidegate.core.charges import NO_SPANS, Charges, Integers, shifted
from tidegate.core.mechanism import Matrix, Mechanism, Output, Resumes, empty_output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import ByLaw, Fold, Held
from tidegate.mechanisms.plain import blocks as configured

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
class Blocks(configured.Blocks):
    """Begin a mechanism anew on every block; :class:`tidegate.mechanisms.Blocks` has parameters and privacy.

    A block begins at the first step that is pushed after the end of the one before.
    """

    more: ClassVar[tuple[str, ...]] = ()

    def validate(self) -> None:
        """Refuse what releases more than values, or follows its own charges: it needs no blocks."""
        super().validate()
        inner = self.mechanism
        extras = (getattr(inner, name, ()) for name in ("more", "revised"))
        if not hasattr(inner, "begin") or any(extras) or isinstance(inner, Resumes):
            raise InvalidParameter(
                "mechanism",
                type(inner).__name__,
                "Uniform, Sample, Fast or a counter of the new core, which release values and nothing else",
                "use it with a w-event policy, without blocks",
            )

    @property
    def length(self) -> int:
        """Steps of a block."""
        return self.mechanism.policy.steps_charged

    @property
    def inside(self) -> Any:
        """What runs on each block, as the core sees it."""
        return self.mechanism

    @property
    def most_spans(self) -> int:
        """Those of as many blocks as a window meets."""
        return configured.blocks_met(self.length) * int(self.inside.most_spans)

    @property
    def noise_in_state(self) -> bool:
        """As for the mechanism."""
        return bool(self.inside.noise_in_state)

    def begin(self, first: int) -> State:
        """No block has begun: the next step begins one."""
        return State(np.array([first - 1 - self.length, 0, 0, 0]), Begun(self.inside))

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
                new = self.inside.begin(1)
            inner = state.block.state if before == begun else new
            units[start:stop] = self.inside.public(inner, first + start - before, stop - start).units
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
            found = self.inside.advance(block.state, rows[start:stop], local, block.draws)
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
        if numbers[SPENT] > self.inside.units:
            raise ValueError("a block has spent more than its mechanism may")
        spans = shifted(Charges(first, found.units, found.spans), before).spans
        spans[live, 1] += numbers[ORDINAL]
        numbers[NEXT] = max(numbers[NEXT], spans[live, 1].max(initial=-1) + 1)
        return found._replace(source=np.where(found.source > 0, found.source + before, 0), spans=spans)

    def intervals(self) -> Fold | None:
        """As for the mechanism, over all blocks; of one that smooths within a block nothing is known."""
        found = self.inside.intervals()
        return found if isinstance(found, ByLaw | Held) else None
