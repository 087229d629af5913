"""The replicas of a cluster, seen by a client and as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.chaos.load import CLIENT_SETTINGS

PATIENCE_PER_REQUEST_SECONDS = 5


def are_in_sync(bootstrap: str) -> bool:
    """Whether every partition is said to have a leader and all its replicas in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT_SETTINGS})
    try:
        topics = admin.list_topics(timeout=PATIENCE_PER_REQUEST_SECONDS).topics
    except KafkaException:
        return False
    return all(
        partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
        for topic in topics.values()
        for partition in topic.partitions.values()
    )


def have_one_size(roots: Sequence[Path]) -> bool:
    """Whether the logs of every partition take as many bytes on each of the nodes that write to `roots`."""
    sizes = [
        {name: sum(path.stat().st_size for path in files) for name, files in _logs(root).items()}
        for root in roots
    ]
    return all(others == sizes[0] for others in sizes)


def assert_identical(roots: Sequence[Path]) -> None:
    """The logs of every partition are the same, byte for byte, however they are cut into segments."""
    first, *others = roots
    for root in others:
        ours, theirs = _logs(first), _logs(root)
        assert ours.keys() == theirs.keys(), f"{first} and {root} hold other partitions"
        for name in ours:
            one, other = (b"".join(path.read_bytes() for path in found[name]) for found in (ours, theirs))
            assert one == other, f"{name} differs in {first} and {root}: {_first_difference(one, other)}"


def _logs(root: Path) -> Mapping[str, list[Path]]:
    """Partition -> its segments in their order."""
    return {
        directory.name: sorted(directory.glob("*.log"))
        for directory in sorted(root.iterdir())
        if directory.is_dir() and directory.name.rpartition("-")[2].isdecimal()
    }


def _first_difference(one: bytes, other: bytes) -> str:
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return f"sizes {len(one)} and {len(other)}, the first other byte is at {same}"
