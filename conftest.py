"""Noise of all tests and examples."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Callable

import pytest

from tidegate.noise import entropy

REPEATABLE = bool(os.environ.get("CI") or os.environ.get("TIDEGATE_REPEATABLE"))


def repeatable_urandom(seed: str) -> Callable[[int], bytes]:
    """What stands in for `os.urandom` where Tidegate calls it: bytes by seed, module and order of requests.

    Others have real ones, Numba's cache for one: it asks only where something was compiled. A fork has real ones too.
    """
    process, real = os.getpid(), os.urandom
    requests: dict[str, itertools.count[int]] = defaultdict(itertools.count)

    def urandom(size: int) -> bytes:
        module = sys._getframe(1).f_globals.get("__name__", "")
        if os.getpid() != process or not module.startswith("tidegate."):
            return real(size)
        return hashlib.shake_256(f"{seed} {module} {next(requests[module])}".encode()).digest(size)

    return urandom


@pytest.fixture(autouse=REPEATABLE)
def repeatable_noise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every change is checked a test has the same noise each time: it fails because of the change, or never.

    Everywhere else noise is fresh, so that a test which fails more often than it says is found there.
    """
    monkeypatch.setattr(os, "urandom", repeatable_urandom(request.node.nodeid))
    monkeypatch.setattr(entropy.SYSTEM, "_idle", entropy.Idle())
