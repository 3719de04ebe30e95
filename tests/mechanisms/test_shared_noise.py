"""Noise shared by steps at work: the error it has, what it costs, and what becomes of its secret state.

Each of the conditions under which the state is private (docs/proofs/shared_noise.md) has a test here, and a run that
violates it, which the same test must notice.
"""

import contextlib
import json
import sqlite3
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import BudgetExceeded, InvalidParameter, LedgerMismatch
from tidegate.ledger import MemoryLedger, SQLiteLedger
from tidegate.mechanisms import Uniform as Plain
from tidegate.mechanisms.plain.uniform_run import UniformRun
from tidegate.mechanisms.sharing import GroupedNoise
from tidegate.noise import expected_absolute_laplace
from tidegate.noise.entropy import UNBUFFERED
from tidegate.releases import Status
from tidegate.runtime.durable import DurableRun
from tidegate.testing.entropy import FixedEntropy, install

Uniform = partial(Plain, noise="auto")
GROUPS = Uniform(tg.WEvent(epsilon="1", w=12), noise="cube")
SLIDING = Uniform(tg.WEvent(epsilon="1", w=5))
LENGTHS = GROUPS.sharing.choice.lengths
FINGERPRINT = "9ac0e1388e41e28ceda8a5f12068b2ba"  # of Uniform(WEvent(epsilon="1", w=24)) in version 0.1
ZEROS = np.zeros((100, 1), dtype=np.int64)


def kinds(run):
    """The kinds of the rows in a ledger on disk."""
    return [kind for (kind,) in run.ledger.connection.execute("SELECT kind FROM charges ORDER BY row")]


# the choice ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "columns", "law", "most"),
    [
        (8, 1, "semiorder", 0.70),
        (16, 1, "semiorder", 0.64),
        (48, 1, "semiorder", 0.64),
        (120, 1, "cube", 0.60),
        (240, 1, "cube", 0.57),
        (16, 2, "semiorder", 0.83),
        (16, 3, "semiorder", 0.89),
    ],
)
def test_the_error_is_a_part_of_laplace(w, columns, law, most):
    """α = 5 standard errors of many windows: the mean absolute error over wΔ/ε is what is promised, and as expected."""
    mechanism = Uniform(tg.WEvent(epsilon="1/10", w=w), columns=columns)
    assert mechanism.sharing.choice.law == law
    steps = 400 * w
    errors = np.abs(Session(mechanism).push_batch(np.zeros((steps, columns), dtype=np.int64)).values)
    runs = errors[: 400 * w].reshape(400, -1).mean(axis=1)
    laplace, deviation = 10 * w, runs.std() / 20
    assert runs.mean() < most * laplace + 5 * deviation
    assert mechanism.expected_error() < most * laplace
    assert abs(runs.mean() - mechanism.expected_error()) < 6 * deviation
    assert (
        not abs(expected_absolute_laplace(laplace) - runs.mean()) < 6 * deviation
    )  # Laplace noise is noticed


def test_all_steps_of_a_user_share_one_group():
    """User level: half of Laplace's error; a stream that is no longer than its window is one group as well."""
    user = Uniform(tg.User(epsilon="1", horizon=1000))
    assert (user.units, user.sharing.whole_run, user.scale) == (1, True, 1.0)
    assert user.expected_error() == pytest.approx(500.5, rel=0.01)
    short = Uniform(tg.WEvent(epsilon="1", w=48, horizon=10))
    assert (short.units, short.sharing.choice.lengths) == (1, (10,))
    run = Session(short)
    assert run.push_batch(ZEROS[:10]).fresh.all()
    assert run.ledger.verify().spent == 1


def test_units_that_stay_in_their_column_leave_the_others_alone():
    """Fixed units: each column has noise of its own at the full budget; not so where a row may be replaced."""
    apart = Uniform(tg.WEvent(epsilon="1", w=120, mobility="fixed"), columns=3)
    alone = Uniform(tg.WEvent(epsilon="1", w=120))
    assert apart.expected_error() == alone.expected_error()
    assert apart.sharing.copies == 3
    values = Session(apart).push_batch(np.zeros((3000, 3), dtype=np.int64)).values
    assert abs(np.corrcoef(np.abs(values.T))[0, 1]) < 0.2
    both = Uniform(tg.WEvent(epsilon="1", w=120, mobility="fixed", adjacency="replace"), columns=3)
    assert both.sharing.copies == 1


