"""The destination side of a route: performs what the machine says.

A link's requests are sent in the order in which the machine gave them, and answered in that order; its task
awaits the answers one after the other. Owned by the event loop of the route's copier; all tasks live in its
task group.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.operations import WRITE
from broker.clock import Clock
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition
from broker.wire.features import PRODUCE_BATCHES
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from mirrormaker.flow.delivery_rate import DeliveryRate
from mirrormaker.flow.exchange import ProduceAnswer, ProduceCommand
from mirrormaker.flow.facts import Fact
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey, ProducerProblem
from mirrormaker.flow.signal import Signal
from mirrormaker.missing_rights import explained

PRODUCE_LANE = "produce"
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 25_000
ANSWER_TIMEOUT_MS = 30_000
REFRESH_SPACING_MS = 100

_FIRST_VERSION_WITH_FEATURES = 3
_LAST_VERSION_WITH_PARTITIONS_ADDED = 11

_log = logger("writer")


class DestinationWriter:
    """Performs the machine's effects for one copier. `pump` whenever the machine has been stepped."""

    def __init__(
        self,
        cluster: Cluster,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        *,
        on_acknowledged: Callable[[], None],
        on_fact: Callable[[Fact], None],
        obtain_identity: Callable[[ProducerKey], Awaitable[ProducerIdentity]] | None = None,
        introduce: Callable[[int, Callable[[str], None]], Awaitable[None]] | None = None,
        find_held: Callable[[Collection[str]], Collection[str]] = lambda topics: (),
    ) -> None:
        """`obtain_identity`: where producer ids come from; by default any that nobody has used.
        `introduce`: takes each before it is used, and what takes why that is put off. `find_held`: of the
        topics that are written, those that nothing is to be sent to for now.
        """
        self._obtain_identity = obtain_identity
        self._introduce = introduce
        self._find_held = find_held
        self._cluster = cluster
        self._machine = machine
        self._tasks = tasks
        self._clock = clock
        self._on_acknowledged = on_acknowledged
        self._on_fact = on_fact
        self._links: dict[BrokerId, ProduceLink] = {}
        self._pumped = Signal()
        self._stale = Signal()

    @property
    def nodes(self) -> set[int]:
        """Brokers that are sent to."""
        return {int(broker) for broker in self._links}

    @property
    def delivery_rate(self) -> float | None:
        """Bytes a second that the fastest broker took; None: not known yet."""
        rates = [link.rate.per_second for link in self._links.values()]
        return max((rate for rate in rates if rate is not None), default=None)

    def pump(self) -> None:
        """Look at the machine soon: several calls in one turn of the event loop cost one look."""
        self._pumped.set()

    def look_up_leaders(self) -> None:
        """Ask the destination again who leads what."""
        self._stale.set()

    async def perform(self) -> None:
        """Do what the machine says, whenever it was stepped or a wait is over. Runs until cancelled."""
        wake_at_ms: int | None = None
        while True:
            now_ms = self._clock.monotonic_ms()
            timeout_ms = None if wake_at_ms is None else max(wake_at_ms - now_ms, 0)
            await self._pumped.wait(timeout_ms)
            ready = self._machine.ready(self._clock.monotonic_ms())
            if ready.refresh_leaders:
                self._stale.set()
            for key in ready.producers:
                self._tasks.create_task(self._get_producer(key), name=f"producer id {key}")
            for command in ready.requests:
                self._link_to(command.broker).submit(command)
            for fact in ready.facts:
                self._on_fact(fact)
            wake_at_ms = ready.wake_at_ms

    async def follow_leaders(self) -> None:
        """Tell the machine who leads the destination, whenever that is doubted, until cancelled."""
        failures = 0
        while True:
            await self._stale.wait()
            try:
                complete = await self._tell_leaders()
            except (AuthenticationError, ConfigurationError):
                raise  # the route fails, says why, and is tried again after a while
            except BrokerError as error:
                complete = False
                _log.info("destination_metadata_not_refreshed", failures=failures, error=str(error))
            failures = 0 if complete else failures + 1
            if not complete:
                self._stale.set()
            wait_ms = self._cluster.backoff.delay_ms(failures, self._cluster.random) if failures else 0
            await asyncio.sleep(max(wait_ms, REFRESH_SPACING_MS) / 1000)

    def _destinations(self) -> Collection[TopicPartition]:
        return [
            lane.destination for partition in self._machine.partitions.values() for lane in partition.lanes
        ]

    async def _tell_leaders(self) -> bool:
        """Look the leaders up; whether every partition has one."""
        topics = {destination.topic for destination in self._destinations()}
        if topics:
            await self._cluster.refresh(topics)
        destinations = self._destinations()
        held = self._find_held({destination.topic for destination in destinations})
        leaders = {
            destination: BrokerId(leader)
            for destination in destinations
            if destination.topic not in held and (leader := self._cluster.leader(destination)) is not None
        }
        self._machine.set_leaders(leaders)
        self.pump()
        return all(destination in leaders for destination in destinations)

    def _link_to(self, broker: BrokerId) -> ProduceLink:
        link = self._links.get(broker)
        if link is None:
            link = self._links[broker] = ProduceLink(
                self._cluster,
                broker,
                self._clock,
                on_answer=self._take_answer,
                on_failure=self._take_failure,
            )
            self._tasks.create_task(link.run(), name=f"produce to {broker}")
        return link

    def _take_answer(self, command: ProduceCommand, response: ProduceResponse) -> None:
        answers = {
            TopicPartition(topic.name, partition.index): _answer_of(partition)
            for topic in response.responses
            for partition in topic.partition_responses
        }
        self._machine.answered(command, answers, self._clock.monotonic_ms())
        self._on_acknowledged()
        self.pump()

    def _take_failure(self, command: ProduceCommand, error: BrokerError) -> None:
        _log.info("produce_failed", node=command.broker, bytes=command.bytes, error=str(error))
        self._machine.failed(command, self._clock.monotonic_ms())
        self._on_acknowledged()
        self.pump()

    async def _get_producer(self, key: ProducerKey) -> None:
        failures, told = 0, ""
        while True:
            try:
                identity = await self._obtain(key)
                break
            except (AuthenticationError, ConfigurationError):
                raise
            except BrokerError as error:
                failures, said = failures + 1, str(error)
                if said != told:
                    told = said
                    _log.warning("producer_id_not_obtained", key=str(key), failures=failures, error=said)
                code = error.code if isinstance(error, ProtocolError) else None
                self._machine.producer_failed(key, ProducerProblem(said, code, failures))
                self.pump()
                await asyncio.sleep(self._cluster.backoff.delay_ms(failures, self._cluster.random) / 1000)
        self._machine.set_producer(key, identity)
        self.pump()

    async def _obtain(self, key: ProducerKey) -> ProducerIdentity:
        if self._obtain_identity is None:
            identity = await obtain_producer_id(self._cluster)
        else:
            identity = await self._obtain_identity(key)
        if self._introduce is not None:
            await self._introduce(identity.producer_id, partial(self._tell_put_off, key))
        return identity

    def _tell_put_off(self, key: ProducerKey, said: str) -> None:
        self._machine.producer_failed(key, ProducerProblem(said, None, 1))


