"""The live view of a stream: steps, the window's budget as a gauge, the last releases, and the lag."""

from __future__ import annotations

import datetime
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidegate.cli.tables import facts_table, gauge, plain_table
from tidegate.first_use import telling

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tidegate.config import Config, Queries
    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.status import StatusReporter
    from tidegate.sinks.chunks import Chunk

LAST = 6  # releases that are shown
WIDEST = 6  # columns that are shown


class LineView:
    """For pipes and machines: one line when something has to be waited for, and nothing else."""

    def stage(self, words: str) -> None:
        """Nothing."""

    def begin(self, pipeline: Pipeline, query: str) -> None:
        """Nothing."""

    def released(self, chunk: Chunk) -> None:
        """Nothing."""

    def say(self, sentence: str) -> None:
        """One line."""
        print(f"tidegate: {sentence}", file=sys.stderr, flush=True)

    def waiting(self, sentence: str) -> None:
        """One line."""
        if sentence:
            self.say(sentence)

    def failed(self, sentence: str) -> None:
        """Nothing: whoever called says it."""


class View(LineView):
    """What people see while a stream runs. Everything in it is released already."""

    def __init__(self, config: Config, *, live: bool, title: str = "tidegate") -> None:
        self.config, self.title = config, title
        self.live = live
        self.words = "starting"
        self.compiling = ""
        self.wait = ""
        self.step: int | None = None  # the last one that was committed; None before the stream is open
        self.pipeline: Pipeline | None = None
        self.first = 0
        self.begun = time.monotonic()
        self.last: deque[tuple[int, list[float], str]] = deque(maxlen=LAST)
        self.lag: float | None = None
        self.spent = 0.0  # the part of the budget that the last window spent

    # what the stream tells ----------------------------------------------------------------------------------

    def stage(self, words: str) -> None:
        """What is being done."""
        self.words = words

    def compile(self, words: str) -> None:
        """A kernel is compiled; no words: it is done."""
        self.compiling = words

    def begin(self, pipeline: Pipeline, query: str) -> None:
        """The stream is open."""
        self.pipeline, self.query = pipeline, query
        self._measure()
        self.first = self.step or 0

    def _measure(self) -> None:
        """Ask the session here and not while drawing, which another thread does."""
        assert self.pipeline is not None
        session, limit = self.pipeline.session, self.pipeline.released[self.query].units
        self.step = session.steps[self.query]
        self.spent = min(session.spent[self.query] / limit, 1.0)

    def released(self, chunk: Chunk) -> None:
        """Releases have left."""
        import numpy as np

        from tidegate.releases import Status

        self._measure()
        if not len(chunk):
            return
        self.words = ""
        answers = self.config.query.answers(chunk.values[-LAST:, :])
        if chunk.categories is not None:  # how many are open, and all others together
            opened = (chunk.categories.opened[-LAST:] > 0).sum(axis=1)
            rest = len(self.config.query.columns) - 1
            answers = np.column_stack([opened, answers[:, rest]])
        for step, values, status in zip(chunk.step[-LAST:], answers, chunk.status[-LAST:], strict=True):
            self.last.append((int(step), values[:WIDEST].tolist(), Status(int(status)).label))
        closed = self.config.steps.boundary(int(chunk.step[-1]) + 1) / 1e6
        lateness = self.config.steps.lateness
        assert isinstance(lateness, int)
        self.lag = time.time() - closed - lateness

    def say(self, sentence: str) -> None:
        """One line that stays."""
        self.wait = sentence

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached, or can again."""
        self.wait = sentence

    # what people see ----------------------------------------------------------------------------------------

    def __rich__(self) -> RenderableType:
        """Draw everything again."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        parts: list[RenderableType] = [self._facts()]
        if self.last:
            table = plain_table("step")
            labels = self.config.query.answer_labels
            labels = ("open categories", "other") if self.config.query.discovers else labels
            for label in labels[:WIDEST]:
                table.add_column(Text(label), justify="right", overflow="ellipsis", no_wrap=True)
            table.add_column("…" if len(labels) > WIDEST else "")
            for step, values, status in self.last:
                table.add_row(f"{step:,}", *map(_shown, values), status)
            parts += [Text(), table]
        if self.wait:
            parts += [Text(), Text(self.wait, style="yellow")]
        return Panel(Group(*parts), title=self.title, title_align="left", border_style="cyan")

    def _facts(self) -> RenderableType:
        facts = facts_table()
        step = self.step or 0
        total = self.config.steps.count
        pace = (step - self.first) / max(time.monotonic() - self.begun, 1e-9)
        words = (
            f"{step:,}"
            + (f" of {total:,}" if total else "")
            + (f"   {pace:,.1f}/s" if step > self.first else "")
        )
        doing = self.compiling or self.words
        facts.add_row("Steps", words + (f"   {doing} …" if doing else ""))
        if self.step is not None:
            facts.add_row("Window", self._gauge())
        if self.live and self.lag is not None:
            lag = (
                f"{1000 * self.lag:,.0f} ms"
                if self.lag < 10
                else str(datetime.timedelta(seconds=int(self.lag)))
            )
            facts.add_row("Lag", f"{lag} from the close of the last step to its release")
        return facts

    def _gauge(self) -> RenderableType:
        window = self.config.policy.window
        where = "all steps" if window is None else f"the last {window:,} steps"
        return gauge(self.spent, f"{self.spent:.0%} of the budget spent in {where}")


