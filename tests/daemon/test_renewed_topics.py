"""A topic of the destination that is made anew with other partitions while a route copies to it."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, wait_until
from tests.daemon.killed_mirrors import (
    COPY,
    PARTITIONS,
    SteadyWriter,
    address,
    create_topic,
    events,
    numbers_at,
)


def test_nothing_is_sent_to_a_topic_that_was_made_anew_with_more_partitions(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    """However long it is until the route looks at its topics again."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    running = mirror(source, destination, refresh_interval_ms=60_000)
    running.start()
    admin = AdminClient({"bootstrap.servers": address(destination)})
    with SteadyWriter(source):
        wait_until(lambda: numbers_at(destination).total() > 100, "it copies")
        (deleted,) = admin.delete_topics([COPY]).values()
        deleted.result(PATIENCE_SECONDS)
        wait_until(lambda: bool(events(running, "sending_failed")), "it is missed")
        (created,) = admin.create_topics([NewTopic(COPY, PARTITIONS + 2, 1)]).values()
        created.result(PATIENCE_SECONDS)
        told = running.wait_for(lambda told: bool(told["obstacles"]), "its shape is told of")
    assert "has 5 partitions at the destination, the source 3" in told["obstacles"]["flights"]
    assert numbers_at(destination, partitions=PARTITIONS + 2).total() == 0
    assert running.stop() == 0
