"""What becomes of the bytes of records, in a real Spark."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from mirrormaker.pipelines.decoding import decode, infer_schema, parse_schema, split
from mirrormaker.pipelines.session import OWN_SETTINGS
from mirrormaker.topology.model import (
    FileFormat,
    FileSink,
    PipelineName,
    PipelineSpec,
    RecordFormat,
    SinkSpec,
    TopicSink,
)
from tests.pipelines.test_avro import long, text

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint"
TO_TOPIC = SinkSpec(target=TopicSink(topic="t"))
NOON = datetime(2013, 1, 1, 12)
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)


def decoded(spark: SparkSession, values: list[bytes | None], **keys: Any) -> list[Any]:
    """The value of each record, or why it is in quarantine."""
    spark = spark.newSession()
    for name, value in OWN_SETTINGS.items():
        spark.conf.set(name, value)
    pipeline = PipelineSpec(name=PipelineName("p"), **keys)
    records = spark.createDataFrame([(None, value, "t", 0, at) for at, value in enumerate(values)], COLUMNS)
    stamped = records.coalesce(1).withColumn("timestamp", f.timestamp_seconds(f.lit(1_357_041_600)))
    both = split(decode(stamped, pipeline, parse_schema(pipeline, None)))
    found: dict[int, Any] = {row.offset: row.value for row in both.rows.select("offset", "value").collect()}
    for row in both.malformed.collect():
        assert (row.topic, row.partition, row.value) == ("t", 0, values[row.offset])
        found[row.offset] = row.reason
    return [tuple(found[at]) if isinstance(found[at], tuple) else found[at] for at in range(len(values))]


def test_lines_of_csv(spark: SparkSession) -> None:
    values = {
        b"1,a": (1, "a"),
        b"2,b\r\n": (2, "b"),
        b'3,"c\nd"': (3, "c\nd"),
        b"x,c": "field id: 'x' is no int",
        b"4": "not CSV of the schema",
        b"5,d,e": "not CSV of the schema",
        b"6,a\n7,b": "more than one line",
        b"": "an empty line",
        b"\xff,a": "not UTF-8 text",
        b"8,\xff": "not UTF-8 text",
        b"," * 30_000: "not CSV of the schema",
        None: None,
    }
    said = decoded(spark, list(values), format=RecordFormat.CSV, schema="id int, name string")
    assert said == list(values.values())


def test_quotes_within_quotes_of_csv_are_doubled_or_behind_a_backslash(spark: SparkSession) -> None:
    values = {
        b'1,"a ""b"" c"': (1, 'a "b" c'),
        b'2,"""a"""': (2, '"a"'),
        b'3,"a\\b ""c"""': (3, 'a\\b "c"'),
        b'4,"a\n""b"",c"': (4, 'a\n"b",c'),
        b'5,"a \\"b\\" c"': (5, 'a "b" c'),
        b'6,""': (6, None),
        b'"","a"': (None, "a"),
        b'9,"a,"",b"': (9, 'a,",b'),
        b'10,""","""': (10, '","'),
        b'11,""""': (11, '"'),
        b'7,"a ""b"" c",8': "not CSV of the schema",
        b'x,"a ""b"" c"': "field id: 'x' is no int",
        b"8,a": (8, "a"),
    }
    said = decoded(spark, list(values), format=RecordFormat.CSV, schema="id int, name string")
    assert said == list(values.values())
    options = {"sep": "|", "quote": "'"}
    keys = {"format": RecordFormat.CSV, "schema": "id int, name string", "format_options": options}
    assert decoded(spark, [b"1|'a ''b'' c'", b"2|''"], **keys) == [(1, "a 'b' c"), (2, None)]


def test_a_comment_is_no_row(spark: SparkSession) -> None:
    keys = {"format": RecordFormat.CSV, "schema": "id int, name string", "format_options": {"comment": "#"}}
    assert decoded(spark, [b"#1,a", b"1,a"], **keys) == ["a comment", (1, "a")]


