"""`tidegate card`: a record that the public registry of deployments takes, and that answers a reviewer's questions."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli import main
from tidegate.composition import zcdp_delta
from tidegate.config import parse_queries, read_queries
from tidegate.config.document import EXAMPLE, SEVERAL
from tidegate.policy import ZeroConcentrated
from tidegate.report.card import card, epsilon_of
from tidegate.report.plain_yaml import to_yaml
from tidegate.report.registry import NEEDED, registry_record

try:
    import yaml
except ImportError:  # it comes with what the documentation needs, not with what tests need
    yaml = None

ABOUT = """
[about]
title = "Campus: who is where"
publisher = "University of Nowhere"
publisher_type = "Nonprofit"
contact = "privacy@nowhere.example"
intended_use = "Plan opening hours and cleaning."
region = "Germany"
sector = "Education"
publication_date = "2026-03-02"
authors = ["Ada Example", "Ben Example"]
access = "Two administrators; disks are encrypted."
chosen = "public knowledge of the size of the buildings"
account = "https://nowhere.example/streams/campus"
"""
HOUSEHOLDS = """[source]
location = "load.csv"
time = "time"
value = "kW"
[steps]
start = "2026-01-05T00:00"
length = "15min"
zone = "Europe/Berlin"
count = 192
[query]
aggregate = "given"
grid = "0.1"
[protect]
policy = "swellfish"
specifications = "household.toml"
[sink]
location = "released.csv"
"""
ENDLESS = EXAMPLE.replace("count = 168\n", "").replace('"auto"', '"Uniform"')
CASES = {
    "campus": EXAMPLE.replace('"auto"', '"Tide"'),
    "shop": SEVERAL,
    "endless": ENDLESS,
    "zcdp": ENDLESS.replace('epsilon = "1"', 'rho = "0.005"'),
    "approximate": ENDLESS.replace('epsilon = "1"', 'epsilon = "1"\ndelta = "1e-9"'),
    "user": EXAMPLE.replace('"w-event"', '"user"')
    .replace("window = 24\n", "")
    .replace('"auto"', '"Uniform"'),
    "event": ENDLESS.replace('"w-event"', '"event"').replace("window = 24\n", ""),
    "households": HOUSEHOLDS,
}

TEXT, NUMBER = "text", "number"
PRODUCTS = (
    "Summary statistics",
    "Machine learning model",
    "Dataset",
    "Synthetic data",
    "Interactive API",
    "SQL queries",
)
# The registry's rules: each field with its values, "!" where it must be there. Other fields are refused.
RULES: dict[str, Any] = {
    "url_slug!": TEXT,
    "status!": ("Draft",),
    "tier!": (1, 2, 3),
    "deployment!": {
        "basic!": {
            "name!": TEXT,
            "data_curators!": [{"data_curator_name!": TEXT, "data_curator_type!": TEXT}],
            "description!": TEXT,
            "intended_use!": TEXT,
            "data_product_type!": PRODUCTS,
            "data_product_region!": TEXT,
            "publication_date!": date,
            "data_product_sector": (
                "Technology",
                "Healthcare",
                "Education",
                "Government",
                "Energy",
                "Finance",
            ),
        },
        "dp_variant!": {
            "variant_name!": (
                "Pure DP",
                "Approximate DP",
                "Zero-concentrated DP",
                "Renyi DP",
                "Custom",
            ),
            "data_domain!": TEXT,
            "unprotected_quantities!": TEXT,
        },
        "privacy_loss!": {
            "privacy_unit!": TEXT,
            "privacy_unit_details!": TEXT,
            "privacy_parameters!": {"epsilon": NUMBER, "delta": NUMBER, "rho": NUMBER},
            "privacy_parameters_details!": TEXT,
        },
        "deployment_model!": {
            "model_name!": ("Local", "Central", "Shuffle", "Federated"),
            "model_name_details!": TEXT,
            "actors!": TEXT,
            "release_type!": ("One release", "Many releases"),
            "release_type_details!": TEXT,
            "data_source_type!": ("Static", "Dynamic"),
            "data_source_type_details!": TEXT,
            "access_type!": ("Interactive", "Non-interactive"),
            "access_type_details!": TEXT,
        },
        "accounting!": {"post_processing!": TEXT, "composition!": TEXT},
        "implementation!": {
            "preprocessing_and_hyperparameter_tuning!": TEXT,
            "mechanisms!": TEXT,
            "justification!": TEXT,
        },
        "administrative!": {"registry_authors!": [TEXT], "sources": TEXT, "notes": TEXT},
    },
}


def faults(found: Any, rule: Any, place: str = "record") -> list[str]:
    """Where a record breaks the rules."""
    if isinstance(rule, dict):
        if not isinstance(found, dict):
            return [f"{place} is no mapping"]
        names = {name.rstrip("!"): name for name in rule}
        wrong = [f"{place}.{name} is unknown" for name in found if name not in names]
        wrong += [
            f"{place}.{name} is missing" for name in names if rule.get(f"{name}!") and name not in found
        ]
        for name in names.keys() & found.keys():
            wrong += faults(found[name], rule[names[name]], f"{place}.{name}")
        return wrong
    if isinstance(rule, list):
        if not isinstance(found, list) or not found:
            return [f"{place} is no list, or empty"]
        return [each for item in found for each in faults(item, rule[0], place)]
    if rule is date:
        return [] if isinstance(found, str) and date.fromisoformat(found) else [f"{place} is no date"]
    if rule == NUMBER:
        right = isinstance(found, float | int) and not isinstance(found, bool) and math.isfinite(found)
        return [] if right else [f"{place} is no number"]
    if rule == TEXT:
        return [] if isinstance(found, str) and found.strip() else [f"{place} is no text, or empty"]
    return [] if found in rule else [f"{place} is none of {rule}"]


@pytest.fixture
def configured(tmp_path: Path, root: Path):
    """A configuration in a file."""

    def write(text: str) -> Path:
        (tmp_path / "household.toml").write_text((root / "docs/examples/household.toml").read_text())
        path = tmp_path / "tidegate.toml"
        path.write_text(text)
        return path

    return write


def record_of(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `card --registry` prints, parsed where there is a parser, and always the record that was meant."""
    assert main(["card", str(path), "--registry"]) == 0
    text = capsys.readouterr().out
    meant = registry_record(read_queries(path, follow=True))
    assert text == to_yaml(meant)
    assert yaml is None or yaml.safe_load(text) == meant
    return meant


