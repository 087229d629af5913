"""The Spark session of a pipeline: its master and settings, time in UTC, the data source known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.errors import ConfigurationError
from mirrormaker.spark import MirrorDataSource
from mirrormaker.topology.model import LOOPBACK, ClusterSpec, PipelineSpec

_LOCAL = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
_USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.python.filterPushdown.enabled": "true",
}
OWN_SETTINGS = {"spark.sql.session.timeZone": "UTC"}


@contextmanager
def opened_session(pipeline: PipelineSpec) -> Iterator[SparkSession]:
    """Spark for one run, in this process; it ends with the block.

    Raises ConfigurationError when the master cannot be reached, or a setting is none.
    """
    local = _LOCAL if pipeline.master.startswith("local") else {}
    builder = SparkSession.builder.master(pipeline.master).appName(f"mirrormaker {pipeline.name}")
    for name, value in {**local, **_USUAL, **pipeline.spark, **OWN_SETTINGS}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (Py4JError, PySparkException, ValueError) as error:
        raise ConfigurationError([f"pipeline {pipeline.name!r}: Spark cannot be started: {error}"]) from error
    try:
        session.dataSource.register(MirrorDataSource)
        yield session
    finally:
        session.stop()


def source_options(cluster: ClusterSpec) -> dict[str, str]:
    """How the data source reaches a cluster."""
    return {"kafka.bootstrap.servers": ",".join(map(str, cluster.bootstrap))}
