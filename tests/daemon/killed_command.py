"""`python -m tests.daemon.killed_command N VERB ...`: the command line of `mirrormaker`, killed as by kill -9
in place of its Nth write to any cluster, or given another signal before it: that of number SIGNAL_AT_WRITE in
its environment. Counted are records of the mirror's own topics, positions, settings,
topics that are made or grow, and transactions; what only says that the command lives is not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from typing import Any

from broker.client.connection import Connection
from mirrormaker.cli import main
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document

COUNTED = {
    "CreateTopicsRequest",
    "CreatePartitionsRequest",
    "IncrementalAlterConfigsRequest",
    "OffsetCommitRequest",
    "EndTxnRequest",
    "TxnOffsetCommitRequest",
}
left = int(sys.argv[1])


def count(what: str) -> None:
    """One write less to go."""
    global left
    left -= 1
    if left == 0:
        sys.stderr.write(f"killed in place of: {what}\n")
        sys.stderr.flush()
        os.kill(os.getpid(), int(os.environ.get("SIGNAL_AT_WRITE", signal.SIGKILL)))


send, put = Connection.send, KeptTopic.put


def counted_send(self: Connection, request: Any, *given: Any, **named: Any) -> asyncio.Future[Any]:
    """As the connection's own."""
    name = type(request).__name__
    if name in COUNTED and not getattr(request, "validate_only", False):
        count(name)
    return send(self, request, *given, **named)


async def counted_put(self: KeptTopic, entries: Iterable[tuple[Document, Document | None]]) -> None:
    """As the topic's own."""
    records = list(entries)
    if not any(key.get("command") for key, _ in records):
        count(f"{self.name}: {records[:2]}")
    await put(self, records)


Connection.send = counted_send  # type: ignore[method-assign, assignment]
KeptTopic.put = counted_put  # type: ignore[method-assign]
sys.exit(main(sys.argv[2:]))
