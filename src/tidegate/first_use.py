"""Who is told that kernels are compiled: on first use only, and the next process finds them on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

USUAL = 25  # kernels that a first release compiles with the default mechanism

_listeners: list[Callable[[str], None]] = []
_compiled = 0  # kernels, by this process


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Let somebody know, in a few words, while a kernel is compiled; no words when it is done.

    The words come from the thread that compiles.
    """
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def begin() -> None:
    """A kernel is compiled, which was not on the disk."""
    global _compiled
    _compiled += 1
    _say(f"compiling, first use only ({_compiled} of {max(_compiled, USUAL)})")


def end() -> None:
    """It is compiled, or loaded."""
    _say("")


def _say(words: str) -> None:
    for tell in tuple(_listeners):
        tell(words)
