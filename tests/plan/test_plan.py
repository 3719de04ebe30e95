"""Plans: made-up streams, predictions that match what happens, recommendations, what may not be read."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import tidegate as tg
from tidegate.composition import zcdp_delta
from tidegate.errors import InvalidParameter
from tidegate.exact import show
from tidegate.mechanisms import Mechanism, Sample, Tide, Uniform, catalogue
from tidegate.plan import Description, Profile, make_plan
from tidegate.plan.predict import Plan, Prediction, choices, predict
from tidegate.plan.remedies import remedies
from tidegate.policy import WEvent
from tidegate.testing.entropy import fixed_entropy


def test_made_up_streams_are_as_described():
    """Level, swing and columns come out; a run is another stream."""
    stream = Description(level=400, columns=4, season=24, daily=0.5, weekly=0, noise=0.01, spread=0)
    with fixed_entropy(1):
        one, two = stream.sample(24 * 28, 0), stream.sample(24 * 28, 1)
    assert one.shape == (672, 4)
    assert one.dtype == np.int64
    assert abs(one.mean() - 400) < 20
    days = one[:, 0].reshape(28, 24).mean(axis=0)
    assert 0.35 < (days.max() - days.min()) / 2 / days.mean() < 0.65
    assert (one >= 0).all()
    assert not np.array_equal(one, two)


def test_a_profile_repeats_whole_seasons():
    """An earlier release that is too short continues with its days in step."""
    profile = Profile(np.arange(50.0)[:, None], season=24)
    rows = profile.sample(100, 0)
    assert rows[48, 0] == rows[0, 0] == 0
    assert profile.sample(20, 1)[0, 0] == 24
    short = Profile(np.arange(12.0)[:, None], season=24)
    assert short.sample(30, 0)[12, 0] == 0


def test_predictions_are_what_happens():
    """The predicted error of Uniform is its closed form, within a few percent."""
    policy = tg.WEvent(epsilon="1", window=24)
    stream = Description(level=5000, season=24)
    with fixed_entropy(2):
        truths = [stream.sample(4000, run) for run in range(2)]
        (prediction,) = predict(Uniform(policy), truths)
    assert prediction.absolute == pytest.approx(Uniform(policy).expected_error(), rel=0.1)
    assert prediction.delay == 0


@pytest.fixture(scope="module")
def slow_stream():
    """A plan for a nearly constant stream at a small ε."""
    with fixed_entropy(3):
        return make_plan(
            tg.WEvent(epsilon="1/20", window=50),
            Description(level=300, noise=0.02, memory=0.99),
            runs=1,
        )


def test_the_same_question_gets_the_same_answer(slow_stream):
    """A plan is a function of policy and description: it can be asked again when a stream restarts."""
    again = make_plan(slow_stream.policy, slow_stream.stream, runs=1)
    assert [p.absolute for p in again.predictions] == [p.absolute for p in slow_stream.predictions]


def test_a_slow_stream_is_not_measured_at_every_step(slow_stream):
    """Where nothing changes, Uniform is far from the best, and the reasons say so."""
    best = slow_stream.best()
    errors = {p.name: p.absolute for p in reversed(slow_stream.predictions)}
    assert best.name != "Uniform"
    assert best.absolute < errors["Uniform"] / 3
    assert any("Uniform would be off by" in reason for reason in slow_stream.reasons())


def test_the_recommendation_can_be_pasted(slow_stream):
    """The section parses and builds the very mechanism."""
    import tomllib

    best = slow_stream.best()
    section = tomllib.loads(best.toml())["mechanism"]
    kind = catalogue()[section.pop("name")]
    assert kind(best.mechanism.policy, columns=1, **section) == best.mechanism


def test_a_volatile_stream_is_measured_at_every_step():
    """At a generous ε and with steep days nothing beats Uniform by more than a tie."""
    with fixed_entropy(4):
        plan = make_plan(
            tg.WEvent(epsilon="10", window=24), Description(level=5000, season=24, daily=0.9), runs=1
        )
    errors = {p.name: p.absolute for p in reversed(plan.predictions) if not p.delay}
    assert errors["Uniform"] <= 1.2 * plan.best().absolute


def test_every_mechanism_that_fits_is_tried():
    """A new file in the catalogue is in the plan without any list to edit; running sums are another statistic."""
    policy = tg.WEvent(epsilon="1", window=12)
    tried = {name for name, kind in catalogue().items() if choices(kind, policy, 3, 12)}
    assert {"Uniform", "Sample", "BudgetAbsorption", "BudgetDistribution", "Fast", "PeGaSus"} <= tried
    assert not tried & {
        "BinaryTree",
        "HybridTree",
        "GradualTree",
        "EndlessSum",
        "Factorization",
        "ClippedSum",
        "ToPS",
    }
    assert all(isinstance(c, Mechanism) for c in choices(Sample, policy, 3, 12))


@pytest.mark.parametrize(
    "options",
    [{"level": -1}, {"level": 1, "daily": 2}, {"level": 1, "memory": 1.0}, {"level": 1, "season": 1}],
)
def test_impossible_descriptions_are_refused(options):
    """Each number has its range."""
    with pytest.raises(InvalidParameter):
        Description(**options)


def test_a_plan_for_a_delta_says_which_rho_implies_it():
    """The largest ρ of three digits that keeps (ε, δ), and its error: a gain for long windows, none without a δ."""
    kinds = {"Uniform": Uniform, "Sample": Sample}
    policy = tg.WEvent(epsilon="1", delta="1e-6", window=240)
    made = make_plan(policy, Description(level=50_000), runs=1, kinds=kinds)
    rho = made.concentrated.mechanism.policy.rho
    assert zcdp_delta(rho, Fraction(1)) <= policy.delta < zcdp_delta(rho * Fraction(101, 100), Fraction(1))
    alone = next(p for p in made.predictions if p.name == "Uniform")
    assert made.concentrated.absolute < alone.absolute
    (sentence,) = [said for said in made.reasons() if said.startswith("ρ = ")]
    assert f'rho = "{show(rho)}"' in sentence or "gains nothing" in sentence
    pure = make_plan(tg.WEvent(epsilon="1", window=240), Description(level=50), runs=1, kinds=kinds)
    assert pure.concentrated is None


def test_an_earlier_release_is_divided_by_its_own_mean() -> None:
    """Not by the mean of its first weeks: of a stream that has grown, these say twice the relative error."""
    values = np.repeat([100.0, 900.0], 4_000)[:, np.newaxis]
    plan = make_plan(WEvent(epsilon="1", window=4), Profile(values), runs=1)
    best = plan.best()
    assert best.relative == pytest.approx(best.absolute / 500)


def test_one_decision() -> None:
    """What a plan recommends is what "auto" takes: Tide, unless another one is clearly better."""
    policy = WEvent(epsilon="1", window=4)
    wrong = {Tide(policy): 1.0, Uniform(policy): 0.95}
    made = sorted((Prediction(kind, off, off, 0.0) for kind, off in wrong.items()), key=lambda p: p.absolute)
    assert Plan(policy, Description(level=50), tuple(made)).best().name == "Tide"
    clearly = [replace(each, absolute=0.8) if each.name == "Uniform" else each for each in made]
    assert Plan(policy, Description(level=50), tuple(clearly)).best().name == "Uniform"


def test_one_step_is_no_steps() -> None:
    """A window of a quarter of four steps is one of 1 step."""
    found = remedies(
        WEvent(epsilon="1", window=4),
        Description(level=5),
        Fraction(3600),
        lambda p, c, _: Uniform(p, columns=c),
    )
    words = [str(remedy) for remedy in found]
    assert any("a window of 1 step:" in each for each in words), words


def test_a_plan_of_running_sums():
    """All counters of the policy, single values only where steps can be such; errors are those of complete sums."""
    kinds = {
        name: catalogue()[name]
        for name in ("Uniform", "Tide", "BinaryTree", "GradualTree", "ClippedSum", "ToPS")
    }
    event = tg.Event(epsilon="1", horizon=300)
    counts = make_plan(event, Description(level=50, columns=2), runs=1, kinds=kinds, sums=True)
    assert {each.name for each in counts.predictions} == {"Uniform", "BinaryTree", "GradualTree"}
    tree = next(each for each in counts.predictions if each.name == "BinaryTree")
    assert tree.absolute == pytest.approx(tree.mechanism.expected_error(1, 300), rel=0.4)
    assert counts.part_of == "the mean sum of 300 steps"
    assert "horizon" not in tree.toml()
    event = replace(event, max_change=100_000)
    values = make_plan(event, Description(level=50), runs=1, kinds=kinds, sums=True)
    assert {each.name for each in values.predictions} == set(kinds) - {"Tide"}
    assert values.best().name in ("ClippedSum", "ToPS")
    windows = make_plan(
        tg.WEvent(epsilon="1", window=8), Description(level=50), runs=1, kinds=kinds, sums=True
    )
    assert {each.name for each in windows.predictions} == {"Uniform", "BinaryTree"}
