"""Spark on a cluster: the data source `mirror`, and the jobs that run on it.

    from mirrormaker.spark import MirrorDataSource
    spark.dataSource.register(MirrorDataSource)
    servers = {"kafka.bootstrap.servers": "127.0.0.1:29092"}
    spark.read.format("mirror").options(**servers).option("subscribe", "flights").load()

Spark starts its Python workers as `python3` from the PATH unless PYSPARK_PYTHON says otherwise. In a virtual
environment that is not activated these would not find this package, so importing it names this very
interpreter, unless something else was chosen.
"""

import os
import sys

from mirrormaker.spark.datasource import MirrorDataSource

if sys.prefix != sys.base_prefix:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["MirrorDataSource"]
