"""What Personal Budget Distribution and Personal Budget Absorption share: columns by requirement, and their weights."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.account import Account
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.parallel_account import ParallelAccount, charges_of_parts
from tidegate.core.rows import DONE, Draws, RowNoise, draw_row
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, positive, proper, show, whole
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.publishing import APPROXIMATED, FRESH, FURTHEST, MOST, WIDEST
from tidegate.policy import Guarantee, Policy, WEvent

WEIGHTS = 1024  # parts of the largest weight that a weight is a whole number of, where they differ
LARGEST = (
    2**40
)  # of a value, so that weighted sums stay within 64 bits; cutting it off changes no sensitivity
MOST_REQUIREMENTS = 64  # with that of the policy, so that weighted sums stay within 64 bits
MOST_SHARES = 2**30  # of the common denominator of all shares
LARGEST_UNITS = 2**49  # of a window
OWN_COLUMNS = (
    "a unit's contributions are in the columns of its own requirement, which does not depend on the data"
)


@dataclass(frozen=True)
class Requirement:
    """What some units ask for beyond the policy: a smaller ε, a longer window, or both.

    Parameters
    ----------
    share
        The part of all units that are expected to ask for it: public, and only accuracy depends on it.
    epsilon, window
        What a window of theirs may lose, and its steps; by default those of the policy.

    Examples
    --------
    >>> Requirement("1/4", epsilon="0.5").describe()
    {'share': '0.25', 'epsilon': '0.5', 'window': None}
    """

    share: ExactLike
    epsilon: ExactLike | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "share", proper("share", exact("share", self.share), 'write for example share="1/4"'))
        if self.epsilon is not None:
            put(self, "epsilon", positive("epsilon", self.epsilon))
        if self.window is not None:
            put(self, "window", whole("window", self.window))

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        epsilon = None if self.epsilon is None else show(Fraction(self.epsilon))
        return {"share": show(Fraction(self.share)), "epsilon": epsilon, "window": self.window}


class Constants(NamedTuple):
    """Functions of the configuration alone; arrays have an entry for each requirement, the policy's own first."""

    window: Any  # w
    share: Any  # units of one test, and of one step's share of the publications: ε/(2w)
    coin: Any  # what publications spend is a multiple of so many units
    sizes: Any  # how units divide among requirements, in whole numbers
    test_scales: Any  # the noise of one's test, if all had its share
    unit_scale: float  # the noise scale of a publication that spends one unit; n units: unit_scale/n
    change: float  # by how much a unit changes a step, in grid units
    deviation: float
    grid: float
    exhausted: int  # the status of a step at which nothing is offered


class Published(NamedTuple):
    """What was published; all of it is released."""

    last: Any  # of each column, in grid units
    source: Any  # the step of the last publication
    scale: Any  # its noise scale, in the unit of the values


class Work(NamedTuple):
    """Room that a step needs, of each requirement."""

    offered: Any  # units that a publication may spend
    spent: Any  # and those that it has spent
    weights: Any  # with which columns are published
    tested: Any  # and tested


def new_work(count: int) -> Work:
    """Room for so many requirements."""
    return Work(*np.zeros((4, count), dtype=np.int64))


@lean
def weigh(offered: Any, sizes: Any, unit_scale: float, spread: float, weights: Any) -> Any:
    """Weights of the columns by requirement; returns (whose units are the most that any spends, parts, mean, variance).

    A weight is a whole number of parts of the largest one, and at most as large as offered units allow. All spend what
    they are offered, up to a threshold. It is one of the offers: the one for which two variances together are least,
    that of the noise, and that of how a column's units divide among requirements: `spread` times that of the weights.
    """
    chosen, least, count, largest = -1, np.inf, 0, 0
    for own in range(sizes.size):
        count += sizes[own]
    for candidate in range(sizes.size):
        total = squares = 0.0
        for own in range(sizes.size):
            amount = float(min(offered[own], offered[candidate]))
            total += sizes[own] * amount
            squares += sizes[own] * amount * amount
        if offered[candidate] > 0:
            variance = 2 * (unit_scale * count / total) ** 2 + spread * (count * squares / total**2 - 1)
            if variance < least:
                chosen, least, largest = candidate, variance, offered[candidate]
    if chosen < 0:
        return chosen, 1, 1.0, 0.0
    parts = 1
    for own in range(sizes.size):
        if 0 < offered[own] < largest:
            parts = WEIGHTS
    total = 0
    for own in range(sizes.size):
        weights[own] = min(offered[own], largest) * parts // largest
        total += weights[own] * sizes[own]
    variance = 0.0
    for own in range(sizes.size):
        variance += sizes[own] / count * (float(weights[own] * count - total) / total) ** 2
    return chosen, parts, total / count, variance


@lean
def weighted(row: Any, weights: Any, column: int, columns: int) -> Any:
    """The weighted sum over requirements of one published column."""
    total = 0
    for own in range(weights.size):
        total += weights[own] * min(max(row[own * columns + column], -LARGEST), LARGEST)
    return total


