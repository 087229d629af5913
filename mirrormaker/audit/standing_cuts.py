"""What a source lost after it was copied, where the partition stands for that, as the control topic of the
destination says: until somebody decides no page of the ledger and no note tells of it. So it is with topics
that were made anew. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.types import TopicPartition
from mirrormaker.audit.notes import Truncation
from mirrormaker.audit.ranges import Range
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.reconcile.control import RouteWishes, read_wishes
from mirrormaker.reconcile.halts import Halt
from mirrormaker.topology.model import RouteName


class StandingCut(NamedTuple):
    """Of one partition."""

    at: int
    """The source offset from which on all that was copied is of a log that is gone: there it will go on."""
    truncation: Truncation


def standing_cuts(
    control: Iterable[tuple[Document, Document]], route: RouteName
) -> Mapping[TopicPartition, StandingCut]:
    """Those of a route, by partition, as far as it is known which offsets these are. What was released is
    left to the pages of what is copied then.
    """
    return {
        source: StandingCut(
            trouble.resume_at,
            Truncation(Range(*trouble.lost), trouble.kind.value, trouble.problem, halt.at_ms),
        )
        for source, halt in _standing(control, route, TroubleKind.SOURCE_TRUNCATED).items()
        for trouble in [halt.trouble]
        if trouble.lost is not None
    }


def standing_doubts(
    control: Iterable[tuple[Document, Document]], route: RouteName
) -> Mapping[TopicPartition, str]:
    """By partition that stands, why nobody can tell which of its copies the source has lost."""
    return {
        source: halt.trouble.problem
        for source, halt in _standing(control, route, TroubleKind.SOURCE_TRUNCATED).items()
        if halt.trouble.lost is None
    }


def made_anew(control: Iterable[tuple[Document, Document]], route: RouteName) -> Mapping[TopicPartition, int]:
    """Partitions of topics that were made anew, and of which nothing is copied as they stand for that; with
    the source offset at which copying would begin.
    """
    standing = _standing(control, route, TroubleKind.TOPIC_RECREATED)
    return {source: halt.trouble.resume_at for source, halt in standing.items()}


def _standing(
    control: Iterable[tuple[Document, Document]], route: RouteName, kind: TroubleKind
) -> Mapping[TopicPartition, Halt]:
    """Partitions that stand for this."""
    halts = read_wishes(control).get(route, RouteWishes()).halts
    return {
        source: halt for source, halt in halts.items() if halt.trouble.kind is kind and halt.released is None
    }
