"""Options of reading, under the names of Spark's own Kafka source; every problem is told at once.

What is accepted has its effect. The exceptions are settings of Java's consumer that tune machinery that there
is none of here (`java_settings`), and, with a warning, how much a trigger takes in a load that has none: they
are let pass so that a job moves from `kafka` to `mirror` by one word.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.types import HostPort, TopicPartition
from mirrormaker.spark.bounds import Bounds, read_ending, read_starting
from mirrormaker.spark.given_options import (
    GivenOptions,
    is_whole_number,
    one_of,
    parse_boolean,
    parse_count,
    parse_duration_ms,
    parse_json_object,
    parse_positive,
    parse_size,
    parse_size_or_zero,
    parse_text,
    parse_words,
)
from mirrormaker.spark.java_settings import READING_PASSED, READING_REFUSED

CLIENT_ID = "mirrormaker-spark"
_STARTING = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsetsElsewhere",
)
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_RATES = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_TERMS = (
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.check.crcs",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
)
OPTION_NAMES = (
    "subscribe",
    "subscribePattern",
    "subscribePatterns",
    "assign",
    *_STARTING,
    *_ENDING,
    *_RATES,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "pushFilters",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    *_TERMS,
)
_WRITING = {"topic": "is for writing: subscribe says what is read"}
_ONLY_BATCH = "streaming queries have no end and get no conditions: this is for spark.read"
_ONLY_STREAMING = "is passed over: a load reads all of it at once, this is for spark.readStream"
_ISOLATION = {"read_uncommitted": False, "read_committed": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """Topics whose name, whole or any part of it, one that includes matches and none that excludes."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    is_of_whole_names: bool = True

    def selects(self, topic: str) -> bool:
        return self._matches(self.include, topic) and not self._matches(self.exclude, topic)

    def _matches(self, patterns: tuple[str, ...], topic: str) -> bool:
        match = re.fullmatch if self.is_of_whole_names else re.search
        return any(match(pattern, topic) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    patterns: Patterns | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def names(self, partition: TopicPartition) -> bool:
        """Whether it is to be read where it is there."""
        if self.patterns is not None:
            return self.patterns.selects(partition.topic)
        return partition in self.partitions or partition.topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """How tasks fetch; sizes in bytes, times in milliseconds."""

    committed_only: bool = False
    """Leave records of open and aborted transactions out."""
    check_crcs: bool = True
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    partition_max_bytes: int = 8 * 1024 * 1024
    poll_timeout_ms: int = 120_000
    """How long a task waits for records that must be there."""
    rack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach the cluster, and how its offsets are asked for."""

    bootstrap: tuple[HostPort, ...]
    client_id: str = CLIENT_ID
    request_timeout_ms: int = 30_000
    security: ConnectionSecurity = PLAINTEXT
    retries: int = 3
    retry_interval_ms: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """How much one trigger of a streaming query takes."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_max_ms: int = 15 * 60_000
    """After so long a trigger takes what there is, if less than `offsets_min`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What one load or query was asked to read."""

    cluster: ClusterOptions
    selection: Selection
    starting: Bounds
    ending: Bounds
    partitions_min: int | None = None
    records_max: int | None = None
    """Offsets of one task at most."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    push_filters: bool = False
    """Whether conditions of the one query of a frame shorten what is read."""
    terms: FetchTerms = field(default_factory=FetchTerms)
    admission: Admission = field(default_factory=Admission)


def parse_options(options: Mapping[str, str], *, streaming: bool | None = False) -> SourceOptions:
    """Read the options of one load or query; `streaming` None takes what either of them takes. Warns of those
    that have no effect in a load. Raises ConfigurationError with every problem found.
    """
    given = GivenOptions(options)
    given.refuse_unknown((*OPTION_NAMES, *READING_PASSED, *READING_REFUSED), _WRITING)
    given.refuse(READING_REFUSED)
    if streaming:
        given.refuse(dict.fromkeys((*_ENDING, "pushFilters"), _ONLY_BATCH))
    parsed = SourceOptions(
        cluster=_read_cluster(given),
        selection=_read_selection(given),
        starting=read_starting(given, streaming=streaming),
        ending=read_ending(given),
        partitions_min=given.read("minPartitions", parse_positive, None),
        records_max=given.read("maxRecordsPerPartition", parse_positive, None),
        fail_on_data_loss=given.read("failOnDataLoss", parse_boolean, True),
        include_headers=given.read("includeHeaders", parse_boolean, False),
        push_filters=given.read("pushFilters", parse_boolean, False),
        terms=_read_terms(given),
        admission=_read_admission(given),
    )
    given.raise_problems()
    for name in filter(given.has, _RATES if streaming is False else ()):
        warnings.warn(f"option {name} {_ONLY_STREAMING}", stacklevel=2)
    return parsed


def _read_cluster(given: GivenOptions) -> ClusterOptions:
    prefix = given.read("groupIdPrefix", parse_text, CLIENT_ID)
    group = given.read("kafka.group.id", parse_text, prefix)
    return ClusterOptions(
        bootstrap=given.servers(),
        client_id=given.read("kafka.client.id", parse_text, group),
        request_timeout_ms=given.read("kafka.request.timeout.ms", parse_size, 30_000),
        security=given.security(),
        retries=given.read("fetchOffset.numRetries", parse_count, 3),
        retry_interval_ms=given.read("fetchOffset.retryIntervalMs", parse_count, 10),
    )


def _read_terms(given: GivenOptions) -> FetchTerms:
    defaults = FetchTerms()
    return FetchTerms(
        committed_only=given.read("kafka.isolation.level", one_of(_ISOLATION), defaults.committed_only),
        check_crcs=given.read("kafka.check.crcs", parse_boolean, defaults.check_crcs),
        fetch_max_bytes=given.read("kafka.fetch.max.bytes", parse_size, defaults.fetch_max_bytes),
        fetch_max_wait_ms=given.read(
            "kafka.fetch.max.wait.ms", parse_size_or_zero, defaults.fetch_max_wait_ms
        ),
        fetch_min_bytes=given.read("kafka.fetch.min.bytes", parse_size_or_zero, defaults.fetch_min_bytes),
        partition_max_bytes=given.read(
            "kafka.max.partition.fetch.bytes", parse_size, defaults.partition_max_bytes
        ),
        poll_timeout_ms=given.read("kafkaConsumer.pollTimeoutMs", parse_positive, defaults.poll_timeout_ms),
        rack=given.read("kafka.client.rack", parse_text, defaults.rack),
    )


def _read_admission(given: GivenOptions) -> Admission:
    admission = Admission(
        offsets_max=given.read("maxOffsetsPerTrigger", parse_positive, None),
        offsets_min=given.read("minOffsetsPerTrigger", parse_positive, None),
        delay_max_ms=given.read("maxTriggerDelay", parse_duration_ms, Admission().delay_max_ms),
    )
    if admission.offsets_max is not None and (admission.offsets_min or 0) > admission.offsets_max:
        given.problems.append("option minOffsetsPerTrigger: is more than maxOffsetsPerTrigger")
    return admission


def _read_selection(given: GivenOptions) -> Selection:
    found = [
        name for name in ("subscribe", "subscribePattern", "subscribePatterns", "assign") if given.has(name)
    ]
    if len(found) != 1:
        names = " and ".join(found) if found else "none"
        given.problems.append(f"one of subscribe, subscribePattern and assign is needed, found {names}")
    pattern = given.read("subscribePattern", _parse_pattern, None)
    return Selection(
        topics=given.read("subscribe", _parse_topics, ()),
        patterns=given.read("subscribePatterns", _parse_patterns, pattern),
        partitions=given.read("assign", _parse_partitions, ()),
    )


def _parse_topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_words(text)))


def _parse_pattern(text: str) -> Patterns:
    """As Spark's own source has it, or refused where it would select other topics there."""
    pattern = parse_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            return Patterns(include=(_checked(pattern),), is_of_whole_names=False)
        except FutureWarning as warning:
            raise ValueError(f"{pattern!r} has sets within sets, which are Java's alone") from warning


def _parse_patterns(text: str) -> Patterns:
    told = {"include": [], "exclude": []} | parse_json_object(text, '{"include": ["a.*"], "exclude": []}')
    if told.keys() != {"include", "exclude"}:
        raise ValueError("there are include and exclude")
    for name, patterns in told.items():
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ValueError(f"{name} must be a list of regular expressions")
    include, exclude = (tuple(map(_checked, told[name])) for name in ("include", "exclude"))
    return Patterns(include=include, exclude=exclude)


def _checked(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


def _parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    found = []
    for topic, numbers in parse_json_object(text, '{"topic": [0, 1]}').items():
        if not isinstance(numbers, list) or not all(is_whole_number(number, 0) for number in numbers):
            raise ValueError(f"the partitions of {topic} must be a list of numbers")
        found += [TopicPartition(topic, number) for number in numbers]
    return tuple(found)
