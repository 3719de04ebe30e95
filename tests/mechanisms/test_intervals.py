"""Intervals: every release of every mechanism has one, it holds as often as it says, and it comes from releases alone."""

import dataclasses
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, t
from tidegate.mechanisms.uncertainty import Walk, student
from tidegate.testing.conformance import stream

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import Blocks, Fast, Sample, Uniform, catalogue
from tidegate.noise import Law
from tidegate.noise.law import SharedLaw, SpreadLaw, spread_radius
from tidegate.queries.sums import laplace_radius
from tidegate.releases import Radii
from tidegate.testing.entropy import fixed_entropy
from tiers import rotated

EXAMPLES = {name: mechanism.examples() for name, mechanism in catalogue().items()}
LEVELS = (0.5, 0.9, 0.99)
RUNS = 6
SLACK = (
    0.12  # a run's errors are correlated, and 6 runs are few; entropy is fixed, so nothing of it is chance
)


def steps_of(mechanism, most=60):
    """As many steps as a test pushes, within the horizon."""
    return min(most, mechanism.policy.horizon or most)


def slow(mechanism, steps, seed=1):
    """Small steps up and down around 200, on the grid of every example, below every bound."""
    moves = np.random.default_rng(seed).integers(-1, 2, (steps, mechanism.columns))
    return 200 + np.cumsum(moves, axis=0)


def scattered(mechanism, steps, seed=1):
    """Counts that scatter around 100 by chance, on the grid of every example, below every bound."""
    return np.random.default_rng(seed).poisson(100, (steps, mechanism.columns))


def truth_of(mechanism, run, rows):
    """What would be released without noise, of values that are clipped as the run did; None where that is its own."""
    clip = getattr(run, "clip", None)
    exact = mechanism.ideal(np.minimum(rows, np.inf if clip is None else clip).astype(np.float64))
    if mechanism.forest is not None and mechanism.outputs != mechanism.columns:
        exact = mechanism.forest.sum(exact)
    return None if exact.shape[1] != mechanism.outputs else exact


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 0))
def test_every_release_has_an_interval(mechanism):
    """Finite once something was measured, around its value, wider for higher levels; revised values too."""
    run = Session(mechanism)
    releases = run.push_batch(stream(mechanism)[: steps_of(mechanism)])
    for found in [releases, releases.revised, run.flush()]:
        if found is None:
            continue
        measured = np.broadcast_to((found.scale > 0)[:, np.newaxis], found.values.shape)
        radii = [np.broadcast_to(found.radius(level), found.values.shape) for level in LEVELS]
        for radius, level in zip(radii, LEVELS, strict=True):
            low, high = found.interval(level)
            assert np.isfinite(radius[measured]).all()
            assert np.isposinf(radius[~measured]).all()
            assert ((low <= found.values) & (found.values <= high)).all()
        assert ((radii[0] <= radii[1]) & (radii[1] <= radii[2])).all()
        one = found[len(found) - 1]
        assert np.array_equal(np.broadcast_to(one.radius(0.9), one.values.shape), radii[1][-1])


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 2))
def test_intervals_do_not_depend_on_the_size_of_batches(mechanism):
    """Small batches, which wait until it matters what they tell, and single steps between them: the same intervals."""
    rows = stream(mechanism)[: steps_of(mechanism, 40)]
    with fixed_entropy(3):
        batch = Session(mechanism).push_batch(rows)
    with fixed_entropy(3):
        run = Session(mechanism)
        parts = [run.push_batch(rows[:9]), run.push(rows[9]), run.push(rows[10]), run.push_batch(rows[11:30])]
        parts += [run.push_batch(rows[30:33]), run.push_batch(rows[33:])]
    whole = np.broadcast_to(batch.radius(0.9), batch.values.shape)
    apart = [np.broadcast_to(each.radius(0.9), each.values.shape) for each in parts]
    assert np.allclose(whole, np.vstack(apart), rtol=1e-9, atol=1e-9)


def test_what_is_learnt_is_what_was_released():
    """Whoever changes the values of a batch afterwards does not change what the next intervals are made from."""
    mechanism, found = Sample(tg.WEvent(epsilon="1", w=4)), []
    for changed in (False, True):
        with fixed_entropy(3):
            run = Session(mechanism)
            first = run.push_batch(np.arange(100, 140))
            if changed:
                first.values[:] = 0
            found.append(run.push_batch(np.arange(140, 150)).radius(0.9))
    assert np.array_equal(*found)


def errors_and_radii(mechanism, seed, kind=slow):
    """Of one run under fixed entropy: how far values are off, and what gives their radius by level."""
    rows = kind(mechanism, steps_of(mechanism), seed)
    with fixed_entropy(seed):
        run = Session(mechanism)
        releases = run.push_batch(rows)
    exact = truth_of(mechanism, run, rows)
    for found in [releases, releases.revised]:
        if found is not None and exact is not None:
            off = np.abs(found.values - exact[: len(found)])
            known = np.broadcast_to(np.isfinite(found.radius(0.9)), off.shape)
            yield off[known], partial(radius_of, found, known)


