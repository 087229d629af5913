"""What clients are told that do not know PRODUCER_FENCED: that their epoch is old."""

from __future__ import annotations

from broker.errors import ErrorCode


def code_for_version(code: ErrorCode, version: int, *, fenced_from: int) -> ErrorCode:
    """The code as a request of `version` knows it, whose API has PRODUCER_FENCED since `fenced_from`."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
