"""Our transactional producer on our nodes."""

from __future__ import annotations

from tests.client.transaction_cases import (  # noqa: F401 collected here
    test_a_newer_producer_of_the_same_id_fences_the_older_one,
    test_calls_out_of_turn_are_refused,
    test_committed_transactions_are_seen_and_aborted_ones_are_not,
    test_positions_of_a_group_are_committed_with_the_records_or_not_at_all,
)
