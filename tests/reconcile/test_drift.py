"""What a daemon repairs by itself, and what it leaves and tells."""

from __future__ import annotations

from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange, TopicStep
from mirrormaker.reconcile.drift import split_steps, tell_news
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


def test_a_setting_that_loses_nothing_waits_for_none_that_might() -> None:
    changes = {
        "retention.ms": SettingChange(old="2", new="1"),
        "max.message.bytes": SettingChange(old="1", new="2"),
    }
    both = ChangeSettings(cluster=AT, name="c", changes=changes)
    taken, left = split_steps([both], SyncSpec())
    larger = {"max.message.bytes": SettingChange(old="1", new="2")}
    assert taken == [ChangeSettings(cluster=AT, name="c", changes=larger)]
    assert [one.step for one in left] == [changed("2", "1")]
    _, left = split_steps([both], SyncSpec(repair=()))
    assert [one.step for one in left] == [both]


def test_only_what_is_named_is_repaired() -> None:
    steps: list[TopicStep] = [NEW, GROWN, changed("1", "2")]
    taken, left = split_steps(steps, SyncSpec(repair=(RepairKind.PARTITIONS,)))
    assert taken == [GROWN]
    assert [one.kind for one in left] == [RepairKind.TOPICS, RepairKind.CONFIG]
    assert {one.reason for one in left} == {"'sync.repair' leaves it to `mirrormaker apply`"}


def test_drift_is_told_when_it_comes_and_when_it_goes() -> None:
    _, first = split_steps([NEW, GROWN], SyncSpec(repair=()))
    _, second = split_steps([GROWN, changed("1", "2")], SyncSpec(repair=()))
    told: list[tuple[str, object]] = []

    class Listener:
        def note(self, event: str, **details: object) -> None:
            told.append((event, details["topic"]))

        note_end = note

    tell_news(Listener(), first, second)
    assert told == [("drift_found", "c"), ("drift_gone", "a")]
    _, third = split_steps([GROWN, changed("1", "3")], SyncSpec(repair=()))
    tell_news(Listener(), second, third)
    assert told[2:] == [("drift_found", "c")], "what differs otherwise than before has not gone"
