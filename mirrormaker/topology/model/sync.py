"""What a route keeps alike at both ends beside the records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """Consumer groups whose positions are carried over to the destination."""

    include: tuple[str, ...] = (".*",)
    """Regular expressions: a group is carried over when one matches its whole name."""
    exclude: tuple[str, ...] = ()
    """Regular expressions of groups to leave out."""
    interval_ms: int = 5000
    """How often."""
    rewinds: bool = True
    """Whether a group that goes back at the source goes back at the destination too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSpec:
    """What is kept alike."""

    topics: bool = True
    """Topics that the destination lacks are created there."""
    partitions: bool = True
    """Topics of the destination grow when the source's do."""
    config: tuple[str, ...] = ()
    """Settings of topics that are carried over: names, or regular expressions that match the whole name."""
    acls: bool = False
    """Access rules of the topics are carried over."""
    groups: GroupSync | None = None
    """Consumer groups that are carried over; left out, none."""
