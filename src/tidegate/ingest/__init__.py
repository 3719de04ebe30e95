"""From events to steps: a public clock, and a bound on what one unit contributes."""

from tidegate.ingest.contributions import Contributions

__all__ = ["Contributions"]
