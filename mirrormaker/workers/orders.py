"""What a daemon tells its workers by their standard input, and they tell it by their standard output: a JSON
object a line. Pure.

    {"order": "be", "number": N}                       be this worker; comes once, before anything else
    {"order": "run", "text": TOPOLOGY, "file": PATH}   run your part of this, and nothing else
    {"order": "claims", "claims": {CLUSTER: {ROUTE: [TOPIC]}}}   who writes what at contested destinations
    {"order": "limits", "statements": [{...}]}         what others tell of the limits that they share
    {"order": "tails", "tails": {GROUP: {"revision", "first": [[TOPIC, PARTITION, OFFSET]]}}}
                                                       what only the idle sides of failover groups have
    {"order": "leave"}                                 give everything up for good, and end

Back comes a picture of the worker, again and again; the daemon takes one that is silent for one that hangs.
The end of standard input means that the daemon is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.errors import BrokerError
from broker.types import TopicPartition
from mirrormaker.flow.bandwidth.statements import Statement, decode_statements, encode_statement
from mirrormaker.reconcile.switches import IdleTail
from mirrormaker.reconcile.topology_file import TopologyText

LINE_BYTES_MAX = 1 << 28
"""Of an order or a picture: some million partitions."""


class GarbledLineError(BrokerError):
    """A line that is no order or no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Be:
    """Be this worker of the daemon."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run your part of this topology."""

    source: TopologyText


@dataclass(frozen=True, slots=True, kw_only=True)
class Heed:
    """Write of contested destinations what these claims grant, and nothing else."""

    claims: Mapping[str, Mapping[str, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hear:
    """Go by what the other processes tell of shared limits."""

    statements: Sequence[Statement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Carry consumer groups no further than to what was found at the idle sides of failover groups."""

    tails: Mapping[str, IdleTail]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Give everything up, for others to have it at once."""


Order = Be | Run | Heed | Hear | Hold | Leave


def encode_order(order: Order) -> bytes:
    """A line."""
    match order:
        case Be(number=number):
            return _line({"order": "be", "number": number})
        case Run(source=source):
            return _line({"order": "run", "text": source.text, "file": str(source.file)})
        case Heed(claims=claims):
            return _line({"order": "claims", "claims": claims})
        case Hear(statements=statements):
            return _line({"order": "limits", "statements": [encode_statement(one) for one in statements]})
        case Hold(tails=tails):
            return _line({"order": "tails", "tails": {name: _tail_value(one) for name, one in tails.items()}})
        case Leave():
            return _line({"order": "leave"})


def decode_order(line: bytes) -> Order:
    """Raises GarbledLineError."""
    match _decode(line):
        case {"order": "be", "number": int(number)}:
            return Be(number=number)
        case {"order": "run", "text": str(text), "file": str(file)}:
            return Run(source=TopologyText(text=text, file=Path(file)))
        case {"order": "claims", "claims": dict(claims)}:
            return Heed(claims=claims)
        case {"order": "limits", "statements": list(statements)}:
            return Hear(statements=decode_statements(statements))
        case {"order": "tails", "tails": dict(tails)}:
            return Hold(tails={name: _read_tail(value) for name, value in tails.items()})
        case {"order": "leave"}:
            return Leave()
    raise GarbledLineError(f"no order: {line[:100]!r}")


def _tail_value(tail: IdleTail) -> dict[str, Any]:
    return {
        "revision": tail.revision,
        "first": [[at.topic, at.partition, offset] for at, offset in tail.first.items()],
    }


def _read_tail(value: Mapping[str, Any]) -> IdleTail:
    first = {TopicPartition(topic, partition): offset for topic, partition, offset in value["first"]}
    return IdleTail(revision=value["revision"], first=first)


def encode_picture(picture: dict[str, Any]) -> bytes:
    """A line."""
    return _line(picture)


def decode_picture(line: bytes) -> dict[str, Any]:
    """Raises GarbledLineError."""
    told = _decode(line)
    match told:
        case {"routes": dict(), "at_ms": int(), "digest": str()}:
            return dict(told)
    raise GarbledLineError(f"no picture: {line[:100]!r}")


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _decode(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise GarbledLineError(f"not JSON: {line[:100]!r}") from error
