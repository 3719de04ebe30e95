"""The page on NIST SP 800-226: its tests exist, and its numbers are those of the code."""

from __future__ import annotations

import ast
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tidegate.mechanisms import Uniform
from tidegate.policy import User, WEvent

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reviewers" / "nist.md").read_text(encoding="utf-8")
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
STEPS = {"this week": 168, "a month (30 days)": 720, "a year": 8760, "ten years": 87_600}
WEEK = Uniform(WEvent(epsilon="1", window=168), noise="laplace")


def rows() -> dict[str, list[str]]:
    """The rows of the table of numbers by what they are about."""
    found = re.findall(r"^\| there (?:for )?(.+?), or not.*?\| (.+) \|$", PAGE, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def test_every_test_that_is_named_exists() -> None:
    """File and function; the page names many."""
    assert len(TESTS) > 25
    for file, name in TESTS:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
            f"{file}::{name}"
        )


def test_every_row_says_what_stays_with_the_operator() -> None:
    """Four cells each, none empty."""
    tables = PAGE.split("## Parameters and unit")[1]
    lines = [line for line in tables.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(lines) > 20
    assert all(len(cells := line.strip("| ").split(" | ")) == 4 and all(cells) for line in lines)


@pytest.mark.parametrize("name", STEPS)
def test_bounds_are_those_of_the_guarantee(name: str) -> None:
    """Windows, ε and the best guess at even odds; "none" where that is 100.0 %."""
    windows, epsilon, bound, _ = rows()[name]
    budget = WEEK.guarantee.over(steps=STEPS[name]).budget
    assert Fraction(epsilon) == budget.epsilon == int(windows)
    shown = f"{100 / (1 + math.exp(-float(budget.epsilon))):.1f} %"
    assert bound == ("none" if shown == "100.0 %" else shown)


@pytest.mark.parametrize("name", STEPS)
def test_attacks_are_those_on_laplace_noise(name: str) -> None:
    """The likelihood ratio of n shifts by 1 at scale b is normal for large b: right in Φ(√n / 2b)."""
    right = 0.5 * (1 + math.erf(math.sqrt(STEPS[name]) / WEEK.scale / 2 / math.sqrt(2)))
    assert rows()[name][3] == f"{100 * right:.1f} %"


def test_the_attack_of_a_year_is_right_as_often_as_the_page_says() -> None:
    """The optimal attack on 4,000 made-up years; wrong by chance once in a million (five standard deviations)."""
    draws = np.random.default_rng(226)
    right = 0
    for _ in range(4000):
        noise = draws.laplace(scale=168.0, size=8760)
        right += float(np.sum(np.abs(noise + 1) - np.abs(noise))) > 0  # she is there: noise against noise + 1
    measured, said = right / 4000, float(rows()["a year"][3].removesuffix(" %")) / 100
    assert abs(measured - said) < 5 * math.sqrt(said * (1 - said) / 4000)


def test_the_prices_of_the_page() -> None:
    """Scales of a week's window and of a year at user level, and the bound of two periods."""
    assert (WEEK.scale, f"{Uniform(User(epsilon='1', horizon=8760), noise='laplace').scale:,.0f}") == (
        168,
        "8,760",
    )
    assert "scale 8,760 instead of 168" in PAGE
    assert f"{100 / (1 + math.exp(-2)):.1f} %" == "88.1 %"
    assert "88.1 %" in PAGE
