"""Ids for topics that were made before topics had any (Kafka 2.8): nodes name topics by id to each other.

The controller gives them when it reads such a topic, on condition that nobody changes it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from broker.cluster.events import TopicWrite
from broker.cluster.fenced_writes import FencedWrites
from broker.coordination.znodes import TopicZnode
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId

_log = logger("topic_ids")


async def with_ids(topics: Mapping[str, TopicZnode], writes: FencedWrites) -> dict[str, TopicZnode]:
    """The topics, each with an id; without those that were changed at this moment, whose watch tells.

    Raises as `FencedWrites.write_topics` does.
    """
    without = {name: topic for name, topic in topics.items() if topic.topic_id == NO_TOPIC_ID}
    if not without:
        return dict(topics)
    wanted = {
        name: TopicWrite(topic=replace(topic, topic_id=TopicId(uuid4())), expected=topic)
        for name, topic in without.items()
    }
    given = (await writes.write_topics(wanted)).topics_done
    for name in given:
        _log.info("topic_id_given", topic=name, topic_id=str(wanted[name].topic.topic_id))
    return {
        name: wanted[name].topic if name in given else topic
        for name, topic in topics.items()
        if name in given or name not in without
    }
