"""What keeps Spark from being started is told with its key, and at once."""

from __future__ import annotations

import json
import os
import socketserver
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from pyspark import SparkContext

from broker.clock import SystemClock
from broker.loopback import LOOPBACK, free_ports
from mirrormaker.pipelines import session
from mirrormaker.pipelines.master import master_problem
from mirrormaker.pipelines.runner import RunFailedError, Runner, RunRequest
from mirrormaker.pipelines.session import _missing_jars
from mirrormaker.topology.loader import load_topology
from tests.daemon.conftest import mirrormaker
from tests.pipelines.stderr_of_spark import without_words_of_pyspark


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of something that takes connections, and says this to what it is told."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if self.request.recv(64):
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{LOOPBACK}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


MASTER = struct.pack(">qbi", 60, 8, 11) + b"/files/none" + struct.pack(">i", 32) + b"Stream '/files/none'"


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of what answers as a master does."""
    with answering(MASTER) as address:
        yield address


@pytest.fixture
def closed() -> str:
    """An address where nothing is."""
    (port,) = free_ports(1)
    return f"{LOOPBACK}:{port}"


PARQUET = "sinks: [{parquet: out}]\n    "


def pipeline_file(folder: Path, keys: str) -> Path:
    file = folder / "topology.yaml"
    file.write_text(
        'clusters: {a: {bootstrap: ["127.0.0.1:1"]}}\nroutes: []\npipelines:\n  - name: p\n    cluster: a\n'
        f'    topics: {{include: ["t"]}}\n    {"" if "sinks" in keys else PARQUET}{keys}\n'
    )
    return file


def test_masters_that_are_there_or_need_no_network_are_no_problem(listening: str, closed: str) -> None:
    for master in ("local[2]", "yarn", f"spark://{listening}", f"spark://{closed},{listening}"):
        assert master_problem(master) is None, master
    for master in (f"k8s://https://{listening}", f"k8s://{listening}"):
        assert master_problem(master) is None, master


def test_masters_that_are_not_there_are_told_with_their_addresses(closed: str) -> None:
    told = f"cannot be reached: {closed}: Connection refused"
    assert master_problem(f"spark://{closed}") == told
    assert master_problem(f"k8s://https://{closed}") == told
    assert master_problem(f"spark://{closed},{closed}") == f"{told}, {closed}: Connection refused"
    assert master_problem("spark://here") == "'here' is not host:port"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nDate: today", "HTTP/1.1 400 Bad Request"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0-OpenSSH_9.6"),
        (b"", None),
        (b"\x15\x03\x03\0\x02\x02\x0a", None),
    ],
)
def test_what_answers_in_text_is_no_master(answer: bytes, told: str | None, closed: str) -> None:
    with answering(answer) as address:
        problem = f"cannot be reached: {address}: no master of Spark: it answers {told!r}"
        assert master_problem(f"spark://{address}") == (None if told is None else problem)
        assert master_problem(f"k8s://https://{address}") is None


def test_jars_are_looked_for_as_spark_understands_their_paths(tmp_path: Path) -> None:
    for name in ("a b.jar", "c%20d.jar"):
        (tmp_path / name).touch()
    there = ["a b.jar", "c%20d.jar", "?%20d.jar", "*.jar", "a b.jar#name"]
    urls = ["a%20b.jar", "c%2520d.jar", "*.jar"]
    elsewhere = ["hdfs:///x.jar", "local:/x.jar", "https://x/y.jar"]
    said = [*(f"{tmp_path}/{name}" for name in there), *(f"file:{tmp_path}/{name}" for name in urls)]
    assert _missing_jars(", ".join([*said, *elsewhere])) == []
    missing = [f"{tmp_path}/a%20b.jar", f"file:{tmp_path}/c%20d.jar", f"{tmp_path}/e.jar"]
    assert _missing_jars(",".join(missing)) == missing


def test_a_run_whose_master_cannot_be_reached_fails_before_spark_is_started(
    tmp_path: Path, closed: str
) -> None:
    topology = load_topology(pipeline_file(tmp_path, f"master: 'spark://{closed}'"))
    runner = Runner(topology, topology.pipelines[0], SystemClock())
    with pytest.raises(RunFailedError) as failed:
        runner.run(RunRequest())
    told = f"pipelines[0].master: spark://{closed}: cannot be reached: {closed}: Connection refused"
    assert failed.value.record.problem == told


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        pytest.param(
            "spark: {spark.sql.shuffle.partitions: many}",
            "spark: Spark cannot be started: ",
            marks=pytest.mark.long,
        ),
        ("spark: {spark.executor.memory: lots}", "spark: Spark cannot be started: Java ended before Spark"),
        (
            "spark: {spark.pyspark.python: /no/python}",
            "spark: spark.pyspark.python: there is no program /no/p",
        ),
        pytest.param(
            "sinks: [{delta: t}, {parquet: o}, {iceberg: c.t}]",
            "sinks[0]: Spark has no delta: name the jars",
            marks=pytest.mark.long,
        ),
        ("spark: {spark.jars: '/nowhere/x.jar'}", "spark: spark.jars: there is no file /nowhere/x.jar"),
        pytest.param(
            "spark: {spark.serializer: no.Such}",
            "spark: Spark cannot be started: java.lang.ClassNotFoundExc",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_spark_does_not_take_is_told_in_a_line_with_its_place(
    tmp_path: Path, keys: str, told: str
) -> None:
    file = pipeline_file(tmp_path, keys)
    done = mirrormaker("pipeline", "check", str(file), "p")
    assert done.returncode == 1
    line, *_ = [line for line in done.stderr.splitlines() if line.startswith(f"{file}:")]
    assert line.startswith(f"{file}:{7 if 'sinks' in keys else 8}: pipelines[0].{told}")
    assert not line.endswith(":"), line
    assert "Traceback" not in without_words_of_pyspark(done.stderr)


def test_a_function_whose_module_ends_the_process_is_told_in_a_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_job.py").write_text("import os\nprint('imported')\nos._exit(0)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    file = tmp_path / "topology.yaml"
    file.write_text(
        "clusters: {a: {bootstrap: ['127.0.0.1:1']}}\npipelines:\n  - name: p\n    job: their_job:f\n"
    )
    done = mirrormaker("pipeline", "check", str(file), "p")
    assert (done.returncode, done.stdout) == (1, "")
    told = f"{file}:4: pipelines[0].job: function their_job:f: the process that imported it ended with 0"
    assert told in done.stderr.splitlines()
    (tmp_path / "their_job.py").write_text("print('imported')\ndef f(): ...\n")
    done = mirrormaker("pipeline", "check", str(file), "p")
    assert (done.returncode, done.stdout) == (0, "p: no problems\n")


@pytest.mark.long
def test_times_in_a_database_are_of_utc_wherever_the_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(
        'clusters: {a: {bootstrap: ["127.0.0.1:1"]}}\nroutes: []\npipelines:\n'
        '  - {name: p, job: "tests.pipelines.database_times:run", '
        f"spark: {{spark.driver.extraJavaOptions: -Dderby.system.home={tmp_path}}}}}\n"
    )
    monkeypatch.setenv("TZ", "America/New_York")
    done = mirrormaker("pipeline", "run", str(file), "p", "--output", "json")
    assert json.loads(done.stdout)["figures"] == {"times": [0, 3_600_000]}, done.stderr


class Spark:
    """A session, what builds it, and the connection to the JVM: all that it is asked for is itself."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Spark:
        return self

    def __call__(self, *_: object) -> Spark:
        return self

    def close(self) -> None:
        self.done.append("hung up")

    def stop(self) -> None:
        self.done.append("stopped")


def test_a_signal_while_spark_is_asked_for_its_jars_leaves_no_answer_to_the_next_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark = Spark()
    monkeypatch.setattr(SparkContext, "_gateway", spark)
    monkeypatch.setattr(session, "SparkSession", spark)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_missing_lakes", interrupt)
    (pipeline,) = load_topology(pipeline_file(tmp_path, "master: 'local[1]'")).pipelines
    with pytest.raises(KeyboardInterrupt), session.opened_session(pipeline, "pipelines[0]"):
        pass
    assert spark.done == ["hung up", "stopped"]
