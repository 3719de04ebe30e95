"""What an experiment is: data, settings, a measurement, the paper's claim, and the check whether it holds."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

Row = dict[str, Any]
Setting = dict[str, Any]


class Outcome(StrEnum):
    """Whether a paper's claim holds for the sound implementation."""

    HOLDS = "holds"
    PRINTED_ONLY = "holds only with the printed calibration, which is not private"
    FAILS = "does not hold"
    PARTLY = "holds in part"
    MEASURED = "measured; no paper claims anything here"
    ROUGH = "not judged: a small run has too few runs for intervals"

    @classmethod
    def of(cls, checks: Iterable[Any]) -> Outcome:
        """Holds where all that was checked is true, and in part where some of it is."""
        found = [bool(check) for check in checks]
        return cls.HOLDS if all(found) else cls.PARTLY if any(found) else cls.FAILS


@dataclass(frozen=True)
class Table:
    """A table of a judgement: its title, the head of its columns, and rows of as many cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Judgement:
    """An outcome with its numbers in words, and in tables where there are many."""

    outcome: Outcome
    words: str
    tables: tuple[Table, ...] = ()


class MissingData(Exception):
    """The data of an experiment are not here; the message says which, and is all there is to say."""


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper.

    Parameters
    ----------
    paper
        One of `PAPERS`.
    name
        The figure or table, for example "Figure 6".
    claim
        What the paper says it shows, in one sentence.
    data
        Which data stand in, in one sentence, with their source.
    settings
        A function of (small: bool) that returns the settings to run, each a dictionary of plain values. `small` asks for
        a few seconds in all.
    measure
        A function of one setting that returns rows of results; it runs in a process of its own.
    judge
        A function of the frame of all rows that says whether the claim holds.
    draw
        A function of (frame, figure) that draws the picture.
    notes
        What differs from the paper and why.
    why
        One sentence that says why the claim does not hold, or holds in part only: other data, a calibration that is not
        private as printed, what the repair costs. Shown beside such outcomes.
    general
        What is to be said of all figures of the paper; shown once.
    cost
        A function of one setting that says about how many seconds it takes on one core in full: long ones start first.
    """

    paper: str
    name: str
    claim: str
    data: str
    settings: Callable[[bool], Sequence[dict[str, Any]]] = field(repr=False)
    measure: Callable[[dict[str, Any]], list[Row]] = field(repr=False)
    judge: Callable[[pl.DataFrame], Judgement] = field(repr=False)
    draw: Callable[[pl.DataFrame, Figure], None] = field(repr=False)
    notes: str = ""
    why: str = ""
    general: str = ""
    cost: Callable[[dict[str, Any]], float] = field(default=lambda setting: 1.0, repr=False)

    @property
    def key(self) -> str:
        """A name for files and the command line: "w-event-figure-6"."""
        return f"{self.paper}-{self.name}".lower().replace(" ", "-").replace(",", "").replace("–", "-")


PAPERS = {
    "w-event": "Kellaris et al.: Differentially private event sequences over infinite streams. PVLDB 2014",
    "pegasus": "Chen et al.: PeGaSus: Data-adaptive differentially private stream processing. CCS 2017",
    "optstream": "Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019",
    "perrier": "Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019",
    "swellfish": "Swellfish privacy: supporting time-dependent relevance for continuous differential privacy",
    "across": "Across the papers",
}


def experiments() -> dict[str, Experiment]:
    """Every experiment by its key: the rows of the file of each paper."""
    homes = (importlib.import_module(f"experiments.{paper.replace('-', '_')}") for paper in PAPERS)
    found: list[Experiment] = [row for home in homes for row in home.EXPERIMENTS]
    return {experiment.key: experiment for experiment in sorted(found, key=_place)}


def _place(experiment: Experiment) -> tuple[int, str, int, str]:
    """The order of the page: by paper, figures before tables, Figure 9 before Figure 10."""
    papers = list(PAPERS)
    paper = papers.index(experiment.paper) if experiment.paper in papers else len(papers)
    number = re.search(r"\d+", experiment.name)
    return paper, experiment.name.split()[0], int(number.group()) if number else 0, experiment.name
