"""Topics that come to be by asking for them, where who is asked is no broker: it asks one in turn."""

from __future__ import annotations

import asyncio
import random

from broker.client.connection import Connection, ConnectionSettings
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.server.cluster_view import ClusterView
from broker.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.telemetry import logger
from broker.types import HostPort
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

log = logger("topic_relay")

_COORDINATORS = {CONSUMER_OFFSETS: 0, TRANSACTION_STATE: 1}
"""Topics that come to be when a coordinator of some type is looked for."""


class TopicRelay:
    """Implements TopicMaker: the brokers' settings say whether and how a topic is made."""

    auto_create = True

    def __init__(
        self, view: ClusterView, listener: str, settings: ConnectionSettings, *, rng: random.Random
    ) -> None:
        self._view = view
        self._listener = listener
        self._settings = settings
        self._rng = rng
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, name: str) -> None:
        """Have a broker make the topic, and wait until the image shows its leaders. Raises ProtocolError.

        Many that ask at once share one request.
        """
        task = self._asking.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(name))
            self._asking[name] = task
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        await asyncio.shield(task)

    async def _ask(self, name: str) -> None:
        addresses = [
            address
            for broker in self._view.image.brokers.values()
            if (address := broker.address(self._listener)) is not None
        ]
        self._rng.shuffle(addresses)
        for address in addresses:
            try:
                await self._ask_broker(address, name)
                timeout_ms = int(self._settings.request_timeout_ms)
                return await self._view.until(
                    lambda image: (
                        (topic := image.topic(name)) is not None
                        and all(partition.has_leader for partition in topic.partitions.values())
                    ),
                    timeout_ms=timeout_ms,
                )
            except (ConnectionFailedError, RequestTimedOutError) as error:
                log.warning("topic_not_relayed", topic=name, broker=str(address), reason=str(error))
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"no broker could be asked for {name}")

    async def _ask_broker(self, address: HostPort, name: str) -> None:
        connection = await Connection.open(address, self._settings)
        try:
            if name in _COORDINATORS:
                coordinators = FindCoordinatorRequest(
                    key="", key_type=_COORDINATORS[name], coordinator_keys=[""]
                )
                await connection.request(coordinators)
                return
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            answer = await connection.request(asked)
        finally:
            await connection.close()
        for topic in answer.topics:
            code = ErrorCode.of(topic.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise ProtocolError(code)
