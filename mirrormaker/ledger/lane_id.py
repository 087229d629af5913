"""Of which lane a page is: what the key of a ledger's record says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.ledger.page import Page

LEDGER_TOPIC = "__mirrormaker_ledger"


class LaneId(NamedTuple):
    """The way from a partition of the source to one of the destination."""

    cluster: str | None
    """The source's own id; None where it has none."""
    topic: str
    topic_id: str | None
    """A topic that was deleted and made again is another; None where the source does not tell."""
    partition: int
    to: str
    to_partition: int

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def destination(self) -> TopicPartition:
        return TopicPartition(self.to, self.to_partition)

    def key(self) -> dict[str, Any]:
        """What the keys of all its records have in common."""
        return {
            "cluster": self.cluster,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "to": self.to,
            "to_partition": self.to_partition,
        }

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> LaneId:
        """Out of the key of a record. Raises ValueError."""
        try:
            lane = cls(*(key[field] for field in cls._fields))
        except KeyError as error:
            raise ValueError(f"a key without {error}") from error
        texts = (lane.cluster or "", lane.topic, lane.topic_id or "", lane.to)
        numbers = (lane.partition, lane.to_partition)
        if not all(isinstance(text, str) for text in texts) or not all(type(it) is int for it in numbers):
            raise ValueError("a key that names no partitions")
        return lane


def page_key(lane: LaneId, page: Page, to_first: int | None) -> Document:
    """The key of the page as long as it begins there at the destination."""
    key = {**lane.key(), "at": page.first, "to_at": to_first}
    return key if to_first is not None or page.by is None else {**key, "by": page.by}


def page_record(lane: LaneId, page: Page) -> tuple[Document, Document]:
    """Key and value of a page."""
    return page_key(lane, page, page.to_first), page.value(lane.to_partition)
