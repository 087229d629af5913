"""Requests about offsets of groups: commit, fetch, delete, in a transaction and outside of one."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.groups.led_groups import LedGroups
from broker.groups.live_group import LiveGroup
from broker.groups.offsets import NOT_COMMITTED
from broker.groups.requests import (
    COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND,
    COMMIT_VERSION_WITH_MEMBER_EPOCHS,
    FetchedOffset,
    OffsetAnswer,
    OffsetQuery,
    commit_of,
    commit_response,
    delete_response,
    offset_queries,
    offset_response,
    partitions_to_delete,
)
from broker.groups.transactional_requests import (
    producer_of,
    transactional_commit_of,
    transactional_commit_response,
)
from broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from broker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse


class OffsetRequests(LedGroups):
    """Answered from, and through, the groups that this node leads."""

    async def commit_offsets(self, request: OffsetCommitRequest, *, version: int) -> OffsetCommitResponse:
        """OffsetCommit: answered when the offsets are in the log."""
        try:
            group = self._group_for_commit(request, version)
        except ProtocolError as error:
            return commit_response(request.topics, {}, error.code)
        commit = commit_of(request, now_ms=self._clock.now_ms())
        errors = group.offsets.errors(commit)
        accepted = {partition: offset for partition, offset in commit.items() if partition not in errors}
        if not accepted:
            return commit_response(request.topics, errors, ErrorCode.NONE)
        return commit_response(request.topics, errors, await group.commit(request.member_id, accepted))

    def _group_for_commit(self, request: OffsetCommitRequest, version: int) -> LiveGroup:
        """The group that the request may commit to. Raises ProtocolError when it may not."""
        generation = request.generation_id_or_member_epoch
        partition = self._partition_for(request.group_id)
        if partition.writer.is_full:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many commits are waiting")
        group = partition.find(request.group_id)
        if group is None and generation >= 0:
            knows_code = version >= COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND if knows_code else ErrorCode.ILLEGAL_GENERATION)
        if group is not None:
            error = group.commit_error(
                generation,
                request.member_id,
                request.group_instance_id,
                knows_epochs=version >= COMMIT_VERSION_WITH_MEMBER_EPOCHS,
            )
            if error is not ErrorCode.NONE:
                raise ProtocolError(error)
        return group or partition.group(request.group_id)

    async def commit_in_transaction(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        """TxnOffsetCommit: answered when the offsets are in the log, where they wait for the transaction's
        end. Whether it is the producer's turn is for the caller to know.
        """
        try:
            group = self._group_for_transaction(request)
        except ProtocolError as error:
            return transactional_commit_response(request.topics, {}, error.code)
        commit = transactional_commit_of(request, now_ms=self._clock.now_ms())
        errors = group.offsets.errors(commit)
        accepted = {partition: offset for partition, offset in commit.items() if partition not in errors}
        written = ErrorCode.NONE
        if accepted:
            written = await group.commit_in_transaction(producer_of(request), accepted)
        return transactional_commit_response(request.topics, errors, written)

    def _group_for_transaction(self, request: TxnOffsetCommitRequest) -> LiveGroup:
        """As `_group_for_commit`."""
        partition = self._partition_for(request.group_id)
        if partition.writer.is_full:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many commits are waiting")
        group = partition.find(request.group_id)
        if group is None and request.generation_id >= 0:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        if group is not None:
            error = group.commit_error(
                request.generation_id, request.member_id, request.group_instance_id, transactional=True
            )
            if error is not ErrorCode.NONE:
                raise ProtocolError(error)
        return group or partition.group(request.group_id)

    async def fetch_offsets(self, request: OffsetFetchRequest, *, version: int) -> OffsetFetchResponse:
        """OffsetFetch, of one or several groups; a group that is not known has committed nothing."""
        answers = [
            self._answer(query, require_stable=request.require_stable)
            for query in offset_queries(request, version=version)
        ]
        return offset_response(answers, version=version)

    def _answer(self, query: OffsetQuery, *, require_stable: bool) -> OffsetAnswer:
        try:
            group = self._partition_for(query.group_id).find(query.group_id)
        except ProtocolError as error:
            return OffsetAnswer(query=query, error=error.code)
        if group is None:
            nothing = tuple(
                FetchedOffset(partition=each, committed=NOT_COMMITTED) for each in query.partitions or ()
            )
            return OffsetAnswer(query=query, offsets=nothing)
        refused = group.fetch_error(query.member_epoch, query.member_id)
        if refused is not ErrorCode.NONE:
            return OffsetAnswer(query=query, error=refused)
        fetched = group.offsets.fetch(query.partitions)
        return OffsetAnswer(
            query=query,
            offsets=tuple(
                FetchedOffset(partition=partition, committed=committed)
                if group.offsets.is_stable(partition) or not require_stable
                else FetchedOffset(
                    partition=partition, committed=NOT_COMMITTED, error=ErrorCode.UNSTABLE_OFFSET_COMMIT
                )
                for partition, committed in sorted(fetched.items())
            ),
        )

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete: of topics that no member uses."""
        try:
            group = self._group_to_delete_from(request.group_id)
        except ProtocolError as error:
            return OffsetDeleteResponse(error_code=error.code)
        partitions = partitions_to_delete(request)
        errors = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            for partition in partitions
            if group.is_subscribed_to(partition.topic)
        }
        allowed = {each for each in partitions if each not in errors} & group.offsets.partitions
        error_code = await group.delete_offsets(allowed) if allowed else ErrorCode.NONE
        return delete_response(request, errors, error_code)

    def _group_to_delete_from(self, group_id: str) -> LiveGroup:
        group = self._partition_for(group_id).find(group_id)
        if group is None or group.is_dead:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty and not group.is_of_consumers:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
        return group
