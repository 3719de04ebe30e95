"""Which process this is: a fork must neither reuse a keystream nor spend its parent's budget again; and its secrets."""

from __future__ import annotations

import os

from tidegate.system import check_system

check_system()  # before anything that only some systems have
epoch = object()
"""A token that stays the same in one process and differs in every fork of it: read it as `process.epoch`."""


def _renew() -> None:
    global epoch
    epoch = object()


os.register_at_fork(after_in_child=_renew)


def secret(size: int) -> bytes:
    """Bytes that nobody outside of this process knows: for keyed hashing, never for noise."""
    return os.urandom(size)
