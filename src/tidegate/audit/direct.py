"""A mechanism without a session: `begin` and `advance` alone. Charges are written down, and nothing is refused.

For attacks and for the figures of papers, on data that are nobody's. A broken mechanism that charges more than its budget
can be run here and nowhere else.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import NO_SPANS, Charges
from tidegate.core.mechanism import Output, Reads, unit_of
from tidegate.core.rows import Draws
from tidegate.core.values import Matrix, ValueReader
from tidegate.errors import InvalidParameter
from tidegate.noise import current
from tidegate.releases import Releases, Status

Floats = npt.NDArray[np.float64]
NOTHING: Floats = np.zeros(0)


class Printed:
    """A mechanism as its paper prints it: it loses more than it claims, and no session takes it."""

    def account(self) -> NoReturn:
        """Refuse: no account holds what it loses."""
        raise InvalidParameter(
            "mechanism",
            type(self).__name__,
            "one that keeps its promise",
            "use the mechanism of the catalogue, or tidegate.audit.direct on data that are nobody's",
        )


class Recorded(NamedTuple):
    """What steps have released, one item for each push, and what they were charged."""

    releases: list[Any]
    charges: Charges


def read(mechanism: Any, values: Any) -> Matrix:
    """Pushed values as whole numbers of the grid, as a session reads them."""
    if isinstance(mechanism, Reads):
        return mechanism.reader().rows(values)
    clamp = None if mechanism.clamp is None else Fraction(mechanism.clamp)
    reader = ValueReader(mechanism.columns, Fraction(mechanism.grid), mechanism.rounding, clamp)
    return reader.rows(values)


def released(mechanism: Any, values: Any) -> Any:
    """The releases of one batch."""
    return recorded(mechanism, values).releases[0]


def recorded(mechanism: Any, values: Any, *, singly: bool = False) -> Recorded:
    """Releases and charges of one batch, or of single steps."""
    rows = read(mechanism, values)
    state, draws = mechanism.begin(1), Draws(current())
    length, found = 1 if singly else max(1, len(rows)), list[Any]()
    units, spans = np.zeros(len(rows), dtype=np.int64), [NO_SPANS]
    for start in range(0, len(rows), length):
        part = slice(start, start + length)
        output: Output = mechanism.advance(state, rows[part].copy(), 1 + start, draws)
        units[part] = output.units
        spans.append(output.spans)
        found.append(_releases(mechanism, 1 + start, output))
    return Recorded(found, Charges(1, units, np.concatenate(spans)))


def transcripts(mechanism: Any, stream: Matrix, count: int, marks: int, *, singly: bool = False) -> Floats:
    """So many transcripts of one batch, or of single steps: values and marks (status, charge and scale) of every step.

    What was revised later stands behind them.

    The pool of words is shared, and words are taken from it in order. Rows of noise are known by their step, so those of
    the run before are dropped.
    """
    rows = read(mechanism, stream)
    unit, outputs = float(unit_of(mechanism)), mechanism.outputs
    draws = Draws(current())
    found = np.empty((count, len(rows), outputs + marks))
    revised: list[Floats] = []
    length = 1 if singly else max(1, len(rows))
    for number in range(count):
        state, later = mechanism.begin(1), list[Floats]()
        for start in range(0, len(rows), length):
            part = slice(start, start + length)
            output = mechanism.advance(state, rows[part].copy(), 1 + start, draws)
            found[number, part, :outputs] = output.values
            found[number, part, outputs] = output.status
            found[number, part, outputs + 1] = output.units * unit
            found[number, part, outputs + 2] = output.scale
            later += [each.reshape(-1) for each in output.revised if each.dtype.kind == "f"]
        for noise in draws._rows.values():
            for slot in noise.slots:
                slot.step[0] = -1
        revised.append(np.concatenate(later) if later else NOTHING)
    status = found[:, :, outputs]
    found[:, :, outputs + 2] *= (status == Status.FRESH) | (status == Status.PARTIAL)
    shown = found.reshape(count, -1)
    longest = max(map(len, revised), default=0)
    if not longest:
        return shown
    rest = np.full((count, longest), np.nan)
    for at, each in enumerate(revised):
        rest[at, : len(each)] = each
    return np.concatenate([shown, rest], axis=1)


def _releases(mechanism: Any, first: int, output: Output) -> Any:
    found = Releases(
        first, output.values, output.status, output.source, output.scale, output.units, unit_of(mechanism)
    )
    attach = getattr(mechanism, "attach", None)
    return found if attach is None else attach(found, output.more, output.revised)
