"""The report of a stream: one HTML file that needs nothing else, made from what was released."""

from __future__ import annotations

import datetime
import html
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.config.auto import steps_of_a_day
from tidegate.core.verify import Verification
from tidegate.exact import show
from tidegate.pipeline.earlier_releases import Ended, ended_scopes, newest_of_all
from tidegate.pipeline.query_releases import Released
from tidegate.pipeline.stream_reader import books_of, history_of
from tidegate.policy import Approximate, Budget, ZeroConcentrated
from tidegate.releases import Status
from tidegate.report.accuracy import Accuracy, accuracy, step_seconds
from tidegate.report.answered import answered
from tidegate.report.card import card_of_all
from tidegate.report.found import as_listed, categories_section, true_answers
from tidegate.report.learnt import learnt_clip, released_by
from tidegate.report.left_out import LeftOut, left_out
from tidegate.report.numbers import Numbers, numbers_of
from tidegate.report.pictures import (
    LARGE,
    SMALL,
    Row,
    Series,
    draw_budget,
    draw_heat,
    draw_line,
    draw_odds,
    draw_status,
    legend,
    meant,
    moved,
    rows_of,
)
from tidegate.report.style import STYLE
from tidegate.report.truth import true_values
from tidegate.report.wording import Words, about, budget_in_words, odds, several, title_of_all
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import check_report, replacing
from tidegate.version import __version__

Values = npt.NDArray[np.float64]
MOST_SHOWN = 20  # columns with a picture of their own
MOST_RUNS = 3  # of silent steps that are named
MOST_WIDE = 3  # columns whose pictures are as wide as the page
LONG_DAYS = 21  # from which on hours are drawn as heat maps
MOST_ROWS = 288  # steps of a day that a heat map may have
MEANING = {
    Status.FRESH: "measured at this step, with noise",
    Status.PARTIAL: "some columns were measured at this step, the others approximated",
    Status.APPROXIMATED: "derived from earlier measurements, because a new one would not pay",
    Status.NULLIFIED: "as approximated, because an earlier step had used the budget",
    Status.PRUNED: "not measured, because a coarser measurement said that there is nothing",
    Status.MISSING: "no reading in any column, and nothing in its place",
    Status.SILENT: "nothing was released: windows still held what was charged before an amendment or a failure, or the "
    "clip was learnt",
}


@dataclass(frozen=True)
class Statistic:
    """One query of a report.

    Parameters
    ----------
    released
        What was released by the query as it is now.
    numbers
        The newest release of every step, as people read it.
    truth
        The true answers, in an inside report or of a stream that was made up.
    left
        What bounding and clipping left out, in an inside report.
    """

    released: Released
    numbers: Numbers
    truth: Values | None
    left: LeftOut | None

    @property
    def config(self) -> Config:
        """The query; with the categories that were found, as if they had been listed."""
        return self.numbers.config

    @property
    def newest(self) -> Chunk:
        """The newest release of every step."""
        return self.numbers.newest

    @property
    def found(self) -> Accuracy | None:
        """How far its numbers are off, as it is released now."""
        now = np.flatnonzero(self.newest.step >= self.released.scope.first)
        return accuracy(self.config, self.newest.picked(now))


@dataclass(frozen=True)
class Page:
    """What a report is about.

    Parameters
    ----------
    statistics
        All queries of the stream, in the order of the file.
    made_up
        Whether the stream was made up.
    history
        How the budget is shared, and how the stream was amended.
    ended
        The scopes that amendments have ended.
    """

    statistics: tuple[Statistic, ...]
    made_up: bool
    history: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()

    @property
    def first(self) -> Statistic:
        """The first of them; clock, words and budget of all can be asked of it."""
        return self.statistics[0]

    @property
    def several(self) -> bool:
        """Whether there are several, each with a name."""
        return len(self.statistics) > 1

    @property
    def inside(self) -> bool:
        """Whether it must stay inside."""
        return self.first.truth is not None and not self.made_up

    def named(self, one: Statistic, words: str) -> str:
        """The heading of something about one of them."""
        return f"{words}: {html.escape(one.config.name)}" if self.several else words