@pytest.mark.parametrize(
    "mechanism",
    [
        Uniform(tg.Event(epsilon="1")),
        Uniform(tg.WEvent(epsilon="1", w=1), columns=4),
        Uniform(tg.WEvent(epsilon="1", w=24), columns=60),
        Uniform(tg.WEvent(epsilon="1", delta="1e-6", w=24)),
        Uniform(tg.WEvent(rho="1", w=24)),
        Uniform(tg.WEvent(epsilon="1", w=2**30)),
        Uniform(tg.User(epsilon="1000", horizon=2), columns=50),
    ],
    ids=str,
)
def test_where_sharing_gains_nothing_noise_is_as_before(mechanism):
    """One step, many columns, a δ, numbers beyond the draws: no shared noise, no secret, the old description."""
    assert mechanism.sharing is None
    assert not any("secret" in clause for clause in mechanism.guarantee.assumptions)
    assert "noise" not in mechanism.describe()
    assert Session(mechanism).push(np.zeros(mechanism.columns, dtype=np.int64)).fresh


def test_laplace_is_what_it_was():
    """noise="laplace" has the units, the scale, the description and the digest of version 0.1."""
    plain = Uniform(tg.WEvent(epsilon="1", w=24), noise="laplace")
    assert plain.fingerprint == FINGERPRINT
    assert plain.describe() == {
        "mechanism": "Uniform",
        "policy": tg.WEvent(epsilon="1", w=24).describe(),
        "columns": 1,
        "grid": "1",
        "rounding": "refuse",
    }
    assert (plain.units, plain.scale) == (24, 24.0)


@pytest.mark.parametrize(
    ("policy", "noise", "words"),
    [
        (tg.WEvent(epsilon="1", w=4), "gumbel", "'auto' or 'laplace'"),
        (tg.WEvent(rho="1", w=4), "cube", "'auto' where delta or rho"),
        (tg.User(epsilon="1", horizon=4), "semiorder", "a law that exists"),
    ],
)
def test_noise_that_does_not_exist_is_refused(policy, noise, words):
    """Each refusal names the parameter and the remedy."""
    with pytest.raises(InvalidParameter, match=words):
        Uniform(policy, noise=noise)


def test_the_guarantee_says_that_the_state_is_secret():
    """Whoever shares noise is told to keep snapshots and the database as secret as the data."""
    assert any("as secret as the data" in clause for clause in GROUPS.guarantee.assumptions)


@pytest.mark.parametrize("mechanism", [GROUPS, SLIDING], ids=["groups", "sliding"])
def test_intervals_know_the_law(mechanism):
    """90 % of 40,000 values are within the law's radius, and its interval, which holds at every step, has no fewer.

    The scale is that of Laplace noise with the same variance.
    """
    releases = Session(mechanism).push_batch(np.zeros((40_000, 1), dtype=np.int64))
    low, high = releases.interval(0.9)
    assert 0.88 < (np.abs(releases.values) <= mechanism.sharing.law.radius(0.9)).mean() < 0.94
    assert 0.88 < ((low <= 0) & (high >= 0)).mean() < 0.98
    assert 2 * releases.scale[0] ** 2 == pytest.approx(releases.values.var(), rel=0.1)
    single = Session(mechanism).push(0)
    assert single.scale == releases.scale[0]
    assert single.radius(0.9) == releases.radius(0.9)[0]


# the seven conditions ----------------------------------------------------------------------------------------------


class Broken(FixedEntropy):
    """Gives nothing at all."""

    def word(self, *address):
        """Fail."""
        raise RuntimeError("the machine is on fire")


class Apart(DurableRun):
    """Charges, states and releases in commits of their own."""

    @contextlib.contextmanager
    def _committing(self):
        self._next = None
        yield self._standing(), self._store.progress


