"""How far groups are behind, and offsets that are moved: to somewhere within what is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import assert_never

from broker.client.group_admin import GroupAdmin
from broker.client.group_descriptions import DEAD
from broker.client.offsets import NO_OFFSET, earliest_offsets, latest_offsets, list_offsets
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition

_MOVABLE = frozenset({"Empty", DEAD})


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """To the first record that is kept."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Behind the last record."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """To this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many offsets on from where it is; back, when negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """To the first record at or after a time, in milliseconds since the epoch; without one, to the end."""

    timestamp_ms: int


Destination = ToEarliest | ToLatest | ToOffset | ShiftBy | ToTime
"""Where offsets are moved to; what lies outside of what is kept stands for the end that is nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is in a partition, and where that ends."""

    offset: int
    end: int

    @property
    def lag(self) -> int:
        """Offsets that are yet to be read."""
        return max(0, self.end - self.offset)


class GroupOffsetAdmin(GroupAdmin):
    """Operations on groups, and on their offsets within the logs."""

    async def group_lags(self, group_id: str) -> dict[TopicPartition, GroupLag]:
        """How far the group is in each partition that it has committed, sorted. Raises ProtocolError."""
        committed = await self.group_offsets(group_id)
        ends = await latest_offsets(self._cluster, committed) if committed else {}
        return {
            partition: GroupLag(offset=committed[partition].offset, end=ends[partition])
            for partition in sorted(committed)
        }

    async def move_group_offsets(
        self,
        group_id: str,
        destination: Destination,
        partitions: Collection[TopicPartition] | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[TopicPartition, int]:
        """Move the offsets of a group without members, in these partitions or in all that it has committed;
        or only find out where they would go. Returns where they are, sorted by partition.

        Raises ProtocolError: NON_EMPTY_GROUP for a group with members, INVALID_REQUEST when something is to
        be shifted that is not committed.
        """
        group = (await self.describe_groups([group_id]))[group_id]
        if group.state not in _MOVABLE:
            raise ProtocolError(
                ErrorCode.NON_EMPTY_GROUP,
                f"offsets can only be moved while nobody is in the group: {group_id} is {group.state}",
            )
        committed = {partition: at.offset for partition, at in (await self.group_offsets(group_id)).items()}
        wanted = sorted(committed if partitions is None else set(partitions))
        if not wanted:
            return {}
        offsets = await self._destinations(destination, wanted, committed)
        if not validate_only:
            await self.reset_group_offsets(group_id, offsets)
        return offsets

    async def _destinations(
        self,
        destination: Destination,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        first = await earliest_offsets(self._cluster, partitions)
        end = await latest_offsets(self._cluster, partitions)
        wanted: Mapping[TopicPartition, int]
        match destination:
            case ToEarliest():
                wanted = first
            case ToLatest():
                wanted = end
            case ToOffset(offset):
                wanted = dict.fromkeys(partitions, offset)
            case ShiftBy(count):
                wanted = _shifted(partitions, committed, count)
            case ToTime(timestamp_ms):
                found = await list_offsets(self._cluster, dict.fromkeys(partitions, max(timestamp_ms, 0)))
                wanted = {
                    partition: end[partition] if at.offset == NO_OFFSET else at.offset
                    for partition, at in found.items()
                }
            case _:
                assert_never(destination)
        return {
            partition: min(max(wanted[partition], first[partition]), end[partition])
            for partition in partitions
        }


def _shifted(
    partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, int], count: int
) -> dict[TopicPartition, int]:
    missing = [str(partition) for partition in partitions if partition not in committed]
    if missing:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"nothing is committed that could be shifted: {missing[0]}"
        )
    return {partition: committed[partition] + count for partition in partitions}
