"""What the driver asks a cluster: which partitions there are, and where their logs begin and end."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from broker.client.backoff import is_retriable
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.metadata import ClusterMetadata
from broker.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from broker.errors import BrokerError, ConfigurationError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.spark.bounds import Bounds, NoMatch, OffsetBounds, TimeBounds
from mirrormaker.spark.offsets import (
    Logs,
    Offsets,
    TopicIds,
    check_partitions,
    made_anew,
    resolve_offsets,
)
from mirrormaker.spark.options import ClusterOptions, Selection, SourceOptions

T = TypeVar("T")

START_TIMEOUT_MS = 5_000
"""How long a driver tries to reach the cluster before it says that it cannot."""
_ATTEMPT_TIMEOUT_MS = 10_000


def new_cluster(options: ClusterOptions) -> Cluster:
    """The cluster that the options name, not yet connected."""
    settings = ConnectionSettings(
        client_id=options.client_id,
        request_timeout_ms=options.request_timeout_ms,
        security=options.security,
    )
    return Cluster(options.bootstrap, settings=settings)


def select_partitions(
    selection: Selection, metadata: ClusterMetadata, *, missing_allowed: bool = False
) -> list[TopicPartition]:
    """The partitions that are selected. Raises ConfigurationError naming all that are not there, unless
    those are allowed to be missing.
    """
    existing = {
        TopicPartition(name, number) for name, topic in metadata.topics.items() for number in topic.partitions
    }
    missing: list[str] = []
    if selection.partitions:
        missing = [str(partition) for partition in selection.partitions if partition not in existing]
        chosen = existing & set(selection.partitions)
    elif selection.patterns is not None:
        selected = {
            name
            for name, topic in metadata.topics.items()
            if not topic.internal and selection.patterns.selects(name)
        }
        chosen = {partition for partition in existing if partition.topic in selected}
    else:
        missing = [topic for topic in selection.topics if topic not in metadata.topics]
        chosen = {partition for partition in existing if partition.topic in selection.topics}
    if missing and not missing_allowed:
        raise ConfigurationError([f"{name} does not exist in the cluster" for name in missing])
    return sorted(chosen)


def topic_id_of(metadata: ClusterMetadata, topic: str) -> str | None:
    """As Kafka's tools show it; None where nodes do not tell, as old ones."""
    known = metadata.topics.get(topic)
    if known is None or known.topic_id == NO_TOPIC_ID:
        return None
    return base64.urlsafe_b64encode(known.topic_id.bytes).decode().rstrip("=")


