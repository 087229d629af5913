"""From records to rows with a decoded `value`, and to those that cannot be decoded, each with its reason.

Rows have the columns of the data source; `value` has the columns of the schema, and there are `time`, `date`
(text such as 2013-01-31) and `hour` (0 to 23), both of UTC. A record without a value stays, its columns null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType, _parse_datatype_string

from broker.errors import ConfigurationError
from mirrormaker.pipelines.avro_schema import parse_schema as avro_schema
from mirrormaker.pipelines.avro_values import MALFORMED, VALUE, parse_avro
from mirrormaker.pipelines.csv_values import csv_mismatches, line_problem, parse_csv
from mirrormaker.pipelines.trying import tried
from mirrormaker.pipelines.windows import DATE, HOUR
from mirrormaker.topology.model import PipelineSpec, RecordFormat, SinkSpec, TopicSink

REASON, RAW = "_reason", "_raw"
SAMPLE_RECORDS = 10_000
"""Records that a schema is inferred from."""
_YEAR_MAX = 9999
"""The last that the folder of a day can be named by."""
_PARSED, _TRIED = "_parsed", "_tried"
QUARANTINED = ("topic", "partition", "offset", "timestamp", "key", "value", "reason", "date", "hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Both kinds, of a batch or of a stream."""

    rows: DataFrame
    malformed: DataFrame


def infer_schema(spark: SparkSession, records: DataFrame, options: Mapping[str, str]) -> StructType:
    """The columns of JSON values, as `options` have them read. Raises ConfigurationError when there is
    nothing to infer them from.
    """
    values = records.limit(SAMPLE_RECORDS).selectExpr("cast(value as string) as value").collect()
    lines = [row.value for row in values if row.value is not None]
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    reader = spark.read.options(**options).option("mode", "DROPMALFORMED")
    found = reader.json(frame) if lines else frame.limit(0).drop("value")
    if not found.schema.fields:
        raise ConfigurationError(["there is no JSON to infer a schema from yet: say 'schema'"])
    return found.schema


def parse_schema(pipeline: PipelineSpec, kept: str | None) -> StructType | None:
    """The schema of `value` in Spark's words; None when it is to be inferred, or there is none.

    Raises PySparkException, and ConfigurationError for one of Avro's.
    """
    if pipeline.format is RecordFormat.AVRO:
        avro_schema(pipeline.schema or "")
    if pipeline.format is RecordFormat.RAW or pipeline.format is RecordFormat.AVRO:
        return None
    if pipeline.schema is not None:
        parsed = _parse_datatype_string(pipeline.schema)
        return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)
    return _kept_schema(kept) if kept is not None else None


def _kept_schema(text: str) -> StructType:
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        hint = "say one, or delete the file 'schema' in the pipeline's folder to have it inferred anew"
        raise PySparkException(f"the schema that was kept is damaged: {hint}") from error


def decode(records: DataFrame, pipeline: PipelineSpec, schema: StructType | None) -> DataFrame:
    """Rows with `value` decoded, the bytes beside it, and the reason where that failed."""
    values = _values(pipeline, schema)
    frame = records.withColumn(RAW, f.col("value")).withColumn(_PARSED, values.parsed)
    frame = frame.withColumn(REASON, values.reason).withColumn("value", values.value)
    if pipeline.time is None:
        frame = frame.withColumn("time", f.col("timestamp"))
    else:
        told = f.lit(f"its time cannot be told: {pipeline.time}")
        frame = frame.withColumn(
            _TRIED, tried(f.struct(f.expr(pipeline.time).cast("timestamp").alias("time")))
        )
        reason = f.coalesce(REASON, f.when(f.col(RAW).isNotNull() & f.col(_TRIED).isNull(), told))
        frame = frame.withColumn(REASON, reason).withColumn("time", f.col(f"{_TRIED}.time"))
    if any(map(_may_have_windows, pipeline.sinks)):
        is_placed = f.coalesce(f.year("time").between(1, _YEAR_MAX), f.lit(False))
        nowhere = f.when(
            f.col(RAW).isNotNull() & ~is_placed, f.lit(f"its time is not of the years 1 to {_YEAR_MAX}")
        )
        frame = frame.withColumn(REASON, f.coalesce(REASON, nowhere))
    frame = frame.withColumn("date", f.date_format("time", "yyyy-MM-dd")).withColumn("hour", f.hour("time"))
    return frame.drop(_PARSED, _TRIED)


