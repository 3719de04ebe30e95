"""From events to steps: a public clock, and a bound on what one unit contributes."""

from tidegate.clock.steps import PublicClock, Steps
from tidegate.ingest.blocks import StepBlock
from tidegate.ingest.columns import Columns, Intervals
from tidegate.ingest.combined_query import CombinedQuery
from tidegate.ingest.condition import Condition
from tidegate.ingest.contributions import Contributions
from tidegate.ingest.intake import Intake
from tidegate.ingest.lookup import Lookup, read_lookup
from tidegate.ingest.query import Query
from tidegate.ingest.schema import Schema
from tidegate.ingest.sources import EventSource, Source, open_source

__all__ = [
    "Columns",
    "CombinedQuery",
    "Condition",
    "Contributions",
    "EventSource",
    "Intake",
    "Intervals",
    "Lookup",
    "PublicClock",
    "Query",
    "Schema",
    "Source",
    "StepBlock",
    "Steps",
    "open_source",
    "read_lookup",
]
