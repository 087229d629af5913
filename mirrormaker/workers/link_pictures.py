"""What the processes of a daemon tell of the ways that they share, as one picture. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mirrormaker.workers.totals import PastTotals, Totals


def merge_ways(ways: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What lies between the clusters of a route, as its workers tell: limits, rates and waits add up, of
    everything else the largest counts.
    """
    merged: dict[str, Any] = {
        key: max((way[key] for way in ways if way[key] is not None), default=None)
        for key in ways[0]
        if key not in ("round_trip_ms", "share_of_limit")
    }
    for key in ("rate", "limit", "borrowed", "throttled_ms", "window_bound"):
        known = [way[key] for way in ways if way[key] is not None]
        merged[key] = sum(known) if known else None
    merged["share_of_limit"] = merged["rate"] / merged["limit"] if merged["limit"] else None
    merged["round_trip_ms"] = {
        side: {node: took for way in ways for node, took in way["round_trip_ms"][side].items()}
        for side in ("source", "destination")
    }
    return merged


Ends = tuple[str, str]


def totals_of_links(links: Iterable[Mapping[str, Any]]) -> dict[Ends, Totals]:
    """What a process has sent by each."""
    return {(link["from"], link["to"]): link["bytes"] for link in links}


def past_links(ends: Iterable[Ends], past: PastTotals[Ends]) -> list[dict[str, Any]]:
    """What processes sent by these that are gone, as links that nobody uses."""
    return [
        {
            "from": source,
            "to": destination,
            "bytes": past.added_to((source, destination), 0),
            "rate": 0,
            "limit": None,
            "share_of_limit": None,
            "members": 0,
            "borrowed": None,
        }
        for source, destination in sorted(ends)
    ]


def merge_links(pictures: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Each link once: what was sent adds up, and so do the parts of its limit."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for links in pictures:
        for link in links:
            ends = link["from"], link["to"]
            known = merged.setdefault(ends, {**link, "bytes": 0, "rate": 0, "limit": None, "borrowed": None})
            known["bytes"] += link["bytes"]
            known["rate"] += link["rate"]
            for key in ("limit", "borrowed"):
                if link[key] is not None:
                    known[key] = (known[key] or 0) + link[key]
    for link in merged.values():
        link["share_of_limit"] = link["rate"] / link["limit"] if link["limit"] else None
    return [merged[ends] for ends in sorted(merged)]
