"""Where loads begin, and what becomes of them when the topics no longer have it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.client.producer import Producer
from broker.types import HostPort, TopicPartition
from mirrormaker.pipelines import reloading
from mirrormaker.pipelines.checkpoint import Checkpoint
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunState
from mirrormaker.pipelines.runner import RunFailedError
from mirrormaker.pipelines.source import range_options
from mirrormaker.pipelines.table import Table
from mirrormaker.spark.lookups import select_partitions
from mirrormaker.spark.options import parse_options
from mirrormaker.topology.model import PipelineName, PipelineSpec, SinkSpec, TopicSink, WatermarkSpec
from tests.pipelines.place import Place, order, produce
from tests.spark.topics import make_anew

KEYS = "format: json\n    schema: id int, price double\n    sinks: [{parquet: out}]\n"


def delete_records(place: Place, before: int) -> None:
    """Of both partitions, up to that offset."""

    async def delete() -> None:
        async with Cluster([HostPort.parse(place.bootstrap)]) as cluster:
            await cluster.refresh()
            wanted = {TopicPartition(place.topic, number): before for number in range(2)}
            await Admin(cluster).delete_records(wanted)

    asyncio.run(delete())


def delete_topic(bootstrap: str, topic: str) -> None:
    async def delete() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).delete_topics([topic])

    asyncio.run(delete())


@pytest.mark.long
def test_a_first_batch_that_was_cut_off_begins_where_it_began(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.keys = f"{KEYS}    start: latest\n"
    place.produce(order(number, 0) for number in range(10))
    assert place.run().rows_read == 0
    append = Table.append

    def cut_off(table: Table, key: str, number: int, frame: DataFrame) -> int:
        raise OSError("cut off")

    place.produce(order(number, 1) for number in range(10, 16))
    with monkeypatch.context() as patched:
        patched.setattr(Table, "append", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    assert Table.append is append
    place.produce(order(number, 2) for number in range(16, 20))
    record = place.run()
    assert place.ids() == list(range(10, 20))
    assert record.state is RunState.SUCCEEDED
    record = place.reload(0, 24)
    assert place.ids() == list(range(10, 20)), "what came before the beginning has never been loaded"


@pytest.mark.long
def test_offsets_that_the_topic_does_not_have_are_told_before_anything_is_written(place: Place) -> None:
    place.produce(order(number, 0) for number in range(10))
    place.keys = f"{KEYS}    start: {{offsets: {{{place.topic}: {{0: 2, 1: 70, 5: 1}}}}}}\n"
    with pytest.raises(RunFailedError) as failed:
        place.run()
    assert (failed.value.record.problem or "").splitlines() == [
        f"pipelines[0].start: {place.topic}-1: offset 70 is outside the log's 0 to 5; failOnDataLoss=false "
        "begins with what there is",
        f"pipelines[0].start: {place.topic}-5 is not there",
    ]
    assert not place.files()
    place.keys = place.keys.replace(", 5: 1", "") + "    source_options: {failOnDataLoss: false}\n"
    assert place.run().rows_read == 3
    place.produce(order(number, 0) for number in range(10, 14))
    place.run()
    assert place.ids() == [4, 6, 8, *range(10, 14)]


@pytest.mark.long
def test_records_that_went_between_two_runs_fail_the_second_until_that_may_be(place: Place) -> None:
    place.keys = KEYS
    place.produce(order(number, 0) for number in range(10))
    place.run()
    place.produce(order(number, 0) for number in range(10, 20))
    delete_records(place, 8)
    with pytest.raises(RunFailedError, match="failOnDataLoss=false"):
        place.run()
    assert place.ids() == list(range(10))
    place.keys = f"{KEYS}    source_options: {{failOnDataLoss: false}}\n"
    place.run()
    assert place.ids() == [*range(10), *range(16, 20)]


def test_partitions_of_which_nothing_is_wanted_are_not_asked_for_it() -> None:
    ends = {"a": {"0": 5, "1": 5}, "b": {"0": 3}, "a@ID": {}}
    options = range_options({"a": {"0": 5, "1": 2}, "b": {"0": 3}}, ends)
    source = parse_options({"kafka.bootstrap.servers": "localhost:9092", **options})
    assert source.selection.partitions == (TopicPartition("a", 1),)
    none = parse_options({"kafka.bootstrap.servers": "localhost:9092", **range_options(ends, ends)})
    assert select_partitions(none.selection, ClusterMetadata()) == []


@pytest.mark.long
def test_a_reload_is_refused_where_records_of_its_windows_are_gone_and_no_others(place: Place) -> None:
    place.keys = KEYS
    hours = (10, 10, 12, 12, 11, 11, 12, 12)
    place.produce(order(number, hour) for number, hour in enumerate(hours))
    assert place.run().rows_read == 8
    place.produce([order(8, 12)])
    assert place.run().rows_read == 1
    delete_records(place, 1)
    assert place.reload(12, 13).rows_written == {"0-parquet": 5}
    delete_records(place, 2)
    told = f"{place.topic}-0: records before offset 2 are gone: 5 that may be of .* were loaded, 3 are there"
    with pytest.raises(RunFailedError, match=told):
        place.reload(12, 13)
    assert place.reload(11, 12).rows_written == {"0-parquet": 2}
    assert place.ids() == list(range(9))
    (place.folder / "data/pipelines/p/runs.jsonl").unlink()
    with pytest.raises(RunFailedError, match="records before offset 2 are gone, maybe some of 2013"):
        place.reload(11, 12)
    assert place.ids() == list(range(9))


@pytest.mark.long
def test_a_reload_of_a_compacted_topic_is_refused_once_records_are_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.keys = KEYS

    async def fill() -> None:
        async with Cluster([HostPort.parse(place.bootstrap)]) as cluster:
            configs = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
            new = NewTopic(name=place.topic, partitions=1, replication_factor=1, configs=configs)
            await Admin(cluster).create_topic(new)
            async with Producer(cluster) as producer:
                for number in range(4):
                    moment_ms, value = order(number, 1)
                    await producer.send(place.topic, value, b"key", partition=0, timestamp_ms=moment_ms)
                await producer.flush()

    asyncio.run(fill())
    place.run()
    assert place.reload(1, 2).rows_written == {"0-parquet": 4}
    count = reloading._count_hours
    with monkeypatch.context() as patched:
        # a cleaner leaves the segment alone that is written
        patched.setattr(reloading, "_count_hours", lambda records, asked: count(records.limit(3), asked))
        with pytest.raises(RunFailedError, match=r"compaction removes records: 4 that may be of .* 3 are"):
            place.reload(1, 2)
    assert place.ids() == list(range(4))


@pytest.mark.long
def test_a_topic_made_anew_fails_runs_until_that_may_be_and_is_read_whole(place: Place) -> None:
    place.keys = KEYS
    place.produce(order(number, 0) for number in range(10))
    place.run()
    make_anew(place.bootstrap, place.topic, partitions=2, count=0)
    place.produce(order(number, 1) for number in range(10, 34))
    with pytest.raises(RunFailedError, match=f"topic {place.topic} was deleted and made anew; it was read"):
        place.run()
    with pytest.raises(RunFailedError, match=f"topic {place.topic} was deleted and made anew since it was"):
        place.reload(0, 24)
    assert place.ids() == list(range(10))
    place.keys = f"{KEYS}    source_options: {{failOnDataLoss: false}}\n"
    assert place.run().rows_read == 24
    with pytest.raises(RunFailedError, match="made anew, what it had before is gone: 34 that may be of"):
        place.reload(0, 24)
    assert place.ids() == list(range(34))


def test_options_that_the_source_does_not_know_are_told(place: Place) -> None:
    place.produce([order(1, 0)])
    place.keys = f"{KEYS}    source_options: {{failOnDataLos: false, minPartitions: some}}\n"
    with pytest.raises(RunFailedError) as failed:
        place.run()
    problem = failed.value.record.problem or ""
    assert (
        "pipelines[0].source_options: option failondatalos is unknown, did you mean failOnDataLoss?"
        in problem
    )
    assert "pipelines[0].source_options: option minPartitions: " in problem


def test_a_program_that_is_not_there_to_be_alerted_is_told_by_a_check_alone(place: Place) -> None:
    place.produce([order(1, 0)])
    place.keys = f"{KEYS}    alert: {{command: [/nowhere/at-all]}}\n"
    told = "pipelines[0].alert.command: '/nowhere/at-all' is no program that can be started here"
    assert place.runner().check() == [told]
    assert place.run().rows_read == 1


@pytest.mark.parametrize("options", ["{includeHeaders: true, minPartitions: some}", "{}"])
def test_steps_are_looked_at_though_nothing_can_be_read_yet(place: Place, options: str) -> None:
    steps = "[{name: s, sql: 'select nothing from records'}, {name: t, sql: 'select nowhere from s'}]"
    place.keys = f"{KEYS}    source_options: {options}\n    steps: {steps}\n"
    problems = place.runner().check()
    assert [problem.split(": ")[0] for problem in problems if "minPartitions" not in problem] == [
        "pipelines[0].topics",
        "pipelines[0].steps[0].sql",
    ]
    assert any("minPartitions" in problem for problem in problems) == ("minPartitions" in options)


@pytest.mark.long
def test_a_checkpoint_with_state_is_for_the_sinks_that_it_was_made_for(place: Place) -> None:
    place.keys = KEYS
    place.produce(order(number, 0) for number in range(4))
    place.run()
    place.keys = f"{KEYS}    watermark: {{delay: 1m}}\n"
    with pytest.raises(RunFailedError, match="watermark: so far it was loaded without one"):
        place.run()
    place.keys = KEYS
    place.run()
    assert place.ids() == list(range(4))


@pytest.mark.long
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_reload_is_refused_where_rows_are_of_a_topic_that_is_read_no_more(
    place: Place, is_deleted: bool
) -> None:
    place.keys = f"{KEYS}    source_options: {{failOnDataLoss: false}}\n"
    first, second = place.topic, f"{place.topic}-b"
    produce(place.bootstrap, first, (order(number, 1) for number in range(4)))
    produce(place.bootstrap, second, (order(number, 1 + number % 2) for number in range(4, 8)))
    place.topic = f"{first}.*"
    assert place.run().rows_read == 8
    if is_deleted:
        delete_topic(place.bootstrap, second)
    else:
        place.topic = first
    assert place.run().rows_read == 0
    told = f"topic {second}: it was deleted, or .*: 2 that may be of .* were loaded, 0 are there"
    with pytest.raises(RunFailedError, match=told):
        place.reload(1, 2)
    assert place.ids() == list(range(8))
    assert place.reload(3, 4).state is RunState.SUCCEEDED


@pytest.mark.long
def test_a_reload_is_refused_where_a_topic_that_had_come_later_was_made_anew(place: Place) -> None:
    place.keys = f"{KEYS}    source_options: {{failOnDataLoss: false}}\n"
    first, second = place.topic, f"{place.topic}-b"
    place.produce(order(number, 1) for number in range(4))
    place.topic = f"{first}.*"
    place.run()
    produce(place.bootstrap, second, (order(number, 1) for number in range(4, 8)))
    place.run()
    make_anew(place.bootstrap, second, partitions=2, count=0)
    produce(place.bootstrap, second, (order(number, 1) for number in range(8, 10)))
    assert place.run().rows_read == 2
    told = f"topic {second} was deleted and made anew, .*: 6 that may be of .* were loaded, 2 are there"
    with pytest.raises(RunFailedError, match=told):
        place.reload(1, 2)
    assert place.ids() == list(range(10))


@pytest.mark.parametrize(
    ("runs", "after", "told"),
    [
        ([["x a", "x b"]], ["x a", "x b"], []),
        ([["x a", "x b"]], ["x b", "x a"], ["sinks[0]", "sinks[1]"]),
        ([["x a"]], ["x b", "x a"], ["sinks[1]"]),
        ([["x a", "x b"]], ["x b"], ["sinks[0]"]),
        ([["x a"]], ["x a", "x b"], []),
        ([["x a"]], ["x c"], []),
        ([["x a", "x a"]], ["x a", "x a"], []),
        ([["x a"]], ["y a"], ["sinks[0]"]),
        ([["x a", "y b"], ["x a"]], ["x a", "y b"], []),
        ([["x a", "y b"], ["x a"]], ["x a", "z b"], ["sinks[1]"]),
        ([["x a", "x b"], ["x a"]], ["x b", "x a"], ["sinks[0]", "sinks[1]"]),
        ([["x a", "y b", "z b"], ["x a"], ["x a", "y b"]], ["x a", "y b", "y c"], ["sinks[2]"]),
    ],
)
def test_sinks_have_their_own_state_each(
    runs: list[list[str]], after: list[str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert places_told(runs, after, monkeypatch, begun=3) == told


@pytest.mark.parametrize("runs", [[["x a", "y b"]], [["x a", "y b"], ["x a"]]])
def test_the_place_of_a_sink_that_never_began_is_free(
    runs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert places_told(runs, ["x a", "z b"], monkeypatch, begun=1) == []


def places_told(
    runs: list[list[str]], after: list[str], monkeypatch: pytest.MonkeyPatch, *, begun: int
) -> list[str]:
    """What a checkpoint has against sinks `after` others; the first so many have begun a batch."""
    texts = {"generation": "0123456789ab"}
    names = {texts["generation"]: [f"{number}-topic" for number in range(begun)]}
    names |= {f"{at}/{name}/offsets": ["0"] for at in list(names) for name in names[at]}

    class Notes:
        def __init__(self, *where: object) -> None:
            self.read_text, self.write_text = texts.get, texts.__setitem__

        def make_folder(self, path: str) -> None: ...

        def list_names(self, path: str) -> list[str]:
            return names.get(path, [])

    monkeypatch.setattr("mirrormaker.pipelines.checkpoint.TableFiles", Notes)

    def pipeline(sinks: list[str]) -> PipelineSpec:
        return PipelineSpec(
            name=PipelineName("p"),
            watermark=WatermarkSpec(delay_ms=1),
            sinks=tuple(
                SinkSpec(target=TopicSink(topic=topic), source=step) for topic, step in map(str.split, sinks)
            ),
        )

    def checkpoint(sinks: list[str]) -> Checkpoint:
        folder = PipelineFolder(Path("nowhere"), PipelineName("p"))
        return Checkpoint(None, pipeline(sinks), folder)  # type: ignore[arg-type]

    for sinks in runs:
        checkpoint(sinks).note_start(pipeline(sinks), {})
    return [key for key, _ in checkpoint(after).problems(pipeline(after))]
