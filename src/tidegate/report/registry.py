"""The record of a deployment for the public registry of deployments of differential privacy (tier 3).

Its fields are those of the registry's schema (repository opendp/deployments-registry-data). The registry knows no
sliding window: `release_type_details` says when budget returns and what longer presences lose. What only the owner
knows comes from ``[about]``. Nothing here is read from the data.
"""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidegate.config import Config, Queries
from tidegate.errors import InvalidInput, InvalidParameter, without_secrets
from tidegate.exact import show
from tidegate.naming import listed
from tidegate.pipeline.logs import LogReader, log_exists
from tidegate.pipeline.stream_reader import books_of, history_of
from tidegate.policy import Approximate, Budget, Guarantee, Pure, Swellfish, User, ZeroConcentrated
from tidegate.report.accuracy import step_seconds
from tidegate.report.card import DELTA, budget_with_epsilon, epsilon_of
from tidegate.report.explanation import explain, published
from tidegate.report.learnt import released_by
from tidegate.report.wording import Words, several
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import check_earlier
from tidegate.version import __version__

NEEDED = (
    "publisher",
    "publisher_type",
    "intended_use",
    "region",
    "publication_date",
    "authors",
    "access",
    "chosen",
)
TIER = 3
DAY = 86_400
PRESENCES = (("a day", DAY), ("a month (30 days)", 30 * DAY), ("a year (365 days)", 365 * DAY))
NO_BOUND = 0.9999  # a bound on a guess that is as good as none


def registry_record(queries: Queries, history: Sequence[str] = ()) -> dict[str, Any]:
    """The record, from the configuration and from how its stream was amended.

    Parameters
    ----------
    queries
        The configuration. Several queries are one deployment: they have one budget.
    history
        A sentence for each amendment, as `recorded_history` reads them.
    """
    config = queries.first
    words, about = Words(config), config.about
    _check(config)
    date = str(about.publication_date)
    basic = {
        "name": words.title,
        "data_curators": [
            {"data_curator_name": about.publisher, "data_curator_type": about.publisher_type},
        ],
        "description": _lines(" ".join(published(part, named=queries.listed)) for part in queries.parts),
        "intended_use": about.intended_use,
        "data_product_type": "Summary statistics",
        "data_product_region": about.region,
        "publication_date": date,
        **({"data_product_sector": about.sector} if about.sector else {}),
    }
    budget = queries.policy.budget
    record = {
        "url_slug": _slug(f"{words.title} {about.publisher} {date[:4]}"),
        "status": "Draft",
        "tier": TIER,
        "deployment": {
            "basic": basic,
            "dp_variant": {
                "variant_name": _variant(config, budget),
                "data_domain": _domain(config, words),
                "unprotected_quantities": _lines(_unprotected(queries)),
            },
            "privacy_loss": {
                "privacy_unit": _unit(config, words),
                "privacy_unit_details": _lines(_unit_details(queries, words)),
                "privacy_parameters": _parameters(budget),
                "privacy_parameters_details": _lines(_parameters_details(queries)),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "The curator sees the events; everybody else sees the releases.",
                "actors": _lines(_actors(config, words)),
                "release_type": "Many releases",
                "release_type_details": _lines([*_releases(config, words), *history]),
                "data_source_type": "Dynamic",
                "data_source_type_details": f"New events arrive for every {words.step}.",
                "access_type": "Non-interactive",
                "access_type_details": (
                    "The queries are fixed in a public configuration. Readers cannot ask the raw data anything."
                ),
            },
            "accounting": {
                "post_processing": _lines(_post_processing(queries)),
                "composition": _lines(_composition(queries)),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _lines(_tuning(queries)),
                "mechanisms": _lines(_mechanisms(queries)),
                "justification": _lines(_justification(queries)),
            },
            "administrative": {
                "registry_authors": list(about.authors),
                "notes": _lines(_notes(config)),
            },
        },
    }
    return record


def recorded_history(queries: Queries) -> list[str]:
    """How the stream was amended, a sentence each; nothing where it has not begun."""
    if not log_exists(queries.ledger):
        return []
    with LogReader(queries.ledger) as log:
        return history_of([book for _, book in books_of(log.rows())])


def check_record(path: Path) -> None:
    """Refuse to replace a file that is no record."""
    check_earlier("out", path, "record", b"url_slug: ")


