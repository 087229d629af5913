"""What this node hosts: replicas by topic and partition, and the controller's orders carried out on them.

Orders are carried out one at a time, fenced by controller epoch and broker epoch. Files are touched in
threads (creating, opening, deleting); roles change on the event loop, between two requests. Logs that were
found on the disk wait in their directories until the controller says what this node is to them. Partitions
whose directory is offline are answered KAFKA_STORAGE_ERROR, to clients and to the controller alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TypeVar

from broker.clock import Clock
from broker.errors import CoordinationError, DiskFailedError, ErrorCode, ProtocolError, StorageError
from broker.replication.fetchers import Fetchers
from broker.replication.hosted_logs import Obtained, WantedLog, obtain_logs
from broker.replication.partition import Assignment, Partition
from broker.replication.replica import LeadershipObserver, Replica
from broker.replication.retired_logs import Retirement, is_of_another_topic, retire_log
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.storage.log_directory import LogDirectory, NewLog
from broker.telemetry import logger
from broker.types import BrokerId, LeaderEpoch, TopicId, TopicPartition
from broker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)

log_event = logger("replicas")

T = TypeVar("T")

EPOCH_DURING_DELETE = -2


class Replicas:
    """Every replica of this node."""

    def __init__(
        self,
        local: BrokerId,
        directories: LogDirectories,
        *,
        clock: Clock,
        executor: Executor,
        config_of: Callable[[str], Awaitable[LogConfig]],
        high_watermarks: Mapping[TopicPartition, int],
        fetchers: Fetchers,
        on_leadership: LeadershipObserver,
    ) -> None:
        self._local = local
        self._directories = directories
        self._clock = clock
        self._executor = executor
        self._config_of = config_of
        self._last_high_watermarks = dict(high_watermarks)
        self._fetchers = fetchers
        self._on_leadership = on_leadership
        self._topics: dict[str, dict[int, Replica]] = {}
        self._offline: set[TopicPartition] = set()
        self._controller_epoch = -1
        self._broker_epoch = -1
        self._orders = asyncio.Lock()
        self.bereft: frozenset[TopicPartition] = frozenset()
        """Partitions that this node does not lead as long as there is nothing in their logs: others may have
        what was lost here.
        """

    # Looking up

    def __iter__(self) -> Iterator[Replica]:
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def hosted(self, topic: str) -> Mapping[int, Replica]:
        """The hosted replicas of a topic at this moment, by partition."""
        return self._topics.get(topic, {})

    def get(self, topic: str, partition: int) -> Replica | None:
        """The hosted replica, or None."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def find(self, topic: str, partition: int) -> Replica:
        """The hosted replica. Raises ProtocolError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR when its
        log directory is offline.
        """
        replica = self.get(topic, partition)
        if replica is None:
            if self.is_offline(topic, partition):
                raise ProtocolError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{partition} is offline"
                )
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"broker {self._local} hosts no {topic}-{partition}"
            )
        return replica

    def leader(self, topic: str, partition: int, expected_epoch: int = -1) -> Replica:
        """The replica if this node leads it, in the epoch that a client named. Raises ProtocolError."""
        replica = self.find(topic, partition)
        replica.machine.require_leader(expected_epoch)
        return replica

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether this node should host the partition, but its log directory is offline."""
        return TopicPartition(topic, partition) in self._offline

    @property
    def offline_count(self) -> int:
        """Partitions that this node should host, but whose log directory is offline."""
        return len(self._offline)

    @property
    def directories(self) -> LogDirectories:
        return self._directories

    @property
    def broker_epoch(self) -> int:
        """Of the node's registration, -1 before there is one."""
        return self._broker_epoch

    def registered(self, broker_epoch: int) -> None:
        """The node registered anew: orders for an earlier registration are refused from now on."""
        self._broker_epoch = broker_epoch

    def reconfigure(self, topic: str, config: LogConfig) -> None:
        """Give all logs of a topic other settings."""
        for replica in self._topics.get(topic, {}).values():
            replica.log.update_config(config)

    async def store_start_offsets(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Have the log start offsets of these partitions survive a crash; returns those whose disk failed."""
        found: dict[LogDirectory, list[TopicPartition]] = {}
        for partition in partitions:
            if (directory := self._directories.find(partition)) is not None:
                found.setdefault(directory, []).append(partition)
        failed = []
        for directory, its_own in found.items():
            try:
                await self._in_thread(directory.checkpoints.store_offsets)
            except StorageError as error:
                log_event.error("start_offsets_not_stored", directory=str(directory.path), reason=str(error))
                failed += its_own
        return failed

    def end_waits(self) -> None:
        """Answer everything that waits: the node stops."""
        for replica in self:
            replica.end_waits()

    async def directory_failed(self, root: Path) -> None:
        """A log directory went offline: nothing in it is served any more, and its files are let go."""
        lost = [replica for replica in self if replica.log.directory.parent == root]
        for replica in lost:
            self._drop(replica, ErrorCode.KAFKA_STORAGE_ERROR)
            self._offline.add(replica.topic_partition)
        log_event.error("replicas_offline", log_directory=str(root), partitions=len(lost))
        await _settled(lost)
        await self._in_thread(partial(self._directories.release, root))

    # Moving logs between directories

    @property
    def orders(self) -> asyncio.Lock:
        """Held while an order is carried out: whoever holds it sees no partition come or go."""
        return self._orders

    def withdraw(self, replica: Replica) -> None:
        """Serve nothing from it until `put_back`: requests are told to try again. The caller holds
        `orders`.
        """
        topic, partition = replica.topic_partition
        self._fetchers.forget(replica.topic_partition)
        self._offline.add(replica.topic_partition)
        del self._topics[topic][partition]

    def put_back(self, replica: Replica) -> None:
        """Undo `withdraw`."""
        self._topics.setdefault(replica.topic_partition.topic, {})[replica.topic_partition.partition] = (
            replica
        )
        self._offline.discard(replica.topic_partition)
        self._fetchers.update(replica)

    # Orders of the controller

    def check_epochs(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Whether an order is from the current controller and for this registration."""
        if controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if 0 <= broker_epoch < self._broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self._controller_epoch = controller_epoch
        return ErrorCode.NONE

    async def lead_and_follow(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Take the roles that the controller gives; errors are answered partition by partition, but without
        ZooKeeper, where settings are, all is left as it was: the controller tells it again.
        """
        async with self._orders:
            refused = self.check_epochs(request.controller_epoch, request.broker_epoch)
            if refused is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=refused)
            await self._retire_namesakes(request.topic_states)
            try:
                configs, logs = await self._obtain_logs(request.topic_states)
            except CoordinationError as error:
                log_event.warning("roles_delayed", reason=str(error))
                return LeaderAndIsrResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
            await _settled(self._named_in(request.topic_states))
            topics = [
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=self._take_roles(topic, configs.get(topic.topic_name), logs),
                )
                for topic in request.topic_states
            ]
        log_event.info("roles_taken", partitions=sum(len(topic.partition_errors) for topic in topics))
        return LeaderAndIsrResponse(topics=topics)

    async def stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop serving the named partitions, and delete their logs where told to."""
        async with self._orders:
            refused = self.check_epochs(request.controller_epoch, request.broker_epoch)
            if refused is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=refused)
            errors = [
                StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=state.partition_index,
                    error_code=await self._stop_one(
                        TopicPartition(topic.topic_name, state.partition_index), state
                    ),
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
        return StopReplicaResponse(partition_errors=errors)

    async def _retire_namesakes(self, topics: Sequence[LeaderAndIsrTopicState]) -> None:
        """Logs of topics that had these names before must not be taken for those of today's."""
        for topic in topics:
            topic_id = TopicId(topic.topic_id)
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                if is_of_another_topic(self._directories, partition, topic_id):
                    await self.retire(
                        partition, Retirement.SET_ASIDE, reason=f"the topic's id is {topic_id} now"
                    )

    async def _obtain_logs(
        self, topics: Sequence[LeaderAndIsrTopicState]
    ) -> tuple[dict[str, LogConfig], Obtained]:
        """The logs of what is not hosted yet, and the settings of those topics. Raises CoordinationError."""
        configs: dict[str, LogConfig] = {}
        wanted = []
        for topic in topics:
            hosted = self._topics.get(topic.topic_name, {})
            missing = [state for state in topic.partition_states if state.partition_index not in hosted]
            if not missing:
                continue
            config = configs[topic.topic_name] = await self._config_of(topic.topic_name)
            wanted += [_wanted_log(topic, state, config) for state in missing]
        return configs, await obtain_logs(self._directories, wanted, self._executor)

    def _named_in(self, topics: Sequence[LeaderAndIsrTopicState]) -> list[Replica]:
        """Those of the named partitions that are hosted already."""
        return [
            replica
            for topic in topics
            if (hosted := self._topics.get(topic.topic_name))
            for state in topic.partition_states
            if (replica := hosted.get(state.partition_index)) is not None
        ]

    def _take_roles(
        self, topic: LeaderAndIsrTopicState, config: LogConfig | None, logs: Obtained
    ) -> list[LeaderAndIsrPartitionError]:
        partitions = self._topics.setdefault(topic.topic_name, {})
        errors = []
        for state in topic.partition_states:
            code = ErrorCode.NONE
            try:
                if state.partition_index not in partitions:
                    assert config is not None, "read with the logs of what was not hosted"
                    topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                    partitions[state.partition_index] = self._host(
                        topic_partition, TopicId(topic.topic_id), config, logs[topic_partition]
                    )
                self._take_role(partitions[state.partition_index], TopicId(topic.topic_id), state)
            except (ProtocolError, StorageError) as error:
                code = error.code if isinstance(error, ProtocolError) else ErrorCode.KAFKA_STORAGE_ERROR
                log_event.warning(
                    "role_refused", topic=topic.topic_name, partition=state.partition_index, reason=str(error)
                )
            errors.append(LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code))
        if not partitions:
            del self._topics[topic.topic_name]
        return errors

    def _host(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        found: LogDirectory | StorageError,
    ) -> Replica:
        """Raises StorageError when the disk failed, or failed before and may hold the log; ProtocolError
        INCONSISTENT_TOPIC_ID when the log is another topic's.
        """
        if isinstance(found, StorageError):
            if isinstance(found, DiskFailedError):
                self._offline.add(topic_partition)
            raise found
        log = found.logs[topic_partition]
        if topic_id.int:
            log.assign_topic_id(topic_id)
        log.update_config(config)
        self._offline.discard(topic_partition)
        machine = Partition(
            topic_partition,
            self._local,
            log_end_offset=log.log_end_offset,
            high_watermark=self._last_high_watermarks.get(topic_partition, 0),
        )
        return Replica(log, machine, self._executor, free_space=found.free_space)

    def _take_role(self, replica: Replica, topic_id: TopicId, state: LeaderAndIsrPartitionState) -> None:
        if topic_id.int:
            replica.log.assign_topic_id(topic_id)
        assignment = _assignment(state)
        machine = replica.machine
        topic_partition = machine.topic_partition
        was_leader = machine.is_leader
        if assignment.leader == self._local:
            if topic_partition in self.bereft and not replica.log.log_end_offset:
                raise StorageError("the log that had everything is gone, and other replicas may have more")
            before = machine.high_watermark
            replica.begin_flush()
            is_new = machine.lead(assignment, now_ms=self._clock.monotonic_ms())
            replica.committed_since(before)
            replica.progress_waits.settle()
            if is_new:
                log_event.debug(
                    "leader_became",
                    partition=str(topic_partition),
                    leader_epoch=assignment.leader_epoch,
                    log_end_offset=machine.log_end_offset,
                )
                self._on_leadership(topic_partition, assignment.leader_epoch)
        elif machine.follow(assignment):
            replica.end_waits()
            if was_leader:
                self._on_leadership(topic_partition, -1)
        self._fetchers.update(replica)

    async def _stop_one(self, topic_partition: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        replica = self.get(*topic_partition)
        if replica is not None:
            epoch = state.leader_epoch
            if epoch != EPOCH_DURING_DELETE and 0 <= epoch < replica.machine.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            await self._stop_serving(replica)
        if not state.delete_partition:
            return ErrorCode.NONE
        if topic_partition in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_done = await self.retire(topic_partition, Retirement.DELETED, reason="the controller says so")
        return ErrorCode.NONE if is_done else ErrorCode.KAFKA_STORAGE_ERROR

    async def retire(self, topic_partition: TopicPartition, how: Retirement, *, reason: str) -> bool:
        """Hold a partition no longer, for the `reason` that the event tells; False when the disk refuses. The
        caller holds `orders`.
        """
        replica = self.get(*topic_partition)
        if replica is not None:
            await self._stop_serving(replica)
        is_held = self._directories.find(topic_partition) is not None
        try:
            kept = await self._in_thread(partial(retire_log, self._directories, topic_partition, how))
        except StorageError as error:
            log_event.error("log_not_retired", partition=str(topic_partition), reason=str(error))
            return False
        self._last_high_watermarks.pop(topic_partition, None)
        if kept is not None:
            log_event.warning("log_set_aside", partition=str(topic_partition), path=str(kept), reason=reason)
        elif is_held:
            log_event.info("log_deleted", partition=str(topic_partition), reason=reason)
        return True

    async def _stop_serving(self, replica: Replica) -> None:
        self._fetchers.forget(replica.topic_partition)
        await replica.settled()
        self._drop(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _drop(self, replica: Replica, refusal: ErrorCode) -> None:
        """Host it no longer; what waits for it is refused so."""
        topic_partition, was_leader = replica.topic_partition, replica.machine.is_leader
        self._fetchers.forget(topic_partition)
        replica.take_offline(refusal)
        self._last_high_watermarks[topic_partition] = replica.high_watermark
        partitions = self._topics[topic_partition.topic]
        del partitions[topic_partition.partition]
        if not partitions:
            del self._topics[topic_partition.topic]
        if was_leader:
            self._on_leadership(topic_partition, -1)

    def high_watermarks_in(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        """Of every replica whose log is in the directory, for its checkpoint."""
        logs = directory.logs
        return {
            replica.topic_partition: replica.high_watermark
            for replica in self
            if replica.topic_partition in logs
        }

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


async def _settled(replicas: Sequence[Replica]) -> None:
    """Return when no log of these is being cut; none begins to be before the caller awaits again."""
    while cuts := [replica.cutting for replica in replicas if replica.cutting is not None]:
        await asyncio.wait(cuts)


def _wanted_log(
    topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, config: LogConfig
) -> WantedLog:
    partition = TopicPartition(topic.topic_name, state.partition_index)
    new = NewLog(topic_partition=partition, topic_id=TopicId(topic.topic_id), config=config)
    return WantedLog(new=new, is_new=state.is_new)


def _assignment(state: LeaderAndIsrPartitionState) -> Assignment:
    return Assignment(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        isr=tuple(map(BrokerId, state.isr)),
        replicas=tuple(map(BrokerId, state.replicas)),
        partition_epoch=state.partition_epoch,
        controller_epoch=state.controller_epoch,
    )
