"""Small files of a window are put together, and what is in them stays as it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from broker.errors import ConfigurationError
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.spark.jobs.compaction import compact

JSON = [
    ['{"b":1.10,"a":"007"}\n', '{"b":1e3}\n{"t":"2013-01-01T00:00:00.000Z","b":12345678901234567890}\n'],
    ['{"later":null,"nested":{"z":1,"a":2}}\n', ""],
]
CSV = [
    ['1.10,"two\nlines\r\nof them",\n', '2,"",a\\b\n', ' 3 ,"say ""x""",,a column more\n'],
    ["\n", "4,x,y"],
]
HEADED = [
    ["id,name\n1,a\nid,name\n", 'id,name\n2,"\n"\n', "id,name,later\n3,c,d\n", "id,name\n"],
]


def fill(root: Path, windows: list[list[str]], extension: str) -> None:
    for number, files in enumerate(windows):
        window = root / f"date=2013-01-0{number + 1}"
        window.mkdir(parents=True)
        for index, text in enumerate(files):
            (window / f"part-{index}.{extension}").write_bytes(text.encode())


def compacted(
    spark: SparkSession, root: Path, kind: str, windows: list[list[str]], **options: str
) -> list[list[str]]:
    """What is in the files of each window afterwards."""
    fill(root, windows, kind)
    table = Table(spark, str(root), TableLayout(format=kind, options=options))
    figures = compact(spark, table, file_bytes=1 << 20, files_min=2)
    assert figures["windows"] == len(windows)
    folders = sorted(root.glob("date=*"))
    found = [sorted(file.read_bytes().decode() for file in each.glob(f"part-*.{kind}")) for each in folders]
    assert figures["files_after"] == sum(map(len, found))
    return found


@pytest.mark.parametrize(
    ("kind", "windows"), [pytest.param("json", JSON, marks=pytest.mark.long), ("csv", CSV)]
)
def test_lines_are_kept_to_the_letter(
    spark: SparkSession, tmp_path: Path, kind: str, windows: list[list[str]]
) -> None:
    found = compacted(spark, tmp_path / "a[b]", kind, windows)
    for before, (after,) in zip(windows, found, strict=True):
        ended = [text if text.endswith("\n") or not text else f"{text}\n" for text in before]
        assert len(after) == sum(map(len, ended))
        assert all(text in after for text in ended), "files are not torn apart"


@pytest.mark.long
def test_rows_of_many_windows_are_put_together_by_few_jobs_and_keep_their_order_and_folders(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "a {table}"
    windows = [
        *(f"topic=jfk.flights/date=2013-01-01/hour={hour:02}" for hour in range(20)),
        "topic=a%3Db c/date=2013-01-01/hour=7",
        "topic=x/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__",
        "topic=z/date=2013-01-02/hour=0",
    ]
    for number, window in enumerate(windows):
        (root / window).mkdir(parents=True)
        for part in range(3):
            rows = {"id": list(range(part * 10, part * 10 + 10)), "window": [number] * 10}
            later = {"later": [part] * 10} if part and number % 2 else {}
            pq.write_table(pa.table(rows | later), root / window / f"part-0000{part}-x.snappy.parquet")
    spark.sparkContext.setJobGroup("compaction", "", interruptOnCancel=False)
    table = Table(spark, str(root), TableLayout(format="parquet"))
    figures = compact(spark, table, file_bytes=1 << 20, files_min=2)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("compaction")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert figures == {"windows": 23, "files_before": 3 * 23, "files_after": 23}
    assert len(jobs) < 6, "not one for each window"
    assert sorted(str(each.relative_to(root)) for each in root.rglob("hour=*")) == sorted(windows)
    for number, window in enumerate(windows):
        (file,) = (root / window).glob("*.parquet")
        found = pq.ParquetFile(file).read().to_pydict()
        assert found["id"] == list(range(30)), "in the order of their files"
        assert found["window"] == [number] * 30
        wanted = [None] * 10 + [1] * 10 + [2] * 10 if number % 2 else [None] * 30
        assert found["later"] == wanted


def test_a_window_of_several_big_files_is_left_with_as_many_as_there_are_to_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    window = tmp_path / "date=2013-01-01"
    window.mkdir()
    for part in range(6):
        ids = {"id": [bytes([part, number]) * 5_000 for number in range(10)]}
        pq.write_table(
            pa.table(ids), window / f"part-{part}.parquet", compression="none", use_dictionary=False
        )
    table = Table(spark, str(tmp_path), TableLayout(format="parquet", options={"compression": "none"}))
    figures = compact(spark, table, file_bytes=250_000, files_min=2)
    assert figures["files_after"] in (2, 3)
    assert (figures["windows"], figures["files_before"]) == (1, 6)
    assert spark.read.parquet(str(tmp_path)).count() == 60


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_table_without_subfolders_is_one_window(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Table(spark, str(tmp_path / "out"), TableLayout(format=kind))
    table.claim("p", "checkpoint")
    for number in range(4):
        table.append("checkpoint-p", number, spark.range(number, number + 1).coalesce(1))
    figures = compact(spark, table, file_bytes=1 << 20, files_min=2)
    assert figures == {"windows": 1, "files_before": 4, "files_after": 1}
    assert len(table.files.list_files("")) == 1
    assert table.holds("checkpoint-p", 3), "what is known of the table stays"
    table.append("checkpoint-p", 4, spark.range(4, 5))
    assert sorted(row.id for row in spark.read.format(kind).load(table.files.root).collect()) == list(
        range(5)
    )


def test_files_without_a_line_make_way_where_there_are_no_subfolders(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(spark, str(tmp_path / "out"), TableLayout(format="json"))
    table.claim("p", "checkpoint")
    for number in range(2):
        (tmp_path / "out" / f"part-{number}.json").touch()
    compact(spark, table, file_bytes=1 << 20, files_min=2)
    table.claim("p", "checkpoint")


def test_files_with_names_keep_them_and_those_of_others_are_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    ((first, second),) = compacted(spark, tmp_path, "csv", HEADED, header="true")
    assert second == "id,name,later\n3,c,d\n"
    assert first.startswith("id,name\n")
    assert Counter(first.splitlines()) == Counter(["id,name", "1,a", "id,name", '2,"', '"'])


def test_lines_of_names_become_no_rows_where_a_pipeline_bounds_how_many_tasks_read_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.sql.files.maxPartitionNum", "2")  # as keys of `spark` are
    try:
        files = [f"id,name\n{number},a\n" for number in range(4)]
        ((after,),) = compacted(spark, tmp_path, "csv", [files], header="true")
    finally:
        context.conf().remove("spark.sql.files.maxPartitionNum")
    assert sorted(after.splitlines()) == ["0,a", "1,a", "2,a", "3,a", "id,name"]


def test_what_cannot_be_kept_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="files in UTF-16 cannot be put together"):
        compacted(spark, tmp_path, "csv", CSV, encoding="UTF-16")
