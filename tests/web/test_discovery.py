"""Categories that nobody has listed, served: names come and go with releases, beside another query."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from tests.pipeline.streams import stalls_and_people
from tests.web.browser import chromium as chromium
from tests.web.helpers import served, settled

from tidegate.config import ConfigError, Queries
from tidegate.testing.entropy import fixed_entropy
from tidegate.web.alarms import read_alarms
from waiting import until

Fair = tuple[httpx.Client, Queries]


@pytest.fixture(scope="module")
def fair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fair]:
    """A stream with both, released and served."""
    folder = tmp_path_factory.mktemp("fair")
    queries = stalls_and_people(folder)
    with fixed_entropy(4), served([queries]) as (address, service):
        settled(service, "tidegate")
        with httpx.Client(base_url=f"{address}/streams/tidegate") as client:
            yield client, queries


def test_releases_name_what_is_open(fair: Fair) -> None:
    """With when it opened and how many units its test has seen; the rest is the last."""
    client, _ = fair
    said = client.get("/stalls").json()
    assert (said["labels"], said["found"], said["columns"]) == (["other"], True, 3)
    assert "Nobody has listed" in next(
        each["answer"] for each in said["meaning"] if "names" in each["question"]
    )
    releases = client.get("/stalls/releases").json()
    assert releases["columns"] is None
    first, open_, festival = (releases["releases"][step - 1] for step in (1, 5, 15))
    assert first["categories"] == ["other"]
    assert sorted(open_["categories"]) == ["Café", "bakery", "other"]
    assert set(festival["categories"]) == {"Café", "bakery", "stage", "other"}
    at = festival["categories"].index("stage")
    assert festival["opened"][at] == festival["time"]
    assert festival["opened"][-1] is None
    assert len(festival["values"]) == len(festival["low"]) == len(festival["units"]) == 4
    assert "stage" not in releases["releases"][39]["categories"]


def test_downloads_have_a_row_for_each_open_category(fair: Fair) -> None:
    """In all formats the same, and the same as the file."""
    client, queries = fair
    found = pl.read_csv(client.get("/stalls/releases?format=csv").content)
    parquet = pl.read_parquet(io.BytesIO(client.get("/stalls/releases?format=parquet").content))
    assert parquet["column"].to_list() == found["column"].to_list()
    file = pl.read_csv(queries.path.parent / "out-stalls.csv")
    assert found["column"].to_list() == file["column"].to_list()
    assert found["opened"].to_list() == file["opened"].to_list()
    assert (found["value"] - file["value"]).abs().max() <= 0.5  # the file leaves digits out


def test_a_chart_is_of_a_category_and_columns_cannot_be_asked_for(fair: Fair) -> None:
    """Because they come and go."""
    client, _ = fair
    assert "stage" in client.get("/stalls/chart.svg?column=stage").text
    assert "other" in client.get("/stalls/chart.svg").text
    for path in ("chart.svg?column=nowhere", "releases?columns=stage"):
        assert client.get(f"/stalls/{path}").status_code == 400
    assert client.get("/people/releases?columns=all").status_code == 200


def test_alarms_look_at_the_rest_alone(tmp_path: Path) -> None:
    """A place has another category tomorrow."""
    queries = stalls_and_people(tmp_path)
    config = queries.part("stalls")
    alarms = tmp_path / "tidegate.alarms.toml"
    alarms.write_text('[[alarm]]\nname = "many"\nquery = "stalls"\ncolumn = "other"\nabove = 50\n')
    assert read_alarms(config, "stalls", ("people", "stalls")).alarms[0].column == 3
    alarms.write_text(alarms.read_text().replace("other", "place 1"))
    with pytest.raises(ConfigError, match="other"):
        read_alarms(config, "stalls", ("people", "stalls"))


@pytest.mark.slow
def test_the_page_lists_since_when_categories_are_open(chromium: Any, fair: Fair) -> None:
    """Names come with releases; one that has closed is still there, and says so."""
    client, _ = fair
    chromium.get(str(client.base_url).replace("/streams/", "/view/") + "stalls")
    until(lambda: len(chromium.find_elements("css selector", "#column option")) == 4)
    chromium.find_element("css selector", '[data-layout="list"]').click()
    rows = [row.text for row in chromium.find_elements("css selector", "#stage tbody tr")]
    assert rows[0].startswith("other")
    (stage,) = [row for row in rows if row.startswith("stage")]
    (bakery,) = [row for row in rows if row.startswith("bakery")]
    assert stage.rstrip().endswith("closed")
    assert "Mon, 2 Mar" in bakery
    chromium.find_element("css selector", '[data-layout="multiples"]').click()
    assert len(chromium.find_elements("css selector", ".multiple")) == 4
    chromium.get(str(client.base_url).partition("/streams")[0])
    until(lambda: len(chromium.find_elements("css selector", ".streams .spark path")) >= 2)
    assert not [each for each in chromium.get_log("browser") if each["level"] == "SEVERE"]
