"""The whole attack on one configuration, from every angle; the time and the error are divided among them."""

from __future__ import annotations

from tidegate.audit.auditor import audit
from tidegate.audit.verdicts import Verdict
from tidegate.mechanisms.mechanism import Mechanism


def attack(
    mechanism: Mechanism, *, error: float = 1e-6, seconds: float = 40.0, name: str = "", seed: int | str = 7
) -> Verdict:
    """Try to refute a mechanism's claim, from every angle."""
    return audit(mechanism, error=error, seconds=seconds, name=name, seed=seed)