def test_quoted_fields_of_csv_have_any_length_and_may_hold_ends_of_lines(spark: SparkSession) -> None:
    values = {
        b'1,"' + b"x" * 100_000 + b'\ny"': (1, "x" * 100_000 + "\ny"),
        b'2,"a\\"b\nc"': (2, 'a"b\nc'),
        b'3,"a\\\\"\n4,"b"': "more than one line",
        b'5,""\n6,"a"': "more than one line",
        b'7,"' + b'x\\"' * 30_000 + b"\ny": "more than one line",
    }
    keys = {"format": RecordFormat.CSV, "schema": "id int, name string"}
    assert decoded(spark, list(values), **keys) == list(values.values())
    doubled = {
        b'1,"a""b\nc"': (1, 'a"b\nc'),
        b'2,"""a\nb"""': (2, '"a\nb"'),
        b'"3","a"\n"4","b"': "more than one line",
    }
    keys["format_options"] = {"escape": '"'}
    assert decoded(spark, list(doubled), **keys) == list(doubled.values())


def test_a_field_of_csv_that_is_longer_than_the_parser_takes_is_put_aside(spark: SparkSession) -> None:
    keys = {"schema": "id int, name string", "format_options": {"maxCharsPerColumn": "10"}}
    values = {b"1,a": (1, "a"), b"2," + b"a" * 11: "not CSV of the schema"}
    assert decoded(spark, list(values), format=RecordFormat.CSV, **keys) == list(values.values())


def test_columns_may_have_any_name(spark: SparkSession) -> None:
    csv = {b"1,a,2": (1, "a", 2), b"x,b,3": "field a`b: 'x' is no int"}
    keys = {"format": RecordFormat.CSV, "schema": "`a``b` int, _bad string, `_BAD_` int"}
    assert decoded(spark, list(csv), **keys) == list(csv.values())
    values = {
        b'{"_bad": "a", "__bad": 1}': ("a", 1),
        b'{"_bad": "a", "__bad": "b"}': "field __bad: 'b' is no int",
    }
    keys = {"format": RecordFormat.JSON, "schema": "_bad string, __bad int"}
    assert decoded(spark, list(values), **keys) == list(values.values())


def test_objects_of_json(spark: SparkSession) -> None:
    values = {
        b'{"id": 1, "name": "} {"}\n': (1, "} {"),
        b'{"id": 2, "more": {"a": 1}, "list": [{}, {}]}': (2, None),
        b'{"id": "x"}': "field id: 'x' is no int",
        b'{"id": 3} {"id": 4}': "not JSON of the schema",
        b'{"id": 3}, {"id": 4}': "not JSON of the schema",
        b'{"id": 3}}': "not JSON of the schema",
        b'{"id": 3}\n]': "not JSON of the schema",
        b'{"id": 3}] 4': "not JSON of the schema",
        b'{"id": 3}, {"id": 4}]': "not JSON of the schema",
        b'{"id": 3, "more": {"a": [{}]}} ': (3, None),
        b'{"name": "\xff"}': "not UTF-8 text",
        b"[1]": "not JSON of the schema",
        b"5": "not JSON of the schema",
        b"": "not JSON of the schema",
        None: None,
    }
    said = decoded(spark, list(values), format=RecordFormat.JSON, schema="id int, name string")
    assert said == list(values.values())


def test_numbers_that_are_none_are_read_wherever_they_stand(spark: SparkSession) -> None:
    values = {
        b'{"x": Infinity}': (math.inf, None),
        b'{"x": "Infinity"}': (math.inf, None),
        b'{"x": -Infinity, "o": {"y": 1}}': (-math.inf, (1,)),
        b'{"o": {"y": 2}, "more": NaN}': (None, (2,)),
        b'{"o": {"y": 3}, "more": NaN} 4': "not JSON of the schema",
        b'{"o": {"y": 3}, "more": NaN}]': "not JSON of the schema",
        b'{"o": {"y": 3}, "more": NaN}}': "not JSON of the schema",
        b'{"o": {"y": 3}, "more": NaN}, {}': "not JSON of the schema",
        b'{"o": {"y": NaN}}': "not JSON of the schema",
    }
    said = decoded(spark, list(values), format=RecordFormat.JSON, schema="x double, o struct<y: int>")
    assert said == list(values.values())


