"""The commands that move replicas and leaderships: `broker topics reassign` and `broker topics elect`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.client.reassignment_admin import OngoingReassignment
from broker.command_line import connected, print_answer
from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from broker.moves import Plan, drained, parse_plan, rendered_plan, spread
from broker.option_types import positive
from broker.types import TopicPartition


def add_reassign_options(parser: argparse.ArgumentParser) -> None:
    """Options of `reassign`: where to, or what else to do with moves."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="topics; default: all that it concerns")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--brokers", type=_broker_ids, metavar="ID,ID,...", help="spread the topics over these brokers"
    )
    action.add_argument("--drain", type=_broker_id, metavar="ID", help="move every replica off this broker")
    action.add_argument("--plan", type=Path, metavar="FILE", help="move as this JSON says (Kafka's format)")
    action.add_argument("--cancel", action="store_true", help="cancel the moves that are under way")
    action.add_argument("--status", action="store_true", help="show the moves that are under way")
    parser.add_argument(
        "--replication-factor", type=positive, metavar="N", help="with --brokers: another number of replicas"
    )
    parser.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES",
        help="copy at most so much a second on each broker, until it is done (needs --wait)",
    )
    parser.add_argument("--wait", action="store_true", help="return once every move has ended")
    parser.add_argument("--dry-run", action="store_true", help="only print the plan")


def add_elect_options(parser: argparse.ArgumentParser) -> None:
    """Options of `elect`."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="topics; default: all")
    parser.add_argument(
        "--partition", type=_broker_id, metavar="P", help="only this partition (of one topic)"
    )
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="where there is no leader, let any live replica lead: records may be lost",
    )


async def reassign(options: argparse.Namespace) -> None:
    """Plan moves and begin them, or show or cancel those under way. Raises ConfigurationError,
    ProtocolError.
    """
    _check(options)
    async with connected(options) as cluster:
        if options.status:
            _print_moves(options, _of_topics(await Admin(cluster).reassignments(), options.names))
        elif options.cancel:
            await _cancel(options, Admin(cluster))
        else:
            await _move(options, cluster)


async def _cancel(options: argparse.Namespace, admin: Admin) -> None:
    moves = sorted(_of_topics(await admin.reassignments(), options.names))
    if moves:
        _raise_all(await admin.reassign(dict.fromkeys(moves)))
    print_answer(options, list(map(str, moves)), (f"Cancelled: {tp}" for tp in moves))


async def _move(options: argparse.Namespace, cluster: Cluster) -> None:
    plan = await _plan(options, cluster)
    if plan and not options.dry_run:
        admin = Admin(cluster)
        if options.wait:
            _raise_all(await admin.move(plan, bytes_per_second=options.throttle))
        else:
            _raise_all(await admin.reassign(plan))
    print_answer(options, rendered_plan(plan), _plan_lines(plan))


async def elect(options: argparse.Namespace) -> None:
    """Make preferred replicas leaders, or any live ones where there is none. Raises ProtocolError."""
    if options.partition is not None and len(options.names) != 1:
        raise ConfigurationError(["--partition needs exactly one topic"])
    async with connected(options) as cluster:
        admin = Admin(cluster)
        wanted = None
        if options.names:
            topics = await admin.describe_topics(options.names)
            wanted = [
                TopicPartition(name, number)
                for name, topic in topics.items()
                for number in (topic.partitions if options.partition is None else [options.partition])
            ]
        results = await admin.elect_leaders(wanted, unclean=options.unclean)
    results = {
        tp: None if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED else error
        for tp, error in results.items()
    }
    _raise_all(results)
    rows = [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(results)]
    print_answer(options, rows, (f"Topic: {row['topic']}\tPartition: {row['partition']}" for row in rows))


def _check(options: argparse.Namespace) -> None:
    moves = not (options.status or options.cancel)
    problems = []
    if options.brokers is None and options.replication_factor is not None:
        problems.append("--replication-factor goes with --brokers")
    if options.brokers is not None and not options.names:
        problems.append("--brokers needs the names of topics")
    if options.throttle is not None and not options.wait:
        problems.append("--throttle needs --wait: it is taken back at the end")
    if not moves and (options.wait or options.dry_run or options.throttle):
        problems.append("--status and --cancel go alone")
    if options.plan is not None and options.names:
        problems.append("--plan names its topics itself")
    if problems:
        raise ConfigurationError(problems)


async def _plan(options: argparse.Namespace, cluster: Cluster) -> Plan:
    if options.plan is not None:
        try:
            return parse_plan(options.plan.read_text(), str(options.plan))
        except OSError as error:
            raise ConfigurationError([f"{options.plan}: {error.strerror}"]) from error
    admin = Admin(cluster)
    names = options.names or await admin.list_topics(internal=True)
    await admin.describe_topics(names)
    metadata: ClusterMetadata = cluster.metadata
    if options.drain is not None:
        return drained(metadata, names, options.drain)
    return spread(metadata, names, options.brokers, options.replication_factor)


def _print_moves(options: argparse.Namespace, moves: dict[TopicPartition, OngoingReassignment]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for tp, move in sorted(moves.items())
    ]
    print_answer(
        options,
        rows,
        (
            f"Topic: {row['topic']}\tPartition: {row['partition']}\tReplicas: {_list(row['replicas'])}\t"
            f"Adding: {_list(row['adding'])}\tRemoving: {_list(row['removing'])}"
            for row in rows
        ),
    )


def _plan_lines(plan: Plan) -> Iterable[str]:
    for tp, replicas in sorted(plan.items()):
        yield f"Topic: {tp.topic}\tPartition: {tp.partition}\tReplicas: {_list(replicas)}"


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _of_topics(
    moves: dict[TopicPartition, OngoingReassignment], names: list[str]
) -> dict[TopicPartition, OngoingReassignment]:
    return {tp: move for tp, move in moves.items() if not names or tp.topic in names}


def _raise_all(results: dict[TopicPartition, ProtocolError | None]) -> None:
    errors = [error for error in results.values() if error is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ConfigurationError([str(error) for error in errors])


def _broker_ids(text: str) -> list[int]:
    ids = [_broker_id(part) for part in text.split(",")]
    if len(set(ids)) < len(ids):
        raise argparse.ArgumentTypeError(f"{text!r} names a broker twice")
    return ids


def _broker_id(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)
