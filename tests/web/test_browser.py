"""The pages in a real browser, against a real service that is killed and started again."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.browser import chromium as chromium
from tests.web.browser import serious_findings
from tests.web.helpers import finite, in_two_queries, served, settled
from tests.web.test_killed import Killable, Producer
from tests.web.test_producer_routes import posted_text

from tidegate.config.queries import one
from tidegate.pipeline.amend import amend
from tidegate.web.tokens import Tokens
from waiting import LIMIT, until

pytestmark = pytest.mark.slow  # a browser

RANGE = r"± \d|between -?\d\S* and \d"
MAP = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"name": "north"},
            "geometry": {"type": "Polygon", "coordinates": [[[0, 1], [2, 1], [2, 2], [0, 2], [0, 1]]]},
        },
        {
            "type": "Feature",
            "properties": {"name": "south"},
            "geometry": {"type": "Point", "coordinates": [1, 0]},
        },
    ],
}


class Live:
    """A live stream with a producer, and what opens its pages."""

    def __init__(self, folder: Path) -> None:
        tokens = Tokens(folder / "tokens.json")
        self.operator = tokens.add("operator", "you")
        config = folder / "hall.toml"
        config.write_text(
            posted_text(folder, seconds=1, behind=30).replace('epsilon = "400"', 'epsilon = "2"')
        )
        config.with_suffix(".geojson").write_text(json.dumps(MAP))
        self.service = Killable(config)
        self.service.start()
        self.ending = threading.Event()
        self.producer = Producer(self.service.address, tokens.add("producer", "hall"), "walrus", self.ending)
        self.producer.start()

    def close(self) -> None:
        """End it."""
        self.ending.set()
        self.producer.join(LIMIT)
        self.service.kill()
        self.service.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A live stream of steps of a second."""
    found = Live(tmp_path_factory.mktemp("browser"))
    try:
        yield found
    finally:
        found.close()


def pressed(button: Any) -> bool:
    """Whether the layout of a button is the one that is shown."""
    return bool(button.get_attribute("aria-pressed") == "true")


class Page:
    """One page in the browser, as large as a screen or a telephone."""

    def __init__(self, browser: Any, live: Live) -> None:
        self.browser, self.live = browser, live

    def open(self, path: str, width: int = 1200, height: int = 900, *, dark: bool = False) -> Page:
        """Open a page again, with nothing remembered."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})
        # no page that may remember something meanwhile
        self.browser.get(self.live.service.address + "/healthz")
        self.run("localStorage.clear(); sessionStorage.clear()")
        self.browser.get(self.live.service.address + path)
        return self

    def stream(self, **more: Any) -> Page:
        """Open the stream's page and wait for its first values."""
        self.open("/view/hall", **more)
        until(
            lambda: self.run("return globalThis.tidegate?.sorted.length > 3 && tidegate.charts().length > 0")
        )
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.browser.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        """An element."""
        return self.browser.find_element("css selector", selector)

    def problems(self) -> list[str]:
        """What the browser complains about, broken connections aside."""
        lines = [entry["message"] for entry in self.browser.get_log("browser")]
        return [line for line in lines if "net::ERR" not in line]

    def findings(self) -> list[str]:
        """Serious findings of axe-core."""
        return serious_findings(self.browser)


@pytest.fixture
def page(chromium: Any, live: Live) -> Page:
    """The browser and the service."""
    return Page(chromium, live)


def test_the_page_shows_values_and_goes_on(page: Page) -> None:
    """It loads, shows the newest value with its range, and moves with the stream; nothing is refused by the policy."""
    page.stream()
    assert page.find("#name").text == "Hall"
    before = page.run("return tidegate.last")
    until(lambda: page.run("return tidegate.last") >= before + 2)
    until(lambda: page.find("#figure").text not in ("", "–"))
    assert re.search(RANGE, page.find("#plusminus").text)
    assert page.find("#state").text.startswith("live")
    assert page.run("return document.querySelectorAll('canvas').length") == 1
    assert page.problems() == []
    assert page.browser.get_cookies() == []


