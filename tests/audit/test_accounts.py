from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.audit.zoo.noise import thin
from tests.audit.zoo.operations import ChargedByHalf, ChargedNothing
from tests.audit.zoo.publishing import InFloatingPoint, Literal, OneNullifiedStepShort

from tidegate.audit import accounts, direct, shared
from tidegate.audit.neighbours import BIG
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sampled.rescue_dp import RescueDP
from tidegate.mechanisms.sharing import SharingMechanism
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.policy import Event, User, WEvent

SOUND: list[Any] = [
    Uniform(WEvent(epsilon="1", window=5), columns=3),
    Uniform(WEvent(rho="1/2", window=5)),
    Sample(WEvent(epsilon="1", window=4), every=3),
    BudgetAbsorption(WEvent(epsilon="1", window=4), columns=2, noise="laplace"),
    BudgetDistribution(WEvent(epsilon="0.7", window=4), noise="laplace"),
    PeGaSus(Event(epsilon="1")),
    *RescueDP.examples()[:2],
]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", SOUND)
def test_sound_accounts_replay(mechanism: Any) -> None:
    """Scales and charges agree on every stream that is tried, and logs verify."""
    problem, _ = accounts.replay(mechanism, 24)
    assert problem is None


@pytest.mark.parametrize(
    ("mechanism", "loss", "words"),
    [
        (thin(2, WEvent(epsilon="1", window=5)), 2.0, "lost 2 by its noise"),
        (Literal(WEvent(epsilon="1", window=4), noise="laplace"), 1.375, "charged more than the budget"),
        (
            InFloatingPoint(WEvent(epsilon="0.7", window=4), noise="laplace"),
            1.125,
            "charged more than the budget",
        ),
        (
            OneNullifiedStepShort(WEvent(epsilon="1", window=4), noise="laplace"),
            1.125,
            "more than the budget",
        ),
        (ChargedNothing(Event(epsilon="1")), np.inf, "charged 0"),
    ],
)
def test_wrong_accounts_are_found(mechanism: Any, loss: float, words: str) -> None:
    """Each planted mistake, with the loss it has."""
    problem, _ = accounts.replay(mechanism, 24)
    assert problem is not None
    assert problem.loss == pytest.approx(loss, rel=1e-6)
    assert words in problem.words


SHARING: list[Any] = [
    Uniform(WEvent(epsilon="1", window=5)),
    Uniform(WEvent(epsilon="1", window=12), noise="cube"),
    Uniform(User(epsilon="1", horizon=6)),
    Sample(WEvent(epsilon="1", window=12), every=5),
    BudgetAbsorption(WEvent(epsilon="1", window=2, max_change=4)),
    BudgetDistribution(WEvent(epsilon="3", window=3)),
    Fast(WEvent(epsilon="4", window=10), samples=4),
    PeGaSus(WEvent(epsilon="10", window=6), columns=2, threshold=40),
]


@pytest.mark.parametrize("mechanism", SHARING)
def test_accounts_of_shared_noise_replay(mechanism: Any) -> None:
    """Windows lose what groups and steps are charged, not more; nine tenths of the budget are lost somewhere."""
    assert mechanism.shares_noise
    steps = min(24, mechanism.policy.horizon or 24)
    problem, _ = accounts.replay(mechanism, steps)
    assert problem is None
    rows = np.repeat(BIG * np.arange(1, steps + 1)[:, None], mechanism.columns, 1)
    releases = direct.released(mechanism, rows)
    found = accounts.window_losses(mechanism, releases)
    assert found is not None
    assert 0.9 <= found[1].max() / float(mechanism.policy.budget.total) <= 1 + 1e-9


@pytest.mark.parametrize("mechanism", SHARING)
def test_a_change_that_shared_noise_forgets_is_found(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for a quarter of what a unit can change, as where a dissimilarity forgets Δ."""
    monkeypatch.setattr(type(mechanism), "measured_change", 1)
    changed = replace(mechanism, policy=replace(mechanism.policy, max_change=4))
    assert isinstance(changed, SharingMechanism)
    assert changed.sharing is not None
    priced = shared.undercharged(changed)
    assert priced is not None
    assert priced.times == pytest.approx(4.0, rel=1e-6)
    problem, _ = accounts.replay(changed, min(24, mechanism.policy.horizon or 24))
    assert problem is not None
    whole = 1 + 3 * float(changed.sharing.part)  # what else is spent has its noise
    assert whole - 0.1 <= problem.loss <= whole * (1 + 1e-9)


def test_a_semiorder_for_fewer_measurements_than_a_window_has_is_found() -> None:
    """Three steps of a window and a law for two lose its share of the budget twice."""
    lost = shared.Lost(np.arange(6), 0.5, 1, 2)
    assert lost.windows(6, 3).tolist() == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert shared.Lost(np.array([0, 4]), 0.5).windows(6, 3).tolist() == [0.5, 0.5, 0.5, 0.0, 0.5, 0.5]


def test_charges_of_half_are_found() -> None:
    """The charge of a step must cover what its scale loses."""
    problem, _ = accounts.replay(ChargedByHalf(Event(epsilon="1")), 12)
    assert problem is not None
    assert problem.loss == pytest.approx(2.0)
    assert "charged 0.5" in problem.words


def test_losses_from_scales_are_what_the_paper_says() -> None:
    """A publication of BA loses Δ/scale and each test ε/2w, whatever is charged."""
    mechanism = BudgetAbsorption(WEvent(epsilon="1", window=4), noise="laplace")
    releases = direct.released(mechanism, 4096 * np.arange(1, 9)[:, np.newaxis])
    losses = mechanism.step_losses(releases)
    assert losses is not None
    assert np.all(losses <= releases.spent * (1 + 1e-9))
    assert np.allclose(losses, releases.spent, rtol=1e-9)


@pytest.mark.parametrize("mechanism", RescueDP.examples(), ids=str)
def test_a_measured_step_of_rescue_dp_is_charged_what_its_scale_loses(mechanism: Any) -> None:
    """Whatever groups are formed and however many columns there are; a third of it is noticed."""
    rows = np.repeat(4096 * np.arange(1, 9)[:, np.newaxis], mechanism.columns, axis=1)
    (releases,), charges = direct.recorded(mechanism, rows)
    losses = mechanism.step_losses(releases)
    assert losses is not None
    assert np.any(losses > 0)
    assert np.allclose(losses, releases.spent, rtol=1e-6)
    assert accounts._replayed(mechanism, charges, releases) is None
    assert accounts._replayed(mechanism, charges._replace(units=charges.units // 3), releases) is not None
