"""Words to systemd: the service is ready, alive, or stopping. One datagram each, without a library."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Sends to the socket that systemd names in the environment; silent where there is none.

    Parameters
    ----------
    environment
        Where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` stand.

    Attributes
    ----------
    every
        How many seconds may pass between two signs of life, half of what systemd waits; None where it asks for none.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        place = given.get("NOTIFY_SOCKET", "")
        # a name that begins with @ is one without a file
        self._address = "\0" + place[1:] if place.startswith("@") else place
        self.every: float | None = None
        meant = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        with suppress(ValueError):
            wanted = int(given.get("WATCHDOG_USEC", "0"))
            if wanted > 0 and meant and self._address:
                self.every = wanted / 2e6

    def send(self, **words: str) -> None:
        """Send some assignments, such as ``READY="1"``; whoever cannot be reached is not waited for."""
        if not self._address:
            return
        text = "\n".join(f"{name}={' '.join(value.split())}" for name, value in words.items())
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            sender.sendto(text.encode(), self._address)
