"""The control topic of a cluster for those who come and go: read it, write to it, by the name of who does."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.client.cluster import Cluster
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.reconcile.control_board import TIMEOUT_MS
from mirrormaker.topology.model import ClusterSpec


async def read_control_records(spec: ClusterSpec) -> list[tuple[Document, Document]]:
    """All that it says now: keys and values. Raises BrokerError."""
    async with open_cluster(spec) as cluster:
        return await control_records(cluster)


async def control_records(cluster: Cluster) -> list[tuple[Document, Document]]:
    """The same, of a cluster that comes started; looking makes no topic. Raises BrokerError."""
    if CONTROL_TOPIC not in (await cluster.refresh()).topics:
        return []
    async with KeptTopic(cluster, CONTROL_TOPIC, timeout_ms=TIMEOUT_MS) as topic:
        await topic.read_to_end()
        return list(topic.entries())


@asynccontextmanager
async def control_of(spec: ClusterSpec) -> AsyncIterator[KeptTopic]:
    """The topic, to be written to; made where there is none. Raises BrokerError."""
    async with (
        open_cluster(spec) as cluster,
        KeptTopic(cluster, CONTROL_TOPIC, timeout_ms=TIMEOUT_MS) as topic,
    ):
        yield topic


def this_user() -> str:
    """Who writes, as others know them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