class LogLookup:
    """Looks at the logs of one cluster, trying again as fetchOffset.numRetries says."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._read_committed = options.terms.committed_only

    async def logs(self, *, missing_allowed: bool = False) -> Logs:
        """The selected partitions as they are now. Raises ConfigurationError for what does not exist, unless
        that is allowed, and BrokerError of the last attempt.
        """
        selection = self._options.selection

        async def look() -> Logs:
            metadata = await self._metadata()
            partitions = select_partitions(selection, metadata, missing_allowed=missing_allowed)
            topics = {partition.topic for partition in partitions}
            ids = {topic: topic_id_of(metadata, topic) for topic in topics}
            return Logs(
                earliest=await self._ask(dict.fromkeys(partitions, EARLIEST)),
                latest=await self._ask(dict.fromkeys(partitions, LATEST)),
                topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic_id is not None},
            )

        return await self._again(look)

    async def _metadata(self) -> ClusterMetadata:
        """Of all topics, asked for as long as an attempt may take: nodes that start anew are waited for."""
        retries = self._cluster.retries(_ATTEMPT_TIMEOUT_MS)
        while True:
            try:
                return await self._cluster.refresh()
            except BrokerError as error:
                await retries.pause(error)

    async def logs_beyond(self, known: Offsets, topic_ids: TopicIds) -> Logs:
        """As `logs` of what there is. Logs that seem to be gone, to end before `known` or to be of other
        topics are looked at again: a leader that has just taken over may not know yet how far it is, and a
        node that lags behind may not know of a topic, or tell of one that is no more.
        """
        options = self._options.cluster
        for _ in range(options.retries):
            logs = await self.logs(missing_allowed=True)
            is_beyond = all(logs.latest.get(each, -1) >= offset for each, offset in known.items())
            if is_beyond and not made_anew(topic_ids, logs.topic_ids):
                return logs
            await asyncio.sleep(options.retry_interval_ms / 1000)
        return await self.logs(missing_allowed=True)

    async def starts(self, logs: Logs) -> dict[TopicPartition, int]:
        """Where the options say to start. Raises ConfigurationError for a time that no record has come up to,
        and for partitions that are not read.
        """
        return await self._resolve("starting", self._options.starting, logs)

    async def ends(self, logs: Logs) -> dict[TopicPartition, int]:
        """Where the options say to end, exclusive. Raises as `starts`."""
        return await self._resolve("ending", self._options.ending, logs)

    async def since(self, time_ms: int, logs: Logs) -> dict[TopicPartition, int]:
        """The first offset of each partition at or after a time, else the end. What lies before 1970, as
        records without a time do, no index tells: nodes take such numbers for words.
        """
        if time_ms < 0:
            return dict(logs.earliest)
        found = await self._again(lambda: self._ask(dict.fromkeys(logs.latest, time_ms)))
        return {
            partition: logs.latest[partition] if offset == NO_OFFSET else offset
            for partition, offset in found.items()
        }

    async def _resolve(self, side: str, bounds: Bounds, logs: Logs) -> dict[TopicPartition, int]:
        match bounds:
            case OffsetBounds():
                check_partitions(f"{side}Offsets", bounds, logs)
                return resolve_offsets(bounds, logs)
            case TimeBounds():
                check_partitions(f"{side}OffsetsByTimestamp", bounds, logs)
                elsewhere = {}
                if bounds.elsewhere is not None:
                    elsewhere = await self._resolve(side, bounds.elsewhere, logs)
                return {**elsewhere, **await self._by_time(side, bounds, logs)}

    async def _by_time(self, side: str, bounds: TimeBounds, logs: Logs) -> dict[TopicPartition, int]:
        """Not behind `logs`, which may have grown by now."""
        times = {each: time for each in logs.latest if (time := bounds.of(each)) is not None}
        found = await self._again(lambda: self._ask(times))
        unmatched = [partition for partition, offset in sorted(found.items()) if offset == NO_OFFSET]
        if unmatched and bounds.no_match is NoMatch.ERROR:
            option = f"{side}OffsetsByTimestamp" if bounds.default is None else f"{side}Timestamp"
            raise ConfigurationError(
                [
                    f"option {option}: {partition} has no record at or after {times[partition]}; "
                    f"{side}OffsetsByTimestampStrategy=latest would start behind its last"
                    for partition in unmatched
                ]
            )
        return {
            partition: logs.latest[partition] if offset == NO_OFFSET else min(offset, logs.latest[partition])
            for partition, offset in found.items()
        }

    async def _ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = await list_offsets(
            self._cluster, wanted, read_committed=self._read_committed, timeout_ms=_ATTEMPT_TIMEOUT_MS
        )
        return {partition: at.offset for partition, at in found.items()}

    async def _again(self, attempt: Callable[[], Awaitable[T]]) -> T:
        options = self._options.cluster
        for _ in range(options.retries):
            try:
                return await attempt()
            except BrokerError as error:
                if not is_retriable(error):
                    raise
            await asyncio.sleep(options.retry_interval_ms / 1000)
        return await attempt()


class DriverLookup:
    """A `LogLookup` for a driver that asks now and then, with one connection all the while."""

    def __init__(self, options: SourceOptions) -> None:
        """Raises BrokerError when the cluster cannot be reached."""
        self._runner = asyncio.Runner()
        self._cluster = new_cluster(options.cluster)
        self._lookup = LogLookup(self._cluster, options)
        try:
            self._runner.run(self._cluster.start(timeout_ms=START_TIMEOUT_MS))
        except BaseException:
            self.close()
            raise

    def ask(self, question: Callable[[LogLookup], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question that the lookup awaits."""
        return self._runner.run(question(self._lookup))

    def close(self) -> None:
        """Leave the cluster."""
        self._runner.run(self._cluster.close())
        self._runner.close()