@pytest.mark.parametrize("kind", [DurableRun, Apart])
def test_one_commit_has_everything(kind, tmp_path):
    """1: charge of the group, row, release and state are on disk together; what fails in between leaves none of them."""
    with tg.open(GROUPS, tmp_path / "ledger") as run:
        run.push(1)
        before = (run.step, run._store.ledger.rows, run._store.progress.state)
        run.__class__ = kind
        run._run.source = run._run._noise.source = Broken(1)
        with pytest.raises(RuntimeError):
            run.push(2)
        together = before == (run.step, run._store.ledger.rows, run._store.progress.state)
        assert together == (kind is DurableRun)
        if together:
            assert run.push(2).step == 2
            assert run.verify().ok


class Picky(FixedEntropy):
    """Raises what depends on the noise it would have given."""

    def word(self, stream, step, draw, index):
        """Fail after a few steps."""
        if step > 3:
            raise ValueError("not this one")
        return super().word(stream, step, draw, index)


class Forgiving(UniformRun):
    """Tries again whatever was raised."""

    def _failed(self, error):
        self._unusable = ""


@pytest.mark.parametrize("kind", [UniformRun, Forgiving])
def test_a_draw_that_fails_ends_the_run(kind):
    """2: whatever is raised while noise is drawn, the run is not used again: nobody draws until noise suits them."""
    with install(Picky(3)):
        run = Session(GROUPS)
        run.__class__ = kind
        for _ in range(3):
            run.push(0)
        with pytest.raises(ValueError, match="not this one"):
            run.push(0)
        run.source = run._noise.source = FixedEntropy(4)
        if kind is Forgiving:
            assert run.push(0).fresh  # noise that somebody has chosen
            return
        with pytest.raises(LedgerMismatch, match="interrupted"):
            run.push(0)


def test_a_redraw_starts_from_the_committed_state(tmp_path):
    """3: after a rolled-back step the radius is that of the last commit; a group opened in it gets a new one."""
    with tg.open(GROUPS, tmp_path / "ledger") as run:
        run.push(0)
        radius = run._run._noise.state.radii
        for _ in range(5):
            with contextlib.suppress(RuntimeError), run._store.transaction():
                run._run.push(0)
                raise RuntimeError
            run._run = None
            assert run._standing()._noise.state.radii == radius
        for _ in range(LENGTHS[0] - 1):
            run.push(0)
        assert run._run._noise.state.radii == (0,)
        opened = set()
        for _ in range(5):
            with contextlib.suppress(RuntimeError), run._store.transaction():
                run._run.push(0)
                opened.add(run._run._noise.state.radii)
                raise RuntimeError
            run._run = None
            assert run._standing()._noise.state.remaining == 0
        assert len(opened) > 1


class Deaf(UniformRun):
    """Goes on in memory as if nothing had been rolled back."""

    def taken_back(self):
        """Do not listen."""


@pytest.mark.parametrize("kind", [UniformRun, Deaf])
def test_a_group_that_was_rolled_back_is_paid_again(kind):
    """3: who does not go back has a group open that nobody has paid for."""
    run = Session(GROUPS)
    run.__class__ = kind
    with contextlib.suppress(RuntimeError), run.ledger.transaction(unseen=True):
        run.push(0)
        raise RuntimeError
    assert run.ledger.spent() == 0
    if kind is Deaf:
        assert run.push(0).fresh
        assert run.ledger.spent() == 0  # a value that was free
        return
    with pytest.raises(LedgerMismatch, match="taken back"):
        run.push(0)


class Unrecorded(GroupedNoise):
    """Writes no row where a group has paid already: a stale snapshot goes unnoticed."""

    def _pay(self, step):
        return 0 if self.state.remaining else super()._pay(step)


