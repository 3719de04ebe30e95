"""The true values of a finite stream, read again for the curator's eyes only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.config import Config


def true_values(config: Config, steps: int) -> npt.NDArray[np.float64]:
    """What the mechanism would release without noise, steps × columns, as answers; missing readings are NaN.

    Not private: whoever sees this needs no release. Nothing of it is ever stored.
    """
    parts, done = [], 0
    intake = config.open(None, follow=False)
    try:
        for block in intake:
            if done >= steps:
                break
            exact = block.units / block.grid.denominator
            if block.missing is not None:
                exact = np.where(block.missing, np.nan, exact)
            parts.append(exact[: steps - done])
            done += len(parts[-1])
    finally:
        intake.close()
    if not parts:
        return np.zeros((0, len(config.query.answer_labels)))
    exact = np.concatenate(parts)
    return config.query.exact_answers(config.mechanism.ideal(exact))
