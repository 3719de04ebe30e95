"""Units of protection, neighbours and guarantees."""

from tidegate import naming
from tidegate.clock.calendar_rules import Clock, Recurring
from tidegate.policy.budget import Approximate, Budget, Pure, ZeroConcentrated
from tidegate.policy.documents import read_policy
from tidegate.policy.guarantee import Guarantee
from tidegate.policy.secrets import Intervals, Secret
from tidegate.policy.specification import Specification
from tidegate.policy.swellfish import Swellfish
from tidegate.policy.units import Event, Policy, User, WEvent

__all__ = [
    "Approximate",
    "Budget",
    "Clock",
    "Event",
    "Guarantee",
    "Intervals",
    "Policy",
    "Pure",
    "Recurring",
    "Secret",
    "Specification",
    "Swellfish",
    "User",
    "WEvent",
    "ZeroConcentrated",
    "read_policy",
]

for _kind in (Event, WEvent, User, Swellfish):
    naming.helpful(_kind)
