"""What keeps a ledger small: pages that go on where others end become one, pages outlived go. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mirrormaker.flow.kept_view import Document
from mirrormaker.ledger.lane_id import LaneId, page_key, page_record
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.page_windows import PageWindows


def upkeep_records(
    lane: LaneId, ledger: LaneLedger, log_start: int, windows: PageWindows, route: str | None = None
) -> Iterator[tuple[Document, Document | None]]:
    """Records to write for a lane whose source begins at `log_start`, in this order; None: to be deleted.

    To be called by whoever writes the lane for the route, for its last page is left alone, and no other.
    """
    outdated = ledger.outdated(log_start, route)
    for page in outdated:
        yield page_key(lane, page, page.to_first), None
    repeated = ledger.repeated(route)
    for page in repeated:
        if page not in outdated:
            yield page_key(lane, page, page.to_first), None
    for page, following in ledger.mergeable(windows, route, repeated):
        if page in outdated:
            continue
        merged = Page.of(page.value(lane.to_partition))
        merged.by = page.by
        merged.absorb(following)
        yield page_record(lane, merged)
        yield page_key(lane, following, following.to_first), None


def former_records(
    lane: LaneId, ledger: LaneLedger, to_start: int | None
) -> Iterator[tuple[Document, Document | None]]:
    """Records that delete what the destination, whose log begins at `to_start`, has nothing of any more, for
    a lane whose source is gone; None: the destination is gone, too.
    """
    for page in ledger.pages():
        if to_start is None or (page.to_next or 0) <= to_start:
            yield page_key(lane, page, page.to_first), None
