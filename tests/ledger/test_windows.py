"""What every window was charged, as pictures show it, against the ledger's own answers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import tidegate as tg
from tidegate.config.auto import choose
from tidegate.ledger import SQLiteLedger
from tidegate.ledger.rows import Row
from tidegate.ledger.windows import window_units
from tidegate.mechanisms import Mechanism

POLICY = tg.WEvent(epsilon="1", w=6)
KINDS = ("Uniform", "Sample", "BudgetDistribution", "BudgetAbsorption", "Tide")


def made(name: str) -> Mechanism:
    """A mechanism of one column; Tide as `auto` makes it, with noise that steps share."""
    if name == "Tide":
        return choose(POLICY, 1, Fraction(1), "refuse", Fraction(3600), None, nonnegative=True)
    return tg.mechanisms.catalogue()[name](POLICY)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("batch", [1, 17])
def test_every_window_is_what_the_ledger_says(name: str, batch: int, tmp_path: Path) -> None:
    """Each window's units are those that the ledger answers with, and the fullest is the verdict's."""
    run = made(name).start(tmp_path / "one.ledger")
    values = np.arange(51)[:, None] % 7
    for begin in range(0, 51, batch):
        run.push_batch(values[begin : begin + batch])
    with run.ledger as ledger:
        assert isinstance(ledger, SQLiteLedger)
        found = ledger.connection.execute(f"SELECT {', '.join(Row._fields)} FROM charges ORDER BY row")
        units = window_units((Row(*columns) for columns in found), ledger.rule, 1, 51)
        wanted = [ledger.spent(max(1, end - 5), end) for end in range(1, 52)]
        assert [int(each) * ledger.unit for each in units] == wanted
        assert max(wanted) == ledger.verify().spent
