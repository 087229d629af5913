"""kazoo's clients: how they are made, what they log, and what one does that ends another process's session.

Everything here blocks, or belongs to kazoo's threads.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect

from broker.coordination.connect_string import ConnectString
from broker.coordination.protocol import SessionKey
from broker.telemetry import logger

_log = logger("zookeeper")

_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.4, "max_delay": 1.0}


CONNECT_SECONDS = 1.0
"""How long the first answer to a connect is waited for."""


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Does not wait a whole session's time for the answer to a connect: a server that is just starting takes
    in connects that it never answers, and a session may end in that time. After each that was not answered
    the next one is given twice as long.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._connect_seconds = CONNECT_SECONDS

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            answer = super()._invoke(min(timeout, self._connect_seconds), request, xid)
        except self.handler.timeout_exception:
            self._connect_seconds *= 2
            raise
        self._connect_seconds = CONNECT_SECONDS
        return answer


class KazooReports(logging.Handler):
    """Takes kazoo's log in: its last warning explains a failure, everything else our own events say."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.last = ""
        self.logger = logging.Logger("broker.kazoo", level=logging.WARNING)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
        _log.debug("kazoo_reported", message=self.last)


def new_client(
    connect: ConnectString, timeout_ms: float, reports: KazooReports, key: SessionKey | None = None
) -> Any:
    """A client that is yet to be started: with a session of its own, or the one that `key` belongs to."""
    client = KazooClient(
        hosts=connect.hosts,
        timeout=timeout_ms / 1000,
        client_id=(key.session_id, key.password) if key else None,
        connection_retry=dict(_RECONNECT),
        logger=reports.logger,
    )
    client._connection = _Connection(client, client._conn_retry.copy(), logger=client.logger)
    return client


def key_of(client: Any) -> SessionKey | None:
    """The key of a client's session, None while it is not connected."""
    client_id = client.client_id
    return SessionKey(session_id=client_id[0], password=client_id[1]) if client_id else None


def take_over_and_end(connect: ConnectString, key: SessionKey, timeout_ms: int) -> bool:
    """Go on with a session and close it; whether it was there. In place of one that is gone kazoo makes a new
    one, which is closed as well.

    It is taken over with a short timeout, a server's share of `timeout_ms`: so that every server is tried,
    and that the session ends all the sooner should the connection break before it is closed.
    """
    client = new_client(connect, timeout_ms / len(connect.servers), KazooReports(), key)
    try:
        client.start(timeout=timeout_ms / 1000)
        return key_of(client) == key
    except client.handler.timeout_exception:
        return False
    finally:
        client.stop()
        client.close()
