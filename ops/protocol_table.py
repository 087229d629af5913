"""The table of the protocol's APIs in `ops/docs/protocol.md`, written out of the routes that a node serves.

`python -m ops.protocol_table` writes it anew; a test fails where the file is not what this would write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.server.dispatch import Route
from broker.server.routes import ROUTES
from broker.wire.registry import APIS, Api
from ops.markdown_table import table

DOCUMENT = Path(__file__).parent / "docs" / "protocol.md"

NOTES: Mapping[str, str] = {
    "Fetch": "incremental sessions",
    "ListOffsets": "nothing is tiered",
    "LeaderAndIsr": "between nodes",
    "StopReplica": "between nodes",
    "UpdateMetadata": "between nodes",
    "ControlledShutdown": "between nodes",
    "OffsetCommit": "version 0 is kept in ZooKeeper",
    "OffsetFetch": "version 0 is read out of ZooKeeper",
    "FindCoordinator": "of groups and transactional ids",
    "AddPartitionsToTxn": "from version 4 on between nodes",
    "WriteTxnMarkers": "between nodes, and to end what hangs",
    "DescribeConfigs": "of topics, groups and nodes",
    "AlterConfigs": "of topics, groups and nodes",
    "IncrementalAlterConfigs": "of topics, groups and nodes",
    "DescribeUserScramCredentials": "nobody has any",
    "ListConfigResources": "topics, groups and nodes",
}
"""What a version number does not tell, by API."""

_INTRODUCTION = """\
# The protocol, API by API

What a node advertises by ApiVersions, beside the versions that `broker/wire` has tables for (those a client
of ours can speak). Requests of other APIs and versions close the connection, but for a too new ApiVersions,
which is answered in version 0 with UNSUPPORTED_VERSION.

This file is written by `python -m ops.protocol_table`.
"""
_HEADINGS = ("Key", "API", "Served", "Known", "Note")


def render(routes: Sequence[Route], apis: Iterable[Api[Any]]) -> str:
    """The whole document."""
    served = {route.request.api_key: route for route in routes}
    rows = [_row(api, served.get(api.key)) for api in sorted(apis, key=lambda api: api.key)]
    return f"{_INTRODUCTION}\n{table(_HEADINGS, rows)}"


def _row(api: Api[Any], route: Route | None) -> tuple[str, ...]:
    served = "" if route is None else _versions(route.oldest, route.newest)
    note = NOTES.get(api.name, "") if route is not None else ""
    return (str(api.key), api.name, served, _versions(api.min_version, api.max_version), note)


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


if __name__ == "__main__":
    DOCUMENT.write_text(render(ROUTES, APIS.values()))
