"""What the topic of the ledger says, as far as read: pages by lane, marks of groups carried, and
producers of mirrors. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import decode_document
from mirrormaker.ledger.group_mark import GroupMark, GroupMarkId, is_mark
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger, PageKey
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.producer_note import ProducerNote, is_producer_note


class LedgerView:
    """A view for `KeptTopic` that holds pages packed, and only those of lanes that are wanted."""

    def __init__(self, cluster: str | None = None) -> None:
        """`cluster`: id of the source whose lanes are wanted; None: of any."""
        self._cluster = cluster
        self._lanes: dict[LaneId, LaneLedger] = {}
        self._marks: dict[GroupMarkId, GroupMark] = {}
        self._producers: defaultdict[str | None, set[int]] = defaultdict(set)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values())) + len(self._marks)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record in; without a value it deletes its key. Raises ValueError, with nothing changed."""
        document = decode_document(key)
        if is_producer_note(document):
            self._take_producer(ProducerNote.of(document))
            return
        lane = LaneId.of(document)
        if self._cluster is not None and lane.cluster != self._cluster:
            return
        if is_mark(document):
            mark_id = GroupMarkId.of(document)
            if value is None:
                self._marks.pop(mark_id, None)
            else:
                self._marks[mark_id] = GroupMark.of(decode_document(value))
        elif value is None:
            self._remove(lane, _page_key(document))
        else:
            page = Page.of(decode_document(value))
            page.by = _writer_in(document)
            self._lanes.setdefault(lane, LaneLedger()).put(page)

    def clear(self) -> None:
        """The topic begins anew."""
        self._lanes.clear()
        self._marks.clear()
        self._producers.clear()

    @property
    def lanes(self) -> Mapping[LaneId, LaneLedger]:
        """All that is known; not to be changed."""
        return self._lanes

    @property
    def marks(self) -> Mapping[GroupMarkId, GroupMark]:
        """How groups stood when they were last carried; not to be changed."""
        return self._marks

    def of_source(self, source: TopicPartition, to: str) -> Iterator[LaneId]:
        """The lanes of a source partition to a topic of the destination."""
        return (lane for lane in self._lanes if lane.source == source and lane.to == to)

    def mark(self, mark_id: GroupMarkId) -> GroupMark | None:
        """How a group stood when it was last carried."""
        return self._marks.get(mark_id)

    def producers(self, cluster: str | None) -> Collection[int]:
        """Under which ids mirrors have written copies from a source with that id; not to be changed."""
        return self._producers.get(cluster, ())

    def _take_producer(self, note: ProducerNote) -> None:
        if self._cluster in (None, note.cluster):
            self._producers[note.cluster].add(note.producer_id)

    def _remove(self, lane: LaneId, key: PageKey) -> None:
        ledger = self._lanes.get(lane)
        if ledger is not None:
            ledger.remove(key)
            if not len(ledger):
                del self._lanes[lane]


def _page_key(document: Mapping[str, object]) -> PageKey:
    first, to_first = document.get("at"), document.get("to_at")
    if type(first) is not int or (to_first is not None and type(to_first) is not int):
        raise ValueError("a key of no page")
    return first, to_first, _writer_in(document) if to_first is None else None


def _writer_in(document: Mapping[str, object]) -> str | None:
    by = document.get("by")
    return by if isinstance(by, str) else None
