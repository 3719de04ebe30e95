"""Webhooks: events sent to somebody's address, signed, in order, at least once, each with an id."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidegate.pipeline.json_log import log
from tidegate.pipeline.public_account import public_text
from tidegate.sinks.file_writing import replacing
from tidegate.web.alarms import Webhook
from tidegate.web.release_cache import ReleaseCache
from tidegate.web.release_encoding import Encoder

TIMEOUT = 10.0  # seconds for one attempt
PATIENCE = (1.0, 60.0)  # seconds before the next attempt: at first, and at most
PAGE = 100  # releases that are looked at together


class Sender:
    """Sends the events of one stream to one address, in a thread of its own.

    What was sent is remembered after the other side has acknowledged it, so an event may come twice, with the same id;
    none is left out. A hook that is new begins with what comes.

    Parameters
    ----------
    hook
        Where to.
    board, encoder
        What was released, and how it reads.
    key
        The stream's key: it signs the body.
    file
        Where is remembered how far it has got.
    """

    def __init__(
        self, hook: Webhook, board: ReleaseCache, encoder: Encoder, key: Ed25519PrivateKey, file: Path
    ) -> None:
        self.hook, self.board, self.encoder, self.key, self.file = hook, board, encoder, key, file
        parts = urlsplit(hook.url)
        self.name = (
            f"{parts.scheme}://{parts.hostname}"  # a path, a user or a query may be the secret of an address
        )
        self.number = self._read()
        self._news, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"webhook {self.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """There is something new."""
        self._news.set()

    def stop(self) -> None:
        """End; what was not sent is sent after the next start."""
        self._stop.set()
        self._news.set()

    def _run(self) -> None:
        patience = PATIENCE[0]
        while not self._stop.is_set():
            self._news.clear()
            try:
                while self.number < self.board.number and not self._stop.is_set():
                    self._send_page()
                    patience = PATIENCE[0]
                self._news.wait()
            except (OSError, HTTPException, ValueError) as error:
                log("webhook.waiting", url=self.name, kind=type(error).__name__)
                self._stop.wait(patience)
                patience = min(2 * patience, PATIENCE[1])

    def _send_page(self) -> None:
        for number, events in self.encoder.messages(
            self.board, self.number, PAGE, releases=self.hook.releases
        ):
            for event in events:
                self._post(event)
            if events:
                self._write(number)
            self.number = number
            if self._stop.is_set():
                return
        self._write(self.number)

    def _post(self, event: dict[str, Any]) -> None:
        body = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {
            "Content-Type": "application/json",
            "Tidegate-Id": event["id"],
            "Tidegate-Key": public_text(self.key),
            "Tidegate-Signature": base64.b64encode(self.key.sign(body)).decode(),
        }
        request = urllib.request.Request(self.hook.url, body, headers, method="POST")
        with _OPENER.open(request, timeout=TIMEOUT):
            pass

    # how far it has got -------------------------------------------------------------------------------------

    def _read(self) -> int:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(self.file.read_text(encoding="utf-8"))[self.hook.url])
        return self.board.number

    def _write(self, number: int) -> None:
        with _FILES:
            found: dict[str, int] = {}
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(self.file.read_text(encoding="utf-8"))
            found[self.hook.url] = number
            with replacing(self.file, 0o600) as file:
                file.write(json.dumps(found).encode())


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address that has moved is a failure: signed events go nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Never."""


_OPENER = urllib.request.build_opener(_NoRedirect)
_FILES = threading.Lock()


def senders(
    hooks: tuple[Webhook, ...], board: ReleaseCache, encoder: Encoder, key: Ed25519PrivateKey, file: Path
) -> Iterator[Sender]:
    """A sender for every hook."""
    for hook in hooks:
        yield Sender(hook, board, encoder, key, file)
