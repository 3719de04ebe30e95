"""A topic of Apache Kafka: its address without a secret, and clients that write nothing to standard error."""

from __future__ import annotations

import importlib
import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.errors import InvalidParameter, MissingPart

SETTINGS = "TIDEGATE_KAFKA_SETTINGS"  # the environment's name for a file of settings
EXAMPLE = 'write for example "kafka://localhost:9092/sightings"'
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_silent = logging.getLogger("tidegate.kafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def is_topic(location: str) -> bool:
    """Whether a location is a topic of Kafka."""
    return location.startswith("kafka:")


class TopicAddress:
    """Where a topic is: "kafka://host:9092,other:9092/topic".

    Parameters
    ----------
    url
        The address. It holds no secret: ``?settings=client.properties`` names a file of settings of librdkafka, one
        ``name=value`` a line (`security.protocol`, `sasl.password`, `ssl.ca.location` …); or the environment's variable
        TIDEGATE_KAFKA_SETTINGS does.
    more
        Further parameters that are known.

    Examples
    --------
    >>> found = TopicAddress("kafka://one:9092,two/sightings")
    >>> found.servers, found.topic
    ('one:9092,two:9092', 'sightings')
    """

    def __init__(self, url: str, more: tuple[str, ...] = ()) -> None:
        parts = urlsplit(url)
        hosts, topic = parts.netloc.split(","), unquote(parts.path[1:])
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = next((name for name in given if name not in ("settings", *more)), None)
        right = url.startswith("kafka://") and all(_HOST.fullmatch(host) for host in hosts)
        if not right or "#" in url or not _TOPIC.fullmatch(topic):
            raise InvalidParameter(
                "location",
                f"{parts.scheme}://…",  # never what may be a password
                "an address of brokers and a topic, without user and password",
                f"{EXAMPLE}, and put secrets into a file that settings= names",
            )
        if unknown is not None:
            raise InvalidParameter(
                "location", f"…?{unknown}=…", "an address with known parameters only", "correct it"
            )
        self.topic = topic
        self.servers = ",".join(host if re.search(r":\d+$", host) else f"{host}:9092" for host in hosts)
        self.more = {name: value for name, value in given.items() if name in more}
        self._file = given.get("settings") or os.environ.get(SETTINGS)
        self.shown = f"topic {topic} at {self.servers}"

    def settings(self, **own: Any) -> dict[str, Any]:
        """What a client of librdkafka is made with; `own` have dots for underscores and go before the file's."""
        found: dict[str, Any] = {}
        if self._file:
            try:
                lines = Path(self._file).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                raise InvalidParameter(
                    "settings", self._file, "a file of name=value that can be read", "correct it"
                ) from None
            pairs = [
                line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#")
            ]
            found = {name.strip(): value.strip() for name, _, value in pairs}
        found.setdefault("reconnect.backoff.max.ms", "1000")
        found |= {name.replace("_", "."): value for name, value in own.items()}
        return {**found, "bootstrap.servers": self.servers, "client.id": "tidegate", "logger": _silent}

    def reader(self, **own: Any) -> Any:
        """A consumer that joins no group, reads what was committed, and reports the end of each partition."""
        settings = self.settings(
            group_id="tidegate",  # never joined
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            **own,
        )
        return library().Consumer(settings)


def library(module: str = "") -> Any:
    """The client library, which is an extra."""
    try:
        return importlib.import_module(f"confluent_kafka{module}")
    except ImportError:
        pass
    raise MissingPart('a topic of Kafka needs the extra "kafka"; install tidegate[kafka].')
