"""OptStream as printed in one line, with free weights, and with a sampler and a reconstruction of one's own."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import tidegate as tg
from tidegate.bench.measure import published
from tidegate.core.errors import Halted
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Fast, HierarchicalOptStream, OptStream, Sample, Tide, Uniform
from tidegate.mechanisms.optstream import opt_stream
from tidegate.mechanisms.optstream.feature_trees import equal_parts, parts_of_day, whole_period
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.queries import Hierarchy
from tidegate.testing.entropy import zero_noise

W = 12
POLICY = tg.WEvent(epsilon="1", window=W)
WAVE = (500 + 200 * np.sin(np.arange(5 * W) / W * 2 * np.pi)).round().astype(np.int64)[:, np.newaxis]


class Steepest:
    """Two samples more than the ends: where the last final values changed most; in the middle at first."""

    seen: list[object]

    def __init__(self):
        self.seen = []

    def times(self, period, before):
        """The ends, and two others."""
        self.seen.append((period, None if before is None else before.copy()))
        if before is None:
            return [1, 5, 8, W]
        steep = np.argsort(-np.abs(np.diff(before[:, 0]))[: W - 2], kind="stable")[:2] + 2
        return sorted({1, *steep.tolist(), W})

    def describe(self):
        """Its name."""
        return "steepest"


class Held:
    """Each step is the last sample."""

    def curve(self, times, points, length):
        """What numpy finds at or before each step."""
        return points[np.searchsorted(times, np.arange(1, length + 1), side="right")]

    def describe(self):
        """Its name."""
        return {"held": True}


# as printed -----------------------------------------------------------------------------------------------------


def test_as_published_is_section_6():
    """k = 10 by L1 scores, θ = 1000, the parts of a day and the day, a third of the budget each, printed weights."""
    policy = tg.WEvent(epsilon="1", window=48)
    printed = OptStream.as_published(policy, columns=2)
    assert (printed.samples, printed.adaptive, printed.threshold, printed.noise) == (
        10,
        True,
        1000,
        "laplace",
    )
    assert printed.features == (parts_of_day(48), whole_period(48))
    assert printed.split == (1, 1, 1)
    assert (printed.weights, printed.reconstruction, printed.columns) == ("size", "line", 2)
    assert published(OptStream, policy, 2, 1000) == [printed]
    assert OptStream.as_published(policy, threshold=5).threshold == 5
    assert OptStream.as_published(tg.WEvent(epsilon="1", window=6)).samples == 6


def test_one_definition_of_what_is_published():
    """The benchmark asks the mechanism; noise of its own at each step, and FAST on blocks."""
    assert Uniform.as_published(POLICY) == Uniform(POLICY, noise="laplace")
    assert Sample.as_published(POLICY, every=3) == Sample(POLICY, every=3, noise="laplace")
    assert Fast.as_published(POLICY) == Fast(POLICY, noise="laplace", blocks=True)
    assert Tide.as_published(POLICY) == Tide(POLICY)
    for kind in (Uniform, Fast, Tide):
        assert published(kind, POLICY, 1, 100) == [kind.as_published(POLICY, columns=1)]


def test_the_four_steps_of_algorithm_2_stand_in_order_in_one_file():
    """Sample, perturb, reconstruct, optimise."""
    tree = ast.parse(inspect.getsource(opt_stream))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    steps = [name for name in names if name in ("_sample", "_perturb", "_reconstruct", "_optimise")]
    assert steps == ["_sample", "_perturb", "_reconstruct", "_optimise"]


# weights --------------------------------------------------------------------------------------------------------


def test_free_weights_include_the_printed_ones():
    """1/w for a step of the curve and 1/parts for each feature is `size`; the order is that of the features given."""
    features = (whole_period(W), equal_parts(W, 3))
    printed = OptStream(POLICY, samples=4, features=features, weights="size")
    free = OptStream(POLICY, samples=4, features=features, weights=(Fraction(1, W), 1, Fraction(1, 3)))
    assert free.features[0] == equal_parts(W, 3)
    assert free.weights == (Fraction(1, W), Fraction(1, 3), Fraction(1))
    assert replace(free, samples=4) == free
    for length in (W, 5):
        for one, other in zip(
            printed.weights_at((3, 6, 9, 12), W)[1:], free.weights_at((3, 6, 9, 12), W)[1:], strict=True
        ):
            assert np.allclose(one, other), length


def test_a_large_weight_makes_a_sum_exact():
    """Without noise the released day has the sum of the stream, and with weight 0 that of the lines."""
    sums = []
    for weight in (10**9, 0):
        mechanism = OptStream(POLICY, samples=2, features=(whole_period(W),), weights=(1, weight))
        with zero_noise():
            sums.append(Session(mechanism).push_batch(WAVE[:W] ** 2 // 100).final.values.sum())
    lines = OptStream(POLICY, samples=2)
    with zero_noise():
        plain = Session(lines).push_batch(WAVE[:W] ** 2 // 100).final.values.sum()
    assert sums[0] == pytest.approx(float((WAVE[:W] ** 2 // 100).sum()), rel=1e-6)
    assert sums[1] == pytest.approx(plain)
    assert abs(sums[0] - plain) > 100


# a sampler and a reconstruction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["laplace", "auto"])
def test_a_sampler_of_ones_own(noise):
    """It sees final values of the period before, and the samples are where it says; every window holds."""
    sampler, log = Steepest(), MemoryLog()
    mechanism = OptStream(POLICY, samples=4, adaptive=sampler, noise=noise)
    sampler.seen.clear()  # it was tried out
    releases = Session(mechanism, log).push_batch(WAVE)
    final = releases.final.values
    assert [period for period, _ in sampler.seen] == [0, 1, 2, 3, 4]
    assert sampler.seen[0][1] is None
    for period, before in sampler.seen[1:]:
        assert np.array_equal(before, final[(period - 1) * W : period * W])
        wanted = Steepest().times(period, before)
        fresh = np.flatnonzero(releases.fresh[period * W : (period + 1) * W]) + 1
        assert fresh.tolist() == wanted
    assert verify(log.rows()).ok
    assert not mechanism.keeps_raw_values
    assert mechanism.shares[0] == 0


def test_a_session_resumes_with_what_was_planned():
    """Single pushes to reopened logs release what a batch does, and ask no more than once a period."""
    sampler, log = Steepest(), MemoryLog()
    mechanism = OptStream(POLICY, samples=4, adaptive=sampler, noise="laplace")
    sampler.seen.clear()
    with install(FixedEntropy("own")):
        batch = Session(mechanism).push_batch(WAVE)
        asked = len(sampler.seen)
        single = [Session(mechanism, log).push_batch([row]) for row in WAVE]
    assert len(sampler.seen) == 2 * asked
    assert np.array_equal(np.concatenate([each.values for each in single]), batch.values)
    assert np.array_equal(np.concatenate([each.status for each in single]), batch.status)
    assert verify(log.rows()).ok


def test_charges_do_not_depend_on_what_a_sampler_chooses():
    """Those of a period and of its steps are of k samples anywhere, the first and the last step among them."""
    own = OptStream(POLICY, samples=4, adaptive=Steepest(), noise="laplace")
    scores = OptStream(POLICY, samples=4, adaptive=True, noise="laplace", split=("1/1000000", 1, 1))
    assert own.period.most == scores.period.most == 6
    assert own.sample_scale == pytest.approx(6, rel=1e-6)
    assert own.sample_scale < scores.sample_scale


def test_a_period_of_which_steps_were_passed_over_has_no_further_sample():
    """As with adaptive times: what was planned is forgotten until the next period."""
    session = Session(OptStream(POLICY, samples=4, adaptive=Steepest(), noise="laplace"))
    session.push_batch(WAVE[:4])
    torn = session.push_batch(WAVE[5:W], step=6)
    assert not torn.fresh.any()
    assert session.push_batch(WAVE[W : 2 * W]).fresh.sum() == 4


@pytest.mark.parametrize("times", [[1, 5, 12], [1, 5, 8, 11], [2, 5, 8, 12], [1, 8, 5, 12], [1, 5, 8, 13]])
def test_a_wrong_answer_halts_the_stream(times):
    """Other than k positions from 1 to w."""

    class Wrong(Steepest):
        def times(self, period, before):
            return [1, 5, 8, W] if before is None else times

    session = Session(OptStream(POLICY, samples=4, adaptive=Wrong()))
    session.push_batch(WAVE[:W])
    with pytest.raises(Halted):
        session.push_batch(WAVE[W : 2 * W])


@pytest.mark.parametrize(
    "times",
    [
        [1.0, 5.0, 8.0, 12.0],
        np.array([1.0, 5.0, 8.0, 12.0]),
        [1, 5, 12],
        [1, 8, 5, 12],
        [2, 5, 8, 12],
        (),
        4,
        None,
    ],
    ids=range(8),
)
def test_a_sampler_is_tried_out_before_there_is_a_stream(times):
    """What is no list of k whole numbers from 1 to w is refused in one sentence, before noise is drawn."""

    class Wrong(Steepest):
        def times(self, period, before):
            return times

    with pytest.raises(InvalidParameter, match="4 whole numbers from 1 to 12") as refused:
        OptStream(POLICY, samples=4, adaptive=Wrong())
    assert len(str(refused.value).splitlines()) == 1


def early_and_late(period):
    """Late samples in one period and early ones in the next: as many in a window as there can be."""
    return [1, 2, 3, W] if period % 2 else [1, W - 2, W - 1, W]


class Noted(list):
    """A sampler that is empty at first, and so false; later something is noted, and it is true."""

    def times(self, period, before):
        """Late, then early."""
        return early_and_late(period)

    def describe(self):
        """Its name."""
        return "noted"


class Shy:
    """A sampler that must not be asked for its truth value, length or equality, and that says it is a truth value."""

    __class__ = bool
    __hash__ = None

    def __bool__(self):
        raise AssertionError

    def __len__(self):
        raise AssertionError

    def __eq__(self, other):
        raise AssertionError

    def times(self, period, before):
        """Late, then early."""
        return early_and_late(period)

    def describe(self):
        """Its name."""
        return "shy"


@pytest.mark.parametrize("noise", ["laplace", "auto"])
@pytest.mark.parametrize("kind", [Noted, Shy])
def test_the_truth_value_of_a_sampler_decides_nothing(kind, noise):
    """Noise, charges and the log are those of any other sampler: the budget is for 2k − 2 samples in a window."""

    class Plain(Steepest):
        def times(self, period, before):
            return early_and_late(period)

    found = []
    for sampler in (Plain(), kind()):
        mechanism, log = OptStream(POLICY, samples=4, adaptive=sampler, noise=noise), MemoryLog()
        described = mechanism.describe()["adaptive"]
        assert noise == "auto" or mechanism.sample_scale == 6
        if kind is Noted and found:
            sampler.append("noted after the budget was made")
        session = Session(mechanism, log)
        releases = session.push_batch(WAVE)
        assert verify(log.rows()).ok
        fresh = np.flatnonzero(releases.fresh).tolist()
        found.append((mechanism.sample_scale, releases.units.tolist(), session.spent, fresh))
    assert found[0] == found[1]
    assert described == kind().describe()


def test_a_reconstruction_is_what_it_is_and_not_what_it_equals():
    """A text with a curve of its own is a reconstruction of one's own; one without it is refused."""

    class Words(str):
        __slots__ = ()
        curve, describe = Held.curve, Held.describe

    def final(own):
        mechanism = OptStream(POLICY, samples=4, reconstruction=own)
        with zero_noise():
            return Session(mechanism).push_batch(WAVE).final.values, mechanism.describe()["reconstruction"]

    values, described = final(Words("line"))
    assert np.array_equal(values, final(Held())[0])
    assert described == {"held": True}
    with pytest.raises(InvalidParameter, match="curve and describe"):
        OptStream(POLICY, samples=4, reconstruction=np.str_("line"))


