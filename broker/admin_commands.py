"""The commands on topics: ask the cluster, print the answer as text or JSON; and what others share."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.command_settings import read_command_settings
from broker.errors import ErrorCode, ProtocolError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CONNECT_TIMEOUT_MS = 5_000
"""How long an address may take to answer; a person waits for it."""


def connection_settings(options: argparse.Namespace) -> ConnectionSettings:
    """How the options say that connections are made. Raises ConfigurationError."""
    settings = ConnectionSettings(client_id="broker-cli", connect_timeout_ms=CONNECT_TIMEOUT_MS)
    if options.command_config is not None:
        settings = read_command_settings(options.command_config, settings)
    return settings


@contextlib.asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[Cluster]:
    """The cluster that the options name.

    Raises ConnectionFailedError when nobody answers there, AuthenticationError, ConfigurationError.
    """
    cluster = Cluster(options.bootstrap_server, settings=connection_settings(options))
    try:
        await cluster.start(timeout_ms=CONNECT_TIMEOUT_MS)
        yield cluster
    finally:
        await cluster.close()


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


def print_answer(options: argparse.Namespace, document: Any, lines: Iterable[str]) -> None:
    """The document as JSON, or the lines, as the options ask."""
    if options.output == "json":
        lines = [json.dumps(document)]
    sys.stdout.writelines(f"{line}\n" for line in lines)


def raise_first(results: Mapping[str, ProtocolError | None]) -> None:
    """Raise the first error that there is."""
    for error in results.values():
        if error is not None:
            raise error
