"""What the compiled loops of the mechanisms share: why they pause, and the arrays that they fill.

A loop `release(rows, begin, paused, first_step, …, account, state, outputs)` releases the steps rows[begin:] until Python
must help, and returns (index of the step, why). It is called again with that index and reason as `begin` and `paused`
when the help is there; `mechanisms/loop_run.py` is the other side.

Settings, state and outputs travel as plain tuples, which a call from Python recognises quickly, and each loop gives them
their names back: `state = State(*state)` costs nothing in compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.compiled import lean

# why a loop returned; a family numbers reasons of its own from OWN on
DONE = 0
REFUSED = 1  # the ledger refused the step
NOISE = 2  # the caller supplies the noise of this step in `given`; the step is already charged
OWN = 3

# what a step is said to be, as in `releases.Status`
FRESH, APPROXIMATED, NULLIFIED, PARTIAL = 1, 2, 3, 5


@lean
def largest(numbers: Any) -> Any:
    """The largest of some numbers."""
    found = numbers[0]
    for at in range(1, numbers.size):
        found = max(found, numbers[at])
    return found


class Account(NamedTuple):
    """The account that a ledger lends to a loop; see `ledger/kernels.py`."""

    entries: Any
    numbers: Any


class Outputs(NamedTuple):
    """What the steps of a batch release, in the order in which `Releases` takes it."""

    values: Any
    status: Any
    source: Any
    scale: Any
    units: Any