@pytest.mark.parametrize("case", CASES)
def test_the_record_is_one_that_the_registry_takes(case, configured, capsys) -> None:
    """Every kind of promise: all fields of tier 3, none that is unknown, every value of the allowed ones."""
    found = record_of(configured(CASES[case] + ABOUT), capsys)
    assert faults(found, RULES) == []
    assert found["tier"] == 3
    assert "[about]" not in found["deployment"]["administrative"]["notes"]


def test_the_rules_refuse() -> None:
    """The negative control: a missing field, an unknown one, a wrong value and a text for a number are all found."""
    record = registry_record(parse_queries(CASES["endless"] + ABOUT, follow=True))
    deployment = record["deployment"]
    del deployment["basic"]["intended_use"]
    deployment["basic"]["window"] = "24"
    deployment["deployment_model"]["release_type"] = "Continual"
    deployment["privacy_loss"]["privacy_parameters"]["epsilon"] = "1"
    assert len(faults(record, RULES)) == 4


@pytest.mark.parametrize("name", NEEDED)
def test_what_only_the_owner_knows_is_asked_for_by_name(name, configured, capsys) -> None:
    """One sentence names the key that is missing, and no other."""
    text = re.sub(rf"(?m)^{name} = .*\n", "", ABOUT)
    assert main(["card", str(configured(CASES["endless"] + text)), "--registry"]) == 2
    error = capsys.readouterr().err
    assert f"needs {name} in [about]" in error
    assert error.count("\n") == 1


