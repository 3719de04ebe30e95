"""The schedule with the least mean squared error that keeps every promise: a convex program, rounded exactly.

Maximise precision where it is cheap: with n_t the units of step t, minimise Σ 1/n_t² subject to
Σ_{t ∈ W} Δ_t·n_t ≤ limit_s for every placement W of every secret. Written with n_t = u_t·z_t around the windowed
schedule u (z = 1 is feasible) and r_t·z_t ≥ 1 as a rotated second-order cone, the objective is quadratic in r.
The solver works in floating point and is not trusted: its answer is rounded down, repaired where a placement
is still too full, checked exactly, and kept only if its error is below the windowed schedule's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tidegate.compiled import kernel
from tidegate.errors import TidegateError
from tidegate.policy import kernels as k
from tidegate.policy.promises import PIECE, Promises, Stretch

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

BLOCK = 40_000  # more steps than a year has, solved at once; longer horizons are solved block by block
ALONE = 8  # specifications that a block of this length can have; with more of them blocks are shorter
MOST_ROUNDS = 12
SHRINK = 1 - 2.0**-40


@kernel
def placements(firsts: Any, lasts: Any, durations: Any, limits: Any) -> Any:
    """Every longest placement of each event inside its interval, as rows (first, last, limit)."""
    count = 0
    for i in range(firsts.size):
        if lasts[i] >= firsts[i]:
            count += max(lasts[i] - firsts[i] + 1 - durations[i] + 1, 1)
    rows = np.empty((count, 3), dtype=np.int64)
    at = 0
    for i in range(firsts.size):
        if lasts[i] < firsts[i]:
            continue
        length = min(durations[i], lasts[i] - firsts[i] + 1)
        for first in range(firsts[i], lasts[i] - length + 2):
            rows[at, 0] = first
            rows[at, 1] = first + length - 1
            rows[at, 2] = limits[i]
            at += 1
    return rows


@kernel
def needed(rows: Any, size: int) -> Any:
    """Which rows, sorted by (first, −last, limit), no earlier row implies: none ends later with no larger limit.

    A binary indexed tree over the ends keeps the least limit of all rows seen that end at a step or later.
    """
    most = np.int64(2**62)
    tree = np.full(size + 1, most)
    keep = np.zeros(rows.shape[0], dtype=np.bool_)
    for i in range(rows.shape[0]):
        place = size - rows[i, 1]  # later ends come first in the tree
        least = most
        j = place
        while j > 0:
            least = min(least, tree[j])
            j -= j & -j
        if least <= rows[i, 2]:
            continue
        keep[i] = True
        j = place
        while j <= size:
            tree[j] = min(tree[j], rows[i, 2])
            j += j & -j
    return keep


@kernel
def largest_ratio(firsts: Any, lasts: Any, ratios: Any, size: int, order: Any) -> Any:
    """For each step the largest ratio of all placements that contain it; `order` sorts them from the largest."""
    out = np.zeros(size)
    jump = np.arange(size + 1)
    for n in range(order.size):
        i = order[n]
        t = firsts[i]
        while t <= lasts[i]:
            free = t
            while jump[free] != free:
                jump[free] = jump[jump[free]]
                free = jump[free]
            if free > lasts[i]:
                jump[t] = free
                break
            out[free] = ratios[i]
            jump[free] = free + 1
            t = free + 1
    return out


class Placements:
    """Constraints Σ_{t=first..last} Δ_t·n_t ≤ limit of many specifications over a block of steps.

    Rows that another one implies (a longer placement with no larger limit) are left out.
    """

    def __init__(self, promises: Promises, low: int, high: int) -> None:
        stretch = promises.stretch(low, high)
        self.low, self.size = low, high - low + 1
        rows: list[Integers] = []
        self.delta = np.zeros((len(stretch.starts) - 1, self.size), dtype=np.int64)
        for spec, (a, b) in enumerate(zip(stretch.starts[:-1], stretch.starts[1:], strict=True)):
            part = slice(int(a), int(b))
            k.sensitivity(
                stretch.firsts[part], stretch.lasts[part], stretch.heights[part], low, promises.allowance,
                self.delta[spec],
            )  # fmt: skip
            rows.append(_placements(stretch, part, low, high, spec))
        table = np.concatenate(rows)
        self.firsts, self.lasts, self.limits, self.specs = (np.ascontiguousarray(c) for c in table.T)

    def __len__(self) -> int:
        return len(self.firsts)

    def losses(self, units: Reals) -> Reals:
        """What each placement loses, in floating point."""
        sums = np.concatenate([np.zeros((len(self.delta), 1)), np.cumsum(self.delta * units, axis=1)], axis=1)
        found: Reals = sums[self.specs, self.lasts + 1] - sums[self.specs, self.firsts]
        return found

    def matrix(self, chosen: npt.NDArray[Any], units: Reals) -> sp.csr_array:
        """Rows Δ_t·u_t/limit for the chosen placements."""
        lengths = self.lasts[chosen] - self.firsts[chosen] + 1
        ends = np.cumsum(lengths)
        steps = np.arange(int(ends[-1])) - np.repeat(ends - lengths - self.firsts[chosen], lengths)
        specs, limits = np.repeat(self.specs[chosen], lengths), np.repeat(self.limits[chosen], lengths)
        values = self.delta[specs, steps] * units[steps] / limits
        return sp.csr_array((values, steps, np.concatenate([[0], ends])), shape=(len(chosen), self.size))


def _placements(stretch: Stretch, part: slice, low: int, high: int, spec: int) -> Integers:
    """Rows (first, last, limit, specification), counted from `low`, of one specification."""
    firsts = np.maximum(stretch.firsts[part], low) - low
    lasts = np.minimum(stretch.lasts[part], high) - low
    table = placements(firsts, lasts, stretch.durations[part], stretch.limits[part])
    # longest first among equal beginnings, strictest first among equals: what implies a row stands before it
    table = table[np.lexsort((table[:, 2], -table[:, 1], table[:, 0]))]
    table = table[needed(table, high - low + 1)]
    return np.column_stack([table, np.full(len(table), spec, dtype=np.int64)])


def optimal_units(promises: Promises, first: int, last: int) -> Integers:
    """The optimal schedule of the steps first to last, in whole units; never worse than the windowed one.

    Long horizons are solved in blocks. Each block is solved together with the beginning of the next, so that what
    it leaves over is enough, and with what the block before has spent.
    """
    windowed = promises.windowed(first, last)
    units = windowed.copy()
    reach = 2 * promises.policy.window
    block = max(2 * reach, BLOCK // max(1, len(promises.specifications) // ALONE))
    block = min(block, BLOCK)
    for begin in range(first, last + 1, block):
        end = min(last, begin + block - 1)
        low, high = max(first, begin - reach), min(last, end + reach)
        fixed = begin - low
        part = slice(low - first, high - first + 1)
        units[part] = _solve(promises, low, high, units[part], fixed)
    if _squares(units) >= _squares(windowed) or not feasible(promises, first, units):
        return windowed
    return units


def feasible(promises: Promises, first: int, units: Integers) -> bool:
    """Whether every placement keeps its promise, in exact arithmetic."""
    window = promises.policy.window
    for begin in range(0, len(units), PIECE):
        start = max(0, begin - window + 1)
        if promises.check(first + start, first + begin, units[start : begin + PIECE])[0] is not None:
            return False
    return True


def _squares(units: Integers) -> float:
    return float(np.sum((2.0**20 / units) ** 2))


def _solve(promises: Promises, low: int, high: int, start: Integers, fixed: int) -> Integers:
    """Solve one block; the first `fixed` steps keep what they have."""
    rows = Placements(promises, low, high)
    around = start.astype(np.float64)
    reaching = np.flatnonzero(rows.lasts >= fixed)
    fullness = rows.losses(around) / rows.limits
    chosen = reaching[fullness[reaching] > 0.35]  # the others rarely matter; those that do are added below
    best = start
    for _ in range(MOST_ROUNDS):
        try:
            scaled = _program(rows, chosen, around, fixed)
        except TidegateError:
            break
        real = around * scaled
        best = _rounded(rows, real, fixed, start)
        full = rows.losses(real) / rows.limits
        missing = reaching[full[reaching] > 1 + 1e-6]
        missing = np.setdiff1d(missing, chosen)
        if not len(missing):
            break
        chosen = np.union1d(chosen, missing)
    return best


def _rounded(rows: Placements, real: Reals, fixed: int, start: Integers) -> Integers:
    """Whole units below the solver's, repaired: each step is divided by the worst excess of its placements."""
    full = rows.losses(real) / rows.limits
    excess = largest_ratio(rows.firsts, rows.lasts, full, rows.size, np.argsort(-full, kind="stable"))
    units = np.floor(real / np.maximum(excess, 1.0) * SHRINK).astype(np.int64)
    units[:fixed] = start[:fixed]
    whole: Integers = np.maximum(units, 1)
    return whole


