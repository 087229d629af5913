"""Bugs planted into the code under simulation, to see that the simulator finds them.

Each is a way in which replication has gone wrong somewhere: the checks must notice within some thousands of
seeds at the latest. Production code knows nothing of them: they are patched in from here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

from broker.cluster.states import write_isr
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import PartitionStateZnode
from broker.replication import fetcher, followed_log
from broker.replication.fetcher import Fetcher
from broker.replication.following import Position
from broker.replication.replica import Replica
from broker.types import TopicPartition

_Patch = AbstractContextManager[Any]


def _epoch_check_dropped() -> list[_Patch]:
    """A leader answers whoever follows or reads in whatever epoch."""
    return [mock.patch("broker.replication.partition.Partition.require_epoch", return_value=None)]


def _truncation_by_high_watermark() -> list[_Patch]:
    """A follower of a new leader cuts its log at its high watermark, and asks for no epoch's end (as before
    KIP-101).
    """
    follow = Fetcher.follow

    def cut_and_follow(self: Fetcher, replica: Replica) -> None:
        known = self._replicas.get(replica.topic_partition)
        is_new = known is None or known[1].leader_epoch != replica.machine.leader_epoch
        follow(self, replica)
        _, followed = self._replicas[replica.topic_partition]
        if is_new and replica.cutting is None and replica.log.log_end_offset > replica.high_watermark:
            self._start_cut(replica, followed, replica.high_watermark, leader_epoch_end=None)

    def position_without_epoch(replica: Replica) -> Position:
        return Position(replica.log.log_end_offset, -1, replica.log.log_start_offset)

    return [
        mock.patch.object(Fetcher, "follow", cut_and_follow),
        mock.patch.object(fetcher, "position_of", position_without_epoch),
        mock.patch.object(followed_log, "position_of", position_without_epoch),
    ]


def _answer_before_the_isr_has_it() -> list[_Patch]:
    """acks=all is answered as soon as the leader has the records."""
    return [
        mock.patch.object(Replica, "is_acknowledged", return_value=True),
        mock.patch.object(Replica, "is_committed", return_value=True),
    ]


def _isr_change_without_condition() -> list[_Patch]:
    """A leader writes its in-sync set over whatever stands there."""

    async def write(
        coordination: Coordination, tp: TopicPartition, state: PartitionStateZnode, partition_epoch: int
    ) -> int:
        return await write_isr(coordination, tp, state, -1)

    return [mock.patch("broker.replication.isr_changes.write_isr", write)]


def _power_loss_taken_for_clean() -> list[_Patch]:
    """A node that comes back under another boot id stays in its in-sync sets."""
    return [
        mock.patch("broker.storage.boot_note.BootNote.may_have_lost", return_value=False),
        mock.patch("broker.storage.log_directories.LogDirectories.short_logs", return_value=frozenset()),
    ]


def _window_of_four() -> list[_Patch]:
    """The last four batches of a producer are remembered instead of five."""
    return [mock.patch("broker.storage.producer_entry.APPENDS_REMEMBERED", 4)]


PLANTED: dict[str, Callable[[], list[_Patch]]] = {
    "epoch check dropped": _epoch_check_dropped,
    "truncation by high watermark alone": _truncation_by_high_watermark,
    "answer before the ISR has it": _answer_before_the_isr_has_it,
    "ISR change without its conditional write": _isr_change_without_condition,
    "loss of power taken for a clean end": _power_loss_taken_for_clean,
    "deduplication window of 4": _window_of_four,
}
"""By name, what makes the patches."""


def planted(name: str) -> ExitStack:
    """Within it, the code has the bug."""
    stack = ExitStack()
    for patch in PLANTED[name]():
        stack.enter_context(patch)
    return stack
