"""What a route left out for good, noted at its destination: the topic `__mirrormaker_skipped`.

The topic is compacted; keys and values are JSON objects, so any client can read them:

    {"route", "topic", "partition", "offset"}   {"reason", "problem", "at_ms", "resumed_at", "lost"}

`reason` is the name of the policy, `offset` the source offset that was to come next, `lost` the source
offsets that are meant, the second exclusive, or null where nobody can tell. A position passes what was left
out only after its note is safe. What a source lost after it was copied has "resumed_at" and "lost" in its key
too: at the same offset something else may be noted, or another loss begin or end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.topology.model import RouteName

TIMEOUT_MS = 15_000
"""How long a note may take."""


def describe_skip(route: RouteName, trouble: Trouble, at_ms: int) -> tuple[Document, Document]:
    """Key and value of the note. Pure."""
    lost = None if trouble.lost is None else list(trouble.lost)
    key: dict[str, object] = {
        "route": route,
        "topic": trouble.source.topic,
        "partition": trouble.source.partition,
        "offset": trouble.position,
    }
    if trouble.kind is TroubleKind.SOURCE_TRUNCATED:
        key |= {"resumed_at": trouble.resume_at, "lost": lost}
    value = {
        "reason": trouble.kind.value,
        "problem": trouble.problem,
        "at_ms": at_ms,
        "resumed_at": trouble.resume_at,
        "lost": lost,
    }
    return key, value


class SkipNotes:
    """The notes of one route."""

    def __init__(self, route: RouteName, destination: Cluster, clock: Clock) -> None:
        self._route = route
        self._destination = destination
        self._clock = clock

    async def write(self, trouble: Trouble, on_failure: Callable[[BrokerError], None]) -> None:
        """Return when the note is with all in-sync replicas, however long that takes; `on_failure` is told
        of the first attempt that fails.
        """
        destination, failures = self._destination, 0
        note = describe_skip(self._route, trouble, self._clock.now_ms())
        while True:
            try:
                async with KeptTopic(destination, SKIPPED_TOPIC, timeout_ms=TIMEOUT_MS) as topic:
                    await topic.put([note])
            except BrokerError as error:
                failures += 1
                if failures == 1:
                    on_failure(error)
                await asyncio.sleep(destination.backoff.delay_ms(failures, destination.random) / 1000)
            else:
                return
