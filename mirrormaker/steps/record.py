"""Records on their way through steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.records.filter_terms import LookedAt
from broker.records.record import Header, Record
from mirrormaker.steps.exact_json import problem_of, read_exactly, repeats_names, write_json


class RecordError(Exception):
    """A step cannot process a record; the message says why."""


class TransitRecord(NamedTuple):
    """What a function of a route is given, and what it returns: this record, others made of it with
    `_replace`, a list of such, or None.
    """

    topic: str
    """Of the source; so are partition and offset. Changing these has no effect."""
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    """Bytes of names that are not UTF-8 are there as `surrogateescape` has them."""
    to: str
    """The topic that it goes to: the route's own, or one that a step of the route names."""


class RecordAtWork(LookedAt):
    """A record that steps change: its value is read as JSON, and written again, at most once."""

    __slots__ = ("_is_document_changed", "_opened", "offset", "partition", "timestamp", "to")

    def __init__(self, record: Record, to: str, partition: int) -> None:
        """`partition`: of the source."""
        super().__init__(record.key, record.value, record.headers)
        self.offset = record.offset
        self.timestamp = record.timestamp
        self.to = to
        self.partition = partition
        self._is_document_changed = False
        self._opened: Any = None

    def object(self) -> Any:
        """The value as JSON, to be changed in place (see `changed`), numbers that Python would round as they
        are spelt; None for no value.

        Raises RecordError when there is a value and it is no JSON object or list.
        """
        if self.value is None:
            return None
        if self._opened is None:
            document = read_exactly(self.value)
            if document is None:
                document = self.document
            if not isinstance(document, dict | list):
                raise RecordError(f"the value is no JSON object: {problem_of(self.value)}")
            self._opened = document
        return self._opened

    def changed(self) -> None:
        """The document is another than the value now."""
        self._is_document_changed = True

    def is_without(self, field: str) -> None:
        """Let nobody find in the value what its document does not have: where an object has a name twice the
        document knows the last of them, and the value is written anew with that alone. `field`: the last name
        of what was looked for.
        """
        if self._is_document_changed or self.value is None:
            return
        is_written_plainly = b"\\" not in self.value and b"\0" not in self.value
        if is_written_plainly and field.encode(errors="replace") not in self.value:
            return
        if repeats_names(self.value):
            self.changed()

    def settle(self) -> None:
        """Let the value be what the document says. Raises RecordError when it is nested more deeply than can
        be written, though it could be read.
        """
        if self._is_document_changed:
            self._is_document_changed = False
            try:
                self.value = write_json(self._opened)
            except RecursionError:
                raise RecordError("the value is nested too deeply to be written") from None
            self._opened = None
            self.look_anew()

    def record(self) -> Record:
        """The record as it is now. Raises as `settle` does."""
        self.settle()
        return Record(self.offset, self.timestamp, 0, self.key, self.value, self.headers)
