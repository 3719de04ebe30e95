"""An MQTT broker: its address, the login and the certificates with which a client comes."""

from __future__ import annotations

import importlib
import socket
import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.errors import InvalidParameter, TidegateError, port_of

FILES = ("sslrootcert", "sslcert", "sslkey")  # as PostgreSQL calls them


class BrokerAddress:
    """Where a broker and a topic are: "mqtts://user@host:8883/topic?sslrootcert=ca.pem&sslcert=me.pem&sslkey=me.key".

    Parameters
    ----------
    url
        The address; "mqtt://…" without encryption. Over TLS the broker's certificate must be one of `sslrootcert`, or of
        the system's authorities, and have the host's name. `sslcert` and `sslkey` name the client's own, which some
        brokers ask for. A password may be in it only for a program of one's own; a configuration names it.

    Examples
    --------
    >>> found = BrokerAddress("mqtts://ann@host/sensors/#?sslrootcert=ca.pem")
    >>> found.port, found.topic, found.files
    (8883, 'sensors/#', {'sslrootcert': 'ca.pem'})
    """

    def __init__(self, url: str) -> None:
        address, _, query = url.partition("?")
        parts = urlsplit(address)
        shown = f"{parts.scheme}://{parts.hostname or ''}" if "#" not in parts.netloc else "mqtt://…"
        self.encrypted = parts.scheme == "mqtts"
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or len(parts.path) < 2:
            raise InvalidParameter(
                "location",
                shown,
                "a broker and a topic",
                'write for example "mqtt://localhost:1883/sensors/#"',
            )
        self.host = parts.hostname
        self.port = port_of("location", parts) or (8883 if self.encrypted else 1883)
        ending = f"#{parts.fragment}" if address.endswith("#") or parts.fragment else ""
        self.topic = unquote(parts.path[1:]) + ending
        self.files = dict(parse_qsl(query, keep_blank_values=True))
        if set(self.files) - set(FILES) or (self.files and not self.encrypted):
            raise InvalidParameter(
                "location",
                shown,
                f"an address with no other parameters than {', '.join(FILES)}, and those with mqtts://",
                'write for example "mqtts://host/topic?sslrootcert=ca.pem"',
            )
        if ("sslkey" in self.files) != ("sslcert" in self.files):
            raise InvalidParameter("location", shown, "both sslcert and sslkey, or none", "name both files")
        self._user = None if parts.username is None else unquote(parts.username)
        self._password = None if parts.password is None else unquote(parts.password)

    @property
    def place(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def client(self, refusal: type[TidegateError], **own: Any) -> Any:
        """A client that knows its login and its certificates and comes back when it was cut off."""
        paho = library("client", refusal)
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, **own)
        self.introduce(client)
        client.reconnect_delay_set(min_delay=1, max_delay=15)
        return client

    def introduce(self, client: Any) -> None:
        """Give a client its login and its certificates."""
        if self._user:
            client.username_pw_set(self._user, self._password)
        if self.encrypted:
            client.tls_set_context(self._context())

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.files.get("sslrootcert"))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if "sslcert" in self.files:
                # a password would be asked for at a terminal that nobody looks at
                context.load_cert_chain(self.files["sslcert"], self.files["sslkey"], password="")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise InvalidParameter(
                "location",
                f"mqtts://{self.host}",
                f"one whose sslrootcert, sslcert and sslkey are PEM files, the key without a password ({reason})",
                "correct these files",
            ) from None
        return context

    def trouble(self, patience: float = 3.0) -> str:
        """Why a connection cannot be made, in a few words; empty if it can, as far as TLS goes."""
        try:
            with socket.create_connection((self.host, self.port), timeout=patience) as plain:
                if self.encrypted:
                    with self._context().wrap_socket(plain, server_hostname=self.host):
                        pass
        except ssl.SSLCertVerificationError as error:
            return f"its certificate is not trusted: {error.verify_message}"
        except ssl.SSLError as error:
            return f"TLS fails: {error.reason or type(error).__name__}"
        except OSError as error:
            return error.strerror or type(error).__name__
        return ""


def library(module: str, refusal: type[TidegateError]) -> Any:
    """A module of the client library, which is an extra."""
    try:
        return importlib.import_module(f"paho.mqtt.{module}")
    except ImportError:
        pass
    raise refusal('a broker needs the extra "mqtt"; install tidegate[mqtt].')
