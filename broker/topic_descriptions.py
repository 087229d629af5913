"""The command that shows topics: leaders, replicas, moves under way, and how far each replica is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from broker.client.admin import Admin
from broker.client.metadata import PartitionMetadata
from broker.client.partition_admin import ReplicaProgress
from broker.client.reassignment_admin import OngoingReassignment
from broker.command_line import connected, print_answer
from broker.types import TopicPartition

_Partitions = Mapping[TopicPartition, PartitionMetadata]
_Moves = Mapping[TopicPartition, OngoingReassignment]
_Row = dict[str, Any]


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
        found = await admin.find_partitions(
            options.names or None,
            under_replicated=options.under_replicated,
            unavailable=options.unavailable,
            under_min_isr=options.under_min_isr,
            at_min_isr=options.at_min_isr,
        )
        if options.lag:
            rows = list(_replica_rows(await admin.replica_progress(found)))
        else:
            rows = list(_partition_rows(found, await admin.visible_reassignments()))
    print_answer(options, rows, map(_replica_line if options.lag else _partition_line, rows))


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


def _replica_rows(progress: Mapping[TopicPartition, list[ReplicaProgress]]) -> Iterator[_Row]:
    for tp, replicas in progress.items():
        for replica in replicas:
            yield {
                "topic": tp.topic,
                "partition": tp.partition,
                "replica": replica.broker,
                "in_sync": replica.in_sync,
                "end": replica.end,
                "lag": replica.lag,
            }


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
