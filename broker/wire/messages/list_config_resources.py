"""ListConfigResources: what has settings (KIP-1142); in version 0 only what client metrics have."""

from __future__ import annotations

from collections.abc import Sequence

from broker.wire.message import Message, Request
from broker.wire.schema import Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(
    Request["ListConfigResourcesResponse"], key=74, versions="0-1", flexible="0+"
):
    resource_types: Sequence[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