def test_values_of_avro_and_their_frames(spark: SparkSession) -> None:
    order = long(7) + long(1) + text("seven") + long(1_357_041_600_000)
    nothing = long(0) + long(0) + long(0)
    values = {
        order: (7, "seven", NOON),
        nothing: (0, None, datetime(1970, 1, 1)),
        order[:-1]: "not Avro of the schema: field at: ends too early",
        order + b"x": "not Avro of the schema: 1 bytes too many",
        b"": "not Avro of the schema: field id: ends too early",
        None: None,
    }
    assert decoded(spark, list(values), format=RecordFormat.AVRO, schema=ORDER) == list(values.values())
    no_frame = "not Avro of the schema: no zero and no id of a schema in front of it"
    framed = {b"\0\0\0\0\1" + order: (7, "seven", NOON), order: no_frame, b"\0\0": no_frame}
    keys = {"format": RecordFormat.AVRO, "schema": ORDER, "format_options": {"framing": "confluent"}}
    assert decoded(spark, list(framed), **keys) == list(framed.values())


def test_a_record_whose_time_cannot_be_told_is_put_aside(spark: SparkSession) -> None:
    values = {
        b'{"at": "2013-01-01T05:00:00Z"}': ("2013-01-01T05:00:00Z",),
        b'{"at": "soon"}': "its time cannot be told: to_timestamp(value.at)",
        b"{}": (None,),
        None: None,
    }
    keys = {"format": RecordFormat.JSON, "schema": "at string", "time": "to_timestamp(value.at)"}
    assert decoded(spark, list(values), **keys) == list(values.values())


def test_a_record_without_a_time_is_put_aside_where_rows_are_kept_by_it(spark: SparkSession) -> None:
    nowhere = "its time is not of the years 1 to 9999"
    values = {
        b'{"at": "2013-01-01T05:00:00Z"}': ("2013-01-01T05:00:00Z",),
        b'{"at": "+12013-01-01T05:00:00Z"}': nowhere,
        b"{}": nowhere,
        None: None,
    }
    keys = {"format": RecordFormat.JSON, "schema": "at string", "time": "cast(value.at as timestamp)"}
    for partition_by in (None, ("date",), ("topic", "hour")):
        sinks = (SinkSpec(target=FileSink(format=FileFormat.JSON, path="out"), partition_by=partition_by),)
        assert decoded(spark, list(values), **keys, sinks=sinks) == list(values.values())
    by_topic = SinkSpec(target=FileSink(format=FileFormat.JSON, path="out"), partition_by=("topic",))
    assert nowhere not in decoded(spark, list(values), **keys, sinks=(by_topic, TO_TOPIC))


def test_a_schema_is_inferred_as_the_options_have_values_read(spark: SparkSession) -> None:
    records = spark.createDataFrame([(b'/* one */ {"id": 1}',), (b"{",)], "value binary")
    options = {"allowComments": "true", "primitivesAsString": "true", "mode": "FAILFAST"}
    assert infer_schema(spark, records, options).simpleString() == "struct<id:string>"


@pytest.mark.parametrize("kept", ["[1]", "{}", "{", '{"type": "struct"}'])
def test_a_schema_that_was_kept_and_is_damaged_is_told(kept: str) -> None:
    with pytest.raises(PySparkException, match="the schema that was kept is damaged"):
        parse_schema(PipelineSpec(name=PipelineName("p"), format=RecordFormat.JSON), kept)
