"""The report of a stream: one HTML file that needs nothing else, made from what was released."""

from __future__ import annotations

import datetime
import html
import os
import zoneinfo
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.exact import show
from tidegate.ledger import Verdict
from tidegate.policy import ZeroConcentrated
from tidegate.releases import Status
from tidegate.runtime.chunks import Chunk, joined, latest
from tidegate.runtime.errors import SinkError
from tidegate.runtime.files import check_report, unused_name
from tidegate.runtime.pictures import Series, draw_budget, draw_status, draw_stream
from tidegate.runtime.store import Store
from tidegate.runtime.style import STYLE
from tidegate.runtime.truth import true_values
from tidegate.runtime.wording import Words
from tidegate.version import __version__

Values = npt.NDArray[np.float64]
MOST_SHOWN = 12  # columns with a picture of their own
MEANING = {
    Status.FRESH: "measured at this step, with noise",
    Status.PARTIAL: "some columns were measured at this step, the others approximated",
    Status.APPROXIMATED: "derived from earlier measurements, because a new one would not pay",
    Status.NULLIFIED: "as approximated, because an earlier step had used the budget",
    Status.PRUNED: "not measured, because a coarser measurement said that there is nothing",
    Status.MISSING: "no reading in any column, and nothing in its place",
}


def write_report(
    path: Path,
    config: Config,
    store: Store,
    verdict: Verdict,
    *,
    compare_truth: bool = False,
    made_up: Values | None = None,
) -> None:
    """Write the report of everything that was released so far.

    Parameters
    ----------
    path
        The HTML file; it appears under its name when it is complete.
    config, store
        The stream.
    verdict
        What the ledger's verification said.
    compare_truth
        Add the true errors; the report says then, in its title and at its top, that it must stay inside.
    made_up
        The answers of a stream that was made up, whose errors anybody may see.
    """
    width = len(config.query.labels)
    newest = latest(joined(store.chunks(), width))
    truth = true_values(config, len(newest)) if compare_truth else made_up
    text = "".join(_page(config, store, verdict, newest, truth))
    check_report(path)  # again, since much may have happened while the stream ran
    fresh = unused_name(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(fresh, flags, 0o600 if compare_truth else 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise SinkError(
            f"the report {path} cannot be written ({error.strerror}); the releases are safe: start again."
        ) from None


def windows(units: npt.NDArray[np.int64], window: int | None) -> npt.NDArray[np.int64]:
    """What the window that ends at each step has spent."""
    total = np.cumsum(units)
    if window is not None:
        total[window:] -= total[:-window].copy()
    return total


# the page ---------------------------------------------------------------------------------------------------


def _page(
    config: Config, store: Store, verdict: Verdict, newest: Chunk, truth: Values | None
) -> Iterator[str]:
    inside = truth is not None
    labels = config.query.answer_labels
    name = Words(config).title
    title = ("NOT FOR PUBLICATION: " if inside else "") + name
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<style>{STYLE}</style></head><body><main>\n"
    if inside:
        yield (
            '<p class="warning"><strong>Not for publication.</strong> This report shows true values and true errors, '
            "which no noise protects. It is for the curator alone.</p>\n"
        )
    yield f"<h1>{html.escape(name)}</h1>\n<p class=lead>{_headline(config, newest)}</p>\n"
    yield _guarantee(config, verdict)
    yield from _stream(config, newest, labels, truth)
    if truth is not None:
        yield _errors(config, newest, labels, truth)
    yield _budget(config, store, newest)
    yield _status(config, newest)
    yield _footer(config, verdict)
    yield "</main></body></html>\n"


def _headline(config: Config, newest: Chunk) -> str:
    steps, columns = len(newest), len(config.query.columns)
    if not steps:
        return "Nothing has been released yet."
    begin, end = _moment(config, int(newest.step[0])), _moment(config, int(newest.step[-1]) + 1)
    return (
        f"{steps:,} step{'' if steps == 1 else 's'} × {columns:,} column{'' if columns == 1 else 's'}, from "
        f"{begin:%-d %B %Y, %H:%M} to {end:%-d %B %Y, %H:%M} ({html.escape(config.steps.zone)}), "
        f"released by {config.mechanism_keys.name}."
    )


def _guarantee(config: Config, verdict: Verdict) -> str:
    guarantee = config.guarantee
    kept = "kept" if verdict.ok else "BROKEN"
    return (
        f"<section><h2>What is promised</h2>\n<p class=promise>{html.escape(str(guarantee))}</p>\n"
        f'<p class="{"kept" if verdict.ok else "warning"}"><strong>{kept.capitalize()}.</strong> '
        f"{html.escape(str(verdict)[:1].upper() + str(verdict)[1:])}.</p></section>\n"
    )


def _stream(config: Config, newest: Chunk, labels: tuple[str, ...], truth: Values | None) -> Iterator[str]:
    yield "<section><h2>What was released</h2>\n"
    if not len(newest):
        yield "<p>Nothing yet.</p></section>\n"
        return
    answers = config.query.answers(newest.values)
    chosen, rest = _chosen(answers)
    low, high = config.query.intervals(newest.values, newest.radius)
    known = np.isfinite(low)
    words = "Released values"
    if known.any():
        words += ", with the band in which nine of ten true values lie"
        if not known[~np.isnan(answers)].all():
            words += " (there is none where a value was not measured at its step: nobody knows how far it has moved)"
    if truth is not None:
        words += ", and the true values in grey"
    if rest:
        words += f". The {len(chosen)} columns with the largest released totals of {len(chosen) + rest:,}"
    yield f"<p>{words}.</p>\n" + _gaps(labels, answers)
    times = Moments(config, newest.step)
    many = [
        Series(
            labels[column],
            answers[:, column],
            low[:, column],
            high[:, column],
            None if truth is None else truth[:, column],
        )
        for column in chosen
    ]
    yield f"<figure>{draw_stream(times, many)}</figure></section>\n"


def _chosen(answers: Values) -> tuple[list[int], int]:
    """The columns to draw, by what was released of them, which anybody may look at."""
    width = answers.shape[1]
    if width <= MOST_SHOWN:
        return list(range(width)), 0
    largest = np.argsort(-np.nansum(answers, axis=0), kind="stable")[:MOST_SHOWN]
    return sorted(int(column) for column in largest), width - MOST_SHOWN


def _errors(config: Config, newest: Chunk, labels: tuple[str, ...], truth: Values) -> str:
    answers = config.query.answers(newest.values)
    errors = np.abs(answers - truth)
    chosen, rest = _chosen(answers)
    rows = [(labels[column], truth[:, column], errors[:, column]) for column in chosen]
    rows.append((f"all {len(labels):,} columns" if rest else "all", truth.ravel(), errors.ravel()))
    body = "".join(
        f"<tr><td>{html.escape(name)}<td>{_mean(true):,.1f}<td>{_mean(error):,.2f}"
        f"<td>{_ratio(error, true)}<td>{_quantile(error):,.1f}"
        for name, true, error in rows
    )
    return (
        "<section class=inside><h2>How wrong it is (not for publication)</h2>\n<table><tr><th>column<th>mean true value"
        f"<th>mean absolute error<th>relative<th>95 % below{body}</table></section>\n"
    )


def _budget(config: Config, store: Store, newest: Chunk) -> str:
    if not len(newest):
        return ""
    window, unit = config.policy.window, store.ledger.unit
    spent = np.asarray(windows(newest.units, window) * float(unit), dtype=np.float64)
    single = np.asarray(newest.units * float(unit), dtype=np.float64)
    # under an (ε, δ) budget charges do not simply add: their number is what is limited
    limit = float(unit * store.ledger.units)
    exactly = show(unit * store.ledger.units) if store.ledger.rule.adds else f"{store.ledger.units} charges"
    symbol = "ρ" if isinstance(config.policy.budget, ZeroConcentrated) else "ε"
    where = "of all steps so far" if window is None else f"of the {window:,} steps up to each step"
    times = Moments(config, newest.step)
    picture = draw_budget(times, spent, single, limit, symbol)
    return (
        f"<section><h2>What it cost</h2>\n<p>The privacy loss {where}, which may never exceed {html.escape(exactly)} "
        f"(dashed), and the loss of each step below it.</p>\n<figure>{picture}</figure></section>\n"
    )


def _status(config: Config, newest: Chunk) -> str:
    if not len(newest):
        return ""
    counts = [(status, int((newest.status == status).sum())) for status in Status]
    found = [(status, count) for status, count in counts if count]
    body = "".join(
        f'<tr><td><span class="mark s{int(status)}"></span>{status.label}<td>{count:,}<td>{count / len(newest):.1%}'
        f"<td>{MEANING[status]}"
        for status, count in found
    )
    revised = int((newest.revision > 0).sum())
    more = (
        f"<p>{revised:,} steps were revised after their first release; the newest values are shown.</p>"
        if revised
        else ""
    )
    strip = ""
    if len(found) > 1:
        times = Moments(config, newest.step)
        strip = f"<figure>{draw_status(times, newest.status)}</figure>"
    return (
        "<section><h2>What was measured, and what was skipped</h2>\n"
        f"{strip}<table><tr><th>steps<th>number<th>share<th>meaning{body}</table>{more}</section>\n"
    )


def _footer(config: Config, verdict: Verdict) -> str:
    now = datetime.datetime.now(datetime.UTC)
    parameters = ", ".join(f"{name} = {value}" for name, value in config.parameters.items()) or "defaults"
    return (
        f"<footer><p>Mechanism {config.mechanism_keys.name} ({html.escape(parameters)}). "
        f"{_bounding(config)} "
        f"Head of the ledger: <code>{verdict.head[:16]}</code>, after {verdict.rows:,} rows; whoever holds a later "
        f"ledger can check that it continues this one.</p>\n"
        f"<p>Tidegate {__version__}, {now:%Y-%m-%d %H:%M} UTC.</p></footer>\n"
    )


def _bounding(config: Config) -> str:
    """How much one unit can change a step, and who says so."""
    query = config.query
    if query.aggregate == "given":
        change = show(Fraction(config.policy.max_change))
        return (
            "The input was aggregated before it came here; that one unit changes a step by at most "
            f"{change} is declared, and nothing was bounded."
        )
    if config.schema.unit is None:
        return "Every record is a unit of its own."
    if query.aggregate == "distinct":
        return f"Each unit counts once in a column, and in at most {_several(query.most, 'column')} a step."
    return f"Each unit counts at most {_several(query.most, 'time')} a step."


def _several(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _gaps(labels: tuple[str, ...], answers: Values) -> str:
    """Which readings were missing, in words."""
    missing = np.isnan(answers)
    if not missing.any():
        return ""
    words = f"{int(missing.sum()):,} of {missing.size:,} readings ({missing.mean():.1%}) were missing"
    never = [label for label, none in zip(labels, np.atleast_1d(missing.all(axis=0)), strict=True) if none]
    if never:
        shown = ", ".join(html.escape(label) for label in never[:MOST_SHOWN])
        more = f" and {len(never) - MOST_SHOWN:,} more" if len(never) > MOST_SHOWN else ""
        words += f". No reading at all: {shown}{more}"
    return f"<p>{words}.</p>\n"


class Moments:
    """When steps begin, worked out where somebody looks: a long stream has more steps than a picture has dots."""

    def __init__(self, config: Config, steps: npt.NDArray[np.int64]) -> None:
        self.config, self.steps = config, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> datetime.datetime:
        return _moment(self.config, int(self.steps[index]))


def _moment(config: Config, step: int) -> datetime.datetime:
    return config.steps.begin(step).astimezone(zoneinfo.ZoneInfo(config.steps.zone))


def _mean(values: Values) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def _quantile(values: Values) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, 0.95)) if len(known) else 0.0


def _ratio(errors: Values, truth: Values) -> str:
    total = float(np.nansum(np.abs(truth)))
    return f"{np.nansum(errors) / total:.1%}" if total else "–"
