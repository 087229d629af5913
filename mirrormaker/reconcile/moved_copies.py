"""Topics of a route whose copies went elsewhere before, as the positions of its group say: the route goes on
where it was, and what is where its copies go now is not its work. Pure.

Positions that say nothing, as those of versions before, or that another tool has set, count wherever copies
go.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.types import TopicPartition
from mirrormaker.flow.position_note import Led, led_elsewhere
from mirrormaker.topology.model import RouteSpec
from mirrormaker.topology.naming import compile_naming


def moved_copies(
    texts: Mapping[TopicPartition, str], route: RouteSpec, cluster_id: str | None
) -> dict[str, str]:
    """Those topics of the source, each with a topic that its copies went to. `texts`: what stands beside the
    positions; `cluster_id`: of the destination of now.
    """
    naming = compile_naming(route.source, route.topics)
    now = {each.topic: Led(naming.destination_of(each.topic), cluster_id) for each in texts}
    return {topic: led.topic for topic, led in led_elsewhere(texts, now).items()}
