"""clip = "learn" in a file: sums, means and running sums, several queries, explanations, restarts and refusals."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline import streams

from tidegate.cli import main
from tidegate.cli.plan import read_settings
from tidegate.config import parse_queries, read_queries
from tidegate.config.errors import ConfigError
from tidegate.core.verify import verify
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.logs import rows_of
from tidegate.report.card import card
from tidegate.report.explanation import explain
from tidegate.report.learnt import learnt_clip, read_clips
from tidegate.sinks.chunks import Chunk
from tidegate.testing import fixed_entropy

HEAD = """[source]
location = "receipts.csv"
time = "time"
unit = "customer"
value = "amount"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = 60
[sink]
location = "released.csv"
[protect]
epsilon = "4"
window = 2
"""
LEARN = 'clip = "learn"\nlearn = 20\nbound = 5000\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A shop whose receipts are about 40, and hardly ever 1,000."""
    random = np.random.default_rng(7)
    minutes = np.sort(random.integers(0, 3600, 12_000))
    amounts = np.minimum(random.gamma(2, 20, 12_000), 5000).round().astype(int)
    customers = random.integers(0, 10_000, 12_000)
    lines = [
        f"2026-03-{2 + minute // 1440:02d}T{minute % 1440 // 60:02d}:{minute % 60:02d}:00,c{customer},{amount}"
        for minute, customer, amount in zip(
            minutes.tolist(), customers.tolist(), amounts.tolist(), strict=True
        )
    ]
    (tmp_path / "receipts.csv").write_text("time,customer,amount\n" + "\n".join(lines) + "\n")
    return tmp_path


def released(folder: Path, text: str) -> list[dict[str, str]]:
    """Release a file with one query; the rows of its output."""
    streams.release(parse_queries(text, folder / "tidegate.toml"))
    with (folder / "released.csv").open() as file:
        return list(csv.DictReader(file))


def true_sums(folder: Path) -> np.ndarray:
    """What was sold in each hour."""
    found = np.zeros(60)
    with (folder / "receipts.csv").open() as file:
        for row in csv.DictReader(file):
            found[(int(row["time"][8:10]) - 2) * 24 + int(row["time"][11:13])] += int(row["amount"])
    return found


def test_sums_of_steps(folder: Path) -> None:
    """Silent first steps, then sums with the noise of the threshold and not of the bound; all says what was learnt."""
    text = f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "Uniform"\n'
    rows = released(folder, text)
    assert [row["status"] for row in rows[:21]] == ["silent"] * 21
    values = np.array([float(row["all"]) for row in rows[21:]])
    off = np.abs(values - true_sums(folder)[21:]).mean()
    assert off < 1000  # with the bound it would be about 2,500
    queries = parse_queries(text, folder / "tidegate.toml")
    assert learnt_clip(queries.first) is None
    read_clips(queries)
    clip = learnt_clip(queries.first)
    assert clip is not None
    assert 60 < float(clip) < 1000
    assert any(clip in sentence for sentence in explain(queries))
    assert card(queries.first)["mechanism"]["clip_learnt"] == clip
    assert verify(rows_of(folder / "tidegate.ledger")).ok


