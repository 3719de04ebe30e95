"""All kernels once with bounds checked: none reads or writes beside an array, wherever a run begins."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import numba
import numpy as np

from tidegate.errors import BudgetExceeded
from tidegate.mechanisms import catalogue
from tidegate.testing.conformance import stream, used_ledger


@numba.njit
def beyond(array):
    return array[array.size]


try:
    beyond(np.zeros(3))
except IndexError:
    pass
else:
    raise SystemExit("bounds are not checked")

for mechanisms in catalogue().values():
    for mechanism in mechanisms.examples():
        rows = stream(mechanism, 40)
        for before in (0, 3):
            run = mechanism.start(ledger=used_ledger(mechanism, before))
            run.push_batch(rows[:25])
            run = mechanism.start(ledger=run.ledger, state=run.snapshot())
            run.push(rows[25])
            run.push_batch(rows[26:])
            again = mechanism.start(ledger=run.ledger)  # without the snapshot
            try:
                again.push_batch(rows[:20])
                again.push(rows[20])
            except BudgetExceeded:
                pass
"""


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(request):
    """Every example of every mechanism, begun at step 1, later, and again on its own ledger; code in its own folder."""
    folder = request.config.cache.mkdir("kernels-with-bounds")  # compiled anew only when kernels have changed
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
