"""What is done when a partition cannot go on. Never silent: an event, a metric, a state in status."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FailurePolicy(Enum):
    """FAIL stops the route until somebody resumes it. PAUSE_PARTITION stops the partition: until the trouble
    has passed where it can pass by itself, else until somebody resumes it. SKIP_AND_RECORD goes on behind
    the obstacle and notes what was left out.
    """

    FAIL = "fail"
    PAUSE_PARTITION = "pause_partition"
    SKIP_AND_RECORD = "skip_and_record"


class RecordErrorPolicy(Enum):
    """For a single record: FAIL stops the partition until somebody resumes it, PARK puts the record into a
    topic for such records, SKIP_AND_RECORD notes its offset and goes on.
    """

    FAIL = "fail"
    PARK = "park"
    SKIP_AND_RECORD = "skip_and_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicies:
    """What is done, by what has happened."""

    source_gap: FailurePolicy = FailurePolicy.SKIP_AND_RECORD
    """The source has deleted records that were not copied yet: `skip_and_record` goes on at its oldest."""
    topic_recreated: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """The source topic was deleted and made anew; `skip_and_record` copies the new one from its start."""
    topic_deleted: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """The source topic is gone: `pause_partition` waits for it, `skip_and_record` forgets it."""
    source_truncated: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """The source has lost records that were copied already; `skip_and_record` goes on where its log parts
    from what was copied.
    """
    partition_mismatch: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """The destination topic has other partitions than the source's, and cannot be made to match;
    `skip_and_record` copies all the same.
    """
    oversize: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """A record is larger than the destination takes; `pause_partition` tries it again, should that change."""
    unauthorized: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """A right is missing at the source or the destination. Nothing is ever skipped for that."""
    destination_full: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """The destination has no room, or a quota is used up. Nothing is ever skipped for that."""
    not_shallow: FailurePolicy = FailurePolicy.PAUSE_PARTITION
    """A batch would have to be decoded, and the route says `copy: shallow`."""
    record_error: RecordErrorPolicy = RecordErrorPolicy.FAIL
    """A filter or transform cannot process a record: `fail` has its partition stand, `park` puts it into a
    topic for such records.
    """
