"""A consumer out of options by name: the names of Kafka's consumers, present and former.

async with open_consumer({"zk.connect": "127.0.0.1:2181", "groupid": "g"}) as consumer:
    consumer.subscribe(["topic"])
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from broker.client.assignors import Assignor, CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor
from broker.client.cluster_options import CLUSTER_OPTIONS, ClusterOptions
from broker.client.consumer import Consumer
from broker.client.consumer_settings import ConsumerSettings, Isolation, OffsetReset
from broker.client.group_settings import AnyGroupSettings, ConsumerGroupSettings, GroupSettings
from broker.client.option_names import Option, one_of, read_options
from broker.client.parts import load_part
from broker.errors import ConfigurationError
from broker.records.record_filter import RecordFilter
from broker.settings import Kind, SettingType, boolean, integer, long, names, optional_string, string

ASSIGNORS: Mapping[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    "org.apache.kafka.clients.consumer.RangeAssignor": RangeAssignor,
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": RoundRobinAssignor,
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": CooperativeStickyAssignor,
}
"""By name, as librdkafka and Java's clients have them."""

_CLASSIC, _CONSUMER = "classic", "consumer"
"""The protocols of groups: members assign, or the coordinator does (KIP-848)."""
_OF_PROTOCOL: Mapping[str, tuple[str, ...]] = {
    _CLASSIC: ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"),
    _CONSUMER: ("group.remote.assignor",),
}
"""What has an effect in one of them only."""

_RESETS = {
    "earliest": OffsetReset.EARLIEST,
    "smallest": OffsetReset.EARLIEST,
    "beginning": OffsetReset.EARLIEST,
    "latest": OffsetReset.LATEST,
    "largest": OffsetReset.LATEST,
    "end": OffsetReset.LATEST,
    "none": OffsetReset.NONE,
    "error": OffsetReset.NONE,
}
_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


@dataclass(frozen=True, slots=True)
class _Reset:
    policy: OffsetReset
    duration_ms: int = 0


def offset_reset() -> Kind[_Reset]:
    """A policy by any of its names, or `by_duration:` and a duration of ISO 8601: `by_duration:P1DT12H`."""

    def parse(text: str) -> _Reset:
        text = text.strip()
        if policy := _RESETS.get(text.lower()):
            return _Reset(policy)
        duration = _DURATION.fullmatch(text[len(_BY_DURATION) :]) if text.startswith(_BY_DURATION) else None
        if duration is None or not any(duration.groupdict().values()):
            raise ValueError(
                f"expected one of {', '.join(_RESETS)} or {_BY_DURATION}PnDTnHnMnS, not {text!r}"
            )
        parts = duration.groupdict(default="0")
        return _Reset(
            OffsetReset.BY_DURATION, int(sum(float(parts[unit]) * ms for unit, ms in _UNIT_MS.items()))
        )

    return Kind(type=SettingType.STRING, parse=parse)


