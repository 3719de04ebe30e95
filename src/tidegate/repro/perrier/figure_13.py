"""Figure 13: trip times by day of the week."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.periods import DATA, NOTES, draw, judge, measure, settings

PERIOD = "day"

EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 13",
    claim="By day of the week the beginnings of the distributions vary, but their tails are similar and light.",
    data=DATA,
    settings=lambda small: settings(small, PERIOD),
    measure=measure,
    judge=judge,
    draw=lambda frame, figure: draw(frame, figure, PERIOD),
    notes=NOTES,
)