def _may_have_windows(sink: SinkSpec) -> bool:
    """Whether rows of it are kept by their time; where nothing is said, by the columns that steps yield."""
    is_by_time = sink.partition_by is None or not {DATE, HOUR}.isdisjoint(sink.partition_by)
    return is_by_time and not isinstance(sink.target, TopicSink)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """What is made of bytes; `reason` and `value` are over `parsed` as the column `_PARSED`."""

    parsed: Column
    value: Column
    reason: Column


def _values(pipeline: PipelineSpec, schema: StructType | None) -> _Values:
    options = dict(pipeline.format_options)
    raw, parsed = f.col(RAW), f.col(_PARSED)
    text = raw.cast("string")
    bad = _name_beside(schema)
    permissive = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad}
    match pipeline.format:
        case RecordFormat.RAW:
            return _Values(parsed=f.lit(None), value=raw, reason=f.lit(None).cast("string"))
        case RecordFormat.AVRO:
            is_framed = "framing" in options
            return _Values(
                parsed=parse_avro(raw, pipeline.schema or "", is_framed=is_framed),
                value=parsed[VALUE],
                reason=parsed[MALFORMED],
            )
        case RecordFormat.JSON:
            assert schema is not None
            return _Values(
                parsed=f.from_json(text, _with(bad, schema), permissive),
                value=parsed.dropFields(bad),
                reason=_reason(text, bad, "JSON", _mismatches(text, schema), _has_more(text, options)),
            )
        case RecordFormat.CSV:
            assert schema is not None
            line = f.regexp_replace(text, r"\r?\n$", "")
            wrong = line_problem(line, schema, options)
            detail = f.coalesce(wrong, csv_mismatches(line, parsed, schema, options))
            return _Values(
                parsed=parse_csv(line, _with(bad, schema), permissive),
                value=parsed.dropFields(bad),
                reason=_reason(text, bad, "CSV", detail, wrong.isNotNull()),
            )


def _name_beside(schema: StructType | None) -> str:
    """Of the column that has what cannot be read, beside those of the schema, of which none has it."""
    name, taken = "_bad", {each.lower() for each in ([] if schema is None else schema.names)}
    while name in taken:
        name = f"_{name}"
    return name


def _with(bad: str, schema: StructType) -> StructType:
    return StructType([*schema.fields]).add(bad, "string")


def _has_more(text: Column, options: Mapping[str, str]) -> Column:
    """Whether something comes behind the object, which Spark's parser passes over. What follows a brace is
    looked at first, as all of it is parsed once more then. A count ends where the array does: at a bracket
    behind the object, too, which the value that is put behind it tells. Spark's count takes no NaN, which its
    parser does, so that is asked, too, before a record is refused.
    """
    if any(name.lower().startswith("allow") for name in options):
        return f.lit(False)  # a comment, for one
    alone, followed = (f.concat(f.lit("["), text, f.lit(end)) for end in ("]", ",0]"))
    told = [
        count(alone).eqNullSafe(1) & count(followed).eqNullSafe(2)
        for count in (f.json_array_length, lambda array: f.size(f.from_json(array, "array<string>")))
    ]
    return text.rlike(r"\}\s*\S") & ~told[0] & ~told[1]


def _reason(text: Column, bad: str, name: str, detail: Column, is_wrong: Column) -> Column:
    parsed = f.col(_PARSED)
    is_text = f.is_valid_utf8(text)
    broken = parsed.isNull() | parsed[bad].isNotNull() | is_wrong | ~is_text
    told = f.when(~is_text, f.lit("not UTF-8 text")).otherwise(
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
        found.append(f.when(at.isNotNull() & f.col(_PARSED)[field.name].isNull(), said))
    joined = f.concat_ws("; ", *found)
    return f.when(joined != "", joined)