@pytest.mark.parametrize("mechanism", [GROUPS, SLIDING, replace(GROUPS, columns=2)], ids=str)
def test_every_step_has_a_row_before_it_is_drawn(mechanism, tmp_path):
    """4: at cost 0 as well; so a snapshot from before it is refused."""
    run = mechanism.start(ledger=tmp_path / "ledger")
    row = np.zeros(mechanism.columns, dtype=np.int64)
    for _ in range(3):
        state, rows = run.snapshot(), run.ledger.rows
        run.push(row)
        assert run.ledger.rows > rows
        with pytest.raises(LedgerMismatch):
            mechanism.start(ledger=run.ledger, state=state)
    state, rows = run.snapshot(), run.ledger.rows
    run.push_batch(np.zeros((2, mechanism.columns), dtype=np.int64))
    assert run.ledger.rows > rows
    with pytest.raises(LedgerMismatch):
        mechanism.start(ledger=run.ledger, state=state)
    run.ledger.close()


def test_a_step_without_a_row_is_noticed(tmp_path, monkeypatch):
    """4, violated: without rows at cost 0 an old snapshot goes on, and one radius has more values than its group."""
    monkeypatch.setattr(UniformRun, "_hand_out", lambda run: None)  # which leaves one behind in any case
    run = GROUPS.start(ledger=tmp_path / "ledger")
    run._noise.__class__ = Unrecorded
    run.push(0)
    state, rows = run.snapshot(), run.ledger.rows
    run.push(0)
    assert run.ledger.rows == rows
    GROUPS.start(ledger=run.ledger, state=state)  # which the test above refuses
    run.ledger.close()


@pytest.mark.parametrize(
    ("mechanism", "silent"), [(GROUPS, LENGTHS[0] - 2), (SLIDING, 4)], ids=["groups", "sliding"]
)
def test_a_run_without_its_snapshot_is_silent_until_it_shares_nothing(mechanism, silent, tmp_path):
    """5: begun on a used ledger, the cube is silent to the planned end of the open group, the semiorder w − 1 steps."""
    path = tmp_path / "ledger"
    run = mechanism.start(ledger=path)
    run.push(3)
    run.push(4)
    run.ledger.close()
    again = mechanism.start(ledger=path)
    first = [again.push(0) for _ in range(30)]
    patient = [release.status for release in first[:silent]]
    if mechanism is SLIDING:
        assert patient == [Status.APPROXIMATED] * silent
        assert first[silent].fresh
    assert sum(release.fresh for release in first) > 20
    assert again.ledger.verify().spent <= 1
    again.ledger.close()


def test_groups_at_once_would_be_one_too_many():
    """5, violated: a group that opens inside of an old one, or right after w − 1 steps less, is refused by the ledger."""
    ledger = MemoryLedger(GROUPS.policy, GROUPS.units)
    GROUPS.start(ledger=ledger).push_batch(ZEROS[:20])
    with pytest.raises(BudgetExceeded):
        ledger.charge_group(21, 21, 1)
    sliding = Session(SLIDING)
    sliding.push_batch(ZEROS[:7])
    with pytest.raises(BudgetExceeded):
        sliding.ledger.charge_group(11, 11, 1)
    sliding.ledger.charge_group(12, 12, 1)


@pytest.mark.parametrize("mechanism", [GROUPS, SLIDING], ids=["groups", "sliding"])
def test_a_snapshot_in_memory_drops_what_it_shares(mechanism):
    """5: restored twice it would use one state twice, so it uses it never; what is repeated is a release."""
    run = Session(mechanism)
    last = run.push_batch(ZEROS[:1])[0]
    state = run.snapshot()
    left = LENGTHS[0] - 1 if mechanism is GROUPS else 4
    for _ in range(2):
        restored = mechanism.start(state=state)
        found = [restored.push(10**9) for _ in range(left)]
        assert {release.status for release in found} == {Status.APPROXIMATED}
        assert {release.values.item() for release in found} == {last.values.item()}
        assert restored._noise.state.numbers()[1:] == [0, 0] if mechanism is GROUPS else True
        fresh = [restored.push(0) for _ in range(3 * mechanism.policy.w)]
        assert fresh[-1].fresh