def test_running_sums_hold_the_silent_steps(folder: Path) -> None:
    """The running sum after learning is that of all steps."""
    rows = released(folder, f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "BinaryTree"\n')
    total = true_sums(folder).sum()
    assert abs(float(rows[-1]["all"]) - total) < 0.2 * total
    assert rows[19]["status"] == "silent"
    assert rows[20]["status"] == "fresh"


def test_means(folder: Path) -> None:
    """A mean is measured around the middle of the learnt clip."""
    rows = released(folder, f'{HEAD}[query]\naggregate = "mean"\n{LEARN}[mechanism]\nname = "Uniform"\n')
    means = np.array([float(row["all"]) for row in rows[21:]])
    assert abs(np.median(means) - 40) < 8
    widths = [float(row["count of all high"]) - float(row["count of all low"]) for row in rows[21:]]
    assert max(widths) < 400  # of about 200 records in an hour


def test_one_of_several_queries_goes_on_after_a_restart(folder: Path) -> None:
    """Beside a count, over a stop in the middle of the sample and one after it; the transcript is whole."""
    text = HEAD.replace("count = 60", "count = {count}") + (
        '[mechanism]\nname = "Uniform"\n[[query]]\nname = "orders"\naggregate = "count"\nshare = "1/4"\n'
        f'[[query]]\nname = "revenue"\naggregate = "sum"\n{LEARN}share = "3/4"\n'
    )
    clips = set()
    for count in (22, 30, 60):
        queries = parse_queries(text.replace("{count}", str(count)), folder / "tidegate.toml")
        streams.release(queries)
        clips.add(learnt_clip(queries.part("revenue")))
    assert len(clips) == 1
    with (folder / "released-revenue.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(1, 61))
    assert verify(rows_of(folder / "tidegate.ledger")).ok


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ('aggregate = "count"\nclip = "learn"\n', "clip"),
        ('aggregate = "sum"\nclip = "guess"\n', "clip"),
        ('aggregate = "sum"\nclip = "learn"\nlearn = 60\n', "learn"),
        ('aggregate = "sum"\nclip = ["0", "10"]\nlearn = 5\n', "learn"),
        ('aggregate = "sum"\nclip = "learn"\nweighting = "share"\nmost = 2\n', "weighting"),
    ],
)
def test_refusals_name_key_and_line(query: str, word: str, tmp_path: Path) -> None:
    """What makes no sense is refused with its line, and nothing is written."""
    with pytest.raises(ConfigError, match=word) as caught:
        parse_queries(f"{HEAD}[query]\n{query}", tmp_path / "tidegate.toml")
    assert caught.value.line is not None
    assert not list(tmp_path.iterdir())


def test_one_user_could_own_the_sample(tmp_path: Path) -> None:
    """Refused under a promise for all steps of a user."""
    text = HEAD.replace("window = 2", 'policy = "user"') + f'[query]\naggregate = "sum"\n{LEARN}'
    with pytest.raises(ConfigError, match="one user could own"):
        parse_queries(text, tmp_path / "tidegate.toml")


