"""Figure 9: error against the number of steps a day on the World Cup data."""

from __future__ import annotations

from typing import Any

from tidegate.repro.comparison import errors_of
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.w_event.common import RUNS, URLS, draw_two, judged, mechanisms, url_stream

W = 120


def _settings(small: bool) -> list[dict[str, Any]]:
    columns, runs, rates = (300, 1, (5, 15)) if small else (20_000, RUNS, (5, 10, 15, 20, 25))
    return [{"steps a day": rate, "columns": columns, "runs": runs} for rate in rates]


def _measure(setting: dict[str, Any]) -> list[Row]:
    rate = setting["steps a day"]
    truth = url_stream(setting["columns"], rate)
    return errors_of(mechanisms(W, setting["columns"]), truth, setting["runs"], **{"steps a day": rate})


EXPERIMENT = Experiment(
    paper="w-event",
    name="Figure 9",
    claim="BD and BA beat the plain methods by one to three orders of magnitude, whatever the number of steps a day.",
    data=URLS + " The 20,000 most popular of 89,997 URLs.",
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 13.0,
    judge=lambda frame: judged(
        frame, "steps a day", "steps a day", {"Uniform": 10, "Sample": 10, "FAST_w": 1}, ("BA", "BD")
    ),
    draw=lambda frame, figure: draw_two(frame, figure, "steps a day", "steps a day"),
)
