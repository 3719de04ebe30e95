"""What there is only so much of, shared among those who send: nobody can take so much that others find nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Quota:
    """So many bytes or requests, for all holders of tokens together.

    Nobody may hold more than is left free. So one alone has half of the room, of two that want everything each has a
    third, and there is always as much left for another as each of them has.

    Parameters
    ----------
    most
        All there is.

    Examples
    --------
    >>> room = Quota(100)
    >>> room.fits("greedy", 51), room.take("greedy", 50), room.fits("other", 25), room.fits("other", 26)
    (False, None, True, False)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: dict[str, int] = {}

    def fits(self, holder: str, size: int) -> bool:
        """Whether somebody may take so much more."""
        return self._held.get(holder, 0) + size <= self.most - self.taken - size

    def held(self, holder: str) -> int:
        """How much somebody has."""
        return self._held.get(holder, 0)

    def take(self, holder: str, size: int) -> None:
        """Take so much."""
        self.taken += size
        self._held[holder] = self._held.get(holder, 0) + size

    def give(self, holder: str, size: int) -> None:
        """Give so much back."""
        self.taken -= size
        left = self._held.pop(holder, 0) - size
        if left:
            self._held[holder] = left


class Queues:
    """One at a time of each holder, in the order in which they came; different holders do not wait for each other."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        """Wait for one's turn, and have it."""
        lock, waiting = self._locks.setdefault(holder, (asyncio.Lock(), []))
        waiting.append(None)
        try:
            async with lock:
                yield
        finally:
            waiting.pop()
            if not waiting:
                del self._locks[holder]
