"""Outcomes of the APIs of transactions that have a coordinator, version by version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import uuid4

from broker.errors import ErrorCode
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from broker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.scene import MISSING_TOPIC, NONE, TIMEOUT_MS, Scene, until

T = TypeVar("T")
BATCHES_FROM = 4
FENCED_FROM = 2
EPOCH_BUMP_FROM = 5
_PASSING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


async def _settled(attempt: Callable[[], Awaitable[T]]) -> T:
    """The answer once the coordinator has one."""
    return await until(attempt, lambda answer: answer.error_code not in _PASSING)  # type: ignore[attr-defined]


class Desk:
    """A transactional id that no other case uses, and its producer."""

    def __init__(self, scene: Scene, name: str, made: InitProducerIdResponse) -> None:
        self.scene = scene
        self.name = name
        self.producer_id = made.producer_id
        self.epoch = made.producer_epoch

    async def add(self, topic: str, version: int = 3, *, epoch: int | None = None) -> ErrorCode:
        """What partition 0 of a topic is answered."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
        epoch = self.epoch if epoch is None else epoch
        if version < BATCHES_FROM:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            asked = AddPartitionsToTxnTransaction(
                transactional_id=self.name, producer_id=self.producer_id, producer_epoch=epoch, topics=topics
            )
            request = AddPartitionsToTxnRequest(transactions=[asked])
        while True:
            answer = await self.scene.ask(request, version)
            assert answer.error_code == NONE
            results = answer.results_by_topic_v3_and_below
            if version >= BATCHES_FROM:
                (transaction,) = answer.results_by_transaction
                assert transaction.transactional_id == self.name
                results = transaction.topic_results
            assert results[0].name == topic
            code = ErrorCode.of(results[0].results_by_partition[0].partition_error_code)
            if code not in _PASSING:
                return code

    async def end(
        self, version: int = 3, *, commits: bool = True, epoch: int | None = None
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commits,
        )
        return await _settled(lambda: self.scene.ask(request, version))

    async def described(self) -> TransactionState:
        asked = DescribeTransactionsRequest(transactional_ids=[self.name])
        return (await self.scene.ask(asked)).transaction_states[0]

    async def until(self, state: str) -> TransactionState:
        return await until(self.described, lambda described: described.transaction_state == state)


async def _init(scene: Scene, name: str, version: int | None = None) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    return await _settled(lambda: scene.ask(request, version))


async def _desk(scene: Scene) -> Desk:
    name = f"desk-{uuid4().hex}"
    finding = FindCoordinatorRequest(coordinator_keys=[name], key_type=1)
    await until(lambda: scene.ask(finding, 4), lambda response: response.coordinators[0].error_code == NONE)
    made = await _init(scene, name)
    assert made.error_code == NONE
    return Desk(scene, name, made)


# InitProducerId


async def init_producer_id_gives_every_owner_of_an_id_an_epoch(scene: Scene, version: int) -> None:
    desk = await _desk(scene)
    for epoch in (1, 2):
        made = await _init(scene, desk.name, version)
        assert (made.error_code, made.producer_id) == (NONE, desk.producer_id)
        assert made.producer_epoch == epoch


async def init_producer_id_refuses_a_timeout_that_is_too_long(scene: Scene, version: int) -> None:
    desk = await _desk(scene)
    request = InitProducerIdRequest(transactional_id=desk.name, transaction_timeout_ms=2**31 - 1)
    refused = await scene.ask(request, version)
    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


# AddPartitionsToTxn


async def add_partitions_to_txn_begins_a_transaction(scene: Scene, version: int) -> None:
    desk, topic = await _desk(scene), await scene.new_topic()
    assert await desk.add(topic, version) is NONE
    described = await desk.until("Ongoing")
    assert [(each.topic, list(each.partitions)) for each in described.topics] == [(topic, [0])]
    assert await desk.add(topic, version) is NONE
    await desk.end(commits=False)


