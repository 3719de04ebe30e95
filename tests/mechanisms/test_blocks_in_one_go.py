"""Many blocks of a batch in one go are what pushes give, on every ledger, however batches are cut."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import BudgetExceeded
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import BinaryTree, Blocks, Fast, PeGaSus, RescueDP, Sample, Uniform
from tidegate.mechanisms.plain.blocks_run import repeats
from tidegate.mechanisms.plain.uniform_run import UniformRun
from tidegate.mechanisms.sampled.fast_run import FastRun
from tidegate.mechanisms.sampled.grouping import Grouping
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import User, WEvent
from tidegate.releases import Releases
from tidegate.testing.conformance import same
from tidegate.testing.entropy import CountingEntropy, fixed_entropy, install

INNER = {
    "uniform": lambda w: Uniform(User(epsilon="1/2", horizon=w), columns=2, noise="laplace"),
    "shared": lambda w: Uniform(User(epsilon="1/2", horizon=w), columns=2, noise="auto"),
    "gauss": lambda w: Uniform(User(rho="1/2", horizon=w), grid="0.5"),
    "sample": lambda w: Sample(
        User(epsilon="1", horizon=w), columns=3, grid="0.01", every=max(1, w // 3), noise="laplace"
    ),
    "sample, shared": lambda w: Sample(
        User(epsilon="1", horizon=w), columns=2, grid="0.01", every=max(1, w // 3)
    ),
    "sample once": lambda w: Sample(User(epsilon="1", horizon=w), columns=2),
    "fast": lambda w: Fast(User(epsilon="3", horizon=w), columns=2, grid="0.5", samples=max(1, w // 2)),
    "fast, wide": lambda w: Fast(User(epsilon="8", horizon=w), columns=20, samples=max(1, w // 3)),
    "fast, rounds": lambda w: Fast(User(epsilon="3", horizon=w), columns=2, grid="0.1", rounding="nearest"),
    "fast, printed": lambda w: Fast(
        User(epsilon="4", horizon=w), columns=3, samples=max(1, w // 2), calibration="paper"
    ),
    "rescue": lambda w: RescueDP(User(epsilon="9", horizon=w), columns=3),
    "rescue, groups": lambda w: RescueDP(
        User(epsilon="9", horizon=w), columns=6, grouping=Grouping(small=300.0, similarity=-0.5)
    ),
    "rescue, wide": lambda w: RescueDP(User(epsilon="9", horizon=w), columns=18),
    "rescue, printed": lambda w: RescueDP(User(epsilon="9", horizon=w), columns=3, calibration="paper"),
    "rescue, plain": lambda w: RescueDP(
        User(epsilon="9", horizon=w), adaptive=False, allocation=False, grouping=False, filter=False
    ),
    "pegasus": lambda w: PeGaSus(User(epsilon="9", horizon=w), columns=2),
    "tree": lambda w: BinaryTree(User(epsilon="9", horizon=w), horizon=w),
}
LENGTHS = [1, 2, 3, 24]


def stream(mechanism, steps, seed=3):
    """Counts that move, in values on the grid of the mechanism."""
    generator = np.random.default_rng(seed)
    counts = generator.poisson(40, (steps, mechanism.columns)) * (1 + (np.arange(steps) % 31 > 20))[:, None]
    return counts / mechanism.grid.denominator


def books(ledger):
    """The account of a ledger in memory: everything but its name and the way it took to get there."""
    way = ("rows", "identity", "generations")
    return {name: np.asarray(value).tolist() for name, value in ledger.snapshot().items() if name not in way}


@pytest.mark.parametrize("w", LENGTHS)
@pytest.mark.parametrize("kind", INNER)
def test_a_batch_is_what_pushes_are(kind, w):
    """Releases, snapshot and account of one batch are those of single pushes, for every kind of inner mechanism."""
    mechanism = Blocks(INNER[kind](w))
    rows = stream(mechanism, 3 * w + 10)
    with fixed_entropy(4):
        pushed, batched, cut = (mechanism.start() for _ in range(3))
        single = [pushed.push(row) for row in rows]
        assert same(single, batched.push_batch(rows))
        middle = w + 3
        assert same(single, [*cut.push_batch(rows[:middle]), *cut.push_batch(rows[middle:])])
    if not kind.startswith("sample"):  # whose pushes leave the ledger where it last measured
        assert books(pushed.ledger) == books(batched.ledger)
    assert books(cut.ledger) == books(batched.ledger)
    assert batched._state()["offset"] == cut._state()["offset"]
    assert pushed.ledger.verify().ok == batched.ledger.verify().ok
    assert pushed.ledger.verify().spent == batched.ledger.verify().spent


@pytest.mark.parametrize("kind", INNER)
def test_blocks_in_one_go_are_the_blocks_one_by_one(kind, monkeypatch):
    """With and without the way of many blocks at once, a run ends in the very same snapshot."""
    mechanism = Blocks(INNER[kind](3))
    rows = stream(mechanism, 40)
    ends = []
    for quick in (True, False):
        if not quick:
            monkeypatch.setattr("tidegate.mechanisms.plain.blocks_run.repeats", lambda kind: False)
        with fixed_entropy(4):
            run = mechanism.start()
            run.push(rows[0])
            ends.append((run.push_batch(rows[1:]), run))
    (quickly, one), (slowly, other) = ends
    assert same(quickly, slowly)
    if not mechanism.shares_noise:  # whose snapshots have names, because each may be gone on with only once
        assert np.array_equal(one._state()["inner"], other._state()["inner"])
    assert books(one.ledger) == books(other.ledger)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(set(INNER) - {"shared", "sample, shared"})),
    w=st.sampled_from([1, 2, 3, 7]),
    cuts=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["batch", "push", "restore"])), max_size=6),
)
def test_batches_may_be_cut_and_runs_restored_anywhere(kind, w, cuts):
    """Batches of any size, pushes and restored snapshots in between give the releases of single pushes."""
    mechanism = Blocks(INNER[kind](w))
    rows = stream(mechanism, 40)
    with fixed_entropy(9):
        run = mechanism.start()
        expected = [run.push(row) for row in rows]
        run, found = mechanism.start(), []
        for size, how in cuts:
            left = rows[len(found) :]
            if how == "restore":
                run = mechanism.start(state=run.snapshot())
            elif how == "push":
                found += [run.push(row) for row in left[:2]]
            else:
                found += run.push_batch(left[:size])
        found += run.push_batch(rows[len(found) :])
    assert same(expected, found)


@pytest.mark.parametrize("w", LENGTHS)
@pytest.mark.parametrize("kind", ["uniform", "shared", "sample", "fast", "rescue, groups", "pegasus"])
def test_durable_ledgers_say_the_same(kind, w, tmp_path):
    """A ledger on disk verifies, has spent what one in memory has, and a run goes on from it with its snapshot."""
    mechanism = Blocks(INNER[kind](w))
    rows = stream(mechanism, 2 * w + 30)
    cut = w + 11
    with fixed_entropy(4):
        memory = mechanism.start()
        expected = list(memory.push_batch(rows))
        run = mechanism.start(tmp_path / "ledger")
        found = list(run.push_batch(rows[:cut]))
        state = run.snapshot()
        run.ledger.close()
        run = mechanism.start(tmp_path / "ledger", state)
        found += run.push_batch(rows[cut:])
    assert same(expected, found)
    verdict, other = run.ledger.verify(), memory.ledger.verify()
    assert verdict.ok, verdict.problem
    assert (verdict.spent, verdict.place, verdict.steps) == (other.spent, other.place, other.steps)
    assert run.ledger.spent() == memory.ledger.spent()
    run.ledger.close()


@pytest.mark.parametrize("w", LENGTHS)
@pytest.mark.parametrize("kind", ["uniform", "sample", "fast", "rescue", "tree"])
def test_a_refusal_in_the_middle_of_a_batch_is_that_of_the_block(kind, w):
    """Where somebody has filled a step, a batch is refused as the block with that step is, whatever the data."""
    mechanism = Blocks(INNER[kind](w))
    blocked = 3 * w + 1  # the first step of the fourth block
    refusals = []
    for seed in (3, 4):  # whatever the data
        for whole in (True, False):
            ledger = Ahead(mechanism, blocked)
            counting = CountingEntropy()
            with install(counting):
                run = mechanism.start(ledger)
                rows = stream(mechanism, 5 * w, seed)
                before, drawn = books(ledger), counting.words_drawn
                if not whole:
                    run.push_batch(rows[:w])
                    run.push_batch(rows[w : 2 * w])
                    run.push_batch(rows[2 * w : 3 * w])
                with pytest.raises(BudgetExceeded) as refused:
                    run.push_batch(rows[run.step :])
            refusals.append((str(refused.value), refused.value.step))
            if whole:
                assert (run.step, books(ledger)) == (0, before)
                if run._repeats:
                    assert counting.words_drawn == drawn
            else:
                assert run.step == 3 * w
    assert set(refusals) == {(refusals[0][0], blocked)}


class Ahead(MemoryLedger):
    """A ledger that finds one step full, as if somebody else had charged it when the run comes there."""

    def __init__(self, mechanism, step):
        super().__init__(mechanism.policy, mechanism.units)
        self._full = step

    def charge(self, step, units=0, **more):
        """Charge a step."""
        self._stand(step, units)
        super().charge(step, units, **more)

    def charge_span(self, first, last, units, **more):
        """Charge a span."""
        self._stand(first, units)
        super().charge_span(first, last, units, **more)

    def charge_batch(self, first, units, **more):
        """Charge steps, up to the full one first."""
        units = np.asarray(units)
        ahead = self._full - first
        if 0 <= ahead < len(units) and units[ahead]:
            super().charge_batch(first, units[:ahead], **more)
            self._stand(self._full, int(units[ahead]))
            first, units = self._full, units[ahead:]
        super().charge_batch(first, units, **more)

    def _stand(self, step, units):
        if step == self._full and units:
            MemoryLedger.charge(self, step, int(self.remaining(step) / self.unit))


def test_a_batch_after_a_refusal_goes_on():
    """A batch that was refused as a whole can be pushed block by block up to the refusal, with the same releases."""
    mechanism = Blocks(Fast(User(epsilon="3", horizon=2), columns=2))
    rows = stream(mechanism, 12)
    with fixed_entropy(5):
        expected = list(mechanism.start().push_batch(rows))
        run = mechanism.start(Ahead(mechanism, 7))
        with pytest.raises(BudgetExceeded):
            run.push_batch(rows)
        found = [*run.push_batch(rows[:6])]
        with pytest.raises(BudgetExceeded):
            run.push_batch(rows[6:])
    assert same(expected[:6], found)


def test_undecided_draws_are_decided_in_blocks_too():
    """Where floating point cannot decide a draw, the loop over blocks pauses and goes on in the same block."""

    class Undecided(FixedEntropy):
        """The first word of some draws is 0, which no compiled draw decides."""

        def words(self, stream, step, draws, elements, first, count):
            words = super().words(stream, step, draws, elements, first, count)
            if first == 0 and count:
                words[0][(np.asarray(elements) + step * draws) % 3 == 0] = 0
            return words

        def word(self, stream, step, draw, index):
            rare = index == 0 and (step * self.draws + draw) % 3 == 0
            return 0 if rare else super().word(stream, step, draw, index)

    for kind, columns in (("fast", 2), ("rescue, groups", 6)):
        for w in (1, 3):
            mechanism = Blocks(INNER[kind](w))
            rows = stream(mechanism, 30)
            with install(Undecided(7)) as source:
                source.draws = columns
                run = mechanism.start()
                single = [run.push(row) for row in rows]
                assert same(single, mechanism.start().push_batch(rows))


def test_large_batches_are_handled_in_pieces(monkeypatch):
    """Pieces end where blocks do, whatever their size."""
    mechanism = Blocks(Fast(User(epsilon="3", horizon=5), columns=2, samples=2))
    rows = stream(mechanism, 203)
    with fixed_entropy(5):
        expected = mechanism.start().push_batch(rows)
        for cells in (1, 24, 60):
            monkeypatch.setattr("tidegate.mechanisms.sampled.run.CELLS", cells)
            assert same(expected, mechanism.start().push_batch(rows))


def test_fast_on_blocks_does_them_in_one_go_too():
    """`Fast(blocks=True)` runs on the same blocks, printed calibrations included."""
    for calibration in ("sound", "paper"):
        for w in LENGTHS:
            mechanism = Fast(
                WEvent(epsilon="4", w=w),
                columns=3,
                blocks=True,
                samples=max(1, w // 2),
                calibration=calibration,
            )
            rows = stream(mechanism, 60)
            with fixed_entropy(5):
                run, other = mechanism.start(), mechanism.start()
                single = [run.push(row) for row in rows]
                assert same(single, other.push_batch(rows))
            assert books(run.ledger) == books(other.ledger)


def test_many_blocks_open_one_run(monkeypatch):
    """A batch of many blocks begins the run of the first and of the last one, and charges all in front at once."""
    mechanism = Blocks(Fast(User(epsilon="1", horizon=1)))
    run, began = mechanism.start(), []
    begin = FastRun._begin
    monkeypatch.setattr(FastRun, "_begin", lambda self, state: began.append(1) or begin(self, state))
    run.push_batch(np.zeros((10_000, 1), dtype=np.int64))
    assert len(began) == 1
    assert run.ledger.rows == 2


def test_a_subclass_with_its_own_batches_is_not_repeated():
    """What a subclass changes about batches holds on blocks too: it is then asked block by block."""

    class Loud(UniformRun):
        def _push_batch(self, matrix, first_step):
            plain = super()._push_batch(matrix, first_step)
            return Releases(
                first_step, plain.values * 0 - 1, plain.status, None, plain.scale, plain.units, plain.unit
            )

    @dataclasses.dataclass(frozen=True)
    class LoudUniform(Uniform):
        def start(self, ledger=None, state=None):
            return Loud(self, ledger, state)

    assert (repeats(UniformRun), repeats(FastRun), repeats(Loud)) == (True, True, False)
    releases = Blocks(LoudUniform(User(epsilon="1", horizon=2))).start().push_batch(np.zeros((9, 1)))
    assert (releases.values == -1).all()


def test_blocks_that_spend_too_much_are_refused():
    """A run that charges more than a block may spend is refused before the whole hears of it."""
    mechanism = Blocks(Uniform(User(epsilon="1", horizon=2)))
    run = mechanism.start()
    with pytest.raises(BudgetExceeded):
        run._account.charge_ahead(np.array([1, 1, 1, 2], dtype=np.int64))
    assert run.ledger.step == 0