def _shown(value: float) -> str:
    if value != value:
        return "–"  # no reading
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.4g}"


class QueryObserver:
    """Passes what happens to one query to its view and to the status reporter."""

    def __init__(self, view: Any, observers: Observers) -> None:
        self.view, self._observers = view, observers

    def released(self, chunk: Chunk) -> None:
        """Releases have left."""
        self.view.released(chunk)
        self._observers.released()

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached, or can again."""
        self.view.waiting(sentence)
        self._observers.note_waiting(sentence)


class Observers:
    """The views of a stream, one for each query, and its status reporter."""

    def __init__(self, views: dict[str, Any]) -> None:
        self.views = views
        self.first = next(iter(views.values()))
        self.each = {name: QueryObserver(view, self) for name, view in views.items()}
        self.stage, self.say = self.first.stage, self.first.say
        self.reporter: StatusReporter | None = None
        self._pipeline: Pipeline | None = None

    @contextmanager
    def of(self, reporter: StatusReporter) -> Iterator[StatusReporter]:
        """Report the end of the stream, and why it ended."""
        from tidegate.errors import TidegateError

        self.reporter = reporter
        try:
            yield reporter
            reporter.end("ended")
        except TidegateError as error:
            self._failed(str(error))
            raise
        except OSError as error:
            self._failed(error.strerror or type(error).__name__)
            raise
        except BaseException as error:
            self._failed(f"unexpected {type(error).__name__}")  # its text may quote data
            raise

    def _failed(self, sentence: str) -> None:
        assert self.reporter is not None
        self.reporter.end("failed", sentence)
        self.first.failed(sentence)

    def begin(self, pipeline: Pipeline) -> None:
        """The stream is open."""
        self._pipeline = pipeline
        for name, view in self.views.items():
            view.begin(pipeline, name)
        if self.reporter is not None:
            self.reporter.begin(pipeline)

    def released(self) -> None:
        """Releases of a query have left."""
        if self.reporter is not None and self._pipeline is not None:
            self.reporter.released(self._pipeline)

    def waiting(self, sentence: str) -> None:
        """The source cannot be reached, or can again."""
        self.first.waiting(sentence)
        self.note_waiting(sentence)

    def note_waiting(self, sentence: str) -> None:
        """Report why something waits."""
        if self.reporter is not None:
            self.reporter.waiting(sentence)


@contextmanager
def observing(queries: Queries, *, live: bool, quiet: bool) -> Iterator[Observers]:
    """A view on stderr while the stream runs; lines where nobody looks."""
    from rich.console import Console

    console: Console = Console(stderr=True)
    if queries.first.run.log == "json":
        from tidegate.pipeline.json_log import JsonLog

        names = [config.name for config in queries.parts]
        yield Observers({name: JsonLog(name if queries.listed else "") for name in names})
        return
    if quiet or not console.is_terminal:
        yield Observers({config.name: LineView() for config in queries.parts})
        return
    from rich.console import Group
    from rich.live import Live

    views = {
        config.name: View(config, live=live, title=config.name if queries.listed else "tidegate")
        for config in queries.parts
    }
    observers = Observers(views)
    view = Live(Group(*views.values()), console=console, refresh_per_second=8, transient=True)
    with view, telling(observers.first.compile):
        yield observers
