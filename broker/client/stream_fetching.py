"""What the streams of one connector share: a fetcher, and with it the connections, whatever their number.

A node has as many fetches under way as for a single consumer (`fetches_per_node`), and each asks for the
partitions of all streams together. A stream has a queue and its part of the buffer for itself.
"""

from __future__ import annotations

import asyncio

from broker.client.cluster import Cluster
from broker.client.consumer_settings import ConsumerSettings
from broker.client.fetcher import Fetcher
from broker.client.record_stream import RecordStream
from broker.errors import first_failure
from broker.telemetry import logger

_log = logger("connector")


class StreamFetching:
    """The fetching of a connector's streams: one task, from `start` to `close`."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._fetcher = Fetcher(cluster, settings)
        self.streams: list[RecordStream] = []
        """All that were made."""
        self._work: asyncio.Task[None] | None = None

    def new_stream(self, total: int) -> RecordStream:
        """One of `total` streams, which share the buffer."""
        settings = self._settings
        queue = self._fetcher.new_queue(
            max(settings.partition_max_bytes, settings.buffer_bytes // total), settings.stream_answers_max
        )
        self.streams.append(RecordStream(self._fetcher, queue, settings))
        return self.streams[-1]

    def start(self) -> None:
        """Fetch whatever streams are given."""
        self._work = asyncio.create_task(self._fetcher.run(), name="streams' fetcher")
        self._work.add_done_callback(self._on_ended)

    async def close(self) -> None:
        """Stop, and close the connections."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
        await self._fetcher.close()

    def _on_ended(self, work: asyncio.Task[None]) -> None:
        """What ended the fetcher is told by all streams: nothing will come any more."""
        if not work.cancelled() and (failure := work.exception()) is not None:
            failure = first_failure(failure)
            _log.warning("fetcher_failed", error=str(failure))
            for stream in self.streams:
                stream.end(failure)
