"""A whole node within the test's own process: real sockets and files, ZooKeeper in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from broker.clock import SystemClock
from broker.config import LoadedConfig, NodeConfig
from broker.coordination.memory import MemorySession, MemoryTree
from broker.node import Node
from broker.server.security import Authoriser, Listener
from broker.storage.disk import SystemDisk


@contextlib.asynccontextmanager
async def running_node(
    directory: Path,
    *,
    authoriser: Authoriser | None = None,
    tree: MemoryTree | None = None,
    broker_id: int = 1,
    **settings: Any,
) -> AsyncIterator[Sequence[Listener]]:
    """A node with these settings (underscores for dots) on free ports; yields its listeners."""
    config = NodeConfig(
        **{
            "broker_id": broker_id,
            "listeners": ("PLAINTEXT://127.0.0.1:0",),
            "log_dirs": (str(directory / f"node-{broker_id}"),),
            "group_initial_rebalance_delay_ms": 0,
            "offsets_topic_num_partitions": 1,
            "transaction_state_log_num_partitions": 1,
            "replica_fetch_wait_max_ms": min(500, settings.get("replica_lag_time_max_ms", 500)),
            **settings,
        }
    )
    node = Node(
        LoadedConfig(node=config, given=frozenset()),
        coordination=MemorySession(tree or MemoryTree()),
        disk=SystemDisk(),
        clock=SystemClock(),
        rng=Random(1),
        authoriser=authoriser,
    )
    async with node.running() as listeners:
        yield listeners
