"""Where a load starts and ends in each partition, as the options say it: by offset or by time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker.types import TopicPartition
from mirrormaker.spark.given_options import (
    GivenOptions,
    is_whole_number,
    one_of,
    parse_count,
    parse_json_object,
)

LATEST = -1
EARLIEST = -2
"""How offsets given by partition say "latest" and "earliest", as in Spark's own source."""


class NoMatch(Enum):
    """What becomes of a start by time when no record is that young."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """By offset: `default` (EARLIEST or LATEST), except for the partitions in `by_partition`."""

    default: int
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> int:
        return self.by_partition.get(partition, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBounds:
    """By time, milliseconds since the epoch: the first record at or after it."""

    default: int | None = None
    """None where only some partitions have one."""
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    elsewhere: OffsetBounds | None = None
    """Of partitions that have none, None where all have one."""
    no_match: NoMatch = NoMatch.LATEST

    def of(self, partition: TopicPartition) -> int | None:
        return self.by_partition.get(partition, self.default)


Bounds = OffsetBounds | TimeBounds


def read_starting(given: GivenOptions, *, streaming: bool | None) -> Bounds:
    """What startingTimestamp, startingOffsetsByTimestamp and startingOffsets say, in that order; `streaming`
    None where that is not known yet.
    """
    no_match = given.read(
        "startingOffsetsByTimestampStrategy",
        one_of({choice.value: choice for choice in NoMatch}),
        NoMatch.ERROR,
    )
    words = {"earliest": EARLIEST, "latest": LATEST}
    if streaming is False:
        del words["latest"]
    default = LATEST if streaming else EARLIEST
    elsewhere = given.read("startingOffsetsElsewhere", one_of(words), default)
    refused = "a batch load cannot start at latest"
    offsets = given.read(
        "startingOffsets", _offset_bounds(words, elsewhere, refused), OffsetBounds(default=default)
    )
    if given.has("startingOffsetsElsewhere") and not offsets.by_partition:
        given.problems.append("option startingOffsetsElsewhere: has no effect without offsets by partition")
    return _by_time(given, "starting", offsets, no_match) or offsets


def read_ending(given: GivenOptions) -> Bounds:
    """What endingTimestamp, endingOffsetsByTimestamp and endingOffsets say, in that order."""
    refused = "a batch load cannot end at earliest"
    offsets = given.read(
        "endingOffsets",
        _offset_bounds({"latest": LATEST}, LATEST, refused),
        OffsetBounds(default=LATEST),
    )
    return _by_time(given, "ending", offsets, NoMatch.LATEST) or offsets


def _by_time(given: GivenOptions, side: str, elsewhere: OffsetBounds, no_match: NoMatch) -> TimeBounds | None:
    nowhere: dict[TopicPartition, int] = {}
    by_partition = given.read(f"{side}OffsetsByTimestamp", _parse_times, nowhere)
    default = given.read(f"{side}Timestamp", parse_count, None)
    if default is not None:
        return TimeBounds(default=default, no_match=no_match)
    if not by_partition:
        return None
    return TimeBounds(by_partition=by_partition, elsewhere=elsewhere, no_match=no_match)


def _offset_bounds(words: Mapping[str, int], default: int, refused: str) -> Callable[[str], OffsetBounds]:
    """A parser that knows `words`; `refused` says why the other of earliest and latest is none of them."""
    other = {EARLIEST, LATEST} - set(words.values())

    def parse(text: str) -> OffsetBounds:
        word = text.strip().lower()
        if word in words:
            return OffsetBounds(default=words[word])
        if word in ("earliest", "latest"):
            raise ValueError(refused)
        offsets = _by_partition(text, '{"topic": {"0": 42}}', "offset", EARLIEST)
        if other & set(offsets.values()):
            raise ValueError(refused)
        return OffsetBounds(default=default, by_partition=offsets)

    return parse


def _parse_times(text: str) -> dict[TopicPartition, int]:
    return _by_partition(text, '{"topic": {"0": 1760000000000}}', "timestamp", 0)


def _by_partition(text: str, example: str, kind: str, smallest: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, by_partition in parse_json_object(text, example).items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"the {kind}s of {topic} must be an object of partition to {kind}")
        for number, value in by_partition.items():
            if not number.isdecimal() or not is_whole_number(value, smallest):
                raise ValueError(f"{topic}: {number!r}: {value!r} is not a partition and its {kind}")
            found[TopicPartition(topic, int(number))] = value
    return found
