"""One page of all experiments: claim, data, outcome, numbers, picture."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from experiments.experiment import PAPERS, Judgement, Outcome, Table, experiments
from experiments.runner import Result, read

TITLE = "The papers' experiments"
INTRODUCTION = """\
What the papers claim, and what the sound implementation gives, figure by figure. Mechanisms run in sound calibration
unless a row says otherwise; "printed" means the calibration as printed in the paper, which is not private. Numbers in
brackets or after ± are 95 % confidence intervals over runs. Data that are not public are generated in the described
shape; each entry says which data it used. Made by `python -m experiments run` and `python -m experiments report`."""


def results(folder: Path) -> list[Result]:
    """Every experiment that has been run, in order."""
    found = (read(experiment, folder) for experiment in experiments().values())
    return [result for result in found if result is not None]


def markdown(folder: Path, pictures: str) -> str:
    """The page in Markdown; pictures are linked relative to it."""
    found = results(folder)
    parts = [f"# {TITLE}\n", INTRODUCTION + "\n", _overview(found) + "\n"]
    parts.append(_markdown_table(_summary(found)))
    for title, general, group in _papers(found):
        parts.append(f"\n## {title}\n")
        parts += [f"{line}\n" for line in general]
        parts += [_entry(result, pictures) for result in group]
    return "\n".join(parts)


def page(folder: Path) -> str:
    """The same as a self-contained HTML page, with its pictures inside."""
    text = re.sub(r"(?m)^!\[(.*)\]\((.*)\)$", lambda found: _picture(found[1], folder), markdown(folder, ""))
    style = (
        "body{font:16px/1.5 sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}img{max-width:100%}"
        "table{border-collapse:collapse;font-size:13px}"
        "td,th{border:1px solid #d1d5db;padding:.2rem .5rem;text-align:left}"
    )
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{TITLE}</title><style>{style}</style>\n"
        + rendered(text)
        + "</html>\n"
    )


def rendered(text: str) -> str:
    """Markdown as HTML; what looks like HTML in it is shown as it stands."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def listed(words: str) -> list[tuple[str, list[str]]]:
    """Words as paragraphs: (sentences, items), where a long enumeration becomes items under its head.

    Examples
    --------
    >>> listed("It holds. Ratios: a 1.5 (1; 2); b 2; c 3. Done.")
    [('It holds. Ratios:', ['a 1.5 (1; 2)', 'b 2', 'c 3']), ('Done.', [])]
    """
    found: list[tuple[str, list[str]]] = []
    plain: list[str] = []
    for sentence in SENTENCES.split(words):
        pieces = _split(sentence.removesuffix("."), "; ")
        colons = [len(_split(piece, ": ")) - 1 for piece in pieces]
        # a colon that all parts have belongs to them
        headed = len(pieces) > 1 and colons[0] > min(colons[1:])
        if len(pieces) < (2 if headed or (plain and plain[-1].endswith(":")) else 3):
            plain.append(sentence)
            continue
        if headed:
            head, *rest = _split(pieces[0], ": ")
            plain.append(head + ":")
            pieces[0] = ": ".join(rest)
        found.append((" ".join(plain), pieces))
        plain = []
    if plain:
        found.append((" ".join(plain), []))
    return found


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark that is not in brackets."""
    pieces, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place >= begin and text.startswith(mark, place):
            pieces.append(text[begin:place])
            begin = place + len(mark)
    return [*pieces, text[begin:]]


def _papers(found: list[Result]) -> Iterator[tuple[str, list[str], list[Result]]]:
    """(title, what is to be said of all its figures, results) of every paper."""
    for paper, group in groupby(found, key=lambda result: result.experiment.paper):
        results_ = list(group)
        general = dict.fromkeys(result.experiment.general for result in results_ if result.experiment.general)
        yield PAPERS.get(paper, paper), list(general), results_


def _overview(found: list[Result]) -> str:
    """How many claims hold."""
    counts = Counter(result.judgement.outcome for result in found if result.judgement is not None)
    said = ", ".join(f"“{outcome.value}” {counts[outcome]} times" for outcome in Outcome if counts[outcome])
    skipped = sum(result.judgement is None for result in found)
    return f"{len(found)} experiments: {said.replace(' 1 times', ' once')}{f', {skipped} skipped' if skipped else ''}."


def _summary(found: list[Result]) -> Table:
    """One row an experiment: claim, number, outcome, and why where the claim does not hold or holds in part."""
    rows = []
    for result in found:
        experiment, judgement = result.experiment, result.judgement
        outcome = f"skipped: {result.skipped}" if judgement is None else judgement.outcome.value
        number = "" if judgement is None else headline(judgement)
        rows.append(
            (f"{experiment.paper}, {experiment.name}", experiment.claim, number, outcome, _why(result))
        )
    return Table("", ("experiment", "claim", "here", "outcome", "why"), tuple(rows))


SENTENCES = re.compile(r"(?<=[.:])\s(?=[A-ZÎ⟨ε“])")  # what is between two of them
INTERVAL = re.compile(r"±|\([-+]?[\d.,e+%]+ to [-+]?[\d.,e+%]+\)")


def headline(judgement: Judgement) -> str:
    """The first number with an interval that a judgement gives; else its first sentence.

    Examples
    --------
    >>> headline(Judgement(Outcome.HOLDS, "It holds. Ratios: A 1.5 (1.2 to 1.8); B 2 (1 to 3). Done."))
    'A 1.5 (1.2 to 1.8)'
    >>> headline(Judgement(Outcome.HOLDS, "Exact.", (Table("", ("w", "Uniform"), (("40", "2 ± 0.1"),)),)))
    'w = 40: Uniform 2 ± 0.1'
    """
    pieces = [
        piece for sentences, items in listed(judgement.words) for piece in (*_sentences(sentences), *items)
    ]
    for piece in pieces:
        if INTERVAL.search(piece):
            return piece
    for table in judgement.tables:
        for row in table.rows:
            for name, cell in zip(table.head, row, strict=True):
                if INTERVAL.search(cell):
                    first = f"{table.head[0]} = {row[0]}" if row[0][:1].isdigit() else row[0]
                    return f"{first}: {name} {cell}"
    return pieces[0] if pieces else ""


def _sentences(words: str) -> list[str]:
    """Sentences without their full stop; a head that ends with a colon is none."""
    found = SENTENCES.split(words)
    return [sentence.removesuffix(".") for sentence in found if sentence and not sentence.endswith(":")]


def _why(result: Result) -> str:
    """Why a claim does not hold, or holds in part only."""
    judgement = result.judgement
    whole = judgement is None or judgement.outcome in (Outcome.HOLDS, Outcome.MEASURED, Outcome.ROUGH)
    return "" if whole else result.experiment.why


def _entry(result: Result, pictures: str) -> str:
    experiment, judgement = result.experiment, result.judgement
    lines = [f"### {experiment.name}\n", f"*Claim:* {experiment.claim}\n"]
    if judgement is None:
        lines.append(f"*Data:* {experiment.data}\n\n*Skipped:* {result.skipped}\n")
        return "\n".join(lines)
    rough = " (a small run: numbers are rough)" if result.small else ""
    outcome = judgement.outcome.value
    lines.append(f"**{outcome[0].upper()}{outcome[1:]}**{rough}. {_why(result)}".rstrip() + "\n")
    lines.append(f"![{experiment.key}]({pictures}/{experiment.key}.png)\n")
    for sentences, items in listed(judgement.words):
        if sentences:
            lines.append(sentences + "\n")
        if items:
            lines.append("\n".join(f"- {item}" for item in items) + "\n")
    lines += [_markdown_table(table) for table in judgement.tables]
    lines.append(f"*Data:* {experiment.data}\n")
    if experiment.notes:
        lines.append(f"*Notes:* {experiment.notes}\n")
    return "\n".join(lines)


def _picture(key: str, folder: Path) -> str:
    """A picture as part of the page; nothing where it was not drawn."""
    file = folder / f"{key}.png"
    return (
        f"![{key}](data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()})"
        if file.exists()
        else ""
    )


def _markdown_table(table: Table) -> str:
    title = [table.title + "\n"] if table.title else []
    lines = [f"| {' | '.join(table.head)} |", "|" + "---|" * len(table.head)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table.rows]
    return "\n".join([*title, *lines]) + "\n"
