"""One page of all experiments: claim, data, outcome, numbers, picture."""

from __future__ import annotations

import base64
import html
from itertools import groupby
from pathlib import Path

from tidegate.repro.experiment import experiments
from tidegate.repro.runner import Result, read

PAPERS = {
    "w-event": "Kellaris et al.: Differentially private event sequences over infinite streams. PVLDB 2014",
    "pegasus": "Chen et al.: PeGaSus: Data-adaptive differentially private stream processing. CCS 2017",
    "optstream": "Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019",
    "perrier": "Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019",
    "swellfish": "Swellfish privacy: supporting time-dependent relevance for continuous differential privacy",
    "across": "Across the papers",
}
INTRODUCTION = """\
What the papers claim, and what the sound implementation gives, figure by figure. Mechanisms run in sound calibration
unless a row says otherwise. Numbers are means over runs with 95 % confidence intervals. Data that are not public are
generated in the described shape; each entry says which data it used. Made by `tidegate repro report`."""


def results(folder: Path) -> list[Result]:
    """Every experiment that has been run, in order."""
    found = (read(experiment, folder) for experiment in experiments().values())
    return [result for result in found if result is not None]


def markdown(folder: Path, pictures: str) -> str:
    """The page in Markdown; pictures are linked relative to it."""
    parts = ["# The papers' experiments\n", INTRODUCTION + "\n", _summary(results(folder))]
    for paper, group in groupby(results(folder), key=lambda result: result.experiment.paper):
        parts.append(f"\n## {PAPERS.get(paper, paper)}\n")
        parts += [_entry(result, pictures) for result in group]
    return "\n".join(parts)


def _summary(found: list[Result]) -> str:
    lines = ["| experiment | claim | outcome |", "|---|---|---|"]
    for result in found:
        outcome = (
            f"skipped: {result.skipped}" if result.judgement is None else f"**{result.judgement.outcome}**"
        )
        lines.append(
            f"| {result.experiment.paper}, {result.experiment.name} | {result.experiment.claim} | {outcome} |"
        )
    return "\n".join(lines) + "\n"


def _entry(result: Result, pictures: str) -> str:
    experiment = result.experiment
    lines = [f"### {experiment.name}\n", f"*Claim:* {experiment.claim}\n", f"*Data:* {experiment.data}\n"]
    if experiment.notes:
        lines.append(f"*Notes:* {experiment.notes}\n")
    if result.judgement is None:
        lines.append(f"*Skipped:* {result.skipped}\n")
        return "\n".join(lines)
    size = " A small run: numbers are rough." if result.small else ""
    lines.append(f"**{result.judgement.outcome}.** {result.judgement.words}{size}\n")
    lines.append(f"![{experiment.key}]({pictures}/{experiment.key}.png)\n")
    return "\n".join(lines)


def page(folder: Path) -> str:
    """The same as a self-contained HTML page."""
    body = ["<h1>The papers' experiments</h1>", f"<p>{html.escape(INTRODUCTION)}</p>"]
    for result in results(folder):
        experiment = result.experiment
        body.append(f"<h2>{html.escape(experiment.paper)}, {html.escape(experiment.name)}</h2>")
        body.append(
            f"<p><i>Claim:</i> {html.escape(experiment.claim)}<br><i>Data:</i> {html.escape(experiment.data)}</p>"
        )
        if result.judgement is None:
            body.append(f"<p><i>Skipped:</i> {html.escape(result.skipped)}</p>")
            continue
        body.append(f"<p><b>{result.judgement.outcome}.</b> {html.escape(result.judgement.words)}</p>")
        picture = folder / f"{experiment.key}.png"
        if picture.exists():
            coded = base64.b64encode(picture.read_bytes()).decode()
            body.append(f'<img alt="{experiment.key}" src="data:image/png;base64,{coded}">')
    style = (
        "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}img{max-width:100%}"
    )
    return (
        f"<!doctype html><meta charset='utf-8'><title>Experiments</title><style>{style}</style>"
        + "\n".join(body)
    )
