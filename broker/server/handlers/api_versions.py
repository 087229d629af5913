"""ApiVersions: what this node serves, and who the client says it is."""

from __future__ import annotations

import re

from broker.errors import ErrorCode, ProtocolError
from broker.server.naming import Served
from broker.server.request import RequestContext
from broker.wire.features import PRODUCE_BATCHES, PRODUCE_BATCHES_MAX
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_FROM = 3


def handle(services: Served, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Raises ProtocolError INVALID_REQUEST for names of software that a metric could not carry (KIP-511)."""
    if context.api_version >= _NAMED_FROM:
        software = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"client software {software}")
        context.session.client_software = software
    batches = SupportedFeatureKey(name=PRODUCE_BATCHES, min_version=1, max_version=PRODUCE_BATCHES_MAX)
    return ApiVersionsResponse(api_keys=list(services.api_versions), supported_features=[batches])