def _program(rows: Placements, chosen: npt.NDArray[Any], around: Reals, fixed: int) -> Reals:
    """Minimise Σ (r_t/u_t)² over z, r with r·z ≥ 1 and every chosen placement at most full: the z."""
    import clarabel  # only the optimal schedule needs the solver

    size, free = rows.size, rows.size - fixed
    matrix = rows.matrix(chosen, around)
    room = 1 - matrix[:, :fixed] @ np.ones(fixed) if fixed else np.ones(len(chosen))
    linear = sp.csr_array(matrix[:, fixed:])
    weights = (1 / around[fixed:]) ** 2
    weights /= weights.mean()
    quadratic = sp.diags_array(np.concatenate([np.zeros(free), 2 * weights]), format="csc")
    index = np.arange(free)
    # (z + r, z − r, 2) in the second-order cone means z·r ≥ 1
    ones = np.ones(free)
    cones = sp.csc_array(
        (
            np.concatenate([-ones, -ones, -ones, ones]),
            (
                np.concatenate([3 * index, 3 * index, 3 * index + 1, 3 * index + 1]),
                np.concatenate([index, free + index, index, free + index]),
            ),
        ),
        shape=(3 * free, 2 * free),
    )
    constraints = sp.vstack([sp.hstack([linear, sp.csr_array((len(chosen), free))]), cones], format="csc")
    bounds = np.concatenate([room, np.tile([0.0, 0.0, 2.0], free)])
    kinds = [clarabel.NonnegativeConeT(len(chosen)), *[clarabel.SecondOrderConeT(3)] * free]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(quadratic), np.zeros(2 * free), sp.csc_matrix(constraints), bounds, kinds, settings
    )
    solution = solver.solve()
    if "Solved" not in str(solution.status):
        raise TidegateError(f"the solver ended with {solution.status}; use the windowed schedule.")
    scaled = np.ones(size)
    scaled[fixed:] = np.maximum(np.asarray(solution.x[:free]), 1e-9)
    return scaled
