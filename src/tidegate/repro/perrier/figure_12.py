"""Figure 12: trip times by hour of the day."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.periods import DATA, NOTES, draw, judge, measure, settings

PERIOD = "hour"

EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 12",
    claim="By hour of the day the beginnings of the distributions vary, but their tails are similar and light.",
    data=DATA,
    settings=lambda small: settings(small, PERIOD),
    measure=measure,
    judge=judge,
    draw=lambda frame, figure: draw(frame, figure, PERIOD),
    notes=NOTES,
)
