"""What the numbers mean, in words for people who have never heard of differential privacy."""

from __future__ import annotations

import math
from typing import Any

from tidegate.config import Config
from tidegate.exact import show
from tidegate.policy import Approximate, Pure, ZeroConcentrated
from tidegate.report.found import rule
from tidegate.report.wording import Words, several


def duration(seconds: float) -> str:
    """A length of time in words.

    Examples
    --------
    >>> duration(3600), duration(86400), duration(90), duration(5400)
    ('1 hour', '1 day', '90 seconds', '90 minutes')
    """
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size and seconds % size == 0 and (seconds // size > 1 or seconds == size):
            return several(int(seconds // size), word)
    return f"{seconds:g} seconds"


def step_length(config: Config) -> float:
    """The length of the first step in seconds."""
    steps = config.steps
    return (steps.boundary(2) - steps.boundary(1)) / 1e6


def meaning(config: Config, *, revises: bool) -> list[dict[str, str]]:
    """Questions that people have, and answers."""
    length, policy = step_length(config), config.policy
    answers = [
        ("What do I see?", _seen(config, length)),
        ("Why are the numbers not exact?", _noise()),
        ("What does the ± mean?", _band(config)),
        ("Who is protected, and for how long?", _window(config, length)),
        ("What is ε?", _budget((config.whole or policy).budget)),
    ]
    if config.query.discovers:
        answers.insert(1, ("Where do the names come from?", rule(config)))
        answers.insert(
            2,
            (
                "What is in other?",
                "All records that count and whose category is not open. It does not say how many categories these are.",
            ),
        )
    if revises:
        answers.append(
            (
                "Why do numbers change later?",
                "Some numbers become better when the following ones are known. The first value is shown as a dot until "
                "then; the line follows the newest one. Nothing more about anybody is used for that.",
            )
        )
    return [{"question": question, "answer": answer} for question, answer in answers]


def _seen(config: Config, length: float) -> str:
    each, words, about = duration(length), Words(config), config.about
    counted = {
        "count": f"how many {about.counted or 'events'} there were",
        "distinct": f"how many different {words.units if about.unit else 'people, devices or households'} were seen",
        "sum": "a sum of values, each of them limited to a public range",
        "mean": "a mean of values, each of them limited to a public range",
        "quantile": "quantiles of the values",
        "histogram": f"how many {about.counted or 'events'} fell into each interval",
        "given": "numbers that were added up elsewhere",
    }[config.query.aggregate]
    per = "every" if each.startswith("1 ") else "each period of"
    return f"For {per} {each.removeprefix('1 ')}: {counted}. {words.bounds}".rstrip()


def _noise() -> str:
    return (
        "Before a number is published, chance adds or takes away a little. So nobody can tell from what is published "
        "whether any one person was counted, not even somebody who knows everything about everybody else. The exact "
        "numbers are never published and never leave the place where they were counted."
    )


def _band(config: Config) -> str:
    bounds = Words(config).bounds
    exact = "nine of ten exact numbers lie within it. "
    if bounds:
        exact = f"nine of ten bounded numbers lie within it. {bounds} "
    return (
        f"The shaded range shows how far chance may have moved a number: {exact}"
        "Where a number is small against its range, all one can say is that there were few. "
        "Where no range is shown, the number was carried on from an earlier time, and nobody knows how far it has moved."
    )


def _window(config: Config, length: float) -> str:
    window, policy = config.window, config.policy
    change = show(policy.max_change)  # type: ignore[arg-type]  # exact by now
    who = config.about.unit or "person"
    if window is None:
        return f"Everything that one {who} adds to this stream, at most {change} at a time, is protected as a whole."
    if window == 1:
        return (
            f"What one {who} does within {duration(length)} is protected. Whoever is counted again and again over a "
            "longer time is protected less over all of it."
        )
    return (
        f"Everything that one {who} does within any {duration(window * length)} ({several(window, 'step')}) is protected "
        f"as a whole, at most {change} in each step. Whoever is counted over a longer time is protected less over all of "
        "it."
    )


def _budget(budget: Any) -> str:
    if isinstance(budget, ZeroConcentrated):
        return (
            f"ρ (rho) says how strong the protection is; smaller is stronger. Here ρ = {show(budget.rho)}. It bounds how "
            "much better anybody can guess whether a person was counted after seeing everything that is published."
        )
    assert isinstance(budget, Pure | Approximate)
    epsilon = float(budget.epsilon)
    words = f"ε (epsilon) says how strong the protection is; smaller is stronger. Here ε = {show(budget.epsilon)}. "
    guess = 100 / (1 + math.exp(-epsilon))
    words += (
        "Somebody who would have bet 50 to 50 that a person was counted can, after seeing everything that is published, "
        f"be at most {guess:.0f} % sure"
        if guess < 99.5
        else "Such an ε is very large and protects little"
    )
    if isinstance(budget, Approximate) and budget.delta:
        words += f", except with a probability of at most {float(budget.delta):.2g}"
    return words + "."
