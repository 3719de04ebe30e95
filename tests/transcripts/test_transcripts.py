"""Releases and charges under fixed entropy are those that were recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.transcripts import driver, record
from tests.transcripts.cases import cases

FILES = sorted(path.stem for path in record.HERE.glob("*.jsonl"))
MOST_BYTES = 1_000_000


def test_a_small_part_is_as_recorded():
    """The first example of every mechanism on two streams, and every law of noise."""
    known = record.families(quick=True)
    found = [
        sentence
        for family, configurations in known.items()
        for sentence in record.differences(
            family, record.lines(family, configurations, quick=True), quick=True
        )
    ]
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def families() -> dict[str, list[driver.Configuration]]:
    """All configurations."""
    return record.families()


@pytest.mark.slow
@pytest.mark.parametrize("family", FILES)
def test_everything_is_as_recorded(family: str, families: dict[str, list[driver.Configuration]]):
    """Every example and variant, on every stream, in every mode."""
    found = record.differences(family, record.lines(family, families[family]))
    assert not found, "\n".join(found)


def test_every_family_is_stored():
    """A new family needs a file; all files together stay small."""
    assert sorted(record.families(quick=True)) == FILES
    assert sum(path.stat().st_size for path in record.HERE.glob("*.jsonl")) < MOST_BYTES


def test_listed_differences_have_a_reason():
    """Whoever lists a difference says why."""
    for entry in record.listed():
        assert entry["reason"].strip(), f"the difference of {entry['case']} has no reason"
        assert entry["family"] in FILES


# a change is noticed -----------------------------------------------------------------------------------------------


def _line(change: Callable[[driver.Transcript], None], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The stored line of a case, and the one that a changed run gives."""
    configuration = next(each for each in driver.configurations(variants=False) if each.name == "PeGaSus-2")
    (case,) = (case for case in cases(configuration) if case.stream == "rough")
    run = driver.run

    def changed(*arguments: Any, **named: Any) -> driver.Transcript:
        transcript = copy.deepcopy(run(*arguments, **named))
        change(transcript)
        return transcript

    monkeypatch.setattr(driver, "run", changed)
    return record.stored("pegasus")[1][case.name], record.line_of(case)


def _scaled(transcript: driver.Transcript) -> None:
    transcript.fields["scale"][40:] *= 1 + 1e-9


def _moved(transcript: driver.Transcript) -> None:
    transcript.fields["values"][63, 1] = np.nextafter(transcript.fields["values"][63, 1], np.inf)


def _held(transcript: driver.Transcript) -> None:
    transcript.fields["status"][63] = 2


def _charged(transcript: driver.Transcript) -> None:
    transcript.charges[0][0][63] += Fraction(1, 10**30)


def _reached(transcript: driver.Transcript) -> None:
    first, last, part = transcript.charges[0][1][-1]
    transcript.charges[0][1][-1] = (first, last + 1, part)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda transcript: None, None),
        (_scaled, "scale"),
        (_moved, "values"),
        (_held, "status"),
        (_charged, "charges"),
        (_reached, "spans"),
    ],
)
def test_a_small_change_of_one_field_is_noticed(
    change: Callable[[driver.Transcript], None], field: str | None, monkeypatch: pytest.MonkeyPatch
):
    """One part in 10⁹ of a scale, the last bit of one value, one status, one charge, one step of one span."""
    before, after = _line(change, monkeypatch)
    assert record.compare(before, after, same_machine=True) == ([field] if field else [])


def test_other_words_are_noticed():
    """Another seed gives other words, as another address does."""
    configuration = next(each for each in driver.configurations(variants=False) if each.name == "Uniform-1")
    (case,) = (case for case in cases(configuration) if case.stream == "rough")
    other = record.digests(driver.run(configuration, case.rows, None, seed="other"))
    stored = record.stored("plain")[1][case.name]["digests"]
    assert {name for name in stored if stored[name] != other[name]} == {"values"}


def test_on_another_machine_only_rounding_is_forgiven(monkeypatch: pytest.MonkeyPatch):
    """There the last digits of floating-point numbers may differ, but no part in 10⁹, and no whole number."""
    before, after = _line(_moved, monkeypatch)
    assert record.compare(before, after, same_machine=False) == []
    monkeypatch.undo()
    before, after = _line(
        lambda transcript: transcript.fields.update(scale=transcript.fields["scale"] * (1 + 1e-9)),
        monkeypatch,
    )
    assert record.compare(before, after, same_machine=False) == ["scale"]
    monkeypatch.undo()
    before, after = _line(_held, monkeypatch)
    assert record.compare(before, after, same_machine=False) == ["status"]


def test_a_listed_difference_is_no_difference(monkeypatch: pytest.MonkeyPatch):
    """An entry allows the fields that it names, of the cases that it names, within what it says."""
    before, after = _line(_scaled, monkeypatch)
    case = before["case"]
    for entry, sentences in [
        ({}, 0),
        ({"case": "PeGaSus-*"}, 0),
        ({"case": "PeGaSus-3*"}, 1),
        ({"fields": ["values"]}, 1),
        ({"within": 1e-8}, 0),
        ({"within": 1e-12}, 1),
        ({"family": "plain"}, 1),
    ]:
        listed = {"family": "pegasus", "case": case, "fields": ["scale"], "reason": "a test", **entry}
        monkeypatch.setattr(record, "listed", lambda listed=listed: [listed])
        assert len(record.differences("pegasus", [after], quick=True)) == sentences, entry
