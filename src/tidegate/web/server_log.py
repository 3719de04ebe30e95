"""Logs for machines: one JSON object a line on stderr, for events of operation. Nothing of the data, ever."""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.pipeline.json_log import log


@contextmanager
def only_lines() -> Iterator[None]:
    """Let nothing reach stderr meanwhile that this process does not write through Python.

    A library in another language that fails prints what it pleases, in lines that are no JSON and may quote what was
    sent. Of those their number is logged.
    """
    before, there = sys.stderr, os.dup(2)
    end, begin = os.pipe()
    os.dup2(begin, 2)
    os.close(begin)

    def count() -> None:
        while select.select([end], [], []):
            time.sleep(0.1)  # a failure is written in many small pieces
            if not (content := os.read(end, 65536)):
                break
            log("library.failed", lines=content.count(b"\n"))
        os.close(end)

    reader = threading.Thread(target=count, name="stderr", daemon=True)
    with os.fdopen(os.dup(there), "w", encoding="utf-8", errors="backslashreplace") as stream:
        sys.stderr = stream
        reader.start()
        try:
            yield
        finally:
            os.dup2(there, 2)  # which ends the pipe
            os.close(there)
            reader.join(5)
            sys.stderr = before


class ServerLog(logging.Handler):
    """What the HTTP server has to say, without tracebacks: their text might quote what was sent."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line, or none below a warning."""
        if record.exc_info and record.exc_info[0] is not None:
            log("server.error", kind=record.exc_info[0].__name__)
        elif record.levelno >= logging.WARNING:
            log("server.warning", words=record.msg if not record.args else str(record.msg))


def quiet_server() -> None:
    """Send the server's own loggers through :class:`ServerLog`."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers = [ServerLog()] if name == "uvicorn" else []
        logger.propagate = name != "uvicorn"
        logger.setLevel(logging.WARNING)
