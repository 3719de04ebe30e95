"""Where events come from: files, a folder that files arrive in, a pipe, a broker."""

from tidegate.ingest.sources.directory import DirectorySource
from tidegate.ingest.sources.factory import open_source
from tidegate.ingest.sources.parquet import ParquetSource
from tidegate.ingest.sources.pipe import PipeSource
from tidegate.ingest.sources.source import EventBatch, EventSource, Position, Source
from tidegate.ingest.sources.text import TextSource

__all__ = [
    "DirectorySource",
    "EventBatch",
    "EventSource",
    "ParquetSource",
    "PipeSource",
    "Position",
    "Source",
    "TextSource",
    "open_source",
]
