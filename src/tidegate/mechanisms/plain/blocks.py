"""Blocks: any finite-stream mechanism, restarted on disjoint blocks of w steps, for w-event privacy."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike
from tidegate.ledger import Ledger
from tidegate.mechanisms import snapshot
from tidegate.mechanisms.mechanism import ChargeAll, Matrix, Mechanism, Row, Run, State
from tidegate.mechanisms.plain.block_ledger import BlockLedger, UnenforcedBlockLedger
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.uncertainty import Uncertainty, Walk
from tidegate.noise import install
from tidegate.noise.law import AnyLaw
from tidegate.noise.readdressed import Readdressed
from tidegate.policy import Policy, Pure, User, WEvent, ZeroConcentrated
from tidegate.releases import Radii, Release, Releases

PUBLIC = (Uniform, Sample)  # what they charge does not depend on data


@dataclass(frozen=True)
class Blocks(Mechanism):
    """Cut the stream into blocks of w steps and run a user-level mechanism afresh on each.

    The mechanism is one for a finite stream: its policy is ``User(epsilon, horizon=w)``. A window of w steps
    meets at most two blocks, so the whole is 2ε-private for any w consecutive steps; for w = 1 it meets one, and the
    whole is ε-private. Mechanisms that can use the sliding ledger directly do better; this is the way for those that
    need a beginning and an end.

    Parameters
    ----------
    mechanism
        What runs on each block; its policy is a :class:`User` policy with a pure or a zCDP budget. Everything
        else (columns, grid, rounding, sensitivity) is taken from it.

    Privacy
    -------
    Unit: everything within any w consecutive steps, at twice the budget of a block (once for w = 1); `policy` is that
    w-event policy. Neighbours differ in one window, which meets at most two blocks; in each of them they are user-level
    neighbours, and blocks use independent noise (w-event paper, section 3; docs/proofs/blocks.md). A block is
    charged to the ledger of the whole stream, with all that it may spend, before its first step is looked at,
    so that no refusal depends on what it decides. Where the charges are the same whatever the data (`Uniform`,
    `Sample`) they are forwarded one by one instead, and the ledger shows what windows have really spent.

    Error
    -----
    That of the mechanism with half of the budget, for w = 1 with all of it. Time and memory are the mechanism's, and a
    restart a block; `Uniform`, `Sample`, `Fast` and `RescueDP` do the blocks of a batch in one go.

    Examples
    --------
    >>> mechanism = Blocks(Uniform(User(epsilon="1/2", horizon=24), columns=2))
    >>> mechanism.policy.unit()
    'everything within any 24 consecutive steps: a change of at most 1 in each of them'
    >>> run = mechanism.start()
    >>> run.push_batch(np.zeros((100, 2), dtype=np.int64)).values.shape, run.ledger.verify().spent
    ((100, 2), Fraction(1, 1))

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

    @property
    def inner(self) -> Mechanism:
        """What runs on each block."""
        return self.mechanism

    @property
    def outputs(self) -> int:
        """As many columns as the mechanism releases."""
        return self.mechanism.outputs

    @property
    def law(self) -> AnyLaw | None:
        """As for the mechanism."""
        return self.mechanism.law

    def uncertainty(self) -> Uncertainty | None:
        """As for the mechanism, over all blocks; one that knows of what its values are made is asked block by block."""
        found = self.mechanism.uncertainty()
        return found if isinstance(found, Walk) else None

    @property
    def shares_noise(self) -> bool:
        """As for the mechanism: the steps of a block may share noise, blocks share none."""
        return self.mechanism.shares_noise

    @property
    def earlier(self) -> Blocks | None:
        """As for the mechanism."""
        earlier = self.mechanism.earlier
        return None if earlier is None else Blocks(earlier)

    @property
    def enforced(self) -> bool:
        """As for the mechanism."""
        return self.mechanism.enforced

    @property
    def units(self) -> int:
        """The units of as many blocks as a window can meet."""
        return blocks_met(self.policy.steps_charged) * self.mechanism.units

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> BlocksRun:
        """Begin, or go on with, a run."""
        return BlocksRun(self, ledger, state)

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
    return policy.restated(WEvent, blocks_met(length) * budget.total, w=length)


def of_block(policy: Policy) -> User:
    """The user-level policy of each block where all that a window can meet together keep a policy."""
    length = policy.steps_charged
    return policy.restated(User, policy.budget.total / blocks_met(length), horizon=length)


class Blockwise(Protocol):
    """A mechanism that runs another one on blocks."""

    @property
    def inner(self) -> Mechanism:
        """What runs on each block, under a user-level policy whose horizon is the length of a block."""


