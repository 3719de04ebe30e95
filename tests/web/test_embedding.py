"""Charts and numbers in pages of somebody else: off by default, and nothing but what is public."""

from __future__ import annotations

import http.server
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.browser import chromium as chromium  # a fixture
from tests.web.helpers import finite, served, settled, two_queries

from tidegate.errors import InvalidParameter
from tidegate.web import Service, Settings
from waiting import until

HERE = "https://www.example.org"
SVG = "{http://www.w3.org/2000/svg}"

WIDTH = "return document.getElementById('picture').naturalWidth"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A finite stream that is not embedded."""
    folder = tmp_path_factory.mktemp("closed")
    with served([finite(folder)], tokens=folder / "tokens.json") as (address, service):
        settled(service)
        with httpx.Client(base_url=address) as client:
            yield client


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A finite stream for one other origin."""
    folder = tmp_path_factory.mktemp("open")
    with served([finite(folder)], tokens=folder / "tokens.json", cors=(HERE,), embed=(HERE,)) as (
        address,
        service,
    ):
        settled(service)
        with httpx.Client(base_url=address) as client:
            yield client


def words(svg: str) -> list[str]:
    """All words of a picture."""
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_nothing_is_open_by_default(closed: httpx.Client) -> None:
    """Another origin reads nothing, frames nothing and shows no picture."""
    for path in ("/streams", "/streams/hall/releases", "/streams/hall/chart.svg", "/embed/hall"):
        found = closed.get(path, headers={"Origin": HERE})
        assert "access-control-allow-origin" not in found.headers
        assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
        assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert closed.get("/embed/hall").status_code == 404
    assert "--embed" in closed.get("/embed/hall").json()["error"]


def test_only_the_origin_that_was_named_reads(opened: httpx.Client) -> None:
    """Public answers carry its name, for no other origin, and never beside a token."""
    for path in ("/streams", "/streams/hall", "/streams/hall/releases", "/openapi.json"):
        found = opened.get(path, headers={"Origin": HERE})
        assert found.headers["access-control-allow-origin"] == HERE
        assert "Origin" in found.headers["vary"]
        assert "access-control-allow-credentials" not in found.headers
        for other in (
            {"Origin": "https://www.example.com"},
            {"Origin": HERE, "Authorization": "Bearer x"},
            {},
        ):
            assert "access-control-allow-origin" not in opened.get(path, headers=other).headers
    for path in ("/metrics", "/operator", "/view/hall", "/embed/hall", "/static/view.js"):
        assert "access-control-allow-origin" not in opened.get(path, headers={"Origin": HERE}).headers
    sent = opened.post("/streams/hall/events", content="", headers={"Origin": HERE})
    assert "access-control-allow-origin" not in sent.headers
    assert opened.options("/streams", headers={"Origin": HERE}).status_code == 405


def test_only_the_chart_is_framed(opened: httpx.Client) -> None:
    """The chart's page and the picture; the stream's and the operator's pages are not."""
    for path in ("/embed/hall", "/streams/hall/chart.svg"):
        found = opened.get(path)
        assert found.status_code == 200
        assert f"frame-ancestors {HERE}" in found.headers["content-security-policy"]
        assert "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["cross-origin-resource-policy"] == "cross-origin"
    for path in ("/view/hall", "/operator", "/", "/streams/hall/releases"):
        found = opened.get(path)
        assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
        assert found.headers["cross-origin-resource-policy"] == "same-origin"


