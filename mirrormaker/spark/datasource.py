"""The Spark data source `mirror`: topics of any cluster that speaks the Kafka protocol, read and written.

Columns and options are those of Spark's own Kafka source and sink (`options`, `sink_options`). Rows travel as
Arrow record batches between Spark and here.

Spark starts processes to make the source, to plan, and for its tasks, and each imports this: what only some
of them need, which is a client with all its messages, is imported where it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from broker.errors import ConfigurationError
from mirrormaker.spark.options import parse_options

if TYPE_CHECKING:
    from mirrormaker.spark.options import SourceOptions
    from mirrormaker.spark.sink_options import SinkOptions

_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SCHEMA_WITH_HEADERS = StructType([*_SCHEMA, StructField("headers", ArrayType(_HEADER))])
_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class MirrorDataSource(DataSource):
    """What `format("mirror")` names."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "mirror"

    def schema(self) -> StructType:
        """Columns of a frame. Raises ConfigurationError for options that no load and no query takes."""
        return _columns(parse_options(self._options, streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        from mirrormaker.spark.batch_reader import MirrorReader, PushingReader

        options = self._load_options(schema, streaming=False)
        return PushingReader(options) if options.push_filters and _is_pushing() else MirrorReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from mirrormaker.spark.stream_reader import MirrorStreamReader

        return MirrorStreamReader(self._load_options(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mirrormaker.spark.sink import MirrorWriter

        if overwrite:
            raise ConfigurationError(["records cannot be overwritten: mode is append"])
        return MirrorWriter(self._sink_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from mirrormaker.spark.sink import MirrorStreamWriter

        options = self._sink_options(schema)
        if options.write_id is not None:
            raise ConfigurationError(
                ["option txnAppId: is for df.write; queries and triggers are known by themselves"]
            )
        return MirrorStreamWriter(options)

    def _load_options(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = parse_options(self._options, streaming=streaming)
        columns = _columns(options).simpleString()
        if schema.simpleString() != columns:
            raise ConfigurationError(
                [f"schema: that of the source is fixed: {columns}; leave .schema(...) out"]
            )
        return options

    def _sink_options(self, schema: StructType) -> SinkOptions:
        from mirrormaker.spark.sink_options import parse_sink_options
        from mirrormaker.spark.sink_rows import check_columns

        options = parse_sink_options(self._options)
        check_columns(schema, options.topic)
        return options


def _columns(options: SourceOptions) -> StructType:
    return _SCHEMA_WITH_HEADERS if options.include_headers else _SCHEMA


def _is_pushing() -> bool:
    """Whether this process plans a load whose filters Spark hands over.

    Only frames that ask for it have it: Spark plans a frame once, and what one query of it was given for its
    conditions, each later one gets, whatever its own are.

    A session refuses readers that could take filters while spark.sql.python.filterPushdown.enabled is false,
    as it is by default, and plans those with filters in a worker of its own while it is true.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING_WORKER in sys.modules or (main is not None and main.name == _PUSHING_WORKER)
