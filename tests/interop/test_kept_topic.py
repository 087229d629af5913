"""Topics that the mirror keeps at a cluster of Apache Kafka."""

from __future__ import annotations

from tests.flow.kept_topic_cases import (  # noqa: F401 collected here too
    test_a_kept_topic_is_made_compacted_and_says_what_was_put,
    test_a_topic_that_is_deleted_or_made_anew_by_others_is_read_anew,
    test_of_several_writers_the_last_one_wins_for_all_readers,
    test_what_a_transaction_wrote_is_seen_when_it_is_committed,
)
from tests.interop.test_own_client import cluster  # noqa: F401 a fixture
