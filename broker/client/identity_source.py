"""Where a producer's identity comes from: an id of its own for idempotence, obtained when it is first needed
and again when its sequence broke somewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from broker.client.backoff import Backoff, Random, is_retriable
from broker.client.cluster import Cluster
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.wire.messages.init_producer_id import InitProducerIdRequest

_NO_TRANSACTION_TIMEOUT_MS = 0x7FFFFFFF

_log = logger("producer")


class IdentitySource(Protocol):
    """What the sender stamps batches with."""

    @property
    def current(self) -> ProducerIdentity:
        """The identity, NO_IDENTITY while there is none."""
        ...

    def want(self) -> None:
        """Something waits for an identity."""
        ...

    def leave(self) -> None:
        """The sequence of the current identity broke for some partition: it takes no more records."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityUse:
    """What the source does with the producer that it serves."""

    start: Callable[[Coroutine[Any, Any, None]], None]
    """Runs work in the producer's background."""
    obtained: Callable[[], None]
    """There is an identity again."""
    refused: Callable[[BrokerError], None]
    """There will be none: nothing can be written any more."""


class IdempotentIdentity:
    """Asks any node for producer ids, for as long as it takes."""

    def __init__(self, cluster: Cluster, use: IdentityUse, *, backoff: Backoff, random: Random) -> None:
        self.current = NO_IDENTITY
        self._cluster = cluster
        self._use = use
        self._backoff = backoff
        self._random = random
        self._obtaining = False

    def want(self) -> None:
        if not self._obtaining:
            self._obtaining = True
            self._use.start(self._obtain())

    def leave(self) -> None:
        self.current = NO_IDENTITY
        self.want()

    async def _obtain(self) -> None:
        attempt = 0
        while self.current is NO_IDENTITY:
            try:
                self.current = await self._ask()
            except BrokerError as error:
                if not is_retriable(error):
                    self._use.refused(error)
                    return
                attempt += 1
                _log.info("producer_id_not_obtained", error=str(error))
                await asyncio.sleep(self._backoff.delay_ms(attempt, self._random) / 1000)
        self._obtaining = False
        self._use.obtained()

    async def _ask(self) -> ProducerIdentity:
        connection = await self._cluster.any_connection()
        if not connection.serves(InitProducerIdRequest):
            message = (
                f"{connection.address} gives no producer ids (InitProducerId), as Kafka before 0.11: only a "
                f"producer without idempotence (enable.idempotence=false) can write there"
            )
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, message)
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )
        response = await connection.request(request)
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise ProtocolError(code, f"producer id: {code.meaning}")
        return ProducerIdentity(response.producer_id, response.producer_epoch)
