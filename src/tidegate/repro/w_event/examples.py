"""The worked examples of Figures 3 and 5: what BD and BA spend when they publish at given steps."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import polars as pl

from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution
from tidegate.policy import WEvent
from tidegate.repro.comparison import COLOURS
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row, Table
from tidegate.testing.entropy import zero_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALUES = (100, 100, 200, 300, 300, 300)  # large changes where the example publishes, none where it skips
PRINTED = {
    "BD (Figure 3)": ("1/4", "0", "1/8", "3/16", "0", "0"),
    "BA (Figure 5)": ("1/6", "0", "1/3", "0", "1/6", "0"),
}


def _measure(setting: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    with zero_noise():
        for name, kind in zip(PRINTED, (BudgetDistribution, BudgetAbsorption), strict=True):
            mechanism = kind(WEvent(epsilon="1", w=3))
            run, tests = mechanism.start(), mechanism.shares[1]
            for step, value in enumerate(VALUES, 1):
                release = run.push([value])
                spent = (release.units - tests) * run.ledger.unit
                rows.append(
                    {
                        "mechanism": name,
                        "step": step,
                        "spent": str(Fraction(spent)),
                        "status": release.status.label,
                    }
                )
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    rows: list[tuple[str, ...]] = []
    same = 0
    for name, printed in PRINTED.items():
        part = frame.filter(pl.col("mechanism") == name).sort("step")
        same += tuple(part["spent"]) == printed
        rows.append((name, "printed", *printed))
        rows.append(
            (name, "here", *(f"{spent} {status}" for spent, status in part.select("spent", "status").rows()))
        )
    outcome = Outcome.HOLDS if same == len(PRINTED) else Outcome.PARTLY if same else Outcome.FAILS
    table = Table(
        "Budget of the publication at each step, in ε.",
        ("example", "", *(f"step {n}" for n in range(1, 7))),
        tuple(rows),
    )
    return Judgement(outcome, f"{same} of {len(PRINTED)} examples come out exactly, as fractions.", (table,))


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    for axes, (number, (name, printed)) in zip(
        figure.subplots(1, 2), enumerate(PRINTED.items()), strict=True
    ):
        part = frame.filter(pl.col("mechanism") == name).sort("step")
        axes.bar(
            part["step"],
            [float(Fraction(spent)) for spent in part["spent"]],
            color=COLOURS[number],
            label="here",
        )
        heights = [float(Fraction(spent)) for spent in printed]
        axes.plot(part["step"], heights, "_", markersize=30, color="#111827", label="printed")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step")
        axes.set_ylabel("budget of the publication / ε")
        axes.set_ylim(0, 0.42)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper right")


EXPERIMENT = Experiment(
    paper="w-event",
    name="Examples 3 and 5",
    claim="With w = 3, BD spends ε/4, 0, ε/8 and 3ε/16 when it publishes at steps 1, 3 and 4 (Figure 3), and BA spends "
    "ε/6, nothing, an absorbed ε/3, nothing by force, and ε/6 (Figure 5).",
    data="Six steps made up so that noiseless tests publish where the examples do.",
    settings=lambda small: [{}],
    measure=_measure,
    judge=_judge,
    draw=_draw,
    notes="Without noise, through the code that also releases; every sequence of decisions of eleven steps is enumerated "
    "in the tests besides.",
)
