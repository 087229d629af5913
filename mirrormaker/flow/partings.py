"""Where logs of the source part from what was read of them, as it tells by leader epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.client.asking_leaders import Answers
from broker.client.cluster import Cluster
from broker.client.epoch_ends import epoch_ends_found
from broker.errors import BrokerError
from broker.types import TopicPartition
from mirrormaker.flow.read_epochs import ReadEpochs
from mirrormaker.flow.trouble import Divergence

ASK_TIMEOUT_MS = 2_000
"""How long the leaders may take to be found: others wait for that."""


class Read(NamedTuple):
    """What was read of a partition."""

    epochs: ReadEpochs
    position: int
    """Up to there."""

    def parting(self, at: Divergence) -> int:
        """Where the log parts from it by what was told."""
        return at.parting(self.epochs.end_of(at.epoch), self.position)


async def partings(
    source: Cluster,
    read: Mapping[TopicPartition, Read],
    told: Mapping[TopicPartition, Divergence] | None = None,
) -> Answers[Divergence]:
    """By partition the divergence that tells where its log parts from what was `read`: the epoch that the
    source names may be one of which nothing was read; then it is asked of the epoch that was read before, as
    followers do. `told`: what it said before. Left out are those of which it knows no such epoch; those of
    which it did not answer are among the failures, and as far as that was told.
    """
    found, failures = dict(told or {}), dict[TopicPartition, BrokerError]()
    left = set(read)
    while left:
        asked: dict[TopicPartition, int] = {}
        for partition in left:
            at, (epochs, position) = found.get(partition), read[partition]
            epoch = epochs.before(position if at is None else read[partition].parting(at))
            if epoch >= 0 and (at is None or epoch < at.epoch):
                asked[partition] = epoch
        if not asked:
            break
        ends = await epoch_ends_found(source, asked, timeout_ms=ASK_TIMEOUT_MS)
        failures |= ends.failures
        left = {partition for partition, end in ends.found.items() if end.offset >= 0}
        for partition in left:
            end = ends.found[partition]
            epoch = asked[partition] if end.epoch < 0 else end.epoch  # Kafka before 2.0 does not name it
            found[partition] = Divergence(epoch=epoch, end_offset=end.offset)
    return Answers(found, failures)
