"""Making a topic that the mirror keeps for itself, also where a cluster has a policy about such."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.operations import CREATE
from broker.client.topic_admin import NewTopic
from broker.errors import ErrorCode, ProtocolError
from broker.telemetry import logger
from mirrormaker.missing_rights import explained

_SETTING_REFUSED_CODES = frozenset({ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_CONFIG})

_log = logger("topic_making")


async def make_topic(cluster: Cluster, topic: NewTopic, *, essential: Collection[str]) -> None:
    """Make the topic, unless somebody else just did. Where the cluster does not take its settings, as hosted
    ones bound the size of segments, those that are not `essential` are left to it. Raises BrokerError.
    """
    try:
        await _make(cluster, topic)
    except ProtocolError as error:
        kept = {name: value for name, value in topic.configs.items() if name in essential}
        if error.code not in _SETTING_REFUSED_CODES or len(kept) == len(topic.configs):
            raise
        _log.info("topic_settings_refused", topic=topic.name, error=str(error))
        await _make(cluster, replace(topic, configs=kept))


async def _make(cluster: Cluster, topic: NewTopic) -> None:
    try:
        await Admin(cluster).create_topic(topic)
    except ProtocolError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # by another; or one that is being deleted
            raise explained(error, cluster.name, topic.name, CREATE) from error
    else:
        _log.info("topic_made", topic=topic.name, replicas=topic.replication_factor)