def write_report(
    path: Path,
    released: Sequence[Released],
    verification: Verification,
    *,
    compare_truth: bool = False,
    made_up: Sequence[Values] | None = None,
) -> None:
    """Write the report of everything that was released so far by all queries of a stream.

    Parameters
    ----------
    path
        The HTML file; it appears under its name when it is complete.
    released
        What each query of the stream has released, in the order of the file.
    verification
        What was found when the log was recomputed.
    compare_truth
        Add the true errors; the report says then, in its title and at its top, that it must stay inside.
    made_up
        The answers of a stream that was made up, whose errors anybody may see; one array for each query.
    """
    rows = released[0].rows
    ended, history = ended_scopes(rows()), history_of([book for _, book in books_of(rows())])
    statistics = []
    for place, (each, numbers) in enumerate(zip(released, released_numbers(released, ended), strict=True)):
        steps = numbers.newest.step
        last = int(steps[-1]) if len(steps) else 0
        truth = None
        if compare_truth and each.config.query.discovers:
            everything = np.full((last, numbers.answers.shape[1]), np.nan)
            everything[steps - 1] = numbers.answers
            truth = true_answers(each.config, numbers.config, everything, last)[steps - 1]
        elif compare_truth:
            truth = true_values(each.config, last)[steps - 1]
        if made_up is not None:
            truth = made_up[place][steps - 1]
        found = each.config.query.discovers  # what is in no column is in other
        left = left_out(each.config, last) if compare_truth and not found else None
        if left is not None and left.unbounded is not None:
            left = replace(left, unbounded=left.unbounded[steps - 1])
        statistics.append(Statistic(each, numbers, truth, left))
    page = Page(tuple(statistics), made_up is not None, tuple(history), tuple(ended))
    text = "".join(_page(page, verification))
    check_report(path)  # again, since much may have happened while the stream ran
    try:
        with replacing(path, 0o600 if compare_truth else 0o644) as file:
            file.write(text.encode())
    except OSError as error:
        raise SinkError(
            f"the report {path} cannot be written ({error.strerror}); the releases are safe: start again."
        ) from None


def released_numbers(released: Sequence[Released], ended: Sequence[Ended] | None = None) -> list[Numbers]:
    """The newest numbers of all queries of a stream, from its first step on; `ended` if they were read before."""
    found = ended_scopes(released[0].rows()) if ended is None else ended
    return numbers_of([as_listed(each.config, newest_of_all(each, found)) for each in released])


# the page ---------------------------------------------------------------------------------------------------


def _page(page: Page, verification: Verification) -> Iterator[str]:
    """The numbers first, then what is promised, then what it cost."""
    words = _title(page)
    title = ("NOT FOR PUBLICATION: " if page.inside else "") + words
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<style>{STYLE}</style></head><body><main>\n"
    if page.inside:
        yield (
            '<p class="warning"><strong>Not for publication.</strong> This report shows true values and true errors, '
            "which no noise protects. It is for the curator alone.</p>\n"
        )
    if page.made_up:
        yield (
            '<p class="promise"><strong>Made up.</strong> No event was read for this page: the stream behind it was '
            "invented, and so are the true values that it shows.</p>\n"
        )
    yield f"<h1>{html.escape(words)}</h1>\n<p class=lead>{_headline(page)}</p>\n"
    for one in page.statistics:
        yield from _released(page, one)
    for one in page.statistics:
        if one.truth is not None:
            yield _errors(page, one)
        if one.left is not None:
            yield _left_out(page, one, one.left)
    spending = Spending.of(page) if len(page.first.newest) else None
    yield _promise(page, verification, spending)
    yield _history(page)
    if spending is not None:
        yield _budget(page, spending)
    for one in page.statistics:
        yield _status(page, one)
    yield _card(page)
    yield _footer(page, verification)
    yield "</main></body></html>\n"


def _title(page: Page) -> str:
    words = Words(page.first.config)
    return title_of_all([one.config for one in page.statistics]) if page.several else words.title


