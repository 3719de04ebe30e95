"""Streams that were begun when every step had noise of its own go on with it; new ones share noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.helpers import release, settings

import tidegate as tg
from tidegate.config import Config
from tidegate.config.auto import chosen_earlier
from tidegate.config.queries import one
from tidegate.errors import LedgerMismatch, SnapshotError
from tidegate.mechanisms import Blocks, Mechanism, Tide, Uniform
from tidegate.runtime import as_begun, open_stream
from tidegate.runtime.amend import amend
from tidegate.runtime.errors import StreamChanged
from tidegate.runtime.store import verify_target

LAPLACE = ('name = "Uniform"', 'name = "Uniform"\nnoise = "laplace"')
AUTO = ('name = "Uniform"', 'name = "Uniform"\nnoise = "auto"')
POLICY = tg.WEvent(epsilon="1", w=24)
VERSION_0_1 = "9ac0e1388e41e28ceda8a5f12068b2ba"  # the fingerprint that Uniform(POLICY) had


def test_a_stream_is_as_it_was_begun(tmp_path: Path) -> None:
    """A file that names no noise: Laplace where the ledger has it, shared noise where there is none yet."""
    release(settings(tmp_path, LAPLACE))
    written = (tmp_path / "out.csv").read_bytes()
    config = settings(tmp_path)
    assert config.mechanism.shares_noise
    begun = as_begun(config)
    assert isinstance(begun.mechanism, Uniform)
    assert (begun.mechanism.noise, begun.mechanism.units) == ("laplace", 4)
    release(config)
    assert (tmp_path / "out.csv").read_bytes() == written


def test_a_new_stream_shares_noise(tmp_path: Path) -> None:
    """Nothing was begun: the configuration as it is, and again after its own stream was begun."""
    config = settings(tmp_path)
    assert as_begun(config) is config
    release(config)
    assert as_begun(config) is config
    assert ",fresh,3.236,1" in (tmp_path / "out.csv").read_text()


def test_who_names_the_noise_is_taken_at_their_word(tmp_path: Path) -> None:
    """A stream of Laplace noise does not go on with another law because a file asks for it."""
    release(settings(tmp_path, LAPLACE))
    with pytest.raises(StreamChanged, match="noise"):
        open_stream(settings(tmp_path, AUTO))


@pytest.mark.parametrize(
    "mechanism",
    [Uniform(POLICY), Blocks(Uniform(tg.User(epsilon="1/2", horizon=12)))],
    ids=["plain", "blocks"],
)
def test_runs_in_python_go_on_as_they_were_begun(mechanism: Mechanism, tmp_path: Path) -> None:
    """`tidegate.open` and snapshots of version 0.1: the same arguments go on, others are refused."""
    earlier = mechanism.earlier
    assert earlier is not None
    with tg.open(earlier, tmp_path / "ledger") as run:
        run.push(1)
    with tg.open(mechanism, tmp_path / "ledger") as run:
        assert run.mechanism == earlier
        assert run.push(2).step == 2
        assert run.verify().ok
    first = earlier.start()
    first.push_batch(np.zeros((5, 1), dtype=np.int64))
    again = mechanism.start(state=first.snapshot())
    assert again.mechanism == earlier
    assert again.push_batch(np.zeros((50, 1), dtype=np.int64)).fresh.all()


def test_what_was_named_otherwise_is_refused(tmp_path: Path) -> None:
    """The groups of the cube are no continuation of Laplace noise, nor of the best law."""
    earlier = Uniform(POLICY).earlier
    assert earlier is not None
    assert earlier.fingerprint == VERSION_0_1
    cube = Uniform(POLICY, noise="cube")
    assert cube.earlier is None
    assert earlier.earlier is None
    with pytest.raises(SnapshotError, match="other parameters"):
        cube.start(state=earlier.start().snapshot())
    with tg.open(earlier, tmp_path / "ledger") as run:
        run.push(1)
    with pytest.raises(LedgerMismatch):
        tg.open(cube, tmp_path / "ledger")


def test_what_was_chosen_automatically_stays(tmp_path: Path) -> None:
    """A stream whose mechanism was chosen when nothing shared noise keeps it, also where another would be chosen now."""
    rho = (('epsilon = "1"', 'rho = "1"'), ('name = "Uniform"', 'name = "auto"'))
    chosen = settings(tmp_path, *rho)
    assert isinstance(chosen.mechanism, Tide)
    assert as_begun(chosen) is chosen
    config = replace(chosen, mechanism=chosen_earlier(chosen))  # there was no Tide for ρ
    assert isinstance(config.mechanism, Uniform)
    release(config)
    assert as_begun(config) is config
    assert as_begun(chosen).mechanism.fingerprint == config.mechanism.fingerprint
    other = replace(config, mechanism=Uniform(config.policy, columns=2, clamp=7))  # what a new plan may find
    assert as_begun(other).mechanism.fingerprint == config.mechanism.fingerprint
    assert (
        as_begun(replace(other, mechanism_keys=settings(tmp_path).mechanism_keys)).mechanism
        == other.mechanism
    )


@pytest.mark.parametrize(("method", "bins"), [("tree", 64), ("histogram", 24)])
def test_quantiles_of_version_0_2_say_how_they_go_on(tmp_path: Path, method: str, bins: int) -> None:
    """There "auto" was a tree from 64 bins on, else bins alone; the sentence names the line to write, or to amend."""
    lines = [
        f"2026-03-02T{hour:02d}:{minute},w{minute},{minute}" for hour in range(12) for minute in range(10, 60)
    ]
    (tmp_path / "events.csv").write_text("\n".join(["time,unit,amount", *lines]) + "\n")

    def asked(more: str, count: int) -> Config:
        query = f'aggregate = "quantile"\nquantiles = ["3/4"]\nclip = ["0", "100"]\nbins = {bins}\n{more}'
        return settings(
            tmp_path,
            ('column = "place"\n', 'value = "amount"\n'),
            ('aggregate = "distinct"\ncolumns = ["north", "south"]\n', query),
            ("count = 12", f"count = {count}"),
        )

    release(asked(f'method = "{method}"\n', 6))
    with pytest.raises(StreamChanged, match=f'write method = "{method}" in the query.*`tidegate amend`'):
        open_stream(asked("", 12))
    release(asked(f'method = "{method}"\n', 8))
    amend(one(asked("", 12)))
    release(asked("", 12))
    assert verify_target(tmp_path / "tidegate.ledger").steps == 12
    assert len((tmp_path / "out.from-9.csv").read_text().splitlines()) == 5
