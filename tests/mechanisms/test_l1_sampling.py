"""L1 sampling: exact scores, k samples in every period, and what the tests lose, by enumeration."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mechanisms.chances import sample_chances

import tidegate as tg
from experiments.printed.optstream import PrintedOptStream, PrintedRule, PrintedSampler
from tidegate.mechanisms import OptStream
from tidegate.mechanisms.optstream import l1_sampling as loop
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler, L1Sampling, line_score
from tidegate.noise import current, laplace
from tidegate.testing.entropy import fixed_entropy, zero_noise


def test_figure_1_of_the_paper():
    """With S = (1, 3, 6) the score is the distance of x₂, x₄ and x₅ from the lines through x₁, x₃ and x₆."""
    x = [2, 7, 4, 9, 3, 1]
    first, second = line_score(x[0:3]), line_score(x[2:6])
    assert first == abs(Fraction(2 + 4, 2) - 7)
    assert second == abs(Fraction(3) - 9) + abs(Fraction(2) - 3)
    assert line_score([4, 9]) == 0


@given(st.lists(st.integers(-(2**35), 2**35), min_size=2, max_size=60))
def test_scores_are_exact_as_steps_arrive(values):
    """The search tree gives the score of every prefix exactly, also for values far apart and equal slopes."""
    nodes, path = np.zeros((60, loop.NODE), dtype=np.int64), np.zeros(60, dtype=np.int64)
    root = -1
    for run in range(1, len(values)):
        rise = values[run] - values[0]
        found = loop.score(nodes, root, rise, run)
        assert Fraction(int(found), run) == line_score(values[: run + 1])
        root = loop.insert(nodes, path, root, run - 1, rise, run)


@given(st.integers(2, 30), st.data())
def test_every_period_has_exactly_k_samples_with_both_ends(w, data):
    """Whatever the stream and the noise: k samples, the first and the last step among them."""
    k = data.draw(st.integers(2, w))
    rule = L1Sampling(
        w, k, Fraction(data.draw(st.sampled_from([1, 1000]))), 1, data.draw(st.integers(-50, 200))
    )
    rows = np.array(data.draw(st.lists(st.integers(0, 99), min_size=w, max_size=w)))[:, None]
    sampler = L1Sampler(rule, 1)
    sampler.begin(current(), 0)
    chosen = sampler.choose(current(), 1, rows)
    assert chosen.sum() == k
    assert chosen[0]
    assert chosen[-1]


def test_samples_follow_the_stream_without_noise():
    """On a stream of straight pieces the sampler takes the step after each bend, then fills up the end."""
    rows = np.array([0, 0, 0, 0, 5, 10, 15, 20, 20, 20, 20, 20])[:, None]
    with zero_noise():
        sampler = L1Sampler(L1Sampling(12, 5, Fraction(1), 1, 3), 1)
        sampler.begin(current(), 0)
        chosen = np.flatnonzero(sampler.choose(current(), 1, rows)) + 1
    assert chosen.tolist() == [1, 5, 9, 11, 12]


def loss(rule: L1Sampling, one, other) -> dict[tuple[int, ...], float]:
    """The log-ratio of every set of samples."""
    p, q = sample_chances(rule, one), sample_chances(rule, other)
    return {times: math.log(p[times] / q[times]) for times in p if p[times] > 1e-12 and q[times] > 1e-12}


@pytest.mark.parametrize(("w", "k"), [(5, 3), (6, 3), (6, 4)])
def test_no_pair_of_neighbours_loses_more_than_the_tests_may(w, k):
    """Exact enumeration: every change of every step by at most Δ, several streams and thresholds."""
    worst = 0.0
    for stream in ((5,) * w, tuple(4 * (step % 2) for step in range(w)), tuple(range(0, 2 * w, 2))):
        for limit in (0, 3):
            rule = L1Sampling(w, k, Fraction(1), 1, limit)
            assert abs(sum(sample_chances(rule, stream).values()) - 1) < 1e-9
            for change in product((-1, 1), repeat=w):
                other = tuple(a + b for a, b in zip(stream, change, strict=True))
                worst = max(worst, *map(abs, loss(rule, stream, other).values()))
    assert worst <= 1 + 1e-6
    assert worst > 0.1  # the enumeration sees something


def test_the_enumeration_catches_noise_that_is_too_small():
    """The planted wrong version: noise of a tenth of the scale loses more than ε."""
    wrong = L1Sampling(6, 3, Fraction(10), 1, 0)
    change = (0, 1, -1, 1, -1, 0)
    found = loss(wrong, (5,) * 6, tuple(5 + step for step in change))
    assert max(map(abs, found.values())) > 1


def straddling_loss(
    mechanism: OptStream, stream: tuple[int, ...], change: tuple[int, ...], first: int
) -> float:
    """The largest loss of two periods when a window's steps change: the choice of samples, and their values."""
    w, rule = mechanism.window, mechanism.sampling
    moved = [0] * (2 * w)
    moved[first : first + w] = change
    total = 0.0
    for period in range(2):
        steps = slice(period * w, (period + 1) * w)
        other = tuple(a + b for a, b in zip(stream, moved[steps], strict=True))
        measured = (
            sum if mechanism.sharing is None else max
        )  # what is shared loses by the largest change of its group
        total += max(
            ratio + measured(abs(moved[period * w + time - 1]) for time in times) / mechanism.sample_scale
            for times, ratio in loss(rule, stream, other).items()
        )
    return total