def test_the_picture_says_what_is_released(closed: httpx.Client) -> None:
    """Its newest number is that of the releases, its address is stable, and wrong questions are refused."""
    found = closed.get("/streams/hall/chart.svg?column=south&steps=24")
    assert found.headers["content-type"] == "image/svg+xml"
    assert "var(" not in found.text
    assert "<script" not in found.text
    newest = closed.get("/streams/hall/releases?since=48&columns=south").json()["releases"][0]
    title, said, *_, promise = words(found.text)
    assert "south" in title
    assert f": {newest['values'][0]:,.0f} (" in said
    assert "3 March 2026, 23:00 (Europe/Berlin)" in said
    assert "ε = 1" in promise
    again = closed.get(
        "/streams/hall/chart.svg?column=south&steps=24", headers={"If-None-Match": found.headers["etag"]}
    )
    assert again.status_code == 304
    dark = closed.get("/streams/hall/chart.svg?column=south&steps=24&theme=dark")
    assert dark.text != found.text
    assert dark.headers["etag"] != found.headers["etag"]
    for wrong in ("column=attic", "steps=0", "steps=10001", "theme=pink", "colour=red"):
        assert closed.get(f"/streams/hall/chart.svg?{wrong}").status_code == 400
    assert closed.get("/streams/nowhere/chart.svg").status_code == 404


def test_one_of_several_queries_is_shown(tmp_path: Path) -> None:
    """By its name; a frame that names none shows the first, and keeps what it asks for."""
    with served([two_queries(tmp_path)], tokens=tmp_path / "tokens.json", embed=("*",)) as (address, service):
        settled(service)
        with httpx.Client(base_url=address) as client:
            assert client.get("/streams/hall/visits/chart.svg").status_code == 200
            assert client.get("/streams/hall/chart.svg").status_code == 404
            assert client.get("/embed/hall/visits").status_code == 200
            moved = client.get("/embed/hall?column=south")
            assert moved.headers["location"].endswith("/embed/hall/people?column=south")
            assert "frame-ancestors *" in client.get("/embed/hall/people").headers["content-security-policy"]


@pytest.mark.parametrize(
    "origin", ["example.org", "https://example.org/page", "https://a b", "'self'; script-src *", ""]
)
@pytest.mark.parametrize("name", ["cors", "embed"])
def test_what_is_no_origin_is_refused(tmp_path: Path, name: str, origin: str) -> None:
    """Before a stream is opened: it would stand in a header."""
    with pytest.raises(InvalidParameter, match=name):
        Service([], Settings(tokens=tmp_path / "tokens.json", **{name: (origin,)}))


def test_a_page_of_another_origin_shows_the_chart(chromium: Any, tmp_path: Path) -> None:
    """In a real browser: picture, frame and script work where they are allowed, and only there."""
    with somebody_else(tmp_path) as (page, origin):
        for embed in ((origin,), (HERE,), ()):  # for pictures browsers know no list of origins
            folder = tmp_path / str(len("".join(embed)))
            folder.mkdir()
            with served([finite(folder)], tokens=folder / "tokens.json", cors=embed, embed=embed) as (
                address,
                service,
            ):
                settled(service)
                page.write_text(
                    f'<img id="picture" src="{address}/streams/hall/chart.svg">'
                    f'<iframe id="frame" src="{address}/embed/hall?column=south" width="800" height="500"></iframe>'
                    f'<script>fetch("{address}/streams").then((found) => found.json()).then('
                    '(found) => (document.title = "read"), () => (document.title = "refused"))</script>'
                )
                # an address of its own: pages that were written within one second are one to a browser's cache
                chromium.get(f"{origin}/page.html?{folder.name}")
                until(lambda: chromium.title)
                allowed = embed == (origin,)
                assert chromium.title == ("read" if allowed else "refused")
                until(lambda: chromium.execute_script("return document.getElementById('picture').complete"))
                assert (chromium.execute_script(WIDTH) > 0) == bool(embed)
                chromium.switch_to.frame("frame")
                if allowed:
                    until(
                        lambda: chromium.execute_script(
                            "return document.querySelector('#stage canvas') !== null"
                        )
                    )
                    text = chromium.find_element("id", "plusminus").text
                    assert "in south" in text
                else:
                    assert not chromium.find_elements("id", "stage")
                chromium.switch_to.default_content()


class somebody_else:  # noqa: N801  # a context manager
    """A server of another origin, with one page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> tuple[Path, str]:
        folder = str(self.folder)

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given, directory=folder)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.folder / "page.html", f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