def test_a_user_refuses_for_good(tmp_path):
    """5: user level: all steps share one radius, so a snapshot in memory cannot go on, and a lost one neither."""
    mechanism = Uniform(tg.User(epsilon="1", horizon=50))
    run = Session(mechanism)
    assert mechanism.start(state=run.snapshot()).step == 0  # nothing is shared yet
    run.push(1)
    with pytest.raises(LedgerMismatch, match='noise="laplace"'):
        mechanism.start(state=run.snapshot())
    lost = mechanism.start(ledger=run.ledger)
    for _ in range(3):
        with pytest.raises(BudgetExceeded):
            lost.push(1)
    durable = mechanism.start(ledger=tmp_path / "ledger")
    durable.push(1)
    state = durable.snapshot()
    durable.ledger.close()
    again = mechanism.start(ledger=tmp_path / "ledger", state=state)
    assert again.push_batch(ZEROS[:49]).fresh.all()
    assert again.ledger.verify().spent == 1
    again.ledger.close()


def test_two_runs_from_one_snapshot_do_not_both_go_on(tmp_path):
    """5, 6: on one ledger the last one that was started goes on, the others end before they have drawn anything."""
    run = GROUPS.start(ledger=tmp_path / "ledger")
    run.push(0)
    state = run.snapshot()
    first, second = (GROUPS.start(ledger=run.ledger, state=state) for _ in range(2))
    for overtaken in (run, first):
        with pytest.raises(LedgerMismatch, match="another run goes on"):
            overtaken.push(0)
    assert second.push(0).fresh
    run.ledger.close()


def values_by_radius(run, steps):
    """How many values each radius gave, group by group."""
    counts = []
    for _ in range(steps):
        opens = not run._noise.state.remaining
        run.push(0)
        if opens:
            counts.append(0)
        counts[-1] += 1
    return counts


def test_a_radius_has_at_most_its_groups_values():
    """6: as many as the group has steps, and the pattern goes on; also over restores on a ledger on disk."""
    run = Session(GROUPS)
    counts = values_by_radius(run, 60)
    expected = [LENGTHS[i % len(LENGTHS)] for i in range(len(counts))]
    assert counts[:-1] == expected[:-1]

    class Longer(GroupedNoise):
        """6, violated: a group of one more step than it has paid for."""

        def draw_one(self, number):
            found = super().draw_one(number)
            if self.state.remaining == 0 and not self.longer:
                self.longer, self.state = True, replace(self.state, remaining=1)
            return found

    long = Session(GROUPS)
    long._noise.__class__, long._noise.longer = Longer, False
    assert values_by_radius(long, 60)[0] == LENGTHS[0] + 1


def test_a_sign_is_drawn_once():
    """6: steps that are placed ahead have arrival and sign; drawn anew, a sign would tell the raw value of a step."""
    law = Uniform(tg.WEvent(epsilon="1/1000", w=5)).sharing.law
    redrawn = 0
    for seed in range(30):
        _, state = law.draw(FixedEntropy(seed), "first", 0, Session(law), 7)
        numbers = state.numbers()
        if not numbers["tracks"][0]["ahead"][0]:
            continue  # the next step is not placed yet
        found = {
            law.draw(FixedEntropy(other), "again", 7, law.restore(numbers))[0].item() for other in range(8)
        }
        assert len(found) == 1
        for gap, word in enumerate(numbers["tracks"][0]["gaps"][0]):
            numbers["tracks"][0]["gaps"][0][gap] = word ^ 1  # violated: the same arrival with another sign
        other = law.draw(FixedEntropy(0), "again", 7, law.restore(numbers))[0].item()
        assert found == {-other}
        redrawn += 1
    assert redrawn > 5


@pytest.mark.parametrize(
    "mechanism", [GROUPS, Uniform(tg.WEvent(epsilon="1/1000", w=12))], ids=["groups", "sliding"]
)
def test_old_secrets_leave_the_database(mechanism, tmp_path):
    """7: after the run is closed no state but the last is in the file, and no log is left beside it."""
    path = tmp_path / "ledger"
    states = []
    with tg.open(mechanism, path) as run:
        assert run._store.ledger.connection.execute("PRAGMA secure_delete").fetchone()[0] == 1
        for _ in range(12):
            run.push(0)
            states.append(run._store.progress.state)
    content = path.read_bytes()
    assert states[-1][-200:] in content
    assert not any(state[-200:] in content for state in states[:-1])
    assert not path.with_name("ledger-wal").exists()