def test_a_preview_makes_up_no_single_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused by a sentence."""
    path = tmp_path / "tidegate.toml"
    path.write_text(f'{HEAD}[query]\naggregate = "sum"\n{LEARN}')
    assert main(["preview", str(path)]) != 0
    assert "no single values" in capsys.readouterr().err.replace("\n", " ")


def test_a_sample_that_is_too_small_is_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the start by how many records it takes, from public numbers; afterwards where nothing was learnt."""
    file = folder / "tidegate.toml"
    text = f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "Uniform"\n'
    file.write_text(text)
    needed = parse_queries(text, file).first.mechanism.records_needed  # type: ignore[attr-defined]
    assert 60 * 2 / 4 < needed < 80 * 2 / 4  # about 70·w/ε
    assert main(["explain", str(file)]) == 0
    assert f"about {needed:,} records together" in " ".join(capsys.readouterr().out.split())
    assert main(["release", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
    (folder / "tidegate.ledger").unlink()
    for left in folder.glob("released*"):
        left.unlink()
    few = text.replace('epsilon = "4"', 'epsilon = "1/1000"')  # 4,000 records of the 140,000 that it takes
    file.write_text(few)
    with fixed_entropy(3):
        assert main(["release", str(file), "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert "count up to their bound, 5000" in warning


def test_a_plan_is_for_what_was_learnt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At first for the bound, and then for the clip; the silent steps are named."""
    file = folder / "tidegate.toml"
    file.write_text(f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "Uniform"\n')

    settings = read_settings(file)
    assert settings.policy.max_change == 5000
    assert "The first 21 steps" in settings.remark
    assert "reach their bound" in settings.remark
    assert main(["release", str(file), "--json"]) == 0
    clip = json.loads(capsys.readouterr().out)["learnt_clips"]["query"]
    settings = read_settings(file)
    assert settings.policy.max_change == Fraction(clip) < 5000
    assert f"the clip that was learnt, {clip}" in settings.remark


def test_tuning_what_is_learnt_is_refused_before_it_costs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, and no account."""
    file = folder / "tidegate.toml"
    file.write_text(f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "Uniform"\n')
    assert main(["tune", str(file)]) == 2
    assert "is paid for by the stream itself" in " ".join(capsys.readouterr().err.split())
    assert not list(folder.glob("*tun*"))


def test_a_followed_input_is_learnt_from(folder: Path) -> None:
    """Hour by hour of a clock of its own, with a stop in the middle of the sample: as of the whole file at once."""
    lines = (folder / "receipts.csv").read_text().splitlines(keepends=True)
    text = f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "Uniform"\n'
    at_once = folder / "at once"
    at_once.mkdir()
    (at_once / "receipts.csv").write_text("".join(lines))
    with fixed_entropy(5):
        expected = released(at_once, text)
    (folder / "receipts.csv").write_text(lines[0])
    clips = set()
    with fixed_entropy(5):
        for first, last in ((0, 12), (12, 60)):
            queries = parse_queries(text, folder / "tidegate.toml", follow=True)
            clock = [queries.first.steps.origin / 1e6 + 3600 * first]

            class Hours:
                """Whenever an hour has been released, the next one's receipts arrive."""

                def released(self, chunk: Chunk) -> None:
                    arrive(int(chunk.step[-1]))

                def waiting(self, sentence: str) -> None:
                    """Nothing."""

            def arrive(
                hour: int, clock: list[float] = clock, origin: float = clock[0] - 3600 * first
            ) -> None:
                day, rest = divmod(hour, 24)
                wanted = f"2026-03-{2 + day:02d}T{rest:02d}"
                with (folder / "receipts.csv").open("a") as file:
                    file.writelines(line for line in lines if line.startswith(wanted))
                clock[0] = origin + 3600 * (hour + 1) + 1

            with open_pipeline(queries, follow=True, observers={"query": Hours()}) as pipeline:
                intake = queries.open(pipeline.position, follow=True, clock=lambda clock=clock: clock[0])
                arrive(first)
                for block in intake:
                    pipeline.process(queries.parts, [block])
                    if pipeline.step >= last:
                        break
                pipeline.finish()
                intake.close()
            clips.add(learnt_clip(queries.first))
    with (folder / "released.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["status"] for row in found] == [row["status"] for row in expected]
    assert [row["all"] for row in found] == [row["all"] for row in expected]
    assert len(clips - {None}) == 1


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize(
    "mechanism", ['"Uniform"\nnoise = "laplace"', '"Uniform"', '"BudgetDistribution"', '"BudgetAbsorption"']
)
def test_a_clip_is_learnt_once_after_an_amendment(aggregate: str, mechanism: str, tmp_path: Path) -> None:
    """It waits until charges from before have passed: values are larger later, and one clip is that of all releases."""
    rng = np.random.default_rng(1)
    lines = ["time,who,amount"]
    for step in range(70):
        amounts = rng.exponential(20 if step < 45 else 300, 60)
        lines += [f"{step * 60},u{unit},{amount:.0f}" for unit, amount in enumerate(amounts)]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")

    def written(count: int, query: str) -> str:
        (tmp_path / "s.toml").write_text(
            '[source]\nlocation = "events.csv"\ntime = "time"\nunit = "who"\nvalue = "amount"\n'
            f'[steps]\nstart = "1970-01-01"\nlength = "60s"\ncount = {count}\n{query}'
            '[protect]\nepsilon = "4000000"\nwindow = 10\n[sink]\nlocation = "released.csv"\n'
        )
        return str(tmp_path / "s.toml")

    first = '[[query]]\nname = "y"\naggregate = "count"\nshare = "1/2"\nmechanism = "Sample"\n'
    assert main(["release", written(11, first)]) == 0
    learnt = (
        f'[[query]]\nname = "m"\naggregate = "{aggregate}"\nclip = "learn"\nlearn = 2\nbound = "100000"\n'
    )
    file = written(70, f"{learnt}share = '1'\n[query.mechanism]\nname = {mechanism}\n")
    assert main(["amend", file]) == 0
    assert main(["release", file]) == 0
    assert verify(rows_of(tmp_path / "s.ledger")).ok
    queries = read_queries(file)
    read_clips(queries)
    clip = float(learnt_clip(queries.first) or 0)
    with next(tmp_path.glob("released-m*.csv")).open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["status"] == "fresh"]
    assert len(rows) > 20 or mechanism.startswith('"Budget')
    truth = np.zeros(71)
    for line in lines[1:]:
        time, _, amount = line.split(",")
        truth[int(time) // 60 + 1] += min(float(amount), clip)
    for row in rows:
        expected = truth[int(row["step"])] / (60 if aggregate == "mean" else 1)
        assert float(row["all"]) == pytest.approx(expected, rel=0.05)