async def add_partitions_to_txn_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    desk, topic = await _desk(scene), await scene.new_topic()
    assert await desk.add(MISSING_TOPIC, version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fenced = ErrorCode.PRODUCER_FENCED if version >= FENCED_FROM else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await desk.add(topic, version, epoch=7) is fenced
    desk.producer_id += 1_000_000
    assert await desk.add(topic, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# AddOffsetsToTxn


async def add_offsets_to_txn_begins_a_transaction(scene: Scene, version: int) -> None:
    desk, group_id = await _desk(scene), await scene.new_group()
    assert await _add_offsets(desk, group_id, version) is NONE
    described = await desk.until("Ongoing")
    assert [each.topic for each in described.topics] == ["__consumer_offsets"]
    await desk.end(commits=False)


async def add_offsets_to_txn_refuses_strangers(scene: Scene, version: int) -> None:
    desk, group_id = await _desk(scene), await scene.new_group()
    desk.producer_id += 1_000_000
    assert await _add_offsets(desk, group_id, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def _add_offsets(desk: Desk, group_id: str, version: int) -> ErrorCode:
    request = AddOffsetsToTxnRequest(
        transactional_id=desk.name,
        producer_id=desk.producer_id,
        producer_epoch=desk.epoch,
        group_id=group_id,
    )
    return ErrorCode.of((await _settled(lambda: desk.scene.ask(request, version))).error_code)


# EndTxn


async def end_txn_decides_a_transaction(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    for commits, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        desk = await _desk(scene)
        assert await desk.add(topic) is NONE
        ended = await desk.end(version, commits=commits)
        assert ended.error_code == NONE
        if version >= EPOCH_BUMP_FROM:
            assert (ended.producer_id, ended.producer_epoch) == (desk.producer_id, desk.epoch + 1)
        described = await desk.until(state)
        assert described.topics == []


async def end_txn_may_be_repeated(scene: Scene, version: int) -> None:
    desk, topic = await _desk(scene), await scene.new_topic()
    assert await desk.add(topic) is NONE
    assert (await desk.end(version)).error_code == NONE
    await desk.until("CompleteCommit")
    again = await desk.end(version)
    assert again.error_code == NONE
    if version >= EPOCH_BUMP_FROM:
        assert (again.producer_id, again.producer_epoch) == (desk.producer_id, desk.epoch + 1)
    assert (await desk.end(version, commits=False)).error_code == ErrorCode.INVALID_TXN_STATE


async def end_txn_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    desk = await _desk(scene)
    assert (await desk.end(version)).error_code == ErrorCode.INVALID_TXN_STATE
    fenced = ErrorCode.PRODUCER_FENCED if version >= FENCED_FROM else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await desk.end(version, epoch=7)).error_code == fenced
    desk.producer_id += 1_000_000
    assert (await desk.end(version)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# TxnOffsetCommit


def _offset_commit(desk: Desk, group_id: str, topic: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=42, committed_metadata="note"
    )
    return TxnOffsetCommitRequest(
        transactional_id=desk.name,
        group_id=group_id,
        producer_id=desk.producer_id,
        producer_epoch=desk.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


async def _commit_offset(scene: Scene, version: int, request: TxnOffsetCommitRequest) -> ErrorCode:
    def code_of(answer: object) -> ErrorCode:
        (topic,) = answer.topics  # type: ignore[attr-defined]
        return ErrorCode.of(topic.partitions[0].error_code)

    answer = await until(
        lambda: scene.ask(request, version), lambda response: code_of(response) not in _PASSING
    )
    return code_of(answer)


async def _committed_offset(scene: Scene, group_id: str) -> int:
    """Once it is stable."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=True
    )

    async def fetched() -> int:
        (group,) = (await scene.ask(request, 8)).groups
        if any(each.error_code for topic in group.topics for each in topic.partitions):
            return -2
        return group.topics[0].partitions[0].committed_offset if group.topics else -1

    return await until(fetched, lambda offset: offset > -2)


async def txn_offset_commit_counts_when_its_transaction_commits(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    for commits, expected in ((False, -1), (True, 42)):
        desk, group_id = await _desk(scene), await scene.new_group()
        assert await _add_offsets(desk, group_id, 3) is NONE
        assert await _commit_offset(scene, version, _offset_commit(desk, group_id, topic)) is NONE
        plain = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        assert (await scene.ask(plain, 8)).groups[0].topics == []
        assert (await desk.end(commits=commits)).error_code == NONE
        await desk.until("CompleteCommit" if commits else "CompleteAbort")
        assert await _committed_offset(scene, group_id) == expected


async def txn_offset_commit_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    desk, group_id = await _desk(scene), await scene.new_group()
    assert await _add_offsets(desk, group_id, 3) is NONE
    unknown = _offset_commit(desk, group_id, MISSING_TOPIC)
    assert await _commit_offset(scene, version, unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 3:
        stranger = _offset_commit(desk, group_id, await scene.new_topic())
        stranger.generation_id, stranger.member_id = 5, "nobody"
        refused = await _commit_offset(scene, version, stranger)
        # The coordinator that Kafka had before 4.0 looked for the member first.
        assert refused in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
    await desk.end(commits=False)


# DescribeTransactions, ListTransactions


async def describe_transactions_tells_who_owns_an_id(scene: Scene, version: int) -> None:
    desk, topic = await _desk(scene), await scene.new_topic()
    before = await desk.described()
    assert (before.error_code, before.transaction_state) == (NONE, "Empty")
    assert (before.producer_id, before.producer_epoch) == (desk.producer_id, 0)
    assert (before.transaction_timeout_ms, before.transaction_start_time_ms) == (TIMEOUT_MS, -1)
    await desk.add(topic)
    asked = DescribeTransactionsRequest(transactional_ids=[desk.name, "nobody's"])
    during, unknown = (await scene.ask(asked, version)).transaction_states
    assert (during.transaction_state, unknown.error_code) == (
        "Ongoing",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
    assert during.transaction_start_time_ms >= scene.place.shelf_ms
    await desk.end(commits=False)


async def list_transactions_lists_what_is_asked_for(scene: Scene, version: int) -> None:
    idle, busy, topic = await _desk(scene), await _desk(scene), await scene.new_topic()
    await busy.add(topic)

    async def names(**filters: object) -> set[str]:
        answer = await _settled(lambda: scene.ask(ListTransactionsRequest(**filters), version))  # type: ignore[arg-type]
        assert answer.error_code == NONE
        assert answer.unknown_state_filters == []
        return {state.transactional_id for state in answer.transaction_states}

    assert await names() >= {idle.name, busy.name}
    ongoing = await names(state_filters=["Ongoing"])
    assert busy.name in ongoing
    assert idle.name not in ongoing
    assert await names(producer_id_filters=[idle.producer_id]) == {idle.name}
    if version >= 1:
        assert await names(producer_id_filters=[busy.producer_id], duration_filter=3_600_000) == set()
    strange = await scene.ask(ListTransactionsRequest(state_filters=["Strange"]), version)
    assert strange.unknown_state_filters == ["Strange"]
    await busy.end(commits=False)


# UpdateFeatures


async def update_features_refuses_what_is_not_known(scene: Scene, version: int) -> None:
    update = FeatureUpdateKey(feature="no.such.feature", max_version_level=1)
    response = await scene.ask(UpdateFeaturesRequest(feature_updates=[update]), version)
    codes = {response.error_code, *(result.error_code for result in response.results)}
    assert codes - {NONE}
