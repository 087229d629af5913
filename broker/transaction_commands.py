"""The commands on transactions: ask the cluster, print the answer as text or JSON."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from broker.client.admin import Admin
from broker.client.transaction_admin import (
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from broker.command_line import client_command, connected, print_answer
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition

_MINUTE_MS = 60_000


def add_commands(commands: Any) -> None:
    """Add `transactions` and its actions to the command line."""
    transactions = commands.add_parser(
        "transactions", help="list and describe transactions, end those that hang"
    )
    actions = transactions.add_subparsers(required=True, metavar="ACTION")
    for name, command, add_options, description in (
        (
            "list",
            list_transactions,
            add_list_options,
            "list transactional ids and their states",
        ),
        (
            "describe",
            describe_transactions,
            add_describe_options,
            "show owner, state and partitions of transactional ids",
        ),
        (
            "producers",
            describe_producers,
            add_partition_options,
            "show the producers that a partition remembers, and where their open transactions begin",
        ),
        (
            "find-hanging",
            find_hanging,
            add_hanging_options,
            "show open transactions that no coordinator will end",
        ),
        (
            "abort",
            abort_transaction,
            add_abort_options,
            "end a transaction that hangs in a partition",
        ),
    ):
        add_options(client_command(actions, name, command, description))


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Which ids to list."""
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="those in this state, as Ongoing"
    )
    parser.add_argument(
        "--producer-id", action="append", default=[], type=int, metavar="ID", help="those of this producer"
    )
    parser.add_argument(
        "--duration-above-ms",
        type=int,
        default=-1,
        metavar="MS",
        help="those whose transaction began longer ago",
    )


def add_describe_options(parser: argparse.ArgumentParser) -> None:
    """Which ids to describe."""
    parser.add_argument("id", nargs="+", metavar="ID", help="transactional id")


def add_partition_options(parser: argparse.ArgumentParser) -> None:
    """Which partition it is about."""
    parser.add_argument("--topic", required=True, metavar="NAME")
    parser.add_argument("--partition", required=True, type=int, metavar="N")


def add_hanging_options(parser: argparse.ArgumentParser) -> None:
    """Where to look for transactions that hang, and from what age on."""
    parser.add_argument("--topic", metavar="NAME", help="in this topic only")
    parser.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=15,
        metavar="MINUTES",
        help="the longest timeout that producers may have (default 15)",
    )


def add_abort_options(parser: argparse.ArgumentParser) -> None:
    """Which transaction to end: by where it begins in a partition, or by its producer."""
    add_partition_options(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--start-offset", type=int, metavar="OFFSET", help="where the transaction begins")
    which.add_argument("--producer-id", type=int, metavar="ID", help="whose transaction it is")


async def list_transactions(options: argparse.Namespace) -> None:
    """Print transactional ids, a line each. Raises ProtocolError."""
    async with connected(options) as cluster:
        listed = await Admin(cluster).list_transactions(
            states=options.state,
            producer_ids=options.producer_id,
            open_longer_than_ms=options.duration_above_ms,
        )
    print_answer(options, [asdict(each) for each in listed], [_listing_line(each) for each in listed])


async def describe_transactions(options: argparse.Namespace) -> None:
    """Print what coordinators know of ids, a line each. Raises ProtocolError."""
    async with connected(options) as cluster:
        described = await Admin(cluster).describe_transactions(options.id)
    rows = [_as_json(each) for each in described.values()]
    print_answer(options, rows, [_description_line(each) for each in described.values()])


async def describe_producers(options: argparse.Namespace) -> None:
    """Print the producers that a partition remembers, a line each. Raises ProtocolError."""
    async with connected(options) as cluster:
        admin = Admin(cluster)
        producers = await admin.describe_producers(await _partition(options, admin))
    print_answer(options, [asdict(each) for each in producers], [_producer_line(each) for each in producers])


async def find_hanging(options: argparse.Namespace) -> None:
    """Print open transactions that no coordinator will ever end, a line each. Raises ProtocolError."""
    heard_before_ms = time.time_ns() // 1_000_000 - options.max_transaction_timeout * _MINUTE_MS
    async with connected(options) as cluster:
        admin = Admin(cluster)
        partitions = None
        if options.topic is not None:
            topics = await admin.describe_topics([options.topic])
            partitions = [TopicPartition(options.topic, n) for n in sorted(topics[options.topic].partitions)]
        hanging = await admin.find_hanging_transactions(partitions, heard_before_ms=heard_before_ms)
    rows = [
        {"topic": each.partition.topic, "partition": each.partition.partition, **asdict(each.producer)}
        for each in hanging
    ]
    lines = [
        f"Topic: {each.partition.topic}\tPartition: {each.partition.partition}\t"
        f"{_producer_line(each.producer)}"
        for each in hanging
    ]
    print_answer(options, rows, lines)


async def abort_transaction(options: argparse.Namespace) -> None:
    """End a transaction in one partition, whatever its coordinator knows. Raises ProtocolError, also when the
    partition has no such transaction.
    """
    async with connected(options) as cluster:
        admin = Admin(cluster)
        await admin.abort_open_transaction(
            await _partition(options, admin),
            start_offset=options.start_offset,
            producer_id=options.producer_id,
        )


async def _partition(options: argparse.Namespace, admin: Admin) -> TopicPartition:
    """The partition that was named. Raises ProtocolError at once where there is none: what is asked of its
    leader would be asked again until somebody leads it.
    """
    count = len((await admin.describe_topics([options.topic]))[options.topic].partitions)
    if not 0 <= options.partition < count:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{options.topic} has {count} partitions and no partition {options.partition}",
        )
    return TopicPartition(options.topic, options.partition)


def _listing_line(each: TransactionListing) -> str:
    return (
        f"TransactionalId: {each.transactional_id}\tCoordinator: {each.coordinator}\t"
        f"ProducerId: {each.producer_id}\tState: {each.state}"
    )


def _description_line(each: TransactionDescription) -> str:
    return (
        f"TransactionalId: {each.transactional_id}\tCoordinator: {each.coordinator}\t"
        f"ProducerId: {each.producer_id}\tProducerEpoch: {each.producer_epoch}\tState: {each.state}\t"
        f"TimeoutMs: {each.timeout_ms}\tStartedMs: {each.started_ms}\t"
        f"Partitions: {','.join(map(str, each.partitions))}"
    )


def _producer_line(each: ProducerDescription) -> str:
    return (
        f"ProducerId: {each.producer_id}\tProducerEpoch: {each.producer_epoch}\t"
        f"CoordinatorEpoch: {each.coordinator_epoch}\tLastSequence: {each.last_sequence}\t"
        f"HeardMs: {each.heard_ms}\tStartOffset: {each.first_offset}"
    )


def _as_json(each: TransactionDescription) -> dict[str, Any]:
    row = asdict(each)
    row["partitions"] = [list(partition) for partition in each.partitions]
    return row
