from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.audit.shipped import shipped
from tests.audit.zoo import find, zoo
from tests.audit.zoo.animal import MODEL, PAIR, SEARCH, Animal

from tidegate.audit import Effort, Pair, Verdict, audit
from tidegate.audit.subjects import Configured
from tidegate.audit.verdicts import CLEAN, FAILS, VIOLATES
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import catalogue
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import current, laplace
from tidegate.policy import Event, WEvent
from tiers import thinned

ZOO = zoo()
# The quick form: those that are caught in a moment; the long form (`make audit`) has all of them.
QUICK = [
    "noise halved",
    "noise 10 % low",
    "replacement forgotten",
    "noise in floating point",
    "rounded half to even",
    "noise never negative",
    "one draw for all columns",
    "drawn again until not negative",
    "rate 1 − ε",
    "ρ 20 % too high",
    "rounding of columns forgotten",
    "steps closed by events",
    "Swellfish, every event at once",
    "Swellfish, nothing to hide",
    "parameter ε/w",
    "noise reused after a restart",
    "seed reused after a fork",
    "released twice after a crash",
    "levels not divided",
]
DEAR = ("RescueDP, each column for itself", "Grouper, threshold noise not redrawn")  # ten seconds each
CHEAP = [animal.name for animal in ZOO if animal.how not in (SEARCH, PAIR) and animal.name not in DEAR]


@pytest.mark.slow
def test_laplace_is_found_out_almost_entirely() -> None:
    """At least 0.97 ε of the plain Laplace mechanism with confidence 1 − 10⁻⁶; a million transcripts."""
    verdict = audit(Uniform(Event(epsilon="1")), steps=1, seconds=4, error=1e-6)
    assert verdict.outcome == CLEAN
    assert verdict.loss >= 0.97
    assert verdict.power < 1.05


def test_the_zoo_is_large_enough() -> None:
    """At least 40 animals, half of them without a stored pair, names unique, near misses among them."""
    assert len(ZOO) >= 40
    assert len({animal.name for animal in ZOO}) == len(ZOO)
    alone = [animal for animal in ZOO if animal.how == SEARCH]
    assert 2 * len(alone) >= len(ZOO)
    assert all(not animal.pairs for animal in alone)
    assert sum(animal.loss <= 1.13 for animal in ZOO) >= 4
    shipped_code = [animal for animal in ZOO if animal.kind != MODEL]
    assert 4 * len(shipped_code) >= 3 * len(ZOO)


@pytest.mark.parametrize("name", thinned(QUICK + CHEAP, 16))
def test_animals_are_caught(name: str) -> None:
    """Each is accused, and of no more than it is known to lose."""
    animal = find(name)
    verdict = animal.audit(error=1e-9)
    assert verdict.outcome in (VIOLATES, FAILS), str(verdict)
    if verdict.tester == "statistical" and verdict.outcome == VIOLATES:
        assert verdict.claim < verdict.loss <= animal.loss * verdict.claim * 1.02


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Uniform, w = 3", "BudgetAbsorption", "Uniform, zCDP", "RescueDP"])
def test_sound_mechanisms_are_not_accused(name: str) -> None:
    """A short attack on some shipped mechanisms; the error of each is 10⁻⁹."""
    chosen = next(each for each in shipped() if each.name == name)
    verdict = chosen.audit(error=1e-9, seconds=3)
    assert verdict.outcome == CLEAN, str(verdict)
    assert 0.3 < verdict.ratio <= 1
    assert "no violation found; power: would have found ≥" in str(verdict)


def test_every_mechanism_of_the_catalogue_is_attacked() -> None:
    """A new mechanism is audited by its first example until it has a configuration of its own.

    One that reads no columns has an audit of its own: tests/mechanisms/test_discovery_audit.py.
    """
    attacked = {type(each.mechanism).__name__ for each in shipped()}
    with_examples = {name for name, kind in catalogue().items() if kind.examples() and kind.reads_columns}
    assert with_examples <= attacked


