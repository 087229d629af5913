"""`broker groups --zookeeper` on a real ZooKeeper, a real node, and members that are processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from tests.conftest import until
from tests.node.group_processes import Group
from tests.node.test_cli import broker, done


@pytest.mark.long
def test_a_group_is_described_moved_and_deleted_once_nobody_is_in_it(
    node: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    bootstrap = f"--bootstrap-server={node.bootstrap[0]}"
    there = f"--zookeeper={node.spec.zookeeper_connect}"
    done("topics", "create", topic, "--partitions", "2", bootstrap)
    for partition in ("0", "1"):
        done("produce", topic, "--partition", partition, bootstrap, stdin="one\ntwo\nthree\n")

    def described() -> list[dict[str, object]]:
        (group,) = done("groups", "describe", "g", "--output", "json", there).json
        rows: list[dict[str, object]] = group["offsets"]
        return rows

    assert "there is no group g" in broker("groups", "describe", "g", there).errors
    with Group(
        bootstrap=str(node.bootstrap[0]),
        zookeeper=node.spec.zookeeper_connect,
        directory=tmp_path,
        pattern=topic,
    ) as group:
        group.join(streams=1)
        group.join(streams=1)
        until(lambda: group.is_shared_out({topic: 2}))
        until(lambda: [row["lag"] for row in described()] == [0, 0])
        assert done("groups", "list", there).lines == ["g\tStable\tzookeeper"]
        assert done("groups", "list", "--state", "empty", there).lines == []
        assert done("groups", "describe", "g", there).lines == [
            "Group: g\tType: zookeeper\tState: Stable\tAssignor: range\tMembers: 2",
            f"Member: member-000\tReads: {topic}\tPartitions: {topic}-0",
            f"Member: member-001\tReads: {topic}\tPartitions: {topic}-1",
            f"Topic: {topic}\tPartition: 0\tOffset: 3\tEnd: 3\tLag: 0\tOwner: member-000-0",
            f"Topic: {topic}\tPartition: 1\tOffset: 3\tEnd: 3\tLag: 0\tOwner: member-001-0",
        ]
        moved = ("groups", "reset-offsets", "g", "--all-topics", "--to-offset", "1", there)
        refused = broker(*moved, "--execute")
        assert refused.code == 1
        assert "nobody is in the group: g is Stable" in refused.errors
        assert "member-000 is in group g" in broker("groups", "delete", "g", there).errors

        first, second = group.living
        first.kill()
        until(lambda: group.is_shared_out({topic: 2}))
        second.stop()
        assert [row["offset"] for row in described()] == [3, 3], "nothing was done yet"
        assert done(*moved).lines == done(*moved, "--execute").lines
        assert [(row["offset"], row["lag"], row["owner"]) for row in described()] == [(1, 2, None)] * 2
        third = group.join()
        until(lambda: [row["lag"] for row in described()] == [0, 0])
        read = [(entry.offset, entry.value) for entry in third.entries()]
        assert sorted(read) == [(1, "two"), (1, "two"), (2, "three"), (2, "three")]
        third.stop()
        done("groups", "delete", "g", there)
        assert done("groups", "list", there).lines == []
    assert "GROUP_ID_NOT_FOUND" in broker("groups", "delete", "g", there).errors
