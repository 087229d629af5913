"""Runs that ask whether all has arrived that the sources of their topics had."""

from __future__ import annotations

import pytest

from mirrormaker.pipelines.runner import RunFailedError
from tests.conftest import ClusterFactory
from tests.pipelines.place import HOUR_MS, START_MS, Place, order, produce


@pytest.mark.long
def test_a_run_goes_on_that_is_due_before_the_last_one_that_was_complete(place: Place) -> None:
    place.keys = f"{place.keys}    require: complete\n"
    place.produce([order(0, 0)])
    by_hand = place.run(due_ms=START_MS + HOUR_MS)
    assert by_hand.complete_until_ms == START_MS + HOUR_MS
    place.produce([order(1, 0)])
    assert place.run(trigger="retry", due_ms=START_MS).rows_read == 1


@pytest.mark.long
def test_all_is_waited_for_that_no_run_has_asked_for_in_topics_that_are_yet_to_come(
    place: Place, cluster: ClusterFactory
) -> None:
    (source,) = cluster("jfk").bootstrap
    produce(str(source), "flights", [order(0, 0)])
    place.produce([order(0, 0)])
    place.sources = f', jfk: {{bootstrap: ["{source}"]}}'
    place.routes = "[{from: jfk, to: a, topics: {include: [flights]}}]"
    place.topic = f"{place.topic}|jfk[.]flights"
    assert place.run(due_ms=START_MS + HOUR_MS).complete_until_ms is None
    place.keys = f"{place.keys}    require: complete\n    patience: 1s\n"
    with pytest.raises(
        RunFailedError, match="not complete after 1000 ms: jfk: flights-0: 1 offsets have not"
    ):
        place.run(due_ms=START_MS + 2 * HOUR_MS)
