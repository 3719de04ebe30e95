"""Figure 8: error against the magnitude of change, on four groups of Rome's roads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.repro.comparison import errors_of
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.w_event.common import ROME, RUNS, draw_two, judged, mechanisms, rome_stream

W = 120


def _settings(small: bool) -> list[dict[str, Any]]:
    columns, runs = (800, 1) if small else (25_936, RUNS)
    return [{"part": part, "columns": columns, "runs": runs} for part in range(4)]


def _measure(setting: dict[str, Any]) -> list[Row]:
    stream = rome_stream(setting["columns"])
    squares = np.sqrt((stream.astype(float) ** 2).mean(axis=0))
    order = np.argsort(squares, kind="stable")
    members = np.array_split(order, 4)[setting["part"]]
    truth = np.ascontiguousarray(stream[:, members])
    rms = round(float(squares[members].mean()), 1)
    return errors_of(mechanisms(W, len(members)), truth, setting["runs"], rms=rms)


EXPERIMENT = Experiment(
    paper="w-event",
    name="Figure 8",
    claim="BA and BD beat all others at every magnitude of change, and BA is the most robust when it is large.",
    data=ROME + " Roads are sorted by their root mean square into four streams.",
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 12.0,
    judge=lambda frame: judged(
        frame, "rms", "root mean square", {"Uniform": 1, "Sample": 1, "FAST_w": 1}, ("BA", "BD")
    ),
    draw=lambda frame, figure: draw_two(frame, figure, "rms", "root mean square of a road (cars)"),
)
