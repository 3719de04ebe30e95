"""Reports in a real browser: nothing is wider than a telephone, and axe-core finds nothing serious."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import TEXT
from tests.web.browser import chromium as chromium
from tests.web.browser import serious_findings

from tidegate.cli import main

pytestmark = pytest.mark.slow  # a browser

COLUMNS = ["north", "south"]
ABOUT = """
[about]
title = "Walruses in the harbour"
publisher = "The harbour"
unit = "walrus"
units = "walruses"
counted = "walruses"
"""
KINDS = {
    "counts of some hours": ("count = 12", "count = 12"),
    "hours of months as heat maps": ("count = 12", "count = 1440"),
    "calendar days": (
        'length = "1h"\nzone = "Europe/Berlin"\ncount = 12',
        'length = "calendar day"\nzone = "Europe/Berlin"\ncount = 60',
    ),
    "means": (
        'aggregate = "distinct"\ncolumns = ["north", "south"]',
        'aggregate = "mean"\nclip = ["0", "100"]\ncolumns = ["north", "south"]',
    ),
}


def reports(folder: Path, before: str, after: str) -> tuple[Path, Path]:
    """The report for everybody and the one for the curator, of a small made-up harbour."""
    lines = ["time,unit,place,value"]
    for hour in range(24 * 60):
        day, at = divmod(hour, 24)
        month, day = divmod(day, 28)
        for unit in range(1 + (at * 7) % 5):
            where = COLUMNS[(unit + hour) % 2]
            lines.append(
                f"2026-{3 + month:02d}-{1 + day:02d}T{at:02d}:10,walrus{unit},{where},{7 * unit % 100}"
            )
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    assert before in TEXT
    text = TEXT.format(folder=folder).replace(before, after).replace('"Uniform"', '"auto"')
    text = text.replace('column = "place"', 'column = "place"\nvalue = "value"') if "mean" in after else text
    config = folder / "stream.toml"
    config.write_text(text + ABOUT)
    public, inside = folder / "public.html", folder / "inside.html"
    assert main(["release", str(config), "--report", str(public), "--json"]) == 0
    assert main(["release", str(config), "--report", str(inside), "--compare-truth", "--json"]) == 0
    return public, inside


@pytest.mark.parametrize("kind", KINDS)
def test_reports_in_a_browser(kind: str, chromium: Any, tmp_path: Path) -> None:
    """Light, dark and on a telephone, with every table and the card opened."""
    for file in reports(tmp_path, *KINDS[kind]):
        for width, dark in ((1200, False), (1200, True), (360, False)):
            screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
            chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})
            chromium.get(file.as_uri())
            chromium.execute_script(
                "for (const each of document.querySelectorAll('details')) each.open = true"
            )
            assert serious_findings(chromium) == [], (file.name, width, dark)
            ground = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (int(ground.removeprefix("rgb(").partition(",")[0]) < 64) == dark
            # compared with the screen: what is too wide on a telephone makes innerWidth larger
            assert chromium.execute_script("return document.documentElement.scrollWidth") <= width, file.name
        assert [entry["message"] for entry in chromium.get_log("browser")] == []
