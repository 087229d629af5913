"""One heartbeat, and how it looks in `__mirrormaker_heartbeats`: JSON that anybody can read. Pure.

key    {"heartbeat": "ID OF THE CLUSTER WHERE IT WAS BORN"}
value  {"cluster": ID, "name": IN THE FILE, "daemon": ID, "host": NAME, "at_ms": WHEN, "path": [...]}
path   {"cluster": ID, "route": NAME, "at_ms": WHEN}      each route that carried it on, from where, and when
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

HEARTBEATS_TOPIC = "__mirrormaker_heartbeats"
KEY_PREFIX = '{"heartbeat":'
HOPS_MAX = 16
"""A heartbeat that was carried so often goes no further."""
_TIMES_MS = range((1 << 53) + 1)
_TEXTS = ("cluster", "name", "daemon", "host")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A route took it on from a cluster."""

    cluster: str
    route: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat; clusters by their real ids."""

    cluster: str
    """Where it was born."""
    name: str
    """What the file of the daemon that wrote it calls that cluster."""
    daemon: str
    host: str
    at_ms: int
    path: tuple[Hop, ...] = ()

    @property
    def clusters(self) -> frozenset[str]:
        """Where it has been."""
        return frozenset([self.cluster, *(hop.cluster for hop in self.path)])

    def via(self, hop: Hop) -> Beat:
        """As it goes on by this."""
        return replace(self, path=(*self.path, hop))


def encode_key(cluster: str) -> bytes:
    """The key of heartbeats that are born there."""
    return f"{KEY_PREFIX} {json.dumps(cluster)}}}".encode()


def encode_beat(beat: Beat) -> bytes:
    """The value."""
    hops = [{"cluster": hop.cluster, "route": hop.route, "at_ms": hop.at_ms} for hop in beat.path]
    return json.dumps(
        {
            "cluster": beat.cluster,
            "name": beat.name,
            "daemon": beat.daemon,
            "host": beat.host,
            "at_ms": beat.at_ms,
            "path": hops,
        }
    ).encode()


def decode_beat(value: bytes | None) -> Beat | None:
    """None for what is no heartbeat: others may write to the topic."""
    try:
        document = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    if not _has_texts(document, *_TEXTS) or not isinstance(document.get("path"), list):
        return None
    cluster, name, daemon, host = (document[field] for field in _TEXTS)
    at_ms, hops = document["at_ms"], [_hop_of(hop) for hop in document["path"]]
    path = tuple(hop for hop in hops if hop is not None)
    if len(path) < len(hops) or at_ms not in _TIMES_MS:
        return None
    if _HALF_CHARACTER.search(cluster + name + daemon + host):
        return None
    return Beat(cluster=cluster, name=name, daemon=daemon, host=host, at_ms=at_ms, path=path)


def _hop_of(document: object) -> Hop | None:
    if not _has_texts(document, "cluster", "route"):
        return None
    return Hop(cluster=document["cluster"], route=document["route"], at_ms=document["at_ms"])


def _has_texts(document: object, *fields: str) -> TypeGuard[dict[str, Any]]:
    """Whether it has a time and these texts. Not by patterns: each route reads all heartbeats of its source,
    and those take five times as long as JSON does.
    """
    return (
        isinstance(document, dict)
        and isinstance(document.get("at_ms"), int)
        and all(isinstance(document.get(field), str) for field in fields)
    )