def radius_of(found, known, level):
    """Half the widths of the intervals of releases, of those that are known."""
    return np.broadcast_to(found.radius(level), known.shape)[known]


@pytest.mark.parametrize("kind", [slow, scattered])
@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 3))
def test_intervals_hold_the_truth_of_ordinary_streams(mechanism, kind):
    """6 runs under fixed entropy: the share that holds is at most SLACK below the level, at 50, 90 and 99 %."""
    held, total = np.zeros(len(LEVELS)), 0
    for seed in range(RUNS):
        for off, radius in errors_and_radii(mechanism, seed, kind):
            held += [(off <= radius(level)).sum() for level in LEVELS]
            total += off.size
    assert (held >= (np.array(LEVELS) - SLACK) * total).all(), held / total


def test_intervals_of_half_the_scale_would_be_noticed():
    """The wrong version: where noise says all, half as wide intervals at 90 % hold fewer than 78 % on the whole."""
    held, total = 0, 0
    for mechanism in (example for examples in EXAMPLES.values() for example in examples):
        if mechanism.law is not None and mechanism.uncertainty() is None:
            for off, radius in errors_and_radii(mechanism, seed=7):
                held += int((off <= radius(0.9) / 2).sum())
                total += off.size
    assert held < (0.9 - SLACK) * total
    assert total > 2000


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 4))
def test_intervals_of_measured_values_are_exact(mechanism):
    """α = 1e-9 each, n up to 4,000 values: at least 0.9 of the intervals hold; Uniform's, half as wide, do not."""
    if not isinstance(mechanism.law, Law | SharedLaw):
        return
    level = 1000
    covered, narrow, total = 0, 0, 0
    for _ in range(200):
        steps = steps_of(mechanism)
        releases = Session(mechanism).push_batch(np.full((steps, mechanism.columns), level))
        radius = np.broadcast_to(releases.radius(0.9), releases.values.shape)[releases.fresh]
        off = np.abs(releases.values - level)[releases.fresh]
        covered += int((off <= radius).sum())
        narrow += int((off <= radius / 2).sum())
        total += off.size
        if total >= 4000:
            break
    assert binom.cdf(covered, total, 0.9) > 1e-9
    assert not isinstance(mechanism, Uniform) or binom.cdf(narrow, total, 0.9) < 1e-9


def test_what_moves_between_measurements_is_in_the_interval():
    """A walk: 9 of 10 hold before the next measurement, 97 % of all; those of the noise alone fewer than 6 of 10.

    After 9 of 10 steps a walk has moved by 9/10 of the variance that counts: Φ puts 91.7 % within 1.645·√(10/9), and
    97.4 % on average over all steps. 400 measurements, so a standard error of 0.014 at one age: bounds at more than 3
    of them.
    """
    mechanism = Sample(tg.WEvent(epsilon="20", w=10), noise="laplace")
    rows = 5000 + np.cumsum(np.random.default_rng(3).integers(-9, 10, (4000, 1)), axis=0)
    with fixed_entropy(4):
        releases = Session(mechanism).push_batch(rows)
    off = np.abs(releases.values - rows)
    held = off <= releases.radius(0.9)
    assert 0.87 < held[9::10].mean() < 0.965
    assert 0.96 < held.mean() < 0.985
    noise = mechanism.law.radius(releases.scale, 0.9)[:, np.newaxis]
    assert (off <= noise).mean() < 0.6  # the wrong version


@pytest.mark.parametrize("level", [50, 1000])
def test_what_scatters_around_a_level_is_in_the_interval(level):
    """Poisson counts: 9 of 10 intervals hold at every age; those of a walk that has just begun fewer than 8 of 10.

    400 measurements, each of which 9 errors share, and as many counts of their own: a standard error of at most 0.015, so
    bounds at 2.6 of them and more; entropy is fixed, so nothing of it is chance.
    """
    mechanism = Sample(tg.WEvent(epsilon="20", w=10), noise="laplace")
    rows = np.random.default_rng(3).poisson(level, (4000, 1))
    with fixed_entropy(4):
        releases = Session(mechanism).push_batch(rows)
    off, age = np.abs(releases.values - rows), np.arange(4000)[:, np.newaxis] % 10
    for each in range(1, 10):
        assert 0.86 < (off <= releases.radius(0.9))[age == each].mean() < 0.94
    walks = releases.radius(0.9) * np.sqrt(age / 10)
    assert (off <= walks)[age > 0].mean() < 0.8  # the wrong version


@pytest.mark.parametrize("noise", ["auto", "laplace"])
def test_filtered_values_are_uncertain_where_noise_is_mostly_zero(noise):
    """ε = 20: 9 of 10 intervals of filtered measurements hold; those of radius 0, that of the noise, do not."""
    mechanism = Fast(tg.WEvent(epsilon="20", w=8), noise=noise)
    rows = np.random.default_rng(3).poisson(50, (400, 1))
    with fixed_entropy(4):
        releases = Session(mechanism).push_batch(rows)
    off = np.abs(releases.values - rows)[releases.fresh]
    assert (off <= releases.radius(0.9)[releases.fresh]).mean() > 0.9
    assert (off <= 0).mean() < 0.3  # the wrong version


