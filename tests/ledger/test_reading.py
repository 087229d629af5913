"""Of which source a command takes what the ledger says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from broker.client.cluster import Cluster
from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.ledger.lane_id import LaneId, page_record
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.reading import SourceIds
from mirrormaker.ledger.view import LedgerView

ORDERS = TopicPartition("orders", 0)
OLD, NEW = str(UUID(int=1)), str(UUID(int=2))


def view_of(*lanes: tuple[str, str]) -> LedgerView:
    """Ten records of each, one behind the other; clusters and ids of topics."""
    view = LedgerView()
    for number, (cluster, topic_id) in enumerate(lanes):
        lane, page = LaneId(cluster, ORDERS.topic, topic_id, ORDERS.partition, *ORDERS), Page(0)
        page.add_runs([(SourceRun(0, 10), number * 10)])
        key, value = page_record(lane, page)
        view.apply(encode_document(key), encode_document(value))
    return view


def source(cluster_id: str, **topics: str) -> Cluster:
    known: dict[str, Any] = {name: SimpleNamespace(topic_id=UUID(each)) for name, each in topics.items()}
    return cast(Cluster, SimpleNamespace(cluster_id=cluster_id, topics=known))


def chosen(ids: SourceIds, view: LedgerView) -> tuple[str | None, str | None] | None:
    lane = ids.choose(view, ORDERS, ORDERS)
    return None if lane is None else (lane.cluster, lane.topic_id)


def test_what_others_brought_to_the_same_partition_is_not_taken_for_the_sources() -> None:
    view = view_of(("jfk", OLD), ("lga", NEW))
    assert chosen(SourceIds(source("jfk", orders=OLD)), view) == ("jfk", OLD)
    assert chosen(SourceIds(None, "jfk"), view) == ("jfk", OLD)
    with pytest.raises(ConfigurationError, match="cluster_id"):
        chosen(SourceIds(None), view)
    assert chosen(SourceIds(None), view_of(("jfk", OLD))) == ("jfk", OLD)


def test_of_a_topic_made_anew_counts_the_one_that_there_is_or_the_one_written_to_last() -> None:
    view = view_of(("jfk", OLD), ("jfk", NEW))
    assert chosen(SourceIds(source("jfk", orders=OLD)), view) == ("jfk", OLD)
    assert chosen(SourceIds(source("jfk", orders=str(UUID(int=3)))), view) is None
    assert chosen(SourceIds(source("jfk")), view) == ("jfk", NEW), "it was deleted"
    assert chosen(SourceIds(None, "jfk"), view) == ("jfk", NEW)
