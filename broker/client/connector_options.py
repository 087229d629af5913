"""A connector out of options by name: those of Kafka's high-level consumers, which met in ZooKeeper.

async with open_connector({"zk.connect": "127.0.0.1:2181", "groupid": "g"}) as connector:
    streams = await connector.create_message_streams({"topic": 2})
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from broker.client.consumer_connector import ConsumerConnector, GroupKind
from broker.client.consumer_options import CONSUMER_OPTIONS, ConsumerOptions
from broker.client.group_settings import GroupSettings
from broker.client.option_names import Option, read_options
from broker.client.rebalance_listener import RebalanceListener
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.coordination.zookeeper import ZooKeeper
from broker.errors import ConfigurationError
from broker.settings import boolean, integer, optional_string, string

_OF_CONSUMERS_ONLY = frozenset(
    {
        "group.protocol",
        "group.remote.assignor",
        "partition.assignment.strategy",
        "max.poll.records",
        "max.poll.interval.ms",
    }
)
CONNECTOR_OPTIONS = (
    *(option for option in CONSUMER_OPTIONS if option.name not in _OF_CONSUMERS_ONLY),
    Option(name="offsets.storage", kind=string(("zookeeper", "kafka"))),
    Option(name="dual.commit.enabled", kind=boolean()),
    Option(name="consumer.id", kind=optional_string(), aliases=("consumerid",)),
    Option(name="rebalance.max.retries", kind=integer(0), aliases=("rebalance.retries.max",)),
    Option(name="rebalance.backoff.ms", kind=integer(0)),
    Option(name="exclude.internal.topics", kind=boolean()),
    Option(name="num.consumer.fetchers", kind=integer(1)),
    Option(name="queued.max.message.chunks", kind=integer(1), aliases=("queuedchunks.max",)),
)

_ZOOKEEPER_SETTINGS: Mapping[str, str] = {
    "consumer.id": "consumer_id",
    "rebalance.max.retries": "rebalance_retries_max",
    "rebalance.backoff.ms": "rebalance_backoff_ms",
}
_FETCHING_SETTINGS: Mapping[str, str] = {
    "num.consumer.fetchers": "fetches_per_node",
    "queued.max.message.chunks": "stream_answers_max",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions:
    """Everything that makes a connector."""

    consumer: ConsumerOptions
    kind: GroupKind
    zookeeper: ZooKeeperGroupSettings

    @classmethod
    def read(cls, given: Mapping[str, object]) -> ConnectorOptions:
        """Options by name. Raises ConfigurationError with all that is wrong with them."""
        values = read_options(given, CONNECTOR_OPTIONS)
        problems: list[str] = []
        consumer = ConsumerOptions.of(values, problems)
        if consumer.group is None:
            problems.append("group.id: a connector is a member of a group")
        kind = _kind(values)
        if kind is not GroupKind.COORDINATOR and not values.get("zookeeper.connect"):
            problems.append(f"offsets.storage: {values['offsets.storage']} needs zookeeper.connect")
        if problems:
            raise ConfigurationError(problems)
        fields = {field: values[name] for name, field in _ZOOKEEPER_SETTINGS.items() if name in values}
        zookeeper = ZooKeeperGroupSettings(
            **fields, internal_topics=not values.get("exclude.internal.topics", True)
        )
        fetching = {field: values[name] for name, field in _FETCHING_SETTINGS.items() if name in values}
        consumer = replace(consumer, settings=replace(consumer.settings, **fetching))
        return cls(consumer=consumer, kind=kind, zookeeper=zookeeper)


@asynccontextmanager
async def open_connector(
    given: Mapping[str, object] | ConnectorOptions, *, rebalance_listener: RebalanceListener | None = None
) -> AsyncIterator[ConsumerConnector]:
    """A connector with connections and, where its group meets in ZooKeeper, a session of its own.

    Raises ConfigurationError, ConnectionFailedError, and CoordinationError when ZooKeeper is not reached.
    """
    options = given if isinstance(given, ConnectorOptions) else ConnectorOptions.read(given)
    reached, group = options.consumer.cluster, options.consumer.group
    assert isinstance(group, GroupSettings), "a connector is a member of a group of the classic protocol"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(reached.opened())
        session = None
        if options.kind is not GroupKind.COORDINATOR:
            session = ZooKeeper(reached.zookeeper, session_timeout_ms=reached.zookeeper_session_timeout_ms)
            await session.start(timeout_ms=reached.zookeeper_connect_timeout_ms)
            stack.push_async_callback(session.close)
        connector = ConsumerConnector(
            cluster,
            group,
            kind=options.kind,
            coordination=session,
            zookeeper=options.zookeeper,
            settings=options.consumer.settings,
            rebalance_listener=rebalance_listener,
        )
        yield await stack.enter_async_context(connector)


def _kind(values: Mapping[str, Any]) -> GroupKind:
    in_zookeeper = bool(values.get("zookeeper.connect"))
    match values.get("offsets.storage"):
        case "zookeeper":
            return GroupKind.ZOOKEEPER
        case "kafka" if in_zookeeper and values.get("dual.commit.enabled", True):
            return GroupKind.DUAL
        case None if in_zookeeper:
            return GroupKind.ZOOKEEPER
        case _:
            return GroupKind.COORDINATOR
