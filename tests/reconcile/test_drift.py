"""What a daemon repairs by itself, and what it leaves and tells."""

from __future__ import annotations

from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange, TopicStep
from mirrormaker.reconcile.drift import news, split_steps
from mirrormaker.topology.model import ClusterName, RepairKind, SyncSpec

AT = ClusterName("aggregate")
NEW = CreateTopic(cluster=AT, name="a", partitions=1, replication_factor=1)
GROWN = AddPartitions(cluster=AT, name="b", have=1, partitions=2)


def changed(old: str, new: str) -> ChangeSettings:
    changes = {"retention.ms": SettingChange(old=old, new=new)}
    return ChangeSettings(cluster=AT, name="c", changes=changes)


def test_all_is_repaired_but_what_would_lose_data() -> None:
    shorter = changed("2", "1")
    taken, left = split_steps([NEW, GROWN, changed("1", "2"), shorter], SyncSpec())
    assert taken == [NEW, GROWN, changed("1", "2")]
    assert [one.step for one in left] == [shorter]
    assert left[0].line == (
        "~ aggregate: topic c, 1 setting: retention.ms 2 -> 1: records are deleted sooner:"
        " `mirrormaker apply --force` does it"
    )
    assert left[0].describe() == {"kind": "config", "topic": "c", "line": left[0].line}


def test_only_what_is_named_is_repaired() -> None:
    steps: list[TopicStep] = [NEW, GROWN, changed("1", "2")]
    taken, left = split_steps(steps, SyncSpec(repair=(RepairKind.PARTITIONS,)))
    assert taken == [GROWN]
    assert [one.kind for one in left] == [RepairKind.TOPICS, RepairKind.CONFIG]
    assert {one.reason for one in left} == {"'sync.repair' leaves it to `mirrormaker apply`"}


def test_drift_is_told_when_it_comes_and_when_it_goes() -> None:
    _, first = split_steps([NEW, GROWN], SyncSpec(repair=()))
    _, second = split_steps([GROWN, changed("1", "2")], SyncSpec(repair=()))
    came, went = news(first, second)
    assert [one.step for one in came] == [changed("1", "2")]
    assert [one.step for one in went] == [NEW]
