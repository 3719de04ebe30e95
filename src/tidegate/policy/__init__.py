"""Units of protection, neighbours and guarantees."""

from tidegate.policy.budget import Approximate, Budget, Pure, ZeroConcentrated
from tidegate.policy.guarantee import Guarantee
from tidegate.policy.secrets import Secret, Specification
from tidegate.policy.units import Event, Policy, Swellfish, User, WEvent

__all__ = [
    "Approximate",
    "Budget",
    "Event",
    "Guarantee",
    "Policy",
    "Pure",
    "Secret",
    "Specification",
    "Swellfish",
    "User",
    "WEvent",
    "ZeroConcentrated",
]
