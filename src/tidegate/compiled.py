"""The one way to compile a kernel: Numba, cached on disk under a hash of ALL kernel sources.

Numba's own cache notices a change of the file a function stands in, but not a change of a kernel that it
calls in another file, and would continue to run stale machine code. Here the cache folder's name contains a
digest of every kernel source of the package, so any change of any kernel compiles all of them again. Machine code is
kept in that folder or nowhere: where it cannot be written, every process compiles for itself.

The digest covers files named ``kernels.py``, folders named ``kernels``, and every file that imports from this module. A
test checks that no other file compiles anything.
"""

from __future__ import annotations

import gc
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from tidegate import first_use
from tidegate.light_compiler import Cache, Called, Entry, numba

PACKAGE = Path(__file__).parent
STACK = 64 * 2**20  # bytes, of the thread that compiles; they are used only where they are needed
_F = TypeVar("_F", bound=Callable[..., Any])
_compiling = threading.local()


def kernel_sources(package: Path = PACKAGE) -> list[Path]:
    """Every file that may hold a kernel, in a fixed order: those that import this one, and those named after kernels."""
    found = set(package.glob("**/kernels.py")) | set(package.glob("**/kernels/*.py"))
    found |= {
        path for path in package.glob("**/*.py") if b"from tidegate.compiled import" in path.read_bytes()
    }
    return sorted(found | {package / "compiled.py"} if (package / "compiled.py").exists() else found)


def sources_digest(package: Path = PACKAGE) -> str:
    """A digest of all kernel sources and of the compiler's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in kernel_sources(package):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


@cache
def cache_folder() -> str | None:
    """Where machine code of the present sources is kept (NUMBA_CACHE_DIR moves it); None for a user without a home."""
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(given) if given else Path.home() / ".cache"
    except RuntimeError:
        return None
    return str(base / "tidegate" / "kernels" / sources_digest())


def _current() -> bool:
    """Whether the sources are those of the folder: an upgrade may have replaced them since this process began."""
    folder = cache_folder()
    return folder is not None and Path(folder).name == sources_digest()


def kernel(function: _F) -> _F:
    """Compile a function in nopython mode; the machine code is cached and never stale."""
    return _compile(function, counts=True)


def lean(function: _F) -> _F:
    """Compile a function that makes no array, and returns none: it borrows those that it is given.

    Other kernels count references to every array that they take out of a tuple or look at a part of, which is an atomic
    instruction each time, and in a loop over steps more work than all the arithmetic. Whoever calls holds the arrays.
    """
    return _compile(function, counts=False)


def _compile(function: _F, counts: bool) -> _F:
    options = {"nogil": True, "_nrt": counts, "no_cfunc_wrapper": True}
    compiled = numba.njit(pipeline_class=Entry, **options)(function)
    called = numba.njit(pipeline_class=Called, no_cpython_wrapper=True, **options)(function)
    called.compile = called.compile if counts else _returning_no_array(called)
    compiled.get_call_template, compiled.get_overload = _for_any_number(called), called.get_overload
    folder = cache_folder()
    if folder is not None:
        compiled._cache = Cache(function, folder, _current)
    compiled.compile = _uninterrupted(compiled.compile if counts else _returning_no_array(compiled))
    return cast(_F, compiled)


def _for_any_number(called: Any) -> Callable[..., Any]:
    """How kernels find what they call: compiled once for all numbers, and not for each that is written in a call."""

    def template(arguments: Any, named: Any) -> Any:
        plain = [numba.types.unliteral(kind) for kind in arguments]
        return called.get_call_template(plain, {key: numba.types.unliteral(named[key]) for key in named})

    return template


def _returning_no_array(compiled: Any) -> Callable[..., Any]:
    """Its compilation, which refuses a function that would return what nobody has counted."""
    work = compiled.compile

    @wraps(work)
    def checked(*arguments: Any) -> Any:
        done = work(*arguments)
        for overload in compiled.overloads.values():
            if _has_array(overload.signature.return_type):
                raise TypeError(
                    f"{compiled.__name__} returns an array, so it has to be a kernel that counts references."
                )
        return done

    return checked


def _has_array(kind: Any) -> bool:
    """Whether a type of the compiler is an array, or a tuple with one."""
    return hasattr(kind, "ndim") or any(_has_array(part) for part in getattr(kind, "types", ()))


def _uninterrupted(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, which no signal handler interrupts: a compiler that is left halfway breaks its process.

    Blocked signals are not enough: another thread may take one, and its handler runs in the main thread all the same. So
    a thread of its own compiles, where no handler ever runs, and what handlers raise meanwhile is raised when it is done.
    """

    @wraps(work)
    def waiting(*arguments: Any) -> Any:
        if getattr(_compiling, "here", False):  # a kernel that is called by the one which is compiled
            return work(*arguments)
        outcome: Future[Any] = Future()

        def compile_apart() -> None:
            _compiling.here = True
            try:
                with _collecting_later():
                    result = work(*arguments)
                outcome.set_result(result)
            except BaseException as error:  # for whoever waits
                outcome.set_exception(error)
            finally:
                first_use.end()

        _start(compile_apart)
        raised: BaseException | None = None
        while True:
            try:
                error = outcome.exception()  # when it is done
                break
            except BaseException as interruption:
                raised = raised or interruption
        if raised is not None:
            raise raised
        if error is not None:
            raise error
        return outcome.result()

    return waiting


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Looking for garbage again and again would take a seventh of the time: it is collected when all is compiled."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _start(work: Callable[[], None]) -> None:
    """Do some work in a thread with as much stack as a compiler wants; here, where no thread can start any more."""
    try:
        before = threading.stack_size(STACK)
        try:
            threading.Thread(target=work, name="tidegate compiles", daemon=True).start()
        finally:
            threading.stack_size(before)
    except RuntimeError:  # the interpreter ends
        work()
