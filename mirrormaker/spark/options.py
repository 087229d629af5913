"""Options of the data source, under the names of Spark's own Kafka source; every problem is told at once.

Keys are matched without regard to case, as everywhere in Spark. Nothing is accepted that has no effect.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.security.given_options import OPTION_NAMES as SECURITY_OPTIONS
from broker.client.security.given_options import STORE_PASSWORDS
from broker.client.security.options import read_options
from broker.errors import ConfigurationError
from broker.types import HostPort, TopicPartition

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
"""How offsets given by partition say "latest" and "earliest", as in Spark's own source."""

OPTION_NAMES = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
)
_KAFKA = "kafka."
_SECURITY = {f"{_KAFKA}{name}".lower(): name for name in (*SECURITY_OPTIONS, *STORE_PASSWORDS)}
"""Options of the connection by their names in lower case, as clients call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """Where to start or end: `default` (EARLIEST or LATEST), except for the partitions in `by_partition`."""

    default: int
    by_partition: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> int:
        return self.by_partition.get(partition, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What one load was asked to read."""

    bootstrap: tuple[HostPort, ...]
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec
    partitions_min: int | None
    fail_on_data_loss: bool
    include_headers: bool
    security: ConnectionSecurity = PLAINTEXT


class _Reader:
    """Reads one option after the other and collects what is wrong with them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in options.items()}
        self.problems: list[str] = []

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"option {name}: {error}")
            return default

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def security(self) -> ConnectionSecurity:
        """How to connect, as the options with the names of Kafka's clients say."""
        given = {_SECURITY[key]: value for key, value in self._given.items() if key in _SECURITY}
        read = read_options(given)
        self.problems += [f"option {_KAFKA}{name}: {message}" for name, message in read.problems]
        return ConnectionSecurity(tls=read.tls, credentials=read.credentials)

    def refuse_unknown(self) -> None:
        known = {name.lower(): name for name in (*OPTION_NAMES, *map(_KAFKA.__add__, _SECURITY.values()))}
        for key in self._given:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f", did you mean {known[close[0]]}?" if close else ""
                self.problems.append(f"option {key} is unknown{hint}")


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of one load. Raises ConfigurationError with every problem found."""
    reader = _Reader(options)
    reader.refuse_unknown()
    if not reader.has("kafka.bootstrap.servers"):
        reader.problems.append("option kafka.bootstrap.servers is missing: a list of host:port")
    parsed = SourceOptions(
        bootstrap=reader.read("kafka.bootstrap.servers", _servers, ()),
        selection=_selection(reader),
        starting=reader.read("startingOffsets", _starting, OffsetSpec(default=EARLIEST, by_partition={})),
        ending=reader.read("endingOffsets", _ending, OffsetSpec(default=LATEST, by_partition={})),
        partitions_min=reader.read("minPartitions", _positive, None),
        fail_on_data_loss=reader.read("failOnDataLoss", _boolean, True),
        include_headers=reader.read("includeHeaders", _boolean, False),
        security=reader.security(),
    )
    if reader.problems:
        raise ConfigurationError(reader.problems)
    return parsed


def _selection(reader: _Reader) -> Selection:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if reader.has(name)]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        reader.problems.append(f"one of subscribe, subscribePattern and assign is needed, found {found}")
    return Selection(
        topics=reader.read("subscribe", _topics, ()),
        pattern=reader.read("subscribePattern", _pattern, None),
        partitions=reader.read("assign", _partitions, ()),
    )


def _servers(text: str) -> tuple[HostPort, ...]:
    return tuple(HostPort.parse(part) for part in _words(text))


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_words(text)))


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ValueError("the list is empty")
    return words


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    found = []
    for topic, numbers in _json_object(text, '{"topic": [0, 1]}').items():
        if not isinstance(numbers, list) or not all(_is_offset(number, 0) for number in numbers):
            raise ValueError(f"the partitions of {topic} must be a list of numbers")
        found += [TopicPartition(topic, number) for number in numbers]
    return tuple(found)


def _starting(text: str) -> OffsetSpec:
    if text.strip().lower() == "earliest":
        return OffsetSpec(default=EARLIEST, by_partition={})
    if text.strip().lower() == "latest":
        raise ValueError("a batch load cannot start at latest")
    return OffsetSpec(default=EARLIEST, by_partition=_offsets(text))


def _ending(text: str) -> OffsetSpec:
    if text.strip().lower() == "latest":
        return OffsetSpec(default=LATEST, by_partition={})
    if text.strip().lower() == "earliest":
        raise ValueError("a batch load cannot end at earliest")
    return OffsetSpec(default=LATEST, by_partition=_offsets(text))


def _offsets(text: str) -> dict[TopicPartition, int]:
    found = {}
    for topic, by_partition in _json_object(text, '{"topic": {"0": 42}}').items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"the offsets of {topic} must be an object of partition to offset")
        for number, offset in by_partition.items():
            if not number.isdigit() or not _is_offset(offset, EARLIEST):
                raise ValueError(f"{topic}: {number!r}: {offset!r} is not a partition and its offset")
            found[TopicPartition(topic, int(number))] = offset
    return found


def _is_offset(value: object, smallest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= smallest


def _json_object(text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{text!r} is not JSON like {example}: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{text!r} is not a JSON object like {example}")
    return value


def _positive(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is not a positive number")
    return int(text)


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"{text!r} is neither true nor false")
