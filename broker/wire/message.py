"""What a whole message can do: encode itself in a version, and be decoded from one."""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Generic, Self, TypeVar

from broker.errors import WireError
from broker.types import Buffer
from broker.wire.decoding import Read, compile_reader
from broker.wire.encoding import Parts, Write, compile_writer
from broker.wire.schema import OPEN_END, Struct, VersionRange

_VERSION_PREFIX = struct.Struct(">h")


class Versioned(Struct):
    """A structure that exists in versions and can be encoded by itself.

    Class options: `versions="0-11"`, `flexible="9+"` (compact lengths and tagged fields from there on).
    """

    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]
    """First flexible version; above `max_version` when there is none."""
    _writers: ClassVar[dict[int, Write]]
    _readers: ClassVar[dict[int, Read]]

    def __init_subclass__(cls, *, versions: str = "", flexible: str = "none", **options: Any) -> None:
        super().__init_subclass__(**options)
        if not versions:
            return
        cls.min_version, cls.max_version = VersionRange.parse(versions)
        cls.flexible_from = OPEN_END if flexible == "none" else VersionRange.parse(flexible).first
        cls._writers = {}
        cls._readers = {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether `version` has compact lengths and tagged fields."""
        return version >= cls.flexible_from

    def encode(self, version: int) -> bytes:
        """The bytes of this message in `version`.

        Raises WireError for an unknown version, a value that its field cannot hold, and a value that
        `version` would lose without the protocol calling that harmless.
        """
        parts = self._write(version)
        try:
            return b"".join(parts)
        except TypeError as error:
            raise WireError(f"{type(self).__name__} version {version} cannot be joined: {error}") from error

    def encode_parts(self, version: int) -> list[Any]:
        """As `encode`, with every non-empty `records` value as its own part, never copied.

        A part is bytes, or the very object given as records: a buffer, or anything whose `len` is its
        size in bytes.
        """
        parts = self._write(version)
        if not parts.cuts:
            return [b"".join(parts)]
        joined: list[Any] = []
        start = 0
        for cut in parts.cuts:
            joined += (b"".join(parts[start:cut]), parts[cut])
            start = cut + 1
        if start < len(parts):
            joined.append(b"".join(parts[start:]))
        return joined

    def _write(self, version: int) -> Parts:
        write = self._writers.get(version) or self._compile_writer(version)
        parts = Parts()
        try:
            write(self, parts)
        except (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError) as error:
            raise WireError(f"{type(self).__name__} version {version} cannot be encoded: {error}") from error
        return parts

    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> Self:
        """The message that fills `buffer` from `position` to its end; `records` values are views of `buffer`.

        Raises WireError for an unknown version and for bytes that are not exactly one message of `version`.
        """
        message, end = cls.decode_prefix(buffer, version, position)
        if end != len(buffer):
            raise WireError(f"{cls.__name__} version {version} ends at byte {end} of {len(buffer)}")
        return message

    @classmethod
    def decode_prefix(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """As `decode`, but bytes may follow; returns the position after the message too."""
        read = cls._readers.get(version) or cls._compile_reader(version)
        size = len(buffer)
        try:
            message, end = read(buffer, position, size)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"{cls.__name__} version {version} is torn or garbled: {error}") from error
        if end > size:
            raise WireError(f"{cls.__name__} version {version} is torn: {end - size} bytes are missing")
        return message, end

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.min_version <= version <= cls.max_version:
            raise WireError(
                f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}"
            )

    @classmethod
    def _compile_writer(cls, version: int) -> Write:
        cls._check_version(version)
        write = cls._writers[version] = compile_writer(cls, version, flexible=cls.is_flexible(version))
        return write

    @classmethod
    def _compile_reader(cls, version: int) -> Read:
        cls._check_version(version)
        read = cls._readers[version] = compile_reader(cls, version, flexible=cls.is_flexible(version))
        return read


class Message(Versioned):
    """A request or response of an API; class option `key` is the API key."""

    api_key: ClassVar[int]

    def __init_subclass__(cls, *, key: int = -1, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.api_key = key


ResponseType = TypeVar("ResponseType", bound=Message)


class Request(Message, Generic[ResponseType]):
    """A request, by the type of its response: `class ProduceRequest(Request["ProduceResponse"], ...)`."""


class VersionedData(Versioned):
    """A value of an internal topic or of the consumer protocol, usually led by its version as int16."""

    def encode_with_version(self, version: int) -> bytes:
        """The version as int16, then `encode(version)`."""
        return _VERSION_PREFIX.pack(version) + self.encode(version)

    @classmethod
    def decode_with_version(cls, buffer: Buffer, *, newer_as_latest: bool = False) -> tuple[int, Self]:
        """Read the int16 version, then the value. Returns (version as stored, value).

        `newer_as_latest` reads a version above ours by the fields of our latest and ignores what follows
        them, which is how the consumer protocol stays open to newer members. Raises WireError as `decode`
        does.
        """
        if len(buffer) < _VERSION_PREFIX.size:
            raise WireError(f"{cls.__name__} is torn: {len(buffer)} bytes hold no version")
        (version,) = _VERSION_PREFIX.unpack_from(buffer)
        if newer_as_latest and version > cls.max_version:
            value, _end = cls.decode_prefix(buffer, cls.max_version, _VERSION_PREFIX.size)
            return version, value
        return version, cls.decode(buffer, version, _VERSION_PREFIX.size)
