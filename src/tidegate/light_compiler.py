"""Start Numba with what running compiled code needs, and leave what compiling needs until something is compiled.

Machine code that comes from the disk needs Numba's run time and its symbols. Before Numba loads the first of it, it looks
at more: at `scipy.linalg`, to see whether it is there (an eighth of a second; Tidegate depends on SciPy, so it is),
and at all that it knows of types and functions (another eighth). Both are loaded when something is compiled, as before.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pickle import UnpicklingError
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


class _Locator(caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder that the caller names, whether or not it can be written; Numba would look for another one."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        """Where the machine code of a function is kept."""
        return cls(py_func, py_file)


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]  # noqa: RUF012  as Numba declares it


class Cache(caching.FunctionCache):  # type: ignore[misc]
    """Machine code in one folder on disk, or nowhere.

    Numba falls back to `__pycache__`, where a change of a kernel in another file is not seen. Here a folder that cannot
    be used, or holds something damaged, costs a compilation and nothing else. Loading machine code does not make
    ready for compiling, which a compilation does by itself.

    Parameters
    ----------
    function
        What is compiled.
    folder
        Where its machine code is kept.
    current
        Whether the folder still belongs to the sources on disk; if not, nothing is saved there.
    """

    _impl_class = _Implementation

    def __init__(self, function: Any, folder: str, current: Callable[[], bool]) -> None:
        before = {name: getattr(config, name, None) for name in ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")}
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = folder, ""
        try:
            super().__init__(function)
        finally:
            for name, value in before.items():
                setattr(config, name, value)
        self._current = current

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The function of a signature from the disk; None if it is not there."""
        runtime.rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except OSError:
            return None
        except (EOFError, UnpicklingError):  # a power cut may leave files without content
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the function of a signature, if that is possible."""
        if self._current():
            with suppress(OSError):
                self._save_overload(sig, data)
