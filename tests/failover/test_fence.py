"""Topics closed to producers and opened again, at a real node."""

from __future__ import annotations

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from mirrormaker.failover import fence
from mirrormaker.failover.fence import close_topics, open_topics, read_settings, why_not_closed
from mirrormaker.plan.settings import FENCE
from tests.client.running import run
from tests.conftest import ClusterFactory
from tests.daemon.test_mirror import create

NAME, CLOSED = FENCE


def test_topics_that_are_not_there_any_more_keep_no_other_from_being_closed_or_opened(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "MISSING_TIMEOUT_MS", 500)
    node = cluster("primary")
    for topic in ("a", "b", "c"):
        create(node, topic, 1)

    async def main() -> None:
        async with Cluster(node.bootstrap) as primary:
            admin = Admin(primary)
            await admin.alter_topic_configs("c", {NAME: "5000"})
            before = await read_settings(primary, ["a", "b", "c"])
            assert before == {"a": None, "b": None, "c": "5000"}
            await admin.delete_topics(["a"])
            await close_topics(primary, before)
            for topic in ("b", "c"):
                assert (await admin.describe_topic_configs(topic, [NAME]))[NAME].value == CLOSED
            assert await why_not_closed(primary, before) is None
            await open_topics(primary, before)
            assert await read_settings(primary, ["b", "c"]) == {"b": None, "c": "5000"}
            assert (await admin.describe_topic_configs("b", [NAME]))[NAME].value != CLOSED

    run(main)
