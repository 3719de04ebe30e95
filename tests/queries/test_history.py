from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.queries import Board, History, Jump, LowSignal, Monitor, UnitCounts, WindowSum
from tidegate.releases import Measured, Releases, Status


def grouped(noisy, groups, weights=None) -> Releases:
    """Releases with the given measurements; their values do not matter."""
    noisy, groups = np.asarray(noisy, dtype=float), np.asarray(groups, dtype=np.int64)
    weights = (
        np.ones(groups.shape, dtype=np.int64) if weights is None else np.asarray(weights, dtype=np.int64)
    )
    steps = len(noisy)
    status, ones = np.full(steps, Status.FRESH, dtype=np.int8), np.ones(steps, dtype=np.int64)
    fixed = (1, np.zeros(noisy.shape), status, None, np.ones(steps), ones, Fraction(1))
    return Releases(*fixed, measured=Measured(noisy, groups, weights))


def smoothed(releases: Releases, step: int, smoother: str = "median") -> np.ndarray:
    """All steps up to one as of that one, by the definition: a group's members are those with its number."""
    found = np.zeros((step, releases.noisy.shape[1]))
    for column in range(found.shape[1]):
        noisy, groups = releases.noisy[:step, column], releases.groups[:step, column]
        weights = releases.weights[:step, column]
        for at in range(step):
            members = groups == groups[at]
            if groups[at] and smoother == "median":
                found[at, column] = np.median(np.repeat(noisy[members], weights[members]))
            elif groups[at]:
                found[at, column] = np.average(noisy[members], weights=weights[members].astype(float) ** 2)
    return found


@st.composite
def streams(draw):
    """Groups that follow each other, with pruned steps in between, on two columns."""
    steps = draw(st.integers(1, 40))
    groups = np.zeros((steps, 2), dtype=np.int64)
    for column in range(2):
        current = 0
        for step in range(steps):
            kind = draw(st.sampled_from(["join", "join", "join", "new", "pruned"]))
            if kind != "pruned":
                current = step + 1 if kind == "new" or current == 0 else current
                groups[step, column] = current
    noisy = draw(st.lists(st.integers(-9, 9), min_size=2 * steps, max_size=2 * steps))
    weights = draw(st.lists(st.integers(1, 3), min_size=2 * steps, max_size=2 * steps))
    shape = (steps, 2)
    return grouped(np.reshape(noisy, shape) * 0.5, groups, np.reshape(weights, shape))


@given(streams(), st.integers(1, 12), st.sampled_from(["median", "average"]), st.integers(0, 40))
@settings(max_examples=60)
def test_windows_follow_the_definition(releases, window, smoother, cut):
    """Sums, oldest and latest estimates are those of Algorithm 3 with the groups as of each step, however cut."""
    history = History(2, window, smoother)
    parts = [history.push(releases[index]) for index in range(min(cut, len(releases)))]
    again = History(2, window, smoother)
    again.restore(history.state())
    parts += [again.push(releases[index]) for index in range(len(parts), len(releases))]
    whole = History(2, window, smoother).push_batch(releases)
    for step, part in enumerate(parts, 1):
        expected = smoothed(releases, step, smoother)
        recent = expected[-window:]
        for found in (part, tuple(field[step - 1] for field in whole)):
            assert found[0] == pytest.approx(expected[-1])
            assert found[2] == pytest.approx(recent.sum(axis=0))
            if step >= window:
                assert found[1] == pytest.approx(recent[0])
            else:
                assert np.isnan(found[1]).all()
    assert again.recent() == pytest.approx(smoothed(releases, len(releases), smoother)[-window:])


def test_example_3_5_of_the_paper():
    """Noisy counts 5.6, 4.4, 6.7, 9.5, 10.2 in groups {1,2,3}, {4}, {5} are released as 5.6, 5, 5.6, 9.5, 10.2."""
    releases = grouped([[5.6], [4.4], [6.7], [9.5], [10.2]], [[1], [1], [1], [4], [5]])
    answers = UnitCounts(1).push_batch(releases).ravel()
    assert answers == pytest.approx([5.6, 5.0, 5.6, 9.5, 10.2])


def test_james_stein_shrinks_the_latest_count():
    """(c̃ − avg)/n + avg."""
    answers = UnitCounts(1, "james-stein").push_batch(grouped([[2.0], [8.0]], [[1], [1]])).ravel()
    assert answers == pytest.approx([2.0, 1.5 + 5.0])


