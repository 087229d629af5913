"""The commands on groups: list, describe, reset offsets, delete; groups of both protocols alike, and those
that meet in ZooKeeper.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.client.admin import (
    Admin,
    Destination,
    GroupDescription,
    GroupLag,
    MemberDescription,
    ShiftBy,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
)
from broker.client.group_descriptions import CONSUMER, DEAD
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.zookeeper_group_admin import ZOOKEEPER, ZooKeeperGroupAdmin
from broker.command_line import client_command, print_answer, raise_first
from broker.errors import ErrorCode, ProtocolError
from broker.group_access import add_zookeeper_option, group_admin
from broker.types import TopicPartition

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


def add_commands(commands: Any) -> None:
    """Add `groups` and its actions to the command line."""
    groups = commands.add_parser(
        "groups",
        help="list, describe, reset and delete consumer groups",
        description="Groups of coordinators, or with --zookeeper those that meet there.",
    )
    actions = groups.add_subparsers(required=True, metavar="ACTION")
    for name, command, add_options, description in (
        (
            "list",
            list_groups,
            add_list_options,
            "list groups, states and types",
        ),
        (
            "describe",
            describe_groups,
            add_describe_options,
            "show members, offsets and lag",
        ),
        (
            "reset-offsets",
            reset_offsets,
            add_reset_options,
            "move the offsets of a group without members",
        ),
        (
            "delete",
            delete_groups,
            add_delete_options,
            "delete groups without members",
        ),
    ):
        parser = client_command(actions, name, command, description)
        add_zookeeper_option(parser)
        add_options(parser)


# List


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Which groups to list."""
    parser.add_argument("--state", type=_words, default=(), metavar="STATE[,STATE]", help="of these states")
    parser.add_argument(
        "--type",
        type=_words,
        default=(),
        metavar="TYPE[,TYPE]",
        help="of these types: classic, consumer, zookeeper",
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


async def list_groups(options: argparse.Namespace) -> None:
    """Print groups with their states and types."""
    async with group_admin(options, asks_nodes=False) as (_, admin):
        groups = await admin.list_groups(states=options.state, types=options.type)
    rows = [
        {
            "group": group.group_id,
            "state": group.state,
            "type": group.type,
            "protocol_type": group.protocol_type,
        }
        for group in groups
    ]
    print_answer(options, rows, (f"{row['group']}\t{row['state']}\t{row['type']}" for row in rows))


# Describe


def add_describe_options(parser: argparse.ArgumentParser) -> None:
    """Which groups to describe, and how much of them."""
    parser.add_argument("names", nargs="+", metavar="GROUP")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--state", action="store_true", help="the state alone")
    parts.add_argument("--members", action="store_true", help="state and members")
    parts.add_argument("--offsets", action="store_true", help="state and offsets")
    parser.add_argument(
        "--verbose", action="store_true", help="epochs, targets and subscriptions of members as well"
    )


async def describe_groups(options: argparse.Namespace) -> None:
    """Print state, members, and committed offsets with their lag. Raises ProtocolError, for a group that
    does not exist too.
    """
    shows_members = not (options.state or options.offsets)
    shows_offsets = not (options.state or options.members)
    async with group_admin(options, asks_nodes=shows_offsets) as (_, admin):
        described = await admin.describe_groups(options.names)
        groups = []
        for name, group in described.items():
            _require(name, group)
            shown = _shown(group)
            shown["members"] = [
                _shown_member(member, group.type) for member in group.members if shows_members
            ]
            shown["offsets"] = await _offsets(admin, name) if shows_offsets else []
            groups.append(shown)
    lines = (line for group in groups for line in _group_lines(group, verbose=options.verbose))
    print_answer(options, groups, lines)


def _require(name: str, group: GroupDescription) -> None:
    if group.state == DEAD:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name}")


def _shown(group: GroupDescription) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "member_count": len(group.members),
    }
    if group.type == CONSUMER:
        shown |= {"epoch": group.epoch, "target_epoch": group.target_epoch}
    return shown


def _shown_member(member: MemberDescription, type_of_group: str) -> dict[str, Any]:
    if type_of_group == ZOOKEEPER:
        return {
            "member": member.member_id,
            "topics": list(member.topics),
            "pattern": member.pattern,
            "partitions": [str(partition) for partition in member.assignment],
        }
    shown: dict[str, Any] = {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [str(partition) for partition in member.assignment],
    }
    if member.epoch is not None:
        shown |= {
            "epoch": member.epoch,
            "target": [str(partition) for partition in member.target or ()],
            "topics": list(member.topics),
            "pattern": member.pattern,
            "type": "classic" if member.is_classic else "consumer",
        }
    return shown


async def _offsets(admin: GroupOffsetAdmin, group: str) -> list[dict[str, Any]]:
    lags = await admin.group_lags(group)
    rows = {partition: _offset_row(partition, at) for partition, at in lags.items()}
    if isinstance(admin, ZooKeeperGroupAdmin):
        owners = await admin.group_owners(group)
        for partition in rows.keys() | owners.keys():
            row = rows.setdefault(partition, _offset_row(partition, None))
            row["owner"] = owners.get(partition)
    return [rows[partition] for partition in sorted(rows)]


