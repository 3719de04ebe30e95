from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.audit import blind, patching
from tests.audit.patching import Edit

from tidegate.errors import InvalidInput
from tiers import thinned

HALVED = """
[[mutant]]
name = "half"
why = "scale is Δ/(2ε)"
module = "tidegate.mechanisms.mechanism"
function = "Mechanism.noise_scale"
find = "parts / budget.total"
replace = "parts / (2 * budget.total)"
audit = 'Uniform(Event(epsilon="1"))'
loss = 2.0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one mutant."""
    path = tmp_path / "mutants.toml"
    path.write_text(HALVED, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_mutant_is_caught_and_the_same_configuration_unchanged_is_not(file: Path) -> None:
    """Two processes of their own: half of the noise is caught, all of it is not accused."""
    (mutant,) = blind.read(file)
    (changed,) = blind.run(file, [mutant], seconds=4)
    assert changed.caught, changed.sentence
    assert 1.2 < changed.found <= 2
    assert changed.proof["pair"]
    (sound,) = blind.run(file, [mutant], seconds=2, unchanged=True)
    assert not sound.caught, sound.sentence
    page = blind.put_into("# Audits\n", blind.section([changed, sound]))
    assert "1 of 2 mutants were caught: 50%" in page
    assert "**escaped**" in page
    json.dumps(changed.proof)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("parts / budget.total", "no such text", "occurs 0 times"),
        ('function = "Mechanism.noise_scale"', 'function = "Mechanism.none"', "names 0 functions"),
        ("tidegate.mechanisms.mechanism", "tidegate.policy.budget", "must be in one of"),
        ("(2 * budget.total)", "(2 * budget.total", "cannot be made"),
        ('why = "scale is Δ/(2ε)"', "", "lacks 'why'"),
        ("loss = 2.0", "lost = 2.0", "unknown field 'lost'"),
        ("[[mutant]]", "[[mutant", "cannot be read as TOML"),
        ("[[mutant]]", f"{HALVED}\n[[mutant]]", "more than one mutant"),
    ],
)
def test_a_wrong_file_is_one_sentence(file: Path, before: str, after: str, words: str) -> None:
    """Text that is not there, modules out of bounds, missing and unknown fields."""
    assert before in HALVED
    file.write_text(HALVED.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(InvalidInput, match=words):
        blind.read(file)


@pytest.mark.parametrize(
    "name", thinned(sorted(path.name for path in Path(__file__).parent.glob("blind*.toml")), 3)
)
def test_every_mutant_of_the_repository_can_still_be_made(name: str) -> None:
    """Code that moves takes its mutants along: every text is found exactly once, every configuration is one."""
    mutants = blind.read(Path(__file__).with_name(name))
    assert len(mutants) == len({mutant.name for mutant in mutants}) >= 10
    for mutant in mutants:
        patching.check(mutant.edits)
        for words in mutant.audited:
            blind.configuration(words)


def test_a_set_has_its_page_and_says_whether_it_is_still_blind(file: Path, tmp_path: Path) -> None:
    """The page is begun where there is none; a rate of mutants that the attack was tuned on is no estimate."""
    page = tmp_path / "audit_third.md"
    arguments = [str(file), "--page", str(page), "--seconds", "2"]
    assert blind.main(arguments) == 0
    written = page.read_text(encoding="utf-8")
    assert written.startswith("# ")
    assert file.as_posix() in written
    assert "not used to tune it" in written
    assert "95 % confidence" in written
    file.write_text(f"tuned = true\n{HALVED}", encoding="utf-8")
    seen = blind.section([], file.as_posix(), tuned=blind.tuned(file))
    assert "no estimate" in seen
    assert "95 % confidence" not in seen


def test_edits_are_not_made_in_files_or_in_loaded_modules() -> None:
    """A module that is loaded already cannot be changed any more, and its file never is."""
    import tidegate.mechanisms.plain.uniform

    path = patching.path_of("tidegate.mechanisms.plain.uniform")
    before = path.read_bytes()
    edit = Edit("tidegate.mechanisms.plain.uniform", "self.units, budget.epsilon", "1", "Uniform.scale")
    patching.check([edit])
    with pytest.raises(ValueError, match="imported already"):
        patching.install([edit])
    assert path.read_bytes() == before
    assert tidegate.mechanisms.plain.uniform.__file__ == str(path)


def test_unknown_configurations_are_one_sentence() -> None:
    """Neither a name of a shipped configuration nor an expression."""
    assert blind.configuration("Uniform, w = 3").policy.window == 3
    with pytest.raises(InvalidInput, match="neither the name"):
        blind.configuration("Unicorn()")
