"""Attack privacy claims: neighbours from the policy, two testers, verdicts that can be replayed.

``audit(mechanism)`` or ``audit(function, policy)`` is all that is needed; `tidegate audit` is the same from the
command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.audit.auditor import audit as audit
    from tidegate.audit.neighbours import Pair as Pair
    from tidegate.audit.search import Effort as Effort
    from tidegate.audit.subjects import Callee as Callee
    from tidegate.audit.verdicts import Finding as Finding
    from tidegate.audit.verdicts import Verdict as Verdict

_HOMES = {
    "Callee": "subjects",
    "Effort": "search",
    "Finding": "verdicts",
    "Pair": "neighbours",
    "Verdict": "verdicts",
}

__all__ = ["Callee", "Effort", "Finding", "Pair", "Verdict", "audit"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "audit":
        return import_module("tidegate.audit.auditor").audit
    if name in _HOMES:
        return getattr(import_module(f"tidegate.audit.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
