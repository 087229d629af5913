"""Groups brought back: what they committed at a route's destination, committed at its source. For failback.

Each position is translated through the ledger: whoever has passed a record at the destination has it, in
whichever copy. Only groups without members at the source are moved; whoever calls sees to it that they have
none at the destination either, and that the route rests, lest it carries them over again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.client.offsets import earliest_offsets
from broker.types import TopicPartition
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_map import Translation
from mirrormaker.ledger.view import LedgerView

TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """One partition of a group, from the destination back to the source."""

    group: str
    lane: LaneId
    at: OffsetAndMetadata
    """Where the group stands at the destination."""
    translation: Translation
    to: int
    """Where it is to stand at the source."""
    before: int | None
    """Where it stands there now."""


async def plan_returns(
    source: Cluster,
    destination: Cluster,
    view: LedgerView,
    lanes: Collection[LaneId],
    groups: Collection[str],
) -> list[Return]:
    """What bringing these groups back over these lanes means; nothing is changed.

    Groups without a position in a lane are left out. Raises BrokerError.
    """
    by_destination = {lane.destination: lane for lane in lanes}
    starts = await earliest_offsets(source, {lane.source for lane in lanes})
    returns: list[Return] = []
    for group in groups:
        there = await fetch_offsets(destination, group, timeout_ms=TIMEOUT_MS)
        here = await fetch_offsets(source, group, timeout_ms=TIMEOUT_MS)
        for partition, at in there.items():
            if (lane := by_destination.get(partition)) is not None and lane in view.lanes:
                translation = view.lanes[lane].back(at.offset)
                before = here.get(lane.source)
                returns.append(
                    Return(
                        group=group,
                        lane=lane,
                        at=at,
                        translation=translation,
                        to=max(translation.offset or 0, starts[lane.source]),
                        before=None if before is None else before.offset,
                    )
                )
    return returns


async def perform_returns(source: Cluster, returns: Collection[Return]) -> None:
    """Commit them at the source.

    Raises ProtocolError: UNKNOWN_MEMBER_ID for a group that has members there; those before it are moved.
    """
    groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for each in returns:
        position = OffsetAndMetadata(offset=each.to, metadata=each.at.metadata)
        groups.setdefault(each.group, {})[each.lane.source] = position
    for group, offsets in groups.items():
        await commit_offsets(source, group, offsets, timeout_ms=TIMEOUT_MS)
