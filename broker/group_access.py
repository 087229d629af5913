"""Which groups a command is about: those of coordinators, or with `--zookeeper` those that meet there."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.discovery import discovered
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.zookeeper_group_admin import ZooKeeperGroupAdmin
from broker.command_line import CONNECT_TIMEOUT_MS, DEFAULT_BOOTSTRAP, connected, connection_settings
from broker.coordination.zookeeper import ZooKeeper
from broker.types import HostPort

_SESSION_TIMEOUT_MS = 6_000


def add_zookeeper_option(parser: argparse.ArgumentParser) -> None:
    """Where groups meet that have no coordinator."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="groups that meet there, as those of Kafka's old consumers do; brokers are found there too,"
        " unless --bootstrap-server says where",
    )


@contextlib.asynccontextmanager
async def group_admin(
    options: argparse.Namespace, *, asks_nodes: bool = True
) -> AsyncIterator[tuple[Cluster, GroupOffsetAdmin]]:
    """The cluster, and what administers the groups. Where those meet in ZooKeeper, and the command does not
    ask any node, none has to be there.

    Raises as `connected`, and CoordinationError when ZooKeeper is not reached.
    """
    if options.zookeeper is None:
        async with connected(options) as cluster:
            yield cluster, Admin(cluster)
        return
    settings = connection_settings(options)
    session = ZooKeeper(options.zookeeper, session_timeout_ms=_SESSION_TIMEOUT_MS)
    await session.start(timeout_ms=CONNECT_TIMEOUT_MS)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(session.close)
        addresses = options.bootstrap_server
        if asks_nodes and addresses == [HostPort.parse(DEFAULT_BOOTSTRAP)]:
            registered = discovered(session, security_protocol=settings.security.protocol)
            addresses = (await stack.enter_async_context(registered)).addresses
        cluster = Cluster(addresses, settings=settings)
        stack.push_async_callback(cluster.close)
        if asks_nodes:
            await cluster.start(timeout_ms=CONNECT_TIMEOUT_MS)
        yield cluster, ZooKeeperGroupAdmin(cluster, session)
