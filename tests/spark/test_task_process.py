"""What stays in a Python worker of Spark from one task to the next."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from broker.types import TopicPartition
from mirrormaker.spark.offsets import OffsetRange
from mirrormaker.spark.options import ClusterOptions, parse_options
from mirrormaker.spark.range_reader import read_range
from mirrormaker.spark.sink import MirrorWriter, Written
from mirrormaker.spark.sink_options import parse_sink_options
from mirrormaker.spark.task_process import THIS_PROCESS, ConnectedCluster, TaskProcess
from tests.spark.test_streaming import add_partitions
from tests.spark.topics import fill, new_topic


class Task:
    """As much of Spark's as is asked for."""

    def partitionId(self) -> int:
        return 0


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if Spark had called."""
    monkeypatch.setattr(TaskContext, "get", Task)
    yield
    THIS_PROCESS.close()
    gc.unfreeze()


def cluster_options(bootstrap: str, **options: str) -> ClusterOptions:
    return parse_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "a", **options}).cluster


def use(process: TaskProcess, options: ClusterOptions) -> ConnectedCluster:
    with process.task(options) as connected:
        return connected


def is_closed(connected: ConnectedCluster) -> bool:
    try:
        connected.runner.get_loop()
    except RuntimeError:
        return True
    return False


def test_tasks_of_a_worker_share_a_cluster_as_long_as_they_read_the_same(
    bootstrap: str, in_a_task: None
) -> None:
    process = TaskProcess()
    one, other = cluster_options(bootstrap), cluster_options(bootstrap, groupIdPrefix="other")
    first = use(process, one)
    assert use(process, one) is first
    second = use(process, other)
    assert second is not first
    assert is_closed(first)
    with pytest.raises(KeyError), process.task(other):
        raise KeyError
    assert is_closed(second)
    use(process, one).close()


def test_the_second_task_hides_what_was_imported_from_the_collector(bootstrap: str, in_a_task: None) -> None:
    process = TaskProcess()
    options = cluster_options(bootstrap)
    use(process, options)
    assert not gc.get_freeze_count()
    use(process, options).close()
    assert gc.get_freeze_count()


def test_who_reads_without_spark_keeps_nothing(bootstrap: str) -> None:
    process = TaskProcess()
    options = cluster_options(bootstrap)
    assert is_closed(use(process, options))
    assert is_closed(use(process, options))
    assert not gc.get_freeze_count()


def test_ranges_are_read_one_after_the_other_whole(bootstrap: str, in_a_task: None) -> None:
    topic = fill(bootstrap, partitions=2, count=2_000)
    options = parse_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    for number in (0, 1, 0):
        for start in range(0, 1_000, 250):
            wanted = OffsetRange(partition=TopicPartition(topic, number), start=start, end=start + 250)
            batches = list(read_range(options, wanted))
            found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
            assert found == list(range(start, start + 250))


def test_partitions_that_are_new_are_known_to_the_next_task_that_writes(
    bootstrap: str, in_a_task: None
) -> None:
    topic = new_topic(bootstrap, partitions=1)
    writer = MirrorWriter(parse_sink_options({"kafka.bootstrap.servers": bootstrap, "topic": topic}))
    for count in (1, 3):
        if count > 1:
            add_partitions(bootstrap, topic, count)
        rows = {"value": [b"a"], "partition": pa.array([count - 1], pa.int32())}
        assert writer.write(iter([pa.record_batch(rows)])) == Written(rows=1)


def test_reading_imports_no_pandas(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    script = f"""
import sys
from broker.types import TopicPartition
from mirrormaker.spark.range_reader import read_range
from mirrormaker.spark.offsets import OffsetRange
from mirrormaker.spark.options import parse_options
options = parse_options({{"kafka.bootstrap.servers": "{bootstrap}", "subscribe": "{topic}"}})
wanted = OffsetRange(partition=TopicPartition("{topic}", 0), start=0, end=10)
assert sum(batch.num_rows for batch in read_range(options, wanted)) == 10
sys.exit("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == 0
