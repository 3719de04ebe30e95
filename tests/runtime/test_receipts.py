"""Every sink remembers the ledger it was written from: a lost or older ledger gives no second budget in silence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.runtime.helpers import open_one, release, settings, verified, write_events

from tidegate.cli import main
from tidegate.config import Config
from tidegate.errors import InvalidParameter
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline.receipts import LogIsOlder, Origin, cost, parsed
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import AnotherStream, SinkError
from tidegate.sinks.text import TextFileSink
from tiers import slow

FILES = ["out.csv", "out.jsonl", "out.parquet", "parts/"]
SINKS = [*FILES, "-", *slow("broker")]
Request = pytest.FixtureRequest


@pytest.fixture(params=SINKS)
def sink(request: Request, tmp_path: Path) -> str:
    """The location of each kind of sink."""
    name: str = request.param
    if name == "broker":
        broker = request.getfixturevalue("broker")
        broker.start()
        return f"{broker.url}/released"
    return name if name == "-" else f"{tmp_path}/{name}"


@pytest.fixture(params=["SQLite", *slow("PostgreSQL")])
def ledger(request: Request, tmp_path: Path) -> tuple[str, str]:
    """The places of two ledgers in each kind of store."""
    if request.param == "SQLite":
        return f"{tmp_path}/one.ledger", f"{tmp_path}/one/two.ledger"
    postgres = request.getfixturevalue("postgres")
    return postgres.new_stream(), postgres.new_stream()


def stream_of(folder: Path, sink: str, ledger: str, steps: int = 12) -> Config:
    """A configuration with a sink and a ledger, both with their receipts where they would be."""
    write_events(folder)
    more = f'window = 4\nledger = "{ledger}"'
    receipt = f'location = "{sink}"\nreceipt = "{folder}/receipt"' if sink == "-" or "://" in sink else ""
    location = f'location = "{folder}/out.csv"'
    return settings(
        folder,
        ("window = 4", more),
        ("count = 12", f"count = {steps}"),
        (location, receipt or f'location = "{sink}"'),
    )


def published(folder: Path) -> dict[str, bytes]:
    """All outputs, byte for byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".csv", ".jsonl", ".parquet") and path.name != "events.csv"
    }


def test_a_lost_ledger_gives_no_second_budget(tmp_path: Path, sink: str, ledger: tuple[str, str]) -> None:
    """Refused with what both cost together; nothing is charged and no byte changes; --new-stream keeps both."""
    (tmp_path / "one").mkdir()
    release(stream_of(tmp_path, sink, ledger[0]))
    before = published(tmp_path)
    again = stream_of(tmp_path, sink, ledger[1])
    for _ in range(2):  # a second attempt does not help either
        with pytest.raises(AnotherStream, match=r"ε = 2 for any 4 consecutive steps.*--new-stream"):
            release(again)
    assert "://" in ledger[1] or not Path(ledger[1]).exists()
    assert published(tmp_path) == before
    stream = release(again, new_stream=True)
    assert stream.together == "both together cost ε = 2 for any 4 consecutive steps"
    now = published(tmp_path)
    assert sorted(before.values()) == sorted(content for name, content in now.items() if "earlier-1" in name)
    assert len(now) == 2 * len(before)
    stream = release(again)  # continues, and does not forget
    assert stream.together
    assert published(tmp_path) == now
    with pytest.raises(InvalidParameter, match="new-stream"):
        release(again, new_stream=True)
    with pytest.raises(AnotherStream):  # the earlier ledger comes back, and may not mix with the new one
        release(stream_of(tmp_path, sink, ledger[0]))
    assert published(tmp_path) == now


def test_an_older_copy_of_the_ledger_is_refused(tmp_path: Path, sink: str) -> None:
    """The sink knows the row from which it was written; the newest copy continues."""
    place = tmp_path / "one.ledger"
    release(stream_of(tmp_path, sink, str(place), steps=6))
    shutil.copy(place, tmp_path / "old")
    config = stream_of(tmp_path, sink, str(place), steps=9)
    release(config)
    before = published(tmp_path)
    shutil.copy(place, tmp_path / "new")
    shutil.copy(tmp_path / "old", place)
    for more in ({}, {"new_stream": True}):
        with pytest.raises(LogIsOlder, match=r"up to step 9.*newest copy"):
            release(config, **more)
    assert published(tmp_path) == before
    assert verified(place).step == 6
    shutil.copy(tmp_path / "new", place)
    assert release(stream_of(tmp_path, sink, str(place), steps=12)).step == 12


@pytest.mark.parametrize("name", FILES)
def test_an_older_copy_with_its_own_receipt_is_no_reason_to_move_the_output(
    tmp_path: Path, name: str
) -> None:
    """Without the output nothing would tell that steps were released already: the sentence asks for the ledger first."""
    place, output = tmp_path / "one.ledger", f"{tmp_path}/{name}"
    release(stream_of(tmp_path, output, str(place), steps=6))
    receipt = next(tmp_path.glob("*.receipt"))
    shutil.copy(place, tmp_path / "old")
    shutil.copy(receipt, tmp_path / "old receipt")
    config = stream_of(tmp_path, output, str(place), steps=9)
    release(config)
    before = published(tmp_path)
    shutil.copy(tmp_path / "old", place)
    shutil.copy(tmp_path / "old receipt", receipt)
    with pytest.raises(SinkError, match=r"(restore the newest|put back the) ledger") as refused:
        release(config)
    assert "older copy" in str(refused.value)
    assert "move" not in str(refused.value).split("ledger")[0]
    assert published(tmp_path) == before
    assert verified(place).step == 6


