"""Releases a stream by its tidegate.toml, second by second of a clock of its own, and kills itself after a step."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tidegate.config import parse_queries
from tidegate.pipeline import open_pipeline


class World:
    """Whenever a step has been released, the clock continues and the next events arrive."""

    def __init__(self, folder: Path, start: float, last: int) -> None:
        self.folder, self.start, self.last = folder, start, last
        self.now = start

    def released(self, chunk: Any) -> None:
        """End at once, or continue."""
        step = int(chunk.step[-1])
        if step == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.arrive(step)

    def waiting(self, sentence: str) -> None:
        """Nothing."""

    def arrive(self, second: int) -> None:
        """More and more units, unless they are there already."""
        events = "".join(f"{self.start + second + 0.25},unit{k},north\n" for k in range(9 * second))
        if events not in (self.folder / "events.csv").read_text():
            with (self.folder / "events.csv").open("a") as file:
                file.write(events)
        self.now = self.start + second + 1.01


def main() -> None:
    """Arguments: the folder, and after which step to be killed (0: never)."""
    folder, last = Path(sys.argv[1]), int(sys.argv[2])
    path = folder / "tidegate.toml"
    queries = parse_queries(path.read_text(), path)
    world = World(folder, queries.first.steps.origin / 1e6, last)
    observers = {queries.first.name: world}
    with open_pipeline(queries, follow=True, observers=observers, clock=lambda: world.now) as pipeline:
        intake = queries.open(pipeline.position, follow=True, clock=lambda: world.now)
        world.arrive(pipeline.step)
        pipeline.drive(intake)
        pipeline.finish()
        intake.close()


if __name__ == "__main__":
    main()
