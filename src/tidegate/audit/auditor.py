"""One audit: replay the account, then search and prove by sampling."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidegate.audit import accounts, bounds, neighbours
from tidegate.audit.neighbours import Pair
from tidegate.audit.search import Effort, FailureAt, Found, Progress, Search
from tidegate.audit.subjects import Configured, Subject, longest, subject
from tidegate.audit.verdicts import CLEAN, FAILS, VIOLATES, Finding
from tidegate.core.mechanism import Mechanism
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.policy import Policy, ZeroConcentrated


def audit(
    audited: Mechanism | Callable[..., Any] | Subject,
    policy: Policy | None = None,
    *,
    columns: int = 1,
    seconds: float = 20.0,
    error: float = 1e-6,
    steps: int | None = None,
    pairs: Sequence[Pair] = (),
    testers: Sequence[str] = ("replay", "statistical"),
    effort: Effort | None = None,
    name: str = "",
    progress: Progress | None = None,
    seed: int | str = 0,
) -> Finding:
    """Try to refute a privacy claim.

    Parameters
    ----------
    audited
        A mechanism, or a callable that gets a stream (steps × columns whole numbers) and returns what it releases as an
        array of numbers whose shape does not depend on the data.
    policy
        What is claimed; for a mechanism by default its own policy.
    columns
        Columns of the streams a callable is given.
    seconds
        About how long the search by sampling takes.
    error
        The chance that a mechanism which keeps its promise is accused.
    steps
        The length of the streams; by default about two windows.
    pairs
        Pairs of streams to try first, in whole numbers: of a mechanism, multiples of its grid (`Configured.unit`).
    testers
        "replay", "statistical" or both.

    Examples
    --------
    >>> from tidegate.noise import current, laplace
    >>> from tidegate.policy import Event
    >>> def halved(stream):  # claims ε = 1 and adds noise of scale 1/2
    ...     return stream + laplace(current(), "mine", 0, 0.5, stream.shape)
    >>> verdict = audit(halved, Event(epsilon="1"), seconds=4, steps=1)
    >>> verdict.outcome, verdict.ratio > 1.2
    ('violates', True)
    """
    if not 0 < error < 1:
        raise InvalidParameter("error", error, "above 0 and below 1", "write for example error=1e-6")
    if not seconds > 0:
        raise InvalidParameter("seconds", seconds, "above 0", "write for example seconds=20")
    looked = subject(audited, policy, columns, name)
    for pair in pairs:
        if looked.policy.distance(pair.first, pair.second) != 1:
            raise InvalidInput(
                "a given pair of streams is not a pair of neighbours under the policy; check it."
            )
    length = steps or neighbours.default_steps(looked.policy)
    end = longest(looked.mechanism) if isinstance(looked, Configured) else length
    begun = time.monotonic()
    verdict: Finding | None = None
    show: Progress = progress or (lambda words, share: None)
    own = isinstance(looked, Configured) and looked.claimed == looked.mechanism.policy
    if own and "replay" in testers:
        show("replaying the account", 0.0)
        verdict = _replay(looked, min(max(length, 12), end), 2 * seconds)
    if verdict is None and "statistical" in testers:
        wanted = effort or Effort(seconds=seconds)
        verdict = _statistical(looked, error, wanted, min(length, end), pairs, progress, seed)
    if verdict is None:
        verdict = finding(looked, CLEAN, 0.0, "none", error)
    verdict.seconds = time.monotonic() - begun
    verdict.way, verdict.steps = looked.way, min(length, end)
    return verdict


def finding(looked: Subject, outcome: str, loss: float, tester: str, error: float, **more: Any) -> Finding:
    """A verdict on a subject, with its claim in numbers."""
    budget = bounds.promised(looked.policy)
    measure = "ρ" if isinstance(budget, ZeroConcentrated) else "ε"
    claim = float(bounds.claimed(budget))
    described = getattr(looked, "claimed", looked.policy).describe()
    more.setdefault("unit", str(getattr(looked, "unit", 1)))
    return Finding(outcome, looked.name, described, measure, claim, loss, tester, error, **more)


def _replay(looked: Subject, steps: int, seconds: float) -> Finding | None:
    assert isinstance(looked, Configured)
    try:
        problem, stream = accounts.replay(looked.mechanism, steps, seconds)
    except Exception:
        return None  # the statistical tester reports failures, with the pair
    if problem is None:
        return None
    claim = float(bounds.claimed(looked.policy.budget))
    pair = Pair(stream, stream, "account")
    return finding(looked, VIOLATES, problem.loss * claim, "replay", 0.0, words=problem.words, pair=pair)


def _statistical(
    looked: Subject,
    error: float,
    effort: Effort,
    steps: int,
    pairs: Sequence[Pair],
    progress: Progress | None,
    seed: int | str,
) -> Finding:
    budget = bounds.promised(looked.policy)
    search = Search(looked, budget, error, effort, steps, pairs, progress, seed)
    return verdict_of(looked, search.run, error)


def verdict_of(looked: Subject, search: Callable[[], Found], error: float) -> Finding:
    """What a statistical search says of a subject, also where it fails."""
    try:
        found = search()
    except FailureAt as failed:
        side = ("first", "second")[failed.side]
        words = f"it {_verb(failed.failure.kind)} on the {side} stream ({failed.failure})"
        return finding(looked, FAILS, math.inf, "statistical", error, pair=failed.pair, words=words)
    outcome = VIOLATES if found.loss > float(bounds.claimed(bounds.promised(looked.policy))) else CLEAN
    return finding(
        looked,
        outcome,
        found.loss,
        "statistical",
        error,
        power=found.power,
        estimate=found.estimate,
        pair=found.pair,
        event=found.event,
        counts=found.counts,
        trials=found.trials,
        transcripts=found.transcripts,
        pairs_tried=found.pairs_tried,
        width=found.width,
        by_mean=found.by_mean,
        promising=found.promising,
    )


def _verb(kind: str) -> str:
    return {"crashes": "crashes", "hangs": "hangs", "shape": "changes the shape of its releases"}[kind]
