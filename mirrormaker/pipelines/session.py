"""The Spark session of a pipeline: its master and settings, time in UTC, the data source known."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from broker.child_process import describe_exit
from broker.errors import ConfigurationError
from mirrormaker.pipelines.master import master_problem
from mirrormaker.spark import MirrorDataSource
from mirrormaker.spark.given_options import BOOTSTRAP, KAFKA
from mirrormaker.spark.session import UNIX_SOCKETS
from mirrormaker.topology.model import LOOPBACK, ClusterSpec, LakeFormat, LakeSink, PipelineSpec

_LOCAL = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
_UTC = "-Duser.timezone=UTC"
"""Databases are given times by the clock of the JVM: where that is put back, two of them would be one."""
_USUAL = {
    "spark.driver.defaultJavaOptions": _UTC,
    "spark.executor.defaultJavaOptions": _UTC,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",
    UNIX_SOCKETS: "true",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LAKE_CLASSES = {
    LakeFormat.DELTA: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    LakeFormat.ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
}
_LAKE_JARS = {
    LakeFormat.DELTA: "io.delta:delta-spark_SPARK_SCALA:VERSION",
    LakeFormat.ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-SPARK_SCALA:VERSION",
}
_PYTHON = "spark.pyspark.python"
_LOGS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Of PySpark: each error that it raises, with the frames of Java in one line of ten thousand characters."""
_END_SECONDS = 10.0
"""How long a JVM that does not answer has to end."""
_JARS = "spark.jars"
_STOPPED = "stopped SparkContext"
OWN_SETTINGS = {"spark.sql.session.timeZone": "UTC"}


@contextmanager
def opened_session(pipeline: PipelineSpec, path: str) -> Iterator[SparkSession]:
    """Spark for one run, in this process; it ends with the block. `path` is the pipeline's in its file.

    Raises ConfigurationError when the master cannot be reached, or a setting is none.
    """
    if (problem := master_problem(pipeline.master)) is not None:
        raise ConfigurationError([f"{path}.master: {pipeline.master}: {problem}"])
    python = pipeline.spark.get(_PYTHON)
    if python is not None and shutil.which(python) is None:
        raise ConfigurationError([f"{path}.spark: {_PYTHON}: there is no program {python}"])
    if missing := _missing_jars(pipeline.spark.get(_JARS, "")):
        raise ConfigurationError([f"{path}.spark: {_JARS}: there is no file {jar}" for jar in missing])
    local = _LOCAL if pipeline.master.startswith("local") else {}
    builder = SparkSession.builder.master(pipeline.master).appName(f"mirrormaker {pipeline.name}")
    for name, value in {**local, **_USUAL, **_lake(pipeline), **pipeline.spark, **OWN_SETTINGS}.items():
        builder = builder.config(name, value)
    for name in _LOGS_OF_ERRORS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python  # all that PySpark goes by in client mode
    try:
        with _keeping_interrupts():
            session = builder.getOrCreate()
        session.dataSource.register(MirrorDataSource)  # Spark looks at settings of SQL not before
    except (Py4JError, PySparkException, ValueError) as error:
        reason = _reason(error)
        is_of_master = pipeline.master in reason or _STOPPED in str(error)
        key = "spark" if pipeline.spark and not is_of_master else "master"
        raise ConfigurationError([f"{path}.{key}: Spark cannot be started: {reason}"]) from error
    try:
        with _hanging_up():
            if problems := list(_missing_lakes(session, pipeline, path)):
                raise ConfigurationError(problems)
            yield session
    finally:
        with contextlib.suppress(Py4JError, OSError):  # it may be gone
            session.stop()


@contextmanager
def _hanging_up() -> Iterator[None]:
    """What ends the block by a signal may have cut off a question to the JVM: its answer would pass for that
    of the next one, which waits until what was asked is done. So the next, by this thread, has a connection
    of its own.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException:
        client = getattr(SparkContext._gateway, "_gateway_client", None)
        if client is not None and (connection := client.get_thread_connection()) is not None:
            connection.close()
        raise


@contextmanager
def _keeping_interrupts() -> Iterator[None]:
    """PySpark takes SIGINT for itself as it starts: whoever has heeded it goes on to, and learns of one that
    came since.
    """
    heeding = signal.getsignal(signal.SIGINT)
    try:
        yield
    except KeyboardInterrupt:
        if callable(heeding):
            heeding(signal.SIGINT, None)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, heeding)


def _missing_jars(said: str) -> list[str]:
    """Those of this machine that are not there: Spark would go on without them."""
    jars = [each.strip() for each in said.split(",") if each.strip()]
    return [
        jar for jar in jars if (pattern := _local_pattern(jar)) is not None and not any(glob.iglob(pattern))
    ]


def _local_pattern(jar: str) -> str | None:
    """Which files of this machine are meant; None for others. A path is as it stands there, a URL has escapes
    such as %20. A fragment is what Spark is to call them.
    """
    place = urlsplit(jar)
    if place.scheme == "file":
        return unquote(place.path)
    return jar.partition("#")[0] if not place.scheme else None


def _reason(error: Exception) -> str:
    """In a line, without the frames of Java."""
    if _STOPPED in str(error):
        return "its master takes connections and does not answer, or has ended it"
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).split("\n")[0]
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        return "Java ended before Spark had begun; the log has its words for it"
    told, *frames = str(error).strip().split("\n")
    causes = [line.partition(": ")[2] for line in frames if line.startswith("Caused by: ")]
    return causes[-1] if causes and told.endswith(":") else told


def cancel_jobs() -> None:
    """End what Spark computes; by another thread than the one that waits for it."""
    context = SparkContext._active_spark_context
    if context is not None:
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # it may be stopping
            context.cancelAllJobs()


def why_spark_is_gone() -> str | None:
    """What has become of Spark's JVM; None while it runs, or none was ever started."""
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return None
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"Spark's JVM {describe_exit(process.wait(_END_SECONDS))}"
        return "Spark's JVM does not answer"
    return None


def _lake(pipeline: PipelineSpec) -> dict[str, str]:
    """What the tables of a pipeline need of Spark."""
    targets = [sink.target for sink in pipeline.sinks]
    is_delta = any(isinstance(each, LakeSink) and each.format is LakeFormat.DELTA for each in targets)
    return _DELTA if is_delta else {}


def _missing_lakes(spark: SparkSession, pipeline: PipelineSpec, path: str) -> Iterator[str]:
    for number, sink in enumerate(pipeline.sinks):
        if isinstance(sink.target, LakeSink) and not has_lake(spark, sink.target.format):
            yield f"{path}.sinks[{number}]: {missing_lake(sink.target.format)}"


def has_lake(spark: SparkSession, kind: LakeFormat) -> bool:
    """Whether Spark has the jars for such tables."""
    return has_class(spark, _LAKE_CLASSES[kind])


def missing_lake(kind: LakeFormat) -> str:
    """What is said where Spark does not know such tables."""
    jars = _LAKE_JARS[kind]
    return (
        f"Spark has no {kind.value}: name the jars for its version in 'spark', as spark.jars.packages: {jars}"
    )


def source_options(cluster: ClusterSpec) -> dict[str, str]:
    """How the data source reaches a cluster. Secrets are in it as references, which every process of Spark
    follows for itself: they are in no plan and in no log.
    """
    security = {f"{KAFKA}{name}": text for name, text in cluster.security.references.items()}
    return {BOOTSTRAP: ",".join(map(str, cluster.bootstrap)), **security}


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the jars of Spark have a class of Java's."""
    jvm = spark._jvm
    assert jvm is not None
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except (Py4JError, TypeError):
        return False
    return True
