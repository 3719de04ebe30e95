"""Start Numba with what running compiled code needs, and compile each function once, with all that it calls.

Machine code that comes from the disk needs Numba's run time and its symbols. Before Numba loads the first of it, it looks
at more: at `scipy.linalg`, to see whether it is there (an eighth of a second; Tidegate depends on SciPy, so it is),
and at all that it knows of types and functions (another eighth). Both are loaded when something is compiled, as before.

Numba makes machine code of every function that a kernel calls, though the kernel has a copy of it: it optimises small
functions again in every caller. Here what a kernel calls (`Called`) is left as it was translated, and the optimiser
sees it once, in the kernel that Python calls (`Entry`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from pickle import UnpicklingError
from typing import Any

from tidegate import first_use

ENVIRONMENT = "_ZN08NumbaEnv"  # how names of what functions keep for exceptions begin
STAGES = (  # of making machine code, as this version of Numba calls them
    "_optimize_functions",
    "_optimize_final_module",
    "_finalize_final_module",
    "_finalize_dynamic_globals",
    "_finalize_specific",
)


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
    codegen: Any = import_module("numba.core.codegen")
    compiler: Any = import_module("numba.core.compiler")
    environment: Any = import_module("numba.core.environment")
    import_module("numba.cpython.hashing")  # has symbols of its own, as the run time has

KNOWN = all(
    hasattr(codegen.JITCodeLibrary, stage) for stage in STAGES
)  # otherwise Numba compiles in its own way


class _NoEngine:
    """A code generator whose engine has no code of a function, so that nothing can be put beside it."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def set_env(self, name: str, value: Any) -> None:
        """Leave it to the kernel that has a copy of the function."""


class _Translated(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A function that is only called by kernels: neither optimised nor made machine code by itself."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is none."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """The code generator."""
        return _NoEngine(self._codegen)


class _Optimised(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A kernel with all that it calls."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout  # all of it is optimised together, below

    def _finalize_specific(self) -> None:
        super()._finalize_specific()
        for variable in self._final_module.global_variables:
            found = (
                environment.lookup_environment(variable.name)
                if variable.name.startswith(ENVIRONMENT)
                else None
            )
            if found is not None:
                self._codegen.set_env(variable.name, found)


class _Numbered(compiler.Compiler):  # type: ignore[misc]
    """The usual compilation, whose code goes into a library of one's own."""

    library: Any
    numbers = count()

    def __init__(self, types: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(types, target, library, *rest)
        if KNOWN:
            self.state.library = self.library(target.codegen(), f"kernel {next(self.numbers)}")
            self.state.library.enable_object_caching()


class Called(_Numbered):
    """How a function is compiled that a kernel calls."""

    library = _Translated


class Entry(_Numbered):
    """How a kernel is compiled that Python calls."""

    library = _Optimised

    def __init__(self, *arguments: Any) -> None:
        first_use.begin()
        super().__init__(*arguments)


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
