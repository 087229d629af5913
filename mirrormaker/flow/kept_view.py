"""What a topic that the mirror keeps says: the last value of each key. Pure.

Keys and values are JSON objects, so that anybody can read them. A key is written in one form (sorted, without
blanks), and known by it, whatever form others gave it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

Document = Mapping[str, Any]
"""A JSON object."""
Entry = tuple[Document, Document | None]
"""Key and value of a record; no value: the key is deleted."""


def encode_document(document: Document) -> bytes:
    """The one form in which the mirror writes it, text as it is: only half of a surrogate pair, which UTF-8
    does not have and JSON can escape, stays escaped.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")


def decode_document(data: bytes | None) -> Document:
    """Raises ValueError when it is no JSON object."""
    if data is None:
        raise ValueError("nothing, where a JSON object belongs")
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError(f"{type(document).__name__}, where a JSON object belongs")
    return document


class TopicView(Protocol):
    """What becomes of the records of a topic, in their order."""

    def __len__(self) -> int: ...

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record in; without a value it deletes its key. Raises ValueError, with nothing changed."""
        ...

    def clear(self) -> None:
        """The topic begins anew."""
        ...


class KeptView:
    """The records read so far, by key."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[Document, Document]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Document) -> Document | None:
        """None where there is no value, or none any more."""
        entry = self._entries.get(encode_document(key))
        return entry[1] if entry is not None else None

    def entries(self) -> Iterator[tuple[Document, Document]]:
        """All keys with their values."""
        return iter(list(self._entries.values()))

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record in; without a value it deletes its key. Raises ValueError, with nothing changed."""
        document = decode_document(key)
        if value is None:
            self._entries.pop(encode_document(document), None)
        else:
            self._entries[encode_document(document)] = document, decode_document(value)

    def clear(self) -> None:
        """The topic begins anew."""
        self._entries.clear()
