from __future__ import annotations

import numpy as np

from tidegate.audit import directions, events, features
from tidegate.noise import current, laplace
from tidegate.policy import Event


def drawn(centre: int, scale: float, count: int) -> np.ndarray:
    """Transcripts of two steps: a measured value and its scale, then the same value without a scale."""
    values = centre + laplace(current(), "test", 0, scale, (count, 1))[:, 0].astype(float)
    return np.stack([values, np.full(count, scale), values, np.zeros(count)], axis=1)


def test_the_likelihood_of_laplace_noise_is_found_from_medians() -> None:
    """(|x − b| − |x − a|)/scale of what was measured; a value that only repeats counts nothing."""
    found = directions.laplace(drawn(10, 2.0, 4000), drawn(11, 2.0, 4000), 2, 1)
    assert found is not None
    assert found.columns == (0,)
    assert (found.first[0], found.second[0]) == (10, 11)
    scores = found(np.array([[7.0, 2.0, 7.0, 0.0], [15.0, 2.0, 15.0, 0.0], [15.0, 0.0, 15.0, 0.0]]))
    assert scores.tolist() == [0.5, -0.5, 0.0]
    again = directions.read(found.describe())
    assert np.array_equal(again(np.array([[7.0, 2.0, 7.0, 0.0]])), [0.5])


def test_nothing_that_differs_is_no_direction() -> None:
    """Equal medians, constant numbers, or too few transcripts."""
    same = drawn(10, 2.0, 400)
    assert directions.laplace(same, same, 2, 1) is None
    constant = np.ones((50, 3))
    assert directions.line(constant, constant) is None
    assert directions.line(same[:3], same[:3]) is None


def test_the_line_weighs_what_moves_by_what_it_varies() -> None:
    """Two numbers with the same noise in both: only their difference tells."""
    noise = laplace(current(), "test", 0, 50.0, (4000, 1)).astype(float)
    small = laplace(current(), "small", 0, 1.0, (4000, 1)).astype(float)
    one = np.concatenate([noise + small + 3, noise], axis=1)
    other = np.concatenate([noise + small, noise], axis=1)
    found = directions.line(one, other)
    assert found is not None
    assert abs(found.weights.sum()) < 0.05 * np.abs(found.weights).max()
    again = directions.read(found.describe())
    assert np.array_equal(again(one), found(one))


def test_the_norm_of_shared_noise_tells_what_single_numbers_do_not() -> None:
    """One radius for two steps: what tells is which of them is farthest; its norm is found and survives a file."""
    count = 6000
    radius = np.abs(laplace(current(), "test", 0, 8.0, (count, 1))).astype(float)
    sides = laplace(current(), "sides", 0, 50.0, (count, 4)).astype(float)
    drawn_ = [np.rint(radius * (sides[:, 2 * at : 2 * at + 2] % 11 / 5 - 1)) + at for at in (0, 1)]
    largest = directions.Norm(((0,), (1,)), 2, True, np.zeros((2, 1)), np.ones((2, 1)))
    assert largest(np.array([[3.0, -5.0], [7.0, 1.0]])).tolist() == [6.0 - 5.0, 6.0 - 7.0]
    summed = directions.Norm(((0,), (1,)), 1, True, np.zeros((2, 1)), np.ones((2, 1)))
    assert summed(np.array([[3.0, -5.0]])).tolist() == [2.0 + 6.0 - 8.0]
    found = directions.norms(drawn_[0], drawn_[1], [(0,), (1,)])
    assert {each.apart for each in found} == {1, 2}
    for each in found:
        again = directions.read(each.describe())
        assert np.array_equal(again(drawn_[0]), each(drawn_[0]))
    assert directions.norms(drawn_[0], drawn_[0], [(0,), (1,)]) == []


def test_features_survive_a_file() -> None:
    """Codes of fresh transcripts are the same after reading what was written."""
    one, other = drawn(10, 2.0, 1000), drawn(12, 2.0, 1000)
    fitted = features.fit(one, other, 2, 1)
    assert fitted.directions
    again = features.Features.read(fitted.describe(), one.shape[1])
    fresh = drawn(11, 2.0, 300)
    assert np.array_equal(fitted.codes(fresh), again.codes(fresh))
    assert len(fitted.codes(fresh)) == fitted.count


def test_two_numbers_that_tell_something_only_together_are_looked_at() -> None:
    """A decision that follows from what was seen before, and in the other stream does not; each alone says nothing."""
    seen = [laplace(current(), name, 0, 3.0, (4000, 1))[:, 0].astype(float) for name in ("one", "other")]
    fair = laplace(current(), "fair", 0, 3.0, (4000, 2))
    one = np.stack([seen[0], (seen[0] > 0) ^ (fair[:, 1] > 4), fair[:, 0]], axis=1).astype(float)
    other = np.stack([seen[1], (seen[1] <= 0) ^ (fair[:, 1] > 4), fair[:, 0]], axis=1).astype(float)
    fitted = features.fit(one, other, 3)
    assert (
        "number 1 together with number 2" in fitted.names or "number 2 together with number 1" in fitted.names
    )
    assert len(fitted.names) == fitted.count
    again = features.Features.read(fitted.describe(), 3)
    assert np.array_equal(fitted.codes(one), again.codes(one))
    learnt = events.learn(one, other, 3, Event(epsilon="1").budget, 4000, 1e-6)
    assert learnt.promise > 1
    plain = features.fit(fair.astype(float), fair[::-1].astype(float), 2)
    assert not plain.conjunctions  # a false one has a chance below one in a hundred
