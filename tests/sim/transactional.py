"""Transactional clients of a simulated cluster, and what must come of their transactions.

A desk owns a transactional id. It writes to several partitions and commits offsets of a group, and ends what
it began: what it was told to be committed is read by readers of committed records, once, in all partitions;
of what was aborted nothing is ever read; where it did not wait for the answer, as a process that was killed,
it is all or nothing. The group stands where the last committed transaction has put it. Desks go by either
version of the protocol: partitions are added before they are written to, or by writing (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from broker.client.aborted import AbortedBatches, aborted_transactions
from broker.errors import ConnectionFailedError, ErrorCode, RequestTimedOutError
from broker.records.batch import iterate_batches
from broker.records.builder import BatchBuilder
from broker.records.reader import read_all
from broker.types import TopicPartition
from broker.wire.message import Request, ResponseType
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.sim.checks import ViolationError
from tests.sim.clients import FETCH_WAIT_MS, RETRIED, Client
from tests.sim.loop import START_MS

if TYPE_CHECKING:
    from tests.sim.world import World

TIMEOUT_MS = 8_000
"""Of a transaction that its desk has left."""
GROUP_TYPE, TRANSACTION_TYPE = 0, 1
_AGAIN = RETRIED | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
_OVER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Answers after which a transaction cannot be committed any more: its timeout has come."""


class Outcome(Enum):
    """What a desk knows of a transaction's end."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class OverError(Exception):
    """The transaction cannot go on."""


class Written(NamedTuple):
    """One record, by the text that it holds."""

    partition: TopicPartition
    text: str


@dataclass(slots=True)
class Transaction:
    """One of a desk; `offset` is what it commits for the desk's group, -1: nothing."""

    outcome: Outcome = Outcome.OPEN
    records: list[Written] = field(default_factory=list)
    offset: int = -1


