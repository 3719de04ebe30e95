"""Where releases go. A sink sees releases only: nothing here may import anything that sees data."""

from tidegate.sinks.factory import open_sink
from tidegate.sinks.sink import Sink

__all__ = ["Sink", "open_sink"]
