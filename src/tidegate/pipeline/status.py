"""The status of a running stream: a status file, and the watchdog signal to systemd.

A thread of its own writes down what the stream last said of itself, so that a stream that hangs is seen to hang. All of
it is public: the clock, the configuration, the last step, the budget, and whether sinks and source answer.
"""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.config import Config
from tidegate.errors import TidegateError, without_secrets
from tidegate.pipeline.systemd import Notifier
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import check_earlier, replacing
from tidegate.version import __version__

if TYPE_CHECKING:
    from tidegate.pipeline import Pipeline

EVERY = 1.0  # seconds between two looks
_BEGIN = b'{\n  "time"'  # of every status file
HANGS = 60.0  # seconds without a sign of the loop after which it is said to hang


class Heartbeat:
    """A clock that remembers when it was last asked: the loop asks it all the time, unless it hangs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.last = time.monotonic()

    def __call__(self) -> float:
        """Seconds since 1970."""
        self.last = time.monotonic()
        return self._clock()

    @property
    def set_by(self) -> float:
        """By how many seconds the system's clock was set since the start."""
        return float(getattr(self._clock, "set_by", 0.0))

    @property
    def silent(self) -> float:
        """For how many seconds nobody has asked."""
        return time.monotonic() - self.last


class StatusReporter:
    """Looks at a stream every second, from a thread of its own.

    Parameters
    ----------
    config
        Its configuration.
    live
        Whether the stream continues, so that its loop may be expected to stir.
    notifier
        For tests.
    """

    def __init__(
        self,
        config: Config,
        *,
        live: bool,
        notifier: Notifier | None = None,
    ) -> None:
        self._config, self._live = config, live
        self._notifier = notifier or Notifier()
        self._path = None if config.run.status is None else Path(config.locate(config.run.status))
        self._facts: dict[str, Any] = {}
        self._sentence = ""
        self._heart: Heartbeat | None = None
        self._source: Any = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # what the stream tells ----------------------------------------------------------------------------------

    def begin(self, pipeline: Pipeline) -> None:
        """The stream is open; refuse a status file that cannot be written."""
        self._facts = {"state": "running", "stream": pipeline.identity[:12]}
        self.measure(pipeline)
        if self._path is not None:
            check_earlier("status", self._path, "status file", _BEGIN)
        try:
            self._write()
        except OSError as error:
            raise SinkError(
                f"the status file {self._path} cannot be written ({error.strerror or type(error).__name__}); make its "
                "folder writable, or name another with status in [run]."
            ) from None

    def watch(self, heart: Heartbeat, source: Any) -> None:
        """The loop begins: systemd hears of it, and the thread starts."""
        self._heart, self._source = heart, source
        self._notifier.send(READY="1", STATUS=self._words())
        self._thread = threading.Thread(target=self._look, name="status", daemon=True)
        self._thread.start()

    def measure(self, pipeline: Pipeline) -> None:
        """Note where the stream stands; on its own thread, because the log belongs to it."""
        with suppress(TidegateError):
            self._facts = {
                **self._facts,
                "step": pipeline.step,
                "releases": pipeline.releases,
                "budget": pipeline.budget,
                "sinks": pipeline.backlogs,
            }

    def released(self, pipeline: Pipeline) -> None:
        """Releases have left."""
        self._facts["released_at"] = _iso(time.time())
        self.measure(pipeline)

    def waiting(self, sentence: str) -> None:
        """A sink or the source cannot be reached; "" when it can again."""
        self._sentence = sentence

    def closing(self) -> None:
        """The loop has ended, and nothing stirs any more while sinks get the rest and the log is checked."""
        self._heart = None
        self._notifier.send(STOPPING="1")

    def end(self, state: str, sentence: str = "") -> None:
        """The stream has ended, was stopped or has failed."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._notifier.send(STOPPING="1", STATUS=sentence or state)
        if self._thread is not None:
            self._thread.join(2 * EVERY)
        if self._facts:
            self._facts["state"], self._sentence = state, sentence
            with suppress(OSError):
                self._write()

    # what it does -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        alive = EVERY if self._notifier.every is None else min(EVERY, self._notifier.every)
        while not self._ended.wait(alive):
            if self._alive:
                self._notifier.send(WATCHDOG="1", STATUS=self._words())
            with suppress(OSError):  # a full disk does not stop a stream; the old time in the file shows it
                self._write()

    @property
    def _alive(self) -> bool:
        heart = self._heart
        limit = HANGS if self._notifier.every is None else max(self._notifier.every, 1.0)
        return not self._live or heart is None or heart.silent < limit

    def _words(self) -> str:
        facts = self._facts
        return self._sentence or f"step {facts.get('step', 0):,}, {facts.get('releases', 0):,} releases"

    def facts(self) -> dict[str, Any]:
        """What is written down."""
        now = time.time()
        steps, facts = self._config.steps, dict(self._facts)
        step = int(facts.get("step", 0))
        found: dict[str, Any] = {"time": _iso(now), "version": __version__, **facts}
        if self._live and facts.get("state") == "running":
            due = min(steps.closed_by(now), steps.count or 2**62)
            late = now - steps.boundary(step + 2) / 1e6 - _seconds(steps.lateness) if due > step else 0.0
            found["steps_behind"] = max(0, due - step)
            found["lag_seconds"] = max(0, round(late))
            if not self._alive:
                found["state"] = "hangs"
            elif self._sentence:
                found["state"] = "waiting"
            found["source"] = {"connected": not _silent(self._source)}
            found["clock_set_by_seconds"] = 0 if self._heart is None else round(self._heart.set_by)
        if self._sentence:
            found["sentence"] = without_secrets(self._sentence)
        return found

    def _write(self) -> None:
        """Replace the file by one that is complete; whoever reads it never sees half of it."""
        if self._path is None:
            return
        text = json.dumps(self.facts(), indent=2, ensure_ascii=False) + "\n"
        with replacing(self._path, safe=False) as file:
            file.write(text.encode())


def _silent(source: Any) -> bool:
    return str(getattr(source, "status", "")).startswith("waiting")


def _seconds(lateness: object) -> float:
    return float(lateness) if isinstance(lateness, int | float) else 0.0


def _iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="seconds")
