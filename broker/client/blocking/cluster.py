"""A cluster for threads, and a session with ZooKeeper beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from broker.client.backoff import Backoff
from broker.client.blocking.facade import Facade, blocking
from broker.client.blocking.loop_thread import LoopThread
from broker.client.cluster import Cluster as AsyncCluster
from broker.client.cluster import Routing
from broker.client.connection import ConnectionSettings
from broker.coordination.zookeeper import ZooKeeper as AsyncZooKeeper
from broker.types import HostPort


class Cluster(Facade[AsyncCluster]):
    """Metadata and connections of one cluster, and the thread that everything made with it runs on.

    Started by `with`, or by `start`. Clients that were made with it are to be closed before it.
    """

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        *,
        settings: ConnectionSettings | None = None,
        backoff: Backoff | None = None,
        routing: Routing = Routing.LEADERS,
    ) -> None:
        super().__init__(
            LoopThread(), AsyncCluster(bootstrap, settings=settings, backoff=backoff, routing=routing)
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *, timeout_ms: float = 30_000) -> None:
        """Start the thread, and learn the cluster's nodes, trying for `timeout_ms`.

        Raises the last error: ConnectionFailedError names the peers.
        """
        self.thread.start()
        try:
            self.thread.call(lambda: self.behind.start(timeout_ms=timeout_ms))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close every connection, and end the thread. Does nothing the second time."""
        if self.thread.is_running:
            try:
                self.thread.call(self.behind.close)
            finally:
                self.thread.stop()


class ZooKeeper(Facade[AsyncZooKeeper]):
    """A session for groups that meet in ZooKeeper, on the thread of a cluster."""

    def __init__(self, cluster: Cluster, connect: str, *, session_timeout_ms: int = 6_000) -> None:
        """`connect` is `host:port[,host:port...][/chroot]`."""
        super().__init__(
            cluster.thread,
            cluster.thread.run(lambda: AsyncZooKeeper(connect, session_timeout_ms=session_timeout_ms)),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *, timeout_ms: int = 6_000) -> None:
        """Begin the session. Raises CoordinationError when nobody answers within `timeout_ms`."""
        self.thread.call(lambda: self.behind.start(timeout_ms=timeout_ms))

    close = blocking(AsyncZooKeeper.close)
