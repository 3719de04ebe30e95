"""A stream in words for people who have never heard of differential privacy.

Everything here comes from the configuration and from what was released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tidegate.clock.steps import CALENDAR
from tidegate.config import Config
from tidegate.exact import ExactLike, show
from tidegate.ingest.quantiles import Range
from tidegate.policy import Approximate, Budget, Event, Pure, Swellfish, User, ZeroConcentrated
from tidegate.report.accuracy import Accuracy, step_seconds, what_would_help

HOUR, DAY = 3600, 86_400
YEAR = 365  # days
LONGEST_DELTA = 12  # digits of a δ that is written out
MOST = 0.9  # of the values: if fewer have an interval, it is said
UNEVEN = 1.5  # times as wide: intervals that one number does not speak for


@dataclass(frozen=True)
class Words:
    """The words of one configuration."""

    config: Config

    @property
    def title(self) -> str:
        """The title of the report: as stated, or the file's name where that says something, or what is counted."""
        stem, query, value = self.config.path.stem, self.config.query, self.config.schema.value
        if self.config.about.title or stem not in ("tidegate", "stream"):
            return self.config.about.title or stem
        names = query.own_labels
        measured = {
            "sum": f"the sum of {value}",
            "mean": f"the mean of {value}",
            "quantile": f"{'the ' + names[0] if len(names) == 1 else 'quantiles'} of {value}",
        }
        words = measured.get(query.aggregate, self.counted or "private releases")
        return f"{words[:1].upper()}{words[1:]}, every {self.step}"

    @property
    def statistic(self) -> str:
        """What is published, with its unit in time: "Records per day"."""
        query, value = self.config.query, self.config.schema.value
        names = query.own_labels
        measured = {
            "sum": f"sum of {value}",
            "mean": f"mean of {value}",
            "quantile": f"{names[0] if len(names) == 1 else 'quantiles'} of {value}",
        }
        words = self.config.about.counted or measured.get(query.aggregate) or self.counted or "values"
        if query.over > 1:
            words += f" seen in the last {self.span(query.over)},"
        so_far = (
            ", all so far, after each "
            if self.config.mechanism.statistic not in ("steps", "categories")
            else " per "
        )
        return f"{words[:1].upper()}{words[1:]}{so_far}{self.step}"

    @property
    def in_one_line(self) -> str:
        """Who is protected, for how long, how well, and what the most exposed unit loses in a year."""
        budget = budget_in_words(self.config.promise.budget)
        return f"{self.protected}, with {budget}{self.yearly}"

    @property
    def yearly(self) -> str:
        """What somebody loses who is there all year, as the rest of a sentence; empty where a year is nothing longer."""
        for who, lost in self.lifetimes():
            if who.endswith(", a year"):
                return f"; one that is there all year: {budget_in_words(lost)} at most"
        return ""

    @property
    def unit(self) -> str:
        """One protected unit."""
        config = self.config
        if config.about.unit:
            return config.about.unit
        if config.query.aggregate == "given":
            return "unit"
        return config.schema.unit or "record"

    @property
    def units(self) -> str:
        """Several of them."""
        return self.config.about.units or plural(self.unit)

    @property
    def counted(self) -> str:
        """What a value counts or measures, several of it; may be empty."""
        config = self.config
        if config.about.counted:
            return config.about.counted
        if config.query.aggregate == "distinct":
            return self.units
        return {"count": "records", "histogram": "records"}.get(config.query.aggregate, "")

    @property
    def bounds(self) -> str:
        """What clipping and bounding do to what is published, in a sentence or two; empty where they do nothing."""
        config, query = self.config, self.config.query
        if query.aggregate == "given":
            return ""
        parts, lower = [], True
        if query.learn is not None:
            parts.append(f"values of {config.schema.value} above a learnt threshold count as that threshold")
        elif query.clip is not None and query.aggregate in ("sum", "mean"):
            low, high = (show(Fraction(bound)) for bound in query.clip)
            lower = Fraction(query.clip[0]) >= 0
            parts.append(
                f"values of {config.schema.value} above {high} count as {high}, and below {low} as {low}"
            )
        elif query.aggregate == "quantile":
            assert isinstance(query.columns, Range)
            low, high = (show(Fraction(query.columns.edges[end])) for end in (0, -1))
            parts.append(
                f"values of {config.schema.value} below {low} count as {low}, and above {high} as {high}"
            )
        if config.schema.unit is not None and query.aggregate == "distinct":
            if query.most < len(query.own_labels):
                parts.append(
                    f"one {self.unit} counts in at most {several(query.most, 'column')} in "
                    + (f"one {self.step}" if query.over == 1 else f"the last {self.span(query.over)}")
                )
        elif config.schema.unit is not None:
            part = f", as 1/{query.most} each" if query.weighting == "share" and query.most > 1 else ""
            counts = "counts" if query.most == 1 else "count"
            parts.append(
                f"at most {several(query.most, 'record')} of one {self.unit} {counts} in one {self.step}{part}"
            )
        if not parts:
            return ""
        what = query.aggregate if query.aggregate in ("sum", "mean", "quantile") else "number"
        how = "is lower than" if lower and what in ("sum", "number") else "differs from"
        said = "; ".join(parts)
        return f"{said[:1].upper()}{said[1:]}. Where that leaves something out, the published {what} {how} the true one."

    def amount(self, value: float) -> str:
        """A number of what is counted, rounded to two digits that mean something."""
        return f"{about(value)} {self.counted}".strip()

    @staticmethod
    def spread(found: Accuracy) -> str:
        """Around what that much lies: each value, or a typical one where columns differ much."""
        if found.known < MOST:
            rest = f"{100 * (1 - found.known):.0f}%"
            return f"what was measured; {rest} of the values were not measured, and nobody knows how far off they are"
        if found.widest <= UNEVEN * found.half and found.half <= UNEVEN * found.narrowest:
            return "each value"
        return f"a typical value, from ± {about(found.narrowest)} to ± {about(found.widest)} by column"

    def accuracy(self, found: Accuracy) -> str:
        """How far a value is off."""
        size = about(found.level) if found.level == found.typical else f"less than {about(found.level)}"
        where = self.spread(found).replace("each value", "a value")
        text = f"± {self.amount(found.half)} around {where}, where a typical one is {size}"
        if found.known < MOST:
            return f"± {self.amount(found.half)} around {where}"
        if found.too_noisy:
            return f"{text}: the noise is larger than the numbers"
        few = len(found.drowned)
        if few:
            many = len(self.config.query.own_labels)
            text += f"; in {few:,} of {many:,} columns the noise is larger than the numbers"
        return text

    def what_would_help(self, found: Accuracy) -> list[str]:
        """Settings with a smaller error where the noise is larger than the numbers, each with what a plan predicts."""
        return [str(remedy) for remedy in what_would_help(self.config, found)[1:]] if found.too_noisy else []

    @property
    def step(self) -> str:
        """One step: "hour", "15 minutes", "week"."""
        length = self.config.steps.length
        if length in CALENDAR:
            return str(length).removeprefix("calendar ")
        words = duration(step_seconds(self.config))
        return words.removeprefix("1 ")

    def span(self, steps: int) -> str:
        """So many consecutive steps: "24 hours", "7 days"."""
        length = self.config.steps.length
        if length in CALENDAR:
            return several(steps, str(length).removeprefix("calendar "))
        return duration(steps * step_seconds(self.config))

    @property
    def edition(self) -> str:
        """When the steps of an edition are released, as a sentence; empty where there is one release of each."""
        config = self.config
        if not config.edition:
            return ""
        assert isinstance(config.steps.lateness, int)
        late = config.steps.lateness
        when = f"{duration(late)} after its end" if late else "at its end"
        if config.later:
            return f"Provisional: each {self.step} is released {when}, with what has arrived by then, and again later."
        return f"Final: each {self.step} is released for the last time {when}, and what arrives later is left out."

    @property
    def protected(self) -> str:
        """Who is protected, and for how long, as half a sentence."""
        policy = self.config.policy
        if isinstance(policy, User):
            horizon = policy.horizon
            lasts = f" ({self.span(horizon)})" if horizon else ""
            return f"any {self.unit}, over the whole stream{lasts}"
        if isinstance(policy, Swellfish):
            return "any specified event, wherever it is in the time in which it is hidden"
        if isinstance(policy, Event) or policy.window is None:
            return f"any {self.unit}, in any one {self.step}"
        return f"any {self.unit}, any {self.span(self.config.window or 1)}"

    @property
    def requirements(self) -> str:
        """What units ask for beyond what all have, in a sentence or two; empty where there is no table of them."""
        table = self.config.query.requirements
        if table is None:
            return ""
        each = "; ".join(
            f"{number}, of {f'1 {self.unit}' if count == 1 else f'{count:,} {self.units}'}: "
            f"ε = {show(promise.epsilon)} in any {self.span(promise.window)}"
            for number, (promise, count) in enumerate(zip(table.promises, table.counts, strict=True))
            if number
        )
        return (
            f"A public table names {len(table.units):,} {self.units}. Requirements beyond what all have: "
            f"{each or 'none'}. Whoever is not in the table has what all have."
        )

    def lifetimes(self) -> list[tuple[str, Budget]]:
        """What longer presences and several units lose, each with the budget that covers it."""
        guarantee = self.config.promise
        seconds, found = step_seconds(self.config), []
        if isinstance(self.config.policy, Swellfish):
            return [("two specified events", guarantee.for_tuples(2).budget)]
        if self.config.policy.window is not None:
            for words, length in (
                (f"one {self.unit}, a day", DAY),
                (f"one {self.unit}, a week", 7 * DAY),
                (f"one {self.unit}, a year", YEAR * DAY),
            ):
                steps = Fraction(length) / seconds
                if steps >= 1:
                    found.append(
                        (words, guarantee.over(steps=math.ceil(steps) + self.config.trailing).budget)
                    )
        found.append((f"two {self.units}, {self._promised}", guarantee.for_tuples(2).budget))
        return found

    @property
    def _promised(self) -> str:
        window = self.config.window
        if window is None:
            return "the whole stream"
        return self.span(window) if window > 1 else f"one {self.step}"


