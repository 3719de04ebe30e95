"""The durable loop: steps in, releases committed with their ledger, state and position, and only then sent out."""

from tidegate.runtime.chunks import Chunk
from tidegate.runtime.durable import DurableRun
from tidegate.runtime.errors import SinkError, SinkUnavailable, StreamChanged
from tidegate.runtime.store import Store, open_store
from tidegate.runtime.stream import Stream, as_begun, open_stream
from tidegate.runtime.streams import Streams, open_streams

__all__ = [
    "Chunk",
    "DurableRun",
    "SinkError",
    "SinkUnavailable",
    "Store",
    "Stream",
    "StreamChanged",
    "Streams",
    "as_begun",
    "open_store",
    "open_stream",
    "open_streams",
]