def test_it_reconnects_without_gap_or_repetition(page: Page) -> None:
    """The service is killed and started again: every release is taken once, in order."""
    page.stream()
    page.run(
        "globalThis.taken = []; const take = tidegate.take.bind(tidegate);"
        "tidegate.take = (release) => { taken.push(release.number); take(release); };"
    )
    until(lambda: page.run("return taken.length") >= 1)
    page.live.service.kill()
    until(lambda: page.find("#state").text.startswith("reconnecting"))
    page.live.service.start()
    seen = page.run("return taken.length")
    until(lambda: page.run("return taken.length") >= seen + 4)
    taken = page.run("return taken")
    assert taken == list(range(taken[0], taken[0] + len(taken)))
    steps = page.run("return tidegate.sorted.map((each) => each.step)")
    assert steps == list(range(1, len(steps) + 1))
    page.problems()


def test_zoom_and_hover(page: Page) -> None:
    """Dragging zooms, a double click shows all again, and the pointer reads a value with its range."""
    from selenium.webdriver import ActionChains

    page.stream()
    span = "const { min, max } = tidegate.charts()[0].plot.scales.x; return max - min"
    before = page.run(span)
    over = page.find("#stage .u-over")
    width = over.size["width"]
    drag = ActionChains(page.browser).move_to_element_with_offset(over, -width // 4, 0).click_and_hold()
    drag.move_by_offset(width // 4, 0).release().perform()
    assert page.run(span) < 0.6 * before
    assert re.search(RANGE, page.find("#readout").text)
    ActionChains(page.browser).double_click(over).perform()
    assert page.run(span) > 0.9 * before


def test_all_layouts_show_all_columns(page: Page) -> None:
    """Small multiples, a list with sparklines, and the map; each with the same table behind it."""
    page.stream()
    page.find("[data-layout=multiples]").click()
    until(lambda: page.run("return document.querySelectorAll('.multiple canvas').length") == 2)
    page.find("[data-layout=list]").click()
    until(lambda: page.run("return document.querySelectorAll('.spark path').length") >= 2)
    page.find("[data-layout=map]").click()
    until(lambda: page.run("return document.querySelectorAll('.map .area, .map .spot').length") == 2)
    until(lambda: re.search(RANGE, page.run("return document.querySelector('.map title').textContent")))
    page.find("#table-details summary").click()
    until(lambda: page.run("return document.querySelectorAll('#table tbody tr').length") > 3)
    # read in one go: a live update may put a new table there at any moment
    head = "return [...document.querySelectorAll('#table thead th')].map(cell => cell.textContent)"
    assert page.run(head) == ["Time", "north", "south", "Kind"]
    assert page.problems() == []


def test_dark_and_light(page: Page) -> None:
    """It follows the system, and a button changes it for this reader."""
    page.stream(dark=True)
    ground = "return getComputedStyle(document.body).backgroundColor"
    dark = page.run(ground)
    page.find("#theme").click()
    assert page.run(ground) != dark
    page.browser.refresh()
    assert page.run(ground) != dark


def test_a_telephone_needs_no_sideways_scrolling(page: Page) -> None:
    """At 360 points everything fits, in every layout."""
    page.stream(width=360, height=740)
    for layout in ("chart", "multiples", "list", "map"):
        page.find(f"[data-layout={layout}]").click()
        until(lambda: page.run("return document.documentElement.scrollWidth <= innerWidth"), 60)


def test_the_keyboard_is_enough(page: Page) -> None:
    """Tab reaches everything in order; arrows read the chart; space and enter press."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.stream()
    reached = []
    for _ in range(40):
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        reached.append(
            page.run(
                "const e = document.activeElement;"
                "return e.ariaRoleDescription ? 'drawing' : e.id || e.dataset.layout || e.dataset.range || e.className"
            )
        )
        if reached[-1] == "drawing":
            break
    assert {"skip", "theme", "chart", "map", "week", "column", "drawing"} <= set(reached)
    ActionChains(page.browser).send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT).perform()
    first = page.find("#readout").text
    assert re.search(RANGE, first)
    ActionChains(page.browser).send_keys(Keys.HOME).perform()
    assert page.find("#readout").text != first
    page.run("document.querySelector('[data-layout=list]').focus()")
    ActionChains(page.browser).send_keys(Keys.ENTER).perform()
    assert page.find("[data-layout=list]").get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_finding_of_axe(page: Page, dark: bool) -> None:
    """Home, every layout with its table, and the operator's page, in both colours."""
    page.open("/", dark=dark)
    until(lambda: page.run("return document.querySelectorAll('.streams .spark path').length") > 0)
    assert page.findings() == []
    page.stream(dark=dark)
    page.find("#table-details summary").click()
    for layout in ("chart", "multiples", "list", "map"):
        button = page.find(f"[data-layout={layout}]")
        button.click()
        until(partial(pressed, button))
        assert page.findings() == [], layout
    page.open("/operator", dark=dark)
    assert page.findings() == []
    page.find("#token").send_keys(page.live.operator)
    page.find("button.primary").click()
    until(lambda: page.run("return document.querySelectorAll('#streams section').length") == 1)
    assert page.findings() == []


def test_the_operator_sees_the_budget(page: Page) -> None:
    """A wrong token opens nothing; the right one shows gauge, history and facts, and verifies the log."""
    page.open("/operator")
    page.find("#token").send_keys("tide_wrong")
    page.find("button.primary").click()
    until(lambda: "does not open" in page.find("#refused").text)
    page.find("#token").send_keys(page.live.operator)
    page.find("button.primary").click()
    until(lambda: page.run("return document.querySelectorAll('#streams canvas').length") == 1)
    assert "of the budget (2) spent" in page.find("#streams").text
    assert "Lag" in page.find("#streams").text
    page.run("document.querySelector('#streams button').click()")
    until(lambda: "every hash, account, share" in page.find("#streams").text)
    assert "walrus" not in page.browser.page_source


def test_each_query_has_a_page(chromium: Any, tmp_path: Path) -> None:
    """The page of a stream with two queries shows the first and leads to the other; home and operator show both."""
    operator = Tokens(tmp_path / "tokens.json").add("operator", "you")
    config = tmp_path / "shop.toml"
    config.write_text(in_two_queries(posted_text(tmp_path, seconds=1, behind=20)))
    service = Killable(config)
    try:
        service.start()
        chromium.get(f"{service.address}/view/shop")
        until(lambda: chromium.execute_script("return globalThis.tidegate?.sorted.length > 3"))
        assert chromium.find_element("css selector", "h1").text == "Shop · People"
        links = chromium.find_elements("css selector", "#queries a")
        assert [link.text for link in links] == ["People", "Visits"]
        assert serious_findings(chromium) == []
        links[1].click()
        until(lambda: chromium.execute_script("return globalThis.tidegate?.name") == "shop/visits")
        until(lambda: chromium.execute_script("return tidegate.sorted.length > 3"))
        download = chromium.find_element("css selector", "#downloads a").get_attribute("href")
        assert download.endswith("/streams/shop/visits/releases?format=csv")
        chromium.get(f"{service.address}/")
        until(lambda: len(chromium.find_elements("css selector", ".streams .spark path")) >= 2)
        chromium.get(f"{service.address}/operator")
        chromium.find_element("css selector", "#token").send_keys(operator)
        chromium.find_element("css selector", "button.primary").click()
        until(lambda: len(chromium.find_elements("css selector", "#streams canvas")) == 2)
    finally:
        service.end()


def test_the_page_has_the_words_of_about(chromium: Any, tmp_path: Path) -> None:
    """Title, publisher and the unit in words stand on the page, with the step in words and what bounding does."""
    about = (
        '[about]\ntitle = "Harbour"\npublisher = "The port"\nunit = "walrus"\nunits = "walruses"\n[protect]'
    )
    changes = (
        ("[protect]", about),
        ('length = "1h"', 'length = "calendar week"'),
        ("count = 48", "count = 4"),
    )
    with served([finite(tmp_path, *changes)]) as (address, service):
        settled(service)
        chromium.get(f"{address}/view/hall")
        until(lambda: chromium.find_element("id", "name").text == "Harbour")
        until(lambda: "a number every week" in chromium.find_element("id", "state").text)
        assert "published by The port" in chromium.find_element("id", "state").text
        assert chromium.title == "Harbour – live"
        shown = chromium.execute_script("return document.getElementById('meaning').textContent")
        assert "how many different walruses were seen" in shown
        assert "one walrus does within" in shown
        assert "One walrus counts in at most 1 column in one week." in shown
        chromium.get(address)
        until(lambda: "Harbour" in chromium.find_element("id", "streams").text)


def test_a_window_without_visible_values_says_so(chromium: Any, tmp_path: Path) -> None:
    """Zeros alone are no narrow band; one value brings the chart back. The promise is one line, and whole behind it."""
    with served([finite(tmp_path)]) as (address, service):
        settled(service)
        chromium.get(f"{address}/view/hall")
        until(lambda: chromium.execute_script("return globalThis.tidegate?.sorted.length > 3"))
        chart = "return document.querySelector('#stage .chart').classList.contains('hidden')"
        press = "document.querySelector('[data-range=all]').click();"
        set_to = "for (const row of tidegate.sorted) row.values = row.values.map(() => {});" + press
        chromium.execute_script(set_to.format(0))
        until(lambda: "No value is visible" in chromium.find_element("id", "unseen").text)
        assert chromium.execute_script(chart)
        chromium.execute_script(set_to.format(5))
        until(lambda: not chromium.execute_script(chart))
        assert chromium.find_element("id", "unseen").text == ""
        promise = chromium.find_element("id", "guarantee").text
        assert promise.startswith("Protected: any ")
        assert "all year: ε = " in promise
        assert "differentially private" not in promise  # but in what is folded
        whole = chromium.execute_script("return document.querySelector('#guarantee details').textContent")
        assert "differentially private" in whole


def test_the_page_of_an_amended_query_shows_what_was_released_before(chromium: Any, tmp_path: Path) -> None:
    """The last value that is known stands there with its time, and then the silence has an end."""
    with served([finite(tmp_path, ("count = 48", "count = 24"))]) as (address, service):
        settled(service)
        before = httpx.get(f"{address}/streams/hall/releases").json()["releases"]
    for count, known, said in ((26, 24, "live; silent until Tue, 3 Mar 2026, 03:00"), (48, 48, "live ·")):
        longer = finite(tmp_path, ("count = 48", f"count = {count}"), ('epsilon = "1"', 'epsilon = "1/2"'))
        if count == 26:
            amend(one(longer))
        with served([longer]) as (address, service):
            settled(service)
            chromium.get(f"{address}/view/hall")
            until(lambda: chromium.execute_script("return globalThis.tidegate?.sorted.length > 3"))
            shown = "return tidegate.sorted.map((release) => release.values)"
            found = chromium.execute_script(shown)
            assert found[:24] == [each["values"] for each in before]
            until(lambda known=known: chromium.execute_script("return tidegate.newest.step") == known)
            running = "tidegate.facts.state = 'running'; document.querySelector('[data-range=all]').click()"
            chromium.execute_script(running)
            state = chromium.find_element("id", "state").text
            assert state.startswith(said), state
            assert (
                f"{2 if count == 26 else 3} Mar 2026, 23:00" in chromium.find_element("id", "plusminus").text
            )


def test_a_stream_that_is_silent_after_an_amendment_says_until_when(chromium: Any, tmp_path: Path) -> None:
    """No empty chart under «live»; and the first value alone is drawn a step wide."""
    with served([finite(tmp_path)]) as (address, service):
        settled(service)
        facts = httpx.get(f"{address}/streams/hall").json()
        assert (facts["first"], facts["first_time"]) == (1, facts["clock"]["start"])
        chromium.get(f"{address}/view/hall")
        until(lambda: chromium.execute_script("return globalThis.tidegate?.sorted.length > 3"))
        press = "document.querySelector('[data-range=day]').click();"
        chromium.execute_script("tidegate.sorted = tidegate.sorted.slice(0, 1);" + press)
        width = "const { min, max } = tidegate.charts()[0].plot.scales.x; return max - min"
        until(lambda: chromium.execute_script(width) == 2 * facts["length"])
        amended = "tidegate.facts.first = 28; tidegate.facts.first_time = '2026-03-03T03:00:00+00:00';"
        chromium.execute_script(amended + "tidegate.facts.state = 'running'; tidegate.sorted = [];" + press)
        until(lambda: "was amended: until then" in chromium.find_element("id", "plusminus").text)
        assert "3 Mar 2026" in chromium.find_element("id", "plusminus").text
        assert "live; silent until" in chromium.find_element("id", "state").text
