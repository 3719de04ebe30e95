"""Starts services as forks of a process that has loaded everything, so that a killed one is back at once.

For every line on stdin it forks a service; the service says its address on stdout as soon as it answers.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np

from tidegate.core.session import Session
from tidegate.mechanisms import catalogue
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.policy import WEvent
from tidegate.web import Settings, serve


def main(config: Path, port: int) -> None:
    """Fork a service for every line."""
    catalogue()
    for name in ("protocols.http.httptools_impl", "loops.uvloop", "lifespan.on"):
        importlib.import_module(f"uvicorn.{name}")
    # machine code is loaded once, by a session that publishes nothing
    with Session(Uniform(WEvent(epsilon="400", window=1), columns=2)) as session:
        session.push_batch(np.zeros((3, 2), dtype=np.int64))
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            settings = Settings(port=port, tokens=config.parent / "tokens.json")
            serve([config], settings, lambda address: print(json.dumps({"address": address}), flush=True))
            os._exit(0)
        print(json.dumps({"pid": child}), flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
