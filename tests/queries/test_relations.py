"""Numbers that keep orders, sums and signs: nearest, exact in what is written, and otherwise untouched."""

from __future__ import annotations

import numpy as np

from tidegate.queries.relations import Relation, adjusted

# columns: orders, customers, two places of customers; customers ≤ orders, the places together ≤ customers
RELATIONS = (Relation((1,), 0), Relation((2, 3), 1))


def keeps(values: np.ndarray) -> bool:
    """Whether no number contradicts another one, without any tolerance but that of adding two of them."""
    return bool(
        (values >= 0).all()
        and (values[:, 1] <= values[:, 0]).all()
        and (values[:, 2] + values[:, 3] <= values[:, 1] + 1e-9).all()
    )


def test_everything_is_kept_and_nothing_nearer_is_found() -> None:
    """Among many other numbers that keep all relations none is nearer, weighted by how sure each is."""
    rng = np.random.default_rng(1)
    values = rng.normal(20, 30, (200, 4))
    halves = rng.uniform(1, 50, values.shape)
    found = adjusted(values, RELATIONS, [True] * 4, halves)
    assert keeps(found)
    weights = 1 / halves**2
    far = (weights * (found - values) ** 2).sum(axis=1)
    room = (weights * 0.02 * (2 * np.abs(found - values) + 0.02)).sum(
        axis=1
    )  # written to a hundredth, rounded down
    for size in (0.1, 1.0, 10.0):
        tried = np.maximum(found + rng.normal(0, size, values.shape), 0)
        tried[:, 1] = np.maximum(tried[:, 1], tried[:, 2] + tried[:, 3])
        tried[:, 0] = np.maximum(tried[:, 0], tried[:, 1])
        assert (far <= (weights * (tried - values) ** 2).sum(axis=1) + room).all()


def test_what_contradicts_nothing_is_not_touched() -> None:
    """Not even by rounding; and a step with an unknown number is compared without it."""
    values = np.array([[10.123456, 9.87654321, 3.3, 4.4], [np.nan, 7.0, 9.0, 1.0], [5.0, np.nan, -2.0, 8.0]])
    found = adjusted(values, RELATIONS, [True] * 4)
    np.testing.assert_array_equal(found[0], values[0])
    assert np.isnan(found[1, 0])
    assert found[1, 2] + found[1, 3] <= found[1, 1]
    assert (found[2, 0], found[2, 3], found[2, 2]) == (5.0, 8.0, 0.0)


def test_a_large_statistic_beside_small_ones_changes_nothing() -> None:
    """The surer number moves less, also where a sum of money is in the same step."""
    values = np.array([[100.0, 120.0, 5e6]])
    halves = np.array([[90.0, 30.0, 3e5]])
    found = adjusted(values, (Relation((1,), 0),), [True] * 3, halves)
    np.testing.assert_allclose(found, [[118.0, 118.0, 5e6]], atol=0.011)
