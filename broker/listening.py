"""Where a node meets its clients: its addresses, from binding them to the last answer.

`Front` is the port; everything else of a node is made of its other ports (coordination, disk, clock, rng), so
that a whole node runs without sockets too. `Listening` is the real thing: acceptors that hand connections to
one processor on the node's own loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Protocol

from broker.clock import Clock
from broker.config import NodeConfig
from broker.part_configs import connection_limits, rate_windows
from broker.server.acceptor import Acceptor, Processor
from broker.server.admission import Admission
from broker.server.connection import Dispatch
from broker.server.quotas import Quotas
from broker.server.security import Listener

DRAIN_GRACE_MS = 2_000
"""How long requests that were received may take to be answered at a stop."""


class Front(Protocol):
    """How requests of others reach a node.

    Called in this order: `bound`, `attach`, `start`, `stop_accepting`, `drain`.
    """

    @property
    def listeners(self) -> Sequence[Listener]:
        """Within `bound`, the addresses with the ports that they really have."""
        ...

    @property
    def connection_count(self) -> int: ...

    def bound(self) -> AbstractContextManager[None]:
        """Take the addresses, so that nobody else can; nobody can connect yet. Raises StorageError."""
        ...

    def attach(self, dispatch: Dispatch, config: NodeConfig) -> None:
        """Have requests answered by `dispatch`."""
        ...

    def start(self) -> None:
        """Let clients in. Raises StorageError."""
        ...

    def stop_accepting(self) -> None:
        """Let nobody in any more; connections live on."""
        ...

    async def drain(self) -> None:
        """Have what was received answered, as far as it does not take too long, and close all connections."""
        ...

    async def close_idle(self) -> None:
        """Close connections that were silent for too long, for ever."""
        ...

    def reconfigure(self, config: NodeConfig) -> None:
        """Hold other bounds from now on."""
        ...


class Listening:
    """The sockets of one node; implements `Front`."""

    def __init__(self, config: NodeConfig, quotas: Quotas, clock: Clock, disk_threads: Executor) -> None:
        self._config = config
        self._clock = clock
        self._disk_threads = disk_threads
        self._processors: list[Processor] = []
        self._acceptors: list[Acceptor] = []
        listeners = config.listener_texts
        self._admission = Admission(
            self._processors,
            quotas.table,
            rate_windows(config),
            clock.monotonic_ms,
            protected=listeners.between_nodes if len(listeners.bound) > 1 else None,
        )

    @property
    def listeners(self) -> Sequence[Listener]:
        return [acceptor.listener for acceptor in self._acceptors]

    @property
    def connection_count(self) -> int:
        return sum(processor.connection_count for processor in self._processors)

    @contextlib.contextmanager
    def bound(self) -> Iterator[None]:
        limits = connection_limits(self._config)
        with contextlib.ExitStack() as stack:
            for listener in self._config.listener_texts.bound:
                acceptor = Acceptor.open(listener, self._processors, limits, self._admission)
                stack.callback(acceptor.close)
                self._acceptors.append(acceptor)
            yield

    def attach(self, dispatch: Dispatch, config: NodeConfig) -> None:
        limits = connection_limits(config)
        self._processors.append(Processor(dispatch, limits, self._clock, self._disk_threads))
        self.reconfigure(config)

    def start(self) -> None:
        for acceptor in self._acceptors:
            acceptor.start()

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    async def drain(self) -> None:
        for processor in self._processors:
            await processor.drain(grace_ms=DRAIN_GRACE_MS)

    async def close_idle(self) -> None:
        for processor in self._processors:
            await processor.close_idle()

    def reconfigure(self, config: NodeConfig) -> None:
        limits = connection_limits(config)
        for processor in self._processors:
            processor.limits = limits
        for acceptor in self._acceptors:
            acceptor.limits = limits
