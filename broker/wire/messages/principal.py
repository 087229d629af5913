"""The principal of a forwarded request."""

from __future__ import annotations

from broker.wire.message import VersionedData
from broker.wire.schema import boolean, string


class DefaultPrincipalData(VersionedData, versions="0", flexible="0+"):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
