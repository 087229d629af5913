"""How Spark finds the data source by itself; installed as the top-level module `pyspark_mirrormaker`.

PySpark imports every module whose name begins with `pyspark_` and registers its `DefaultSource`.
"""

from mirrormaker.spark.datasource import MirrorDataSource as DefaultSource

__all__ = ["DefaultSource"]
