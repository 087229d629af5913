"""What steps take from outside of the topology file: functions by their dotted path, and secrets."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from broker.errors import ConfigurationError
from broker.records.record import Record, name_bytes
from mirrormaker.steps.changes import Change
from mirrormaker.steps.record import RecordAtWork, RecordError, TransitRecord
from mirrormaker.topology.document import suggestion
from mirrormaker.topology.model import CallFunction

_TIMESTAMP_LIMIT = 1 << 62
"""Differences of times within these fit into a batch."""
_WORDS_MAX = 1_000
"""Characters that are told of what somebody's code raised: notes of records have it."""


class CallWatch:
    """How long somebody's code has taken, all calls together."""

    def __init__(self) -> None:
        self._ns = 0

    def spent_ns(self) -> int:
        """Until now."""
        return self._ns

    def call(self, function: Callable[[TransitRecord], object], record: TransitRecord) -> object:
        """What the function makes of the record."""
        started_ns = time.perf_counter_ns()
        try:
            return function(record)
        finally:
            self._ns += time.perf_counter_ns() - started_ns


def find_function(step: CallFunction) -> Callable[..., object]:
    """What the file names, imported now. Raises ConfigurationError when there is no such function."""
    path = f"{step.module}:{step.name}"
    hint = ""
    try:
        module = importlib.import_module(step.module)
        if not hasattr(module, step.name):
            hint = suggestion(step.name, dir(module))
        function = getattr(module, step.name)
    except BaseException as error:  # see `load_function`
        raise ConfigurationError([f"function {path}: {_told(error)}{hint}"]) from error
    if not callable(function):
        raise ConfigurationError([f"function {path}: it cannot be called"])
    return function  # type: ignore[no-any-return]


def load_function(step: CallFunction, topic: str, watch: CallWatch) -> Change:
    """The step of a function, imported now, for records of a source topic; `watch` knows how long it takes.

    Whatever somebody's code raises ends neither the process nor the route: KeyboardInterrupt, too, is none of
    a signal's, as processes that copy have their loop take those.

    Raises ConfigurationError when there is no such function.
    """
    function = find_function(step)
    path = f"{step.module}:{step.name}"

    def change(work: RecordAtWork) -> Sequence[RecordAtWork]:
        record = work.record()
        given = TransitRecord(
            topic,
            work.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
            work.to,
        )
        try:
            outcome = watch.call(function, given)
            if outcome is given:
                return (work,)
            return [_checked(made, work, path) for made in _several(outcome, path)]
        except RecordError:
            raise
        except BaseException as error:
            raise RecordError(f"{path}: {_told(error)}") from error

    return change


def read_secret(key: str, reference: str) -> bytes:
    """What `env:NAME` or `file:/PATH`, the value of a key of the file, refers to. Raises ConfigurationError
    when it is not there or empty.
    """
    kind, _, name = reference.partition(":")
    try:
        secret = os.environb.get(name.encode(), b"") if kind == "env" else Path(name).read_bytes().strip()
    except OSError as error:
        raise ConfigurationError([f"{key}: secret {reference}: {error.strerror}"]) from error
    if not secret:
        raise ConfigurationError([f"{key}: secret {reference}: there is none"])
    return secret


def _told(error: BaseException) -> str:
    """What somebody's code raised, in a line that can be written; saying what it is may fail, too."""
    name = type(error).__name__
    try:
        words = " ".join(str(error).split()).encode(errors="backslashreplace").decode()
    except BaseException:  # noqa: BLE001 - of somebody's code, as above
        return name
    return f"{name}: {words[:_WORDS_MAX]}"


def _several(outcome: object, path: str) -> Iterable[Any]:
    if outcome is None:
        return ()
    if isinstance(outcome, TransitRecord):
        return (outcome,)
    if isinstance(outcome, list):
        return outcome
    raise RecordError(f"{path}: returned {type(outcome).__name__}, not a record, a list of them or None")


def _checked(made: Any, work: RecordAtWork, path: str) -> RecordAtWork:
    """What a function made, as a record that can be written."""
    if not isinstance(made, TransitRecord):
        raise RecordError(f"{path}: returned {type(made).__name__} for a record")
    for name, field in (("key", made.key), ("value", made.value)):
        if field is not None and not isinstance(field, bytes):
            raise RecordError(f"{path}: the {name} is {type(field).__name__}, not bytes")
    if not isinstance(made.timestamp_ms, int) or not isinstance(made.to, str):
        raise RecordError(f"{path}: 'timestamp_ms' is a whole number, 'to' the name of a topic")
    if made.timestamp_ms != work.timestamp and not 0 <= made.timestamp_ms < _TIMESTAMP_LIMIT:
        raise RecordError(f"{path}: 'timestamp_ms' is not milliseconds since 1970: {made.timestamp_ms}")
    try:
        headers = tuple((name, value) for name, value in made.headers)
    except (TypeError, ValueError):
        raise RecordError(f"{path}: headers are pairs of name and value") from None
    if not all(
        isinstance(name, str) and (value is None or isinstance(value, bytes)) for name, value in headers
    ):
        raise RecordError(f"{path}: a header has a name of text and a value of bytes")
    if any(not _has_bytes(name) for name, _ in headers):
        raise RecordError(f"{path}: the name of a header is half of a surrogate pair")
    record = Record(work.offset, made.timestamp_ms, 0, made.key, made.value, headers)
    return RecordAtWork(record, made.to, work.partition)


def _has_bytes(name: str) -> bool:
    try:
        name_bytes(name)
    except UnicodeEncodeError:
        return False
    return True
