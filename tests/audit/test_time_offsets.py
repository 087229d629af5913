"""Where a time begins and ends in logs that a node keeps."""

from __future__ import annotations

import asyncio

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.cluster import Cluster
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.time_offsets import TimeOffsets
from mirrormaker.audit.windows import TimeWindow
from tests.conftest import ClusterFactory

PATIENCE_SECONDS = 40
NOON_MS = 981_072_000_000
"""In 2001: long before the transactions that write of it."""
FLIGHTS, EMPTY = TopicPartition("flights", 0), TopicPartition("flights", 1)


def write_history(cluster: EmbeddedCluster) -> None:
    """Three transactions of ten records, a second apart; each ends with a marker."""
    address = {"bootstrap.servers": ",".join(map(str, cluster.bootstrap))}
    topic = NewTopic("flights", 2, 1, config={"retention.ms": "-1"})
    admin = AdminClient(address)
    admin.create_topics([topic])["flights"].result(PATIENCE_SECONDS)
    producer = Producer({**address, "transactional.id": "history", "log_level": 0})
    producer.init_transactions(PATIENCE_SECONDS)
    for number in range(30):
        if number % 10 == 0:
            producer.begin_transaction()
        producer.produce("flights", b"%d" % number, partition=0, timestamp=NOON_MS + number * 1000)
        if number % 10 == 9:
            producer.commit_transaction(PATIENCE_SECONDS)


def window(first: int | None, last: int | None) -> TimeWindow:
    """From one record's time to another's."""
    from_ms, to_ms = (None if at is None else NOON_MS + at * 1000 for at in (first, last))
    return TimeWindow(from_ms=from_ms, to_ms=to_ms)


def test_a_history_does_not_end_at_the_marker_of_its_first_transaction(cluster: ClusterFactory) -> None:
    node = cluster()
    write_history(node)

    async def main() -> None:
        async with Cluster(node.bootstrap) as asked:
            await asked.ensure(["flights"])
            end = 33
            for bounds, expected in (
                ((None, None), Range(0, end)),
                ((0, 10), Range(0, 11)),
                ((3, 25), Range(3, 27)),
                ((10, None), Range(11, end)),
                ((30, 31), Range(end, end)),
            ):
                found = await TimeOffsets(asked, [FLIGHTS, EMPTY]).of(window(*bounds))
                assert found == {FLIGHTS: expected, EMPTY: Range(0, 0)}, bounds
            times = TimeOffsets(asked, [FLIGHTS, EMPTY], slack_ms=5000)
            ascending = [(await times.of(window(at, at + 5)))[FLIGHTS] for at in range(0, 35, 5)]
            assert ascending == [
                *(Range(0, 5), Range(5, 11), Range(11, 16), Range(16, 22), Range(22, 27)),
                *(Range(27, end), Range(end, end)),
            ]
            again = await times.of(window(0, 5))
            assert again[FLIGHTS] == Range(0, 5)

    asyncio.run(main())