@pytest.mark.parametrize("options", [{"adaptive": Steepest()}, {}, {"noise": "laplace"}], ids=range(3))
def test_a_step_that_is_measured_and_not_charged_halts_the_stream(options, monkeypatch):
    """Whatever made the charges nothing: a sample is not released for nothing."""
    nothing = (0, np.zeros(W, dtype=np.int64))
    monkeypatch.setattr(OptStream, "charges", lambda self, times: nothing)
    if not options:  # steps that share noise are charged together
        assert Session(OptStream(POLICY, samples=4)).push_batch(WAVE).fresh.sum() == 20
        return
    with pytest.raises(Halted):
        Session(OptStream(POLICY, samples=4, **options)).push_batch(WAVE)


def test_a_reconstruction_of_ones_own():
    """Final values are its curve; sums of features are fitted to it as to lines."""
    mechanism = OptStream(POLICY, samples=4, reconstruction=Held(), grid="0.5")
    with zero_noise():
        releases = Session(mechanism).push_batch(WAVE)
    final = releases.final.values[:, 0]
    for period in range(5):
        steps = np.arange(period * W, (period + 1) * W)
        last = np.array([step - (step + 1) % 3 for step in steps])  # samples at positions 3, 6, 9 and 12
        expected = np.where(last >= 0, WAVE[np.maximum(last, 0), 0], WAVE[2, 0])
        assert final[steps] == pytest.approx(expected)
    fitted = OptStream(
        POLICY, samples=4, reconstruction=Held(), features=(whole_period(W),), weights=(1, 10**9)
    )
    with zero_noise():
        sums = Session(fitted).push_batch(WAVE).final.values.reshape(5, W).sum(axis=1)
    assert sums == pytest.approx(WAVE[:, 0].reshape(5, W).sum(axis=1), rel=1e-6)