def test_unit_counts_repeat_what_the_mechanism_released():
    """The mechanism's Smoother and the query agree, for each smoother."""
    counts = np.repeat([3, 40, 7], 30)[:, np.newaxis] * np.ones((1, 2), dtype=np.int64)
    for smoother in ("median", "average", "james-stein"):
        mechanism = tg.mechanisms.PeGaSus(tg.Event(epsilon="2"), columns=2, smoother=smoother)
        releases = tg.open(mechanism).push_batch(counts)
        assert UnitCounts(2, smoother).push_batch(releases) == pytest.approx(releases.values)
        assert UnitCounts(2, "released").push_batch(releases) == pytest.approx(releases.values)


def test_queries_work_on_releases_without_groups():
    """Every step is then a group of its own."""
    releases = tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=3), columns=2)).push_batch(
        np.ones((30, 2))
    )
    assert isinstance(releases, Releases)
    sums = WindowSum(2, 4).push_batch(releases)
    assert sums[10] == pytest.approx(releases.values[7:11].sum(axis=0))
    jumps = Jump(2, 3, threshold=1.0).push_batch(releases)
    assert (jumps[2:] == (np.abs(releases.values[2:] - releases.values[:-2]) >= 1.0)).all()
    assert not jumps[:2].any()


def test_aggregates_are_sums_of_columns():
    """Asking about a sum of columns sums the estimates."""
    releases = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="1"), columns=3)).push_batch(
        np.full((40, 3), 5)
    )
    each = WindowSum(3, 7).push_batch(releases)
    both = WindowSum(3, 7, aggregate=[(0, 2), (1,)]).push_batch(releases)
    assert both == pytest.approx(np.stack([each[:, 0] + each[:, 2], each[:, 1]], axis=1))
    monitor = Monitor(3, 2, np.sum, lambda total: total > 0, aggregate=[(0, 1, 2)])
    assert monitor.push_batch(releases).shape == (40, 1)


def test_monitors_of_one_kind_agree():
    """Jump and LowSignal are what a monitor with the paper's f and B says."""
    releases = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="1"))).push_batch(np.repeat([2, 60, 2], 20))
    jump = Jump(1, 5, threshold=20).push_batch(releases)
    own = Monitor(1, 5, lambda c: abs(c[-1] - c[0]), lambda x: x >= 20).push_batch(releases)
    assert (jump == own).all()
    assert jump.any()
    low = LowSignal(1, 5, threshold=30).push_batch(releases)
    own = Monitor(1, 5, np.sum, lambda x: x < 30).push_batch(releases)
    assert (low == own).all()
    assert not low[:4].any()


def test_a_monitor_that_raises_is_reported_once():
    """The stream and the other questions continue."""

    def broken(counts):
        if counts[-1] > 100:
            raise RuntimeError("no idea")
        return 0.0

    board = Board({"broken": Monitor(1, 1, broken, bool), "sum": WindowSum(1, 3), "narrow": WindowSum(2, 3)})
    releases = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="9"))).push_batch(np.repeat([1, 900, 1], 5))
    answers = [board.push(release) for release in releases]
    reports = board.report()
    assert set(reports) == {"broken", "narrow"}
    assert "step 6" in reports["broken"]
    assert "RuntimeError" in reports["broken"]
    assert board.report() == {}
    assert all(answer["sum"] is not None and answer["narrow"] is None for answer in answers)
    assert not answers[-1]["broken"].any()
    assert set(board.failures) == {"broken", "narrow"}


def test_bad_questions_are_refused_in_one_sentence():
    """Name, value, constraint, remedy."""
    releases = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="1"), columns=2)).push_batch(np.ones((9, 2)))
    history = History(2, 4)
    history.push_batch(releases)
    refusals = [
        lambda: history.recent(5),
        lambda: History(2, 0),
        lambda: History(2, 3, smoother="mode"),
        lambda: WindowSum(2, 3, aggregate=[(0, 2)]),
        lambda: WindowSum(2, 3, aggregate=[()]),
        lambda: WindowSum(3, 3).push_batch(releases),
        lambda: history.push_batch(releases),
        lambda: History(2, 5).restore(history.state()),
    ]
    for refusal in refusals:
        with pytest.raises((InvalidParameter, InvalidInput)) as caught:
            refusal()
        assert len(str(caught.value).splitlines()) == 1
    assert history.recent(2).shape == (2, 2)


def test_memory_is_the_window_and_the_open_group():
    """The state does not grow with the stream."""
    mechanism = tg.mechanisms.PeGaSus(tg.Event(epsilon="1"), longest_group=50)
    run, query = tg.open(mechanism), WindowSum(1, 30)

    def size() -> int:
        return sum(np.asarray(part).nbytes for part in query.state().values())

    query.push_batch(run.push_batch(np.ones(1000)))
    early = size()
    query.push_batch(run.push_batch(np.ones(20_000)))
    assert size() <= early + 2 * 8 * 50