@pytest.mark.parametrize("confidence", LEVELS)
def test_few_differences_make_wide_intervals(confidence):
    """Student's quantiles: at most 2 % below them, and from three numbers on at most 4 % above; a Gaussian's are not."""
    count = np.arange(1.0, 200.0)
    exact = t.ppf(0.5 + confidence / 2, count)
    ratio = student(confidence, count) / exact
    assert (ratio > 0.98).all()
    assert (ratio[2:] < 1.04).all()
    assert student(confidence, np.zeros(1)) == student(confidence, np.ones(1))
    assert t.ppf(0.5 + confidence / 2, np.inf) < 0.98 * exact[2]  # the wrong version


def test_a_walk_learns_the_pace_of_the_stream():
    """Of measurements with known noise, the pace is what their differences have beyond it; a still stream has none."""
    random = np.random.default_rng(5)
    for pace in (0.0, 9.0):
        walk = Walk(1, Law("laplace", 1.0))
        truth = np.cumsum(random.normal(0, np.sqrt(pace), 3000))[:, np.newaxis]
        values = truth + random.laplace(0, 4.0, truth.shape)
        count = len(values)
        releases = tg.releases.Releases(
            1, values, np.ones(count, dtype=np.int8), None, np.full(count, 4.0), np.zeros(count), 1
        )
        walk.follow(releases)
        found = walk.state[0, 0] / walk.state[1, 0]
        assert found == pytest.approx(pace, abs=5.0)  # 32 of noise variance in each difference


@pytest.mark.parametrize("confidence", [0.3, 0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("counts", [[1], [2], [1, 1, 1], [7, 2], [40], [1, 30]])
def test_the_radius_of_a_spread_is_that_of_any_sum_of_laplace_noise(confidence, counts):
    """From a standard deviation alone: at most 1 % less than the exact radius of the sum; of half of it, less."""
    scales = 3.0 ** np.arange(len(counts))
    deviation = np.sqrt((2 * scales**2 * counts).sum())
    exact = laplace_radius(scales, np.array(counts, dtype=float), confidence)
    assert spread_radius(deviation, confidence) >= 0.99 * exact
    assert spread_radius(deviation / 2, confidence) < exact


def test_a_spread_is_rounded_up_to_the_grid():
    """Sums on a grid: the interval reaches the next of its points, and a scale of 0 has none."""
    radius = SpreadLaw("laplace", 0.5).radius([1.0, 0.0], 0.9)
    assert radius[0] == 2.0
    assert np.isnan(radius[1])


def test_radii_are_worked_out_once():
    """And only when they are asked for."""
    asked = []
    radii = Radii(lambda confidence: asked.append(confidence) or np.ones((3, 1)))
    assert asked == []
    assert radii(0.9) is radii(0.9)
    assert radii.rows(slice(1, 3))(0.9).shape == (2, 1)
    assert asked == [0.9]
    with pytest.raises(tg.errors.InvalidParameter, match="confidence"):
        radii(1.0)


@pytest.mark.parametrize("rounding", [{"rounding": "nearest"}, {"clamp": 100}], ids=["nearest", "clamp"])
@pytest.mark.parametrize(
    "mechanism", [Uniform(tg.Event(epsilon="10")), Uniform(tg.WEvent(epsilon="10", w=2))]
)
def test_intervals_hold_values_that_were_rounded(mechanism, rounding):
    """20,000 values between grid points, α = 1e-9 each; the radius of noise alone, the wrong version, fails at 50 %."""
    mechanism = dataclasses.replace(mechanism, **rounding)
    for value in (0.4, 0.5):
        releases = Session(mechanism).push_batch(np.full((20_000, 1), value))
        for level in LEVELS:
            low, high = releases.interval(level)
            assert ((low <= value) & (value <= high)).sum() >= binom.ppf(1e-9, 20_000, level)
        alone = releases.radius(0.5) - mechanism.rounded_by
        assert (np.abs(releases.values - value) <= alone).sum() < binom.ppf(1e-9, 20_000, 0.5)


@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 5))
def test_every_interval_knows_what_rounding_moves(mechanism):
    """Where values off the grid are taken, by half a grid unit; where they are refused, not at all."""
    if mechanism.statistic != "steps" or isinstance(mechanism, Blocks):  # Blocks: as what it runs
        return
    for changed in (mechanism, dataclasses.replace(mechanism, clamp=1000)):
        run = Session(changed)
        found = run._uncertainty.law if run._uncertainty is not None else changed.law
        if found is not None:
            assert found.rounded == (0 if changed.clamp is None else float(Fraction(changed.grid)) / 2)
