"""Where the service listens, and for whom: refusals, TLS by file, a proxy in front of it, tokens, an orderly end."""

from __future__ import annotations

import datetime
import importlib.util
import ipaddress
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.web.helpers import Process, finite, live_text, served, settled, write_events

from tidegate.cli import main
from tidegate.config import parse_config
from tidegate.errors import InvalidParameter
from tidegate.web import Service, Settings
from tidegate.web.tokens import Tokens
from waiting import LIMIT, until

ROOT = Path(__file__).resolve().parents[2]


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine's own, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "counts.pem", folder / "counts.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(*encoding))
    return files


def test_elsewhere_it_needs_tokens(tmp_path: Path) -> None:
    """Without a token it listens on this machine only, and says how to make one."""
    config = finite(tmp_path)
    tokens = tmp_path / "tokens.json"
    with pytest.raises(InvalidParameter, match="tidegate serve token add operator"):
        Service([config], Settings(host="0.0.0.0", tokens=tokens))
    Tokens(tokens).add("operator", "you")
    service = Service([config], Settings(host="0.0.0.0", tokens=tokens))
    service.join()
    with pytest.raises(InvalidParameter, match="given together with --key"):
        Service([config], Settings(certificate=tmp_path / "c.pem"))


def test_two_streams_of_one_name_are_refused(tmp_path: Path) -> None:
    """The name of a file is the name of its stream."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(InvalidParameter, match="different names"):
        Service([finite(tmp_path / "a"), finite(tmp_path / "b")])
    with pytest.raises(InvalidParameter, match="letters"):
        Service([finite(tmp_path, name="no spaces")])


def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and exit code 2, before any stream is opened."""
    finite(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path / "hall.toml"), "--port", str(port)]) == 2
    assert "choose another with --port" in capsys.readouterr().err
    assert not (tmp_path / "hall.ledger").exists()


