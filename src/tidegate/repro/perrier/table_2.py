"""Table II: optimised parameters, supermarket."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.common import MADE_UP, beside
from tidegate.repro.perrier.tables import NOTES, draw, judge, measure, settings

GENERATED = "supermarket"
PRINTED = {40_000: 1.0, 50_000: 4.23, 60_000: 4.86, 100_000: 6.67}

EXPERIMENT = Experiment(
    paper="perrier",
    name="Table II",
    claim="On receipts the error's bound is that of the tree at m = 40,000, and 4.2 to 6.7 times smaller from "
    "50,000 to 100,000.",
    data=MADE_UP + beside("baskets"),
    settings=lambda small: settings(small, GENERATED, "baskets", PRINTED),
    measure=measure,
    cost=lambda setting: 3.0,
    judge=lambda frame: judge(frame, GENERATED, PRINTED),
    draw=lambda frame, figure: draw(frame, figure, PRINTED),
    notes=NOTES,
)
