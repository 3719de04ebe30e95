"""Pan-private Budget Distribution and Absorption: no raw count is kept, and an intruder may look into the state.

While a step is open, the state has two histograms of it whose cells had noise before the first contribution was added.
When it closes, the decision and the release add fresh noise of the same scale. Between steps there are no cells, so a
commit after a push shows the last release and public counters alone.

`Publishing` has these where `pan_private` is set. `advance` opens a step, adds its row and closes it. Whoever has
contributions one by one calls `open_step` and `arrive` before it; `event("intrusion")` announces an intrusion.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidInput
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.noise import expected_absolute_laplace, laplace
from tidegate.noise.entropy import SYSTEM, UNBUFFERED, Source
from tidegate.releases import Status

if TYPE_CHECKING:
    from tidegate.mechanisms.w_event.publishing import Publishing

SINGLE = "single"  # one intrusion that nobody notices
INTRUSION = "intrusion"  # the event that it knows
ANNOUNCED = "announced"  # any number of intrusions, each noticed just after it happened

# positions in `PanState.numbers`
OPEN = 0  # the step that is open; 0: none
AMOUNT = 1  # what a publication at it costs; at most 0: it has no cells
INTRUSIONS = 2  # that were announced at it
SEEN = 3  # 1: the cells were seen, and get fresh noise before anything is added to them

MOST = 2**61  # of a score, so that sums stay within 64 bits
FURTHEST = 2**54  # of a published value, in grid units
WIDEST = 2.0**55  # of a publication's scale; one with less budget is skipped


class PanState(NamedTuple):
    """What an intruder would find."""

    rule: Any  # that of the mechanism: what was published, public counters
    numbers: Any
    cells: Any  # SECRET: counts of the open step for its publication, and for its dissimilarity, with noise


def begin(mechanism: Publishing, first: int) -> PanState:
    """No step is open."""
    cells = np.zeros((2, mechanism.columns), dtype=np.int64)
    return PanState(mechanism.begin_one(first), np.zeros(4, dtype=np.int64), cells)


def unbuffered(noise: Draws) -> Source:
    """Words that wait in a pool would tell an intruder the noise to come."""
    return UNBUFFERED if noise.source is SYSTEM else noise.source


def open_step(mechanism: Publishing, state: PanState, step: int, noise: Draws) -> None:
    """Begin a step by the public clock: lay out its cells, with noise before anything arrives."""
    if state.numbers[OPEN]:
        raise InvalidInput("a step is open; close it by pushing it before the next one is opened.")
    amount = mechanism.offered(state.rule, step)
    if amount > 0 and mechanism.unit_scale > WIDEST * amount:
        amount = 0
    state.numbers[:] = step, amount, 0, 0
    if amount > 0:
        _add_noise(mechanism, state, unbuffered(noise), "")


def check_step(state: PanState, step: int) -> None:
    """Refuse to push a step while another one is open."""
    if state.numbers[OPEN] not in (0, step):
        raise InvalidInput(
            f"step {state.numbers[OPEN]} is open, and another step cannot be pushed; push it first."
        )


def arrive(mechanism: Publishing, state: PanState, column: int, amount: int, noise: Draws) -> None:
    """Add a contribution in grid units to the open step; it is kept nowhere but in the cells."""
    if not state.numbers[OPEN]:
        raise InvalidInput("no step is open; open one when the public clock begins it.")
    if state.numbers[AMOUNT] > 0:
        _renew(mechanism, state, noise)
        state.cells[:, column] += amount


def intruded(mechanism: Publishing, state: PanState, noise: Draws) -> int:
    """Somebody has seen the state: what that costs. The open step will be published, with fresh noise on all cells.

    This noise is drawn when the cells are touched next, after the commit of the event: what the commit stores is what
    was seen, and a reader of the log finds no more.
    """
    if not state.numbers[OPEN] or state.numbers[AMOUNT] <= 0:
        return 0
    _renew(mechanism, state, noise)
    first = not state.numbers[INTRUSIONS]
    state.numbers[INTRUSIONS] += 1
    state.numbers[SEEN] = 1
    return int(state.numbers[AMOUNT]) if first else 0


def _renew(mechanism: Publishing, state: PanState, noise: Draws) -> None:
    """Fresh noise on cells that were seen."""
    if state.numbers[SEEN]:
        state.numbers[SEEN] = 0
        _add_noise(mechanism, state, unbuffered(noise), f" after intrusion {state.numbers[INTRUSIONS]}")


def advance(mechanism: Publishing, state: PanState, rows: Matrix, first: int, noise: Draws) -> Output:
    """Release steps: open each, add its row, close it."""
    output = empty_output(*rows.shape)
    for index, row in enumerate(rows):
        step = first + index
        if not state.numbers[OPEN]:
            open_step(mechanism, state, step, noise)
        else:
            check_step(state, step)
        if state.numbers[AMOUNT] > 0:
            _renew(mechanism, state, noise)
            state.cells[:] += row
        _close_step(mechanism, state, unbuffered(noise), output.part(slice(index, index + 1)))
    return output


def _close_step(mechanism: Publishing, state: PanState, source: Source, out: Output) -> None:
    """Decide, and publish or approximate; then forget the cells."""
    step, amount, intrusions, _ = state.numbers.tolist()
    published, grid = state.rule.published, mechanism.grid_step
    out.status[0] = int(Status.NULLIFIED if amount < 0 else Status.APPROXIMATED)
    out.units[0] = mechanism.fixed_units
    chosen = amount > 0 and (intrusions > 0 or _decide(mechanism, state, source))
    if chosen:
        scale = float(publication_scale(mechanism.unit_scale, amount))
        noise = laplace(source, "output", step, scale, (mechanism.columns,))
        published.last[:] = np.clip(state.cells[0] + noise, -FURTHEST, FURTHEST)
        # of two draws, and one more for each intrusion
        published.source[0] = step
        published.scales[0] = scale * grid * math.sqrt(1 + intrusions / 2)
        out.status[0] = int(Status.FRESH)
        out.units[0] += 0 if intrusions else amount  # an intrusion has paid for it
    mechanism.note(state.rule, step, amount if chosen else 0)
    out.values[0], out.source[0], out.scale[0] = (
        published.last * grid,
        published.source[0],
        published.scales[0],
    )
    state.numbers[:], state.cells[:] = 0, 0


def _decide(mechanism: Publishing, state: PanState, source: Source) -> bool:
    """Compare the dissimilarity of the cells with the error of a publication, under fresh noise."""
    step, amount = state.numbers[:INTRUSIONS].tolist()
    scale, columns = mechanism.score_scale, mechanism.columns
    distance = np.abs(state.cells[1] - state.rule.published.last)
    score = int(np.minimum(distance, MOST // max(64, columns)).sum())
    score += int(laplace(source, "decision", step, scale, (1,))[0])
    # the cells' own noise adds this much to the dissimilarity, whatever the data
    own = columns * expected_absolute_laplace(scale)
    return bool(score - own > columns * float(publication_scale(mechanism.unit_scale, amount)))


def _add_noise(mechanism: Publishing, state: PanState, source: Source, when: str) -> None:
    """Fresh noise of full scale on all cells."""
    step, amount = state.numbers[:INTRUSIONS].tolist()
    scales = float(publication_scale(mechanism.unit_scale, amount)), mechanism.score_scale
    for cells, stream, scale in zip(state.cells, ("counts", "differences"), scales, strict=True):
        cells += laplace(source, stream + when, step, scale, (mechanism.columns,))