def test_a_callable_is_audited_and_its_verdict_replays(tmp_path: Path) -> None:
    """A function of one's own: verdict, file, and the same event on fresh transcripts."""

    def halved(stream: np.ndarray) -> np.ndarray:
        return stream + laplace(current(), "test", 0, 0.5, stream.shape)

    policy = Event(epsilon="1")
    verdict = audit(halved, policy, steps=1, seconds=5)
    assert verdict.outcome == VIOLATES
    assert 1.2 < verdict.ratio <= 2
    assert "violates: at least 1." in str(verdict)
    assert "with confidence 1 − 10^-6, here is the pair of streams and the event" in str(verdict)
    loaded = Verdict.load(verdict.save(tmp_path / "verdict.json"))
    assert str(loaded) == str(verdict)
    again = loaded.replay(Configured(_Halved(policy)), trials=100_000)
    assert again.outcome == VIOLATES
    sound = loaded.replay(Configured(Uniform(policy)), trials=100_000)
    assert sound.outcome == CLEAN
    with pytest.raises(InvalidInput, match="not neighbours"):
        loaded.replay(Configured(Uniform(Event(epsilon="1", max_change="1/2"), grid="1/2")))


class _Halved(Uniform):
    scale = 0.5  # type: ignore[assignment]


@pytest.mark.slow
def test_a_proof_by_the_mean_of_scores_replays(tmp_path: Path) -> None:
    """zCDP: the scores' mean proves more than any event, and does so again from the file."""
    animal = find("ρ 20 % too high")
    verdict = animal.audit()
    assert verdict.outcome == VIOLATES
    assert verdict.by_mean
    loaded = Verdict.load(verdict.save(tmp_path / "verdict.json"))
    again = loaded.replay(Configured(animal.make()), trials=600_000)  # type: ignore[arg-type]
    assert again.outcome == VIOLATES
    sound = loaded.replay(Configured(Uniform(Event(rho="1/2"))), trials=200_000)
    assert sound.outcome == CLEAN


def test_failures_are_reported_with_the_pair() -> None:
    """A crash, a hang and another shape are no privacy."""
    for name, word in (
        ("crashes on large counts", "crashes"),
        ("hangs on equal steps", "hangs"),
        ("leaves empty steps out", "changes the shape"),
    ):
        verdict = find(name).audit()
        assert verdict.outcome == FAILS
        assert verdict.pair is not None
        assert word in str(verdict)
        assert "no violation" not in str(verdict)


def test_bad_input_is_one_sentence() -> None:
    """No policy for a callable, a wrong error, a pair that is none."""
    with pytest.raises(InvalidParameter, match="together with the policy"):
        audit(lambda stream: stream)
    with pytest.raises(InvalidParameter, match="error=2"):
        audit(Uniform(Event(epsilon="1")), error=2)
    with pytest.raises(InvalidParameter, match="seconds=0"):
        audit(Uniform(Event(epsilon="1")), seconds=0)
    far = Pair(np.zeros((2, 1), dtype=np.int64), np.full((2, 1), 9), "far")
    with pytest.raises(InvalidInput, match="not a pair of neighbours"):
        audit(Uniform(Event(epsilon="1")), pairs=[far])
    with pytest.raises(InvalidParameter, match="name of an animal"):
        find("unicorn")


def test_damaged_verdicts_are_refused(tmp_path: Path) -> None:
    """Anything but a verdict of this version is one sentence."""
    path = tmp_path / "verdict.json"
    for text in ("{}", "[1", '{"version": 99}', '"text"'):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="not a verdict"):
            Verdict.load(path)


@pytest.mark.slow
def test_repeated_audits_of_a_sound_mechanism_never_accuse() -> None:
    """Twenty short audits at the claimed ε and at a much larger error than usual, each below 10⁻⁴."""
    effort = Effort(seconds=0.3, trials=20_000, scan=1000, pairs=6)
    policy = WEvent(epsilon="1", window=2)
    for seed in range(20):
        verdict = audit(
            Uniform(policy), steps=2, effort=effort, error=1e-4, testers=("statistical",), seed=seed
        )
        assert verdict.outcome == CLEAN
        assert math.isfinite(verdict.loss)


@pytest.mark.slow
def test_a_wrong_verdict_would_be_noticed() -> None:
    """The negative control: a claim of 0.9 for a mechanism that loses 1 is refuted."""
    animal = Animal(
        "too bold",
        "claims 0.9",
        lambda: Configured(Uniform(Event(epsilon="1")), Event(epsilon="0.9")),
        1.2,
        steps=1,
    )
    assert animal.audit().outcome == VIOLATES