@pytest.mark.parametrize("noise", ["laplace", "cube"])
def test_no_window_loses_more_than_epsilon_with_adaptive_samples(noise):
    """Exact enumeration of tests and samples together, for windows that are aligned or straddle two periods."""
    mechanism = OptStream(
        tg.WEvent(epsilon="2", window=4), samples=3, adaptive=True, threshold=2, noise=noise, split=(1, 1, 0)
    )
    assert mechanism.shares_noise == (noise == "cube")
    worst = max(
        straddling_loss(mechanism, stream, change, first)
        for stream in ((5, 5, 5, 5), (0, 6, 0, 6))
        for first in range(4)
        for change in product((-1, 0, 1), repeat=4)
    )
    assert 0.5 < worst <= 2 + 1e-6


def test_the_printed_adaptive_samples_lose_more_than_epsilon():
    """The planted wrong version: printed scales at w = 8 and k = 3, in a window that straddles two periods."""
    mechanism = PrintedOptStream(
        tg.WEvent(epsilon="1", window=8),
        samples=3,
        adaptive=True,
        threshold=4,
        split=(1, 9, 1),
        noise="laplace",
    )
    change = (1, 1, 1, 1, 1, 1, 1, 1)
    assert straddling_loss(mechanism, (5,) * 8, change, 4) > 1.1


@settings(max_examples=50)
@given(st.lists(st.integers(0, 30), min_size=12, max_size=12), st.integers(0, 12))
def test_a_sampler_goes_on_from_its_state(values, cut):
    """Restored in the middle of a period, the sampler chooses what it would have chosen."""
    rows, rule = np.array(values)[:, None], L1Sampling(12, 5, Fraction(1), 1, 10)
    with zero_noise():
        whole = L1Sampler(rule, 1)
        whole.begin(current(), 0)
        expected = whole.choose(current(), 1, rows)
        first = L1Sampler(rule, 1)
        first.begin(current(), 0)
        head = first.choose(current(), 1, rows[:cut])
        second = L1Sampler(rule, 1)
        second.restore(first.state())
        tail = second.choose(current(), cut + 1, rows[cut:])
    assert np.array_equal(np.concatenate([head, tail]), expected)


# as printed ----------------------------------------------------------------------------------------------------


def printed_steps(values, noise, rule, limit):
    """Algorithm 3 line by line: the search goes on after a hit only where fewer than k are chosen."""
    w, k, times = rule.length, rule.samples, [1]
    for i in range(2, w + 1):
        if math.floor(line_score(values[times[-1] - 1 : i])) + noise[i - 1] >= limit:
            times.append(i)
            if w - i <= k - len(times):
                return times + list(range(i + 1, w + 1))
            if len(times) == k:
                return times
    return times


@given(st.integers(2, 20), st.integers(0, 10**6), st.data())
def test_algorithm_3_as_printed(w, seed, data):
    """The sampler with the printed rule chooses what the pseudo-code does, in any cuts: at most k, often not the last."""
    k = data.draw(st.integers(2, w - 1)) if w > 2 else 2
    rule = PrintedRule(w, k, Fraction(30), 1, data.draw(st.integers(-20, 400)))
    rows = np.array(data.draw(st.lists(st.integers(0, 99), min_size=w, max_size=w)))[:, None]
    cut = data.draw(st.integers(0, w))
    with fixed_entropy(seed):
        limit, noise = rule.limit, np.zeros(w, dtype=np.int64)
        if rule.tests:
            limit += int(laplace(current(), "threshold", 0, rule.sparse_vector.threshold_scale, (1, 1))[0, 0])
            noise = laplace(current(), "tests", 1, rule.sparse_vector.question_scale, (w, 1))[:, 0]
        expected = (
            printed_steps(rows[:, 0].tolist(), noise.tolist(), rule, limit) if k < w else range(1, w + 1)
        )
    with fixed_entropy(seed):
        sampler = PrintedSampler(rule, 1)
        sampler.begin(current(), 0)
        first = sampler.choose(current(), 1, rows[:cut])
        again = PrintedSampler(rule, 1)
        again.restore(sampler.state())
        chosen = np.concatenate([first, again.choose(current(), cut + 1, rows[cut:])])
    assert (np.flatnonzero(chosen) + 1).tolist() == list(expected)


@pytest.mark.slow
def test_the_printed_samples_lose_more_in_a_window_that_straddles_two_periods():
    """2k − 1 samples of one window, each with ε_P/k: by chance on a flat stream."""
    mechanism = PrintedOptStream(
        tg.WEvent(epsilon="1", window=8), samples=3, adaptive=True, split=("1/1000", 1, 0), noise="laplace"
    )
    chances = sample_chances(mechanism.sampling, (5,) * 8)
    assert sum(chances.values()) == pytest.approx(1)
    late, early = chances[1, 7, 8], chances[1, 2, 3]  # the window of steps 5 to 12 has five of the six
    assert late * early > 1e-4
    assert 5 * mechanism.shares[1] == pytest.approx(5 / 3, rel=0.01)
    assert len({len(times) for times in chances}) > 1
