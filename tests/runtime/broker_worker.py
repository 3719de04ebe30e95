"""Drives a stream from a broker until it is killed, with a clock that stands in a file."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.runtime.helpers import open_one

from tidegate.config import read_config


def main(folder: Path, clock: Path) -> None:
    """Until killed, or the clock has passed the last step."""
    config = read_config(folder / "tidegate.toml")
    with open_one(config, follow=True) as stream:
        intake = config.open(stream.position, follow=True, clock=lambda: float(clock.read_text() or 0))
        source: Any = intake.source

        def ready() -> None:
            while source.status.startswith("waiting"):
                time.sleep(0.005)
            (folder / "ready").touch()

        threading.Thread(target=ready, daemon=True).start()
        stream.drive(intake)
        stream.finish()
        intake.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
