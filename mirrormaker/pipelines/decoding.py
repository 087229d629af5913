"""From records to rows with a decoded `value`, and to those that cannot be decoded, each with its reason.

Rows have the columns of the data source; `value` has the columns of the schema, and there are `time`, `date`
(text such as 2013-01-31) and `hour` (0 to 23), both of UTC. A record without a value stays, its columns null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType, _parse_datatype_string

from broker.errors import ConfigurationError
from mirrormaker.topology.model import PipelineSpec, RecordFormat

REASON, RAW = "_reason", "_raw"
SAMPLE_RECORDS = 10_000
"""Records that a schema is inferred from."""
_BAD = "_bad"
_FRAMING = "framing"
_CONFLUENT_HEADER = 5
QUARANTINED = ("topic", "partition", "offset", "timestamp", "key", "value", "reason", "date", "hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Both kinds, of a batch or of a stream."""

    rows: DataFrame
    malformed: DataFrame


def infer_schema(spark: SparkSession, records: DataFrame) -> StructType:
    """The columns of JSON values. Raises ConfigurationError when there is nothing to infer them from."""
    values = records.limit(SAMPLE_RECORDS).selectExpr("cast(value as string) as value").collect()
    lines = [row.value for row in values if row.value is not None]
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    found = spark.read.option("mode", "DROPMALFORMED").json(frame) if lines else frame.limit(0).drop("value")
    if not found.schema.fields:
        raise ConfigurationError(["there is no JSON to infer a schema from yet: say 'schema'"])
    return found.schema


def parse_schema(pipeline: PipelineSpec, kept: str | None) -> StructType | None:
    """The schema of `value`; None when it is to be inferred, or there is none. Raises PySparkException."""
    if pipeline.format is RecordFormat.RAW or pipeline.format is RecordFormat.AVRO:
        return None
    if pipeline.schema is not None:
        parsed = _parse_datatype_string(pipeline.schema)
        return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)
    return StructType.fromJson(_json(kept)) if kept is not None else None


def decode(records: DataFrame, pipeline: PipelineSpec, schema: StructType | None) -> DataFrame:
    """Rows with `value` decoded, the bytes beside it, and the reason where that failed."""
    frame = records.withColumn(RAW, f.col("value"))
    parsed, reason = _parsed(pipeline, schema)
    frame = frame.withColumn("_parsed", parsed).withColumn(REASON, reason)
    value = f.col("_parsed").dropFields(_BAD) if schema is not None else f.col("_parsed")
    frame = frame.withColumn("value", value).drop("_parsed")
    frame = frame.withColumn("time", f.expr(pipeline.time) if pipeline.time else f.col("timestamp"))
    return frame.withColumn("date", f.date_format("time", "yyyy-MM-dd")).withColumn("hour", f.hour("time"))


def split(decoded: DataFrame) -> Decoded:
    """Rows to go on with, and those for quarantine."""
    malformed = decoded.where(f.col(REASON).isNotNull())
    by_record = f.col("timestamp")
    return Decoded(
        rows=decoded.where(f.col(REASON).isNull()).drop(REASON, RAW),
        malformed=malformed.select(
            "topic",
            "partition",
            "offset",
            "timestamp",
            "key",
            f.col(RAW).alias("value"),
            f.col(REASON).alias("reason"),
            f.date_format(by_record, "yyyy-MM-dd").alias("date"),
            f.hour(by_record).alias("hour"),
        ),
    )


def _parsed(pipeline: PipelineSpec, schema: StructType | None) -> tuple[Column, Column]:
    """The value, and why it is none."""
    options = dict(pipeline.format_options)
    nothing = f.lit(None).cast("string")
    raw = f.col(RAW)
    text = raw.cast("string")
    permissive = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    match pipeline.format:
        case RecordFormat.RAW:
            return raw, nothing
        case RecordFormat.AVRO:
            confluent = options.pop(_FRAMING, None) == "confluent"
            body = f.expr(f"substring({RAW}, {_CONFLUENT_HEADER + 1})") if confluent else raw
            parsed = from_avro(body, pipeline.schema or "", {**options, "mode": "PERMISSIVE"})
            failed = f.when(raw.isNotNull() & f.col("_parsed").isNull(), f.lit("not Avro of the schema"))
            return parsed, failed
        case RecordFormat.JSON:
            assert schema is not None
            parsed = f.from_json(text, _with_bad(schema), permissive)
            return parsed, _reason(text, schema, "JSON", _mismatches(text, schema))
        case RecordFormat.CSV:
            assert schema is not None
            ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in _with_bad(schema))
            return f.from_csv(text, ddl, permissive), _reason(text, schema, "CSV", nothing)


def _with_bad(schema: StructType) -> StructType:
    return StructType([*schema.fields]).add(_BAD, "string")


def _reason(text: Column, schema: StructType, name: str, detail: Column) -> Column:
    parsed = f.col("_parsed")
    broken = parsed.isNull() | parsed[_BAD].isNotNull()
    told = f.when(~f.is_valid_utf8(text), f.lit("not UTF-8 text")).otherwise(
        f.coalesce(detail, f.lit(f"not {name} of the schema"))
    )
    return f.when(f.col(RAW).isNotNull() & broken, told)


def _mismatches(text: Column, schema: StructType) -> Column:
    """Which fields are there, and of another type; null when none is."""
    found = []
    for field in schema.fields:
        at = f.get_json_object(text, f"$['{field.name}']")
        kind = field.dataType.simpleString()
        said = f.concat(f.lit(f"field {field.name}: '"), f.substring(at, 1, 60), f.lit(f"' is no {kind}"))
        found.append(f.when(at.isNotNull() & f.col("_parsed")[field.name].isNull(), said))
    joined = f.concat_ws("; ", *found)
    return f.when(joined != "", joined)


def _json(text: str) -> dict[str, Any]:
    import json

    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise PySparkException(f"the schema that was kept is damaged: {error}") from error