def _headline(page: Page) -> str:
    """What it is, from when to when, and the promise in one line."""
    config, newest, words = page.first.config, page.first.newest, Words(page.first.config)
    steps = len(newest)
    if not steps:
        return "Nothing has been released yet."
    begin, end = _moment(config, int(newest.step[0])), _moment(config, int(newest.step[-1]) + 1)
    by = f", published by {html.escape(config.about.publisher)}" if config.about.publisher else ""
    many = len(page.statistics) if page.several else len(config.query.own_labels)
    what = several(many, "statistic" if page.several else "column")
    how = f", released by {released_by(config.mechanism)}" if not page.several else ""
    return (
        f"{several(steps, 'step')} of {html.escape(words.span(1))} × {what}, from "
        f"{begin:%-d %B %Y, %H:%M} to {end:%-d %B %Y, %H:%M} ({html.escape(config.steps.zone)}){how}{by}.<br>"
        f"Protected: {html.escape(words.in_one_line)}."
    )


def _learnt(config: Config) -> str:
    """Where values are clipped, if that was learnt."""
    if config.query.learn is None:
        return ""
    found = learnt_clip(config)
    if found is None:
        return f" The first {config.query.learn.steps:,} steps are silent: it is being learnt where values are clipped."
    return f" Each value counts up to {found}, which was learnt from the first {config.query.learn.steps:,} steps."


def _noise(one: Statistic, found: Accuracy | None) -> str:
    """Says so where the noise is larger than the numbers, and what would help."""
    if found is None or not (found.too_noisy or found.drowned):
        return ""
    text = Words(one.config).accuracy(found)
    helpful = Words(one.config).what_would_help(found)
    items = "".join(f"<li>{html.escape(remedy)}</li>" for remedy in helpful)
    more = (
        f"<p>What would help, as a plan predicts it for values of {about(found.level)}:</p><ul>{items}</ul>"
        if items
        else ""
    )
    named = ", ".join(html.escape(label) for label in found.drowned[:MOST_SHOWN])
    rest = len(found.drowned) - MOST_SHOWN
    which = (
        f"<p>Columns: {named}{f' and {rest:,} more' if rest > 0 else ''}.</p>" if not found.too_noisy else ""
    )
    return f"<div class=noisy><h3>Mind the noise</h3><p>{html.escape(text)}.</p>{which}{more}</div>\n"


def _promise(page: Page, verification: Verification, spending: Spending | None) -> str:
    config = page.first.config
    words, budget = Words(config), config.promise.budget
    kept = "Kept" if verification.ok else "BROKEN"
    factor = odds(budget)
    meaning = ""
    if factor is not None:
        meaning = (
            f"<p>{budget_in_words(budget)} means: whatever anybody guesses about what one {html.escape(words.unit)} did "
            f"within that time, these numbers change the odds of the guess by a factor of {factor} at most. A "
            f"suspicion of 50% stays between {moved(0.5, -float(budget.total)):.0%} and "
            f"{moved(0.5, float(budget.total)):.0%}; the bars show the range for three suspicions.</p>"
            f"<figure class=small>{draw_odds(float(budget.total))}</figure>"
        )
    asked = f"<p>{html.escape(words.requirements)}</p>" if words.requirements else ""
    rows = "".join(
        f"<tr><td>{html.escape(name)}<td>{html.escape(budget_in_words(lost))}<td>{_suspicion(lost)}"
        for name, lost in words.lifetimes()
    )
    return (
        "<section id=promised><h2>What is promised</h2>\n"
        f"<p class=promise><strong>{html.escape(words.protected[:1].upper() + words.protected[1:])}</strong>: "
        f"{html.escape(budget_in_words(budget))}.</p>{meaning}{asked}"
        "<p>Whoever is there for longer, or with more than one, is protected less:</p>"
        f"<table class=words><tr><th>who and how long<th>loss at most<th>a suspicion of 50% becomes{rows}</table>"
        f"<details><summary>The guarantee in full</summary>{_in_full(page)}</details>\n"
        f'<p class="{"kept" if verification.ok else "warning"}"><strong>{kept}.</strong> '
        f"{html.escape(_verified(verification, spending))}</p></section>\n"
    )