def test_a_date_is_a_date(configured, capsys) -> None:
    """What is no date is refused with the key's name."""
    text = ABOUT.replace('"2026-03-02"', '"March"')
    assert main(["card", str(configured(CASES["endless"] + text)), "--registry"]) == 2
    assert "publication_date" in capsys.readouterr().err


def test_a_reviewer_can_answer_from_the_record_alone(configured, capsys) -> None:
    """What was promised, to whom, for how long, who can check; and what a day, a month and a year cost."""
    found = record_of(configured(CASES["endless"] + ABOUT), capsys)["deployment"]
    loss, model = found["privacy_loss"], found["deployment_model"]
    assert loss["privacy_parameters"] == {"epsilon": 1.0}
    assert "73.2 %" in loss["privacy_parameters_details"]
    assert loss["privacy_unit"] == "device-window: one device in any 24 hours"
    details = model["release_type_details"]
    assert "returns 24 steps (24 hours) later" in details
    for presence in ("a day: at most ε = 1.", "(30 days): at most ε = 30.", "(365 days): at most ε = 365."):
        assert presence in details
    assert "Protected: whether a device was there" in details
    assert "Not protected by this number: whether a device is there always or never" in details
    assert "tidegate verify https://nowhere.example/streams/campus" in found["administrative"]["notes"]
    assert "University of Nowhere" in model["actors"]
    tuning = found["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "public knowledge of the size" in tuning
    for channel in ("Floating point", "Timing", "Platform", "Access: Two administrators"):
        assert channel in found["implementation"]["mechanisms"]


def test_a_stream_that_ends_loses_no_more_than_its_windows(configured, capsys) -> None:
    """A week of hours is seven windows, so a year costs seven."""
    details = record_of(configured(CASES["campus"] + ABOUT), capsys)["deployment"]["deployment_model"]
    assert "longer than the stream: at most ε = 7." in details["release_type_details"]


def test_every_statistic_is_in_one_record(configured, capsys) -> None:
    """Several queries are one promise: their parts and their own bounds are named, the budget is that of all."""
    found = record_of(configured(CASES["shop"] + ABOUT), capsys)["deployment"]
    assert found["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0}
    for words in ("Orders: ", "Customers: ", "Revenue: "):
        assert words in found["privacy_loss"]["privacy_unit_details"]
    assert "revenue 0.5" in found["privacy_loss"]["privacy_parameters_details"]
    assert "at most 200" in found["privacy_loss"]["privacy_unit_details"]


def test_records_without_a_unit_are_said_to_stand_alone(configured, capsys) -> None:
    """In the record and by `explain`."""
    text = CASES["endless"].replace('unit = "device"\n', "").replace('"distinct"', '"count"')
    path = configured(text + ABOUT)
    found = record_of(path, capsys)["deployment"]["privacy_loss"]["privacy_unit_details"]
    assert "each record is protected by itself, and not a person with several" in found
    assert main(["explain", str(path)]) == 0
    assert "each record is protected by itself" in " ".join(capsys.readouterr().out.split())


def test_rho_is_never_without_its_epsilon(configured, capsys) -> None:
    """Wherever a ρ stands, in the record and on the card, its ε at δ = 1e-5 stands beside it."""
    path = configured(CASES["zcdp"] + ABOUT)
    record = record_of(path, capsys)
    parameters = record["deployment"]["privacy_loss"]["privacy_parameters"]
    assert (parameters["rho"], parameters["delta"]) == (0.005, 1e-05)
    assert main(["card", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["privacy"]["epsilon_at_delta_1e-5"] == str(parameters["epsilon"])
    for text in (
        json.dumps(record, ensure_ascii=False),
        json.dumps(shown["privacy"]["lifetimes"], ensure_ascii=False),
    ):
        assert len(re.findall(r"ρ = [\d./]+ \(ε = [\d./]+ at δ = 1e-5\)", text)) == text.count("ρ = ") > 0


@pytest.mark.parametrize("rho", ["1/1000000", "0.005", "1/2", "66612.5"])
def test_the_converted_epsilon_holds_and_is_near_the_best(rho) -> None:
    """At the printed ε δ is at most 1e-5, and at one that is a thousandth smaller it is more."""
    epsilon = epsilon_of(ZeroConcentrated(Fraction(rho)))
    assert zcdp_delta(Fraction(rho), epsilon) <= Fraction(1, 10**5)
    assert zcdp_delta(Fraction(rho), epsilon * Fraction(998, 1000)) > Fraction(1, 10**5)


def test_a_number_is_never_printed_smaller_than_it_is(configured, capsys) -> None:
    """A third is rounded up."""
    path = configured(CASES["endless"].replace('epsilon = "1"', 'epsilon = "1/3"') + ABOUT)
    found = record_of(path, capsys)["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"]
    assert Fraction(1, 3) <= Fraction(found) < Fraction(1, 3) + Fraction(1, 10**15)


def test_a_file_that_is_no_record_is_not_replaced(configured, tmp_path, capsys) -> None:
    """A record is written again over a record, and over nothing else; without --registry there is no file."""
    path, out = configured(CASES["endless"] + ABOUT), tmp_path / "deployment.yaml"
    for _ in range(2):
        assert main(["card", str(path), "--registry", "--out", str(out)]) == 0
    capsys.readouterr()
    assert out.read_text(encoding="utf-8") == to_yaml(record_of(path, capsys))
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    assert main(["card", str(path), "--registry", "--out", str(other)]) == 2
    assert other.read_text() == "mine"
    assert main(["card", str(path), "--out", str(out)]) == 2


def test_the_card_as_json_is_that_of_release(configured, capsys) -> None:
    """One card for several queries, what is particular to each by its name; the record can be had as JSON, too."""
    path = configured(CASES["shop"] + ABOUT)
    assert main(["card", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    parts = parse_queries(CASES["shop"] + ABOUT).parts
    assert (shown["title"], shown["privacy"]["epsilon"]) == ("Campus: who is where", "1")
    assert "1-differentially private" in shown["privacy"]["guarantee"]
    assert any(words.endswith(", a year") for words in shown["privacy"]["lifetimes"])
    for part in parts:
        own, alone = shown["queries"][part.name], json.loads(json.dumps(card(part)))
        assert (own["data_product"], own["mechanism"]) == (alone["data_product"], alone["mechanism"])
        assert own["privacy"]["max_change"] == alone["privacy"]["max_change"]
    assert main(["card", str(path), "--registry", "--json"]) == 0
    assert faults(json.loads(capsys.readouterr().out), RULES) == []


ODD = [
    "",
    " a",
    "no",
    "1.0",
    "a: b # c",
    'say "x" \\ y',
    "tab\tend",
    "two\nlines",
    "two\n\nlines",
    "a\n b",
    "end\n",
]
ODD += ["\x00\x07\x7f\x85", "\u2028\ufeff\ufffe", "ε ≤ 1 😀 \U000e0001", "- item", "|", "%", "\r\n", "été"]


@pytest.mark.skipif(yaml is None, reason="PyYAML is not installed")
@pytest.mark.parametrize("text", ODD)
def test_every_text_is_read_as_it_was_written(text) -> None:
    """Quotes, blanks, line ends, control characters and what looks like something else."""
    record = {
        "a": text,
        "b": {"c": [text, text]},
        "d": [{"e": text, "f": text}],
        "g": 1e-300,
        "h": 3,
        "i": 1e22,
    }
    assert yaml.safe_load(to_yaml(record)) == record