class Repeating(Protocol):
    """A run that, while it stands at its beginning, can do many blocks in one go."""

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release blocks of `length` steps, each as a run that begins with it would; the run stays where it is.

        Steps are counted from the first block on, 1, 2, …, through all of them: in the releases, and where noise has an
        address. `charge` takes the units of all steps; it is called before any noise is drawn, or, where they are
        decided on the way, after a loop that has asked an account of each block.
        """


def repeats(kind: type[Run]) -> bool:
    """Whether runs of a class are `Repeating`; not so if a subclass has changed how batches are released."""
    for parent in kind.__mro__:
        if "repeat" in vars(parent) or "_push_batch" in vars(parent):
            return "repeat" in vars(parent)
    return False


class BlocksRun(Run):
    """A mechanism at work on one block after the other."""

    def _begin(self, state: State | None) -> None:
        self._factor = self.ledger.units // self.mechanism.units
        blockwise: Blockwise = self.mechanism  # type: ignore[assignment]
        self._inner = blockwise.inner
        self._length = self._inner.policy.steps_charged
        kind = BlockLedger if self._inner.enforced else UnenforcedBlockLedger
        # a printed calibration is refused nothing, and its ledger shall say what it really spends
        forwards = isinstance(self._inner, PUBLIC) or not self._inner.enforced
        self._account = kind(self._inner, self.ledger, self._factor, forwards)
        # on a ledger that others have used, or this run without its snapshot, the first block begins now
        self._offset = state["offset"] if state else self.step
        self._account.crowded = state.get("crowded", 0) if state else self.ledger.crowded_until
        self._open(state["inner"].tobytes() if state else None)
        # what shares noise draws block by block, unless its groups are known beforehand
        known = isinstance(self._inner, PUBLIC) or not self._inner.shares_noise
        self._repeats = known and repeats(type(self._run))

    def _open(self, state: bytes | None = None) -> None:
        """Begin the block after `offset` steps, or go on with it."""
        self._account.begin(self._offset)
        if state is not None:
            _, fields = snapshot.unpack(state)
            saved = {name[7:]: value for name, value in fields.items() if name.startswith("ledger.")}
            self._account.restore(saved)

        def start() -> Run:
            with install(Readdressed(self.source, offset=self._offset)):
                return self._inner.start(self._account, state)

        self._run = copy_context().run(start)  # whatever interrupts, nobody else finds the source installed
        self._account.paid = self._run.step > 0

    def _state(self) -> State:
        inner = np.frombuffer(self._run.snapshot(), dtype=np.uint8)
        return {"offset": self._offset, "crowded": self._account.crowded, "inner": inner}

    def _go_on(self) -> None:
        """Begin the next block, if this one is at its end."""
        if self._run.step == self._length:
            self._offset += self._length
            self._open()

    def _push(self, row: Row) -> Release:
        self._go_on()
        self._account.pay()
        release = self._run.push(row, grid_units=True)
        release.step += self._offset
        release.source += self._offset if release.source else 0
        release.units *= self._factor
        release.unit = self.ledger.unit
        return release

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps = len(matrix)
        values = np.empty((steps, self.mechanism.outputs))
        status = np.empty(steps, dtype=np.int8)
        source, units = np.empty(steps, dtype=np.int64), np.empty(steps, dtype=np.int64)
        scale = np.empty(steps)
        kept = self._state()
        start, delay = 0, 0
        radii: list[Radii | None] = []
        try:
            with self.ledger.transaction():
                while start < steps:
                    self._go_on()
                    offset = self._offset
                    part = self._several(matrix[start:])
                    if part is None:
                        part = self._rest_of_block(matrix[start:])
                    stop = start + len(part)
                    values[start:stop], status[start:stop], scale[start:stop] = (
                        part.values,
                        part.status,
                        part.scale,
                    )
                    source[start:stop] = np.where(part.source > 0, part.source + offset, 0)
                    units[start:stop] = part.units * self._factor
                    radii.append(part.radii)
                    start, delay = stop, part.delay
        except BaseException:
            self._begin(kept)
            raise
        releases = Releases(first_step, values, status, source, scale, units, self.ledger.unit, delay)
        known = [each for each in radii if each is not None]
        if known and len(known) == len(radii):
            releases.radii = Radii(lambda confidence: np.concatenate([each(confidence) for each in known]))
        return releases

    def _several(self, rows: Matrix) -> Releases | None:
        """Release the whole blocks that begin here, all but the last one, in one go; None where that cannot be."""
        blocks = (len(rows) - 1) // self._length
        crowded = (
            self._inner.shares_noise and self._account.crowded_until
        )  # then some steps may have to be silent
        if not (self._repeats and blocks) or self._account.paid or crowded:
            return None
        self._account.pay_ahead(blocks)
        run: Repeating = self._run  # type: ignore[assignment]
        releases = run.repeat(rows[: blocks * self._length], self._length, self._account.charge_ahead)
        self._offset += blocks * self._length
        self._open()
        return releases

    def _rest_of_block(self, rows: Matrix) -> Releases:
        """Release what is there of the block, from the step on at which it stands."""
        self._account.pay()
        return self._run.push_batch(rows[: self._length - self._run.step], grid_units=True)
