"""Apache Kafka from Maven Central, and one of our nodes; needs Maven, Java, openssl and, for franz-go,
Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from mirrormaker.spark.session import local_session
from ops.bench.spark_source import source_jars
from tests.conftest import cluster_spec
from tests.interop.apache import HERE, JAVA, ApacheKafka, kafka_jars
from tests.node.transactions import UNVERIFIED

pytest.register_assert_rewrite(
    "tests.client.transaction_cases",
    *(
        f"tests.conformance.{name}_cases"
        for name in ("coordinated", "group", "node", "record", "topic", "transaction")
    ),
)

PROCESS_TIMEOUT_SECONDS = 120
Tool = Callable[..., str]


@pytest.fixture(scope="session")
def kafka_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Classpath of the last Apache Kafka that works with ZooKeeper, with its tools."""
    return kafka_jars("3.9.1", tmp_path_factory.mktemp("kafka-3-jars"))


@pytest.fixture(scope="session")
def newest_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Classpath of an Apache Kafka whose clients no longer speak the oldest versions (KIP-896)."""
    return kafka_jars("4.1.0", tmp_path_factory.mktemp("kafka-4-jars"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows Spark's own Kafka source beside the data source `mirror`."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed (Debian: apt-get install maven)")
    jars = ",".join(source_jars(tmp_path_factory.mktemp("spark-kafka-jars")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = local_session("interop", master="local[2]", settings={"spark.jars": jars})
        yield session
        session.stop()


@pytest.fixture(scope="session")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A cluster of one of our nodes."""
    settings = {"group.initial.rebalance.delay.ms": 200, "log.cleaner.backoff.ms": 200, **UNVERIFIED}
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("interop"), "node", settings=settings)
    with EmbeddedCluster(spec) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bootstrap(node: EmbeddedCluster) -> str:
    """Address of our node."""
    return str(node.bootstrap[0])


@pytest.fixture(scope="session")
def data_root(node: EmbeddedCluster) -> Path:
    """Where our node keeps its logs."""
    return node.spec.directory / "node-1"


@pytest.fixture(scope="session")
def apache_kafka(
    kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    """A broker of Apache Kafka for all tests."""
    directory = tmp_path_factory.mktemp("apache-kafka")
    with ApacheKafka(kafka_classpath, zookeeper.connect_string("apache"), directory) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def java_tool(kafka_classpath: str) -> Tool:
    """Run a main class of Apache Kafka; returns what it printed."""
    return java_tool_of(kafka_classpath)


@pytest.fixture(scope="session")
def newest_java_tool(newest_classpath: str) -> Tool:
    """As `java_tool`, of the newest Kafka."""
    return java_tool_of(newest_classpath)


def java_tool_of(classpath: str) -> Tool:
    """Run a main class that is found there; returns what it printed."""
    return _tool(*JAVA, "-Xmx256m", "-cp", classpath)


def _tool(*command: str) -> Tool:
    def run(*arguments: str, stdin: str = "") -> str:
        finished = subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    return run


class RunningJava:
    """A Java program at work."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text()


JavaProcess = Callable[..., AbstractContextManager[RunningJava]]


@pytest.fixture
def java_process(kafka_classpath: str, tmp_path: Path) -> JavaProcess:
    """Run a main class of Apache Kafka until the end of a `with`."""

    @contextmanager
    def run(main_class: str, *arguments: str) -> Iterator[RunningJava]:
        log = tmp_path / f"{main_class.rpartition('.')[2]}.log"
        command = [*JAVA, "-Xmx256m", "-cp", kafka_classpath, main_class, *arguments]
        process = ChildProcess.start(main_class, command, log)
        try:
            yield RunningJava(log)
        finally:
            process.stop(timeout_ms=10_000)

    return run


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """Run the Go client under tests/interop/go; returns what it printed."""
    return _tool(str(go_program(tmp_path_factory.mktemp("go") / "client", "build", ".")))


def go_program(program: Path, *build: str) -> Path:
    """Build a program of the module under tests/interop/go, or the tests of what it requires."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    verb, *what = build
    go = {**os.environ, "GOFLAGS": "-mod=mod"}
    subprocess.run(["go", verb, "-o", str(program), *what], cwd=HERE / "go", check=True, timeout=600, env=go)
    return program


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
