"""How many records of each hour a checkpoint has loaded, by the figures of its runs. Pure.

Runs that are remembered say it by topic and hour. Of those that are not, `PastRuns` keeps how many batches
they had and the last hour that they read of a topic: so it is known of all hours after that. Figures tell
nothing where batches are lacking in them, as those of another daemon.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from mirrormaker.pipelines.run_record import GarbledRecordError, RunRecord, add_counts, counted_batches

HourCounts = Mapping[str, Mapping[str, int]]
"""Topic -> hour (`2013-01-31T07`) -> records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRuns:
    """What is kept of runs that are not remembered any more."""

    batches: Mapping[str, int] = field(default_factory=dict)
    """Checkpoint -> how many of its batches they had."""
    last_hours: Mapping[str, str] = field(default_factory=dict)
    """Topic -> the last hour that they read of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRange:
    """Hours from `first` (inclusive) to `end` (exclusive), as they are written."""

    first: str
    end: str

    def has(self, hour: str) -> bool:
        return self.first <= hour < self.end


ALL_HOURS = HourRange(first="", end="~")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedHours:
    """What all batches of a query together have read."""

    counts: HourCounts
    known_after: Mapping[str, str]
    """Topic -> the last hour of which more may have been read."""

    def of(self, topic: str, asked: HourRange) -> Mapping[str, int] | None:
        """Records by hour; None where that is not known any more."""
        if topic in self.known_after and self.known_after[topic] >= asked.first:
            return None
        return {hour: count for hour, count in self.counts.get(topic, {}).items() if asked.has(hour)}


def with_past(past: PastRuns, records: Iterable[RunRecord]) -> PastRuns:
    """These runs among those that are past."""
    batches, last_hours = Counter(past.batches), dict(past.last_hours)
    for record in records:
        for checkpoint in {query.partition("/")[0] for query in record.counted}:
            batches[checkpoint] += record.batches
        for topic, hours in record.hours.items():
            last_hours[topic] = max([*hours, last_hours.get(topic, "")])
    return PastRuns(batches=dict(batches), last_hours=last_hours)


def encode_past(past: PastRuns) -> str:
    """A line, without its end."""
    return json.dumps({"past": asdict(past)}, separators=(",", ":"))


def decode_past(line: str) -> PastRuns:
    """Raises GarbledRecordError."""
    try:
        return PastRuns(**json.loads(line)["past"])
    except (ValueError, TypeError, KeyError) as error:
        raise GarbledRecordError(f"this does not say what runs had: {line[:100]!r}: {error}") from error


def loaded_hours(
    past: PastRuns, records: Iterable[RunRecord], query: str, batches: int
) -> LoadedHours | None:
    """What `query` (CHECKPOINT/NAME, the only one of its checkpoint) has read, of which so many batches are
    done. None where the figures are not of all of them.
    """
    checkpoint = query.partition("/")[0]
    runs = [record for record in records if query in record.counted]
    counted = counted_batches(runs).get(query, -1) + 1
    in_figures = past.batches.get(checkpoint, 0) + sum(run.batches for run in runs)
    if counted < batches or in_figures != counted:
        return None
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        found = add_counts(found, run.hours)
    return LoadedHours(counts=found, known_after=past.last_hours)
