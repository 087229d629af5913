"""From which replica a consumer should read (KIP-392): `replica.selector.class`.

The leader asks the selector whenever a client that can hear of it (Fetch 11 on) reads from it, and only among
replicas that have what the client asks for: live, in sync, with the wanted offset in their logs. The answer
names the chosen one instead of holding records. Selectors are called on the event loop for every partition of
a fetch: they compute, and wait for nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from broker.errors import ConfigurationError
from broker.types import BrokerId, TopicPartition

SETTING = "replica.selector.class"
LEADER = "leader"


class ReadingClient(NamedTuple):
    """Who reads; `rack` is its `client.rack`, empty when it has none."""

    rack: str
    client_id: str
    host: str
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableReplica:
    """A replica that could serve the client."""

    broker_id: BrokerId
    rack: str | None
    log_end_offset: int
    behind_ms: int
    """How long ago it had everything that the leader had; 0 for the leader."""


class ReplicaSelector(Protocol):
    """The port: one for a node. A class of one's own is made without arguments."""

    def select(
        self,
        partition: TopicPartition,
        client: ReadingClient,
        leader: ReadableReplica,
        followers: Sequence[ReadableReplica],
    ) -> ReadableReplica:
        """The leader, or one of the followers."""
        ...


class RackSelector:
    """A replica in the client's rack: the leader when it is there, else the follower that is furthest."""

    def select(
        self,
        partition: TopicPartition,
        client: ReadingClient,
        leader: ReadableReplica,
        followers: Sequence[ReadableReplica],
    ) -> ReadableReplica:
        """See the class."""
        if not client.rack or leader.rack == client.rack:
            return leader
        near = [replica for replica in followers if replica.rack == client.rack]
        return max(near, key=_progress, default=leader)


class RandomSelector:
    """Any replica, whatever its rack: consumers spread over all that are in sync."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def select(
        self,
        partition: TopicPartition,
        client: ReadingClient,
        leader: ReadableReplica,
        followers: Sequence[ReadableReplica],
    ) -> ReadableReplica:
        """See the class."""
        return self._rng.choice((leader, *followers))


_MADE_BY: Mapping[str, Callable[[Random], ReplicaSelector | None]] = {
    LEADER: lambda rng: None,
    "rack": lambda rng: RackSelector(),
    "random": RandomSelector,
}
_CLASSES_OF_KAFKA = {
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": "rack",
    "org.apache.kafka.common.replica.LeaderSelector": LEADER,
}


def load_selector(name: str, rng: Random) -> ReplicaSelector | None:
    """The selector that `replica.selector.class` names: `leader`, `rack`, `random`, Kafka's class for one of
    these, or MODULE:CLASS; None where consumers read from leaders alone. Raises ConfigurationError.
    """
    make = _MADE_BY.get(_CLASSES_OF_KAFKA.get(name, name))
    if make is not None:
        return make(rng)
    try:
        made = pkgutil.resolve_name(name)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        known = ", ".join((*_MADE_BY, *_CLASSES_OF_KAFKA))
        problem = f"{SETTING}: {name} cannot be made: {error}; there are {known}, or MODULE:CLASS"
        raise ConfigurationError([problem]) from error
    if not callable(getattr(made, "select", None)):
        raise ConfigurationError([f"{SETTING}: {name} has no method select"])
    selector: ReplicaSelector = made
    return selector


def _progress(replica: ReadableReplica) -> tuple[int, int, int]:
    return replica.log_end_offset, -replica.behind_ms, -replica.broker_id
