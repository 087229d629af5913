"""The two servers that are compared, each as one child process or several, never both at once."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from broker.child_process import ChildProcess
from broker.embedded import ClusterSpec, EmbeddedZooKeeper
from broker.loopback import LOOPBACK, free_ports
from broker.types import HostPort
from broker.wire.framing import FrameReader
from broker.wire.header import decode_response, encode_request
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.registry import api_of

SERVER_CORE = 0
CLIENT_CORE = 1
KAFKA_VERSION = "3.9.1"
POM = Path(__file__).parents[3] / "tests" / "interop" / "pom.xml"
HEAP = ("-Xmx1G", "-Xms1G")
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""What kafka-run-class.sh gives a broker that nobody configured; HEAP is kafka-server-start.sh's."""
METADATA_VERSION = 1
FRAME_SIZE_MAX = 1 << 20
START_TIMEOUT_MS = 90_000
STOP_TIMEOUT_MS = 20_000
PROBE_TIMEOUT_SECONDS = 1.0
NO_SETTINGS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server, and how long it took from its start until it answered with itself as a broker."""

    address: HostPort
    pid: int
    start_seconds: float

    def resident_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6


def missing_tool() -> str | None:
    """Why the comparison cannot run here."""
    for tool, reason in (
        ("java", "Java is not installed (Debian: apt-get install default-jre-headless)"),
        ("mvn", "Maven is not installed (Debian: apt-get install maven)"),
        ("taskset", "taskset is not installed (Debian: apt-get install util-linux)"),
    ):
        if shutil.which(tool) is None:
            return reason
    if not {SERVER_CORE, CLIENT_CORE} <= set(psutil.Process().cpu_affinity()):
        return "it needs two processor cores: one for the server, one for the client"
    return None


def fetch_kafka(directory: Path) -> str:
    """Classpath of Apache Kafka, out of Maven's repositories. Raises CalledProcessError."""
    return fetch_jars(POM, directory)


def fetch_jars(pom: Path, directory: Path) -> str:
    """Classpath of what a pom.xml asks for, of the same version. Raises CalledProcessError."""
    command = ["mvn", "-q", "-B", "-f", str(pom), f"-Dkafka.version={KAFKA_VERSION}"]
    copying = ["dependency:copy-dependencies", f"-DoutputDirectory={directory}"]
    subprocess.run([*command, *copying], check=True, timeout=600)
    return f"{directory}/*"


@contextmanager
def our_nodes(
    directory: Path,
    zookeeper: EmbeddedZooKeeper,
    *,
    name: str = "ours",
    count: int = 1,
    cores: Sequence[int] = (SERVER_CORE,),
    settings: Mapping[str, object] = NO_SETTINGS,
) -> Iterator[list[Server]]:
    """A cluster of our nodes with their default settings but for these, broker ids 1 and up, on these
    processor cores; `name` is that of its place in ZooKeeper.
    """
    spec = ClusterSpec(
        name=name,
        settings=settings,
        zookeeper_connect=zookeeper.connect_string(name),
        port=0,
        directory=directory,
        brokers=count,
    )
    with ExitStack() as running:
        servers = []
        for number, port in enumerate(free_ports(count), 1):
            address, home = HostPort(LOOPBACK, port), directory / str(number)
            home.mkdir(parents=True)
            file = home / "node.yaml"
            own = {"listeners": f"PLAINTEXT://{address}"}
            file.write_text(yaml.safe_dump(spec.node_settings(number - 1) | own))
            command = [sys.executable, "-m", "broker.cli", "start", str(file)]
            servers.append(
                running.enter_context(_running(f"our node {number}", command, home, address, cores))
            )
        yield servers


@contextmanager
def apache_kafka(
    directory: Path,
    zookeeper: EmbeddedZooKeeper,
    classpath: str,
    *,
    name: str = "apache",
    count: int = 1,
    cores: Sequence[int] = (SERVER_CORE,),
    settings: Mapping[str, object] = NO_SETTINGS,
) -> Iterator[list[Server]]:
    """A cluster of Apache Kafka's brokers with their default settings, otherwise as `our_nodes`."""
    java = shutil.which("java") or "java"
    replicas = min(count, 3)
    with ExitStack() as running:
        servers = []
        for number, port in enumerate(free_ports(count), 1):
            address, home = HostPort(LOOPBACK, port), directory / str(number)
            all_settings = {
                "broker.id": number,
                "listeners": f"PLAINTEXT://{address}",
                "zookeeper.connect": zookeeper.connect_string(name),
                "log.dirs": home / "data",
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": min(replicas, 2),
                **settings,
            }
            home.mkdir(parents=True)
            properties = home / "server.properties"
            properties.write_text("".join(f"{key}={value}\n" for key, value in all_settings.items()))
            command = [java, *HEAP, *JVM, "-cp", classpath, "kafka.Kafka", str(properties)]
            servers.append(
                running.enter_context(_running(f"Apache Kafka {number}", command, home, address, cores))
            )
        yield servers


@contextmanager
def _running(
    name: str, command: Sequence[str], directory: Path, address: HostPort, cores: Sequence[int]
) -> Iterator[Server]:
    taskset = shutil.which("taskset") or "taskset"
    on_cores = [taskset, "-c", ",".join(map(str, cores))]
    started = time.monotonic()
    child = ChildProcess.start(name, [*on_cores, *command], directory / "server.log")
    try:
        child.wait_until(lambda: _serves(address), timeout_ms=START_TIMEOUT_MS)
        yield Server(address=address, pid=child.pid, start_seconds=time.monotonic() - started)
    finally:
        child.stop(timeout_ms=STOP_TIMEOUT_MS)


def _serves(address: HostPort) -> bool:
    """Whether the server tells of itself as a live broker with a controller."""
    request = encode_request(MetadataRequest(topics=[]), METADATA_VERSION, 1, "bench")
    try:
        with socket.create_connection(address, timeout=PROBE_TIMEOUT_SECONDS) as connection:
            connection.sendall(b"".join(map(bytes, request)))
            frame = _frame(connection)
    except OSError:
        return False
    if frame is None:
        return False
    _, response = decode_response(api_of(MetadataRequest), METADATA_VERSION, frame)
    assert isinstance(response, MetadataResponse)
    return bool(response.brokers) and response.controller_id >= 0


def _frame(connection: socket.socket) -> bytes | None:
    reader = FrameReader(FRAME_SIZE_MAX)
    while data := connection.recv(65536):
        for frame in reader.feed(data):
            return bytes(frame)
    return None
