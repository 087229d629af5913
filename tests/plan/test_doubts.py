"""What a plan warns of, as the file most probably does not mean it."""

from __future__ import annotations

from pathlib import Path

from mirrormaker.doubts import doubt_notices
from mirrormaker.plan.notices import NoticeKind
from mirrormaker.plan.world import UnreachableCluster
from mirrormaker.topology.model import ClusterName
from tests.plan.worlds import cluster, topic, world
from tests.topology.files import CLUSTERS, load

A, B, C = map(ClusterName, "abc")


def test_a_step_for_topics_that_are_not_there_is_warned_of_where_it_stands(tmp_path: Path) -> None:
    masked = "transforms: [{mask: {key: true}, topics: [flights, a.flights]}]"
    text = f"{CLUSTERS}routes:\n  - {{from: a, to: b, topics: {{include: ['.*']}}, {masked}}}\n"
    asked, file = load(tmp_path, text), tmp_path / "topology.yaml"
    seen = world(cluster(A, topic("flights"), topic("a.flights", internal=True)), cluster(B), cluster(C))
    (told,) = doubt_notices(asked, text, file, seen)
    assert told.line.startswith(f"{file}:3: routes[0].transforms[0].topics[1]: 'a.flights' matches no topic")
    assert told.kind is NoticeKind.TOPICS
    assert not told.blocks
    away = UnreachableCluster(name=A, problem="nobody there")
    assert list(doubt_notices(asked, text, file, world(away, cluster(B), cluster(C)))) == []
