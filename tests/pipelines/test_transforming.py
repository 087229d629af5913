"""What steps do with rows, as Spark understands them."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

from mirrormaker.pipelines.transforming import (
    FunctionError,
    called,
    gathers_rows,
    is_of_records,
    is_query,
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """With a stream `records` and a table `names`."""
    session = spark.newSession()
    session.readStream.format("rate").load().createOrReplaceTempView("records")
    session.range(3).selectExpr("id as value", "'x' as name").createOrReplaceTempView("names")
    return session


@pytest.mark.parametrize(
    "step",
    [
        "select count(*) from records",
        "select distinct value from records",
        "select value, row_number() over (order by value) as number from records",
        "select value from records limit 2",
        "select value from records offset 2",
        "select value from records except select value from names",
        "select value from records intersect all select value from records",
        "select a.value from records a join records b on a.value = b.value + 1",
        "with a as (select value from records) select x.value from a x join a y using (value)",
        "select n.value from names n left join records r on n.value = r.value",
        "select n.value from records r right join names n on n.value = r.value",
        "select n.value from records r full join names n on n.value = r.value",
        "select n.value from names n left semi join records r on n.value = r.value",
        "select n.value from names n left anti join records r on n.value = r.value",
    ],
)
def test_steps_whose_rows_depend_on_what_comes_together_are_known(session: SparkSession, step: str) -> None:
    assert gathers_rows(session.sql(step))


@pytest.mark.parametrize(
    "step",
    [
        "select value, timestamp from records where value > 3",
        "select value from records union all select value + 1 from records",
        "select value, each from records lateral view explode(array(1, 2)) as each",
        "select value, name from records join names using (value)",
        "select value, name from records left join names using (value)",
        "select value, name from names right join records using (value)",
        "select r.value from records r left anti join names n on r.value = n.value",
        "select value from records where value not in (select value from names)",
        "select value from records where value > (select max(value) from names)",
        "select r.value from records r join (select distinct value from names) n on r.value = n.value",
        "with a as (select value from records) select value, name from a join names using (value)",
    ],
)
def test_steps_that_look_at_each_row_by_itself_are_known(session: SparkSession, step: str) -> None:
    assert not gathers_rows(session.sql(step))


def test_a_function_that_would_end_the_process_has_failed() -> None:
    with pytest.raises(FunctionError, match="failed: SystemExit: 0"):
        called(sys.exit, 0)


@pytest.mark.parametrize(
    "step",
    [
        "select value from names",
        "select 1",
        "select value from records union all select value from names",
        "select value from records union all (select value from records union all select 1)",
    ],
)
def test_rows_that_no_record_has_brought_are_known(session: SparkSession, step: str) -> None:
    assert not is_of_records(session.sql(step))


@pytest.mark.parametrize(
    "step",
    [
        "select value from records union all select value + 1 from records",
        "select value from records join (select value from names union all select 7) using (value)",
        "select value, each from records lateral view explode(array(1, 2)) as each",
    ],
)
def test_rows_of_records_are_known(session: SparkSession, step: str) -> None:
    assert is_of_records(session.sql(step))


@pytest.mark.parametrize(
    "text",
    [
        "drop table names",
        "create or replace temp view names as select 1",
        "with a as (select 1) insert into names select * from a",
        "insert overwrite directory 'out' using csv select 1",
        "set spark.sql.shuffle.partitions = 1",
    ],
)
def test_commands_are_no_queries(session: SparkSession, text: str) -> None:
    assert not is_query(session, text)


@pytest.mark.parametrize("text", ["table names", "with a as (select 1) select * from a", "values (1)"])
def test_queries_are_known(session: SparkSession, text: str) -> None:
    assert is_query(session, text)
