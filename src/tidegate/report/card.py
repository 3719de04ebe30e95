"""The card of a deployment: what is protected, how well and by what, for machines and for people.

Its fields follow what public registries of deployments of differential privacy ask for: who publishes, the unit of
protection, the neighbours, the model of trust, the parameters and how they were chosen, the mechanism and its program.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.composition import zcdp_delta
from tidegate.config import Config
from tidegate.exact import show
from tidegate.ingest.requirements import RequirementTable
from tidegate.policy import Approximate, Budget, ZeroConcentrated
from tidegate.report.found import rule
from tidegate.report.learnt import learnt_clip, released_by
from tidegate.report.wording import Words, budget_in_words, title_of_all
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import check_earlier
from tidegate.version import __version__

NOT_STATED = "not stated"
DELTA = Fraction(1, 10**5)  # the one δ at which every ρ is converted, so that deployments can be compared
DIGITS = 4  # of a converted ε


def epsilon_of(budget: ZeroConcentrated) -> Fraction:
    """An ε such that ρ-zCDP implies (ε, 1e-5)-privacy, rounded up to four digits.

    Examples
    --------
    >>> float(epsilon_of(ZeroConcentrated(Fraction(1, 2))))
    4.729
    """
    low, high = Fraction(0), budget.rho + 1
    while zcdp_delta(budget.rho, high) > DELTA:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if zcdp_delta(budget.rho, middle) <= DELTA else (middle, high)
    grid = Fraction(10) ** (math.floor(math.log10(high)) + 1 - DIGITS)
    return math.ceil(high / grid) * grid


def budget_with_epsilon(budget: Budget) -> str:
    """A budget in words; ρ always with its ε at δ = 1e-5.

    Examples
    --------
    >>> budget_with_epsilon(ZeroConcentrated(Fraction(1, 2)))
    'ρ = 0.5 (ε = 4.729 at δ = 1e-5)'
    """
    words = budget_in_words(budget)
    if isinstance(budget, ZeroConcentrated):
        return f"{words} (ε = {show(epsilon_of(budget))} at δ = 1e-5)"
    return words


def card(config: Config, history: Sequence[str] = ()) -> dict[str, Any]:
    """The card as JSON, from the configuration and from how its stream was amended, a sentence each."""
    words, policy, about = Words(config), config.policy, config.about
    budget = config.promise.budget
    return {
        "title": words.title,
        "publisher": about.publisher or NOT_STATED,
        "contact": about.contact or NOT_STATED,
        "data_product": {
            "kind": "continual release of aggregates",
            "aggregate": config.query.aggregate,
            "values": words.counted or NOT_STATED,
            "bounded": words.bounds or "nothing is left out",
            "columns": rule(config) if config.query.discovers else list(config.query.answer_labels),
            "step": words.step,
            "start": config.steps.begin(1).astimezone(ZoneInfo(config.steps.zone)).isoformat(),
            "steps": config.steps.count,
        },
        "privacy": {
            "flavour": type(budget).__name__,
            "unit": words.unit,
            "protects": words.protected,
            "policy": policy.name,
            "window_steps": config.window,
            "neighbours": policy.adjacency,
            "mobility": policy.mobility,
            "max_change": show(Fraction(policy.max_change)),
            "most_contributions_a_step": None if config.query.aggregate == "given" else config.query.most,
            "epsilon": None if isinstance(budget, ZeroConcentrated) else show(budget.epsilon),
            "delta": show(budget.delta) if isinstance(budget, Approximate) else "0",
            "rho": show(budget.rho) if isinstance(budget, ZeroConcentrated) else None,
            **(
                {"epsilon_at_delta_1e-5": show(epsilon_of(budget))}
                if isinstance(budget, ZeroConcentrated)
                else {}
            ),
            "lifetimes": {name: budget_with_epsilon(lost) for name, lost in words.lifetimes()},
            "guarantee": str(config.promise),
            **({"requirements": _asked(config.query.requirements)} if config.query.requirements else {}),
            **(
                {}
                if config.whole is None
                else {"query": config.name, "share_of_the_budget": show(config.share)}
            ),
            "assumptions": [*config.guarantee.assumptions, *config.assumptions],
            **({"history": list(history)} if history else {}),
            "parameters_chosen": about.chosen or NOT_STATED,
        },
        "model": "central: the curator sees the events, and everybody else the releases",
        "mechanism": {
            "name": released_by(config.mechanism),
            "chosen_as": config.mechanism_keys.name,
            "parameters": {name: str(value) for name, value in config.parameters.items()},
            "clip": None
            if config.query.clip is None
            else [show(Fraction(bound)) for bound in config.query.clip],
            "clip_learnt_from_steps": None if config.query.learn is None else config.query.learn.steps,
            "clip_learnt": learnt_clip(config),
            "grid": show(Fraction(config.query.grid)),
        },
        "implementation": {"name": "Tidegate", "version": __version__, "fingerprint": config.fingerprint},
    }


def _asked(table: RequirementTable) -> list[dict[str, Any]]:
    """What units of a public table ask for beyond what all have."""
    asked = list(zip(table.promises, table.counts, strict=True))[1:]
    return [
        {"units": count, "epsilon": show(promise.epsilon), "window_steps": promise.window}
        for promise, count in asked
    ]


def card_of_all(parts: Sequence[Config], history: Sequence[str] = ()) -> dict[str, Any]:
    """One card for all queries of a stream: what is promised of all, then what is particular to each, by its name."""
    if len(parts) == 1:
        return card(parts[0], history)
    cards = {part.name: card(part, history) for part in parts}
    first = cards[parts[0].name]
    own = ("max_change", "most_contributions_a_step", "share_of_the_budget")
    privacy = {
        name: value for name, value in first["privacy"].items() if name not in (*own, "query", "assumptions")
    }
    clauses = dict.fromkeys(clause for each in cards.values() for clause in each["privacy"]["assumptions"])
    return {
        "title": title_of_all(parts),
        "publisher": first["publisher"],
        "contact": first["contact"],
        "privacy": {
            **privacy,
            "guarantee": f"All queries together: {parts[0].promise.budget} for "
            f"{parts[0].protects(parts[0].policy).partition(':')[0]} ({parts[0].policy.name}).",
            "assumptions": list(clauses),
        },
        "model": first["model"],
        "queries": {
            name: {
                "data_product": each["data_product"],
                "privacy": {key: each["privacy"][key] for key in own if key in each["privacy"]},
                "mechanism": each["mechanism"],
                "implementation": {"fingerprint": each["implementation"]["fingerprint"]},
            }
            for name, each in cards.items()
        },
        "implementation": {key: first["implementation"][key] for key in ("name", "version")},
    }


def check_card(path: Path) -> None:
    """Refuse to replace a file that is no card."""
    check_earlier("card", path, "card", b'{\n  "title"')


def write_card(path: Path, parts: Sequence[Config], history: Sequence[str] = ()) -> None:
    """Write the card of all queries as JSON; an earlier card is replaced, and nothing else."""
    check_card(path)
    text = json.dumps(card_of_all(parts, history), indent=2, ensure_ascii=False) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SinkError(f"the card {path} cannot be written ({error.strerror}); name another file.") from None
