"""What is kept beside tables and in checkpoints, after a host has lost its power."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.pipelines.checkpoint import Checkpoint
from mirrormaker.pipelines.job_run import JobRun
from mirrormaker.pipelines.quarantine import Quarantine
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.runner import RunFailedError
from mirrormaker.pipelines.sinks.files import FilesSink
from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.table import Table
from mirrormaker.pipelines.table_files import FileError, TableFiles
from mirrormaker.spark.jobs.export import _Exports
from mirrormaker.topology.model import PipelineName, PipelineSpec, Topology
from tests.pipelines.place import Place, order
from tests.pipelines.test_run_log import RUN
from tests.pipelines.test_table import LAYOUT, CutOffError, held, rows
from tests.spark.topics import new_topic

Lose = Callable[[str], str]
LOSSES: dict[str, Lose] = {
    "empty": lambda text: "",
    "cut short": lambda text: text[: len(text) // 2],
    "zeros": lambda text: "\0" * len(text),
}


@pytest.fixture(params=LOSSES, name="lose")
def _lose(request: pytest.FixtureRequest) -> Lose:
    return LOSSES[request.param]


def lose_in(file: Path, lose: Lose) -> None:
    file.write_text(lose(file.read_text()))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, str(tmp_path / "table"), LAYOUT)


def notes_of(table: Table) -> Path:
    return Path(table.files.root, "_mirrormaker")


def test_a_table_whose_notes_were_lost_goes_on(spark: SparkSession, table: Table, lose: Lose) -> None:
    def claim() -> None:
        table.claim("p", "c")
        table.recover()
        table.note_layout()
        table.note_columns(rows(spark, range(1)))

    claim()
    table.append("c-parquet", 0, rows(spark, range(4)))
    names = ("owner.json", "layout.json", "columns.json")
    before = {name: json.loads((notes_of(table) / name).read_text()) for name in names}
    for name in names:
        lose_in(notes_of(table) / name, lose)
    claim()
    assert {name: json.loads((notes_of(table) / name).read_text()) for name in names} == before
    table.append("c-parquet", 1, rows(spark, range(4, 6)))
    assert held(table) == {0: [0, 2, 4], 1: [1, 3, 5]}


def test_a_table_that_does_not_say_any_more_who_loaded_it_is_left_to_people(
    spark: SparkSession, table: Table, lose: Lose
) -> None:
    table.claim("p", "c")
    lose_in(notes_of(table) / "owner.json", lose)
    table.claim("p", "c")
    table.append("c-parquet", 0, rows(spark, range(4)))
    lose_in(notes_of(table) / "owner.json", lose)
    with pytest.raises(ConfigurationError, match=r"owner.json: is empty or cut short, .* who has loaded the"):
        table.claim("p", "other")


def test_windows_whose_swap_was_not_noted_are_as_they_were(
    spark: SparkSession, table: Table, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(table: Table) -> None:
        raise CutOffError

    table.append("c", 0, rows(spark, range(4)))
    with monkeypatch.context() as patched:
        patched.setattr(Table, "_end_swap", cut_off)
        with pytest.raises(CutOffError):
            table.swap(table.stage(rows(spark, range(10, 14)), LAYOUT), table.files.list_folders(""))
    lose_in(notes_of(table) / "swap.json", lose)
    table.recover()
    assert held(table) == {0: [0, 2], 1: [1, 3]}
    assert not (notes_of(table) / "swap.json").exists()
    assert not (notes_of(table) / "staging").exists()


def test_a_batch_whose_note_is_cut_short_is_written_again(
    spark: SparkSession, table: Table, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(table: Table, commit: object) -> None:
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(Table, "_move_in", cut_off)
        with pytest.raises(CutOffError):
            table.append("c", 0, rows(spark, range(4)))
    lose_in(notes_of(table) / "commits/c-0.json", lose)
    table.recover()
    assert not table.holds("c", 0)
    assert table.append("c", 0, rows(spark, range(4))) == table.append("c", 0, rows(spark, range(4))) == 4
    assert held(table) == {0: [0, 2], 1: [1, 3]}


def test_rows_for_a_topic_whose_note_is_cut_short_are_kept_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": new_topic(bootstrap, partitions=1)}
    outbox = Outbox(spark, TableFiles(spark, str(tmp_path)), "outbox", "job")
    monkeypatch.setattr(Outbox, "_send", lambda *what: None)
    outbox.send(7, lambda: spark.range(3), options)
    lose_in(tmp_path / "outbox/7.json", lose)
    outbox.tidy()
    assert not outbox.holds(7)
    assert outbox.send(7, lambda: spark.range(3), options) == 3
    assert outbox.holds(7)


def test_what_a_note_speaks_of_is_on_the_disk_before_it_is(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync, replace, rename = os.fsync, os.replace, TableFiles.rename
    noted = notes_of(table) / "commits/c-0.json"
    staged: set[str] = set()

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def watched_replace(source: Path, target: Path, **folders: int) -> None:
        assert str(source) in synced, "what is in it"
        if target == noted:
            below = notes_of(table) / "staging"
            staged.update(map(str, below.rglob("*")))
            assert staged, "there are rows"
            assert staged | {str(below), str(below.parent)} <= synced
            synced.discard(str(noted.parent))
        replace(source, target, **folders)

    def watched_rename(files: TableFiles, path: str, to: str) -> None:
        assert str(noted.parent) in synced, "the note's name"
        rename(files, path, to)
        synced.discard(str(Path(files.root, to).parent))

    def deleted(files: TableFiles, path: str) -> None:
        if "staging/" in path:
            assert {str(Path(files.root, name).parent) for name in files.list_files("")} <= synced
        delete(files, path)

    delete = TableFiles.delete
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(TableFiles, "rename", watched_rename)
    monkeypatch.setattr(TableFiles, "delete", deleted)
    assert table.append("c", 0, rows(spark, range(4))) == 4
    assert staged
    assert held(table) == {0: [0, 2], 1: [1, 3]}


def test_a_checkpoint_is_called_what_its_folder_is_called(
    spark: SparkSession, tmp_path: Path, lose: Lose
) -> None:
    checkpoint = checkpoint_in(spark, tmp_path)
    folder = Path(checkpoint.files.root)
    made = checkpoint.make_generation()
    lose_in(folder / "generation", lose)
    assert checkpoint.generation is None, "nothing has been loaded under it"
    made = checkpoint.make_generation()
    checkpoint.note_start(PipelineSpec(name=PipelineName("p")), {"t": {"0": 3}})
    lose_in(folder / "generation", lose)
    assert checkpoint.generation == checkpoint.make_generation() == made
    (folder / "0123456789ab").mkdir()
    with pytest.raises(FileError, match=r"generation: is empty or cut short, .* say which of"):
        checkpoint.make_generation()


def test_a_beginning_that_was_lost_is_found_again_unless_the_first_batch_may_begin_there(
    spark: SparkSession, tmp_path: Path, lose: Lose
) -> None:
    checkpoint, pipeline = checkpoint_in(spark, tmp_path), PipelineSpec(name=PipelineName("p"))
    checkpoint.note_start(pipeline, {"t": {"0": 3}})
    here = Path(checkpoint.files.root, checkpoint.make_generation())
    lose_in(here / "beginning", lose)
    assert checkpoint.beginning() is None
    assert not list(checkpoint.problems(pipeline))
    begin_batch(here / "load", 0)
    ((key, problem),) = checkpoint.problems(pipeline)
    assert key == "checkpoint"
    assert "beginning: is empty or cut short" in problem
    end_batch(here / "load", 0)
    assert not list(checkpoint.problems(pipeline))


def test_notes_of_spark_that_were_lost_are_made_anew_where_nothing_is_loaded_by_them(
    spark: SparkSession, tmp_path: Path, lose: Lose
) -> None:
    checkpoint = checkpoint_in(spark, tmp_path)
    query = f"{checkpoint.make_generation()}/load"
    here = Path(checkpoint.files.root, query)
    for number in range(2):
        begin_batch(here, number)
        end_batch(here, number)
    lose_in(here / "commits/1", lose)
    lose_in(here / "metadata", lose)
    checkpoint.mend(query, lambda number: True)
    assert sorted(each.name for each in here.glob("*/*")) == ["0", "0", "1"]
    assert list(json.loads((here / "metadata").read_text())) == ["id"]
    lose_in(here / "offsets/1", lose)
    with pytest.raises(FileError, match=r"offsets/1: is empty or cut short, .* its rows are loaded"):
        checkpoint.mend(query, lambda number: number == 1)
    checkpoint.mend(query, lambda number: False)
    assert sorted(each.name for each in here.glob("*/*")) == ["0", "0"]
    assert checkpoint.loaded_ends() == {"t": {"0": 1}}
    lose_in(here / "offsets/0", lose)
    with pytest.raises(FileError, match="offsets/0: is empty or cut short"):
        checkpoint.loaded_ends()


def test_an_export_that_was_lost_is_not_taken_for_another(
    spark: SparkSession, tmp_path: Path, lose: Lose
) -> None:
    checkpoint, name = checkpoint_in(spark, tmp_path), PipelineName("p")
    run = JobRun(pipeline=PipelineSpec(name=name), folder=PipelineFolder(tmp_path, name), record=RUN)
    exports = _Exports(spark, Topology(clusters={}, routes=(), data_dir=tmp_path), checkpoint, run)
    begun = exports.begin(None, {"table": "t"})
    assert exports.last() == begun
    lose_in(Path(checkpoint.files.root, checkpoint.make_generation(), "export.json"), lose)
    with pytest.raises(ConfigurationError, match=r"export.json: is empty or cut short, .* away to export"):
        exports.last()


def checkpoint_in(spark: SparkSession, folder: Path) -> Checkpoint:
    name = PipelineName("p")
    return Checkpoint(spark, PipelineSpec(name=name), PipelineFolder(folder, name))


def begin_batch(query: Path, number: int) -> None:
    """As Spark notes it."""
    (query / "offsets").mkdir(parents=True, exist_ok=True)
    (query / "metadata").write_text('{"id":"6eb7fe4e-8d7c-4a3e-a8e4-7d7c2c3d2f11"}')
    ends = json.dumps({"t": {"0": number + 1}})
    (query / f"offsets/{number}").write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{ends}')


def end_batch(query: Path, number: int) -> None:
    (query / "commits").mkdir(exist_ok=True)
    (query / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.mark.long
def test_every_record_is_in_the_table_once_whatever_notes_were_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce([*(order(number, number // 10) for number in range(20)), (0, b"no order")])
    place.run()
    checkpoint = place.folder / "data/pipelines/p/checkpoint"
    (here,) = (each for each in checkpoint.iterdir() if each.is_dir() and each.name != "outbox")
    tables = [place.folder / "out", place.folder / "data/pipelines/p/quarantine"]
    lost = [each for table in tables for each in (table / "_mirrormaker").glob("*.json")]
    lost += [checkpoint / "generation", here / "topics", here / "queries", here / "beginning"]
    lost += [here / "load/metadata", here / "load/commits/0"]
    assert len(lost) == 10
    for number, note in enumerate(lost):
        lose_in(note, list(LOSSES.values())[number % 3])
        note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
    said = json.dumps({place.topic: {"0": 0, "1": 0}})
    (here / "beginning").write_text(said)  # the first batch comes again
    place.produce([order(20, 1)])
    place.run()
    assert place.ids() == list(range(21))

    def cut_off(*what: object) -> int:
        raise OSError("cut off")

    place.produce([order(21, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(Quarantine, "append", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    lose_in(here / "load/offsets/2", LOSSES["empty"])
    place.produce([order(22, 1)])
    place.run()
    assert place.ids() == list(range(23))

    append = FilesSink.append

    def cut_off_behind(sink: FilesSink, number: int, frame: object) -> int:
        append(sink, number, frame)  # type: ignore[arg-type]
        raise OSError("cut off")

    place.produce([order(23, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(FilesSink, "append", cut_off_behind)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    lose_in(here / "load/offsets/3", LOSSES["empty"])
    with pytest.raises(BrokerError, match=r"load/offsets/3: is empty or cut short, .* its rows are loaded"):
        place.run()


@pytest.mark.long
def test_a_batch_of_a_sink_is_made_anew_whatever_quarantine_has_under_its_number(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a watermark each sink is a query, which counts its batches by itself."""
    place.keys += "    watermark: {delay: 1h}\n"
    place.produce([order(0, 0)])
    place.run()
    checkpoint = place.folder / "data/pipelines/p/checkpoint"
    (query,) = checkpoint.glob("*/0-*")

    def cut_off(*what: object) -> int:
        raise OSError("cut off")

    place.produce([order(1, 0)])
    with monkeypatch.context() as patched:
        patched.setattr(FilesSink, "append", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    number = max(int(each.name) for each in (query / "offsets").iterdir() if each.name.isdecimal())
    assert not (query / f"commits/{number}").exists()
    commits = place.folder / "data/pipelines/p/quarantine/_mirrormaker/commits"
    commits.mkdir(exist_ok=True)
    malformed = {"staged": "none", "files": [], "rows": 1}
    (commits / f"{query.parent.name}-quarantine-{number}.json").write_text(json.dumps(malformed))
    lose_in(query / f"offsets/{number}", LOSSES["empty"])
    place.run()
    assert place.ids() == [0, 1]


@pytest.mark.long
def test_windows_are_not_written_anew_while_it_is_not_known_where_loading_began(place: Place) -> None:
    place.keys += "    start: latest\n"
    place.produce(order(number, 0) for number in range(4))
    place.run()
    place.produce(order(number, 0) for number in range(4, 8))
    place.run()
    (note,) = (place.folder / "data/pipelines/p/checkpoint").glob("*/beginning")
    said = note.read_text()
    lose_in(note, LOSSES["empty"])
    with pytest.raises(RunFailedError, match=r"beginning: is empty or cut short, .* say where loading began"):
        place.reload(0, 1)
    assert place.ids() == list(range(4, 8))
    note.write_text(said)
    place.reload(0, 1)
    assert place.ids() == list(range(4, 8))
