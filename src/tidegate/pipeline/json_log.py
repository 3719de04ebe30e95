"""Logs for machines: one JSON object a line on stderr, for events of operation. Nothing of the data, ever."""

from __future__ import annotations

import datetime
import json
import sys
import threading
from typing import TYPE_CHECKING, Any

from tidegate.errors import without_secrets

if TYPE_CHECKING:
    from tidegate.pipeline import Pipeline
    from tidegate.sinks.chunks import Chunk

_lock = threading.Lock()


def log(event: str, **facts: Any) -> None:
    """Write one line."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "event": event, **facts}, ensure_ascii=False, default=str)
    with _lock:
        print(without_secrets(line), file=sys.stderr, flush=True)


class JsonLog:
    """A watcher that writes down each event of operation; with the name of its query where there are several."""

    def __init__(self, query: str = "") -> None:
        self._query = {"query": query} if query else {}

    def log(self, event: str, **facts: Any) -> None:
        """Write one line, with the name of the query."""
        log(event, **self._query, **facts)

    def stage(self, words: str) -> None:
        """What is being done."""
        self.log("stage", words=words)

    def begin(self, pipeline: Pipeline, query: str) -> None:
        """The stream is open."""
        self.log("opened", stream=pipeline.identity[:12], step=pipeline.session.steps[query])

    def released(self, chunk: Chunk) -> None:
        """Releases have left; their numbers are where they went."""
        if len(chunk):
            self.log("released", releases=len(chunk), last_step=int(chunk.step.max(initial=0)))

    def say(self, sentence: str) -> None:
        """Something that people should read."""
        self.log("notice", sentence=sentence)

    def waiting(self, sentence: str) -> None:
        """A sink or the source cannot be reached, or can again."""
        if sentence:
            self.log("waiting", sentence=sentence)
        else:
            self.log("reached")

    def failed(self, sentence: str) -> None:
        """The stream has stopped, and why."""
        self.log("failed", sentence=sentence)
