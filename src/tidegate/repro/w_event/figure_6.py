"""Figure 6: error against w on the Rome data."""

from __future__ import annotations

from typing import Any

from tidegate.repro.comparison import errors_of
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.w_event.common import (
    ROME,
    RUNS,
    WINDOWS,
    draw_two,
    judged,
    mechanisms,
    rome_stream,
)


def _settings(small: bool) -> list[dict[str, Any]]:
    columns, runs = (400, 1) if small else (25_936, RUNS)
    return [{"w": w, "columns": columns, "runs": runs} for w in (WINDOWS[::2] if small else WINDOWS)]


def _measure(setting: dict[str, Any]) -> list[Row]:
    truth = rome_stream(setting["columns"])
    return errors_of(mechanisms(setting["w"], setting["columns"]), truth, setting["runs"], w=setting["w"])


EXPERIMENT = Experiment(
    paper="w-event",
    name="Figure 6",
    claim="BA has the smallest error for every w: up to ten times below Uniform and FAST_w, up to five below Sample.",
    data=ROME,
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 13.0,
    judge=lambda frame: judged(frame, "w", "w", {"Uniform": 10, "FAST_w": 10, "Sample": 5, "BD": 1}),
    draw=lambda frame, figure: draw_two(frame, figure, "w", "w (steps)"),
    notes="Sample times of FAST_w are shared by all columns, which is what makes it private for moving units.",
)
