"""All kernels once with bounds checked: none reads or writes beside an array, wherever a session begins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numba
import numpy as np

from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from every_mechanism import subjects


@numba.njit
def beyond(array):
    return array[array.size]


try:
    beyond(np.zeros(3))
except IndexError:
    pass
else:
    raise SystemExit("bounds are not checked")

for subject in subjects():
    rows = subject.rows(40)
    for first in (1, 4):
        log = MemoryLog()
        session = Session(subject.mechanism, log)
        session.push_batch(rows[:25], step=first)
        session = Session(subject.mechanism, log)  # resumed
        session.push(rows[25])
        session.push_batch(rows[26:])
"""


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(request):
    """Every example of every mechanism, begun at step 1 and later, and resumed; code in its own folder."""
    folder = request.config.cache.mkdir("kernels-with-bounds")  # compiled anew only when kernels have changed
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(folder),
        "PYTHONPATH": paths,
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
