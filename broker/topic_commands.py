"""`broker topics`: create, list, describe, alter, delete and move topics."""

from __future__ import annotations

import argparse
from typing import Any

from broker.client.admin import Admin, NewTopic
from broker.command_line import client_command, connected, print_answer, raise_first
from broker.errors import ErrorCode, ProtocolError
from broker.option_types import assignment, positive
from broker.placement_commands import add_elect_options, add_reassign_options, elect, reassign
from broker.topic_descriptions import add_describe_options, describe_topics


def add_commands(commands: Any) -> None:
    """Add `topics` and its actions to the command line."""
    topics = commands.add_parser("topics", help="create, list, describe, alter, delete and move topics")
    actions = topics.add_subparsers(required=True, metavar="ACTION")
    create = client_command(actions, "create", create_topic, "create a topic")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--partitions", type=positive, default=-1, help="default: the cluster's")
    create.add_argument("--replication-factor", type=positive, default=-1, help="default: the cluster's")
    create.add_argument("--config", action="append", default=[], type=assignment, metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="be content when it exists")
    listing = client_command(actions, "list", list_topics, "list topics")
    listing.add_argument("--internal", action="store_true", help="the cluster's own ones too")
    describe = client_command(actions, "describe", describe_topics, "show partitions and replicas")
    add_describe_options(describe)
    alter = client_command(actions, "alter", alter_topic, "add partitions, change settings")
    alter.add_argument("name", metavar="NAME")
    alter.add_argument("--partitions", type=positive, help="grow to so many")
    alter.add_argument("--config", action="append", default=[], type=assignment, metavar="KEY=VALUE")
    alter.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="back to the default"
    )
    delete = client_command(actions, "delete", delete_topics, "delete topics")
    delete.add_argument("names", nargs="+", metavar="NAME")
    add_reassign_options(client_command(actions, "reassign", reassign, "move replicas to other brokers"))
    add_elect_options(client_command(actions, "elect", elect, "have preferred replicas lead again"))


async def create_topic(options: argparse.Namespace) -> None:
    """Create a topic. Raises ProtocolError."""
    topic = NewTopic(
        name=options.name,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        configs=dict(options.config),
    )
    async with connected(options) as cluster:
        try:
            await Admin(cluster).create_topic(topic)
        except ProtocolError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not options.if_not_exists:
                raise


async def list_topics(options: argparse.Namespace) -> None:
    """Print the names of topics."""
    async with connected(options) as cluster:
        names = await Admin(cluster).list_topics(internal=options.internal)
    print_answer(options, names, names)


async def alter_topic(options: argparse.Namespace) -> None:
    """Add partitions, set and reset settings. Raises ProtocolError."""
    changes: dict[str, str | None] = {**dict(options.config), **dict.fromkeys(options.delete_config)}
    async with connected(options) as cluster:
        admin = Admin(cluster)
        if changes:
            await admin.alter_topic_configs(options.name, changes)
        if options.partitions is not None:
            raise_first(await admin.create_partitions({options.name: options.partitions}))


async def delete_topics(options: argparse.Namespace) -> None:
    """Delete topics. Raises ProtocolError for the first that could not be."""
    async with connected(options) as cluster:
        raise_first(await Admin(cluster).delete_topics(options.names))