@pytest.mark.parametrize("name", FILES)
def test_outputs_without_a_receipt_are_not_overwritten(tmp_path: Path, name: str) -> None:
    """Those of earlier versions, or whose receipt is gone: a new ledger is refused, the old one continues."""
    config = stream_of(tmp_path, f"{tmp_path}/{name}", f"{tmp_path}/one.ledger")
    release(config)
    before = published(tmp_path)
    receipt = next(tmp_path.glob("*.receipt"))
    receipt.unlink()
    release(config)
    assert receipt.exists()  # from now on it is known
    receipt.unlink()
    again = stream_of(tmp_path, f"{tmp_path}/{name}", f"{tmp_path}/two.ledger")
    with pytest.raises(SinkError, match=r"something else.*--new-stream"):
        release(again)
    assert published(tmp_path) == before
    assert not (tmp_path / "two.ledger").exists()
    release(again, new_stream=True)
    assert set(before.values()) < set(published(tmp_path).values())


def test_two_streams_in_one_place_are_refused(tmp_path: Path, sink: str) -> None:
    """Another query, another ledger, the same location: the second stream must find a place of its own."""
    first = stream_of(tmp_path, sink, f"{tmp_path}/one.ledger")
    release(first)
    before = published(tmp_path)
    text = (tmp_path / "tidegate.toml").read_text()
    from tidegate.config import parse_config

    text = text.replace('"distinct"', '"count"').replace("one.ledger", "two.ledger")
    with pytest.raises(AnotherStream, match=r"another location in \[sink\]"):
        release(parse_config(text, tmp_path / "tidegate.toml"))
    assert published(tmp_path) == before


def test_ids_tell_streams_apart(tmp_path: Path) -> None:
    """A reader that drops what it has seen must not take a release of the second stream for one of the first."""
    config = stream_of(tmp_path, f"{tmp_path}/out.jsonl", f"{tmp_path}/one.ledger")
    release(config)
    release(stream_of(tmp_path, f"{tmp_path}/out.jsonl", f"{tmp_path}/two.ledger"), new_stream=True)
    texts = [(tmp_path / name).read_text().splitlines() for name in ("out.jsonl", "out.earlier-1.jsonl")]
    ids = [{json.loads(line)["id"] for line in lines} for lines in texts]
    assert [len(found) for found in ids] == [12, 12]
    assert not ids[0] & ids[1]


def test_the_receipt_is_there_before_anything_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a sink takes releases, the file already names a commit of the log that includes them."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 2)
    place, seen, write = tmp_path / "out.csv.receipt", [], TextFileSink.write

    def look(self: TextFileSink, chunk: Chunk) -> None:
        found = parsed(place.read_bytes())
        assert found is not None
        assert found.written.step >= chunk.step.max()
        seen.append(chunk.last)
        write(self, chunk)

    monkeypatch.setattr(TextFileSink, "write", look)
    config = settings(tmp_path)
    with open_one(config):
        assert not place.exists()  # nothing has left
    release(config)
    assert seen == [2, 4, 6, 8, 10, 12]


def test_a_damaged_receipt_is_named(tmp_path: Path) -> None:
    """One half-written place is mended by the other; anything more is refused; a link is not followed."""
    config = settings(tmp_path)
    release(config)
    receipt = tmp_path / "out.csv.receipt"
    whole = receipt.read_bytes()
    for at in (0, 256):
        receipt.write_bytes(whole[:at] + b"x" * 100 + whole[at + 100 :])
        release(config)
        receipt.write_bytes(whole)
    for damaged in (
        b"",
        b"x" * 512 + whole[512:],
        whole[:512],
        whole.replace(b'"receipt": 2', b'"receipt": 3'),
    ):
        receipt.write_bytes(damaged)
        with pytest.raises(SinkError, match=r"out\.csv\.receipt is not a receipt, or is damaged"):
            release(config)
    receipt.unlink()
    (tmp_path / "elsewhere").write_bytes(whole)
    receipt.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match="receipt"):
        release(config)
    assert (tmp_path / "elsewhere").read_bytes() == whole


def test_a_stream_that_never_released_needs_no_word(tmp_path: Path) -> None:
    """A ledger from which nothing has left costs nothing."""
    config = settings(tmp_path)
    open_one(config).close()
    assert not Path(config.ledger).exists()
    release(config)
    assert release(config).together == ""


def test_the_command_says_what_both_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and exit code 2; with the flag, a line and a row of the summary."""
    settings(tmp_path)
    toml = str(tmp_path / "tidegate.toml")
    assert main(["release", toml]) == 0
    (tmp_path / "tidegate.ledger").unlink()
    capsys.readouterr()
    assert main(["release", toml]) == 2
    refused = capsys.readouterr().err
    assert refused.count("\n") == 1
    assert "both together cost ε = 2 for any 4 consecutive steps" in refused
    assert main(["release", toml, "--new-stream"]) == 0
    shown = capsys.readouterr()
    assert "a new stream begins: both together cost ε = 2" in shown.err
    assert "not the first stream" in shown.out
    assert main(["release", toml]) == 0


def test_costs_of_other_budgets() -> None:
    """ρ adds to ρ, δ to δ; what cannot be added is listed; other queries have no window in common."""
    pure, rho = Origin("a", "f", "ε", "1/2", "0", None), Origin("b", "f", "ρ", "1/8", "0", None)
    loose = Origin("c", "f", "ε", "1", "1/1000000", None)
    assert cost([rho, rho]) == "both together cost ρ = 0.25 for all steps together"
    assert cost([pure, loose]).startswith("both together cost ε = 1.5 and δ = 0.000001 ")
    assert cost([pure, rho]).startswith("both together cost ε = 0.5 and ρ = 0.125 ")
    other = Origin("d", "g", "ε", "1", "0", 4)
    assert cost([pure, pure, other]) == "all 3 together cost ε = 2 where they tell of the same people"