class Desk(Client):
    """See the module's description."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.transactions: list[Transaction] = []
        self.adds_by_writing = self.random.random() < 0.5
        self._coordinators: dict[int, int] = {}
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = defaultdict(int)

    def start(self, partitions: Iterable[TopicPartition]) -> None:
        self.begin([self._work(tuple(partitions))])

    @property
    def committed_offsets(self) -> set[int]:
        """Where the desk's group may stand in the end."""
        possible = {-1}
        for transaction in self.transactions:
            if transaction.offset < 0 or transaction.outcome is Outcome.ABORTED:
                continue
            if transaction.outcome is Outcome.COMMITTED:
                possible = set()
            possible.add(transaction.offset)
        return possible

    # Work

    async def _work(self, partitions: tuple[TopicPartition, ...]) -> None:
        await self._initialise()
        while not self.world.is_ending:
            transaction = Transaction()
            self.transactions.append(transaction)
            number = len(self.transactions)
            try:
                await self._write(transaction, number, partitions)
                if self.random.random() < 0.15:
                    raise OverError("the process was killed")
                await self._end(transaction, commits=self.random.random() < 0.7)
            except OverError:
                if transaction.outcome is Outcome.OPEN:
                    transaction.outcome = Outcome.ABORTED
                await self._initialise()
            await asyncio.sleep(self.random.expovariate(1 / self.world.think_seconds))

    async def _write(
        self, transaction: Transaction, number: int, partitions: tuple[TopicPartition, ...]
    ) -> None:
        for index in range(self.random.randint(1, 3)):
            partition = self.random.choice(partitions)
            texts = [f"{self.name} {number}.{index}.{copy}" for copy in range(self.random.randint(1, 2))]
            transaction.records += [Written(partition, text) for text in texts]
            if not self.adds_by_writing:
                await self._add(partition)
            await self._produce(partition, texts)
        if self.random.random() < 0.4:
            transaction.offset = number
            await self._commit_offset(partitions[0], number)

    async def _end(self, transaction: Transaction, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commits,
        )
        transaction.outcome = Outcome.UNKNOWN if commits else Outcome.ABORTED
        if self.random.random() < 0.1:
            await self._try(TRANSACTION_TYPE, request)
            raise OverError("the process was killed")
        answer = await self._asked(
            TRANSACTION_TYPE, request, lambda answer: answer.error_code, 5 if self.adds_by_writing else 3
        )
        if commits:
            transaction.outcome = Outcome.COMMITTED
        if self.adds_by_writing:
            self._own(answer.producer_id, answer.producer_epoch)

    # Steps

    async def _initialise(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._asked(TRANSACTION_TYPE, request, lambda answer: answer.error_code)
        self._own(answer.producer_id, answer.producer_epoch)

    def _own(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = (producer_id, epoch)
            self._sequences.clear()

    async def _add(self, partition: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )
        await self._asked(
            TRANSACTION_TYPE,
            request,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
            3,
        )

    async def _produce(self, partition: TopicPartition, texts: list[str]) -> None:
        builder = BatchBuilder(
            size_max=1 << 20,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        for text in texts:
            builder.append(START_MS, None, text.encode())
        records = bytes(builder.build())
        self._sequences[partition] += len(texts)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=self.world.scenario.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[PartitionProduceData(index=partition.partition, records=records)],
                )
            ],
        )
        while True:
            try:
                leader = await self.leader(partition)
                if leader is not None:
                    connection = await self.connection(leader)
                    answer = await connection.request(request, 12 if self.adds_by_writing else 11)
                    stored = answer.responses[0].partition_responses[0]
                    if self._is_done(ErrorCode.of(stored.error_code), f"produce to {partition}"):
                        return
            except (ConnectionFailedError, RequestTimedOutError):
                pass
            await self.back_off()

    async def _commit_offset(self, partition: TopicPartition, offset: int) -> None:
        group_id = self.name
        producer_id, epoch = self._producer
        if not self.adds_by_writing:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, group_id=group_id
            )
            await self._asked(TRANSACTION_TYPE, adding, lambda answer: answer.error_code)
        position = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[position])],
        )
        await self._asked(
            GROUP_TYPE,
            request,
            lambda answer: answer.topics[0].partitions[0].error_code,
            5 if self.adds_by_writing else 3,
        )

    async def stands_at(self, partition: TopicPartition) -> int:
        """What the desk's group has committed, once that is stable."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.name, topics=None)], require_stable=True
        )

        def code_of(answer: object) -> int:
            group = answer.groups[0]  # type: ignore[attr-defined]
            codes = [each.error_code for topic in group.topics for each in topic.partitions]
            return next(filter(None, [group.error_code, *codes]), 0)

        answer = await self._asked(GROUP_TYPE, request, code_of, 8)
        topics = answer.groups[0].topics
        return topics[0].partitions[0].committed_offset if topics else -1

    # Coordinators

    async def _asked(
        self,
        kind: int,
        request: Request[ResponseType],
        code_of: Callable[[ResponseType], int],
        version: int | None = None,
    ) -> ResponseType:
        """The answer of a coordinator that did it, sooner or later. Raises OverError."""
        while True:
            answer = await self._try(kind, request, version)
            if answer is not None and self._is_done(ErrorCode.of(code_of(answer)), type(request).__name__):
                return answer
            self._coordinators.pop(kind, None)
            await self.back_off()

    async def _try(
        self, kind: int, request: Request[ResponseType], version: int | None = None
    ) -> ResponseType | None:
        try:
            node = self._coordinators.get(kind)
            if node is None:
                any_node = self.random.randint(1, self.world.scenario.nodes)
                finding = FindCoordinatorRequest(coordinator_keys=[self.name], key_type=kind)
                (found,) = (await self.ask(any_node, finding)).coordinators
                if found.error_code:
                    return None
                node = self._coordinators[kind] = found.node_id
            return await (await self.connection(node)).request(request, version)
        except (ConnectionFailedError, RequestTimedOutError):
            return None

    def _is_done(self, code: ErrorCode, what: str) -> bool:
        self.world.note(self.name, f"{what} {self._producer}: {code.name}")
        if code is ErrorCode.NONE:
            return True
        if code in _OVER:
            raise OverError(f"{what}: {code.name}")
        if code not in _AGAIN:
            raise ViolationError(f"{self.name}: {what} is answered {code.name}")
        return False


class CommittedReader(Client):
    """Reads committed records of each partition from its beginning."""

    def start(self, partitions: Iterable[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, 0)
        self.read: list[Written] = []
        self.begin(self._follow(partition) for partition in self.positions)

    async def _follow(self, partition: TopicPartition) -> None:
        while not self.world.is_over:
            try:
                leader = await self.leader(partition)
                is_well = leader is not None and await self._fetch(leader, partition)
            except (ConnectionFailedError, RequestTimedOutError):
                is_well = False
            if not is_well:
                await self.back_off()

    async def _fetch(self, leader: int, partition: TopicPartition) -> bool:
        asked = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=self.leader_epoch(partition),
            fetch_offset=self.positions[partition],
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[FetchTopic(topic=partition.topic, partitions=[asked])],
        )
        response = await (await self.connection(leader)).request(request, 12)
        if not response.responses:
            return not response.error_code
        answer = response.responses[0].partitions[0]
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            if code not in RETRIED:
                raise ViolationError(f"{partition}: {self.name} is answered {code.name}")
            return False
        self._take(partition, answer)
        return True

    def _take(self, partition: TopicPartition, answer: PartitionData) -> None:
        records = memoryview(answer.records or b"")
        aborted = AbortedBatches(aborted_transactions(answer))
        for position, header in iterate_batches(records):
            if header.last_offset >= answer.last_stable_offset:
                raise ViolationError(
                    f"{partition}: {header.last_offset} is read, {answer.last_stable_offset} is stable"
                )
            left_out = aborted.includes(header)
            self.positions[partition] = header.next_offset
            if header.is_transactional and not header.is_control and not left_out:
                batch = records[position : position + header.size]
                self.read += [
                    Written(partition, (record.value or b"").decode())
                    for record in read_all(batch, size_max=1 << 20)
                ]


def require_outcomes(desks: Iterable[Desk], reader: CommittedReader) -> None:
    """What was read is what was committed. Raises ViolationError."""
    left: dict[Written, int] = defaultdict(int)
    for written in reader.read:
        left[written] += 1
    for desk in desks:
        for number, transaction in enumerate(desk.transactions, 1):
            counts = [left.pop(written, 0) for written in transaction.records]
            allowed = {
                Outcome.COMMITTED: ({1},),
                Outcome.ABORTED: ({0},),
                Outcome.OPEN: ({0},),
                Outcome.UNKNOWN: ({0}, {1}),
            }[transaction.outcome]
            if counts and set(counts) not in allowed:
                raise ViolationError(
                    f"transaction {number} of {desk.name} is {transaction.outcome.value}, its records "
                    f"{transaction.records} were read so often: {counts}"
                )
    if left:
        raise ViolationError(f"read, but written by nobody: {sorted(left)[:5]}")