def _verified(verification: Verification, spending: Spending | None) -> str:
    """What was found when the log was recomputed, and the fullest window."""
    if not verification.ok:
        return f"The log does not hold: {verification.reason}"
    found = f"The log was recomputed: {several(verification.commits, 'commit')} agree."
    if spending is not None and spending.window is not None and spending.adds:
        found += f" No window spent more than its budget ({spending.fullest})."
    return found


def _in_full(page: Page) -> str:
    """The guarantee of each query, whole."""
    sentences = [
        f"{html.escape(one.config.name)}: " * page.several + html.escape(str(one.config.promise))
        for one in page.statistics
    ]
    return "".join(f"<p class=quiet>{sentence}</p>" for sentence in sentences)


def _history(page: Page) -> str:
    """How the budget is shared, and what the stream was before it was amended."""
    if not page.history:
        return ""
    items = "".join(f"<li>{html.escape(sentence)}" for sentence in page.history)
    return f"<section><h2>How the budget is shared, and amendments</h2>\n<ul>{items}</ul></section>\n"


def _suspicion(budget: Budget) -> str:
    if odds(budget) is None:
        return "–"
    after = moved(0.5, float(budget.total))
    return f"{after:.1%}" if after < 0.9995 else "over 99.9%"


def _released(page: Page, one: Statistic) -> Iterator[str]:
    """The numbers of one query: what is counted and how far off, then its pictures, then answers made from it."""
    config, numbers, newest, truth = one.config, one.numbers, one.newest, one.truth
    labels, words, found = config.query.answer_labels, Words(config), one.found
    what = words.statistic if not page.several else f"{words.statistic[:1].lower()}{words.statistic[1:]}"
    named = f"{html.escape(config.name)}: " if page.several else ""
    off = ""
    if found:
        first = one.released.scope.first
        since = (
            f" from step {first:,} on" if (newest.step < first).any() else ""
        )  # before, it was another one
        off = (
            f" <span class=off><strong>±&nbsp;{html.escape(words.amount(found.half))}</strong> around "
            f"{html.escape(words.spread(found))}{since}</span>"
        )
    place = f"released-{html.escape(config.name)}" if page.several else "released"
    yield f'<section class=released id="{place}"><h2>{named}{html.escape(what)}{off}</h2>\n'
    if not len(newest):
        yield "<p>Nothing yet.</p></section>\n"
        return
    low, high, answers = numbers.low, numbers.high, numbers.answers
    chosen, rest = _chosen(answers)
    known = np.isfinite(low)
    times, day = Moments(config, newest.step), _day(config)
    heat = truth is None and day is not None and len(newest) > LONG_DAYS * day
    said = "Released values"
    if heat:
        said += " as heat maps: a day a column, an hour a row"
    if known.any() and not heat:
        said += f", with the band in which nine of ten {_kind(config)} values lie"
        if not known[~np.isnan(answers)].all():
            said += " (there is none before anything was measured)"
    if truth is not None:
        said += f", and the {_kind(config)} values, without noise, in grey"
    if rest:
        said += f". The {len(chosen)} columns with the largest released totals of {len(chosen) + rest:,}"
    wide = len(chosen) <= MOST_WIDE
    yield "<div class=wide>\n" if wide else "<div class=many>\n"
    frame = LARGE if wide else SMALL
    drawn = numbers.drawn
    hidden = " class=only" if len(labels) == 1 else ""  # one column has no name that says anything
    for column in chosen:
        series = Series(
            labels[column],
            drawn[:, column],
            low[:, column],
            high[:, column],
            None if truth is None else truth[:, column],
        )
        picture = (
            draw_heat(times, series, day, frame)
            if heat and day is not None
            else draw_line(times, series, frame)
        )
        more = f" <span class=quiet>({legend(series)})</span>" if heat else ""
        yield (
            f"<figure><figcaption><strong{hidden}>{html.escape(series.name)}</strong>{more}</figcaption>{picture}"
            f"{_table(rows_of(times, series))}</figure>\n"
        )
    yield "</div>\n"
    hint = "<span class=screen>Rest the pointer on a picture to read values.</span>"
    yield f"<p class=quiet>{said}. {html.escape(words.edition)} {_learnt(config).strip()} {hint}</p>\n"
    if words.bounds:
        yield (
            f"<p class=bounded><strong>Bounded values.</strong> {html.escape(words.bounds)} Every ± and band here "
            "is about bounded values.</p>\n"
        )
    yield _adjusted(page, one)
    yield _withheld(one)
    yield _before(page, one)
    yield _silent(one)
    found_here = one.released.config.query.discovers
    yield (
        categories_section(
            one.released.config, newest, lambda step: f"{_moment(config, step):%-d %B %Y, %H:%M}"
        )
        if found_here
        else _gaps(labels, _read(one))
    )
    yield _noise(one, found)
    yield from _answers(page, one)
    yield "</section>\n"


