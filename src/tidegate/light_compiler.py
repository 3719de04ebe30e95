"""Start Numba with what running compiled code needs, and leave what compiling needs until something is compiled.

Machine code that comes from the disk needs Numba's run time and its symbols. Before Numba loads the first of it, it looks
at more: at `scipy.linalg`, to see whether it is there (an eighth of a second; Tidegate depends on SciPy, so it is),
and at all that it knows of types and functions (another eighth). Both are loaded when something is compiled, as before.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def _without_collection() -> Iterator[None]:
    """Nothing that is imported is garbage: looking for it, now or just after, costs a fifth of the start.

    What was imported is old at once, as it would be after some collections: it is set aside and put back.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what others have set aside stays there
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


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


with _without_collection():
    load()
    numba: Any = import_module("numba")
    config: Any = import_module("numba.core.config")
    caching: Any = import_module("numba.core.caching")
    runtime: Any = import_module("numba.core.runtime")
    import_module("numba.cpython.hashing")  # has symbols of its own, as the run time has


class Cache(caching.FunctionCache):  # type: ignore[misc]
    """Machine code on disk; loading it does not make ready for compiling, which a compilation does by itself."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The function of a signature from the disk; None if it is not there."""
        runtime.rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
