"""Logs for machines: one JSON object a line on stderr, for events of operation. Nothing of the data, ever."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
from typing import Any

_lock = threading.Lock()


def log(event: str, **facts: Any) -> None:
    """Write one line."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "event": event, **facts}, ensure_ascii=False, default=str)
    with _lock:
        print(line, file=sys.stderr, flush=True)


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
