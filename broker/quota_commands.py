"""The commands on quotas: ask the cluster, print the answer as text or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from broker.client.admin import Admin
from broker.client.quota_admin import QuotaEntity
from broker.command_changes import changes_of
from broker.command_line import client_command, connected, print_answer

_TYPES = ("user", "client-id", "ip")


def add_commands(commands: Any) -> None:
    """Add `quotas` and its actions to the command line."""
    quotas = commands.add_parser("quotas", help="show and alter quotas of users, clients and addresses")
    actions = quotas.add_subparsers(required=True, metavar="ACTION")
    describe = client_command(actions, "describe", describe_quotas, "show quotas: all, or those of some")
    add_entity_options(describe)
    alter = client_command(actions, "alter", alter_quotas, "change quotas while the cluster runs")
    add_entity_options(alter)
    add_change_options(alter)


def add_entity_options(parser: argparse.ArgumentParser) -> None:
    """Whose quotas: a name or the default of each type."""
    for kind in _TYPES:
        of = parser.add_mutually_exclusive_group()
        of.add_argument(f"--{kind}", metavar="NAME", help=f"of this {kind}")
        of.add_argument(
            f"--{kind}-default", action="store_true", help=f"of every {kind} without a quota of its own"
        )


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """What to change."""
    parser.add_argument(
        "--add", action="append", default=[], type=_quotas, metavar="QUOTA=NUMBER,...", help="set these"
    )
    parser.add_argument("--delete", action="append", default=[], metavar="QUOTA,...", help="remove these")


async def describe_quotas(options: argparse.Namespace) -> None:
    """Print quotas, a line for each entity that has any. Raises ProtocolError."""
    async with connected(options) as cluster:
        described = await Admin(cluster).describe_quotas(_entity(options))
    rows = [{"entity": dict(each.entity), "quotas": dict(each.quotas)} for each in described]
    print_answer(options, rows, sorted(_line(each.entity, each.quotas) for each in described))


async def alter_quotas(options: argparse.Namespace) -> None:
    """Set and remove quotas of one entity. Raises ConfigurationError, ProtocolError."""
    changes = changes_of(options.add, options.delete)
    async with connected(options) as cluster:
        await Admin(cluster).alter_quotas(_entity(options), changes)


def _entity(options: argparse.Namespace) -> QuotaEntity:
    entity: dict[str, str | None] = {}
    for kind in _TYPES:
        field = kind.replace("-", "_")
        name: str | None = getattr(options, field)
        if name is not None or getattr(options, f"{field}_default"):
            entity[kind] = name
    return entity


def _line(entity: QuotaEntity, quotas: Mapping[str, float]) -> str:
    who = " ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity.items())
    return f"{who}\t{','.join(f'{name}={_number(value)}' for name, value in sorted(quotas.items()))}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _quotas(text: str) -> dict[str, float]:
    quotas = {}
    for part in text.split(","):
        name, separator, number = part.partition("=")
        try:
            quotas[name.strip()] = float(number)
        except ValueError:
            separator = ""
        if not separator:
            raise argparse.ArgumentTypeError(f"{part!r} is not QUOTA=NUMBER")
    return quotas
