"""From a location in words to a sink."""

from __future__ import annotations

from pathlib import Path

from tidegate.errors import InvalidParameter, check_scheme
from tidegate.servers.kafka import is_topic
from tidegate.servers.postgres import SCHEMES as POSTGRES
from tidegate.servers.postgres import is_table
from tidegate.sinks.latest_revision import NewestFileSink, NewestOutputSink
from tidegate.sinks.layout import Layout
from tidegate.sinks.parquet import ParquetFileSink, ParquetFolderSink, parquet_bytes
from tidegate.sinks.sink import Sink
from tidegate.sinks.text import StandardOutputSink, TextFileSink

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def open_sink(
    location: str, layout: Layout, *, format: str = "auto", follow: bool = False, newest: bool = False
) -> Sink:
    """A file, a folder for Parquet, "-" for standard output, or a broker, a topic or a table by its URL.

    Parameters
    ----------
    location
        Where releases go.
    layout
        How they read.
    format
        "csv", "jsonl" or "parquet"; "auto" goes by the name of the file.
    follow
        Whether the stream continues, so that the sink must be up to date after every step.
    newest
        Whether a file or standard output gets one row a step, the newest release of it, when the input has ended.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from tidegate.sinks.layout import Layout
    >>> layout = Layout(("hall",), lambda step: step * 3_600_000_000, "UTC", Fraction(1), "halls")
    >>> sink = open_sink("released.jsonl", layout)
    >>> sink.path.name, sink.occupied()
    ('released.jsonl', False)
    >>> open_sink("-", layout, format="parquet")
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: ...
    """
    check_scheme("location", location, ("mqtt", "mqtts", "kafka", *POSTGRES))
    if is_topic(location):
        from tidegate.sinks.kafka import KafkaSink

        return KafkaSink(location, layout)
    if is_table(location):
        from tidegate.sinks.postgres import PostgresSink

        return PostgresSink(location, layout)
    if location.startswith(("mqtt:", "mqtts:")):
        from tidegate.sinks.mqtt import MqttSink

        return MqttSink(location, layout)
    if location == "-":
        if format == "parquet":
            raise InvalidParameter("format", format, "csv or jsonl for standard output", "write it to a file")
        if format == "jsonl":
            return (
                NewestOutputSink(layout.json_lines) if newest else StandardOutputSink(b"", layout.json_lines)
            )
        if newest:
            return NewestOutputSink(layout.csv_file)
        return StandardOutputSink(layout.csv_header(), layout.csv)
    path = Path(location)
    folder = path.is_dir() or location.endswith("/")
    kind = ("parquet" if folder else FORMATS.get(path.suffix.lower(), "")) if format == "auto" else format
    if folder and kind != "parquet":
        raise InvalidParameter("location", location, "a file for csv and jsonl", "name a file in that folder")
    if not kind:
        raise InvalidParameter("format", format, "given for a file of this name", 'write format = "csv"')
    if kind == "parquet":
        if follow and not folder:
            raise InvalidParameter(
                "location",
                location,
                "a folder when Parquet is followed, because a file cannot be appended to",
                f'write "{path.with_suffix("")}/"',
            )
        if newest and not folder:
            return NewestFileSink(path, lambda chunk: parquet_bytes(chunk, layout))
        return ParquetFolderSink(path, layout) if folder else ParquetFileSink(path, layout)
    if newest:
        return NewestFileSink(path, layout.json_lines if kind == "jsonl" else layout.csv_file)
    if kind == "jsonl":
        return TextFileSink(path, b"", layout.json_lines)
    return TextFileSink(path, layout.csv_header(), layout.csv)
