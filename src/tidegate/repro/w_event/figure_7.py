"""Figure 7: error against w on the World Cup data."""

from __future__ import annotations

from typing import Any

from tidegate.repro.comparison import errors_of
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.w_event.common import (
    RUNS,
    URLS,
    WINDOWS,
    draw_two,
    judged,
    mechanisms,
    url_stream,
)


def _settings(small: bool) -> list[dict[str, Any]]:
    columns, runs = (400, 1) if small else (30_000, RUNS)
    return [{"w": w, "columns": columns, "runs": runs} for w in (WINDOWS[::2] if small else WINDOWS)]


def _measure(setting: dict[str, Any]) -> list[Row]:
    truth = url_stream(setting["columns"], 15)
    return errors_of(mechanisms(setting["w"], setting["columns"]), truth, setting["runs"], w=setting["w"])


EXPERIMENT = Experiment(
    paper="w-event",
    name="Figure 7",
    claim="BA beats Uniform by two orders of magnitude, Sample by up to three, FAST_w by one and BD by up to 51 %.",
    data=URLS + " The 30,000 most popular of 89,997 URLs.",
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 13.0,
    judge=lambda frame: judged(frame, "w", "w", {"Uniform": 100, "Sample": 1000, "FAST_w": 10, "BD": 2}),
    draw=lambda frame, figure: draw_two(frame, figure, "w", "w (steps)"),
)
