"""Data directories that brokers of Apache Kafka wrote: they open, nothing in them is lost or taken for
damage, and dumps show what Kafka's own tool showed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.records.reader import read_batches
from broker.storage.checkpoints import read_meta_properties
from broker.storage.disk import SystemDisk
from broker.storage.dump import DumpOptions, dump_file
from broker.storage.dump_line import DumpLine, text_of
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.log_dump import LogDumpOptions
from broker.storage.read_only_disk import ReadOnlyDisk
from broker.storage.segment_check import Problem, Severity
from broker.storage.verify import Verification
from broker.types import BrokerId
from tests.captured import Captured, State, captured_versions, unpack
from tests.storage.compaction_samples import compact
from tests.storage.samples import SIZE_MAX, ManualClock, append

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200)
COMPACTED = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
_COMPLAINTS = ("Mismatches in :", "  Index offset: ", "  Index timestamp: ", "Found timestamp mismatch in :")
_OWN_FIELDS = re.compile(
    r" (position|isvalid|magic|compresscodec|crc|producerId|producerEpoch|isTransactional): -?\w+}?"
    r"| sequence: -1| headerKeys: \[\]",
    re.IGNORECASE,
)
CAPTURES = [(version, state) for version in captured_versions() for state in State]


@pytest.fixture(params=CAPTURES, ids=[f"{version}-{state.value}" for version, state in CAPTURES])
def captured(request: pytest.FixtureRequest, tmp_path: Path) -> Captured:
    """A copy of each captured directory."""
    version, state = request.param
    return unpack(version, state, tmp_path)


def open_directory(root: Path) -> LogDirectory:
    meta = read_meta_properties(SystemDisk(), root / "meta.properties")
    directory = LogDirectory.open(
        SystemDisk(),
        root,
        ManualClock(),
        broker_id=BrokerId(1),
        cluster_id=(meta and meta.cluster_id) or "cluster",
    )
    directory.load(
        lambda partition: (
            COMPACTED if partition.topic.endswith(("compacted", "_offsets", "_state")) else CONFIG
        )
    )
    return directory


def records_of(log: Log) -> Iterator[dict[str, Any]]:
    """The records as the captures tell of them."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, up_to=log.log_end_offset)
        data = part.read()
        for batch in read_batches(data, start_offset=offset, size_max=SIZE_MAX):
            if batch.header is not None and batch.header.is_control:
                continue
            for record in batch.records:
                yield {
                    "offset": record.offset,
                    "timestamp": record.timestamp if record.timestamp >= 0 else None,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[name, _text(value)] for name, value in record.headers],
                }
        offset = part.next_offset


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


def damages(root: Path) -> list[Problem]:
    check = Verification(disk=ReadOnlyDisk(), path=root)
    return [problem for problem in check.problems() if problem.severity is Severity.DAMAGE]


def test_every_record_reads_back_as_its_broker_served_it(captured: Captured) -> None:
    directory = open_directory(captured.root)
    try:
        logs = {str(partition): log for partition, log in directory.logs.items()}
        for partition, served in captured.served["records"].items():
            expected = [{k: v for k, v in record.items() if k != "append_time"} for record in served]
            log, start_offset = logs[partition], captured.served["start_offsets"][partition]
            assert [r for r in records_of(log) if r["offset"] >= start_offset] == expected
            assert log.log_end_offset >= captured.served["end_offsets"][partition]
            # where a log starts is checkpointed now and then: after a crash deleted records may come back
            assert log.log_start_offset == (start_offset if directory.clean else 0)
    finally:
        directory.close()


def test_it_is_sound_before_and_after_a_node_used_it(captured: Captured) -> None:
    assert damages(captured.root) == []
    directory = open_directory(captured.root)
    for log in directory.logs.values():
        append(log, b"after", b"that")
    directory.close()
    assert damages(captured.root) == []


def test_what_kafkas_cleaner_left_has_gaps_and_tombstones_and_can_be_compacted(
    captured: Captured,
) -> None:
    directory = open_directory(captured.root)
    try:
        logs = [log for partition, log in directory.logs.items() if partition.topic.endswith("compacted")]
        assert logs
        for log in logs:
            before = list(records_of(log))
            assert len(before) < log.log_end_offset
            assert any(record["value"] is None for record in before)
            newest = {record["key"]: record for record in before}
            assert newest.keys() == {f"key {number}" for number in range(14)}
            log.flush()
            compact(log, now_ms=0)
            after = list(records_of(log))
            assert {record["key"]: record for record in after} == newest
            assert len(after) <= len(before)
    finally:
        directory.close()
    assert damages(captured.root) == []


def test_a_clean_end_needs_no_check(captured: Captured) -> None:
    directory = open_directory(captured.root)
    directory.close()
    assert directory.clean == (captured.state is State.CLEAN)
    if directory.clean:
        assert not any(log.recovery_report.scanned for log in directory.logs.values())


def test_dumps_show_what_kafkas_own_tool_shows(captured: Captured) -> None:
    shown = [line.rstrip() for line in captured.dump.splitlines()]
    printed = []
    for name in [line.removeprefix("Dumping ") for line in shown if line.startswith("Dumping ")]:
        has_data = name.endswith(".log") and not name.startswith("__")
        options = DumpOptions(log=LogDumpOptions(deep=True, print_data=has_data))
        printed.append(f"Dumping {name}")
        for found in dump_file(ReadOnlyDisk(), captured.root / name, options):
            assert isinstance(found, DumpLine)
            printed.append(text_of(found).rstrip())
    assert _comparable(printed) == _comparable(shown)


def _comparable(lines: list[str]) -> list[str]:
    """Lines of a dump without what only one of the tools has: the fields of a record that are its batch's,
    and complaints about indexes of older versions, whose entries name the first offset of a batch.
    """
    return [
        _OWN_FIELDS.sub("", line).lower() if line.startswith("|") else line
        for line in lines
        if not line.startswith(_COMPLAINTS)
    ]
