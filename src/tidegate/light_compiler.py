"""Load Numba without `scipy.linalg`, which it imports only to see whether it is there: an eighth of a second of a start.

SciPy is a dependency of Tidegate, so it is there. Functions that need it import it when they are compiled, as before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def load() -> None:
    """Import the part of Numba that looks for `scipy.linalg`, and let it find it without a look."""
    if "numba.np.arraymath" in sys.modules:
        return
    try:
        linalg: Any = import_module("numba.np.linalg")
        ensure = linalg.ensure_blas
    except (ImportError, AttributeError):  # another version, which may be built in another way
        return
    linalg.ensure_blas = lambda: None
    try:
        import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure


load()