def write_record(path: Path, text: str) -> None:
    """Write a record; an earlier one is replaced, and nothing else."""
    check_record(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SinkError(
            f"the record {path} cannot be written ({error.strerror}); name another file."
        ) from None


def _check(config: Config) -> None:
    """Refuse what no reviewer could judge: a promise that is not kept, or gaps that only the owner can fill."""
    if config.promise.calibration != "sound":
        raise InvalidParameter(
            "mechanism", config.mechanism_keys.name, "in its sound calibration", "leave the printed one out"
        )
    missing = [name for name in NEEDED if not getattr(config.about, name)]
    if missing:
        them = "it" if len(missing) == 1 else "them"
        raise InvalidInput(
            f"the record needs {listed(missing)} in [about] of {config.path.name}, which only the owner knows; "
            f"add {them}."
        )
    date = str(config.about.publication_date)
    try:
        found = datetime.date.fromisoformat(date).isoformat()
    except ValueError:
        found = ""
    if found != date:
        raise InvalidParameter(
            "publication_date", date, "a date", 'write for example publication_date = "2026-03-02" in [about]'
        )


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "deployment"


def _lines(sentences: Sequence[str] | Iterator[str]) -> str:
    """Sentences as Markdown: one alone as it is, several as a list."""
    found = [" ".join(without_secrets(sentence).split()) for sentence in sentences]
    found = [sentence[:1].upper() + sentence[1:] for sentence in found]
    return found[0] if len(found) == 1 else "\n".join(f"- {sentence}" for sentence in found)


def _named(part: Config, queries: Queries) -> str:
    return f"{part.name}: " if queries.listed else ""


def _variant(config: Config, budget: Budget) -> str:
    if isinstance(config.policy, Swellfish):
        return "Custom"
    return {Pure: "Pure DP", Approximate: "Approximate DP", ZeroConcentrated: "Zero-concentrated DP"}[
        type(budget)
    ]


def _domain(config: Config, words: Words) -> str:
    values = (
        "vectors of given readings"
        if config.query.aggregate == "given"
        else f"finite sets of events, each of one {words.unit}"
    )
    return (
        f"Streams of {values}, one for every {words.step} since {config.steps.start}. Clock, columns and bounds are "
        "public and chosen without the data."
    )


def _unprotected(queries: Queries) -> Iterator[str]:
    config = queries.first
    yield "Every released value is computed from noisy measurements and public numbers."
    yield "Public by configuration: the clock, the columns, the budget and every parameter."
    if any("missing is public" in clause for clause in config.guarantee.assumptions):
        yield "Which readings are missing is public."
    yield (
        f"Published beside it without noise: {config.about.unprotected}"
        if config.about.unprotected
        else "The owner names nothing that is published beside it without noise (`unprotected` in [about])."
    )


def _unit(config: Config, words: Words) -> str:
    policy = config.policy
    if isinstance(policy, Swellfish):
        return "Specified events of a household"
    if isinstance(policy, User):
        return f"{words.unit}-level, over the whole stream"
    if config.window == 1:
        return f"{words.unit}-step: one {words.unit} in any one {words.step}"
    return f"{words.unit}-window: one {words.unit} in any {words.span(config.window or 1)}"


def _unit_details(queries: Queries, words: Words) -> Iterator[str]:
    config = queries.first
    policy = config.policy
    if isinstance(policy, Swellfish):
        yield from _specified(config)
        return
    for part in queries.parts:
        yield f"{_named(part, queries)}two streams are adjacent if they differ in {part.protects(part.policy)}."
    changed = {"add-remove": "added or removed", "replace": "replaced by others"}[policy.adjacency]
    yield f"The contributions of one {words.unit} to these steps are {changed}."
    moves = "may be in another column at every step" if policy.mobility == "moving" else "stays in one column"
    yield f"A {words.unit} {moves}."
    if config.query.aggregate == "given":
        yield "Readings were added up before: that no unit changes a step by more is declared by the owner."
    elif config.schema.unit is None:
        yield "There is no column of units: each record is protected by itself, and not a person with several."
    else:
        yield (
            f"Two {words.units} of one person are two units, and lose "
            f"{budget_with_epsilon(config.promise.for_tuples(2).budget)} together."
        )


def _specified(config: Config) -> list[str]:
    """Which events are hidden, as `tidegate explain` says it."""
    return [
        sentence
        for sentence in explain(Queries((config,), config.policy, listed=False))[1:]
        if not sentence.startswith("We assume that ")
    ]


def _parameters(budget: Budget) -> dict[str, float]:
    match budget:
        case ZeroConcentrated():
            return {
                "epsilon": rounded_up(epsilon_of(budget)),
                "delta": float(DELTA),
                "rho": rounded_up(budget.rho),
            }
        case Approximate():
            return {"epsilon": rounded_up(budget.epsilon), "delta": rounded_up(budget.delta)}
    return {"epsilon": rounded_up(budget.epsilon)}


def rounded_up(value: Fraction) -> float:
    """The nearest float, or the next one above: a loss is never printed smaller than it is.

    Examples
    --------
    >>> rounded_up(Fraction(1, 10)) >= Fraction(1, 10), rounded_up(Fraction(2))
    (True, 2.0)
    """
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


def _parameters_details(queries: Queries) -> Iterator[str]:
    config = queries.first
    words = Words(config)
    yield f"Exactly: {budget_with_epsilon(queries.policy.budget)}, for {words.protected}."
    if words.requirements:
        yield words.requirements
    factor = _guess(queries.policy.budget)
    if factor:
        yield f"{factor} by all releases together, about one {words.unit} in that time."
    if queries.listed:
        parts = ", ".join(f"{part.name} {show(part.share)}" for part in queries.parts)
        yield f"The budget is for all statistics together; their parts are {parts}."


def _guess(budget: Budget) -> str:
    """How far a guess at even odds may be raised; empty where δ or ρ gives no such number."""
    if not isinstance(budget, Pure):
        return ""
    sure = 1 / (1 + math.exp(-min(float(budget.epsilon), 700.0)))
    if sure > NO_BOUND:
        return "This bounds no guess: even odds may become certainty"
    return f"Whatever else is known, a guess at even odds (50 %) rises to at most {100 * sure + 0.05:.1f} %"


def _actors(config: Config, words: Words) -> Iterator[str]:
    about = config.about
    contact = f" Questions go to {about.contact}." if about.contact else ""
    yield f"Curator: {about.publisher}. It sees raw events, ledger and state, and is trusted with them.{contact}"
    yield f"Data subjects: the {words.units} in the data, and the people behind them. They trust the curator."
    if config.source.location.startswith(("mqtt:", "mqtts:", "kafka:", "postgresql:")):
        yield "The operator of the broker or database that the events come from: it sees raw events and is trusted."
    yield "Readers of the releases: not trusted. They may know everything about everybody else and may collude."
    yield "Auditors: they see the account of charges, which holds no event; `notes` says how they check it."


def _releases(config: Config, words: Words) -> Iterator[str]:
    """The window: when budget returns, and what somebody loses in a day, a month and a year."""
    policy, count = config.policy, config.steps.count
    ends = f"{several(count, 'step')} ({words.span(count)}) in all" if count else "without an end"
    edition = " and edition" if config.edition else ""
    yield f"One release for every {words.step}{edition}, {ends}."
    if isinstance(policy, Swellfish):
        yield "Each specified event has a budget of its own for the time in which it is hidden; nothing resets."
        return
    window, budget = config.window, config.promise.budget
    if window is None:
        yield f"One fixed total of {budget_with_epsilon(budget)} for the whole stream: no budget ever returns."
        yield f"So a {words.unit} loses at most {budget_with_epsilon(budget)} in a day, in a month and in a year."
        return
    length, account = words.span(window), window + config.trailing
    yield (
        "The budget belongs to a sliding window, not to a period that resets: in any "
        f"{several(account, 'consecutive step')} ({words.span(account)}), wherever they begin, all releases together "
        f"lose at most {budget_with_epsilon(budget)}."
    )
    yield (
        f"What a step has spent returns {several(account, 'step')} ({words.span(account)}) later, when no window holds "
        "both. A release that would exceed a window is refused before noise is drawn."
    )
    yield "No total is fixed over all windows: whoever is there for longer loses more, by the number of windows."
    for name, found in presences(config):
        yield f"One {words.unit}, {name}: at most {budget_with_epsilon(found.budget)}."
    yield f"Protected: whether a {words.unit} was there, or what it did, within any given {length}."
    yield (
        f"Not protected by this number: whether a {words.unit} is there always or never, over many windows. "
        "The losses above bound that question."
    )


def presences(config: Config) -> list[tuple[str, Guarantee]]:
    """What one unit loses that is there for a day, a month, a year, and for the whole stream where it ends."""
    seconds, count = step_seconds(config), config.steps.count
    found = []
    for name, length in PRESENCES:
        steps = math.ceil(Fraction(length) / seconds)
        if count and steps > count:
            found.append(
                (
                    f"{name}, which is longer than the stream",
                    config.promise.over(steps=count + config.trailing),
                )
            )
        else:
            found.append((name, config.promise.over(steps=steps + config.trailing)))
    return found


def _post_processing(queries: Queries) -> Iterator[str]:
    yield "Intervals, and values between two measurements, are computed from releases and public parameters."
    for part in queries.parts:
        name = _named(part, queries)
        if part.query.levels is not None and part.query.aggregate != "quantile":
            yield f"{name}each parent in the hierarchy is released as the sum of its children."
        if part.answers:
            yield f"{name}{listed([answer.name for answer in part.answers])} computed from releases, at no cost."


def _composition(queries: Queries) -> Iterator[str]:
    budget = queries.policy.budget
    rule = {
        Pure: "The ε of all steps of a window add up (sequential composition)",
        Approximate: "The steps of a window compose by the optimal bound for pure mechanisms at the stated δ",
        ZeroConcentrated: "The ρ of all steps of a window add up (adaptive composition under zCDP)",
    }[type(budget)]
    if isinstance(queries.first.policy, Swellfish):
        rule = "The losses of all steps add up over every placement of every specified event"
    yield f"{rule}; the account is kept in exact numbers and committed before a release leaves."
    if queries.listed:
        yield "Several statistics have fixed parts of one budget, which add up to no more than the whole."


def _tuning(queries: Queries) -> Iterator[str]:
    yield f"Choice of parameters: {queries.first.about.chosen}"
    for part in queries.parts:
        query, name = part.query, _named(part, queries)
        if query.aggregate != "given":
            unit = Words(part).unit
            yield f"{name}contributions are bounded: a {unit} counts at most {several(query.most, 'time')} in one step."
        if query.learn is not None:
            yield f"{name}the clip is learnt from the first {several(query.learn.steps, 'step')}, and their budget pays."
        elif query.clip is not None:
            low, high = (show(Fraction(bound)) for bound in query.clip)
            yield f"{name}values are clipped to [{low}, {high}], which is public."
        if part.mechanism_keys.name == "auto":
            yield f"{name}the mechanism was chosen by a plan from public keys alone, which costs nothing."


def _mechanisms(queries: Queries) -> Iterator[str]:
    for part in queries.parts:
        given = ", ".join(f"{name} = {value}" for name, value in part.parameters.items()) or "defaults"
        yield f"{_named(part, queries)}{released_by(part.mechanism)} ({given})."
    yield f"Library: Tidegate {__version__}; configuration {queries.fingerprint}."
    yield "Floating point: noise is drawn in whole numbers of a public grid, from the system's entropy, by exact rules."
    yield (
        "Timing: steps close by the public clock. How late a release comes tells roughly how many events all units sent "
        "together; the guarantee does not cover it."
    )
    yield "Platform: whoever can watch the machine, its memory or its disk is not covered by the guarantee."
    yield f"Access: {queries.first.about.access}"


def _justification(queries: Queries) -> Iterator[str]:
    yield f"Parameters: {queries.first.about.chosen}"
    if all(type(part.mechanism).__module__.startswith("tidegate.") for part in queries.parts):
        yield "The mechanism has a written proof, which names its source files, and an auditor attacks it in tests."
    else:
        yield "A mechanism is the owner's own: its proof is not part of Tidegate."
    clauses = dict.fromkeys(
        clause for part in queries.parts for clause in (*part.guarantee.assumptions, *part.assumptions)
    )
    for clause in clauses:
        yield f"Assumed: {clause}."


def _notes(config: Config) -> Iterator[str]:
    """Who can check what was promised."""
    if config.about.account:
        yield (
            f"Who can check: everybody. `tidegate verify {config.about.account}` recomputes every window of the "
            "account."
        )
    else:
        yield (
            "Who can check: the curator, by `tidegate ledger verify`. No public address of the account is named "
            "(`account` in [about])."
        )
    yield "A check covers charges and their order. That noise was drawn as charged follows from the program, not from it."
