"""From a location in words to a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import SourceUnavailable
from tidegate.ingest.sources.directory import DirectorySource, format_of
from tidegate.ingest.sources.parquet import ParquetSource
from tidegate.ingest.sources.pipe import PipeSource
from tidegate.ingest.sources.source import EventSource
from tidegate.ingest.sources.text import TextSource
from tidegate.servers.kafka import is_topic
from tidegate.servers.postgres import is_table

FORMATS = ("auto", "csv", "jsonl", "parquet")


def open_source(
    location: str | Path,
    columns: Sequence[str],
    *,
    format: str = "auto",
    separator: str = ",",
    follow: bool = False,
    pattern: str = "*",
    completed: str = "rename",
    settle: float = 10.0,
    client: str = "",
    fields: Sequence[str] = (),
) -> EventSource:
    r"""Open a file, a folder, "-" for standard input, or a broker, a topic or a table by its URL.

    Parameters
    ----------
    location
        Where the events are.
    columns
        The columns that are needed.
    format
        "csv", "jsonl" or "parquet"; "auto" goes by the name of the file.
    follow
        Whether the input continues to arrive.
    separator, pattern, completed, settle, client, fields
        See the sources that use them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from tidegate.ingest import open_source
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "events.csv"
    >>> _ = file.write_text("time,device,place\n60,a,hall\n90,b,hall\n4000,a,yard\n")

    >>> with open_source(file, ["time", "device"]) as source:
    ...     [batch.frame.height for batch in source.batches()]
    [3]
    >>> folder.cleanup()
    """
    if format not in FORMATS:
        raise InvalidParameter(
            "format", format, "one of " + ", ".join(FORMATS), 'write for example format="csv"'
        )
    place = str(location)
    if place == "serve:":
        raise SourceUnavailable(
            'events of location = "serve:" are sent by HTTP; start it with `tidegate serve`.'
        )
    if place.startswith(("mqtt:", "mqtts:")):
        from tidegate.ingest.sources.mqtt import MqttSource

        kind = "jsonl" if format == "auto" else format
        return MqttSource(place, columns, client=client, format=kind, fields=fields, separator=separator)
    if is_topic(place):
        from tidegate.ingest.sources.kafka import KafkaSource

        kind = "jsonl" if format == "auto" else format
        return KafkaSource(place, columns, follow=follow, format=kind, fields=fields, separator=separator)
    if is_table(place):
        from tidegate.ingest.sources.postgres import TableSource

        return TableSource(place, columns, follow=follow, settle=settle)
    if place == "-":
        if format == "parquet":
            raise InvalidParameter(
                "format", format, "csv or jsonl for standard input", "write the Parquet to a file"
            )
        return PipeSource(
            columns,
            format="csv" if format == "auto" else format,
            separator=separator,
            follow=follow,
        )
    path = Path(place)
    if path.is_dir():
        return DirectorySource(
            path,
            columns,
            pattern=pattern,
            completed=completed,
            settle=settle,
            follow=follow,
            separator=separator,
            format=format,
        )
    kind = (format_of(path) or "") if format == "auto" else format
    if not kind:
        if not path.exists():
            raise SourceUnavailable(f"there is no file or folder {place!r}; check the location.")
        raise InvalidParameter("format", format, "given for a file of this name", 'write format="csv"')
    if kind == "parquet":
        if follow:
            raise InvalidParameter(
                "follow", True, "used with a folder for Parquet", "put the files into a folder"
            )
        return ParquetSource(path, columns)
    return TextSource(path, columns, format=kind, separator=separator, follow=follow)
