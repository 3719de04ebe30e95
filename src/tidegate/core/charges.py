"""What steps cost: plain data, returned by a mechanism and judged by an account."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

LAW, ORDINAL, FIRST, LAST, UNITS = range(5)  # columns of rows of spans, as in `Span`
SPAN_FIELDS = 5
NO_SPANS: Integers = np.zeros((0, SPAN_FIELDS), dtype=np.int64)
NO_SPANS.setflags(write=False)


class Span(NamedTuple):
    """Noise that several steps share: its units count once in every window that meets any step from first to last.

    Attributes
    ----------
    law, ordinal
        Its identity: which law of the mechanism, and which span of this law, counted upwards.
    first, last
        The steps that it covers. `last` may lie in the future, and grows when the span is extended.
    units
        What it costs, at least 1.
    """

    law: int
    ordinal: int
    first: int
    last: int
    units: int


class Charges(NamedTuple):
    """What consecutive steps cost.

    Attributes
    ----------
    first
        The first step.
    units
        What each step costs by itself.
    spans
        One row per span that begins or is extended, with the fields of `Span`; rows with 0 units are padding.
    """

    first: int
    units: Integers
    spans: Integers = NO_SPANS

    @property
    def last(self) -> int:
        """The last step; `first − 1` where there is none."""
        return self.first + len(self.units) - 1

    def after_silence(self, steps: int) -> Charges:
        """The same charges, preceded by `steps` steps that cost nothing."""
        if not steps:
            return self
        nothing = np.zeros(steps, dtype=np.int64)
        return Charges(self.first - steps, np.concatenate([nothing, self.units]), self.spans)


def span_rows(spans: list[Span], room: int) -> Integers:
    """Spans as rows, padded to `room` rows, a public number; more spans than that are an error.

    Examples
    --------
    >>> span_rows([Span(0, 1, first=5, last=8, units=3)], room=2).tolist()
    [[0, 1, 5, 8, 3], [0, 0, 0, 0, 0]]
    """
    rows = np.zeros((room, SPAN_FIELDS), dtype=np.int64)
    for row, span in zip(rows[: len(spans)], spans, strict=True):
        row[:] = span
    return rows


def shifted(charges: Charges, steps: int) -> Charges:
    """The same charges, `steps` steps later: for a mechanism whose step 1 is a later step of the stream."""
    spans = charges.spans.copy()
    spans[spans[:, UNITS] > 0, FIRST : LAST + 1] += steps
    return Charges(charges.first + steps, charges.units, spans)
