"""Where the replicas of new partitions go.

Brokers are sorted; partition i's first replica goes to broker (i + start) mod n, its j-th to the j-th
broker after that, skipping `shift` further ones, and the shift grows by one after every n partitions so
that the followers of one leader are spread. Where racks are known the brokers are first ordered so that
neighbours stand in different racks, and a replica goes to a broker whose rack holds one already only when
every rack does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from broker.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBroker:
    """A broker that can take replicas."""

    broker_id: BrokerId
    rack: str | None = None


def place_replicas(
    brokers: Sequence[PlacementBroker],
    partitions: int,
    replication_factor: int,
    *,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> dict[int, tuple[BrokerId, ...]]:
    """Replicas of partitions `first_partition` and up, the preferred one first.

    `start` and `shift` are drawn at random by callers that want load spread, and 0 where the result must be
    known. Racks count only when every broker has one. Raises ValueError when there are fewer brokers than
    replicas.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(brokers)} brokers")
    order = _order(brokers)
    placed: dict[int, tuple[BrokerId, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        turn = shift + partition // len(order) - first_partition // len(order)
        placed[partition] = _replicas(order, (partition + start) % len(order), turn, replication_factor)
    return placed


def _order(brokers: Sequence[PlacementBroker]) -> list[PlacementBroker]:
    by_id = sorted(brokers, key=lambda broker: broker.broker_id)
    if any(broker.rack is None for broker in brokers):
        return [PlacementBroker(broker_id=broker.broker_id) for broker in by_id]
    racks: dict[str, list[PlacementBroker]] = {}
    for broker in by_id:
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for turn in rounds for broker in turn if broker is not None]


def _replicas(
    order: Sequence[PlacementBroker], first: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    count = len(order)
    candidates = [order[(first + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)]
    chosen = [order[first]]
    while len(chosen) < replication_factor:
        free = [broker for broker in candidates if broker not in chosen]
        fresh_racks = [broker for broker in free if broker.rack not in {taken.rack for taken in chosen}]
        chosen.append((fresh_racks or free)[0])
    return tuple(broker.broker_id for broker in chosen)