def _adjusted(page: Page, one: Statistic) -> str:
    """How many numbers were changed so that none contradicts another, and what was not changed."""
    changed = one.numbers.changed & ~one.numbers.withheld  # what is not shown is not drawn
    if not changed.any():
        return ""
    why = [*one.numbers.relations]
    if (one.numbers.answers[changed] < 0).any():
        why.append("no number is below 0")
    return (
        f"<p class=adjusted><strong>Adjusted.</strong> {int(changed.sum()):,} of {changed.size:,} numbers are drawn as "
        f"the nearest ones with which {html.escape(', '.join(why))}. That costs no budget. Files keep what was "
        "released, and bands, sums and windows are made from it.</p>\n"
    )


def _withheld(one: Statistic) -> str:
    """How many numbers are not shown, by which rule, and how often intervals of the others hold."""
    rule, withheld = one.config.withhold, one.numbers.withheld
    if rule is None:
        return ""
    known = np.isfinite(one.numbers.answers)
    text = (
        f"<strong>Withheld.</strong> {int(withheld.sum()):,} of {int(known.sum()):,} numbers are too uncertain to "
        f"be shown ({html.escape(str(rule))}). They were released and paid for, files have them, "
        "and sums and windows use them."
    )
    if one.truth is not None:
        low, high, truth = one.numbers.low, one.numbers.high, one.truth
        sure = np.isfinite(low) & np.isfinite(truth) & known
        held = (low <= truth) & (truth <= high)
        shown = sure & ~withheld
        if shown.any():
            text += (
                f" Intervals hold {held[shown].mean():.1%} of the {_kind(one.config)} values among shown numbers, and "
                f"{held[sure].mean():.1%} among all."
            )
    return f"<p class=withheld>{text}</p>\n"


def _answers(page: Page, one: Statistic) -> Iterator[str]:
    """What standing questions say now: the newest rows of each, or its alarms."""
    beside = {each.config.name: each.released for each in page.statistics}
    for answer in one.config.answers:
        said = answered(one.released, answer, beside)
        what, rows = said.shown
        body = "".join(
            f"<tr><td>{_moment(one.config, row.about):%-d %B %Y, %H:%M}<td>{html.escape(row.column)}"
            f"<td>{meant(row.value, (row.high - row.low) / 2)}"
            f"<td>{meant(row.low, (row.high - row.low) / 2)}<td>{meant(row.high, (row.high - row.low) / 2)}"
            f"<td>{html.escape(said.extras(row))}"
            for row in rows
        )
        table = (
            f"<table class=answer><tr><th>from<th>column<th>value<th>low<th>high<th>{body}</table>"
            if rows
            else ""
        )
        yield (
            f"<div class=answered><h3>{html.escape(answer.name)}</h3><p>{html.escape(what)} All rows are in "
            f"<code>{html.escape(answer.location)}</code>.</p>{table}</div>\n"
        )


def _kind(config: Config) -> str:
    """Which values bands and errors are about."""
    return "bounded" if Words(config).bounds else "true"


def _table(rows: Sequence[Row]) -> str:
    """The numbers of a picture."""
    body = "".join(
        f"<tr><td>{row.moment}"
        + "".join(f"<td>{meant(number, row.half)}" for number in (row.value, row.low, row.high))
        for row in rows
    )
    return (
        "<details><summary>As a table</summary><table><tr><th>from<th>mean value<th>low<th>high"
        f"{body}</table></details>"
    )


def _day(config: Config) -> int | None:
    """Steps of a day, where there are several."""
    day = steps_of_a_day(step_seconds(config))
    return day if day is not None and day <= MOST_ROWS else None


