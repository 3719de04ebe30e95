"""Standing questions: each is asked at every step, and answered from releases alone. Post-processing, free.

An operator takes releases one by one, in the order in which they left, and gives rows. It is a function of that order
and of nothing else: whoever hands it the stored releases again, however they are cut, gets the same rows.
"""

from tidegate.queries.standing.alarms import Alarm, Jump, LowSignal
from tidegate.queries.standing.averages import DecayedAverage, RunningAverage, SmoothWhereNoisy
from tidegate.queries.standing.comparisons import Ratio, RatioOfTwo, Share, Top
from tidegate.queries.standing.forecasts import ArmaForecast, SeasonalForecast, Unexpected
from tidegate.queries.standing.operator import Known, Meaning, Operator, Row
from tidegate.queries.standing.windows import CalendarWindow, Window

__all__ = [
    "Alarm",
    "ArmaForecast",
    "CalendarWindow",
    "DecayedAverage",
    "Jump",
    "Known",
    "LowSignal",
    "Meaning",
    "Operator",
    "Ratio",
    "RatioOfTwo",
    "Row",
    "RunningAverage",
    "SeasonalForecast",
    "Share",
    "SmoothWhereNoisy",
    "Top",
    "Unexpected",
    "Window",
]
