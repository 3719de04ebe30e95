"""A checked configuration: the sections of the file, and what they mean."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tidegate.config.answer import Answer
from tidegate.config.keys import (
    AboutKeys,
    MechanismKeys,
    ProtectKeys,
    QueryKeys,
    RunKeys,
    SinkKeys,
    SourceKeys,
    StepsKeys,
)
from tidegate.config.secrets import expanded
from tidegate.config.withhold import Withhold
from tidegate.ingest import CombinedQuery, Intake, Query, Schema, Steps, open_source
from tidegate.ingest.editions import EditionsIntake
from tidegate.ingest.query import MISSING
from tidegate.mechanisms import Mechanism
from tidegate.mechanisms.discovery.discover import SAME_RECORDS
from tidegate.mechanisms.mechanism import BOUNDED
from tidegate.mechanisms.w_event.personal import OWN_COLUMNS
from tidegate.policy import Guarantee, Policy
from tidegate.servers.kafka import is_topic
from tidegate.servers.postgres import is_table

_DECLARED = (
    "one unit changes a step of the given input by at most max_change, as declared: the input was aggregated "
    "before it came here, so nothing was bounded or checked"
)
_GAPS_ARE_PUBLIC = "which readings are missing is public"
_PUBLIC_TABLE = "the table of requirements is public, or does not depend on the data"
_RECORDS = "every record is a unit of its own: a person with several records is not protected as one"


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Parameters
    ----------
    path
        The file it was read from; relative locations start at its folder.
    source, steps_keys, query_keys, protect, mechanism_keys, sink
        The sections as they were written, with defaults.
    parameters
        The mechanism's own parameters.
    schema, steps, query, policy, mechanism
        What they mean.
    about
        Words for people.
    withhold
        Which numbers are too uncertain to be shown; None where all are.
    run
        How it is run and watched.
    name, share, whole
        Of one of several queries: its name, its part of the budget, which `policy` has already, and what all of them
        protect together.
    answers
        Standing questions to its releases.
    edition, later
        Of a step that is released several times: which of its releases this is, and how many more follow.
    trailing
        By how many steps windows of the account are longer than those in which people are protected, because units
        count over several steps.

    Examples
    --------
    >>> from tidegate.config.document import EXAMPLE
    >>> from tidegate.config import parse_config
    >>> config = parse_config(EXAMPLE)
    >>> print(config.policy.unit())
    everything within any 24 consecutive steps: a change of at most 1 in each of them
    >>> config.mechanism.columns
    2
    """

    path: Path
    source: SourceKeys
    steps_keys: StepsKeys
    query_keys: QueryKeys
    protect: ProtectKeys
    mechanism_keys: MechanismKeys
    sink: SinkKeys
    parameters: dict[str, Any]
    schema: Schema
    steps: Steps
    query: Query
    policy: Policy
    mechanism: Mechanism
    about: AboutKeys = field(default_factory=AboutKeys)
    withhold: Withhold | None = None
    run: RunKeys = field(default_factory=RunKeys)
    name: str = ""
    share: Fraction = Fraction(1)
    whole: Policy | None = None
    answers: tuple[Answer, ...] = ()
    edition: str = ""
    later: int = 0
    trailing: int = 0

    def locate(self, location: str) -> str:
        """A location as a path from here, or an address with the secrets that it names; "-" and "serve:" stay."""
        if location in ("-", "serve:") or re.match(r"[a-z]+://", location):
            return expanded(location, self.path.parent)
        # the slash that says "a folder" also where there is none yet
        return str(self.path.parent / location) + ("/" if location.endswith("/") else "")

    @property
    def ledger(self) -> str:
        """Where ledger, state and positions are kept."""
        return (
            self.locate(self.protect.ledger) if self.protect.ledger else str(self.path.with_suffix(".ledger"))
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised of this stream: the mechanism's guarantee, with what this input assumes."""
        found = self.mechanism.guarantee
        assumptions = list(found.assumptions)
        if self.query.aggregate == "given":
            assumptions = [_DECLARED if clause == BOUNDED else clause for clause in assumptions]
            if self.query.fill == MISSING:
                assumptions.append(_GAPS_ARE_PUBLIC)
        elif self.schema.unit is None:
            assumptions.append(_RECORDS)
        if self.query.requirements is not None:  # intake puts them there, by the table
            assumptions = [_PUBLIC_TABLE if clause == OWN_COLUMNS else clause for clause in assumptions]
        if self.query.discovers:  # the pipeline keeps them
            assumptions = [clause for clause in assumptions if clause != SAME_RECORDS]
        found = replace(found, assumptions=tuple(assumptions))
        return replace(found, unit=self.protects(self.policy)) if self.trailing else found

    @property
    def window(self) -> int | None:
        """The steps within which people are protected; None for the whole stream."""
        length = self.policy.window
        return None if length is None else length - self.trailing

    def protects(self, policy: Policy) -> str:
        """What a policy of this stream protects."""
        if not self.trailing or self.window is None:
            return policy.unit()
        change = (
            policy.unit()
            .partition(": ")[2]
            .replace("each of them", f"each of the {policy.window} that count it")
        )
        steps = "one step" if self.window == 1 else f"{self.window} consecutive steps"
        return f"everything that one unit does within any {steps}: {change}"

    @cached_property
    def promise(self) -> Guarantee:
        """What people are promised: the guarantee, or that of all queries together where there are several."""
        if self.whole is None:
            return self.guarantee
        name = f"{self.guarantee.mechanism}, together with the other queries of this stream,"
        return replace(self.guarantee, mechanism=name, budget=self.whole.budget, gradually=())

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on outside of this program, because of where the events come from."""
        found = []
        if self.source.location.startswith(("mqtt:", "mqtts:")):
            found.append(
                "the broker drops no message because others send many: no limit on its queues "
                "(Mosquitto: max_queued_messages 0)"
            )
        if is_topic(self.source.location):
            found.append(
                "no producer keeps a transaction open past the end of a step, because records of others behind it in its "
                "partition come too late then (the brokers end it after transaction.max.timeout.ms)"
            )
        if is_table(self.source.location):
            found.append(
                "nobody who sends events may set the sequence from which the table draws its keys, or keeps a key for "
                "more than the settling time before a row with it is written"
            )
        return tuple(found)

    def open(
        self,
        position: dict[str, Any] | None = None,
        *,
        follow: bool | None = None,
        clock: Callable[[], float] | None = None,
        once: bool = False,
        counted: Query | CombinedQuery | None = None,
        earlier: Sequence[Steps] = (),
    ) -> Intake:
        """The intake of this stream, from the beginning or from a committed position; `once` as in :class:`Intake`.

        `counted` stands for the query where the source is read for several; `earlier` are the clocks of the editions
        before this one.
        """
        query = counted or self.query
        keys = self.source
        follow = keys.follow if follow is None else follow
        live = keys.location.startswith(("mqtt:", "mqtts:"))
        source = open_source(
            self.locate(keys.location),
            query.needed(self.schema),
            format=keys.format,
            separator=keys.separator,
            follow=follow,
            pattern=keys.pattern,
            completed=keys.completed,
            settle=keys.settle,
            client=keys.client,
            fields=keys.fields,
        )
        kind = partial(EditionsIntake, earlier=earlier) if earlier else Intake
        return kind(
            source,
            self.schema,
            self.steps,
            query,
            position=position,
            follow=follow or live,
            order=keys.order,
            clock=clock,
            once=once,
        )

    def describe(self) -> dict[str, Any]:
        """What must not change while a stream runs, as JSON."""
        edition = {"edition": self.edition} if self.edition else {}  # a stream of an earlier version has none
        # the account's window does not tell it: units may count longer and be protected for less time
        window = {"window": self.window} if self.trailing else {}
        return {
            **edition,
            **window,
            "steps": self.steps.describe(),
            "query": self.query.describe(),
            "unit": self.schema.unit,
            "mechanism": self.mechanism.describe(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of :meth:`describe`."""
        return fingerprint_of(self.describe())


def fingerprint_of(described: dict[str, Any]) -> str:
    """A digest by which a description is known again."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]
