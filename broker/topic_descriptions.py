"""The command that shows topics: leaders, replicas, moves under way, and how far each replica is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from broker.admin_commands import connected, print_answer
from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.metadata import PartitionMetadata
from broker.client.offsets import replica_ends
from broker.client.reassignment_admin import OngoingReassignment
from broker.errors import ProtocolError
from broker.types import TopicPartition

_Partitions = Mapping[TopicPartition, PartitionMetadata]
_Moves = Mapping[TopicPartition, OngoingReassignment]
_Row = dict[str, Any]
_MIN_ISR = "min.insync.replicas"


def add_describe_options(parser: argparse.ArgumentParser) -> None:
    """Options of `describe`: which partitions, and what of them."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument(
        "--under-replicated",
        "--under-replicated-partitions",
        action="store_true",
        help="only partitions with replicas that are not in sync",
    )
    parser.add_argument(
        "--unavailable",
        "--unavailable-partitions",
        action="store_true",
        help="only partitions without a live leader",
    )
    parser.add_argument(
        "--under-min-isr",
        "--under-min-isr-partitions",
        action="store_true",
        help="only partitions with fewer replicas in sync than min.insync.replicas: acks=all is refused",
    )
    parser.add_argument(
        "--at-min-isr",
        "--at-min-isr-partitions",
        action="store_true",
        help="only partitions with just min.insync.replicas in sync",
    )
    parser.add_argument(
        "--lag", action="store_true", help="a line per replica: where its log ends, and how far behind"
    )


async def describe_topics(options: argparse.Namespace) -> None:
    """Print leader, replicas and ISR of every partition, or where each replica's log ends.

    Raises ProtocolError for a topic that is not there.
    """
    async with connected(options) as cluster:
        admin = Admin(cluster)
        described = await admin.describe_topics(options.names or await admin.list_topics())
        moves = await _moves(admin)
        live = cluster.metadata.nodes.keys()
        found = {
            TopicPartition(name, number): partition
            for name, topic in described.items()
            for number, partition in sorted(topic.partitions.items())
        }
        if options.under_replicated:
            found = {tp: each for tp, each in found.items() if _is_under_replicated(each, moves.get(tp))}
        if options.unavailable:
            found = {tp: each for tp, each in found.items() if each.leader not in live}
        if options.under_min_isr or options.at_min_isr:
            needed = await _min_isr(admin, {tp.topic for tp in found})
            found = {
                tp: each
                for tp, each in found.items()
                if (options.under_min_isr and len(each.isr) < needed[tp.topic])
                or (options.at_min_isr and len(each.isr) == needed[tp.topic])
            }
        rows = await _replica_rows(cluster, found) if options.lag else list(_partition_rows(found, moves))
    print_answer(options, rows, map(_replica_line if options.lag else _partition_line, rows))


async def _moves(admin: Admin) -> _Moves:
    """The moves under way; none where the cluster does not tell, being older or not letting everybody see."""
    try:
        return await admin.reassignments()
    except ProtocolError:
        return {}


async def _min_isr(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """How many replicas each topic wants in sync."""
    settings = {topic: await admin.describe_topic_configs(topic, [_MIN_ISR]) for topic in sorted(topics)}
    return {topic: int(entries[_MIN_ISR].value or 1) for topic, entries in settings.items()}


def _is_under_replicated(partition: PartitionMetadata, move: OngoingReassignment | None) -> bool:
    """Whether any is out of sync of those that were to have it before a move began."""
    adding = move.adding if move is not None else ()
    return bool(set(partition.replicas) - set(partition.isr) - set(adding))


def _partition_rows(partitions: _Partitions, moves: _Moves) -> Iterator[_Row]:
    for tp, partition in partitions.items():
        row: _Row = {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
        }
        if (move := moves.get(tp)) is not None:
            row |= {"adding": list(move.adding), "removing": list(move.removing)}
        yield row


async def _replica_rows(cluster: Cluster, partitions: _Partitions) -> list[_Row]:
    ends = await replica_ends(cluster, {tp: each.replicas for tp, each in partitions.items()})
    rows = []
    for tp, partition in partitions.items():
        known = [end for replica in partition.replicas if (end := ends.get((tp, replica))) is not None]
        furthest = ends.get((tp, partition.leader), max(known, default=0))
        for replica in partition.replicas:
            end = ends.get((tp, replica))
            rows.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "replica": replica,
                    "in_sync": replica in partition.isr,
                    "end": end,
                    "lag": None if end is None else max(furthest - end, 0),
                }
            )
    return rows


def _partition_line(row: _Row) -> str:
    leader = row["leader"] if row["leader"] >= 0 else "none"
    line = (
        f"Topic: {row['topic']}\tPartition: {row['partition']}\tLeader: {leader}\t"
        f"Replicas: {_list(row['replicas'])}\tIsr: {_list(row['isr'])}"
    )
    if "adding" in row:
        line += f"\tAdding: {_list(row['adding'])}\tRemoving: {_list(row['removing'])}"
    return line


def _replica_line(row: _Row) -> str:
    end, lag = (("unknown" if row[name] is None else row[name]) for name in ("end", "lag"))
    return (
        f"Topic: {row['topic']}\tPartition: {row['partition']}\tReplica: {row['replica']}\t"
        f"In sync: {'yes' if row['in_sync'] else 'no'}\tEnd: {end}\tLag: {lag}"
    )


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
