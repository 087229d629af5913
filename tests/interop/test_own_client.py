"""Our client against Apache Kafka: what it does with our nodes it does with Kafka's."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.embedded import EmbeddedZooKeeper
from tests.client.test_nodes import (  # noqa: F401 collected here too
    test_a_group_goes_on_where_it_committed,
    test_groups_are_listed_described_moved_and_deleted,
    test_members_of_a_group_share_the_partitions_as_they_come_and_go,
    test_offsets_are_found_by_time_and_logs_are_cut_off,
    test_raw_batches_pass_from_one_topic_to_another_untouched,
    test_records_of_every_codec_come_back_as_they_were_sent,
    test_topics_are_created_listed_described_grown_configured_and_deleted,
)
from tests.interop.apache import ApacheKafka


@pytest.fixture
def cluster(
    kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> Iterator[Callable[[], ApacheKafka]]:
    """Apache Kafka in the place of our nodes; each test starts one of its own."""
    with ExitStack() as stack:

        def start() -> ApacheKafka:
            chroot = f"apache-{uuid.uuid4().hex[:8]}"
            kafka = ApacheKafka(kafka_classpath, zookeeper.connect_string(chroot), tmp_path)
            return stack.enter_context(kafka)

        yield start
