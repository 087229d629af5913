"""Apache Kafka of any version as a child process, its jars from Maven Central."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest
from kazoo.client import KazooClient

from broker.child_process import ChildProcess, EmbeddedError
from broker.loopback import accepts, free_ports
from broker.types import HostPort
from tests.conftest import until

HERE = Path(__file__).parent
JAVA = (shutil.which("java") or "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Java that starts quickly; most of these programs run for a moment."""
_LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %c %m%n
"""
"""What the versions that come with log4j need to say anything."""


def kafka_jars(version: str, directory: Path) -> str:
    """The classpath of Apache Kafka `version`, whose jars are put into `directory`.

    Those before 3 come without the tools that moved out of the core since, and before 2 with the part of
    Java that Java no longer has.
    """
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed (Debian: apt-get install maven)")
    major = int(version.partition(".")[0])
    pom, scala = ("pom.xml", "2.13") if major >= 3 else ("old-kafka.xml", "2.13" if major == 2 else "2.11")
    command = ["mvn", "-q", "-B", "-f", str(HERE / pom), f"-Dkafka.version={version}", f"-Dscala={scala}"]
    copying = ["dependency:copy-dependencies", f"-DoutputDirectory={directory}"]
    subprocess.run([*command, *copying], check=True, timeout=600)
    return f"{directory}/*"


def _wait_until_forgotten(zookeeper_connect: str) -> None:
    address, _, chroot = zookeeper_connect.partition("/")
    client = KazooClient(hosts=address)
    client.start()
    try:
        until(lambda: not client.exists(f"/{chroot}/brokers/ids/1"))
    finally:
        client.stop()
        client.close()


class KafkaProcess:
    """One node, its data in `directory`/data unless `settings` say otherwise; returns from `with` when it
    answers. `options`: of Java.
    """

    def __init__(
        self,
        address: HostPort,
        classpath: str,
        directory: Path,
        settings: Mapping[str, object],
        *,
        options: Sequence[str] = (),
    ) -> None:
        self.address = address
        self.bootstrap = (address,)
        self.java = [*JAVA, "-Xmx512m", *options, "-cp", classpath]
        self.properties = directory / "server.properties"
        all_settings = {
            "log.dirs": directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
        self._log = directory / "kafka.log"
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [*self.java, "kafka.Kafka", str(self.properties)]
        self._process = ChildProcess.start("apache kafka", command, self._log)
        try:
            self._process.wait_until(self.answers, timeout_ms=60_000)
        except EmbeddedError:
            self.kill()
            raise

    def stop(self) -> None:
        """End it cleanly."""
        if self._process is not None:
            self._process.stop(timeout_ms=30_000)
            self._process = None

    def kill(self) -> None:
        """End it as a crash of its process does."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def answers(self) -> bool:
        """Whether it is in its own metadata."""
        command = ["kcat", "-b", str(self.address), "-L", "-m", "2"]
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
        return "1 brokers:" in listing.stdout

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ApacheKafka(KafkaProcess):
    """A broker that keeps its metadata in ZooKeeper."""

    def __init__(
        self,
        classpath: str,
        zookeeper_connect: str,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        knows_versions: bool = True,
    ) -> None:
        address = HostPort("127.0.0.1", free_ports(1)[0])
        self._zookeeper_connect = zookeeper_connect
        self._knows_versions = knows_versions
        own = {
            "broker.id": 1,
            "host.name": address.host,
            "port": address.port,
            "listeners": f"PLAINTEXT://{address}",
            "zookeeper.connect": zookeeper_connect,
        }
        logging = directory / "log4j.properties"
        logging.write_text(_LOG4J)
        options = [f"-Dlog4j.configuration=file:{logging}"]
        super().__init__(address, classpath, directory, {**own, **(settings or {})}, options=options)

    def start(self) -> None:
        """Start it once ZooKeeper has forgotten one that died, and wait until it answers."""
        _wait_until_forgotten(self._zookeeper_connect)
        super().start()

    def answers(self) -> bool:
        if not self._knows_versions:
            return accepts(self.address)  # such a broker is in no metadata before there is a topic
        return super().answers()
