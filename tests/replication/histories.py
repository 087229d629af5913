"""Logs as lists of who wrote what in which epoch, and a leader that answers fetches from them: no files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from broker.errors import ErrorCode, ProtocolError
from broker.replication.following import (
    Append,
    Diverged,
    Following,
    Overrun,
    Position,
    Restart,
    Step,
    cut_offset,
)
from broker.server.fetch_sessions import Asker, FetchedPartition, FetchSessions
from broker.server.security import ANONYMOUS
from broker.storage.leader_epochs import EpochEnd, LeaderEpochs
from broker.storage.memory_disk import MemoryDisk
from broker.types import LeaderEpoch, TopicId, TopicPartition
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

TOPIC_ID = TopicId(UUID(int=7))
Record = tuple[int, int]
"""Epoch, and a number that no other record has."""


class History:
    """One replica's log."""

    def __init__(self) -> None:
        disk = MemoryDisk()
        disk.make_directory(Path("/log"))
        self.epochs = LeaderEpochs(disk, Path("/log/leader-epoch-checkpoint"))
        self.start = 0
        self.records: list[Record] = []

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def position(self) -> Position:
        return Position(self.end, self.epochs.latest, self.start)

    def append(self, *records: Record) -> None:
        for epoch, number in records:
            if epoch > self.epochs.latest:
                self.epochs.assign(epoch, self.end)
            self.records.append((epoch, number))

    def cut(self, offset: int) -> None:
        if offset < self.start:
            self.restart(offset)
        del self.records[offset - self.start :]
        self.epochs.cut_end(self.end)

    def restart(self, offset: int) -> None:
        self.records, self.start = [], offset
        self.epochs.clear()

    def advance_start(self, offset: int) -> None:
        if offset > self.start:
            del self.records[: offset - self.start]
            self.start = offset
            self.epochs.cut_start(offset)

    def epoch_end(self, epoch: int, current: int) -> EpochEnd:
        if epoch == current:
            return EpochEnd(epoch, self.end)
        if self.epochs.latest < epoch < current:
            return EpochEnd(self.epochs.latest if self.epochs.entries else epoch, self.end)
        return self.epochs.end_offset_for(epoch, self.end)


class Leader:
    """Answers as a leader does, in `epoch`; records travel as the list of them, one byte each in size."""

    def __init__(self, histories: Mapping[int, History], epoch: int = 1) -> None:
        self.histories = dict(histories)
        self.epoch = epoch
        self.errors: dict[int, ErrorCode] = {}
        """What partitions are refused with."""
        self.sessions = FetchSessions(slots_max=10, eviction_ms=1, draw_id=iter(range(1, 1000)).__next__)
        self.requests: list[FetchRequest] = []

    def answer(self, request: FetchRequest) -> FetchResponse:
        self.requests.append(request)
        request = FetchRequest.decode(request.encode(17), 17)
        asker = Asker(ANONYMOUS, is_by_id=True, is_privileged=True)
        try:
            turn = self.sessions.begin(request, asker, name_of=lambda topic: "flights", now_ms=0)
            answers = [self._partition(wanted) for wanted in turn.partitions]
            session_id, told = self.sessions.finish(turn, answers, now_ms=0)
        except ProtocolError as error:
            return FetchResponse(error_code=error.code)
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[answer for _, answer in told])
        return FetchResponse(session_id=session_id, responses=[topic])

    def _partition(self, asked: FetchedPartition) -> PartitionData:
        wanted = asked.wanted
        history, offset = self.histories[wanted.partition], wanted.fetch_offset
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=history.end,
            log_start_offset=history.start,
            records=b"",
        )
        if wanted.current_leader_epoch != self.epoch:
            old = wanted.current_leader_epoch < self.epoch
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH if old else ErrorCode.UNKNOWN_LEADER_EPOCH
            return answer
        if wanted.partition in self.errors:
            answer.error_code = self.errors[wanted.partition]
            return answer
        if wanted.last_fetched_epoch >= 0:
            end = history.epoch_end(wanted.last_fetched_epoch, self.epoch)
            if end.epoch < 0:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return answer
            if end.epoch < wanted.last_fetched_epoch or end.end_offset < offset:
                answer.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
                return answer
        if not history.start <= offset <= history.end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return answer
        # Only the sizes of records are looked at on the way.
        answer.records = history.records[offset - history.start :]  # type: ignore[assignment]
        return answer


def partition(number: int = 0) -> TopicPartition:
    return TopicPartition("flights", number)


def perform(following: Following, step: Step, own: History, *, records_max: int | None = None) -> None:
    """Do to a log what an answer means, as the driver does."""
    match step:
        case Append(records=records):
            own.append(*list(records)[:records_max])  # type: ignore[arg-type]
            own.advance_start(min(step.log_start_offset, own.end))
        case Diverged(epoch=epoch, end_offset=end_offset):
            own.cut(cut_offset(EpochEnd(epoch, end_offset), own.epochs, own.end))
        case Overrun():
            own.cut(step.high_watermark)
        case Restart():
            own.restart(step.log_start_offset)
        case _:
            return
    following.advanced(step.followed, own.position)


def follow(following: Following, own: History, number: int = 0, epoch: int = 1) -> None:
    following.follow(partition(number), TOPIC_ID, LeaderEpoch(epoch), own.position)