def _chosen(answers: Values) -> tuple[list[int], int]:
    """The columns to draw, by what was released of them, which anybody may look at."""
    width = answers.shape[1]
    if width <= MOST_SHOWN:
        return list(range(width)), 0
    largest = np.argsort(-np.nansum(answers, axis=0), kind="stable")[:MOST_SHOWN]
    return [int(column) for column in largest], width - MOST_SHOWN


def _errors(page: Page, one: Statistic) -> str:
    truth, newest, config = one.truth, one.newest, one.config
    assert truth is not None
    labels = config.query.answer_labels
    answers = config.query.answers(newest.values)
    errors = np.abs(answers - truth)
    chosen, _ = _chosen(answers)
    rows = [(labels[column], truth[:, column], errors[:, column]) for column in chosen]
    own = len(config.query.own_labels)
    if own > 1:  # of means alone: their mean with counts would be a number of nothing
        rows.append((f"all {own:,} columns", truth[:, :own].ravel(), errors[:, :own].ravel()))
    body = "".join(
        f"<tr><td>{html.escape(name)}<td>{_mean(true):,.1f}<td>{_mean(error):,.2f}"
        f"<td>{_ratio(error, true)}<td>{_quantile(error):,.1f}"
        for name, true, error in rows
    )
    aside = "" if page.made_up else " (not for publication)"
    return (
        f"<section class=inside><h2>{page.named(one, 'How wrong it is')}{aside}</h2>\n<table><tr><th>column"
        f"<th>mean {_kind(config)} value"
        f"<th>mean absolute error<th>relative<th>95 % of errors below{body}</table></section>\n"
    )


def _left_out(page: Page, one: Statistic, left: LeftOut) -> str:
    """What counts nowhere, as shares, and what follows from it."""
    query = one.config.query
    unit = html.escape(Words(one.config).unit)
    rows = [
        ("dropped", left.dropped, "of all records: outside of the clock or of all columns, or incomplete"),
        (
            "bounded",
            left.bounded,
            f"of those that remain: beyond {several(query.most, 'contribution')} of one {unit} in a step",
        ),
    ]
    if query.clip is not None:
        rows.append(("clipped", left.clipped, "of all values: outside of the clip, which count as its end"))
    body = "".join(f"<tr><td>{name}<td>{share:.1%}<td>{meaning}" for name, share, meaning in rows)
    far = _loss(one, left.unbounded) if left.unbounded is not None else ""
    advice = (
        "<p>A larger <code>most</code> or a wider clip keeps more and needs more noise. Choosing them by this page is a "
        "choice made from data, which nothing here has paid for.</p>"
    )
    return (
        f"<section class=inside><h2>{page.named(one, 'What was left out')} (not for publication)</h2>\n"
        f"<p>Of {left.records:,} records:</p>"
        f"<table class=words><tr><th>left out<th>share<th>of what, and why{body}</table>{far}{advice}</section>\n"
    )


def _loss(one: Statistic, file: Values) -> str:
    """How far bounded and released values are from those of the file, which no interval is about."""
    query, newest = one.config.query, one.newest
    own = slice(len(query.own_labels))
    total = float(np.nansum(np.abs(file[:, own])))
    if one.truth is None or not total:
        return ""
    bounded, file = one.truth[:, own], file[:, own]
    off = float(np.nansum(np.abs(bounded - file))) / total
    seen = float(np.nansum(np.abs(query.answers(newest.values)[:, own] - file))) / total
    what = {"sum": "sums", "mean": "means"}.get(query.aggregate, "counts")
    means = f"mean of the file <strong>{_mean(file):,.1f}</strong>, bounded {_mean(bounded):,.1f}"
    low, high = (each[:, own] for each in query.intervals(newest.values, newest.radius))
    known = np.isfinite(low) & np.isfinite(file)
    held = float(((low <= file) & (file <= high))[known].mean()) if known.any() else None
    band = "" if held is None else f" The band holds {held:.1%} of the file's own values."
    return (
        f"<p>The bounded {what} are {off:.1%} away from those of the file, and the released ones {seen:.1%} "
        f"({means}).{band}</p>"
    )


