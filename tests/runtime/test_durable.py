from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.durable_worker import MECHANISM

import tidegate as tg
from tidegate.errors import InvalidInput, InvalidParameter, LedgerMismatch
from tidegate.mechanisms import Mechanism, OptStream, Uniform, catalogue
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.runtime import StreamChanged
from tidegate.runtime.store import Store, verify_target

WORKER = Path(__file__).with_name("durable_worker.py")
KILLS = 10
PLAIN = Uniform(tg.WEvent(epsilon="1", w=4), columns=2)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where a run keeps itself."""
    return tmp_path / "service.ledger"


@pytest.mark.slow
def test_kill_at_any_moment_loses_nothing(ledger: Path) -> None:
    """SIGKILL, again and again: each step is released once, what was seen stays, and every restart just goes on."""
    seen: dict[int, list[float]] = {}
    for kill in range(KILLS):
        command = [sys.executable, str(WORKER), str(ledger)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            for _ in range(3 + 5 * kill):  # the pipe is emptied more slowly than it is filled
                step, *values = worker.stdout.readline().split()
                assert int(step) not in seen
                seen[int(step)] = [float(value) for value in values]
            worker.kill()
            for line in worker.stdout.read().splitlines(keepends=True):
                if line.endswith("\n"):
                    step, *values = line.split()
                    seen[int(step)] = [float(value) for value in values]
    with tg.open(MECHANISM, ledger) as run:
        kept = run.releases()
        assert kept.steps.tolist() == list(range(1, run.step + 1))
        assert run.position == {"offset": run.step}
        assert run.step <= max(seen) + KILLS  # at most one release a kill was committed and not printed
        for step, values in seen.items():
            assert kept[step - 1].values.tolist() == values
        assert run.verify().ok
    assert verify_target(ledger).ok


@pytest.mark.parametrize("name", [*sorted(catalogue()), "ClippedRecords"])
def test_every_mechanism_goes_on(name: str, ledger: Path) -> None:
    """Closed and opened between pushes, every mechanism goes on, and what it released is read back."""
    mechanism = {**catalogue(), "ClippedRecords": ClippedRecords}[name].examples()[0]
    found = []
    for _ in range(2):
        with tg.open(mechanism, ledger) as run:
            found.append(run.push(np.zeros(mechanism.columns, dtype=np.int64)).values)
            found.extend(run.push_batch(np.zeros((2, mechanism.columns), dtype=np.int64)).values)
    with tg.open(mechanism, ledger) as run:
        assert np.array_equal(run.releases().values, np.array(found), equal_nan=True)
        assert run.releases(since=4).steps.tolist() == [5, 6]
        assert len(run.releases(since=6)) == 0
        assert len(run.releases(final=True)) == 6
        assert run.verify().ok


def test_a_failed_push_leaves_the_run_usable(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused input, and a failure after the noise was drawn, take everything back; the next push goes on."""
    with tg.open(MECHANISM, ledger) as run:
        run.push([1, 2])
        with pytest.raises(InvalidInput):
            run.push([1, 2, 3])
        with monkeypatch.context() as patch:
            patch.setattr(Store, "put", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.push([1, 2])
        assert run.step == 1
        assert run.push([1, 2]).step == 2
        assert run.verify().ok


def test_an_interruption_after_the_commit_is_noticed(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the commit and the return: the release is kept, and its step is not released again."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with tg.open(MECHANISM, ledger) as run:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "committed", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run.push([1, 2])
        assert run.step == 1
        assert len(run.releases()) == 1
        assert run.push([1, 2]).step == 2


def test_revised_steps_are_kept(ledger: Path) -> None:
    """The first values of each step and the final ones are both there, across a restart and to the last word."""
    mechanism = OptStream(tg.WEvent(epsilon="50", w=4), samples=2)
    with tg.open(mechanism, ledger) as run:
        first = [run.push(5).values.item() for _ in range(3)]
    with tg.open(mechanism, ledger) as run:
        period = run.push(5)
        first.append(period.values.item())
        assert period.revised is not None
        first += run.push_batch([[5], [5]]).values.ravel().tolist()
        last = run.finish()
        assert last is not None
        assert run.releases().values.ravel().tolist() == first
        best = [*period.revised.values.ravel(), *last.values.ravel()]
        assert run.releases(final=True).values.ravel().tolist() == best
        assert run.releases(since=4, final=True).values.ravel().tolist() == best[4:]


def test_threads_take_turns(ledger: Path) -> None:
    """Eight threads push and read at once: every step once, and the account is right."""
    seen: list[int] = []

    def work() -> None:
        for _ in range(10):
            step = run.push([3, 4]).step
            assert run.releases(since=step - 1)[0].step == step
            seen.append(step)

    with tg.open(PLAIN, ledger) as run:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(1, 81))
        assert run.verify().ok


def test_pushed_from_an_event_loop(ledger: Path) -> None:
    """Tasks push through threads; one that is cancelled leaves a run that knows what it has released."""

    async def service() -> None:
        released = await asyncio.gather(*(asyncio.to_thread(run.push, [1, 2]) for _ in range(5)))
        assert sorted(release.step for release in released) == [1, 2, 3, 4, 5]
        task = asyncio.create_task(asyncio.to_thread(run.push, [1, 2]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await asyncio.to_thread(run.push, [1, 2])).step in (6, 7)

    with tg.open(PLAIN, ledger) as run:
        asyncio.run(service())  # waits for the thread of the cancelled task as well
        assert run.step in (6, 7)
        assert run.releases().steps.tolist() == list(range(1, run.step + 1))


def test_another_mechanism_is_refused(ledger: Path) -> None:
    """The sentence says what differs from what the ledger was begun with."""
    with tg.open(PLAIN, ledger) as run:
        run.push([1, 2])
    with pytest.raises(StreamChanged, match="columns"):
        tg.open(Uniform(PLAIN.policy, columns=3), ledger)


def test_a_run_that_released_nothing_leaves_no_file(ledger: Path) -> None:
    """Opened and closed: the folder is as it was."""
    with tg.open(PLAIN, ledger):
        pass
    assert list(ledger.parent.iterdir()) == []


def test_intervals_are_read_back(ledger: Path) -> None:
    """Known noise gives every level, a model that which was kept."""
    tide: Mechanism = catalogue()["Tide"].examples()[0]
    with tg.open(PLAIN, ledger) as run:
        pushed = run.push([1, 2])
        for level in (0.9, 0.99):
            assert np.array_equal(run.releases()[0].interval(level), pushed.interval(level))
    with tg.open(tide, ledger.with_name("tide.ledger")) as run:
        pushed = run.push(np.zeros(tide.columns, dtype=np.int64))
        assert np.array_equal(run.releases().interval()[0][0], pushed.interval()[0], equal_nan=True)
        (narrow, wide), usual = (
            (run.releases().radius(level) for level in (0.5, 0.99)),
            run.releases().radius(),
        )
        assert ((narrow < usual) & (usual < wide)).all()


def test_a_push_is_a_commit_of_its_own(ledger: Path) -> None:
    """Inside of a transaction nothing would be on disk when push returns, so it is refused; so is what is no JSON."""
    with tg.open(PLAIN, ledger) as run:
        with run._store.transaction(), pytest.raises(LedgerMismatch, match="commit of its own"):
            run.push([1, 2])
        with pytest.raises(InvalidParameter, match="position"):
            run.push([1, 2], position=object())
        assert run.step == 0
