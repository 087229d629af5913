"""The commands on settings of topics, groups and nodes: ask the cluster, print the answer as text or JSON."""

from __future__ import annotations

import argparse
import re
from typing import Any

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.config_admin import ConfigEntry
from broker.command_changes import changes_of
from broker.command_line import Command, client_command, connected, print_answer
from broker.settings import ConfigSource

TOPICS, BROKERS, GROUPS = "topics", "brokers", "groups"
ENTITY_TYPES = (TOPICS, BROKERS, GROUPS)

_ASSIGNMENT = re.compile(r"\s*([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)\s*(?:,|$)")


def add_commands(commands: Any) -> None:
    """Add `configs` and its actions to the command line."""
    configs = commands.add_parser("configs", help="show and alter settings of topics and nodes")
    actions = configs.add_subparsers(required=True, metavar="ACTION")
    describe = _config_command(actions, "describe", describe_configs, "show settings and their sources")
    describe.add_argument("--all", action="store_true", help="defaults too")
    alter = _config_command(actions, "alter", alter_configs, "change settings while the cluster runs")
    alter.add_argument(
        "--add",
        action="append",
        default=[],
        type=assignments,
        metavar="KEY=VALUE,...",
        help="set these; a value with commas stands in brackets",
    )
    alter.add_argument(
        "--delete", action="append", default=[], metavar="KEY,...", help="back to what holds without"
    )


def _config_command(actions: Any, name: str, command: Command, description: str) -> argparse.ArgumentParser:
    parser = client_command(actions, name, command, description)
    parser.add_argument("--entity-type", choices=ENTITY_TYPES, required=True)
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument("--entity-name", metavar="NAME", help="the topic, the group, or the id of the broker")
    of.add_argument("--entity-default", action="store_true", help="all brokers")
    run = parser.get_default("run")

    def checked(options: argparse.Namespace) -> None:
        if problem := entity_problem(options):
            parser.error(problem)
        run(options)

    parser.set_defaults(run=checked)
    return parser


async def describe_configs(options: argparse.Namespace) -> None:
    """Print settings with their sources: those that were set, or all. Raises ProtocolError."""
    async with connected(options) as cluster:
        entries = await _described(cluster, options)
    rows = [
        {
            "name": name,
            "value": entry.value,
            "source": entry.source.name.lower(),
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": synonym.source.name.lower()}
                for synonym in entry.synonyms
            ],
        }
        for name, entry in sorted(entries.items())
        if options.all or entry.source is not ConfigSource.DEFAULT
    ]
    lines = (f"{row['name']}={'' if row['value'] is None else row['value']}\t{row['source']}" for row in rows)
    print_answer(options, rows, lines)


async def alter_configs(options: argparse.Namespace) -> None:
    """Set settings, and take others back to what holds without them.

    Raises ConfigurationError, ProtocolError.
    """
    changes = changes_of(options.add, options.delete)
    async with connected(options) as cluster:
        admin = Admin(cluster)
        if options.entity_type == TOPICS:
            await admin.alter_topic_configs(options.entity_name, changes)
        elif options.entity_type == GROUPS:
            await cluster.refresh([])
            await admin.alter_group_configs(options.entity_name, changes)
        else:
            await cluster.refresh([])
            await admin.alter_broker_configs(_node_id(options), changes)


async def _described(cluster: Cluster, options: argparse.Namespace) -> dict[str, ConfigEntry]:
    admin = Admin(cluster)
    if options.entity_type == TOPICS:
        await admin.describe_topics([options.entity_name])
        return await admin.describe_topic_configs(options.entity_name)
    await cluster.refresh([])
    if options.entity_type == GROUPS:
        return await admin.describe_group_configs(options.entity_name)
    return await admin.describe_broker_configs(_node_id(options))


def _node_id(options: argparse.Namespace) -> int | None:
    return None if options.entity_default else int(options.entity_name)


def entity_problem(options: argparse.Namespace) -> str:
    """What is wrong with the entity that the options name, or nothing."""
    if options.entity_type != BROKERS and options.entity_default:
        kind = options.entity_type
        return f"--entity-default: {kind} have no default of their own but the settings of nodes"
    if (
        options.entity_type == BROKERS
        and options.entity_name is not None
        and not options.entity_name.isdecimal()
    ):
        return f"--entity-name: a broker's name is its id, not {options.entity_name!r}"
    return ""


def assignments(text: str) -> dict[str, str]:
    """`k=v,k=[a,b]` by name; brackets hold a value that has commas. Raises ArgumentTypeError."""
    settings = {}
    position = 0
    while position < len(text):
        match = _ASSIGNMENT.match(text, position)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text[position:]!r} is not KEY=VALUE[,KEY=VALUE]")
        value = match[2].strip()
        settings[match[1]] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        position = match.end()
    if not settings:
        raise argparse.ArgumentTypeError("KEY=VALUE is missing")
    return settings
