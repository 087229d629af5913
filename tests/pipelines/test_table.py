"""Tables that are changed by whole batches and whole windows, whatever is cut off."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.pipelines import table_files
from mirrormaker.pipelines.sinks.files import table_of
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_files import AS_NAMED, FileError, TableFiles
from mirrormaker.pipelines.windows import DAY_MS, NO_VALUE, Span, parse_moment
from mirrormaker.topology.model import FileFormat, FileSink, SinkSpec

LAYOUT = TableLayout(format="parquet", partition_by=("date", "hour"))
DAY = parse_moment("2013-01-01")


class CutOffError(Exception):
    """What a crash is stood in for by."""


def rows(spark: SparkSession, ids: range, hours: int = 2) -> DataFrame:
    columns = (f"{ids.start} + id as id", "'2013-01-01' as date", f"cast(id % {hours} as int) as hour")
    return spark.range(len(ids)).coalesce(1).selectExpr(*columns)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, str(tmp_path / "table"), LAYOUT)


def held(table: Table) -> dict[int, list[int]]:
    """Hour -> ids, as readers that know nothing of the table see them."""
    found: dict[int, list[int]] = {}
    for row in table._spark.read.options(**AS_NAMED).parquet(table.files.root).collect():
        found.setdefault(row.hour, []).append(row.id)
    return {hour: sorted(ids) for hour, ids in sorted(found.items())}


def test_a_batch_that_comes_again_is_there_once(spark: SparkSession, table: Table) -> None:
    assert table.append("c", 0, rows(spark, range(4))) == 4
    assert table.append("c", 0, rows(spark, range(4))) == 4
    assert held(table) == {0: [0, 2], 1: [1, 3]}


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b", "a b%", "ä+b", "a[b]", "{a,b}"])
def test_a_table_may_be_called_whatever_a_folder_may(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = Table(spark, str(tmp_path / name / "table"), LAYOUT)
    table.append("c", 0, rows(spark, range(4)))
    assert held(table) == {0: [0, 2], 1: [1, 3]}
    day = Span(start_ms=DAY, end_ms=DAY + DAY_MS)
    assert table.replace(day, rows(spark, range(4, 8), 1))[1] == 4
    assert held(table) == {0: [4, 5, 6, 7]}
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_rows_whose_files_are_not_found_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "table"), TableLayout(format="parquet", partition_by=("_hidden",)))
    frame = spark.range(4).selectExpr("id", "id as _hidden")
    with pytest.raises(FileError, match="has no files of the 4 rows that were written"):
        table.append("c", 0, frame)
    assert not table.holds("c", 0)
    assert table.append("c", 0, frame.where("id < 0")) == 0


@pytest.mark.parametrize("form", list(FileFormat))
def test_texts_and_times_are_written_as_they_are(
    spark: SparkSession, tmp_path: Path, form: FileFormat
) -> None:
    texts = [" a", "a ", "  ", "\t", "a\\", 'a\\"b', "a,b", "a\nb", "x"]
    frame = spark.createDataFrame(list(enumerate(texts)), "id int, text string").coalesce(1)
    frame = frame.withColumn("at", f.expr("timestamp_micros(1357023600123456 + id)"))
    frame = frame.withColumn("shown", f.expr("cast(at as timestamp_ntz)"))

    def sink(folder: str, **options: str) -> SinkSpec:
        target = FileSink(format=form, path=str(tmp_path / folder))
        return SinkSpec(target=target, partition_by=(), options=options)

    assert table_of(spark, sink("table"), frame).append("c", 0, frame) == len(texts)
    reader = spark.read.format(form.value).schema(frame.schema).option("multiLine", str(form.value == "csv"))
    assert reader.load(str(tmp_path / "table")).exceptAll(frame).isEmpty()
    assert reader.load(str(tmp_path / "table")).count() == len(texts)
    only = frame.select("text").union(spark.createDataFrame([("",)], "text string"))
    table_of(spark, sink("lines", **({"nullValue": "-"} if form.value == "csv" else {})), only).append(
        "c", 0, only
    )
    lines = spark.read.format(form.value).schema("text string").option("multiLine", str(form.value == "csv"))
    if form is FileFormat.CSV:
        lines = lines.option("nullValue", "-")
    assert lines.load(str(tmp_path / "lines")).exceptAll(only).isEmpty()
    assert lines.load(str(tmp_path / "lines")).count() == len(texts) + 1, "a line of blanks would be none"


def test_rows_are_counted_as_they_come_whatever_lines_they_take(spark: SparkSession, tmp_path: Path) -> None:
    lines = "concat('a\\nb\\n', id) as text", "'2013-01-01' as date", "0 as hour"
    for kind in ("csv", "json", "parquet"):
        layout = TableLayout(format=kind, partition_by=("date", "hour"))
        table = Table(spark, str(tmp_path / kind), layout)
        assert table.append("c", 0, spark.range(3).selectExpr(*lines)) == 3
        assert table.append("c", 1, spark.range(0).selectExpr(*lines)) == 0
        windows, count = table.replace(
            Span(start_ms=DAY, end_ms=DAY + 3_600_000), spark.range(5).selectExpr(*lines)
        )
        assert (windows, count) == (["date=2013-01-01/hour=0"], 5)


class Notes:
    """The files of a table, by their names alone."""

    root = "out"

    def __init__(self, spark: object, root: str) -> None:
        self.texts: dict[str, str] = {}
        self.names: list[str] = []

    def read_text(self, path: str) -> str | None:
        return self.texts.get(path)

    def write_text(self, path: str, text: str) -> None:
        self.texts[path] = text

    def list_files(self, path: str) -> list[str]:
        return self.names


def test_a_table_has_one_format_and_the_same_subfolders_once_there_are_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirrormaker.pipelines.table.TableFiles", Notes)
    table: Any = Table(None, "out", LAYOUT)  # type: ignore[arg-type]
    table.note_layout()
    table.layout = TableLayout(format="json", partition_by=("date", "hour"))
    table.note_layout()
    table.files.names.append("date=2013-01-01/hour=7/part-0.json")
    for changed, told in (
        (TableLayout(format="json", partition_by=("date",)), "json by date"),
        (TableLayout(format="csv"), "csv without subfolders"),
    ):
        table.layout = changed
        with pytest.raises(ConfigurationError, match=f"^out: has files of json by date, hour, .* of {told}:"):
            table.note_layout()
    table.layout = TableLayout(format="json", partition_by=("date", "hour"), options={"compression": "gzip"})
    table.note_layout()


def test_columns_may_have_other_types_until_there_are_files(spark: SparkSession, table: Table) -> None:
    def priced(price: str) -> DataFrame:
        return rows(spark, range(4)).withColumn("price", f.expr(price))

    table.claim("p", "c")
    table.note_columns(priced("'x'").withColumn("gone", f.lit(1)))
    table.note_columns(priced("1.5D"))
    assert list(table.column_types()) == ["id", "date", "hour", "price"]
    table.append("c", 0, priced("1.5D"))
    with pytest.raises(ConfigurationError, match="column 'price' is string, and double in the files of"):
        table.note_columns(priced("'x'"))


def test_columns_are_known_by_the_names_and_places_that_readers_know_them_by(
    spark: SparkSession, tmp_path: Path
) -> None:
    def columns(*names: str) -> DataFrame:
        return spark.range(1).selectExpr(*(f"1 as `{name}`" for name in names))

    def table_of(name: str, kind: str, **options: str) -> Table:
        layout = TableLayout(format=kind, partition_by=("date",), options=options)
        found = Table(spark, str(tmp_path / name), layout)
        found.files.make_folder("_mirrormaker")
        found.note_columns(columns("id", "date", "price"))
        found.files.write_text("date=1/part-0", "")
        return found

    parquet = table_of("rows", "parquet")
    assert not parquet.changed_columns(columns("later", "price", "date", "id"))
    assert parquet.changed_columns(columns("ID", "date")) == [
        f"column 'ID' is called 'id' in the files of {parquet.files.root}"
    ]
    lines = table_of("lines", "csv")
    for fitting in (("id", "date"), ("date", "id", "price", "later")):
        assert not lines.changed_columns(columns(*fitting))
    for moved in (("price", "id", "date"), ("id", "later", "price", "date")):
        (told,) = lines.changed_columns(columns(*moved))
        assert told.startswith(f"columns are {', '.join(moved[:-1])}, and id, price in the files of ")
    assert not table_of("named", "csv", Header="true").changed_columns(columns("price", "id", "date"))


@pytest.mark.parametrize("moved", [0, 1])
def test_a_batch_is_moved_in_by_the_next_run_when_that_was_cut_off(
    spark: SparkSession, table: Table, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = TableFiles.rename
    done: list[str] = []

    def cut_off(files: TableFiles, path: str, to: str) -> None:
        if to.endswith(".parquet"):
            if len(done) == moved:
                raise CutOffError
            done.append(to)
        rename(files, path, to)

    with monkeypatch.context() as patched:
        patched.setattr(TableFiles, "rename", cut_off)
        with pytest.raises(CutOffError):
            table.append("c", 0, rows(spark, range(4)))
    table.recover()
    assert held(table) == {0: [0, 2], 1: [1, 3]}
    assert table.append("c", 0, rows(spark, range(4))) == 4
    assert held(table) == {0: [0, 2], 1: [1, 3]}


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("swapped", [0, 1, 2])
def test_windows_are_swapped_by_the_next_run_when_that_was_cut_off(
    spark: SparkSession, table: Table, can_exchange: bool, swapped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append("c", 0, rows(spark, range(6), hours=3))
    if not can_exchange:
        monkeypatch.setattr(TableFiles, "exchange", lambda files, path, other: False)
    swap_window = Table._swap_window
    done: list[str] = []

    def cut_off(table: Table, staged: str, window: str, names: list[str]) -> None:
        if len(done) == swapped:
            raise CutOffError
        done.append(window)
        swap_window(table, staged, window, names)

    asked = Span(start_ms=DAY, end_ms=DAY + 3 * 3_600_000)
    with monkeypatch.context() as patched:
        patched.setattr(Table, "_swap_window", cut_off)
        if swapped < 2:
            with pytest.raises(CutOffError):
                table.replace(asked, rows(spark, range(10, 14)))
        else:
            table.replace(asked, rows(spark, range(10, 14)))
    table.recover()
    assert held(table) == {0: [10, 12], 1: [11, 13]}


@contextmanager
def kept(*files: Path) -> Iterator[None]:
    """While the filesystem does not let these go."""
    done = [subprocess.run(["chattr", "+i", str(each)], check=False, capture_output=True) for each in files]
    try:
        if any(each.returncode for each in done):
            pytest.skip("this filesystem, or user, cannot keep files from being removed")
        yield
    finally:
        for each in files:
            subprocess.run(["chattr", "-i", str(each)], check=False, capture_output=True)


@pytest.mark.parametrize(("can_exchange", "hour"), [(True, 2), (False, 0)])
def test_windows_that_cannot_be_removed_are_told_until_they_can(
    spark: SparkSession, table: Table, can_exchange: bool, hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append("c", 0, rows(spark, range(6), hours=3))
    if not can_exchange:
        monkeypatch.setattr(TableFiles, "exchange", lambda files, path, other: False)
    asked = Span(start_ms=DAY, end_ms=DAY + 3 * 3_600_000)
    with kept(*Path(table.files.root, f"date=2013-01-01/hour={hour}").glob("*.parquet")):
        with pytest.raises(FileError, match=rf"date=2013-01-01/hour={hour}.*: cannot be removed"):
            table.replace(asked, rows(spark, range(10, 14)))
        with pytest.raises(FileError, match="cannot be removed"):
            table.recover()
    table.recover()
    assert held(table) == {0: [10, 12], 1: [11, 13]}


def test_what_nobody_reads_any_more_may_stay(spark: SparkSession, table: Table) -> None:
    left = Path(table.files.root, "_mirrormaker/staging/left/part-0")
    left.parent.mkdir(parents=True)
    left.touch()
    with kept(left):
        table.recover()
        assert table.append("c", 0, rows(spark, range(4))) == 4
    table.recover()
    assert not left.exists()


def test_a_swap_is_noted_as_done_on_the_disk_before_anything_else_is_done(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power would have windows be removed again that have rows by then."""
    table.append("c", 0, rows(spark, range(4)))
    synced: list[tuple[str, bool]] = []
    sync = table_files.sync

    def seen(path: Path) -> None:
        synced.append((path.name, (path / "swap.json").exists()))
        sync(path)

    monkeypatch.setattr(table_files, "sync", seen)
    table.replace(Span(start_ms=DAY, end_ms=DAY + DAY_MS), rows(spark, range(4), 1))
    assert synced[-1] == ("_mirrormaker", False)


