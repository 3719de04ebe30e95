"""How wrong will the numbers be? Predictions from public knowledge alone: nothing is read, nothing is spent."""

from tidegate.plan.description import Description, Profile, StreamModel
from tidegate.plan.discovery import DiscoveryPlan, plan_discovery
from tidegate.plan.predict import Plan, Prediction, make_plan

__all__ = [
    "Description",
    "DiscoveryPlan",
    "Plan",
    "Prediction",
    "Profile",
    "StreamModel",
    "make_plan",
    "plan_discovery",
]
