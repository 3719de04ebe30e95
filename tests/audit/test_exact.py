from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.audit import exact, models
from tests.audit.zoo import find

import distributions
from tidegate.audit import direct
from tidegate.audit.courses import MARKS
from tidegate.audit.neighbours import Pair
from tidegate.audit.subjects import Configured
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.policy import Event, WEvent


def pair(first: list[int], second: list[int]) -> Pair:
    """A pair of one column."""
    one, other = (np.array(given, dtype=np.int64)[:, np.newaxis] for given in (first, second))
    return Pair(one, other, "test")


def test_masses_and_tails_are_a_distribution() -> None:
    """Masses add up to one, and tails are their sums."""
    values = np.arange(-400, 401)
    masses = exact.mass(values, 3.5)
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    for least in (-7, 0, 1, 5):
        assert float(exact.tail(np.asarray(least), 3.5)) == pytest.approx(
            masses[values >= least].sum(), abs=1e-12
        )


def test_the_laplace_mechanism_loses_its_epsilon() -> None:
    """Exactly Δ/scale, and over two steps twice that; a mutant with half of the noise loses twice."""
    once = exact.largest_loss(models.uniform(2.0), pair([0], [1]), 0.5)
    assert once.loss == pytest.approx(0.5, abs=1e-12)
    assert once.delta <= 1e-12
    assert exact.largest_loss(models.uniform(2.0), pair([0, 3], [1, 2]), 1.0).loss == pytest.approx(
        1, abs=1e-12
    )
    assert exact.largest_loss(models.uniform(1.0), pair([0], [1]), 0.5).loss == pytest.approx(1, abs=1e-12)


def test_chances_of_all_transcripts_add_up() -> None:
    """Nothing is left out where everything is enumerated."""
    found = exact.largest_loss(models.sparse_vector(2.0, 4.0, 2), pair([0, 1, 0], [1, 0, 1]), 1.0)
    assert found.covered == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("kind", [BudgetAbsorption, BudgetDistribution])
def test_models_are_what_the_mechanisms_do(kind: type[BudgetAbsorption]) -> None:
    """Chances of publication patterns: the program against real transcripts; another ε is refused."""
    mechanism = kind(WEvent(epsilon="3", window=2), noise="laplace")
    stream = np.array([[1], [3]])
    drawn = Configured(mechanism).sample(stream, 30_000)[:, :: 1 + MARKS]  # after each value stand its marks

    def share(program: exact.Program) -> float:
        """The chance that nothing is published in both steps: the release stays at 0."""
        draw = exact._run(program, stream, (0, 0))
        assert isinstance(draw, exact.Draw)
        return draw.chance

    make = models.absorption if kind is BudgetAbsorption else models.distribution
    nothing = int(np.count_nonzero((drawn == 0).all(axis=1)))
    silent = share(make(Fraction(3), 2))
    # a published 0 looks the same, so compare only from below, and with the publications that are 0 from above
    assert nothing >= silent * len(drawn) - 6 * np.sqrt(silent * len(drawn))
    first = exact._run(make(Fraction(3), 2), stream, (0, 1, 7))
    assert isinstance(first, exact.Draw)
    seen = int(np.count_nonzero((drawn[:, 0] == 0) & (drawn[:, 1] == 7)))
    published = exact._run(make(Fraction(3), 2), stream, (1, 0, 1, 7))
    both = published.chance if isinstance(published, exact.Draw) else 0.0
    assert distributions.compare_counts({"0, then 7": (seen, first.chance + both)}, len(drawn)).ok
    wrong = exact._run(make(Fraction(4), 2), stream, (0, 1, 7))
    assert isinstance(wrong, exact.Draw)
    assert not distributions.compare_counts({"0, then 7": (seen, wrong.chance)}, len(drawn)).ok


@pytest.mark.slow
def test_the_literal_reading_loses_a_quarter_more() -> None:
    """Line 5 of BA read literally: exactly 1.25 ε at w = 2; the sound rule never more than ε."""
    policy = WEvent(epsilon="3", window=2)
    literal = exact.search(models.absorption(Fraction(3), 2, literal=True), policy, 1, 3, 3.0, 20.0)
    assert literal.loss / 3 == pytest.approx(1.25, abs=1e-9)
    assert literal.pair is not None
    assert policy.distance(literal.pair.first, literal.pair.second) == 1
    sound = exact.search(models.absorption(Fraction(3), 2), policy, 1, 3, 3.0, 2.0)
    assert 0.9 < sound.loss / 3 <= 1 + 1e-9


def test_sparse_vector_variants() -> None:
    """The sound one keeps ε; Lee and Clifton's, Stoddard's and Chen's do not."""
    streams = pair([1, 1, 1, 1, 1, 1], [0, 0, 0, 2, 2, 2])
    assert exact.largest_loss(models.sparse_vector(2.0, 4.0, 1), streams, 1.0).loss <= 1 + 1e-9
    assert exact.largest_loss(models.sparse_vector(4.0, 4 / 3, 3), streams, 1.0).loss > 2
    assert exact.largest_loss(models.sparse_vector(2.0, 0, 6), streams, 1.0).loss > 10
    assert exact.largest_loss(models.sparse_vector(2.0, 2.0, 6, endless=True), streams, 1.0).loss > 1.5


def test_only_what_is_modelled_has_a_model() -> None:
    """Other grids, groups and pan-private runs have none."""
    policy = WEvent(epsilon="3", window=2)
    known: list[Mechanism] = [
        kind(policy, noise="laplace") for kind in (BudgetAbsorption, BudgetDistribution)
    ]
    assert all(models.model_of(each) for each in known)
    unknown = [BudgetAbsorption(policy, grid="0.5"), BudgetAbsorption(policy, pan_private="single")]
    assert not any(models.model_of(each) for each in unknown)


def test_the_model_of_the_grouper_is_what_pegasus_does() -> None:
    """The chance of every pattern of groups of three steps, against 200,000 runs; other noise is refused."""
    mechanism = PeGaSus(Event(epsilon="4"), perturber_share="1/2", threshold=2)
    stream = np.array([[0], [3], [1]])
    wide = replace(mechanism, columns=200_000)
    groups = direct.released(wide, np.repeat(stream, 200_000, axis=1)).groups
    begins = groups == np.array([[1], [2], [3]])
    for factor, fits in ((1.0, True), (0.5, False)):
        grouping = mechanism.grouping
        program = models.grouper(mechanism.limit, grouping.threshold_scale, factor * grouping.question_scale)
        chances = {script: exact._run(program, stream, script) for script in ((0, 0), (0, 1), (1,))}
        # after a cut the third step begins a group without a test
        seen = {
            (0, 0): int((~begins[1] & ~begins[2]).sum()),
            (0, 1): int((~begins[1] & begins[2]).sum()),
            (1,): int(begins[1].sum()),
        }
        counts = {}
        for script, draw in chances.items():
            assert isinstance(draw, exact.Draw)
            counts[str(script)] = (seen[script], draw.chance)
        assert distributions.compare_counts(counts, 200_000).ok == fits


def test_a_given_pair_is_enumerated_first() -> None:
    """A pair that is known to lose needs no search."""
    verdict = find("Grouper, deviations of sensitivity 1").audit()
    assert verdict.tester == "exact"
    assert verdict.ratio == pytest.approx(1.183, abs=1e-3)