def test_few_batches_are_noted_however_far_they_lie_apart(spark: SparkSession, table: Table) -> None:
    for number in range(0, 28, 7):
        table.append("c", number, rows(spark, range(1)))
    table.append("c-other", 5, rows(spark, range(1)))
    noted = {number for number in range(28) if table.holds("c", number)}
    assert noted == {14, 21}
    assert table.holds("c-other", 5)


class Copying:
    """Renames as object stores have them: file by file a copy, then the removal of what was copied; cut off
    after some of these.
    """

    def __init__(self, steps: int | None = None) -> None:
        self._left = steps

    def __call__(self, files: TableFiles, path: str, to: str) -> None:
        source, target = (Path(files.root, each) for each in (path, to))
        if target.is_dir():
            target /= source.name
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            copy = target / file.relative_to(source)
            if file.is_dir():
                continue
            assert not copy.exists(), "object stores refuse that"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            self._step()
            file.unlink()
            self._step()

    def _step(self) -> None:
        if self._left is not None:
            if not self._left:
                raise CutOffError
            self._left -= 1


def test_what_a_copying_filesystem_has_half_moved_is_whole_after_the_next_run(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def many(ids: range) -> DataFrame:
        return rows(spark, ids).repartition(2)

    monkeypatch.setattr(TableFiles, "exchange", lambda files, path, other: False)
    table.append("c", 0, many(range(8)))
    staged = table.stage(many(range(10, 18)), LAYOUT)
    windows = table.files.list_folders("")
    rename = TableFiles.rename
    for steps in range(1_000):
        again = Table(spark, str(tmp_path / f"table-{steps}"), LAYOUT)
        shutil.copytree(table.files.root, again.files.root)
        is_cut_off = False
        with monkeypatch.context() as patched:
            patched.setattr(TableFiles, "rename", _data_by(Copying(steps), rename))
            try:
                again.swap(staged, windows)
            except CutOffError:
                is_cut_off = True
            patched.setattr(TableFiles, "rename", _data_by(Copying(), rename))
            again.recover()
        assert held(again) == {0: [10, 12, 14, 16], 1: [11, 13, 15, 17]}, steps
        if not is_cut_off:
            return


Rename = Callable[[TableFiles, str, str], None]


def _data_by(copying: Copying, rename: Rename) -> Rename:
    """Notes are renamed as ever."""

    def renamed(files: TableFiles, path: str, to: str) -> None:
        (rename if path.endswith(".tmp") else copying)(files, path, to)

    return renamed


def test_a_table_belongs_to_one_checkpoint(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    table.claim("p", "one")
    table.claim("p", "one")
    with pytest.raises(ConfigurationError, match="with another checkpoint"):
        table.claim("p", "two")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.parquet").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="no pipeline has written"):
        Table(spark, str(tmp_path / "other"), LAYOUT).claim("p", "one")


def test_files_are_listed_alike_on_this_machine_and_through_hadoop(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [
        "topic=a%3Db c/date=1/part-0",
        "topic=ä/.part-0.crc",
        "topic=ä/part-0",
        "_notes/x",
        "y/_z/w",
        "z",
    ]
    for name in names:
        file = tmp_path / "a table" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    here, by_hadoop = (TableFiles(spark, str(tmp_path / "a table")) for _ in range(2))
    by_hadoop._local = None
    assert here._local is not None
    found = ["topic=a%3Db c/date=1/part-0", "topic=ä/part-0", "z"]
    assert here.list_files("") == by_hadoop.list_files("") == found
    assert here.list_files("_notes") == by_hadoop.list_files("_notes") == ["x"]
    assert here.list_files("nowhere") == by_hadoop.list_files("nowhere") == []


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["a", "x" * 251], "column 'name': a text of 251 bytes can name no subfolder"),
        (["a", "é/" * 60], "column 'name': a text of 300 bytes can name no subfolder"),
        ([None, NO_VALUE], f"column 'name': null and {NO_VALUE!r} would be one subfolder"),
    ],
)
def test_a_text_that_can_name_no_subfolder_is_told_with_its_column(
    spark: SparkSession, tmp_path: Path, texts: list[str | None], told: str
) -> None:
    table = Table(spark, str(tmp_path), TableLayout(format="parquet", partition_by=("name",)))
    named = spark.createDataFrame([(1, text) for text in texts], "id int, name string").coalesce(1)
    with pytest.raises(FileError, match=re.escape(f"{tmp_path}: {told}")):
        table.append("a", 0, named)
    assert table.append("a", 0, named.where("name = 'a'")) == texts.count("a")