def test_tokens_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A token is shown once; the file has its hash only and is for its owner; it can be listed and revoked."""
    file = tmp_path / "tokens.json"
    assert (
        main(["serve", "token", "add", "producer", "--as", "gate", "--stream", "hall", "--tokens", str(file)])
        == 0
    )
    token = capsys.readouterr().out.strip()
    assert token.startswith("tide_")
    assert len(token) > 40
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    holder = Tokens(file).holder(token)
    assert holder is not None
    assert (holder.role, holder.streams) == ("producer", ("hall",))
    assert main(["serve", "token", "list", "--tokens", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == [
        {"name": "gate", "role": "producer", "streams": ["hall"]}
    ]
    assert main(["serve", "token", "add", "reader", "--as", "x", "--tokens", str(file)]) == 2
    assert main(["serve", "token", "add", "operator", "--as", "gate", "--tokens", str(file)]) == 2
    assert main(["serve", "token", "revoke", "gate", "--tokens", str(file)]) == 0
    assert Tokens(file).holder(token) is None


def test_a_token_is_revoked_while_the_service_runs(tmp_path: Path) -> None:
    """The next request is refused; a file that was damaged lets nobody in."""
    file = tmp_path / "tokens.json"
    token = Tokens(file).add("operator", "you")
    with served([finite(tmp_path)], tokens=file) as (address, _):

        def ask():
            return httpx.get(
                f"{address}/operator/streams/hall", headers={"Authorization": f"Bearer {token}"}
            ).status_code

        assert ask() == 200
        content = file.read_text()
        file.write_text(content[:-5])
        assert ask() == 401
        file.write_text(content)
        assert ask() == 200
        Tokens(file).revoke("you")
        assert ask() == 401


@pytest.mark.slow
def test_tls_by_file(tmp_path: Path) -> None:
    """With a certificate and its key it speaks TLS, and nothing else."""
    finite(tmp_path)
    pem, key = certificate(tmp_path)
    with Process([tmp_path / "hall.toml"], "--certificate", str(pem), "--key", str(key)) as process:
        assert process.address.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(pem))
        assert httpx.get(f"{process.address}/healthz", verify=trusted).json() == {"ok": True}
        with pytest.raises(httpx.HTTPError):
            httpx.get(process.address.replace("https", "http") + "/healthz")


def test_the_example_of_a_proxy(tmp_path: Path, require_service: Callable[[str, str], None]) -> None:
    """nginx with the example's file: TLS outside, releases passed on at once, its name known to the service."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        require_service("nginx", "the example of a proxy is tried")
    pem, key = certificate(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "hall.toml"
    config.write_text(live_text(tmp_path, behind=5))
    write_events(tmp_path, 0)
    with Process([config], "--name", "counts.example.org") as process:
        text = (ROOT / "docs" / "examples" / "nginx.conf").read_text()
        for before, after in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/etc/ssl/counts.pem", str(pem)),
            ("/etc/ssl/counts.key", str(key)),
            ("127.0.0.1:8470", f"127.0.0.1:{process.port}"),
        ):
            assert before in text
            text = text.replace(before, after)
        paths = "".join(
            f"{name}_temp_path {tmp_path}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        main_part = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}"
        whole = f"{main_part} http {{ access_log off; {paths} {text} }}"
        (tmp_path / "nginx.conf").write_text(whole)
        proxy = subprocess.Popen([str(program), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
        try:
            client = httpx.Client(
                base_url=f"https://127.0.0.1:{port}", verify=False, headers={"Host": "counts.example.org"}
            )
            until(lambda: _answers(client))
            with client.stream("GET", "/streams/hall/live", timeout=LIMIT) as feed:
                numbers = []
                for line in feed.iter_lines():
                    if line.startswith("id: "):
                        numbers.append(int(line[4:]))
                    if len(numbers) == 3:
                        break
            assert numbers == list(range(numbers[0], numbers[0] + 3))
            assert client.get("/").status_code == 200
            assert client.get("/streams", headers={"Host": "other.example.org"}).status_code == 421
            client.close()
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(LIMIT)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.slow
def test_an_orderly_end(tmp_path: Path) -> None:
    """SIGTERM: clients of the feed are let go, the stream is closed, the exit code is 0, and logs are JSON lines."""
    config = tmp_path / "hall.toml"
    config.write_text(live_text(tmp_path, behind=5))
    write_events(tmp_path, 0)
    process = Process([config])
    process.start()
    with (
        httpx.Client(base_url=process.address, timeout=LIMIT) as client,
        client.stream("GET", "/streams/hall/live") as feed,
    ):
        lines = feed.iter_lines()
        until(lambda: next(lines).startswith("id: "))
        assert process.stop() == 0
    events = [json.loads(line)["event"] for line in process.logs.read_text().splitlines()]
    assert events[0] == "service.started"
    assert events[-1] == "service.stopped"
    assert "stream.released" in events


@pytest.mark.slow
def test_a_stream_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    """A source that is gone: its stream says so and tries again, the other continues, readiness tells."""
    fine = finite(tmp_path)
    text = live_text(tmp_path).replace("events.csv", "gone.csv")
    (tmp_path / "attic.toml").write_text(text)
    broken = parse_config(text, tmp_path / "attic.toml")
    with served([fine, broken]) as (address, service):
        settled(service)
        until(lambda: service.drivers["attic"].state == "failed")
        assert httpx.get(f"{address}/readyz").status_code == 503
        assert httpx.get(f"{address}/healthz").status_code == 200
        assert "gone.csv" not in httpx.get(f"{address}/streams/attic").text
        (tmp_path / "gone.csv").write_text("time,unit,place\n")
        until(lambda: service.drivers["attic"].state == "running")
        until(lambda: service.drivers["attic"].first.board.step > 0)
        assert httpx.get(f"{address}/readyz").status_code == 200


@pytest.mark.slow
def test_the_made_up_campus(tmp_path: Path) -> None:
    """`make serve`: two weeks are there at once, hours go by quickly, and nothing is left when it ends.

    At any hour 1,200 devices or more are there. A busy machine sends events of some hours too late to count, so the
    test waits for an hour whose sum is above 1,000: that comes on every machine that sends in time now and then. Where
    no event counts, sums are noise with a deviation of about 83: one step in 10^12 would pass.
    """
    command = [sys.executable, "-m", "tidegate", "serve", "demo", "--port", "0", "--hour", "0.5", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        address = ready["address"]
        step = lambda: httpx.get(f"{address}streams/campus").json()["step"]  # noqa: E731
        first = step()
        assert first >= 336
        until(lambda: step() >= first + 3)

        def counted() -> bool:
            live = httpx.get(f"{address}streams/campus/releases?since={first + 2}").json()["releases"]
            return any(sum(release["values"]) > 1000 for release in live)

        until(counted)  # events are sent and counted
        assert httpx.get(f"{address}view/campus").status_code == 200
        operator = {"Authorization": f"Bearer {ready['operator_token']}"}
        assert httpx.get(f"{address}operator/streams/campus", headers=operator).json()["warnings"] is not None
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
        process.stdout.close()
    assert list(tmp_path.glob("tidegate-campus-*")) == []


def test_release_does_not_take_what_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream of sent events is for the service; the sentence says so."""
    (tmp_path / "hall.toml").write_text(live_text(tmp_path).replace(f"{tmp_path}/events.csv", "serve:"))
    assert main(["release", str(tmp_path / "hall.toml")]) == 2
    assert "start it with `tidegate serve`" in capsys.readouterr().err


def test_without_the_extra_the_service_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, for the service and for its tokens."""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: find(name) if name == "fcntl" else None)
    for words in (["serve", "hall.toml"], ["serve", "token", "list"], ["serve", "demo"]):
        assert main(words) == 2
        assert "install tidegate[web]" in capsys.readouterr().err
