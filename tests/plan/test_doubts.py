"""What a plan warns of, as the file most probably does not mean it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.doubts import doubt_notices, doubts
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


def test_secrets_that_are_not_there_are_warned_of_where_they_are_referred_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon on another host may have them."""
    text = """\
clusters:
  a:
    bootstrap: ["127.0.0.1:9"]
    security:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: env:WHO
      sasl.password: file:password
      ssl.truststore.location: trusted.pem
  b: {bootstrap: ["127.0.0.1:10"]}
routes:
  - {from: a, to: b, topics: {include: [x]}, transforms: [{mask: {key: true, hash: true, salt: "env:SALT"}}]}
pipelines:
  - name: sales
    cluster: b
    topics: {include: [a.x]}
    sinks: [{jdbc: {url: "jdbc:x", table: sales, password: "env:DATABASE"}}]
"""
    for name in ("WHO", "SALT", "DATABASE"):
        monkeypatch.delenv(name, raising=False)
    asked, file = load(tmp_path, text), tmp_path / "topology.yaml"
    where = "(it must be there wherever a daemon runs)"
    variable, absent = "the environment has no variable", "cannot be read: No such file or directory"
    assert [(each.line, each.path, each.message) for each in doubts(asked, text, file)] == [
        (7, "clusters.a.security.sasl.username", f"{variable} WHO {where}"),
        (8, "clusters.a.security.sasl.password", f"{tmp_path}/password {absent} {where}"),
        (9, "clusters.a.security.ssl.truststore.location", f"{tmp_path}/trusted.pem {absent} {where}"),
        (12, "routes[0].transforms[0].mask.salt", f"secret env:SALT: there is none {where}"),
        (17, "pipelines[0].sinks[0].jdbc.password", f"{variable} DATABASE {where}"),
    ]
    away = [UnreachableCluster(name=name, problem="nobody there") for name in (A, B)]
    notices = doubt_notices(asked, text, file, world(*away))
    assert [each.kind for each in notices] == [NoticeKind.SECRET] * 5
    for name in ("WHO", "SALT", "DATABASE"):
        monkeypatch.setenv(name, "secret")
    for name in ("password", "trusted.pem"):
        (tmp_path / name).write_text("secret")
    assert doubts(asked, text, file) == []
