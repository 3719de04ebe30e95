from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ingest import held as module
from tidegate.ingest.held import Held

batches = st.lists(st.lists(st.integers(1, 6), max_size=4), max_size=20)


@given(batches, st.lists(st.integers(0, 6), min_size=1, max_size=4), st.sampled_from([2, 256]))
def test_nothing_open_is_behind_the_position(found: list[list[int]], closes: list[int], pieces: int) -> None:
    """Closing takes each row once, and the position is before every batch with an open row, and tight."""
    before, module._MOST_PIECES = module._MOST_PIECES, pieces
    try:
        held = Held()
        for number, steps in enumerate(found):
            held.add(pl.DataFrame({"time": steps}), np.array(steps, dtype=np.int64), {"batch": number})
        taken: list[int] = []
        for last in sorted(closes):
            rows, position = held.close(last, {"batch": len(found)})
            taken += [int(step) for _, numbers in rows for step in numbers]
            still_open = [number for number, steps in enumerate(found) if steps and max(steps) > last]
            assert position == {"batch": min(still_open, default=len(found))}
        everything = [step for steps in found for step in steps if step <= max(closes)]
        assert sorted(taken) == sorted(everything)
        assert len(held._marks) <= 6
        assert len(held._rows) <= max(pieces, 2)
    finally:
        module._MOST_PIECES = before
