"""Values of Avro as a column, read in Spark's Python workers: PySpark has no reader of it without jars, which
makes nulls of what it cannot read and passes over what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from mirrormaker.pipelines.avro_reader import MalformedError, value_reader
from mirrormaker.pipelines.avro_schema import AvroType, parse_schema, spark_type

VALUE, MALFORMED = "value", "malformed"
_MAGIC, _HEADER_BYTES = 0, 5
"""Of Confluent's framing: a zero, and four bytes that name the schema in a registry."""


def parse_avro(raw: Column, schema: str, *, is_framed: bool) -> Column:
    """A struct of `value`, and of `malformed`, why that is none. Raises ConfigurationError for a schema that
    is none.
    """
    avro = parse_schema(schema)
    reader = _Reader(avro, is_framed=is_framed)
    made = StructType([StructField(VALUE, spark_type(avro)), StructField(MALFORMED, StringType())])
    arrow = to_arrow_type(made, timezone="UTC")

    def decode(records: pa.Array[Any]) -> pa.Array[Any]:
        return pa.array(reader.values(records.to_pylist()), type=arrow)

    decode.__annotations__ = {"records": pa.Array, "return": pa.Array}
    make: Callable[..., Callable[[Column], Column]] = arrow_udf
    return make(decode, made)(raw)


class _Reader:
    """Reads values; travels to the workers of Spark."""

    def __init__(self, avro: AvroType, *, is_framed: bool) -> None:
        self._read: Callable[[bytes], Any] = value_reader(avro)
        self._is_framed = is_framed

    def values(self, records: Iterable[bytes | None]) -> list[dict[str, Any]]:
        return [self._value(record) for record in records]

    def _value(self, record: bytes | None) -> dict[str, Any]:
        if record is None:
            return {VALUE: None, MALFORMED: None}
        try:
            return {VALUE: self._read(self._body(record)), MALFORMED: None}
        except MalformedError as error:
            return {VALUE: None, MALFORMED: f"not Avro of the schema: {error}"}

    def _body(self, record: bytes) -> bytes:
        if not self._is_framed:
            return record
        if len(record) < _HEADER_BYTES or record[0] != _MAGIC:
            raise MalformedError("no zero and no id of a schema in front of it")
        return record[_HEADER_BYTES:]
