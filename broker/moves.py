"""Which replicas go where: plans for moves of partitions, as values. Pure.

A plan names the wanted replicas of each partition that changes, the preferred leader first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from broker.client.metadata import ClusterMetadata, Node, PartitionMetadata
from broker.cluster.placement import PlacementBroker, place_replicas
from broker.errors import ConfigurationError
from broker.types import BrokerId, TopicPartition

Plan = Mapping[TopicPartition, Sequence[int]]


def spread(
    cluster: ClusterMetadata, topics: Collection[str], brokers: Sequence[int], replication_factor: int | None
) -> Plan:
    """Topics placed anew over these brokers, as if they were made there; with as many replicas as they have,
    unless told otherwise. Raises ConfigurationError.
    """
    placement = [_placement(cluster, broker) for broker in brokers]
    plan: dict[TopicPartition, Sequence[int]] = {}
    for topic in topics:
        numbers = cluster.partitions(topic)
        replicas = replication_factor or len(_replicas(cluster, TopicPartition(topic, numbers[0])))
        if replicas > len(placement):
            raise ConfigurationError([f"topic {topic}: {replicas} replicas for {len(placement)} brokers"])
        placed = place_replicas(placement, len(numbers), replicas)
        plan.update({TopicPartition(topic, number): placed[number] for number in numbers})
    return _changes(cluster, plan)


def drained(cluster: ClusterMetadata, topics: Collection[str], broker: int) -> Plan:
    """Every replica of `broker` in these topics somewhere else: on the live broker that holds fewest, in a
    rack that the partition is not in where there is one. Raises ConfigurationError when no broker is left.
    """
    partitions = cluster.topic_partitions(sorted(topics))
    load = Counter(replica for tp in partitions for replica in _replicas(cluster, tp))
    plan: dict[TopicPartition, Sequence[int]] = {}
    for tp in partitions:
        replicas = _replicas(cluster, tp)
        if broker not in replicas:
            continue
        free = [node for node in cluster.nodes.values() if node.id not in replicas and node.id != broker]
        if not free:
            raise ConfigurationError([f"{tp}: no other broker is left for the replica on broker {broker}"])
        racks = {cluster.nodes[r].rack for r in replicas if r != broker and r in cluster.nodes}
        chosen = min(free, key=lambda node: (_shares_rack(node, racks), load[node.id], node.id)).id
        load[chosen] += 1
        plan[tp] = tuple(chosen if replica == broker else replica for replica in replicas)
    return plan


def parse_plan(text: str, source: str) -> Plan:
    """A plan in the JSON of Kafka's tools: `{"partitions": [{"topic": T, "partition": P, "replicas": [1]}]}`.

    Raises ConfigurationError that names `source` and the entry.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationError([f"{source}: no JSON: {error}"]) from error
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError([f"{source}: partitions: a list with at least one entry is needed"])
    plan: dict[TopicPartition, Sequence[int]] = {}
    problems = []
    for number, entry in enumerate(entries):
        try:
            tp, replicas = _parsed_entry(entry)
            if tp in plan:
                raise ValueError(f"{tp} is named twice")
            plan[tp] = replicas
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"{source}: partitions[{number}]: {error}")
    if problems:
        raise ConfigurationError(problems)
    return plan


def rendered_plan(plan: Plan) -> dict[str, Any]:
    """A plan as `parse_plan` and Kafka's tools read it."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
            for tp, replicas in sorted(plan.items())
        ],
    }


def _parsed_entry(entry: Any) -> tuple[TopicPartition, Sequence[int]]:
    if not isinstance(entry, dict):
        raise TypeError("an object with topic, partition and replicas is needed")
    missing = {"topic", "partition", "replicas"} - entry.keys()
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} is missing")
    topic, partition, replicas = entry["topic"], entry["partition"], entry["replicas"]
    if not isinstance(topic, str) or not _is_number(partition):
        raise ValueError("topic is a text, partition a number from 0 on")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise ValueError("replicas is a list of broker ids")
    return TopicPartition(topic, partition), tuple(replicas)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _changes(cluster: ClusterMetadata, plan: Plan) -> Plan:
    return {tp: replicas for tp, replicas in plan.items() if tuple(replicas) != _replicas(cluster, tp)}


def _replicas(cluster: ClusterMetadata, tp: TopicPartition) -> tuple[int, ...]:
    partition: PartitionMetadata | None = cluster.partition(tp)
    return () if partition is None else partition.replicas


def _placement(cluster: ClusterMetadata, broker: int) -> PlacementBroker:
    node = cluster.nodes.get(broker)
    if node is None:
        raise ConfigurationError([f"broker {broker} is not there; live are {sorted(cluster.nodes)}"])
    return PlacementBroker(broker_id=BrokerId(broker), rack=node.rack)


def _shares_rack(node: Node, racks: Collection[str | None]) -> bool:
    return node.rack is not None and node.rack in racks
