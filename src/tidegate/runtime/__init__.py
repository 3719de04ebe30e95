"""What the pipeline is made of beside the log: releases as columns, sinks, clock, status, reports."""

from tidegate.runtime.chunks import Chunk
from tidegate.runtime.errors import SinkError, SinkUnavailable

__all__ = ["Chunk", "SinkError", "SinkUnavailable"]