def _offset_row(partition: TopicPartition, at: GroupLag | None) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": None if at is None else at.offset,
        "end": None if at is None else at.end,
        "lag": None if at is None else at.lag,
    }


def _group_lines(group: Mapping[str, Any], *, verbose: bool) -> Iterable[str]:
    head = f"Group: {group['group']}\tType: {group['type']}\tState: {group['state']}\t"
    if group["type"] != ZOOKEEPER:
        head += f"Coordinator: {group['coordinator']}\t"
    head += f"Assignor: {group['protocol']}\tMembers: {group['member_count']}"
    if verbose and "epoch" in group:
        head += f"\tEpoch: {group['epoch']}\tTarget epoch: {group['target_epoch']}"
    yield head
    for member in group["members"]:
        yield _member_line(member, verbose=verbose)
    for row in group["offsets"]:
        yield "\t".join(f"{name.title()}: {'-' if value is None else value}" for name, value in row.items())


def _member_line(member: Mapping[str, Any], *, verbose: bool) -> str:
    has = _joined(member["partitions"])
    if "client" not in member:
        reads = member["pattern"] or _joined(member["topics"])
        return f"Member: {member['member']}\tReads: {reads}\tPartitions: {has}"
    line = f"Member: {member['member']}\tClient: {member['client']}\tPartitions: {has}"
    if not verbose:
        return line
    line += f"\tHost: {member['host']}\tInstance: {member['instance'] or '-'}"
    if "epoch" in member:
        line += (
            f"\tEpoch: {member['epoch']}\tTarget: {_joined(member['target'])}\tProtocol: {member['type']}\t"
            f"Topics: {_joined(member['topics'])}\tPattern: {member['pattern'] or '-'}"
        )
    return line


def _joined(words: Iterable[str]) -> str:
    return ",".join(words)


# Reset offsets


def add_reset_options(parser: argparse.ArgumentParser) -> None:
    """What to move, where to, and whether to do it."""
    parser.add_argument("name", metavar="GROUP")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--topic",
        action="append",
        type=_topic_choice,
        metavar="TOPIC[:PARTITION,…]",
        help="may be given several times",
    )
    what.add_argument("--all-topics", action="store_true", help="all that the group has offsets of")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record that is kept")
    where.add_argument("--to-latest", action="store_true", help="after the last record")
    where.add_argument("--to-offset", type=int, metavar="OFFSET", help="within what is kept")
    where.add_argument("--shift-by", type=int, metavar="COUNT", help="from where it is; may be negative")
    where.add_argument("--to-datetime", type=_timestamp_ms, metavar="2026-01-31T12:00:00Z", help="since then")
    where.add_argument("--by-duration", type=_duration, metavar="P1DT2H", help="since so long ago")
    parser.add_argument("--execute", action="store_true", help="without it, only show what would be done")


TopicChoice = tuple[str, frozenset[int] | None]


def _topic_choice(text: str) -> TopicChoice:
    name, colon, numbers = text.partition(":")
    if not colon:
        return name, None
    try:
        return name, frozenset(int(number) for number in numbers.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{numbers!r} are no partitions") from None


def _timestamp_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-01-31T12:00:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as P1DT2H30M")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


async def reset_offsets(options: argparse.Namespace) -> None:
    """Print where offsets go, and with `--execute` put them there. Raises ProtocolError, for a group with
    members too.
    """
    async with group_admin(options) as (cluster, admin):
        partitions = None if options.all_topics else await _chosen(options, Admin(cluster))
        offsets = await admin.move_group_offsets(
            options.name, _destination(options), partitions, validate_only=not options.execute
        )
    rows = [
        {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        for partition, offset in offsets.items()
    ]
    document = {"group": options.name, "executed": options.execute, "offsets": rows}
    lines = (f"Topic: {row['topic']}\tPartition: {row['partition']}\tOffset: {row['offset']}" for row in rows)
    print_answer(options, document, lines)


async def _chosen(options: argparse.Namespace, admin: Admin) -> set[TopicPartition]:
    topics = await admin.describe_topics([name for name, _ in options.topic])
    chosen = set()
    for name, numbers in options.topic:
        existing = set(topics[name].partitions)
        if numbers is not None and not numbers <= existing:
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{name} has no partition {min(numbers - existing)}",
            )
        wanted = existing if numbers is None else numbers
        chosen |= {TopicPartition(name, number) for number in wanted}
    return chosen


def _destination(options: argparse.Namespace) -> Destination:
    if options.to_earliest:
        return ToEarliest()
    if options.to_latest:
        return ToLatest()
    if options.to_offset is not None:
        return ToOffset(options.to_offset)
    if options.shift_by is not None:
        return ShiftBy(options.shift_by)
    if options.to_datetime is not None:
        return ToTime(options.to_datetime)
    return ToTime(round((datetime.now(UTC) - options.by_duration).timestamp() * 1000))


# Delete


def add_delete_options(parser: argparse.ArgumentParser) -> None:
    """Which groups to delete."""
    parser.add_argument("names", nargs="+", metavar="GROUP")


async def delete_groups(options: argparse.Namespace) -> None:
    """Delete groups. Raises ProtocolError for the first that could not be."""
    async with group_admin(options, asks_nodes=False) as (_, admin):
        raise_first(await admin.delete_groups(options.names))
