"""From a configuration to its sinks: how releases read, where they go, and which receipt belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidegate.config import Config
from tidegate.errors import InvalidParameter
from tidegate.pipeline.delivery import SinkState
from tidegate.pipeline.receipts import ENDING
from tidegate.sinks import Sink, open_sink
from tidegate.sinks.answer_file import AnswerFileSink, Beside
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError
from tidegate.sinks.layout import Layout


class NullSink(Sink):
    """For a service whose readers read the log itself: its receipt is written, and nothing is sent."""

    def __init__(self) -> None:
        super().__init__("the service's readers")

    def write(self, chunk: Chunk) -> None:
        """Nothing."""


def placed(config: Config, since: Mapping[str, int]) -> Config:
    """The query with outputs of its own, where an amendment has begun it after a step; a broker's topic is continued.

    Parameters
    ----------
    config
        The query.
    since
        Of all queries, the last step before their first one: an answer about two begins with the later.
    """
    begin = since[config.name]

    def later(location: str, begin: int) -> str:
        if not begin or location == "-" or "://" in location:
            return location
        path = Path(location)
        if location.endswith("/") or Path(config.locate(location)).is_dir():
            return f"{location.rstrip('/')}/from-{begin + 1}/"
        return str(path.with_name(f"{path.stem}.from-{begin + 1}{path.suffix}"))

    answers = tuple(
        replace(answer, location=later(answer.location, max(begin, since.get(answer.beside or "", 0))))
        for answer in config.answers
    )
    sink = replace(config.sink, location=later(config.sink.location, begin))
    return replace(config, sink=sink, answers=answers)


def layout_of(config: Config, since: int, stream: str, unit: Fraction, *, revised: bool) -> Layout:
    """How the releases of a query read.

    Parameters
    ----------
    config
        The query.
    since
        The last step before its first one.
    stream
        The beginning of every release's id.
    unit
        What a unit of its charges is worth.
    revised
        Whether a step can have several releases.
    """
    return Layout(
        labels=config.query.answer_labels,
        boundary=config.steps.boundary,
        zone=config.steps.zone,
        unit=unit,
        stream=stream,
        form="long" if config.query.discovers else config.sink.layout,  # its columns come and go
        revised=revised,
        answers=config.query.answers,
        bounds=config.query.intervals,
        # the parts of a hierarchy add up to their whole in what is written only with the same decimals for all nodes
        rounds=config.query.levels is None or config.query.aggregate == "quantile",
        guarantee=config.fingerprint,
        since=since,
        found=config.query.parts if config.query.discovers else 0,
    )


def configured_sink(
    config: Config, layout: Layout, known: Callable[[str], dict[str, Any] | None], *, follow: bool
) -> Sink:
    """The sink of a query.

    Parameters
    ----------
    config, layout
        The query, and how its releases read; `layout.revised` says whether steps may be released again.
    known
        What was noted of a sink by its name; None where nothing was.
    follow
        Whether the input is followed.
    """
    wanted, location = config.sink.revisions, config.locate(config.sink.location)
    if follow and wanted == "newest":
        raise InvalidParameter(
            "revisions",
            wanted,
            "auto or all while the input is followed, because rows that were read stay",
            "drop it",
        )
    appended = "://" in location or location.endswith("/") or Path(location).is_dir()
    newest = layout.revised and not appended and (wanted == "newest" or (wanted == "auto" and not follow))

    def opened(newest: bool) -> Sink:
        shown = replace(layout, revised=layout.revised and not newest)
        return open_sink(location, shown, format=config.sink.format, follow=follow, newest=newest)

    found = opened(newest)
    before = known(found.name)
    if before is not None and bool(before.get("newest")) != newest:
        if wanted != "auto":
            newest = bool(before.get("newest"))
        elif newest:  # it was begun with all revisions, and stays so
            newest = False
        elif Path(location).exists():
            raise SinkError(
                f"{config.sink.location} has one row per step, with its newest value, because its input was not "
                "followed; move it away, and it is written again with all revisions, or name another location in [sink]."
            )
        found = opened(newest)
    found.remembers = {"newest": newest}
    return found


def answer_sinks(
    config: Config,
    layout: Layout,
    all_queries: Mapping[str, tuple[Config, Callable[[int], Iterator[Chunk]]]],
    since: Mapping[str, int],
) -> list[Sink]:
    """A sink for each standing query.

    Parameters
    ----------
    config, layout
        The query that is asked.
    all_queries
        All of them, with what reads their releases after a number, for answers about two.
    since
        Of all queries, the last step before their first one.
    """

    def beside(name: str | None) -> Beside | None:
        if name is None:
            return None
        _, read_after = all_queries[name]
        begin = max(since[config.name], since[name])
        return Beside(read_after, since=begin)

    return [
        AnswerFileSink(
            config.locate(answer.location),
            answer.ask,
            layout.time,
            columns=config.mechanism.outputs,
            beside=beside(answer.beside),
        )
        for answer in config.answers
    ]


def receipt_path(config: Config, output: Path | None, log: Path | None, *, listed: bool) -> Path:
    """Where the receipt of an output is: where the configuration says, beside its file, or beside the log."""
    name = f"-{config.name}" if listed else ""
    if config.sink.receipt is not None:
        path = Path(config.locate(config.sink.receipt))
        return path.with_name(path.name + name)
    if output is not None:
        return output.with_name(output.name + ENDING)
    beside = log or config.path
    return beside.with_name(beside.name + name + ENDING)


def archive_previous_outputs(states: Sequence[SinkState], *, new_stream: bool, begun: bool) -> None:
    """Refuse outputs that another stream has written; or rename them, if a new stream is wanted there.

    Parameters
    ----------
    states
        The sinks of all queries: all of them are renamed that are occupied, or none.
    new_stream
        Accept the cost of a second stream.
    begun
        Whether this stream has released anything.
    """
    occupied = []
    for state in states:
        sink, receipt = state.sink, state.receipt
        another, anew = receipt is not None and receipt.of_another, new_stream and not begun
        if another and not anew:
            assert receipt is not None
            raise receipt.refuse_another(sink.name, begun=begun)
        sink.vouched = receipt is not None and receipt.matches
        if anew and (another or sink.occupied()):
            occupied.append(state)
        elif not begun:
            sink.refuse_occupied()
    if new_stream and not occupied:
        raise InvalidParameter(
            "new-stream",
            True,
            "used only where an output has releases of an earlier stream and the log is new, because it spends a second "
            "budget",
            "drop it",
        )
    for state in occupied:
        state.archive_previous_output()