@dataclass(frozen=True)
class Spending:
    """What the window up to each step has cost, by all queries together.

    Parameters
    ----------
    steps
        The last steps of the windows.
    window
        Their length; None: all steps so far.
    spent, limit
        What each has spent, and what it might: the smallest budget in force at any of its steps.
    exact
        What the fullest has spent.
    adds
        Whether charges add up; secrets have accounts of their own.
    """

    steps: npt.NDArray[np.int64]
    window: int | None
    spent: Values
    limit: Values
    exact: Fraction
    adds: bool

    @property
    def fullest(self) -> str:
        """Which window has spent most, and how much."""
        last = int(self.steps[int(np.argmax(self.spent))])
        first = max(1, last - (self.window or last) + 1)
        where = f"step {last:,}" if first == last else f"steps {first:,} to {last:,}"
        return f"the fullest, {where}, spent {show(self.exact)}"

    @classmethod
    def of(cls, page: Page) -> Spending:
        """From the charges of all scopes, also of those that have ended."""
        steps, first = page.first.newest.step, page.first.released
        window = page.first.config.policy.window

        each = [(one.released.spent_by(steps), one.released.unit) for one in page.statistics]
        each += [one.spent_by(first.rows, steps) for one in page.ended]
        spent = np.sum([units * float(unit) for units, unit in each], axis=0)
        fullest = int(np.argmax(spent))
        exact = sum((int(units[fullest]) * unit for units, unit in each), Fraction(0))
        limit = np.full(len(steps), np.inf)
        budgets = [(book.budgets[-1][0], float(book.budgets[-1][1][0])) for _, book in books_of(first.rows())]
        ends = [since for since, _ in budgets[1:]] + [np.inf]
        for (since, budget), end in zip(budgets, ends, strict=True):
            begin = steps - (window or int(steps[-1])) + 1
            limit = np.where((steps >= since) & (begin < end), np.minimum(limit, budget), limit)
        adds = all(one.released.adds for one in page.statistics)
        return cls(steps, window, spent, limit, exact, adds)


def _budget(page: Page, spending: Spending) -> str:
    """What the window up to each step has cost, by all queries together, against its limit."""
    config, window = page.first.config, spending.window
    if not spending.adds:
        return (
            "<section><h2>What it cost</h2>\n<p>Every secret has an account of its own, which the log limits: there "
            "is no sum to show.</p></section>\n"
        )
    budget = config.promise.budget
    symbol = "ρ" if isinstance(budget, ZeroConcentrated) else "ε"
    where = "of all steps so far" if window is None else f"of the {several(window, 'step')} up to each step"
    of_all = " of all statistics together" if page.several else ""
    units = page.first.released.units
    # under an (ε, δ) budget charges do not simply add: their number is what is limited
    counted = isinstance(budget, Approximate) and units > 1 and not page.several
    said = f"The privacy loss{of_all} {where}, which may never exceed {show(budget.total)} (dashed)."
    if counted:
        said = f"The charges {where}, drawn as parts of ε: {several(units, 'charge')} at most (dashed)."
    picture = draw_budget(Moments(config, spending.steps), spending.spent, spending.limit, symbol)
    return (
        f"<section><h2>What it cost</h2>\n<p>{html.escape(said)}</p>\n<figure class=small>{picture}</figure>"
        f"{_shares(page)}</section>\n"
    )


def _shares(page: Page) -> str:
    """Which part of the budget each of several queries has."""
    if not page.several:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(one.config.name)}<td>{show(one.config.share)}"
        f"<td>{html.escape(budget_in_words(one.config.policy.budget))}<td>{released_by(one.config.mechanism)}"
        for one in page.statistics
    )
    return f"<table class=words><tr><th>statistic<th>share<th>budget<th>released by{rows}</table>"


def _status(page: Page, one: Statistic) -> str:
    config, newest = one.config, one.newest
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
        strip = f"<figure class=small>{draw_status(Moments(config, newest.step), newest.status)}</figure>"
    return (
        f"<section><h2>{page.named(one, 'What was measured, and what was skipped')}</h2>\n"
        f"{strip}<table><tr><th>steps<th>number<th>share<th>meaning{body}</table>{more}</section>\n"
    )


