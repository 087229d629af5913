"""Notes of the producers of mirrors, and a view that reads them among pages."""

from __future__ import annotations

import pytest

from mirrormaker.flow.kept_view import encode_document
from mirrormaker.ledger.producer_note import ProducerNote
from mirrormaker.ledger.view import LedgerView


def test_a_view_tells_producers_by_the_cluster_whose_records_they_copied() -> None:
    whole, of_one = LedgerView(), LedgerView("cluster-a")
    for note in (ProducerNote("cluster-a", 7), ProducerNote("cluster-b", 8), ProducerNote(None, 9)):
        key, value = map(encode_document, note.record(1_357_000_000_000))
        for view in (whole, of_one):
            view.apply(key, value)
    assert [set(whole.producers(name)) for name in ("cluster-a", "cluster-b", None)] == [{7}, {8}, {9}]
    assert [set(of_one.producers(name)) for name in ("cluster-a", "cluster-b", None)] == [{7}, set(), set()]
    assert not len(whole), "they are no pages"
    whole.clear()
    assert not whole.producers("cluster-a")


@pytest.mark.parametrize(
    "key",
    [{"cluster": "a", "producer": "7"}, {"cluster": 1, "producer": 7}, {"cluster": "a", "producer": True}],
)
def test_what_names_no_producer_is_refused(key: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="names no producer"):
        LedgerView().apply(encode_document(key), encode_document({"since_ms": 0}))
