"""Where heartbeats are born."""

from __future__ import annotations

from pathlib import Path

from mirrormaker.heartbeat_writers import sources_of
from mirrormaker.topology.loader import parse_topology

FILE = """
clusters:
  a: {bootstrap: ["h:1"]}
  b: {bootstrap: ["h:2"]}
  c: {bootstrap: ["h:3"]}
  d: {bootstrap: ["h:4"]}
routes:
  - {name: there, from: a, to: b, topics: &same {include: [x], name: "{topic}"}, failover_group: pair}
  - {name: back, from: b, to: a, topics: *same, failover_group: pair, enabled: false}
  - {name: off, from: c, to: a, topics: {include: [y]}, enabled: false}
  - {name: silent, from: d, to: a, topics: {include: [z]}, heartbeats: false}
"""


def test_heartbeats_are_written_where_routes_begin_and_where_a_switch_would_have_them_begin() -> None:
    topology = parse_topology(FILE, Path("t.yaml"))
    assert [spec.name for spec in sources_of(topology)] == ["a", "b"]
