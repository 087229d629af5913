"""Every znode path of the layout, below the chroot. Names are Kafka's."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from broker.types import BrokerId, TopicPartition

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
CONFIGS: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = f"{CONFIG_CHANGES}/config_change_"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CLIENT_CONFIGS: Final = "/config/clients"
USER_CONFIGS: Final = "/config/users"
IP_CONFIGS: Final = "/config/ips"
GROUP_CONFIGS: Final = "/config/groups"
CONSUMERS: Final = "/consumers"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURES: Final = "/feature"

PERSISTENT: Final = (
    BROKER_IDS,
    TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    DELETE_TOPICS,
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    GROUP_CONFIGS,
    CONSUMERS,
)
"""Parents that are always there once a node has been up."""


def broker(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    return f"{topic_partitions(topic_partition.topic)}/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    return f"{partition(topic_partition)}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def entity_config(entity: str) -> str:
    """Configuration of an entity by its path, as `topics/T`."""
    return f"{CONFIGS}/{entity}"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker_id: BrokerId | None) -> str:
    """Configuration of one broker, or, for None, the default of all."""
    return f"{BROKER_CONFIGS}/{'<default>' if broker_id is None else broker_id}"


def encoded_name(name: str) -> str:
    """A name of any characters as that of a znode, as Kafka writes those of users and clients."""
    text = quote(name, safe="").replace("~", "%7E")
    return text if is_name(text) else text.replace(".", "%2E")


def decoded_name(text: str) -> str:
    """The inverse of `encoded_name`."""
    return unquote(text)


def is_name(text: str) -> bool:
    """Whether this can be the name of a znode."""
    return text not in ("", ".", "..") and "/" not in text and text.isprintable()


def consumer_ids(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def consumer_id(group: str, consumer: str) -> str:
    return f"{consumer_ids(group)}/{consumer}"


def consumer_owners(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}"


def consumer_owner(group: str, topic_partition: TopicPartition) -> str:
    return f"{consumer_owners(group, topic_partition.topic)}/{topic_partition.partition}"


def consumer_offsets(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}"


def consumer_offset(group: str, topic_partition: TopicPartition) -> str:
    return f"{consumer_offsets(group, topic_partition.topic)}/{topic_partition.partition}"