class ProduceLink:
    """Requests to one destination broker, several in flight, in the order of `submit`."""

    def __init__(
        self,
        cluster: Cluster,
        broker: BrokerId,
        clock: Clock,
        *,
        on_answer: Callable[[ProduceCommand, ProduceResponse], None],
        on_failure: Callable[[ProduceCommand, BrokerError], None],
    ) -> None:
        self.rate = DeliveryRate()
        self._cluster = cluster
        self._broker = broker
        self._clock = clock
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._connection: Connection | None = None
        self._unsent: deque[ProduceCommand] = deque()
        self._sent: deque[tuple[ProduceCommand, asyncio.Future[ProduceResponse]]] = deque()
        self._work = Signal()

    def submit(self, command: ProduceCommand) -> None:
        """Send now when connected and nothing waits before it, else as soon as there is a connection."""
        self._unsent.append(command)
        if self._connection is not None and not self._connection.closed:
            self._send_all(self._connection)
        self._work.set()

    async def run(self) -> None:
        """Connect when needed, and take answers in order. Runs until cancelled: none is taken then."""
        try:
            while True:
                if self._sent:
                    await self._take_one()
                elif self._unsent:
                    await self._connect()
                else:
                    await self._work.wait()
        finally:
            for _, answer in self._sent:
                answer.cancel()

    async def _connect(self) -> None:
        try:
            self._connection = await self._cluster.connection(self._broker, PRODUCE_LANE)
            self._send_all(self._connection)
        except (AuthenticationError, ConfigurationError):
            raise
        except BrokerError as error:
            self._fail_unsent(error)

    async def _take_one(self) -> None:
        command, future = self._sent[0]
        try:
            response = await future
        except BrokerError as error:
            self._sent.popleft()
            self.rate.ended(command.bytes, self._clock.monotonic_ms(), is_answered=False)
            self._on_failure(command, error)
        else:
            self._sent.popleft()
            self.rate.ended(command.bytes, self._clock.monotonic_ms(), is_answered=True)
            self._on_answer(command, response)

    def _send_all(self, connection: Connection) -> None:
        while self._unsent:
            try:
                command = self._unsent[0]
                version = None if command.transactional_id is None else transactional_version(connection)
                future = connection.send(produce_request(command), version, timeout_ms=ANSWER_TIMEOUT_MS)
            except BrokerError as error:
                self._fail_unsent(error)
                return
            command = self._unsent.popleft()
            self.rate.sent(command.bytes, self._clock.monotonic_ms())
            self._sent.append((command, future))

    def _fail_unsent(self, error: BrokerError) -> None:
        while self._unsent:
            self._on_failure(self._unsent.popleft(), error)


