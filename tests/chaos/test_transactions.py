"""Transactions of a node that crashes: readers of committed records get those, each once, and no others."""

from __future__ import annotations

import contextlib
from pathlib import Path

from broker.embedded import EmbeddedCluster
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import Follower, create_topic, read_all, wait_until
from tests.chaos.transactions import Transactions
from tests.chaos.upkeep import assert_newest_of_each_key, assert_sound

KEPT = "kept"
COMPACTED = "compacted"
CONFIGS = {
    KEPT: {"flush.messages": "1", "segment.bytes": "20000"},
    COMPACTED: {
        "flush.messages": "1",
        "segment.bytes": "20000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "300",
    },
}


def test_crashes_show_every_committed_record_once_and_no_aborted_one(
    node: EmbeddedCluster, disturbance: Disturbance, tmp_path: Path
) -> None:
    address = node.bootstrap[0]
    for topic, config in CONFIGS.items():
        create_topic(str(address), topic, config)
    by_topic = {topic: Transactions(address, topic, disturbance.chance) for topic in CONFIGS}
    with Follower(str(address), KEPT, "followers") as follower:
        with contextlib.ExitStack() as stack:
            for transactions in by_topic.values():
                stack.enter_context(transactions)
            for _ in disturbance:
                if disturbance.chance.random() < 0.2:
                    disturbance.freeze(node.pids[1], 0.1, 3.0)
                else:
                    disturbance.crash(node)
        for transactions in by_topic.values():
            assert len(transactions.committed) > 100
            assert transactions.aborted_count > 100
        kept = {0: by_topic[KEPT].committed}
        wait_until(lambda: follower.has_seen(kept), "the group has read everything")
        assert sorted(follower.seen[0].items()) == kept[0]
    for _ in range(2):
        assert read_all(str(address), KEPT)[0] == kept[0]
        compacted = read_all(str(address), COMPACTED)[0]
        assert_newest_of_each_key(by_topic[COMPACTED].committed, compacted)
        assert node.stop_node(1) == 0
        assert_sound(node.spec.directory / "node-1")
        node.start_node(1)
