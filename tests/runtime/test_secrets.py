"""No password is ever shown, and no slip of the pen replaces a file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import settings

from tidegate.cli import main
from tidegate.config.errors import ConfigError
from tidegate.config.secrets import expanded, holds_secret
from tidegate.errors import InvalidParameter, TidegateError, without_secrets

SECRET = "xyzzy"
ADDRESSES = [
    f"mqtt://ann:{SECRET}@127.0.0.1:1/#",
    f"mqtt://ann:a#{SECRET}@127.0.0.1:1/topic",
    f"mqtt://ann:{SECRET}@127.0.0.1:99999/topic",
    f"mqtt://ann:{SECRET}@127.0.0.1:port/topic",
    f"mqt://ann:{SECRET}@127.0.0.1/topic",
    f"mqtt:/ann:{SECRET}@127.0.0.1/topic",
    f"postgress://ann:{SECRET}@127.0.0.1/db#campus",
    f"postgresql:/ann:{SECRET}@127.0.0.1/db#campus",
    f"postgresql://ann:a#{SECRET}@127.0.0.1:1/db#campus",
    f"postgresql://ann:{SECRET}@127.0.0.1:1/db#campus",
    f"postgresql://ann:{SECRET}@127.0.0.1:99999/db#campus",
    f"postgresql://127.0.0.1:1/db?user=ann&password={SECRET}#campus",
    f"postgresql://ann:{SECRET}@127.0.0.1:1/db?table=released",
    f"postgresql://127.0.0.1:1/db?table=released&user=ann&password={SECRET}",
    f"POSTGRESQL://ann:{SECRET}@127.0.0.1:1/db#campus",
]


@pytest.mark.parametrize("machine", [[], ["--json"]])
@pytest.mark.parametrize("key", ["sink", "ledger"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_passwords_are_never_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], address: str, key: str, machine: list[str]
) -> None:
    """Addresses that cannot be used, with every slip of the pen: one sentence without the password, and no file."""
    change = (
        ("window = 4", f'window = 4\nledger = "{address}"')
        if key == "ledger"
        else (f'location = "{tmp_path}/out.csv"', f'location = "{address}"')
    )
    with suppress(ConfigError):  # a password in the file is refused, once it is one
        settings(tmp_path, change)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert main(["release", str(tmp_path / "tidegate.toml"), *machine]) == 2
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err
    assert shown.err.count("\n") == 1
    assert "unexpected" not in shown.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    if key == "ledger":
        assert main(["ledger", "show", address]) == 2
        assert SECRET not in "".join(capfd.readouterr())


def test_a_summary_shows_no_password(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    broker: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither for people nor for machines."""
    broker.start()
    monkeypatch.setenv("BROKER_PASSWORD", SECRET)
    address = broker.url.replace("//", "//ann:${BROKER_PASSWORD}@") + "/released"
    settings(tmp_path, (f'location = "{tmp_path}/out.csv"', f'location = "{address}"'))
    for machine in ([], ["--json"]):
        assert main(["release", str(tmp_path / "tidegate.toml"), *machine]) == 0
        shown = "".join(capfd.readouterr())
        assert SECRET not in shown
        assert "/released" in shown.replace("\n", "")


def test_every_error_forgets_passwords() -> None:
    """Also one that was made from the text of another."""
    assert SECRET not in str(TidegateError(f"the server at http://ann:{SECRET}@host is away"))
    assert (
        without_secrets("/data/ann@home/out.csv: nothing to hide")
        == "/data/ann@home/out.csv: nothing to hide"
    )


