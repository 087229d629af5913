"""What a program may be told when its connector gives partitions up, and when it gets some."""

from __future__ import annotations

from collections.abc import Mapping

from broker.types import TopicPartition


class RebalanceListener:
    """Told by a connector, never two things at once; what is not overridden does nothing.

    What it raises ends the connector and is told by its streams; a BrokerError that another attempt may mend
    makes the attempt fail that it was raised in. The rest of the group waits for the partitions meanwhile.
    """

    async def before_releasing_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is read any more, and readers are done or had their time. When this returns positions are
        committed, where that is automatic, and the partitions may be another's. `commit_offsets` is possible.
        """

    async def before_starting_fetchers(self, share: Mapping[TopicPartition, int]) -> None:
        """The partitions are claimed, each for the stream of its topic with that number. When this returns
        the group's positions are read, and then records.
        """

    async def partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """The partitions are another's perhaps, and were so before anybody could be told: the session or
        membership ended. Told before anything else is claimed, and at the end.
        """
