"""Services for tests: servers of their own, on free ports, as users without privileges."""

from __future__ import annotations

import datetime
import importlib.util
import ipaddress
import itertools
import json
import logging
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import Targets, listening_broker

from tiers import slow

# a program that tests start, with no examples: without Spark it cannot be imported
collect_ignore = [] if importlib.util.find_spec("pyspark") else ["spark_worker.py"]
Require = Callable[[str, str], None]
SILENT = logging.getLogger("tests.silent")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def free_port() -> int:
    """A port that nobody listens on, below those that systems give to clients: a client takes none of these."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Postgres:
    """A PostgreSQL server in a folder of its own. It refuses to run as root, so root lends it another user."""

    def __init__(
        self, programs: Path, user: str, *, primary: Postgres | None = None, folder: Path | None = None
    ) -> None:
        self.programs, self.user = programs, user
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
        if os.getuid() == 0:
            shutil.chown(self.folder, user)
        self.port = free_port()
        self._streams = itertools.count(1)
        data = str(self.folder / "data")
        if primary is None:
            self._run(
                *("initdb", "-D", data, "-U", "tidegate", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"),
                *(("--wal-segsize=1",) if folder else ()),
            )
        else:  # a replica, which follows it
            source = f"host=127.0.0.1 port={primary.port} user=tidegate application_name=replica"
            self._run("pg_basebackup", "-D", data, "-R", "-c", "fast", "-N", "-d", source)
        self.start()

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=check,
            user=self.user if os.getuid() == 0 else None,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-w", "-l", "log", "start")

    def stop(self) -> None:
        """Stop at once, as a crash would."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop", check=False)

    def promote(self) -> None:
        """Let a replica become a primary server."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def configure(self, *lines: str) -> None:
        """Add settings, and have them read."""
        with (self.folder / "data" / "postgresql.auto.conf").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
        self._run("pg_ctl", "-D", str(self.folder / "data"), "reload")

    def new_stream(self) -> str:
        """The URL of a stream that does not exist yet."""
        return f"postgresql://tidegate@127.0.0.1:{self.port}/postgres#stream_{next(self._streams)}"

    def close(self) -> None:
        """Stop and remove everything."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(require_service: Require) -> Iterator[Postgres]:
    """A PostgreSQL server for all tests of a process."""
    pytest.importorskip("psycopg")
    found = shutil.which("initdb")
    places = (
        [Path(found).resolve().parent]
        if found
        else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    if not places or not (places[0] / "initdb").exists():
        require_service("PostgreSQL", "initdb is not installed")
    user = "postgres"
    try:
        pwd.getpwnam(user)
    except KeyError:
        user = "nobody"
    server = Postgres(places[0], user)
    yield server
    server.close()


class Broker:
    """A Mosquitto broker on a free port."""

    def __init__(self, program: str, folder: Path) -> None:
        self.port = free_port()
        self.program = program
        self.settings = folder / "mosquitto.conf"
        self.settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.process = listening_broker(self.program, self.settings, self.port)

    def stop(self) -> None:
        """Stop, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None


@pytest.fixture(params=["sqlite", *slow("postgresql")])
def targets(request: pytest.FixtureRequest) -> Targets:
    """Makes a new place for a ledger; "" lets the worker use a file in the folder."""
    if request.param == "sqlite":
        return lambda: ""
    server = request.getfixturevalue("postgres")
    return lambda: str(server.new_stream())


@pytest.fixture
def broker(tmp_path: Path, require_service: Require) -> Iterator[Broker]:
    """A broker of its own for a test, not started yet."""
    pytest.importorskip("paho.mqtt.client")
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        require_service("Mosquitto", "no program of that name is installed")
    assert program is not None
    found = Broker(program, tmp_path)
    yield found
    found.stop()


KAFKA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tidegate", "kafka-4.1.0")
KAFKA_SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    user_ann="{password}";
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=6000
auto.create.topics.enable=false
"""


SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def certify(folder: Path, name: str) -> None:
    """A certificate of our own for 127.0.0.1: `name`.crt, and with its key in `name`.pem."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, day = ec.generate_private_key(ec.SECP256R1()), datetime.timedelta(days=1)
    called, now = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]),
        datetime.datetime.now(datetime.UTC),
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(
            called, called, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.crt").write_bytes(made)
    (folder / f"{name}.pem").write_bytes(secret + made)


class Kafka:
    """A Kafka broker of one node on free ports: one without secrets, and one with TLS and a password."""

    password = "only-for-ann-7"

    def __init__(self, java: str, folder: Path) -> None:
        self.folder, self.port, self.secure = folder, free_port(), free_port()
        certify(folder, "broker")
        certify(folder, "other")
        self._java = [java, "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA}/*"]
        self._settings = folder / "server.properties"
        self._settings.write_text(
            KAFKA_SETTINGS.format(
                port=self.port,
                secure=self.secure,
                controller=free_port(),
                folder=folder,
                password=self.password,
            )
        )
        self._topics = itertools.count(1)
        self._admin: Any = None
        self._producer: Any = None
        name = ["-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(self._settings)]
        self._run("kafka.tools.StorageTool", "format", "--standalone", *name).wait(60)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*self._java, program, *arguments], stdout=log, stderr=log)

    @property
    def servers(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        from confluent_kafka import KafkaException

        self.process = self._run("kafka.Kafka", str(self._settings))
        for _ in range(300):
            assert self.process.poll() is None, "the broker has ended; see its log"
            try:
                self.admin().list_topics(timeout=1)
                return
            except KafkaException:
                time.sleep(0.1)
        raise AssertionError("the broker does not answer")

    def stop(self) -> None:
        """Stop, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def admin(self) -> Any:
        """A client that makes and changes topics."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:  # it must outlive its answers
            self._admin = AdminClient(
                {"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 500, "logger": SILENT}
            )
        return self._admin

    def make_anew(self, topic: str) -> None:
        """Delete a topic, and make another one of that name."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        self.admin().delete_topics([topic])[topic].result(20)
        for _ in range(100):
            try:
                self.admin().create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
                break
            except KafkaException:  # it is still there
                time.sleep(0.1)
        self._known(topic, 1)

    def topic(self, partitions: int = 1) -> str:
        """A new topic; returns its name."""
        from confluent_kafka.admin import NewTopic

        name = f"topic-{next(self._topics)}"
        for made in self.admin().create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(20)
        self._known(name, partitions)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        from confluent_kafka.admin import NewPartitions

        for grown in self.admin().create_partitions([NewPartitions(topic, partitions)]).values():
            grown.result(20)
        self._known(topic, partitions)

    def _known(self, topic: str, partitions: int) -> None:
        """Wait until everybody may know of the partitions, which is a moment after they were made."""
        for _ in range(200):
            found = self.admin().list_topics(topic, timeout=20).topics[topic].partitions
            if len(found) == partitions and all(one.leader >= 0 for one in found.values()):
                return
            time.sleep(0.05)
        raise AssertionError("the topic is not there")

    def url(self, topic: str) -> str:
        """The location of a topic."""
        return f"kafka://{self.servers}/{topic}"

    def send(self, topic: str, records: Iterable[tuple[int, bytes | None]], *, grown: bool = False) -> None:
        """Records for partitions, of which some may be new; returns when the broker has all."""
        from confluent_kafka import Producer

        if self._producer is None or grown:
            self._producer = Producer(
                {
                    "bootstrap.servers": self.servers,
                    "linger.ms": 5,
                    "reconnect.backoff.max.ms": 500,
                    "enable.idempotence": True,  # what is sent again stays in order
                    "logger": SILENT,
                }
            )
        producer = self._producer
        for count, (partition, value) in enumerate(records, 1):
            producer.produce(topic, value, partition=partition)
            if count % 10_000 == 0:
                producer.flush()
        assert producer.flush(30) == 0

    def read(self, topic: str, partition: int = 0) -> list[Any]:
        """All committed records of a partition, as a careful reader sees them."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "logger": SILENT,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        found, deadline = [], time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                for message in consumer.consume(1000, 0.1):
                    if message.error() is None:
                        found.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        return found
        finally:
            consumer.close()
        raise AssertionError("the topic does not end")

    def close(self) -> None:
        """Stop it finally."""
        self.stop()


@pytest.fixture(scope="session")
def kafka(require_service: Require, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka broker for all tests of a process."""
    pytest.importorskip("confluent_kafka")
    java = shutil.which("java")
    if java is None:
        require_service("Kafka", "there is no Java")
    if not list(KAFKA.glob("kafka_*.jar")):
        require_service("Kafka", f"its files are not in {KAFKA}")
    assert java is not None
    found = Kafka(java, tmp_path_factory.mktemp("kafka"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def spark_ready(require_service: Require) -> None:
    """Nothing, where Spark can be started."""
    if shutil.which("java") is None:
        require_service("Spark", "there is no Java")
    if importlib.util.find_spec("pyspark") is None:
        require_service("Spark", "pyspark is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # for the Python of executors


@pytest.fixture(scope="session")
def spark(spark_ready: None) -> Iterator[Any]:
    """A session of Spark with two threads, for all tests of a process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Database:
    """A database of its own on the tests' server."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.name = f"tests_{random.SystemRandom().randrange(10**12)}"
        self.sql(f"CREATE DATABASE {self.name}", database="postgres")

    def address(self, user: str = "tidegate", database: str = "") -> str:
        """The address of the database."""
        return f"postgresql://{user}@127.0.0.1:{self.server.port}/{database or self.name}"

    def url(self, table: str = "released", user: str = "tidegate") -> str:
        """The location of a table."""
        return f"{self.address(user)}?table={table}"

    def connect(self, user: str = "tidegate", database: str = "") -> Any:
        """A connection of psycopg that commits each statement."""
        import psycopg

        return psycopg.connect(self.address(user, database), autocommit=True)

    def sql(self, statement: str, database: str = "", user: str = "tidegate") -> list[Any]:
        """Run a statement; returns the rows."""
        with self.connect(user, database) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def empty(self) -> None:
        """Remove everything in it, and whoever a failed test has left connected."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        self.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


@pytest.fixture(scope="session")
def one_database(postgres: Postgres) -> Database:
    """A database for all tests of a process, since making one takes seconds."""
    return Database(postgres)


@pytest.fixture
def database(one_database: Database) -> Database:
    """A database with nothing in it."""
    one_database.empty()
    return one_database


class Starter:
    """A process that starts streams of configurations, and kills them when it is asked to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("engine_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, toml: Path, **order: Any) -> None:
        """One start; returns when its stream is open, and does not wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"toml": str(toml), **order}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self._line())
        assert "open" in answer, answer

    def ended(self) -> bool:
        """Wait for the end of a start; returns whether it was killed."""
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            self._line()  # how the child ended, which must not be taken for the next one's answer
        assert "error" not in answer, answer
        assert answer["killed"] or answer["code"] == 0, answer
        return bool(answer["killed"])

    def start(self, toml: Path, **order: Any) -> bool:
        """One start to its end; returns whether it was killed."""
        self.begin(toml, **order)
        return self.ended()

    def start_while(self, server: Any, toml: Path, *, seconds: float, away: float, **order: Any) -> bool:
        """One start whose server is killed once the stream is open, and comes back, before or after we are killed."""
        self.begin(toml, seconds=seconds, **order)
        server.stop()
        time.sleep(away)
        server.start()
        return self.ended()

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """One starter for all tests of a process."""
    found = Starter()
    yield found
    found.close()
