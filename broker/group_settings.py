"""Settings of groups and their offsets, part of those of a node."""

from __future__ import annotations

from dataclasses import dataclass

from broker.groups.consumer_groups.assignors import ASSIGNORS
from broker.groups.consumer_groups.config import MigrationPolicy
from broker.settings import INT_MAX, Kind, SettingType, integer, long, name_set, names, setting, string

_CLASS_PREFIX, _CLASS_SUFFIX = "org.apache.kafka.coordinator.group.assignor.", "Assignor"


def assignor_names() -> Kind[tuple[str, ...]]:
    """Names of assignors, or the classes that Kafka 4.0 names them by; at least one."""
    plain = names(tuple(ASSIGNORS))

    def parse(text: str) -> tuple[str, ...]:
        short = [
            part.strip().removeprefix(_CLASS_PREFIX).removesuffix(_CLASS_SUFFIX).lower()
            for part in text.split(",")
        ]
        values = plain.parse(",".join(short))
        if not values:
            raise ValueError(f"expected a list of {', '.join(ASSIGNORS)}, not nothing")
        return values

    return Kind(type=SettingType.LIST, parse=parse, render=",".join)


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """As `NodeConfig`, which they are part of and which has the slots of all its parts."""

    __slots__ = ()

    group_initial_rebalance_delay_ms: int = setting(
        integer(0), 3000, "How long an empty group waits for members."
    )
    group_min_session_timeout_ms: int = setting(
        integer(1), 6000, "Smallest session timeout that members may ask for."
    )
    group_max_session_timeout_ms: int = setting(integer(1), 1_800_000, "Largest one.")
    group_max_size: int = setting(integer(1), INT_MAX, "Members of one group.")
    group_coordinator_rebalance_protocols: frozenset[str] = setting(
        name_set(("classic", "consumer")),
        frozenset({"classic", "consumer"}),
        "Protocols that groups may speak; classic always is.",
    )
    group_consumer_session_timeout_ms: int = setting(
        integer(1), 45_000, "Silence after which a member of the consumer protocol is removed."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        integer(1), 45_000, "Smallest that it may be, of a group too."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        integer(1), 60_000, "Largest that it may be, of a group too."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        integer(1), 5000, "How often members of the consumer protocol are to be heard."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        integer(1), 5000, "Smallest that it may be, of a group too."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        integer(1), 15_000, "Largest that it may be, of a group too."
    )
    group_consumer_max_size: int = setting(integer(1), INT_MAX, "Members of one consumer group.")
    group_consumer_regex_refresh_interval_ms: int = setting(
        integer(10_000),
        600_000,
        "How often regular expressions are matched anew with what their members may see; topics that come "
        "or go are noticed at once.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        assignor_names(),
        ("uniform", "range"),
        "How the coordinator may hand out partitions; the first one is for members that do not say.",
    )
    group_consumer_migration_policy: str = setting(
        string(tuple(policy.value for policy in MigrationPolicy)),
        "bidirectional",
        "Whether a group with members may go over to the consumer protocol, and back.",
    )
    offset_metadata_max_bytes: int = setting(integer(0), 4096, "Size of the note beside a committed offset.")
    offsets_topic_num_partitions: int = setting(integer(1), 50, "Partitions of __consumer_offsets.")
    offsets_topic_replication_factor: int = setting(integer(1, 32767), 3, "Replicas of __consumer_offsets.")
    offsets_topic_segment_bytes: int = setting(integer(1), 104_857_600, "Segment size of __consumer_offsets.")
    offsets_retention_minutes: int = setting(integer(1), 10_080, "How long offsets outlive their group.")
    offsets_retention_check_interval_ms: int = setting(long(1), 600_000, "How often that is checked.")
    offsets_commit_timeout_ms: int = setting(integer(1), 5000, "How long a commit waits for its replicas.")