def title_of_all(parts: Sequence[Config]) -> str:
    """The title of the report and the card of all queries of a stream."""
    first = parts[0]
    if first.about.title or first.path.stem not in ("tidegate", "stream") or len(parts) == 1:
        return Words(first).title
    *most, last = (part.name for part in parts)
    names = f"{', '.join(most)} and {last}"
    return f"{names[:1].upper()}{names[1:]}, every {Words(first).step}"


def several(count: int, word: str) -> str:
    """A number of things: "1 step", "24 steps"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def plural(word: str) -> str:
    """The plural of a plain English noun.

    Examples
    --------
    >>> plural("device"), plural("city"), plural("box"), plural("day")
    ('devices', 'cities', 'boxes', 'days')
    """
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def duration(seconds: Fraction | int) -> str:
    """A length of time in words, in hours up to two days.

    Examples
    --------
    >>> duration(3600), duration(86400), duration(90), duration(7 * 86400)
    ('1 hour', '24 hours', '90 seconds', '7 days')
    """
    for size, word in ((DAY, "day"), (HOUR, "hour"), (60, "minute")):
        if seconds % size == 0 and (size != DAY or seconds > DAY):
            return several(int(seconds // size), word)
    return f"{float(seconds):,g} seconds"


def about(value: float) -> str:
    """Two digits that mean something, three for a number that begins with 1.

    Examples
    --------
    >>> about(55.26), about(1234.0), about(0.0432), about(12_345.0), about(0.0)
    ('55', '1,230', '0.043', '12,300', '0')
    """
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    digits = 1 - math.floor(math.log10(abs(value)))
    if f"{abs(value):e}".startswith("1"):
        digits += 1
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{rounded:,.0f}"


def odds(budget: Budget) -> str | None:
    """By which factor at most the odds of any guess about a unit may change; None where δ or ρ gives no such factor."""
    if not isinstance(budget, Pure):
        return None
    if budget.epsilon > 13:
        return f"e^{show(budget.epsilon)}, over a million,"
    return about(math.exp(float(budget.epsilon)))


def budget_in_words(budget: Budget) -> str:
    """ε, (ε, δ) or ρ, written out."""
    match budget:
        case Pure():
            return f"ε = {show(budget.epsilon)}"
        case Approximate():
            return f"ε = {show(budget.epsilon)}, δ = {_short(budget.delta)}"
        case ZeroConcentrated():
            return f"ρ = {show(budget.rho)}"
    return str(budget)


def _short(delta: ExactLike) -> str:
    """A δ in few digits, rounded up where it has more."""
    exact = show(Fraction(delta))
    if len(exact) <= LONGEST_DELTA:
        return exact
    power = math.floor(math.log10(Fraction(delta))) - 1
    found = Fraction(10) ** power * math.ceil(Fraction(delta) / Fraction(10) ** power)
    return f"{float(found):.2g}"
