"""TLS with certificates of an authority of our own: a real broker and a real database, and whoever is not let in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import release, settings

from tidegate.cli import main
from tidegate.errors import InvalidParameter
from tidegate.servers.broker import BrokerAddress


class Authority:
    """A made-up authority, with certificates for a server on this machine and for a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = self._root("ca")
        self.stranger = self._root("stranger")
        self.server = self._signed("server", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.client = self._signed("client", "tidegate", "extendedKeyUsage=clientAuth")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def _key(self, name: str) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
        (self.folder / f"{name}.key").chmod(0o600)

    def _root(self, name: str) -> Path:
        self._key(name)
        self._openssl(
            *f"req -x509 -new -key {name}.key -days 2 -subj /CN={name} -out {name}.pem "
            "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign".split()
        )
        return self.folder / f"{name}.pem"

    def _signed(self, name: str, subject: str, extension: str) -> tuple[Path, Path]:
        self._key(name)
        (self.folder / f"{name}.ext").write_text(extension + "\n")
        self._openssl(*f"req -new -key {name}.key -subj /CN={subject} -out {name}.csr".split())
        self._openssl(
            *f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.pem "
            f"-extfile {name}.ext".split()
        )
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Certificates for all tests of this file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, and certificates are made with it")
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def encrypted(broker: Any, authority: Authority) -> Any:
    """A broker that speaks TLS only, and only with those who have a certificate."""
    certificate, key = authority.server
    folder = broker.settings.parent
    for path in (authority.root, certificate, key):
        shutil.copy(path, folder / f"broker-{path.name}")
        (folder / f"broker-{path.name}").chmod(0o644)  # the broker gives up its rights
    folder.chmod(0o755)
    broker.settings.write_text(
        f"listener {broker.port} 127.0.0.1\nuser root\nallow_anonymous true\nmax_queued_messages 0\n"
        f"cafile {folder}/broker-ca.pem\ncertfile {folder}/broker-server.pem\nkeyfile {folder}/broker-server.key\n"
        "require_certificate true\nuse_identity_as_username true\n"
    )
    broker.start()
    return broker


def test_releases_reach_a_broker_over_tls(
    tmp_path: Path, encrypted: Any, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the authority and a certificate, named by paths from the configuration; without either, one sentence."""
    for path in (authority.root, authority.stranger, *authority.client):
        shutil.copy(path, tmp_path / path.name)
    place = f"mqtts://localhost:{encrypted.port}/released"
    mine = "sslcert=client.pem&sslkey=client.key"

    def check(location: str) -> tuple[int, str]:
        settings(tmp_path, (f'location = "{tmp_path}/out.csv"', f'location = "{location}"'))
        code = main(["check", str(tmp_path / "tidegate.toml")])
        shown = capsys.readouterr()
        return code, " ".join((shown.out + shown.err).split())

    assert check(f"{place}?sslrootcert=ca.pem&{mine}")[0] == 0
    code, words = check(f"{place}?sslrootcert=stranger.pem&{mine}")
    assert (code, "its certificate is not trusted" in words) == (2, True)
    assert check(f"{place}?{mine}")[0] == 2  # the system's authorities do not know it either
    assert check(f"{place}?sslrootcert=ca.pem")[0] == 2  # no certificate of one's own
    assert check(f"{place.replace('mqtts', 'mqtt')}")[0] == 2
    code, words = check(f"{place.replace('localhost', '127.0.0.2')}?sslrootcert=ca.pem&{mine}")
    assert code == 2
    assert check(f"{place}?sslrootcert=ca.pem&{mine}")[0] == 0
    assert release(settings_of(tmp_path)).step == 12


def settings_of(folder: Path) -> Any:
    """The configuration that stands in a folder."""
    from tidegate.config import read_config

    return read_config(folder / "tidegate.toml")


def test_events_come_over_tls(tmp_path: Path, encrypted: Any, authority: Authority) -> None:
    """What a device publishes with its certificate arrives at the source."""
    import paho.mqtt.client as paho

    from tidegate.ingest.sources.mqtt import MqttSource

    certificate, key = authority.client
    files = f"sslrootcert={authority.root}&sslcert={certificate}&sslkey={key}"
    source = MqttSource(f"mqtts://localhost:{encrypted.port}/sensors/#?{files}", ["time"], settle=0.2)
    source.begin("test", ())
    batches = source.batches(patience=lambda: 0.05)
    while not source.status.startswith("connected"):
        next(batches)
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    device.tls_set(str(authority.root), str(certificate), str(key))
    device.connect("localhost", encrypted.port)
    device.loop_start()
    device.publish("sensors/a", b'{"time": 5}', qos=1).wait_for_publish(10)
    rows = 0
    while not rows:
        rows += len(next(batches).frame)
    assert rows == 1
    assert source.trouble() == ""
    source.close()
    device.disconnect()
    device.loop_stop()
    encrypted.stop()
    assert source.trouble() != ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt://host/topic?sslrootcert=ca.pem", "mqtts"),
        ("mqtts://host/topic?cafile=ca.pem", "sslrootcert"),
        ("mqtts://host/topic?sslcert=a.pem", "both sslcert and sslkey"),
        ("mqtts://ann:xyzzy@host", "a broker and a topic"),
    ],
)
def test_wrong_addresses_of_brokers(url: str, words: str) -> None:
    """One sentence, never with a password."""
    with pytest.raises(InvalidParameter, match=words) as caught:
        BrokerAddress(url)
    assert "xyzzy" not in str(caught.value)


def test_files_that_are_no_certificates(tmp_path: Path, authority: Authority) -> None:
    """Absent, no PEM, or a key with a password, which nobody could type: one sentence, and no question."""
    import paho.mqtt.client as paho

    (tmp_path / "text").write_text("hello")
    certificate, key = authority.client
    locked = tmp_path / "locked.key"
    subprocess.run(
        f"openssl ec -in {key} -aes256 -passout pass:secret -out {locked}".split(),
        check=True,
        capture_output=True,
    )
    for query in (
        "sslrootcert=/absent",
        f"sslrootcert={tmp_path}/text",
        f"sslcert={certificate}&sslkey={locked}",
        f"sslcert={certificate}&sslkey={tmp_path}/text",
    ):
        with pytest.raises(InvalidParameter, match="PEM files"):
            BrokerAddress(f"mqtts://host/t?{query}").introduce(paho.Client(paho.CallbackAPIVersion.VERSION2))


def test_a_ledger_in_postgresql_over_tls(
    tmp_path: Path, postgres: Any, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is checked by its authority, the worker by its certificate; a stranger's authority is refused."""
    data = postgres.folder / "data"
    for source, name in (
        (authority.root, "root.crt"),
        *zip(authority.server, ("server.crt", "server.key"), strict=True),
    ):
        shutil.copy(source, data / name)
        if os.getuid() == 0:
            shutil.chown(data / name, postgres.user)
        (data / name).chmod(0o600)
    rules, before = data / "pg_hba.conf", (data / "pg_hba.conf").read_text()
    url = postgres.new_stream()
    try:
        rules.write_text("hostssl all tidegate 127.0.0.1/32 cert\nlocal all all trust\n")
        with (data / "postgresql.auto.conf").open("a") as file:
            file.write("ssl = on\nssl_ca_file = 'root.crt'\n")
        postgres.stop()
        postgres.start()
        for path in (authority.root, authority.stranger, *authority.client):
            shutil.copy(path, tmp_path / path.name)
            (tmp_path / path.name).chmod(0o600)

        def place(root: str, more: str) -> str:
            return url.replace("127.0.0.1", "localhost").replace(
                "#", f"?sslmode=verify-full&sslrootcert={root}{more}#"
            )

        mine = "&sslcert=client.pem&sslkey=client.key"
        for root, more, code in (("stranger.pem", mine, 2), ("ca.pem", "", 2), ("ca.pem", mine, 0)):
            settings(tmp_path, ("window = 4", f'window = 4\nledger = "{place(root, more)}"'))
            assert main(["release", str(tmp_path / "tidegate.toml")]) == code, capsys.readouterr().err
    finally:
        rules.write_text(before)
        (data / "postgresql.auto.conf").write_text("")
        postgres.stop()
        postgres.start()
