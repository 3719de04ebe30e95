from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from tests.web.helpers import configured, finite, served, settled, two_queries

from tidegate.config import Config, ConfigError, parse_config, parse_queries
from tidegate.web.alarms import Webhook, read_alarms
from tidegate.web.webhooks import Sender
from waiting import until

ALARMS = """
[[alarm]]
name = "crowd"
column = "north"
above = 10
sure = true

[[alarm]]
name = "nobody"
column = "south"
below = 0.5

[[webhook]]
url = "{url}"
"""


def crowded(folder: Path, url: str = "http://127.0.0.1:1/") -> Config:
    """Forty units in the north in hours 5 to 9 and three else; nobody in the south from hour 20 on. No noise."""
    lines = ["time,unit,place"]
    for hour in range(48):
        day, at = divmod(hour, 24)
        when = f"2026-03-{2 + day:02d}T{at:02d}:30"
        lines += [f"{when},walrus{k},north" for k in range(40 if 5 <= hour < 10 else 3)]
        lines += [f"{when},seal,south"] if hour < 20 else []
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    (folder / "hall.alarms.toml").write_text(ALARMS.format(url=url))
    return configured(folder, ('epsilon = "1"', 'epsilon = "400"'), ("window = 4", "window = 1"))


def feed(address: str, headers: dict[str, str], until_number: int) -> list[tuple[str, dict[str, object]]]:
    """Events of the live feed up to a release."""
    found, kind = [], ""
    with httpx.stream("GET", f"{address}/streams/hall/live?after=0", headers=headers, timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                found.append((kind, json.loads(line[6:])))
                if found[-1][1].get("number") == until_number:
                    return found
    return found


def test_alarms_come_with_the_feed(tmp_path: Path) -> None:
    """Raised and cleared once each, before the release that did it, with the same ids after a restart."""
    config = crowded(tmp_path)
    seen = []
    for _ in range(2):
        with served([config]) as (address, service):
            settled(service)
            events = feed(address, {}, 48)
            alarms = [event for kind, event in events if kind == "alarm"]
            seen.append(alarms)
            assert [(each["alarm"], each["state"], each["step"]) for each in alarms] == [
                ("crowd", "raised", 6),
                ("crowd", "cleared", 11),
                ("nobody", "raised", 21),
            ]
            at = next(index for index, (kind, _) in enumerate(events) if kind == "alarm")
            assert events[at + 1][1]["step"] == 6
            assert [
                event["alarm"]
                for kind, event in feed(address, {"Last-Event-ID": "15"}, 48)
                if kind == "alarm"
            ] == ["nobody"]
            found = httpx.get(f"{address}/streams/hall").json()["alarms"]
            assert [(each["name"], each["raised"]) for each in found] == [("crowd", False), ("nobody", True)]
    assert seen[0] == seen[1]


class Receiver:
    """Somebody's address: takes what is sent, and refuses now and then."""

    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.refuse = 3
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.refuse -= 1
                if receiver.refuse < 0:
                    receiver.taken.append((dict(self.headers), body))
                self.send_response(200 if receiver.refuse < 0 else 500)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Somebody's address."""
    monkeypatch.setattr("tidegate.web.webhooks.PATIENCE", (0.05, 0.2))
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_logs_do_not_tell_the_path_of_a_webhook(tmp_path: Path) -> None:
    """It may be the secret of the address, as the user, the password and the query may."""
    hook = Webhook("https://user:walrus@hooks.example.org/services/T0/walrus?key=walrus", releases=False)
    board = SimpleNamespace(number=0)
    sender = Sender(hook, board, None, None, tmp_path / "sent")  # type: ignore[arg-type]
    assert sender.name == "https://hooks.example.org"


def test_webhooks_are_signed_and_come_at_least_once(tmp_path: Path, receiver: Receiver) -> None:
    """Refused ones come again, in order; the stream's key has signed them; after a restart nothing is repeated."""
    config = crowded(tmp_path, receiver.url)
    with served([config]) as (_, service):
        until(lambda: len(receiver.taken) >= 3)
        key = service.publishing.public("hall")
    events = []
    for headers, body in receiver.taken:
        assert headers["Tidegate-Key"] == key
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key))
        public.verify(base64.b64decode(headers["Tidegate-Signature"]), body)
        events.append(json.loads(body))
        assert events[-1]["id"] == headers["Tidegate-Id"]
        assert "walrus" not in body.decode()
    assert [(each["alarm"], each["state"]) for each in events] == [
        ("crowd", "raised"),
        ("crowd", "cleared"),
        ("nobody", "raised"),
    ]
    with served([config]) as (_, service):
        settled(service)
        sender = service.drivers["hall"].first.senders[0]
        until(lambda: sender.number == 48)
    assert len(receiver.taken) == 3


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[alarm]",
        '[[alarm]]\nname = "a"\ncolumn = "east"\nabove = 1',
        '[[alarm]]\nname = "a"\ncolumn = "north"',
        '[[alarm]]\nname = "a"\ncolumn = "north"\nabove = 1\nbelow = 2',
        '[[alarm]]\nname = "a"\ncolumn = "north"\nabove = "1"',
        '[[alarm]]\nname = "a"\ncolumn = "north"\nabove = 1\nmore = 2',
        '[[alarm]]\nname = "a"\ncolumn = "north"\nabove = 1\n[[alarm]]\nname = "a"\ncolumn = "north"\nabove = 2',
        '[[webhook]]\nurl = "ftp://x/"',
        '[[webhook]]\nurl = "https://user:secret@example.org/"',
        "[[webhook]]\nurl = 3",
    ],
)
def test_wrong_alarms_are_refused(tmp_path: Path, text: str) -> None:
    """One sentence at the start, with the name of the file."""
    config = finite(tmp_path)
    (tmp_path / "hall.alarms.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"hall\.alarms\.toml"):
        read_alarms(config)


def test_standing_questions_raise_alarms_and_are_served(tmp_path: Path) -> None:
    """An [[answer]] of kind alarm comes in the feed for each column, and every answer can be downloaded."""
    config = crowded(tmp_path)
    (tmp_path / "hall.alarms.toml").unlink()
    text = (
        config.path.read_text()
        + """
[[answer]]
name = "crowd"
kind = "alarm"
threshold = 20

[[answer]]
name = "daily"
kind = "window"
window = "calendar day"
"""
    )
    config.path.write_text(text)
    with served([parse_config(text, config.path)], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        found = [event for kind, event in feed(address, {}, 48) if kind == "alarm"]
        told = [
            (each["alarm"], each["column"], each["state"], each["step"], each["certain"]) for each in found
        ]
        assert told == [("crowd", "north", "raised", 6, True), ("crowd", "north", "cleared", 11, False)]
        described = httpx.get(f"{address}/streams/hall").json()
        assert [each["name"] for each in described["answers"]] == ["crowd", "daily"]
        daily = httpx.get(f"{address}{described['answers'][1]['address']}")
        assert daily.content == (tmp_path / "daily.csv").read_bytes()
        assert len(daily.text.splitlines()) == 1 + 48 * 2
        again = httpx.get(str(daily.url), headers={"If-None-Match": daily.headers["etag"]})
        assert again.status_code == 304
        assert httpx.get(f"{address}/streams/hall/answers/nothing").status_code == 404


def test_a_ratio_of_two_queries_is_served(tmp_path: Path) -> None:
    """At the address of the query that is divided, byte for byte as in its file."""
    path = two_queries(tmp_path).path
    text = (
        path.read_text()
        + """
[[answer]]
name = "part"
kind = "ratio"
query = "people"
of = "north"
by_query = "visits"
window = 24
"""
    )
    path.write_text(text)
    with served([parse_queries(text, path)], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        described = httpx.get(f"{address}/streams/hall/people").json()
        part = httpx.get(f"{address}{described['answers'][0]['address']}")
        assert part.content == (tmp_path / "part.csv").read_bytes()
        assert len(part.text.splitlines()) == 1 + 48
        assert "people north / visits" in part.text


def test_regions_are_columns_and_parts_of_their_whole(tmp_path: Path) -> None:
    """A hierarchy is served with all its nodes, and parents are the sums of their children."""
    config = crowded(tmp_path)
    (tmp_path / "hall.alarms.toml").unlink()
    (tmp_path / "regions.csv").write_text("column,region\nnorth,coast\nsouth,coast\n")
    text = config.path.read_text().replace(
        'columns = ["north", "south"]', 'columns = ["north", "south"]\nhierarchy = "regions.csv"'
    )
    config.path.write_text(text)
    with served([parse_config(text, config.path)], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        found = httpx.get(f"{address}/streams/hall/releases").json()
        at = {label: index for index, label in enumerate(found["columns"])}
        assert {"north", "south", "coast"} <= set(at)
        for each in found["releases"]:
            parts = each["values"][at["north"]] + each["values"][at["south"]]
            assert parts == pytest.approx(each["values"][at["coast"]])


def test_answers_of_several_queries_reach_webhooks(tmp_path: Path, receiver: Receiver) -> None:
    """An alarm that is an [[answer]] of one [[query]] is signed and sent once, also over a restart."""
    path = two_queries(tmp_path).path
    answer = '\n[[answer]]\nname = "full"\nkind = "alarm"\nquery = "people"\nthreshold = -100000\n'
    text = path.read_text() + answer
    path.write_text(text)
    path.with_suffix(".alarms.toml").write_text(f'[[webhook]]\nurl = "{receiver.url}"\n')
    queries = parse_queries(text, path)
    with served([queries], tokens=tmp_path / "tokens.json") as (address, service):
        settled(service)
        until(lambda: len(receiver.taken) >= 2)
        key = service.publishing.public("hall")
        columns = httpx.get(f"{address}/streams/hall/people").json()["columns"]
    events = []
    for headers, body in receiver.taken:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key))
        public.verify(base64.b64decode(headers["Tidegate-Signature"]), body)
        events.append(json.loads(body))
    assert {each["alarm"] for each in events} == {"full"}
    assert [each["state"] for each in events] == ["raised"] * columns
    assert len({each["id"] for each in events}) == len(events)
    with served([queries], tokens=tmp_path / "tokens.json") as (_, service):
        settled(service)
        senders = [each for channel in service.drivers["hall"].channels.values() for each in channel.senders]
        until(lambda: all(sender.number == 48 for sender in senders))
    assert len(receiver.taken) == len(events)