@pytest.mark.parametrize(
    "name", ["tidegate.ledger", "tidegate.toml", "events.csv", "out.csv", "out.csv.receipt"]
)
def test_a_report_replaces_no_other_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Ledger, configuration, data, output, receipt: refused before anything runs; an earlier report is replaced."""
    settings(tmp_path)
    toml = str(tmp_path / "tidegate.toml")
    assert main(["release", toml, "--report", str(tmp_path / "report.html")]) == 0
    before = (tmp_path / name).read_bytes()
    capsys.readouterr()
    assert main(["release", toml, "--report", str(tmp_path / name)]) == 2
    assert re.search("holds something else|a file of its own", capsys.readouterr().err)
    assert (tmp_path / name).read_bytes() == before
    assert main(["release", toml, "--report", str(tmp_path / "report.html")]) == 0


def test_planted_files_beside_a_report_are_left_alone(tmp_path: Path) -> None:
    """A link or a file under the name of a temporary one: not followed, not read by others, not replaced."""
    settings(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".report.html.tmp", ".out.csv.receipt.tmp"):
        (tmp_path / name).symlink_to(victim)
    before = os.umask(0)
    try:
        toml = str(tmp_path / "tidegate.toml")
        assert main(["release", toml, "--report", str(tmp_path / "report.html"), "--compare-truth"]) == 0
    finally:
        os.umask(before)
    assert victim.read_text() == "mine"
    assert ((tmp_path / "report.html").stat().st_mode & 0o777) == 0o600
    assert not (tmp_path / "report.html").is_symlink()


@pytest.mark.parametrize(
    ("location", "holds"),
    [
        ("mqtt://ann:hunter2@host/topic", True),
        ("mqtt://ann:hunter2${X}@host/topic", True),
        ("mqtt://:hunter2@host/topic", True),
        ("MQTT://ann:hunter2@host/topic", True),
        ("postgresql://ann@host/db?password=hunter2", True),
        ("postgresql://ann@host/db?a=b&sslpassword=hunter2#campus", True),
        ("mqtt://ann:${X}@host/topic", False),
        ("mqtt://ann:${file:secret.txt}@host/topic", False),
        ("mqtt://ann@host:1883/topic/a@b", False),
        ("postgresql://ann@host/db?password=${X}&passfile=pass#campus", False),
        ("/data/ann:x@home/out.csv", False),
        ("out.csv", False),
    ],
)
def test_a_password_in_the_configuration_is_refused(tmp_path: Path, location: str, holds: bool) -> None:
    """In every address; the sentence names the line and both remedies."""
    assert holds_secret(location) == holds
    for change in (
        ("window = 4", f'window = 4\nledger = "{location}"'),
        (f'location = "{tmp_path}/out.csv"', f'location = "{location}"'),
        (f'location = "{tmp_path}/events.csv"', f'location = "{location}"'),
    ):
        if holds:
            with pytest.raises(ConfigError, match=r"line \d+: .*\$\{NAME\}.*environment.*\$\{file:path\}"):
                settings(tmp_path, change)


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written so that no character of them can be taken for a part of the address."""
    monkeypatch.setenv("HERE", "a/b@c#d?e:f%")
    (tmp_path / "secret.txt").write_text("from a file\n")
    monkeypatch.setenv("THERE_FILE", "secret.txt")
    quoted = "a%2Fb%40c%23d%3Fe%3Af%25"
    assert expanded("mqtt://ann:${HERE}@host/t", tmp_path) == f"mqtt://ann:{quoted}@host/t"
    assert expanded("mqtt://ann:${THERE}@host/t", tmp_path) == "mqtt://ann:from%20a%20file@host/t"
    assert expanded("mqtt://ann:${file:secret.txt}@host/t", tmp_path) == "mqtt://ann:from%20a%20file@host/t"
    assert expanded("a${HERE}.csv", tmp_path) == "a${HERE}.csv"
    found = expanded("mqtts://host/t?sslrootcert=ca.pem&sslkey=/etc/key", tmp_path)
    assert found == f"mqtts://host/t?sslrootcert={tmp_path}/ca.pem&sslkey=/etc/key"
    for name, words in (
        ("ABSENT", "set ABSENT, or ABSENT_FILE"),
        ("file:absent", "No such file"),
        ("a b", "MQTT"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            expanded(f"mqtt://ann:${{{name}}}@host/t", tmp_path)