@lean
def release(
    row: Any,
    index: int,
    step: int,
    constants: Any,
    pool: Any,
    test: Any,
    slot: Any,
    published: Any,
    work: Any,
    charged: Any,
    out: Any,
) -> Any:
    """Test a step, and publish it if it differs enough; returns what is wanted, before anything is written."""
    last, unit_scale, width, spread = published.last, constants.unit_scale, published.last.size, 0.0
    for column in range(width):
        level = max(last[column], 0.0)
        spread += level * (constants.change + constants.deviation**2 * level) / width
    chosen, parts, mean, variance = weigh(work.offered, constants.sizes, unit_scale, spread, work.weights)
    fresh, status = False, APPROXIMATED if chosen >= 0 else constants.exhausted
    largest = work.offered[chosen] if chosen >= 0 else 1
    if chosen >= 0 and unit_scale * parts <= WIDEST * largest:
        tested, fine, test_mean, test_variance = weigh(
            constants.share, constants.sizes, unit_scale, spread * width * width, work.tested
        )
        wanted = draw_row(pool, test, step, constants.test_scales[tested] * fine)
        if wanted != DONE:
            return wanted
        score = 0
        for column in range(width):
            before = np.int64(min(max(np.rint(last[column] * test_mean), -MOST / 2), MOST / 2))
            score = min(score + abs(weighted(row, work.tested, column, width) - before), MOST)
        error = np.nextafter(unit_scale * parts / largest, np.inf) / mean
        error += math.sqrt(spread * (variance + test_variance))
        fresh = score + test.row[0] > width * error * test_mean
    if fresh:
        scale = publication_scale(unit_scale * parts, largest)
        wanted = draw_row(pool, slot, step, scale)
        if wanted != DONE:
            return wanted
        for column in range(width):
            found = weighted(row, work.weights, column, width) + slot.row[column]
            last[column] = min(max(found, -FURTHEST), FURTHEST) / mean
        status, published.source[0], published.scale[0] = FRESH, step, scale / mean * constants.grid
    for own in range(work.spent.size):
        paying, coin = fresh and work.weights[own] > 0, constants.coin[own]
        work.spent[own] = -(-min(work.offered[own], largest) // coin) * coin if paying else 0
        charged[index, own] = constants.share[own] + work.spent[own]
    out.status[index], out.source[index], out.scale[index] = status, published.source[0], published.scale[0]
    for column in range(width):
        out.values[index, column] = last[column] * constants.grid
    return DONE


@dataclass(frozen=True)
class Personal(Mechanism):
    """Publish for units that ask for more privacy than others; the common part.

    Parameters
    ----------
    policy
        What every unit has at least.
    columns
        How many are pushed: the d columns of the units that ask for nothing else, then d for each requirement, in its
        order. What is released are d columns of all units together.
    grid, rounding
        As for every :class:`Mechanism`.
    requirements
        What units ask for beyond the policy, as :class:`Requirement`; a public table.
    deviation
        How far the units of a column may be from the table. 0: they ask for what they ask for by chance, whatever they
        do. 1: each column may be of units of one requirement. Only accuracy depends on it.
    """

    requirements: tuple[Requirement, ...] = ()
    deviation: ExactLike = 0

    holds: ClassVar[bool] = True
    needs_room: ClassVar[bool] = True  # a refusal would tell what it decided on raw data
    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent,)
    fineness: ClassVar[int] = 0  # binary places of a share
    exhausted: ClassVar[int] = APPROXIMATED

    def validate(self) -> None:
        """Requirements are stricter than the policy, leave somebody without one, and divide the columns."""
        table = tuple(
            each if isinstance(each, Requirement) else Requirement(*each) for each in self.requirements
        )
        object.__setattr__(self, "requirements", table)
        deviation = exact("deviation", self.deviation)
        if not 0 <= deviation <= 1:
            raise InvalidParameter("deviation", self.deviation, "from 0 to 1", "leave it out for the default")
        object.__setattr__(self, "deviation", deviation)
        if len(self.promises) > MOST_REQUIREMENTS:
            raise InvalidParameter(
                "requirements",
                len(table),
                f"fewer than {MOST_REQUIREMENTS}",
                "give units with similar requirements the strictest of them",
            )
        weaker = [
            each
            for each, (epsilon, window) in zip(table, self.promises[1:], strict=True)
            if epsilon > self.promises[0][0] or window < self.promises[0][1]
        ]
        if weaker:
            raise InvalidParameter(
                "requirements",
                weaker[0].describe(),
                "no larger ε and no shorter window than the policy's",
                "make the policy what every unit has at least",
            )
        if sum(Fraction(each.share) for each in table) >= 1 or self.sizes.sum() > MOST_SHARES:
            raise InvalidParameter(
                "requirements",
                [show(Fraction(each.share)) for each in table],
                f"shares with a sum below 1 and a common denominator of at most {MOST_SHARES}",
                "make the policy the requirement of the rest",
            )
        if self.columns % len(self.promises):
            raise InvalidParameter(
                "columns",
                self.columns,
                f"a multiple of {len(self.promises)}, one block for each requirement and one for the rest",
                "push every column once for each",
            )
        if self.units > LARGEST_UNITS:
            raise InvalidParameter(
                "requirements",
                self.units,
                "made of budgets and windows with small common multiples",
                "round the budgets per step, ε/window, to a common unit",
            )
        self.refuse_wide_noise(
            max(self.constants.test_scales.max() * WEIGHTS, self.constants.unit_scale), bits=55
        )

    @cached_property
    def promises(self) -> list[tuple[Fraction, int]]:
        """ε and w: of the policy, and of each requirement."""
        epsilon, window = self.policy.budget.total, self.policy.steps_charged
        asked = [(Fraction(each.epsilon or epsilon), each.window or window) for each in self.requirements]
        return [(epsilon, window), *asked]

    @cached_property
    def sizes(self) -> Integers:
        """How units divide among the policy and the requirements, in whole numbers."""
        shares = [Fraction(each.share) for each in self.requirements]
        shares.insert(0, Fraction(1 - sum(shares)))
        common = math.lcm(*(share.denominator for share in shares))
        return np.array([int(share * common) for share in shares])

    @cached_property
    def shares(self) -> list[int]:
        """ε/(2w) of the policy and of each requirement, in units that are worth the same to all."""
        shares = [epsilon / (2 * window) for epsilon, window in self.promises]
        common = math.lcm(*(share.denominator for share in shares))
        parts = [int(share * common) for share in shares]
        parts = [part // math.gcd(*parts) for part in parts]
        most = max(part * window for part, (_, window) in zip(parts, self.promises, strict=True))
        fine = 1 << max(0, min(self.fineness, 48 - most.bit_length()))
        return [part * fine for part in parts]

    @property
    def limits(self) -> list[tuple[int, int]]:
        """Of the policy and of each requirement: the units of a window, and its steps."""
        return [
            (2 * window * share, window)
            for share, (_, window) in zip(self.shares, self.promises, strict=True)
        ]

    @property
    def units(self) -> int:
        """The most that any window may spend: that of the policy."""
        return self.limits[0][0]

    @property
    def outputs(self) -> int:
        """Columns of all units together."""
        return self.columns // len(self.promises)

    def ideal(self, steps: Any) -> Any:
        """The sums over requirements."""
        return steps.reshape(len(steps), len(self.promises), self.outputs).sum(axis=1)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Requirements are public, or do not depend on the data."""
        return (*super().assumptions, *((OWN_COLUMNS,) if self.requirements else ()))

    @property
    def guarantee(self) -> Guarantee:
        """That of the policy, and of every requirement."""
        return replace(super().guarantee, stricter=tuple(self.promises[1:]))

    @cached_property
    def constants(self) -> Constants:
        """What the loops know of the configuration."""
        shares = np.array(self.shares)
        unit = self.policy.budget.total / self.units
        return Constants(
            window=np.array([window for _, window in self.promises]),
            share=shares,
            coin=np.ones_like(shares) if self.fineness else shares,
            sizes=self.sizes,
            test_scales=np.array([float_up(self.sensitivity / (share * unit)) for share in self.shares]),
            unit_scale=self.noise_scale(self.units),
            change=float(self.sensitivity),
            deviation=float(Fraction(self.deviation)),
            grid=float(Fraction(self.grid)),
            exhausted=self.exhausted,
        )

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """None: without requirements it is Budget Distribution or Absorption, and a plan knows no requirements."""
        return []

    # what a session asks -----------------------------------------------------------------------------------------

    def account(self) -> Account:
        """Units of a window for the policy, and beside it for each requirement with its own window."""
        limits, horizon = self.limits, self.policy.horizon
        alone = not self.requirements
        return Account(*limits[0], horizon) if alone else ParallelAccount(limits, horizon, "personal")

    def charges(self, first: int, units: Integers) -> Charges:
        """From units, steps × requirements."""
        return charges_of_parts(first, units) if self.requirements else Charges(first, units[:, 0])

    def begin(self, first: int) -> Any:
        """Nothing was published: every release is 0."""
        published = Published(np.zeros(self.outputs), np.zeros(1, dtype=np.int64), np.zeros(1))
        return self.begin_rule(first, published)

    @abstractmethod
    def begin_rule(self, first: int, published: Published) -> Any:
        """The state of the budget rule before the first step, with what was published."""

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Every step is tested, whatever the data are."""
        return self.charges(first, np.tile(np.array(self.shares), (count, 1)))

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps."""
        out, charged = (
            empty_output(len(rows), self.outputs),
            np.zeros((len(rows), len(self.shares)), np.int64),
        )
        self.run(rows, first, noise.rows(dissimilarity=1, publication=self.outputs), state, charged, out)
        charges = self.charges(first, charged)
        return out._replace(units=charges.units, spans=charges.spans)

    @abstractmethod
    def run(
        self, rows: Matrix, first: int, noise: RowNoise, state: Any, charged: Integers, out: Output
    ) -> None:
        """Call the algorithm's loop until all steps are released."""
