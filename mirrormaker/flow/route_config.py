"""The bounds of a copy machine, as a route's resources say. Pure."""

from __future__ import annotations

from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.topology.model import CopyMode, RouteSpec


def flow_config(route: RouteSpec, chunk_batches_max: int) -> FlowConfig:
    """`chunk_batches_max`: how many batches of a partition the destination takes in a request."""
    resources = route.resources
    return FlowConfig(
        buffer_bytes=resources.buffer_bytes,
        partition_buffer_bytes=resources.partition_buffer_bytes,
        fetch_bytes=resources.fetch_bytes,
        fetch_partition_bytes=resources.fetch_partition_bytes,
        produce_bytes=resources.produce_bytes,
        requests_in_flight=resources.requests_in_flight,
        chunk_batches_max=chunk_batches_max,
        deep=route.copy is CopyMode.DEEP,
    )
