"""What operators are told of a log that was opened, when there is something to tell."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from broker.storage.log import Log


def tell(events: FilteringBoundLogger, log: Log) -> None:
    """Log what opening it found to do, and what of it is missing."""
    report = log.recovery_report
    events = events.bind(partition=str(log.topic_partition))
    cut = {"cut_bytes": report.cut_size, "segments_removed": report.segments_removed}
    if report.is_notable:
        events.info(
            "log_recovered",
            log_end_offset=log.log_end_offset,
            checked_bytes=report.checked_size,
            **cut,
            indexes_rebuilt=report.indexes_rebuilt,
            transaction_indexes_rebuilt=report.transaction_indexes_rebuilt,
            leader_epochs_rebuilt=report.leader_epochs_rebuilt,
            files_removed=len(report.files_removed),
            topic_id_lost=report.topic_id_lost,
            lacked_room=report.lacked_room,
        )
    if report.is_damaged:
        events.error(
            "log_damaged",
            cut_from=log.log_end_offset,
            **cut,
            kept_in=[str(log.directory / name) for name in report.kept],
            lost_bytes=report.lost_size,
        )
    if report.segments_missing or report.holes:
        events.error(
            "log_segments_missing",
            segments=report.segments_missing,
            holes=[f"{start}-{end - 1}" for start, end in report.holes],
        )
