"""A Spark session on this machine that knows the data source."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from mirrormaker.spark.datasource import MirrorDataSource

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Of Spark: for its JVM and Python workers. By TCP each task waits 40 ms for a late acknowledgement."""

_LOOPBACK = "127.0.0.1"


def local_session(
    app_name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, listening on 127.0.0.1 only; `settings` are more of Spark's own."""
    builder = (
        SparkSession.builder.master(master)
        .appName(app_name)
        .config("spark.driver.host", _LOOPBACK)
        .config("spark.driver.bindAddress", _LOOPBACK)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config(UNIX_SOCKETS, "true")
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(MirrorDataSource)
    return session
