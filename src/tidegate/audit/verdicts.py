"""What an audit says: a sentence, and a file from which anybody can repeat the proof."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tidegate.audit import bounds
from tidegate.audit.events import Distinguisher
from tidegate.audit.neighbours import Pair
from tidegate.audit.proving import prove
from tidegate.audit.subjects import Subject
from tidegate.errors import InvalidInput

VERSION = 3
SHARP = 1.1  # a power up to this says that more transcripts would show little more
LOUD = 3  # up to this ε a larger one shows more: wrong scales stand out against less noise
VIOLATES = "violates"
CLEAN = "no violation found"
FAILS = "fails"


@dataclass
class Finding:
    """The outcome of an audit.

    Attributes
    ----------
    outcome
        "violates", "no violation found" or "fails".
    name, policy
        What was audited, and what it claims to protect.
    measure, claim
        "ε" or "ρ", and how much of it is claimed.
    loss
        The loss that was proved (infinite where a transcript is impossible under one neighbour).
    tester
        "statistical", "exact" or "replay".
    error
        The chance that an accusation of this audit is false.
    power
        For a statistical audit: with all noise smaller by this factor the claim would have been refuted.
    pair, event, counts, trials
        The streams, the event, how often it happened under each, of how many transcripts.
    by_mean
        Whether the mean of the event's scores proved more than the event itself (zCDP).
    words
        What else there is to say.
    angle
        From where it was attacked, where a whole attack has tried several.
    steps
        The length of the streams, where one length was tried.
    unit
        What the whole numbers of the streams are multiples of: the grid, or half of it.
    promising
        The best pairs with what they promised, best first; not saved.

    Examples
    --------
    >>> Finding("no violation found", "Mine", {}, "ε", 1.0, 0.9, "statistical", 1e-6).outcome
    'no violation found'
    """

    outcome: str
    name: str
    policy: dict[str, Any]
    measure: str
    claim: float
    loss: float
    tester: str
    error: float
    power: float = math.inf
    estimate: float = 0.0
    pair: Pair | None = None
    event: Distinguisher | None = None
    counts: tuple[int, int] = (0, 0)
    trials: int = 0
    words: str = ""
    seconds: float = 0.0
    transcripts: int = 0
    pairs_tried: int = 0
    width: int = 0
    by_mean: bool = False
    way: str = ""
    angle: str = ""
    steps: int = 0
    unit: str = "1"
    promising: list[tuple[float, Pair]] = field(default_factory=list)
    subject: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times the claim was lost, at least."""
        return self.loss / self.claim

    @property
    def confidence(self) -> str:
        """1 − error, in words."""
        if self.tester == "exact":
            return "by enumeration"
        if self.tester == "replay":
            return "by its own scales"
        exponent = math.floor(math.log10(self.error))
        mantissa = self.error / 10**exponent
        shown = f"10^{exponent}" if abs(mantissa - 1) < 1e-9 else f"{mantissa:.2g}·10^{exponent}"
        return f"with confidence 1 − {shown}"

    def __str__(self) -> str:
        if self.outcome == FAILS:
            return f"{self.name} fails: {self.words}; here is the pair of streams that did it."
        if self.outcome == VIOLATES:
            if not math.isfinite(self.ratio):
                how = "without any bound" if not self.words else self.words
                return f"{self.name} violates: {how}, {self.confidence}."
            what = "the score whose mean shows it" if self.by_mean else "the event"
            where = f"here is the pair of streams and {what}" if self.event is not None else self.words
            return f"{self.name} violates: at least {_floor(self.ratio)} {self.measure} {self.confidence}, {where}."
        if math.isfinite(self.power):
            power = f"power: would have found ≥ {self.power:.3g} {self.measure}"
        else:
            power = "power: none, no event was seen to differ"
        most = f"the most that was proved is {_floor(self.ratio)} {self.measure}"
        return f"{self.name}: no violation found; {power} ({most})."

    def evidence(self) -> list[str]:
        """What shows it, line by line: from where, the pair of streams, the event, and how often it happened."""
        lines = [f"attacked: {self.angle}"] if self.angle else []
        if self.pair is not None:
            by_account = self.tester == "replay"  # of one stream: every neighbour of it loses as much
            streams = (("one stream", self.pair.first), ("neighbour", self.pair.second))[
                : 1 if by_account else 2
            ]
            for name, stream in streams:
                rows = stream[:, 0].tolist() if stream.shape[1] == 1 else stream.tolist()
                lines.append(f"{name:<11}{rows}" + (f" · {self.unit}" if self.unit != "1" else ""))
            if by_account:
                lines.append(
                    "no event was counted: the scales of the noise on this stream were added up, exactly"
                )
        if self.event is not None and self.trials:
            first, second = self.counts
            lines.append(f"the event: {self.event}")
            lines.append(f"it happened {first:,} and {second:,} times in {self.trials:,} transcripts each")
        return lines

    def advice(self) -> list[str]:
        """What to try next where nothing was found, most promising first; nothing otherwise.

        Examples
        --------
        >>> Finding("no violation found", "Mine", {}, "ε", 1.0, 0.9, "statistical", 1e-6, power=1.05).advice()
        ['configure it for ε = 3 (--policy): a wrong decision or scale shows more where there is less noise']
        """
        if self.outcome != CLEAN:
            return []
        found = []
        if self.power > SHARP:
            found.append("search longer (--minutes): more transcripts bring the power nearer to 1")
        if self.measure == "ε" and self.claim < LOUD:
            found.append(
                f"configure it for ε = {LOUD} (--policy): a wrong decision or scale shows more where there is less noise"
            )
        if self.steps:
            longer = 2 * self.steps + 2
            found.append(f"use streams of {longer} steps (--steps {longer}): what repeats begins anew later")
        if self.pair is not None and self.pair.first.shape[1] == 1:
            found.append(
                "use several columns (--columns 2), where the mechanism has them: they share decisions"
            )
        return found

    def describe(self) -> dict[str, Any]:
        """As JSON: everything that is needed to repeat it."""
        plain: dict[str, Any] = {"version": VERSION, "sentence": str(self), "next": self.advice()}
        for each in fields(self):
            if each.name == "promising":
                continue
            value = getattr(self, each.name)
            if each.name in ("pair", "event"):
                value = None if value is None else value.describe()
            elif isinstance(value, float) and not math.isfinite(value):
                value = str(value)
            plain[each.name] = value
        return plain

    def save(self, path: Path | str) -> Path:
        """Write the file that `load` reads."""
        where = Path(path)
        where.write_text(json.dumps(self.describe(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return where

    @classmethod
    def load(cls, path: Path | str) -> Finding:
        """Read a saved verdict."""
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
            if plain.pop("version") != VERSION:
                raise KeyError("version")
            plain.pop("sentence")
            plain.pop("next", None)
            for name in ("claim", "loss", "error", "power", "estimate", "seconds"):
                plain[name] = float(plain[name])
            plain["counts"] = tuple(plain["counts"])
            if plain["pair"] is not None:
                plain["pair"] = Pair.read(plain["pair"])
            if plain["event"] is not None:
                plain["event"] = Distinguisher.read(plain["event"], plain["width"])
            return cls(**plain)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput("the file is not a verdict of this version; run the audit again.") from None

    def replay(self, subject: Subject, trials: int | None = None) -> Finding:
        """Count the saved event on fresh transcripts of the saved pair: a proof of its own.

        Parameters
        ----------
        subject
            What was audited.
        trials
            Transcripts a side; by default as many as before.
        """
        if self.pair is None or self.event is None:
            raise InvalidInput(
                f"a verdict of the {self.tester} tester has no event to count; run the audit again instead."
            )
        same = str(getattr(subject, "unit", 1)) == self.unit
        if not same or subject.policy.distance(self.pair.first, self.pair.second) != 1:
            raise InvalidInput("the saved streams are not neighbours under this policy; check the policy.")
        count, budget = trials or self.trials, bounds.promised(subject.policy)
        streams = (self.pair.first, self.pair.second)
        proof = prove(subject, streams, self.event, count, self.error, budget)
        again = Finding(**{each.name: getattr(self, each.name) for each in fields(self)})
        again.outcome = VIOLATES if proof.loss > self.claim else CLEAN
        again.loss, again.trials, again.counts, again.by_mean = proof.loss, count, proof.counts, proof.by_mean
        return again


def _floor(number: float) -> str:
    """Two places, rounded down: never more than was proved."""
    return f"{math.floor(number * 100) / 100:.2f}"


Verdict = Finding  # its earlier name, by which it may still be imported
