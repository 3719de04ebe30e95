from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mutate
import pytest
import select_tests
import switches


def test_mutants_are_one_replacement_each() -> None:
    """Every mutant of a few files can be parsed, differs from the code, and has a key of its own."""
    files = [
        path for path in mutate.files() if path.endswith(("scale.py", "uniform.py", "account.py", "trees.py"))
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


@pytest.mark.slow
def test_a_larger_sample_holds_the_smaller_one() -> None:
    """The choice is by keys alone, so that a run can go on where it stopped."""
    small, large = mutate.sampled(40), mutate.sampled(60)
    assert large[:40] == small
    assert {mutant.path.split("/")[0] for mutant in mutate.sampled(400)} == set(mutate.ROOMS)


@pytest.mark.slow
def test_nearest_tests_come_first() -> None:
    """A module's own test file is the first; kernels and shared code find tests too."""
    assert select_tests.nearest("tidegate.mechanisms.plain.uniform")[0].endswith("test_uniform.py")
    for mutant in mutate.sampled(400):
        assert select_tests.nearest(mutant.module), mutant.module


def test_a_switch_is_one_mutant_or_none() -> None:
    """With all switches in a file at once, each turns it into its mutant, and none leaves it as it is."""
    found = [
        mutant for mutant in mutate.sampled(400) if mutant.path == "mechanisms/w_event/budget_distribution.py"
    ]
    assert len(found) > 3
    (text,) = switches.switched(found).values()
    assert _turned(text, -1) == ast.dump(ast.parse(found[0].original()))
    for number, mutant in enumerate(found):
        assert _turned(text, number) == ast.dump(ast.parse(mutant.source()))


def _turned(text: str, number: int) -> str:
    """The syntax tree of a file with one of its switches turned on."""

    class Turn(ast.NodeTransformer):
        def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
            """The side that is taken, where it is a switch."""
            self.generic_visit(node)
            if not (isinstance(node.test, ast.Call) and ast.unparse(node.test.func) == switches.SWITCH):
                return node
            return node.body if ast.literal_eval(node.test.args[0]) == number else node.orelse

    return ast.dump(Turn().visit(ast.parse(text)))