def record_filter() -> Kind[RecordFilter]:
    """A filter of records."""

    def parse(text: str) -> RecordFilter:
        try:
            return RecordFilter.parse(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error

    return Kind(type=SettingType.STRING, parse=parse)


CONSUMER_OPTIONS = (
    *CLUSTER_OPTIONS,
    Option(name="group.id", kind=optional_string(), aliases=("groupid",)),
    Option(name="group.instance.id", kind=optional_string()),
    Option(name="group.protocol", kind=one_of(_CLASSIC, _CONSUMER)),
    Option(name="group.remote.assignor", kind=optional_string()),
    Option(name="client.rack", kind=string()),
    Option(name="auto.offset.reset", kind=offset_reset(), aliases=("autooffset.reset",)),
    Option(name="enable.auto.commit", kind=boolean(), aliases=("auto.commit.enable", "autocommit.enable")),
    Option(name="auto.commit.interval.ms", kind=integer(1), aliases=("autocommit.interval.ms",)),
    Option(name="isolation.level", kind=string(tuple(level.value for level in Isolation))),
    Option(name="fetch.min.bytes", kind=integer(0)),
    Option(name="fetch.max.wait.ms", kind=integer(0), aliases=("fetch.wait.max.ms",)),
    Option(name="fetch.max.bytes", kind=integer(1)),
    Option(
        name="max.partition.fetch.bytes", kind=integer(1), aliases=("fetch.message.max.bytes", "fetch.size")
    ),
    Option(name="buffer.bytes", kind=long(1)),
    Option(name="max.poll.records", kind=integer(1)),
    Option(name="max.poll.interval.ms", kind=integer(0)),
    Option(name="session.timeout.ms", kind=integer(1)),
    Option(name="heartbeat.interval.ms", kind=integer(1)),
    Option(name="metadata.max.age.ms", kind=integer(1), aliases=("topic.metadata.refresh.interval.ms",)),
    Option(name="partition.assignment.strategy", kind=names()),
    Option(name="record.filter", kind=record_filter()),
    Option(name="filter.at.nodes", kind=boolean()),
)

_SETTINGS: Mapping[str, str] = {
    "client.rack": "rack",
    "fetch.min.bytes": "fetch_min_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "max.partition.fetch.bytes": "partition_max_bytes",
    "buffer.bytes": "buffer_bytes",
    "auto.commit.interval.ms": "auto_commit_interval_ms",
    "max.poll.records": "records_max",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "record.filter": "record_filter",
    "filter.at.nodes": "filter_at_nodes",
}
_GROUP_SETTINGS: Mapping[str, str] = {
    "group.instance.id": "instance_id",
    "client.rack": "rack_id",
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "group.remote.assignor": "remote_assignor",
    "max.poll.interval.ms": "rebalance_timeout_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Everything that makes a consumer."""

    cluster: ClusterOptions
    settings: ConsumerSettings
    group: AnyGroupSettings | None
    assignors: tuple[Assignor, ...] | None
    """None where the coordinator assigns."""

    @classmethod
    def read(cls, given: Mapping[str, object]) -> ConsumerOptions:
        """Options by name. Raises ConfigurationError with all that is wrong with them."""
        problems: list[str] = []
        options = cls.of(read_options(given, CONSUMER_OPTIONS), problems)
        if problems:
            raise ConfigurationError(problems)
        return options

    @classmethod
    def of(cls, values: Mapping[str, Any], problems: list[str]) -> ConsumerOptions:
        """Those among options that were read; what is wrong with them is added to `problems`."""
        return cls(
            cluster=ClusterOptions.of(values, problems),
            settings=_settings(values),
            group=_group(values, problems),
            assignors=None if _is_consumer(values) else tuple(_assignors(values, problems)),
        )


@asynccontextmanager
async def open_consumer(given: Mapping[str, object] | ConsumerOptions) -> AsyncIterator[Consumer]:
    """A running consumer with connections of its own, to be subscribed or assigned partitions.

    Raises ConfigurationError, ConnectionFailedError, and CoordinationError when ZooKeeper is not reached.
    """
    options = given if isinstance(given, ConsumerOptions) else ConsumerOptions.read(given)
    async with (
        options.cluster.opened() as cluster,
        Consumer(
            cluster, settings=options.settings, group=options.group, assignors=options.assignors
        ) as consumer,
    ):
        yield consumer


def _settings(values: Mapping[str, Any]) -> ConsumerSettings:
    fields = {field: values[name] for name, field in _SETTINGS.items() if name in values}
    if not values.get("enable.auto.commit", True):
        fields["auto_commit_interval_ms"] = 0
    if (reset := values.get("auto.offset.reset")) is not None:
        fields["offset_reset"], fields["offset_reset_duration_ms"] = reset.policy, reset.duration_ms
    if "isolation.level" in values:
        fields["isolation"] = Isolation(values["isolation.level"])
    return ConsumerSettings(**fields)


def _group(values: Mapping[str, Any], problems: list[str]) -> AnyGroupSettings | None:
    if not values.get("group.id"):
        problems += [
            f"{name}: has no effect without group.id"
            for name in ("group.instance.id", "partition.assignment.strategy", "group.remote.assignor")
            if values.get(name)
        ]
        return None
    protocol, other = (_CONSUMER, _CLASSIC) if _is_consumer(values) else (_CLASSIC, _CONSUMER)
    misplaced = [name for name in _OF_PROTOCOL[other] if values.get(name)]
    problems += [f"{name}: cannot be set when group.protocol={protocol}" for name in misplaced]
    fields = {
        field: values[name]
        for name, field in _GROUP_SETTINGS.items()
        if values.get(name) and name not in misplaced
    }
    if protocol == _CONSUMER:
        return ConsumerGroupSettings(group_id=values["group.id"], **fields)
    return GroupSettings(group_id=values["group.id"], **fields)


def _is_consumer(values: Mapping[str, Any]) -> bool:
    return values.get("group.protocol") == _CONSUMER


def _assignors(values: Mapping[str, Any], problems: list[str]) -> list[Assignor]:
    assignors: list[Assignor] = []
    for name in values.get("partition.assignment.strategy", ()) or ("range",):
        try:
            assignors.append(load_part(name, ASSIGNORS))
        except (TypeError, ValueError) as error:
            problems.append(f"partition.assignment.strategy: {error}")
    return assignors
