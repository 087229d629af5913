"""What is kept of every run of a pipeline: a JSON object, said anew when something has changed. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from broker.errors import BrokerError

CUT_OFF = "cut off: its process was killed, its machine went down, or there was no room for its record"
"""Why a run failed that has not said so itself."""
BY_HAND = "command"
"""The trigger of a run that is none of the schedule's."""


class RunKind(Enum):
    """LOAD what is new, RELOAD windows, or a JOB of its own."""

    LOAD = "load"
    RELOAD = "reload"
    JOB = "job"


class RunState(Enum):
    """WAITING for its window to be complete, RUNNING, and its three ends."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (RunState.WAITING, RunState.RUNNING)


class GarbledRecordError(BrokerError):
    """A line that is no record of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run. Times in milliseconds since the epoch."""

    run: str
    """Its id."""
    pipeline: str
    kind: RunKind
    state: RunState
    trigger: str
    """`schedule`, `retry` or `command`."""
    attempt: int
    due_ms: int | None
    """The point of the schedule that it is for."""
    started_ms: int
    at_ms: int
    """When this was written."""
    ended_ms: int | None = None
    batches: int = 0
    offsets: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    """Topic -> partition -> from (inclusive) and to (exclusive)."""
    rows_read: int = 0
    rows_quarantined: int = 0
    rows_late: int = 0
    """Left out of steps that gather rows over time, as they came after the watermark."""
    rows_written: Mapping[str, int] = field(default_factory=dict)
    """By sink."""
    hours: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Topic -> hour (`2013-01-31T07`) -> rows read of it."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """Query of a checkpoint -> the last of its batches that is in the figures here, or in those of a run
    before: one that comes again, as Spark had not noted that it was done, is in those of one run alone.
    """
    windows: tuple[str, ...] = ()
    """What a reload has written anew."""
    incomplete: tuple[str, ...] = ()
    """What the audit said was missing, in lines for people."""
    complete_until_ms: int | None = None
    """Up to when it has seen that everything had arrived; None where it has not looked, or it had not."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What a job has to tell."""
    problem: str | None = None
    """Why it failed."""

    @property
    def offsets_read(self) -> int:
        """Offsets that it went over."""
        return sum(end - start for parts in self.offsets.values() for start, end in parts.values())


def kept_figures(told: Mapping[Any, Any]) -> dict[str, Any]:
    """What a record keeps of figures: what JSON has, and anything else as text."""
    return {str(key): _kept(value) for key, value in told.items()}


def _kept(told: object) -> Any:
    match told:
        case Mapping():
            return kept_figures(told)
        case list() | tuple() | set() | frozenset():
            return [_kept(each) for each in told]
        case None | str() | bool() | int():
            return told
        case float() if math.isfinite(told):
            return told
        case _:
            return str(told)


def encode_record(record: RunRecord) -> str:
    """A line, without its end."""
    told = asdict(record) | {"kind": record.kind.value, "state": record.state.value}
    return json.dumps(told, separators=(",", ":"), default=str)


def decode_record(line: str) -> RunRecord:
    """Raises GarbledRecordError."""
    try:
        told = json.loads(line)
        offsets = {
            topic: {number: (int(start), int(end)) for number, (start, end) in parts.items()}
            for topic, parts in told["offsets"].items()
        }
        lists = {key: tuple(told[key]) for key in ("windows", "incomplete")}
        kinds = {"kind": RunKind(told["kind"]), "state": RunState(told["state"])}
        return RunRecord(**told | kinds | lists | {"offsets": offsets})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise GarbledRecordError(f"no record of a run: {line[:100]!r}: {error}") from error


def fold_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """What was said last of each run, in the order in which they were first heard of: a clock may have been
    ahead meanwhile.
    """
    last: dict[str, RunRecord] = {}
    for record in records:
        last[record.run] = record
    return list(last.values())


def ended_runs(records: Iterable[RunRecord], problem: str, ended_ms: int | None = None) -> list[RunRecord]:
    """Those that are not over, as failed for `problem`; they ended at `ended_ms`, or when last heard of."""
    return [
        replace(
            record,
            state=RunState.FAILED,
            ended_ms=record.at_ms if ended_ms is None else ended_ms,
            problem=problem,
        )
        for record in records
        if not record.state.is_over
    ]


def counted_batches(records: Iterable[RunRecord]) -> dict[str, int]:
    """Query -> the last of its batches that is in the figures of any of these."""
    found: dict[str, int] = {}
    for record in records:
        for query, number in record.counted.items():
            found[query] = max(number, found.get(query, number))
    return found


def merge_offsets(
    known: Mapping[str, Mapping[str, tuple[int, int]]], more: Mapping[str, Mapping[str, tuple[int, int]]]
) -> dict[str, dict[str, tuple[int, int]]]:
    """From the least start to the last end of every partition."""
    merged = {topic: dict(parts) for topic, parts in known.items()}
    for topic, parts in more.items():
        for number, (start, end) in parts.items():
            before = merged.setdefault(topic, {}).get(number)
            merged[topic][number] = (
                (start, end) if before is None else (min(before[0], start), max(before[1], end))
            )
    return merged


def add_counts(
    known: Mapping[str, Mapping[str, int]], more: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Both together, number by number."""
    added = {name: dict(counts) for name, counts in known.items()}
    for name, counts in more.items():
        for key, count in counts.items():
            added.setdefault(name, {})[key] = added.get(name, {}).get(key, 0) + count
    return added
