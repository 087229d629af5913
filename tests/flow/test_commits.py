"""Positions on their way to the group; what is around them is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.client.group_offsets import OffsetsRefusedError
from broker.errors import ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow.commits import PositionCommits
from mirrormaker.flow.delivery import Kept
from mirrormaker.flow.group_positions import StoredPosition
from mirrormaker.flow.read_epochs import ReadEpochs
from mirrormaker.flow.signal import Signal
from tests.client.running import run, until

SOURCE, OTHER = TopicPartition("flights", 0), TopicPartition("planes", 0)


class Surroundings:
    """A partition of which records arrive, a group that may answer, and books."""

    def __init__(self) -> None:
        self.reached = 0
        self.committed = 0
        self.written: list[int] = []
        self.asked: list[int] = []
        self.answers = asyncio.Event()
        self.is_writable = asyncio.Event()
        self.is_writable.set()
        self.is_refused = False
        self.unauthorized: set[TopicPartition] = set()
        self.told: list[TopicPartition] = []
        """What the delivery was told is stored."""
        partition: Any = SimpleNamespace(lanes=[self], epochs=ReadEpochs(0, -1), logs_gone=0)
        self.partitions: dict[TopicPartition, Any] = dict.fromkeys((SOURCE, OTHER), partition)

    def commits(self) -> PositionCommits:
        machine = SimpleNamespace(
            uncommitted=lambda: {SOURCE: self.reached} if self.reached != self.committed else {},
            partitions=self.partitions,
            committed=lambda positions: setattr(self, "committed", positions.get(SOURCE, self.committed)),
        )
        reader = SimpleNamespace(
            ranges=SimpleNamespace(topic_id=lambda source: NO_TOPIC_ID),
            answers=SimpleNamespace(forget=lambda sources: None),
        )
        mode = SimpleNamespace(keep=lambda source, at, reached: Kept(at), unnoted=dict, kept=self.told.extend)
        parts: list[Any] = [machine, reader, self, mode, self]
        return PositionCommits(*parts, lambda: None)

    @property
    def acknowledged(self) -> int:
        """Of its only lane."""
        return self.reached

    async def write(
        self,
        positions: Mapping[TopicPartition, int],
        reached: Mapping[TopicPartition, tuple[int, ...]],
    ) -> Mapping[TopicPartition, int]:
        self.written.append(reached[SOURCE][0])
        await self.is_writable.wait()
        return positions

    async def store(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        self.asked.append(positions[SOURCE].offset)
        await self.answers.wait()
        if self.is_refused:
            raise RequestTimedOutError("no answer")
        if self.unauthorized:
            error = ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            raise OffsetsRefusedError(dict.fromkeys(self.unauthorized, error))


def test_what_arrives_while_the_group_does_not_answer_is_written_down() -> None:
    async def main() -> None:
        around = Surroundings()
        due = Signal()
        running = asyncio.create_task(around.commits().run(due, lambda: 1))
        around.reached = 10
        await until(lambda: around.asked == [10])
        around.reached = 15
        await until(lambda: around.written[-1] == 15)
        assert (around.asked, around.committed) == ([10], 0)
        around.is_refused = True
        around.answers.set()
        await until(lambda: around.asked[-1] == 15)
        around.is_refused = False
        await until(lambda: around.committed == 15)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    run(main)


def test_what_the_source_refuses_of_one_partition_holds_back_no_other() -> None:
    """At most once nothing is sent of one whose position is not stored."""

    async def main() -> None:
        around = Surroundings()
        around.reached = 10
        around.answers.set()
        around.unauthorized = {OTHER}
        await around.commits().commit(lambda: {SOURCE: 10, OTHER: 10})
        assert (around.told, around.committed) == ([SOURCE], 10)
        around.unauthorized = {SOURCE, OTHER}
        await around.commits().commit(lambda: {SOURCE: 11, OTHER: 10})
        assert (around.told, around.committed) == ([SOURCE], 10)

    run(main)


@pytest.mark.parametrize("awaited", ["answers", "is_writable"])
def test_a_position_of_a_log_that_is_gone_by_the_answer_is_none_that_is_stored(awaited: str) -> None:
    """At most once what the source has in its place is not sent before the group knows. It is told another,
    also where that is the one that it had before.
    """

    async def main() -> None:
        around = Surroundings()
        around.reached = 10
        around.is_writable.clear()
        commits = around.commits()
        committing = asyncio.create_task(commits.commit(lambda: {SOURCE: 10}))
        await until(lambda: bool(around.written))
        if awaited == "answers":
            around.is_writable.set()
            await until(lambda: bool(around.asked))
        around.partitions[SOURCE].logs_gone += 1
        around.reached = 0
        around.is_writable.set()
        around.answers.set()
        await committing
        assert (around.asked, around.told) == ([10] * (awaited == "answers"), [])
        await commits.commit(commits.moved)
        assert (around.asked, around.committed) == ([10, 0] if awaited == "answers" else [], 0)

    run(main)


def test_a_refusal_is_logged_when_it_comes_and_when_it_comes_again() -> None:
    """Commits are tried again several times a second."""

    async def main() -> None:
        around = Surroundings()
        around.answers.set()
        commits = around.commits()
        with capture_logs() as logs:
            for refused in ({OTHER}, {OTHER}, {OTHER}, set(), {OTHER}, {OTHER}):
                around.unauthorized = refused
                around.reached += 1
                await commits.commit(lambda: {SOURCE: around.reached, OTHER: around.reached})
        told = [each["count"] for each in logs if each["event"] == "positions_not_committed"]
        assert told == [1, 1]

    run(main)


def test_a_commit_that_is_given_up_leaves_nothing_behind() -> None:
    async def main() -> None:
        around = Surroundings()
        around.reached = 10
        committing = asyncio.create_task(around.commits().commit(lambda: {SOURCE: 10}))
        await until(lambda: around.asked == [10])
        committing.cancel()
        await asyncio.wait([committing])
        assert committing.cancelled()
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_a_commit_waits_for_the_one_before_and_stores_what_counts_by_then() -> None:
    """Of many partitions it is several requests, of which the last may come late."""

    async def main() -> None:
        around = Surroundings()
        commits = around.commits()
        around.reached = 10
        first = asyncio.create_task(commits.commit(commits.moved))
        await until(lambda: around.asked == [10])
        second = asyncio.create_task(commits.commit(commits.moved))
        await asyncio.sleep(0)
        around.reached = 15
        assert around.asked == [10]
        around.answers.set()
        await asyncio.gather(first, second)
        assert (around.asked, around.committed) == ([10, 15], 15)

    run(main)


def test_what_is_anothers_by_the_time_that_the_books_are_written_is_not_stored() -> None:
    """The next generation of the group would take it, and the new owner's position with it."""

    async def main() -> None:
        around = Surroundings()
        around.reached = 10
        around.is_writable.clear()
        around.answers.set()
        commits = around.commits()
        committing = asyncio.create_task(commits.commit(lambda: {SOURCE: 10, OTHER: 10}))
        await until(lambda: around.written == [10])
        del around.partitions[OTHER]
        around.is_writable.set()
        await committing
        assert around.told == [SOURCE]

    run(main)
