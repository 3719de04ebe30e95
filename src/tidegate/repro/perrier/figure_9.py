"""Figure 9: what clipping loses against what was foreseen, train trips."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.common import MADE_UP, beside
from tidegate.repro.perrier.outliers import NOTES, draw, judge, measure, settings

GENERATED = "train trips"

EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 9",
    claim="The real error due to outliers is almost always below the estimated one (train trips).",
    data=MADE_UP + beside("flights", "bike trips"),
    settings=lambda small: settings(small, GENERATED, "flights", "bike trips"),
    measure=measure,
    cost=lambda setting: 10.0,
    judge=lambda frame: judge(frame, GENERATED),
    draw=draw,
    notes=NOTES,
)
