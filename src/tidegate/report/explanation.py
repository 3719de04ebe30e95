"""What a configuration means, in sentences: what is published, who is protected when, and what is not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from tidegate.config import Config, Queries
from tidegate.errors import without_secrets
from tidegate.exact import show
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.naming import MOST_NAMES, listed
from tidegate.policy import Secret, Swellfish
from tidegate.report.found import rule
from tidegate.report.learnt import learnt_clip, released_by
from tidegate.report.wording import Words, budget_in_words, odds, several

MOST_SPECIFICATIONS = 50


def explain(queries: Queries) -> list[str]:
    """Sentences about a file with one query or several; nothing is read but the file and what it names."""
    sentences: list[str] = []
    if queries.listed:
        sentences.append(
            f"{len(queries.parts)} statistics are published under one budget of "
            f"{budget_in_words(queries.policy.budget)} for all of them together."
        )
    for part in queries.parts:
        found = list(published(part, named=queries.listed))
        if queries.listed:
            found.append(f"Its part of the budget is {show(part.share)}.")
        sentences.append(" ".join(found))
    first = queries.first
    if isinstance(first.policy, Swellfish):
        sentences += _specified(first, first.policy)
    else:
        sentences += _protected(queries)
    for part in queries.parts:
        sentences += _answers(part)
    assumed = dict.fromkeys(
        clause for part in queries.parts for clause in (*part.guarantee.assumptions, *part.assumptions)
    )
    sentences += [f"We assume that {clause}." for clause in assumed]
    return [without_secrets(sentence) for sentence in sentences]


def published(config: Config, *, named: bool) -> Iterator[str]:
    """What is counted, of what, and what one unit can change."""
    words, query = Words(config), config.query
    counted = {
        "count": "the number of records",
        "distinct": f"the number of {words.units}",
        "sum": f"the sum of {config.schema.value}",
        "mean": f"the mean of {config.schema.value}",
        "histogram": f"the number of records by intervals of {config.schema.value}",
        "quantile": f"{listed(query.answer_labels)} of {config.schema.value}",
        "given": "what the input says, which was added up before,",
    }[query.aggregate]
    labels = query.answer_labels
    where = f" in {listed(labels)}" if len(labels) > 1 and query.aggregate != "quantile" else ""
    if query.discovers:
        where = f" by {config.schema.column}, and of all others together,"
    start = f"{config.name}: every" if named else "Every"
    yield f"{start} {words.step}, {counted}{where} is published with noise by {released_by(config.mechanism)}."
    if query.discovers:
        yield rule(config)
    if config.edition:
        yield words.edition
    if query.where is not None:
        yield f"Only records count of which {query.where} holds."
    if query.lookup is not None:
        yield f"A public table puts {len(query.lookup.keys):,} values of {config.schema.column} into these columns."
    if query.levels is not None and query.aggregate != "quantile":
        yield "Each parent in the hierarchy is released as the sum of its children."
    if query.aggregate == "given":
        return
    times = "once" if query.most == 1 else f"{query.most:,} times"
    if query.over > 1:
        bound = "" if len(query.own_labels) == 1 else f", in at most {several(query.most, 'column')}"
        yield f"A {words.unit} counts in every {words.step} if it was seen in the last {words.span(query.over)}{bound}."
    elif config.schema.unit is not None:
        yield f"In one {words.step} a {words.unit} counts at most {times}."
    if query.learn is not None:
        yield (
            f"The first {query.learn.steps:,} steps are silent: with their budget it is learnt below which threshold "
            f"nearly all values lie. Every later value counts up to that threshold, which {_found(config)}."
        )
        assert isinstance(config.mechanism, ClippedRecords)
        needed = config.mechanism.records_needed
        yield (
            f"To learn from them these steps need about {needed:,} records together, which is "
            f"{math.ceil(needed / query.learn.steps):,} in one; with fewer, values count up to their bound, "
            f"{_bound(config)}, and the noise is as large."
        )
    elif query.clip is not None:
        low, high = (show(Fraction(bound)) for bound in query.clip)
        yield f"A value below {low} counts as {low}, and one above {high} as {high}."


def _bound(config: Config) -> str:
    """What a value counts up to where nothing is learnt."""
    assert config.query.clip is not None
    return show(Fraction(config.query.clip[1]))


def _found(config: Config) -> str:
    """What was learnt, where the stream has come so far."""
    found = learnt_clip(config)
    return "is released when it is known" if found is None else f"is {found}"


def _protected(queries: Queries) -> Iterator[str]:
    """Who is protected, how well, and what longer presences lose."""
    config = queries.first
    words, budget = Words(config), queries.policy.budget
    yield f"Protected is {words.protected}, with {budget_in_words(budget)}."
    factor = odds(budget)
    if factor is not None:
        yield (
            f"Whoever guesses whether a {words.unit} was there, or what it did, within that time learns so little from "
            f"all releases together that the odds of the guess change by a factor of {factor} at most, whatever "
            "else is known."
        )
    if not queries.listed:
        lost = "; ".join(f"{who}: {budget_in_words(each)}" for who, each in words.lifetimes())
        yield f"Whoever is there for longer, or several together, are protected less: {lost}."
    if config.schema.unit is None and config.query.aggregate != "given":
        yield "There is no column of units, so each record is protected by itself, and not a person with several."
    if words.requirements:
        yield words.requirements
    moves = "may move between columns" if config.policy.mobility == "moving" else "stays in one column"
    yield f"A {words.unit} {moves} within that time; steps close by the public clock, whoever is there or not."


def _specified(config: Config, policy: Swellfish) -> Iterator[str]:
    """Which events are hidden, when and how well."""
    words = Words(config)
    many = len(policy.specifications)
    who = "1 public specification names" if many == 1 else f"{many:,} public specifications name"
    joint = ", also if every event of a specification happened at once" if policy.promise == "joint" else ""
    yield (
        f"Protected are the events that {who}: nobody can tell whether one of them happened, wherever it was in the "
        f"time in which it is hidden{joint}."
    )
    for specification in policy.specifications[:MOST_SPECIFICATIONS]:
        name = specification.label or "a specification"
        for secret in specification.secrets:
            yield f"{name}: {_hidden(secret, words)}."
    if many > MOST_SPECIFICATIONS:
        yield f"{many - MOST_SPECIFICATIONS:,} more specifications are in the file."
    yield (
        "Nothing else is hidden by this promise: an event that is higher or longer than every specified one may be "
        "recognised, and so may one outside of the times named here."
    )


def _hidden(secret: Secret, words: Words) -> str:
    """One secret in words."""
    label = f'"{secret.label}"' if secret.label else "an event"
    size = f"at most {show(Fraction(secret.height))} for at most {words.span(secret.duration)}"
    if secret.endless and not secret.recurring:
        when = "at all times"
    else:
        times = [str(rule) for rule in secret.recurring]
        times += [
            f"from step {first:,} to step {last:,}" for first, last in list(secret.intervals)[:MOST_NAMES]
        ]
        more = len(secret.intervals) - MOST_NAMES
        when = ", ".join(times) + (f" and {more:,} times more" if more > 0 else "")
    return f"{label}, {size}, is hidden {when}, with ε = {show(Fraction(secret.epsilon))}"


def _answers(config: Config) -> Iterator[str]:
    if config.answers:
        names = ", ".join(answer.name for answer in config.answers)
        are = "is" if len(config.answers) == 1 else "are"
        yield f"From what was released, {names} {are} computed; that costs nothing."
