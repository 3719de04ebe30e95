"""Which operating systems a ledger is safe on."""

from __future__ import annotations

import importlib.util
import os
import sys

from tidegate.errors import UnsupportedSystem


def check_system() -> None:
    """Refuse a system without what a ledger needs to be safe: locks of files, and word of a fork."""
    if importlib.util.find_spec("fcntl") is None or not hasattr(os, "register_at_fork"):
        raise UnsupportedSystem(
            f"Tidegate does not run on {sys.platform}, which has no fcntl to lock a ledger with; use Linux, or on "
            "Windows its subsystem for Linux (WSL)."
        )


def system_notice() -> str:
    """What whoever releases on this system should know; empty on Linux."""
    if sys.platform.startswith("linux"):
        return ""
    return (
        f"streams are tested on Linux only, where processes were killed and disks filled; on {sys.platform} use them to "
        "try things, and Linux to publish."
    )