def _card(page: Page) -> str:
    """The card of the deployment, which `release --card` writes as JSON."""
    found = card_of_all([one.released.config for one in page.statistics], page.history)
    rows = "".join(f"<tr><td>{html.escape(label)}<td>{html.escape(value)}" for label, value in _fields(found))
    return (
        "<section id=card><details><summary><h2>The card of this deployment</h2></summary>"
        f"<table class=words><tr><th>field<th>value{rows}</table></details></section>\n"
    )


def _fields(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a card, each in one line."""
    for name, value in found.items():
        if name == "queries":
            for query, own in value.items():
                yield from _fields(own, f"{query} ")
            continue
        for key, part in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(part, dict):
                part = "; ".join(f"{one}: {two}" for one, two in part.items())
            elif isinstance(part, list):
                part = ", ".join(map(str, part[:MOST_SHOWN])) + (", …" if len(part) > MOST_SHOWN else "")
            if part not in (None, ""):
                yield f"{before}{name} {key}".strip().replace("_", " "), str(part)


def _footer(page: Page, verification: Verification) -> str:
    now = datetime.datetime.now(datetime.UTC)
    each = " ".join(_mechanism(page, one) for one in page.statistics)
    chosen = page.first.config.about.chosen or "this is not stated"
    return (
        f"<footer><p>{each} How the parameters were chosen: {html.escape(chosen)}. "
        f"Head of the log: <code>{verification.head.hex()[:16]}</code>, after "
        f"{several(verification.commits, 'commit')}; whoever holds a later copy can check that it continues this one."
        "</p>\n"
        f"<p>Tidegate {__version__}, {now:%Y-%m-%d %H:%M} UTC.</p></footer>\n"
    )


def _mechanism(page: Page, one: Statistic) -> str:
    config = one.config
    parameters = ", ".join(f"{name} = {value}" for name, value in config.parameters.items()) or "defaults"
    named = f"{html.escape(config.name)}: " if page.several else ""
    return f"{named}Mechanism {config.mechanism_keys.name} ({html.escape(parameters)}). {_bounding(config)}"


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
        return f"Each unit counts once in a column, and in at most {several(query.most, 'column')} a step."
    return f"Each unit counts at most {several(query.most, 'time')} a step."


def _before(page: Page, one: Statistic) -> str:
    """Says so where an earlier query of the same name was about something else, or bounded otherwise."""
    config, first = one.config, one.released.scope.first
    earlier = [each for each in page.ended if each.scope.name == config.name]
    if all(each.same_statistic(config) for each in earlier):
        if all(each.same_bounds(config) for each in earlier):
            return ""
        return (
            f"<p>Before step {first:,} there were other bounds of what one contribution or unit adds.</p>\n"
        )
    which = html.escape(config.name) if page.several else "The query"
    return (
        f"<p>{which} was another one before step {first:,}, and its numbers are in its earlier output.</p>\n"
    )


def _silent(one: Statistic) -> str:
    """How many steps say nothing, and which."""
    silent = one.newest.step[one.newest.status == Status.SILENT]
    if not len(silent):
        return ""
    are = "is" if len(silent) == 1 else "are"
    runs = np.split(silent, np.flatnonzero(np.diff(silent) > 1) + 1)
    which = ", ".join(
        f"{run[0]:,}" if len(run) == 1 else f"{run[0]:,} to {run[-1]:,}" for run in runs[:MOST_RUNS]
    )
    more = f" and {len(runs) - MOST_RUNS:,} times more" if len(runs) > MOST_RUNS else ""
    return f"<p>{len(silent):,} of {several(len(one.newest), 'step')} {are} silent: {which}{more}.</p>\n"


def _read(one: Statistic) -> Values:
    """The numbers of all steps that are not silent; what the query did not count before an amendment is no gap."""
    newest, answers = one.newest, one.numbers.answers
    before = newest.step < one.released.scope.first
    new = before.any() & np.isnan(answers[before]).all(axis=0)
    found: Values = np.where(before[:, np.newaxis] & new, 0.0, answers)
    return np.asarray(found[newest.status != Status.SILENT])


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
