"""From what a program sends to the bytes that travel: one encoder for keys, one for values. Pure."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Encoder(Protocol):
    """Makes bytes of keys or values."""

    def encode(self, topic: str, data: Any) -> bytes | None:
        """The bytes; None is a record's missing key or value. Raises TypeError or ValueError for what it
        cannot encode: `send` raises it, and nothing is sent.
        """
        ...


class DefaultEncoder:
    """Passes bytes as they are."""

    def encode(self, topic: str, data: Any) -> bytes | None:
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise TypeError(f"{topic}: a record holds bytes, not {type(data).__name__}; an encoder may make some")


class StringEncoder:
    """Text in UTF-8, or in another encoding by its name."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def encode(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise TypeError(f"{topic}: text is expected, not {type(data).__name__}")
        return data.encode(self._encoding)


class JsonEncoder:
    """Whatever JSON can say, in UTF-8 and without spaces."""

    def encode(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