def _answer_of(partition: PartitionProduceResponse) -> ProduceAnswer:
    return ProduceAnswer(
        ErrorCode.of(partition.error_code),
        partition.base_offset if partition.base_offset >= 0 else None,
        partition.log_append_time_ms if partition.log_append_time_ms >= 0 else None,
        _said(partition) if partition.error_code else None,
    )


def _said(partition: PartitionProduceResponse) -> str | None:
    of_records = (named.batch_index_error_message for named in partition.record_errors)
    return next(of_records, None) or partition.error_message


def produce_request(command: ProduceCommand) -> ProduceRequest:
    """The command as a request: record bytes stay where they are."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for destination, records in command.parts():
        data = PartitionProduceData(index=destination.partition, records=records)
        topics.setdefault(destination.topic, []).append(data)
    return ProduceRequest(
        transactional_id=command.transactional_id,
        acks=ACKS_ALL,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )


def transactional_version(connection: Connection) -> int:
    """The version for batches of a transaction whose partitions the coordinator has been told of: later ones
    have leaders tell it (KIP-890), and give every transaction another epoch.
    """
    return connection.version_of(ProduceRequest, at_most=_LAST_VERSION_WITH_PARTITIONS_ADDED)


async def obtain_producer_id(cluster: Cluster) -> ProducerIdentity:
    """A producer id that nobody has used. Raises BrokerError."""
    connection = await cluster.any_connection()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=PRODUCE_TIMEOUT_MS)
    response = await connection.request(request)
    if response.error_code:
        code = ErrorCode.of(response.error_code)
        raise explained(ProtocolError(code, f"producer id: {code.meaning}"), cluster.name, "", WRITE)
    return ProducerIdentity(response.producer_id, response.producer_epoch)


async def batches_taken_at_once(cluster: Cluster) -> int:
    """Batches of one partition that a request may carry: 1 toward stock brokers. Raises BrokerError."""
    connection = await cluster.any_connection()
    version = connection.version_of(ApiVersionsRequest)
    if version < _FIRST_VERSION_WITH_FEATURES:
        return 1
    response = await connection.request(
        ApiVersionsRequest(client_software_name="mirrormaker", client_software_version="0"), version
    )
    levels = [
        feature.max_version for feature in response.supported_features if feature.name == PRODUCE_BATCHES
    ]
    return max(levels, default=1)