def test_a_log_that_grows_is_cut(tmp_path):
    """7: while a run goes on, states of long ago are not in the log either."""
    path = tmp_path / "ledger"
    with tg.open(GROUPS, path) as run:
        run.push(0)
        old = run._store.progress.state[-200:]
        for _ in range(300):
            run.push(0)
        log = path.with_name("ledger-wal").read_bytes()
        assert old not in path.read_bytes()
        assert old not in log


def test_without_secure_deletion_old_secrets_stay(tmp_path):
    """7, violated: where pages are freed without being overwritten, an old state can be read from the file."""
    path = tmp_path / "plain"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA secure_delete=OFF")
    database.execute("CREATE TABLE state (content)")
    secret = b"radius" * 2000
    database.execute("INSERT INTO state VALUES (?)", (secret,))
    database.execute("UPDATE state SET content = ''")
    database.close()
    assert b"radius" * 100 in path.read_bytes()


@pytest.mark.parametrize("w", [2, 8, 24])
def test_single_pushes_draw_ahead_and_nobody_notices(w):
    """Values, and the state whenever it is asked for, are those of batches; unbuffered entropy draws nothing ahead."""
    mechanism = Uniform(tg.WEvent(epsilon="1/10", w=w))
    assert mechanism.sharing.choice.law == "semiorder"
    ahead = 0
    for asked in (1, 7, 50):
        with install(FixedEntropy(asked)):
            run, other = Session(mechanism), Session(mechanism)
            for step in range(1, 101):
                value = run.push(3).values.item()
                ahead = max(ahead, len(run._noise._drawn) - run._noise._used)
                assert value == other.push_batch([[3]]).values.item()
                if step % asked == 0:
                    assert run._noise.state.numbers() == other._noise.state.numbers()
    assert ahead == (w - 1 if w >= 8 else 0)
    with install(UNBUFFERED):
        run = Session(mechanism)
        for _ in range(60):
            run.push(3)
            assert not run._noise._drawn


# what it costs -------------------------------------------------------------------------------------------------


def test_windows_meet_the_budget_and_no_more(tmp_path):
    """Every window of the cube meets as many groups as there are units, one of the semiorder the one group."""
    for mechanism in (GROUPS, SLIDING):
        run = Session(mechanism)
        run.push_batch(ZEROS)
        assert run.ledger.verify().spent == 1
    with SQLiteLedger(tmp_path / "ledger", GROUPS.policy, GROUPS.units) as ledger:
        run = GROUPS.start(ledger=ledger)
        run.push(0)
        run.push_batch(ZEROS[:20])
        assert set(kinds(run)) == {"span", "step", "groups"}
        assert ledger.verify().ok
    assert json.dumps(GROUPS.describe())


def test_batches_on_a_crowded_ledger_are_all_or_nothing():
    """A batch that is refused in the middle, after silent steps, leaves run and ledger as they were."""
    ledger = MemoryLedger(GROUPS.policy, GROUPS.units)
    ledger.charge(1, GROUPS.units)
    run = GROUPS.start(ledger=ledger)
    releases = run.push_batch(ZEROS[:14])
    assert releases.fresh.tolist() == [False] * 11 + [True] * 3
    other = GROUPS.start(ledger=ledger)
    ledger.charge_group(other.step + 1, 10**6, int(ledger.remaining() / ledger.unit))
    before = (other.step, ledger.step, ledger.spent(), other._noise.state)
    with pytest.raises(BudgetExceeded):
        other.push_batch(ZEROS)
    assert (other.step, ledger.step, ledger.spent(), other._noise.state) == before


def test_a_run_that_may_go_on_is_never_forgotten(tmp_path):
    """However many others have been on its ledger since, a copy of its state ends it."""
    mechanism = Uniform(tg.WEvent(epsilon="1", w=40))
    first = mechanism.start(tmp_path / "s.ledger")
    first.push(0)
    state = first.snapshot()
    others = [mechanism.start(first.ledger) for _ in range(70)]
    for other in others:
        other.snapshot()
    mechanism.start(first.ledger, state=state)
    with pytest.raises(LedgerMismatch):
        first.push(0)
