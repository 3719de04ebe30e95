"""The one way to compile a kernel: Numba, cached on disk under a hash of ALL kernel sources.

Numba's own cache notices a change of the file a function stands in, but not a change of a kernel that it
calls in another file, and would go on running stale machine code. Here the cache folder's name contains a
digest of every kernel source of the package, so any change of any kernel compiles all of them anew.

Kernels live in files named ``kernels.py`` or in folders named ``kernels``; a test keeps them there.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from tidegate.light_compiler import Cache, config, numba

PACKAGE = Path(__file__).parent
_F = TypeVar("_F", bound=Callable[..., Any])


def kernel_sources(package: Path = PACKAGE) -> list[Path]:
    """Every file that may hold a kernel, in a fixed order."""
    found = set(package.glob("**/kernels.py")) | set(package.glob("**/kernels/*.py"))
    return sorted(found | {package / "compiled.py"} if (package / "compiled.py").exists() else found)


def sources_digest(package: Path = PACKAGE) -> str:
    """A digest of all kernel sources and of the compiler's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in kernel_sources(package):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


@cache
def cache_folder() -> str:
    """Where machine code of the present sources is kept (NUMBA_CACHE_DIR moves it)."""
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home else Path.home() / ".cache"
    return str(base / "tidegate" / "kernels" / sources_digest())


def kernel(function: _F) -> _F:
    """Compile a function in nopython mode; the machine code is cached and never stale."""
    previous = config.CACHE_DIR
    config.CACHE_DIR = cache_folder()
    try:
        compiled = numba.njit(nogil=True)(function)
        compiled._cache = Cache(function)
        compiled.compile = _uninterrupted(compiled.compile)
        return cast(_F, compiled)
    finally:
        config.CACHE_DIR = previous


def _uninterrupted(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, with signals kept waiting until it is done: a compiler that is left halfway breaks its process."""

    @wraps(work)
    def waiting(*arguments: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            return work(*arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return waiting