def test_final_values_of_ones_own_reconstruction_have_no_finite_intervals():
    """How far such a curve is off is not known; first values have theirs, and final values of lines, too."""
    for own in (Held(), "line"):
        releases = Session(OptStream(POLICY, samples=4, reconstruction=own)).push_batch(WAVE)
        low, high = releases.revised.interval(0.9)
        assert np.isfinite(releases.interval(0.9)[1][W:]).all()
        if own == "line":
            assert np.isfinite(high - low).all()
        else:
            assert np.isposinf(high).all()
            assert np.isneginf(low).all()


def test_what_is_plugged_in_is_part_of_the_configuration():
    """A log that another sampler began is not continued."""
    one = OptStream(POLICY, samples=4, adaptive=Steepest(), reconstruction=Held()).describe()
    assert (one["adaptive"], one["reconstruction"]) == ("steepest", {"held": True})
    log = MemoryLog()
    Session(OptStream(POLICY, samples=4, adaptive=Steepest()), log).push_batch(WAVE[:3])
    with pytest.raises(Exception, match=r"adaptive|another|began"):
        Session(OptStream(POLICY, samples=4, adaptive=True), log)


@pytest.mark.parametrize(
    "options",
    [
        {"adaptive": "l1"},
        {"adaptive": object()},
        {"reconstruction": object()},
        {"reconstruction": "spline"},
        {"adaptive": Steepest(), "times": (1, 12)},
        {"weights": (1, 1)},
        {"weights": (0,)},
        {"weights": "none"},
        {"weights": (-1,)},
    ],
    ids=range(9),
)
def test_wrong_parameters_are_one_sentence(options):
    """What is plugged in has its methods, and weights are as many as there are features and one."""
    with pytest.raises(InvalidParameter) as refused:
        OptStream(POLICY, **{"samples": 4, **options})
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("options", [{"adaptive": Steepest()}, {"reconstruction": Held()}, {"weights": (1,)}])
def test_hierarchies_have_what_is_built_in(options):
    """Their nodes are solved together."""
    with pytest.raises(InvalidParameter, match="OptStream"):
        HierarchicalOptStream(POLICY, hierarchy=Hierarchy.balanced(2), samples=4, **options)


def test_the_worst_sampler_loses_the_whole_budget_and_no_more():
    """Late samples in one period and early ones in the next: 2k − 2 of them in a window, of 1/(2k − 2) of ε each."""

    class Worst(Steepest):
        def times(self, period, before):
            """All late, then all early."""
            return [1, 2, 3, W] if period % 2 else [1, W - 2, W - 1, W]

    mechanism, log = OptStream(POLICY, samples=4, adaptive=Worst(), noise="laplace"), MemoryLog()
    fresh = Session(mechanism, log).push_batch(WAVE).fresh
    most = max(int(fresh[at : at + W].sum()) for at in range(len(fresh) - W + 1))
    assert most == 6
    assert Fraction(most) / Fraction(mechanism.sample_scale) <= 1
    assert most / (4 / 1) > 1  # with the noise of fixed times, of scale 4
    assert verify(log.rows()).ok
