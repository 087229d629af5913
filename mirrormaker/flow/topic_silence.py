"""Whether anybody answers for a topic that is followed: who follows it only waits while nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mirrormaker.flow.kept_topic import KeptTopic

LOOK_INTERVAL_MS = 1_000
SILENT_LOOKS_MAX = 10
"""So many looks in a row at which nothing more was answered are told of. Looks, not time: this process may
have stood still, too.
"""


async def watch_silence(topic: KeptTopic, cluster: str, tell: Callable[[str | None], None]) -> None:
    """Tell why nobody answers for the topic of `cluster`, and None whenever somebody does, until
    cancelled.
    """
    silent_looks, reads = 0, topic.reads
    while True:
        await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        silent_looks = silent_looks + 1 if topic.reads == reads else 0
        reads = topic.reads
        if silent_looks >= SILENT_LOOKS_MAX:
            tell(topic.failure or f"cluster {cluster!r}: nothing answers for {topic.name}")
        elif not silent_looks:
            tell(None)
