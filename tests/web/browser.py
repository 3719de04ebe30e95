"""A real browser for tests of pages, and what axe-core finds on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Require = Callable[[str, str], None]


@pytest.fixture(scope="module")
def chromium(require_service: Require) -> Iterator[Any]:
    """A browser without a window."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        require_service("chromium", "tests of the pages drive a real browser")
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def serious_findings(browser: Any) -> list[str]:
    """Serious findings of axe-core on the page that is open."""
    browser.execute_script((Path(__file__).parent / "vendored" / "axe.min.js").read_text())
    browser.set_script_timeout(60)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then((found) => done(found.violations))"
    )
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in serious]
