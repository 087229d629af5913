"""Frames with their headers: request and response as they travel, size prefix included.

The client id of a request header is a nullable string with an int16 length in every version, the flexible
ones too, so that a server can read the header of a version it does not know.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, NamedTuple

from broker.errors import WireError
from broker.types import Buffer
from broker.wire.message import Message, ResponseType
from broker.wire.primitives import skip_tagged_fields
from broker.wire.registry import APIS, Api, api_of

_REQUEST_START = Struct(">hhi")
_REQUEST_START_AND_LENGTH = Struct(">hhih")
_SIZED_REQUEST_START = Struct(">ihhi")
_SIZED_REQUEST_START_AND_LENGTH = Struct(">ihhih")
_CORRELATION_ID = Struct(">i")
_SIZED_CORRELATION_ID = Struct(">ii")
_SIZED_CORRELATION_ID_AND_TAGS = Struct(">iix")
_CLIENT_ID_SIZE_MAX = 0x7FFF


class RequestHeader(NamedTuple):
    """Header of a request; the body begins at `body_position` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """The frame of `request` in parts, the first with size prefix and header. Raises WireError."""
    header_version = api_of(request).request_header_version(version)
    parts = request.encode_parts(version)
    body_size = sum(map(len, parts))
    if header_version == 0:
        size = _REQUEST_START.size + body_size
        parts[0] = _SIZED_REQUEST_START.pack(size, request.api_key, version, correlation_id) + parts[0]
        return parts
    name = b"" if client_id is None else client_id.encode()
    if len(name) > _CLIENT_ID_SIZE_MAX:
        raise WireError(f"a client id of {len(name)} bytes is over the limit of {_CLIENT_ID_SIZE_MAX}")
    tags = b"\0" if header_version == 2 else b""
    size = _REQUEST_START_AND_LENGTH.size + len(name) + len(tags) + body_size
    length = -1 if client_id is None else len(name)
    start = _SIZED_REQUEST_START_AND_LENGTH.pack(size, request.api_key, version, correlation_id, length)
    parts[0] = b"".join((start, name, tags, parts[0]))
    return parts


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a frame without its size prefix; the version may be one that we have no tables for.

    Raises WireError when the frame is torn or its API key is unknown.
    """
    try:
        api_key, version, correlation_id = _REQUEST_START.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            raise WireError(f"API key {api_key} is unknown")
        header_version = api.request_header_version(version)
        position = _REQUEST_START.size
        if header_version == 0:
            return RequestHeader(api_key, version, correlation_id, None, position)
        length = _REQUEST_START_AND_LENGTH.unpack_from(frame)[3]
        position = _REQUEST_START_AND_LENGTH.size
        if length < -1 or position + length > len(frame):
            raise WireError(f"a client id of {length} bytes in a frame of {len(frame)}")
        client_id = None if length < 0 else str(frame[position : position + length], "utf-8")
        position += max(length, 0)
        if header_version == 2:
            position = _skip_tags(frame, position)
        return RequestHeader(api_key, version, correlation_id, client_id, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"a request header is torn or garbled: {error}") from error


def encode_response(response: Message, api: Api[Any], version: int, correlation_id: int) -> list[Any]:
    """The frame of `response` in parts, the first with size prefix and header. Raises WireError."""
    parts = response.encode_parts(version)
    prefix = _SIZED_CORRELATION_ID_AND_TAGS if api.response_header_version(version) else _SIZED_CORRELATION_ID
    size = prefix.size - _CORRELATION_ID.size + sum(map(len, parts))
    parts[0] = prefix.pack(size, correlation_id) + parts[0]
    return parts


def read_correlation_id(frame: Buffer) -> int:
    """The correlation id that a response frame begins with. Raises WireError when it is torn."""
    if len(frame) < _CORRELATION_ID.size:
        raise WireError(f"a response of {len(frame)} bytes has no correlation id")
    return int(_CORRELATION_ID.unpack_from(frame)[0])


def decode_response(api: Api[ResponseType], version: int, frame: Buffer) -> tuple[int, ResponseType]:
    """Correlation id and message of a response frame without its size prefix. Raises WireError."""
    correlation_id = read_correlation_id(frame)
    position = _CORRELATION_ID.size
    if api.response_header_version(version):
        try:
            position = _skip_tags(frame, position)
        except IndexError as error:
            raise WireError(f"a response header is torn: {error}") from error
    return correlation_id, api.response.decode(frame, version, position)


def _skip_tags(frame: Buffer, position: int) -> int:
    return skip_tagged_fields(frame, frame[position], position + 1, len(frame))
