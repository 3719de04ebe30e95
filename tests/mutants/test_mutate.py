from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mutate
import select_tests


def test_mutants_are_one_replacement_each() -> None:
    """Every mutant of a few files can be parsed, differs from the code, and has a key of its own."""
    files = [
        path for path in mutate.files() if path.endswith(("scale.py", "uniform.py", "rules.py", "trees.py"))
    ]
    assert len(files) >= 4
    found = [mutant for path in files for mutant in mutate.mutants_of(path)]
    assert len({mutant.key for mutant in found}) == len(found) > 100
    for mutant in found[::7]:
        changed = mutant.source()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse((mutate.PACKAGE / mutant.path).read_text()))


def test_kinds_of_mistakes() -> None:
    """Comparisons, operators, terms, constants and roundings are all changed somewhere."""
    kinds = {mutant.kind for path in mutate.files() for mutant in mutate.mutants_of(path)}
    expected = {"border", "turned round", "operator swapped", "term dropped", "one more", "constant"}
    assert expected | {"function swapped", "and for or"} == kinds


def test_a_larger_sample_holds_the_smaller_one() -> None:
    """The choice is by keys alone, so that a run can go on where it stopped."""
    small, large = mutate.sampled(40), mutate.sampled(60)
    assert large[:40] == small
    assert {mutant.path.split("/")[0] for mutant in mutate.sampled(400)} == set(mutate.ROOMS)


def test_nearest_tests_come_first() -> None:
    """A module's own test file is the first; kernels and shared code find tests too."""
    assert select_tests.nearest("tidegate.mechanisms.plain.uniform")[0].endswith("test_uniform.py")
    for mutant in mutate.sampled(400):
        assert select_tests.nearest(mutant.module), mutant.module
