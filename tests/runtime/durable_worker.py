"""A service in a few lines that a test kills: pushes the next step until it is killed or has pushed them all."""

from __future__ import annotations

import sys

import tidegate as tg

MECHANISM = tg.mechanisms.BudgetAbsorption(tg.WEvent(epsilon="1", w=6), columns=2)
STEPS = 4000


def main() -> None:
    """Argument: the ledger. Prints each step when it has been released."""
    with tg.open(MECHANISM, sys.argv[1]) as run:
        print("ready", flush=True)
        while run.step < STEPS:
            here = run.step + 1
            release = run.push([here % 50, 7], step=here, position={"offset": here})
            print(release.step, *release.values.tolist(), flush=True)


if __name__ == "__main__":
    main()
